//! Plans who hands a descriptor in, and who receives it: see [`crate::plan::messages`].

use std::{collections::HashMap, mem};

use crate::{
    Call, Skip,
    model::{
        names::{Kind, NO_NODE},
        processes::{Entry, Slot},
    },
    plan::{
        dependencies::Class,
        edge::EdgeKind,
        messages::{Sent, ToHandIn},
        planner::Planner,
        program::Act,
    },
    reel::input::Rec,
};

impl Planner {
    /// `task` opens the description `recorded`, which others may receive.
    pub(crate) fn opened_for_others(&mut self, task: usize, recorded: i64, entry: Entry) {
        let Some(left) = self.machine.reel.receipts.remove(&recorded) else { return };
        self.machine.processes.ofds[entry.ofd as usize].refs += 1;
        let sent = Sent { ofd: entry.ofd, skip: entry.slot.err(), place: None, left };
        self.messages.sent.insert(recorded, sent);
        if let Ok(slot) = entry.slot {
            self.messages.opened.push(ToHandIn { task, recorded, slot });
        }
    }

    /// Adds the steps that hand in what was opened. Before a slice, [`Self::hand_in_anew`] does that later.
    pub(crate) fn hand_in(&mut self) {
        for ToHandIn { task, recorded, slot } in mem::take(&mut self.messages.opened) {
            let Some(sent) = self.messages.sent.get_mut(&recorded).filter(|_| !self.programs.before_slice) else {
                continue;
            };
            let place = self.messages.receipts.len() as u32;
            self.messages.receipts.push(0);
            let shared = self.machine.processes.tables[self.machine.processes.of(task).table].was_shared;
            let at = self.programs.push(task, Act::HandIn { slot, place }, i64::MAX, |order| {
                if shared {
                    order.slot(slot, Class::Read);
                }
            });
            sent.place = Some((place, at));
        }
    }

    /// At the start of a slice: what is open and received in the slice is handed in by a thread that has it.
    pub(crate) fn hand_in_anew(&mut self) {
        let mut sent: Vec<(i64, u32)> = self.messages.sent.iter().map(|(id, s)| (*id, s.ofd)).collect();
        sent.sort_unstable();
        let threads = if sent.is_empty() { 0 } else { self.programs.tasks.len() };
        let mut slots: HashMap<u32, (usize, Slot)> = HashMap::new();
        for task in (0..threads).filter(|t| self.programs.tasks[*t].at_start) {
            let table = self.machine.processes.of(task).table;
            for entry in self.machine.processes.tables[table].value.values() {
                if let Ok(slot) = entry.slot {
                    slots.entry(entry.ofd).or_insert((task, slot));
                }
            }
        }
        for (recorded, ofd) in sent {
            if let Some((task, slot)) = slots.get(&ofd) {
                self.messages.opened.push(ToHandIn { task: *task, recorded, slot: *slot });
            }
        }
        self.hand_in();
    }

    /// A thread receives a descriptor.
    pub(crate) fn received(&mut self, r: &Rec) {
        if r.ret < 0 || r.in_flight {
            return self.programs.skip(Skip::Message);
        }
        let task = r.task as usize;
        let (ofd, why) = self.takes(r);
        let slot = match why {
            None => Ok(self.machine.processes.new_slot(task)),
            Some(why) => Err(why),
        };
        let cloexec = r.call == Call::PidfdGetfd || r.flags as i32 & libc::O_CLOEXEC != 0;
        self.put(r, r.ret as i32, Entry { slot, ofd, cloexec }, false);
        match slot {
            Ok(slot) => self.receives(r, task, slot),
            Err(why) => self.programs.skip(why),
        }
        self.let_go(r);
    }

    /// The open file description that a thread receives, and why it is not open in the replay.
    fn takes(&mut self, r: &Rec) -> (u32, Option<Skip>) {
        match self.messages.sent.get(&r.ofd) {
            // Closed by its sender before the slice, and on its way when the slice starts.
            Some(s) => (s.ofd, s.skip.or((s.place.is_none() && !self.programs.before_slice).then_some(Skip::Message))),
            None => {
                let kind = self.machine.reel.files.get(&r.file).map_or(Kind::Unknown, |f| f.kind);
                let ofd = self.new_ofd(NO_NODE, r.file, kind, None, 0);
                (ofd, Some(Skip::of_kind(kind).unwrap_or(Skip::Message)))
            }
        }
    }

    /// Adds the step that receives a descriptor.
    fn receives(&mut self, r: &Rec, task: usize, slot: Slot) {
        let Some((place, at)) = self.messages.sent.get(&r.ofd).and_then(|s| s.place) else { return };
        self.messages.received += i64::from(!self.programs.before_slice);
        self.messages.receipts[place as usize] += 1;
        let shared = self.machine.processes.tables[self.machine.processes.of(task).table].was_shared;
        self.programs.push(task, Act::Receive { place, slot }, i64::MAX, |order| {
            order.after(at, EdgeKind::Descriptor);
            if shared {
                order.slot(slot, Class::Alone);
            }
        });
    }

    /// One receipt fewer is to come. After the last one, only descriptors keep the description open.
    fn let_go(&mut self, r: &Rec) {
        let Some(sent) = self.messages.sent.get_mut(&r.ofd) else { return };
        sent.left = sent.left.saturating_sub(1);
        let Sent { ofd, left, .. } = *sent;
        if left == 0 {
            self.messages.sent.remove(&r.ofd);
            let last = self.machine.processes.unref(ofd);
            self.closed(last);
        }
    }
}
