//! The one pass over a reel that all panels share: rows are read and handed to those that want them.
//!
//! Requests are decoded on one thread and counted on two others; calls and bios are read on a fourth. Each panel is fed by
//! one thread alone and in order, so that what it counts does not depend on timing.

use std::{
    sync::{Arc, mpsc::sync_channel},
    thread,
};

use ioreel_analyze::{
    bios::each_bio,
    calls::each_call,
    requests::{Request, bios_as_requests, requests},
    seeks::{Seek, SeekCounter},
};
use ioreel_traces::Reel;

use crate::{
    PlotError, Result,
    panels::{Needs, Panel},
    shape::Shape,
    survey::{Choice, Survey},
};

/// A request of the drawn device, with what only the order of all of them tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issue {
    pub(crate) request: Request,
    /// What seek it was, within the window.
    pub(crate) seek: Seek,
    /// Whether it was issued in the window.
    pub(crate) inside: bool,
}

type Boxed = Box<dyn Panel>;

/// Panels with their places.
type Placed = Vec<(usize, Boxed)>;

/// Threads that count requests: the machine's other core or two.
const COUNTERS: usize = 2;
/// Batches on their way to a counter: enough that neither side waits for the other's last row.
const AHEAD: usize = 4;

/// Feeds the panels and returns what each made, in their order.
pub(crate) fn gather(reel: &Reel, survey: &Survey, choice: &Choice, panels: Vec<Boxed>) -> Result<Vec<Shape>> {
    let count = panels.len();
    let mut counters: Vec<Placed> = (0..COUNTERS).map(|_| Vec::new()).collect();
    let mut others: Placed = Vec::new();
    let mut panels: Placed = panels.into_iter().enumerate().collect();
    // The costly ones first, so that the others even out what these leave.
    panels.sort_by_key(|(_, panel)| std::cmp::Reverse(panel.cost()));
    for (place, panel) in panels {
        if panel.needs() == Needs::Requests {
            let least = (0..COUNTERS).min_by_key(|i| counters[*i].iter().map(|(_, p)| p.cost()).sum::<u32>());
            counters[least.unwrap_or(0)].push((place, panel));
        } else {
            others.push((place, panel));
        }
    }
    let done = thread::scope(|threads| -> Result<Placed> {
        let mut senders = Vec::new();
        let mut running = Vec::new();
        for mut placed in counters.into_iter().filter(|c| !c.is_empty()) {
            let (sender, receiver) = sync_channel::<Arc<Vec<Issue>>>(AHEAD);
            senders.push(sender);
            running.push(threads.spawn(move || {
                for batch in receiver {
                    placed.iter_mut().for_each(|(_, panel)| panel.requests(&batch));
                }
                placed
            }));
        }
        let calls = threads.spawn(move || feed_others(reel, others));
        let read = if senders.is_empty() { Ok(()) } else { read_requests(reel, survey, choice, &senders) };
        drop(senders);
        let mut done = Vec::new();
        for thread in running {
            done.extend(thread.join().map_err(|_| died())?);
        }
        done.extend(calls.join().map_err(|_| died())??);
        read.map(|()| done)
    })?;
    let mut shapes: Vec<Option<Shape>> = (0..count).map(|_| None).collect();
    for (place, panel) in done {
        shapes[place] = Some(panel.finish());
    }
    shapes.into_iter().map(|s| s.ok_or_else(died)).collect()
}

fn died() -> PlotError {
    PlotError::Render { why: "a thread that counts has died, which is a bug".into() }
}

fn read_requests(
    reel: &Reel,
    survey: &Survey,
    choice: &Choice,
    to: &[std::sync::mpsc::SyncSender<Arc<Vec<Issue>>>],
) -> Result<()> {
    let Some(device) = &survey.device else { return Ok(()) };
    let mut all = if device.of_bios { bios_as_requests(reel) } else { requests(reel) };
    let mut seeks = SeekCounter::default();
    while let Some(batch) = all.next_batch()? {
        let issue = |request: Request| {
            let inside = choice.holds(request.issue_ns);
            let counts = inside && request.class.is_data();
            let seek = if counts { seeks.push(request.sector, request.end_sector()) } else { Seek::default() };
            Issue { request, seek, inside }
        };
        let batch: Arc<Vec<Issue>> = Arc::new(batch.into_iter().filter(|r| r.dev == device.dev).map(issue).collect());
        for sender in to {
            // Nobody listens any more only when the counter has died, which is told when it is joined.
            let _ = sender.send(Arc::clone(&batch));
        }
    }
    Ok(())
}

/// Calls first, then bios: a panel of both knows the calls when their bios come.
fn feed_others(reel: &Reel, mut panels: Placed) -> Result<Placed> {
    if panels.iter().any(|(_, p)| p.needs() != Needs::Bios) {
        each_call(reel, |call| {
            if !call.by_tool {
                panels.iter_mut().for_each(|(_, panel)| panel.call(call));
            }
        })?;
    }
    if panels.iter().any(|(_, p)| p.needs() != Needs::Calls) {
        each_bio(reel, |bio| panels.iter_mut().for_each(|(_, panel)| panel.bio(bio)))?;
    }
    Ok(panels)
}
