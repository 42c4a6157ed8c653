//! From when on a reel is complete.

use std::collections::BTreeMap;

use super::Reel;
use crate::{
    Result,
    format::{
        manifest::State,
        rows::{Bio, Block, Op},
        table::Row,
    },
};

/// How [`Manifest::left_out`](crate::Manifest::left_out) ends the names of rows that rotation dropped.
pub const DROPPED: &str = " dropped again by rotation";

impl Reel {
    /// The time from which on no event was dropped; 0 if nothing was. Earlier rows may be there, but not all: rates must
    /// not count that time.
    ///
    /// A reel of an older recorder or of one that died, or a reel whose first segments somebody removed, does not state
    /// this time. The first end of an event that is there takes its place.
    ///
    /// # Errors
    /// If the first segment of a table cannot be read.
    pub fn kept_from_ns(&self) -> Result<i64> {
        let stated_ns = self.manifest.span.kept_from_ns;
        if stated_ns > 0 && self.manifest.state == State::Complete {
            return Ok(stated_ns);
        }
        let starts = [self.first_kept::<Op>()?, self.first_kept::<Block>()?, self.first_kept::<Bio>()?];
        // A single table that starts late may have lost a damaged segment.
        let removed = starts.iter().all(|s| *s != Start::Whole);
        if !removed && stated_ns == 0 && self.dropped().next().is_none() {
            return Ok(0);
        }
        Ok(starts
            .iter()
            .filter_map(|s| if let Start::Cut(ns) = s { Some(*ns) } else { None })
            .fold(stated_ns, i64::max))
    }

    /// What rotation dropped: rows, and what they were.
    pub fn dropped(&self) -> impl Iterator<Item = (i64, &str)> {
        let left_out: &BTreeMap<String, i64> = &self.manifest.left_out;
        left_out.iter().filter(|(_, n)| **n > 0).filter_map(|(why, n)| Some((*n, why.strip_suffix(DROPPED)?)))
    }

    fn first_kept<R: Row>(&self) -> Result<Start> {
        let Some(first) = self.listed::<R>().first() else { return Ok(Start::Empty) };
        let number = first.file.rsplit('/').next().and_then(|name| name.split('.').next()?.parse::<u64>().ok());
        if number.is_none_or(|n| n == 0) {
            return Ok(Start::Whole);
        }
        Ok(self.segment_span::<R>(0)?.map_or(Start::Empty, |span| Start::Cut(span.first_end_ns)))
    }
}

/// How a table starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// It has no rows.
    Empty,
    /// With its first segment.
    Whole,
    /// With a later one, in which the first event ends then.
    Cut(i64),
}
