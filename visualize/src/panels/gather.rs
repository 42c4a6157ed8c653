//! Reads a reel once and passes its rows to all panels that need them.
//!
//! One thread decodes requests, two count them, and a fourth reads calls and bios. A single thread feeds each panel in
//! order, so the result does not depend on timing.

use std::{
    sync::{Arc, mpsc::sync_channel},
    thread,
};

use ioreel_analyze::{
    events::{
        bios::each_bio,
        calls::each_call,
        requests::{Request, bios_as_requests, bios_as_requests_with_ids, requests, requests_with_ids},
    },
    meters::seeks::{Seek, SeekCounter},
};
use ioreel_traces::Reel;

use crate::{
    PlotError, Result,
    model::{
        idle::Squeeze,
        shape::Shape,
        survey::{MOST_JUMPS, Survey},
    },
    panels::panel::{Issue, Needs, Panel},
};

/// Requests of the drawn device that were issued before they were queued, because of clock jumps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Early {
    pub(crate) count: u64,
    /// Issue times of the first of them.
    pub(crate) at_ns: Vec<i64>,
}

/// Result of a pass.
pub(crate) struct Gathered {
    /// Output of each panel.
    pub(crate) shapes: Vec<Shape>,
    pub(crate) early: Early,
}

type Boxed = Box<dyn Panel>;

/// Panels with their positions.
type Placed = Vec<(usize, Boxed)>;

/// Number of counting threads.
const COUNTERS: usize = 2;
/// Batches queued per counter, enough to keep both sides busy.
const AHEAD: usize = 4;

/// Feeds the panels and returns the output of each, in their order. With `ids`, requests have ids.
/// Events are at their places on the axis of `squeeze`.
pub(crate) fn gather(
    reel: &Reel,
    survey: &Survey,
    squeeze: &Squeeze,
    ids: bool,
    panels: Vec<Boxed>,
) -> Result<Gathered> {
    let count = panels.len();
    let mut counters: Vec<Placed> = (0..COUNTERS).map(|_| Vec::new()).collect();
    let mut others: Placed = Vec::new();
    let mut panels: Placed = panels.into_iter().enumerate().collect();
    // Expensive panels first, so that the others balance the load.
    panels.sort_by_key(|(_, panel)| std::cmp::Reverse(panel.cost()));
    for (place, panel) in panels {
        if panel.needs() == Needs::Requests {
            let least = (0..COUNTERS).min_by_key(|i| counters[*i].iter().map(|(_, p)| p.cost()).sum::<u32>());
            counters[least.unwrap_or(0)].push((place, panel));
        } else {
            others.push((place, panel));
        }
    }
    let (done, early) = thread::scope(|threads| -> Result<(Placed, Early)> {
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
        let calls = threads.spawn(move || feed_others(reel, squeeze, others));
        let read =
            if senders.is_empty() { Ok(Early::default()) } else { read_requests(reel, survey, squeeze, ids, &senders) };
        drop(senders);
        let mut done = Vec::new();
        for thread in running {
            done.extend(thread.join().map_err(|_| died())?);
        }
        done.extend(calls.join().map_err(|_| died())??);
        read.map(|early| (done, early))
    })?;
    let mut shapes: Vec<Option<Shape>> = (0..count).map(|_| None).collect();
    for (place, panel) in done {
        shapes[place] = Some(panel.finish());
    }
    let shapes = shapes.into_iter().map(|s| s.ok_or_else(died)).collect::<Result<_>>()?;
    Ok(Gathered { shapes, early })
}

fn died() -> PlotError {
    PlotError::Render { why: "a counting thread died, which is a bug in ioreel".into() }
}

fn read_requests(
    reel: &Reel,
    survey: &Survey,
    squeeze: &Squeeze,
    ids: bool,
    to: &[std::sync::mpsc::SyncSender<Arc<Vec<Issue>>>],
) -> Result<Early> {
    let mut early = Early::default();
    let Some(device) = &survey.device else { return Ok(early) };
    // Ids are read only for colours that depend on bios.
    let mut all = match (device.of_bios, ids) {
        (true, true) => bios_as_requests_with_ids(reel),
        (true, false) => bios_as_requests(reel),
        (false, true) => requests_with_ids(reel),
        (false, false) => requests(reel),
    };
    let mut seeks = SeekCounter::default();
    while let Some(batch) = all.next_batch()? {
        let issue = |mut request: Request| {
            let inside = survey.choice.holds(request.issue_ns);
            let counts = inside && request.class.is_data();
            let seek = if counts { seeks.push(request.sector, request.end_sector()) } else { Seek::default() };
            squeeze.request(&mut request);
            Issue { request, seek, inside }
        };
        for r in batch.iter().filter(|r| r.queue_ns > Some(r.issue_ns) && r.dev == device.dev) {
            early.count += 1;
            if early.at_ns.len() < MOST_JUMPS {
                early.at_ns.push(r.issue_ns);
            }
        }
        let batch: Arc<Vec<Issue>> = Arc::new(batch.into_iter().filter(|r| r.dev == device.dev).map(issue).collect());
        for sender in to {
            // Sending fails only if the counter has died, which joining it reports.
            let _ = sender.send(Arc::clone(&batch));
        }
    }
    Ok(early)
}

/// Calls first, then bios: a panel of both needs the calls first.
fn feed_others(reel: &Reel, squeeze: &Squeeze, mut panels: Placed) -> Result<Placed> {
    // Each panel gets only what it needs: one that can count either must not count both because another panel needs
    // both.
    panels.sort_by_key(|(_, p)| match p.needs() {
        Needs::Calls => 0,
        Needs::Both => 1,
        Needs::Bios | Needs::Requests => 2,
    });
    let calls = panels.iter().filter(|(_, p)| p.needs() == Needs::Calls).count();
    let bios = panels.iter().filter(|(_, p)| p.needs() == Needs::Bios).count();
    let (with_calls, with_bios) = (0..panels.len() - bios, calls..panels.len());
    if !with_calls.is_empty() {
        each_call(reel, |call| {
            if !call.by_tool {
                let call = squeeze.call(call);
                panels[with_calls.clone()].iter_mut().for_each(|(_, panel)| panel.call(&call));
            }
        })?;
    }
    if !with_bios.is_empty() {
        each_bio(reel, |bio| {
            let bio = squeeze.bio(bio);
            panels[with_bios.clone()].iter_mut().for_each(|(_, panel)| panel.bio(&bio));
        })?;
    }
    Ok(panels)
}
