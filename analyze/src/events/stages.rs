//! Stages of a request before its issue, from the records of an imported block trace: creation (G) and insertion into
//! the scheduler (I). A recording has no such records, so its requests have no such stages.

use std::collections::BTreeMap;

use ioreel_traces::{
    Reel, Text,
    blktrace::category,
    rows::Action,
    table::{Cell, Column, Row, column},
};

use crate::{
    Result, bad_column,
    events::requests::{Class, Request},
};

/// Maximum number of records, some 200 MB. In longer traces these stages are not computed; see [`too_many`].
pub const MOST_ACTIONS: i64 = 8_000_000;

/// Maximum number of places examined in a request, and of records at a place. A request of 4 MiB has 8192 sectors.
const MOST_LOOKED_AT: usize = 8192;

/// The number of records of an imported block trace, if it is more than `most` and [`Moments`] is therefore empty.
pub fn too_many(reel: &Reel, most: i64) -> Option<i64> {
    Some(reel.count::<Action>()).filter(|n| *n > most)
}

/// A record: time, whether it is a write, whether it is G.
type Moment = (i64, bool, bool);

/// Records G and I by device and sector, each ordered by time.
#[derive(Debug, Default)]
pub struct Moments(BTreeMap<(i64, i64), Vec<Moment>>);

/// Times of a request's stages. Each is no earlier than the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// When its first bio was queued (Q).
    pub queue_ns: i64,
    /// When it was created (G), if known.
    pub made_ns: Option<i64>,
    /// When it was inserted into the scheduler (I), if known.
    pub inserted_ns: Option<i64>,
}

impl Moments {
    /// The records of a reel. `None` if there are none, or more than `most`.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn of(reel: &Reel, most: i64) -> Result<Option<Self>> {
        if !(1..=most).contains(&reel.count::<Action>()) {
            return Ok(None);
        }
        let mut all = Self::default();
        for batch in reel.batches::<Action>(&["time_ns", "event", "action", "sector", "dev"]) {
            let batch = batch?;
            let bad = |why| bad_column(Action::TABLE)(why);
            let number = |name| column::<i64>(&batch, name).map_err(bad);
            let (time_ns, action, sector, dev) =
                (number("time_ns")?, number("action")?, number("sector")?, number("dev")?);
            let event = column::<Text>(&batch, "event").map_err(bad)?;
            let Column::Text(event, events) = &event else { return Err(bad("column event is no text".into())) };
            let made = |name: &Text| match &**name {
                "G" => Some(true),
                "I" => Some(false),
                _ => None,
            };
            let made: Vec<Option<bool>> = events.iter().map(|n| n.as_ref().and_then(made)).collect();
            let get = <i64 as Cell>::get;
            for i in 0..batch.num_rows() {
                if let Some(made) = event.key(i).and_then(|k| made.get(k).copied().flatten()) {
                    let write = get(&action, i) & i64::from(category::WRITE) != 0;
                    let place = (get(&dev, i), get(&sector, i));
                    all.0.entry(place).or_default().push((get(&time_ns, i), write, made));
                }
            }
        }
        all.0.values_mut().for_each(|moments| moments.sort_unstable());
        Ok((!all.0.is_empty()).then_some(all))
    }

    /// The stages of a request: the first G and the first I in its sectors between queueing and issue. Bios may have
    /// been merged to its front after its creation, so any of its sectors counts. `None` if its queueing is unknown.
    pub fn stages(&self, r: &Request) -> Option<Stages> {
        let queue_ns = r.queue_ns.filter(|q| *q <= r.issue_ns)?;
        let mut first: [Option<i64>; 2] = [None, None];
        if r.end_sector() > r.sector {
            let write = r.class != Class::Read;
            let places = self.0.range((r.dev, r.sector)..(r.dev, r.end_sector()));
            for moments in places.map(|(_, m)| m).take(MOST_LOOKED_AT) {
                let from = moments.partition_point(|(t, ..)| *t < queue_ns);
                let during = moments[from..].iter().take(MOST_LOOKED_AT).take_while(|(t, ..)| *t <= r.issue_ns);
                let mut here: [Option<i64>; 2] = [None, None];
                for (t, _, made) in during.filter(|(_, w, _)| *w == write) {
                    here[usize::from(!made)].get_or_insert(*t);
                    // The records of a place are sorted by time.
                    if here.iter().all(Option::is_some) {
                        break;
                    }
                }
                for (first, here) in first.iter_mut().zip(here) {
                    *first = first.iter().copied().chain(here).min();
                }
            }
        }
        let [made_ns, inserted_ns] = first;
        // Inserted before its creation: this belongs to another request at the same sector.
        let inserted_ns = inserted_ns.filter(|i| made_ns.is_none_or(|g| g <= *i));
        Some(Stages { queue_ns, made_ns, inserted_ns })
    }
}
