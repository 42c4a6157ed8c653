//! Decides whether the values of a line make a row, and of which kind.

use super::{Options, Rows, fields, values::Values};
use crate::import::lines::quoted;

/// A request or an operation, with times of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked {
    /// Start or issue.
    pub(super) start: i128,
    /// End.
    pub(super) end: Option<i128>,
    /// First sector of a request, or -1.
    pub(super) sector: i64,
    /// The kind of a request.
    pub(super) request: &'static str,
}

/// Checks values.
#[derive(Debug)]
pub(super) struct Judge<'o> {
    options: &'o Options,
    /// The last word in the operation column and what it means.
    last: (Vec<u8>, &'static str),
}

impl<'o> Judge<'o> {
    pub(super) fn new(options: &'o Options) -> Self {
        Self { options, last: (Vec::new(), "") }
    }

    /// Why these values make no row. `ops`: the meaning of words in the operation column.
    pub(super) fn check(&mut self, v: &Values, ops: &[(String, String)]) -> Result<(), String> {
        match self.options.rows {
            Rows::Block => self.request(v, ops).map(drop),
            Rows::Ops => self.op(v).map(drop),
        }
    }

    /// The request of these values.
    pub(super) fn request(&mut self, v: &Values, ops: &[(String, String)]) -> Result<Checked, String> {
        let issue = v.time.ok_or("empty issue time; every request needs one")?;
        let end = v.end.or(v.duration.map(|d| issue + d));
        if end.is_some_and(|end| end < issue) {
            return Err("request completes before it is issued; check the columns' order and units".into());
        }
        if v.queue.is_some_and(|queue| queue > issue) {
            return Err("request is issued before it is queued; check the columns' order and units".into());
        }
        let sector = match v.offset {
            Some(offset) if offset % 512 != 0 => return Err(format!("offset {offset} is not a multiple of 512 bytes")),
            Some(offset) if v.len.unwrap_or(0) > 0 => offset / 512,
            _ => -1,
        };
        Ok(Checked { start: issue, end, sector, request: self.kind(v, ops)? })
    }

    /// The word in the operation column, or the one for all lines.
    fn word<'v>(&self, v: &'v Values) -> &'v [u8]
    where
        'o: 'v,
    {
        if v.op.is_empty() { self.options.op.as_deref().unwrap_or_default().as_bytes() } else { &v.op }
    }

    fn kind(&mut self, v: &Values, ops: &[(String, String)]) -> Result<&'static str, String> {
        let word = self.word(v);
        if word.is_empty() || self.last.0 != word {
            let mapped =
                self.options.op_map.iter().chain(ops).find(|(from, _)| from.as_bytes().eq_ignore_ascii_case(word));
            let meaning = mapped.map_or(word, |(_, to)| to.as_bytes());
            self.last = (word.to_vec(), fields::request(meaning).ok_or_else(|| unknown(meaning))?);
        }
        Ok(self.last.1)
    }

    /// The operation of these values: its times and its name.
    pub(super) fn op<'v>(&self, v: &'v Values) -> Result<(Checked, &'v [u8]), String>
    where
        'o: 'v,
    {
        let start = v.time.ok_or("empty start time; every operation needs one")?;
        let end = v.duration.map(|d| start + d).or(v.end);
        if end.is_some_and(|end| i64::try_from(end - start).map_or(true, |d| d < 0)) {
            return Err("operation ends before it starts; check the columns' order and units".into());
        }
        let word = self.word(v);
        let mapped = self.options.op_map.iter().find(|(from, _)| from.as_bytes().eq_ignore_ascii_case(word));
        let op = mapped.map_or(word, |(_, to)| to.as_bytes());
        if op.is_empty() {
            return Err("empty op; expected a system call".into());
        }
        Ok((Checked { start, end, sector: -1, request: "" }, op))
    }
}

/// The message for a word that is no kind of request.
fn unknown(word: &[u8]) -> String {
    match word {
        [] => "empty op; expected read, write, discard, flush, …".into(),
        _ if word.iter().all(u8::is_ascii_digit) => {
            let word = quoted(word);
            format!("unknown request type {word}; say what the numbers mean with --op-map 0=read,1=write")
        }
        _ => fields::unknown_request(word),
    }
}
