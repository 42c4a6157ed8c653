//! The order in which overlapping operations took effect.
//!
//! An operation took effect at some moment between entry and return. It is placed at its return, unless results require
//! an earlier moment: an open that found a file comes after what put the file there, one that found nothing comes
//! before. Positions of shared descriptors and sizes seen by reads decide likewise.
//!
//! If several operations could make a result possible, the one that returns first is chosen. None is placed earlier
//! than needed, because it may be needed later.

mod touches;

use crate::{
    model::machine::Machine,
    model::{
        names::{NO_NODE, NodeId},
        operands::Operands,
    },
    plan::{pool::Pool, races::Races},
    reel::{input::Rec, submission::Phase},
};

/// State that results reveal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    /// What a name stands for: a file id, [`SOME`] or [`GONE`].
    Name(NodeId),
    Position(u32),
    Size(i64),
    /// A descriptor number in a table: 1 after it was assigned, 0 after it was closed.
    Number(usize, i32),
}

/// Value of a name: nothing.
const GONE: i64 = -1;

/// Value of a name: an unknown file.
const SOME: i64 = -2;

/// Maximum number of operations tried to make another one possible.
const TRIES: u32 = 64;

/// What a result requires of the value before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Anything,
    /// The name exists.
    There,
    /// The name stands for this file.
    File(i64),
    Exactly(i64),
    /// A read at .0 of .1 bytes returned .2.
    ReadOf(i64, i64, i64),
}

/// One value that an operation saw, and perhaps changed.
#[derive(Clone, Copy, Debug)]
struct Touch {
    key: Key,
    needs: Needs,
    becomes: Option<i64>,
    /// For a changed name: the node that names below it are found at from then on. That is where it was before a
    /// rename, or the target if it is now a link; [`NO_NODE`] if unknown.
    shows: NodeId,
}

/// Everything that an operation saw or changed.
#[derive(Debug, Default)]
struct Touches {
    all: Vec<Touch>,
    /// Names of which at least one did not exist, since the operation failed with ENOENT.
    lacks: Vec<NodeId>,
    /// Symbolic links that its paths pass, and where these currently lead.
    links: Vec<(NodeId, NodeId)>,
}

/// Operands of an operation in flight, cached until they may change.
#[derive(Debug)]
pub(crate) struct ResolvedNames {
    row: u32,
    /// See [`Overlaps::as_of`].
    as_of: (u64, usize, u64),
    view: Operands,
    /// See [`Machine::parents_exist`].
    parents_exist: bool,
    links: Vec<(NodeId, NodeId)>,
}

/// A requirement that is not met: one of these would have to be.
struct Unmet {
    one_of: Vec<(Key, Needs)>,
}

/// An operation in flight.
struct Other {
    id: u32,
    touches: Touches,
}

/// All values that one operation changes.
type Changes = Vec<Touch>;

impl Needs {
    /// Whether the value satisfies the requirement. An unknown value does.
    fn fits(self, value: Option<i64>) -> bool {
        let Some(value) = value else { return true };
        match self {
            Self::Anything => true,
            Self::There => value != GONE,
            Self::File(file) => value == file || value == SOME,
            Self::Exactly(v) => v == value,
            Self::ReadOf(offset, len, ret) => ret == value.saturating_sub(offset).clamp(0, len.max(0)),
        }
    }
}

impl Touches {
    fn changes(&self) -> Changes {
        self.all.iter().filter(|t| t.becomes.is_some()).copied().collect()
    }
}

/// Whether `theirs` must come first because of a descriptor number: it frees the number that `mine` is assigned or does
/// not find, or it fails because the number is not assigned yet.
fn number_is_free_first(theirs: &Touches, mine: &Touches) -> bool {
    theirs.all.iter().filter(|t| matches!(t.key, Key::Number(..))).any(|t| {
        let other = mine.all.iter().find(|m| m.key == t.key && m.becomes != t.becomes);
        other.is_some_and(|m| t.becomes == Some(0) || t.becomes.is_none() && m.becomes == Some(1))
    })
}

/// Determines the order of overlapping operations.
pub(crate) struct Overlaps<'a> {
    pub(crate) machine: &'a mut Machine,
    /// Resolved operands of operations in flight, by id.
    pub(crate) looks: &'a mut Vec<Option<ResolvedNames>>,
    pub(crate) races: &'a Races,
    pub(crate) pool: &'a Pool,
    /// Work done so far.
    pub(crate) compared: &'a mut u64,
}

impl Overlaps<'_> {
    /// What a name currently stands for.
    fn file_at(&mut self, node: NodeId) -> Option<i64> {
        let there = self.machine.names.exists(node)?;
        let file = if there { self.machine.named_files.get(node).filter(|f| *f >= 0).unwrap_or(SOME) } else { GONE };
        Some(file)
    }

    /// The value of `key` after these changes, for an operation that passes these links.
    fn value(&mut self, key: Key, changed: &[Changes], links: &[(NodeId, NodeId)]) -> Option<i64> {
        for (i, c) in changed.iter().enumerate().rev().flat_map(|(i, all)| all.iter().map(move |c| (i, c))) {
            if c.key == key {
                return c.becomes;
            }
            let (Key::Name(node), Key::Name(top)) = (key, c.key) else { continue };
            // Names below a directory move with it; names behind a link change with the link.
            let led = links.iter().find(|(link, _)| *link == top).map(|(_, to)| *to);
            let Some(top) = [Some(top), led].into_iter().flatten().find(|n| self.machine.names.is_within(node, *n))
            else {
                continue;
            };
            return match c.becomes {
                Some(GONE) => Some(GONE),
                _ if c.shows == NO_NODE => None,
                _ => {
                    let node = self.machine.names.moved(node, top, c.shows);
                    self.value(Key::Name(node), &changed[..i], links)
                }
            };
        }
        match key {
            Key::Name(node) => self.file_at(node),
            Key::Position(ofd) => self.machine.processes.ofds[ofd as usize].pos,
            Key::Size(file) => self.machine.sizes.size(file),
            Key::Number(..) => None,
        }
    }

    /// The first requirement of an operation that is not met after these changes.
    fn unmet(&mut self, touches: &Touches, changed: &[Changes]) -> Option<Unmet> {
        let Touches { all, lacks, links } = touches;
        let lacked = |p: &mut Self, n: &NodeId| p.value(Key::Name(*n), changed, links).is_none_or(|v| v == GONE);
        if !lacks.is_empty() && !lacks.iter().any(|n| lacked(self, n)) {
            return Some(Unmet { one_of: lacks.iter().map(|n| (Key::Name(*n), Needs::Exactly(GONE))).collect() });
        }
        let sure = |t: &&Touch| t.needs != Needs::Anything;
        let t = all.iter().filter(sure).find(|t| !t.needs.fits(self.value(t.key, changed, links)))?;
        Some(Unmet { one_of: vec![(t.key, t.needs)] })
    }

    fn fits(&mut self, touches: &Touches, changed: &[Changes]) -> bool {
        self.unmet(touches, changed).is_none()
    }

    fn is_met(&mut self, unmet: &Unmet, changed: &[Changes], links: &[(NodeId, NodeId)]) -> bool {
        unmet.one_of.iter().any(|(key, needs)| needs.fits(self.value(*key, changed, links)))
    }

    /// The operation in flight, if any, that took effect before `rec`, which is about to be committed. Marks operations
    /// whose order results do not determine as raced.
    pub(crate) fn before(&mut self, rec: &mut Rec) -> Option<u32> {
        let look = self.look_along(rec);
        let mine = self.touches(rec, &look);
        self.races_within_thread(rec);
        // An operation that touches nothing is in nobody's way.
        let others = if mine.all.is_empty() { Vec::new() } else { self.in_flight_with(rec) };
        if let Some(o) = others.iter().find(|o| number_is_free_first(&o.touches, &mine)) {
            return Some(o.id);
        }
        let (mut changed, mut sequence, mut tries) = (Vec::new(), Vec::new(), TRIES);
        if self.made_possible(&mine, &others, &mut Vec::new(), &mut sequence, &mut changed, &mut tries)
            && let Some(first) = sequence.first()
        {
            return Some(others[*first].id);
        }
        let after_mine = [mine.changes()];
        for o in others {
            if !self.concerns(&mine, &o.touches) || !self.fits(&o.touches, &[]) {
                continue;
            }
            let after_theirs = [o.touches.changes()];
            let later = self.fits(&o.touches, &after_mine);
            let mine_later = after_theirs[0].is_empty() || self.fits(&mine, &after_theirs);
            if !later && mine_later {
                // It saw what `rec` is about to change.
                return Some(o.id);
            }
            if later && mine_later && o.touches.all.iter().any(|t| mine.all.iter().any(|m| is_race(m, t))) {
                // The results fit either order, so a different result in the replay is as good.
                rec.raced = true;
                if let Some(other) = &mut self.machine.reel.recs[o.id as usize] {
                    other.raced = true;
                }
            }
        }
        None
    }

    /// Whether one changes something that the other saw or changed.
    fn concerns(&self, mine: &Touches, theirs: &Touches) -> bool {
        let reaches = |change: &Touch, touch: &Touch| match (change.key, touch.key) {
            (Key::Name(top), Key::Name(node)) => self.machine.names.is_within(node, top),
            (a, b) => a == b,
        };
        let changes = |a: &Touches, b: &Touches| {
            a.all.iter().filter(|t| t.becomes.is_some()).any(|change| {
                b.all.iter().any(|t| reaches(change, t))
                    || b.links.iter().any(|(link, _)| Key::Name(*link) == change.key)
            })
        };
        changes(mine, theirs) || changes(theirs, mine)
    }

    /// Marks requests in flight of the same thread whose results may depend on their order with `rec`.
    fn races_within_thread(&mut self, rec: &mut Rec) {
        if rec.phase != Phase::Ended {
            return;
        }
        let requests = self.pool.requests_of(rec.task);
        *self.compared += requests.len() as u64 / 16;
        for (id, _) in requests {
            let Some(other) = self.machine.reel.recs[id as usize].as_ref() else { continue };
            if self.races.may_race(self.machine, rec, other) {
                rec.raced = true;
                if let Some(other) = &mut self.machine.reel.recs[id as usize] {
                    other.raced = true;
                }
            }
        }
    }

    /// The operations in flight of other threads, by return.
    fn in_flight_with(&mut self, rec: &Rec) -> Vec<Other> {
        let mut others = Vec::new();
        for (id, row) in self.pool.first() {
            let of_another =
                self.machine.reel.recs[id as usize].as_ref().is_some_and(|o| o.row == row && o.task != rec.task);
            let Some(other) = (if of_another { self.machine.reel.take(id) } else { None }) else { continue };
            let touches = self.touches_in_flight(id, &other);
            others.push(Other { id, touches });
            self.machine.reel.recs[id as usize] = Some(other);
        }
        *self.compared += others.len() as u64 / 2;
        others
    }

    /// What an operation in flight saw or changed. Its operands are resolved again only if they may have changed: with
    /// many in flight, each is needed at every return.
    fn touches_in_flight(&mut self, id: u32, r: &Rec) -> Touches {
        let table = self.machine.processes.of(r.task as usize).table;
        let at = id as usize;
        if self.looks.len() <= at {
            self.looks.resize_with(at + 1, || None);
        }
        // Whether an attribute is known changes without any of these.
        let steady = !(r.call.gets_attribute() || r.call.sets_attribute() || r.call.removes_attribute());
        let as_of = self.as_of(table);
        let same = |l: &ResolvedNames| steady && l.row == r.row && l.as_of == as_of;
        let known = self.looks[at].take().filter(same);
        let look = known.unwrap_or_else(|| self.look_along(r));
        let touches = self.touches(r, &look);
        self.looks[at] = Some(look);
        touches
    }

    /// Searches a sequence of operations in flight after which `mine` is possible. Adds their changes to `changed` and
    /// their indices to `sequence`. `busy`: operations whose own requirements are being searched. False if there is
    /// none.
    fn made_possible(
        &mut self,
        mine: &Touches,
        others: &[Other],
        busy: &mut Vec<usize>,
        sequence: &mut Vec<usize>,
        changed: &mut Vec<Changes>,
        tries: &mut u32,
    ) -> bool {
        let Some(unmet) = self.unmet(mine, changed) else { return true };
        for (i, o) in others.iter().enumerate() {
            if busy.contains(&i) || sequence.contains(&i) {
                continue;
            }
            let after = [o.touches.changes()];
            if after[0].is_empty() || !self.is_met(&unmet, &after, &mine.links) {
                continue;
            }
            let Some(left) = tries.checked_sub(1) else { return false };
            *tries = left;
            let before = (sequence.len(), changed.len());
            busy.push(i);
            let possible = self.made_possible(&o.touches, others, busy, sequence, changed, tries);
            busy.pop();
            if possible {
                sequence.push(i);
                changed.extend(after);
                if self.is_met(&unmet, changed, &mine.links)
                    && self.made_possible(mine, others, busy, sequence, changed, tries)
                {
                    return true;
                }
            }
            sequence.truncate(before.0);
            changed.truncate(before.1);
        }
        false
    }
}

/// Whether the order of two operations matters to others. Only whether a name exists matters, not which file has it;
/// descriptor numbers have only one possible order.
fn is_race(mine: &Touch, theirs: &Touch) -> bool {
    if matches!(mine.key, Key::Number(..)) {
        return false;
    }
    let plain = |t: &Touch| t.becomes.map(|v| if matches!(t.key, Key::Name(_)) { i64::from(v != GONE) } else { v });
    mine.key == theirs.key && plain(mine) != plain(theirs)
}
