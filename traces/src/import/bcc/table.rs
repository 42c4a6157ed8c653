//! Parses the tables of bcc's and libbpf-tools' programs by their head lines.

use crate::import::{
    csv::scaled,
    words::{Words, number},
};

/// What a column contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// Time of the event: seconds, or of the day.
    Time,
    /// Microseconds of any clock.
    TimeUs,
    /// Nanoseconds of any clock.
    TimeNs,
    Pid,
    Comm,
    Disk,
    /// Letter of the operation, or of the request.
    Kind,
    Sector,
    Bytes,
    /// ms between queueing and issue.
    Queue,
    /// Duration in ms.
    Latency,
    /// Duration in µs.
    LatencyUs,
    OffsetKib,
    Offset,
    Fd,
    Error,
    Flags,
    Path,
    /// A whole number that is not used.
    Number,
    /// A word that is not used.
    Word,
}

/// The programs whose tables are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Biosnoop,
    Opensnoop,
    /// ext4slower, xfsslower, fileslower and the like.
    Slower,
}

/// A head line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Head {
    pub(super) tool: Tool,
    columns: Vec<Column>,
    comma: bool,
}

/// Time of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum At {
    /// The table has no times.
    Unknown,
    /// ns of any clock.
    Ns(i64),
    /// ns since midnight.
    OfDay(i64),
}

/// Values of a row, in ns and bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Row<'a> {
    pub(super) at: At,
    pub(super) pid: Option<i32>,
    pub(super) comm: &'a [u8],
    pub(super) disk: &'a [u8],
    pub(super) kind: &'a [u8],
    pub(super) sector: i64,
    pub(super) bytes: i64,
    pub(super) queue_ns: Option<i64>,
    pub(super) latency_ns: i64,
    pub(super) offset: Option<i64>,
    pub(super) fd: i32,
    pub(super) error: i32,
    pub(super) flags: Option<i64>,
    pub(super) path: &'a [u8],
}

impl Column {
    fn of(word: &[u8]) -> Self {
        match word {
            b"TIME" | b"TIME(s)" | b"TIMESTAMP" => Self::Time,
            b"ENDTIME_us" => Self::TimeUs,
            b"ENDTIME_ns" => Self::TimeNs,
            b"PID" | b"TID" => Self::Pid,
            b"COMM" | b"TASK" => Self::Comm,
            b"DISK" | b"DISK_NAME" => Self::Disk,
            b"T" | b"D" | b"TYPE" => Self::Kind,
            b"SECTOR" => Self::Sector,
            b"BYTES" => Self::Bytes,
            b"QUE(ms)" => Self::Queue,
            b"LAT(ms)" => Self::Latency,
            b"LATENCY_us" => Self::LatencyUs,
            b"OFF_KB" => Self::OffsetKib,
            b"OFFSET_b" => Self::Offset,
            b"FD" => Self::Fd,
            b"ERR" => Self::Error,
            b"FLAGS" => Self::Flags,
            b"PATH" | b"PATH/CALLER" | b"FILENAME" | b"FILE" => Self::Path,
            b"UID" | b"CPU" | b"MODE" => Self::Number,
            _ => Self::Word,
        }
    }

    /// Whether it may contain blanks.
    fn is_text(self) -> bool {
        matches!(self, Self::Comm | Self::Path)
    }
}

/// The head line `line`. `None` if it is none.
pub(super) fn head(line: &[u8]) -> Option<Head> {
    let comma = line.starts_with(b"ENDTIME_us,") || line.starts_with(b"ENDTIME_ns,");
    let words: Vec<&[u8]> = if comma {
        line.split(|b| *b == b',').collect()
    } else {
        line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).collect()
    };
    let columns: Vec<Column> = words.iter().map(|w| Column::of(w)).collect();
    let has = |wanted: &[Column]| wanted.iter().all(|w| columns.contains(w));
    let tool = if has(&[Column::Comm, Column::Disk, Column::Kind, Column::Sector, Column::Bytes, Column::Latency]) {
        Tool::Biosnoop
    } else if has(&[Column::Comm, Column::Fd, Column::Error, Column::Path]) {
        Tool::Opensnoop
    } else if has(&[Column::Comm, Column::Kind, Column::Bytes, Column::Path])
        && (has(&[Column::Latency]) || has(&[Column::LatencyUs]))
    {
        Tool::Slower
    } else {
        return None;
    };
    // Blanks may be part of the name, and of a path at the end.
    let texts = columns.iter().enumerate().filter(|(i, c)| c.is_text() && i + 1 < columns.len()).count();
    (texts == 1).then_some(Head { tool, columns, comma })
}

impl Head {
    /// The row of a line. `None` if it is none.
    pub(super) fn row<'a>(&self, line: &'a [u8]) -> Option<Row<'a>> {
        // An open gives a descriptor or an error.
        self.any_row(line).filter(|row| self.tool != Tool::Opensnoop || row.fd >= 0 || row.error != 0)
    }

    fn any_row<'a>(&self, line: &'a [u8]) -> Option<Row<'a>> {
        if self.comma {
            return self.with_commas(line);
        }
        let at = self.columns.iter().position(|c| c.is_text())?;
        let mut row = Row::empty();
        let mut words = Words(line);
        for column in &self.columns[..at] {
            row.take(*column, words.next())?;
        }
        let text = words.0.trim_ascii_start();
        // The name ends where everything behind it fits.
        let mut end = 0;
        loop {
            let word = Words(&text[end..]).next();
            if word.is_empty() && self.columns[at + 1] != Column::Path {
                return None;
            }
            end = text.len() - text[end..].trim_ascii_start().len() + word.len();
            if self.behind(&self.columns[at + 1..], &text[end..]).is_some() {
                break;
            }
            if end >= text.len() {
                return None;
            }
        }
        row.take(self.columns[at], &text[..end])?;
        self.fill(&mut row, &self.columns[at + 1..], &text[end..])?;
        Some(row)
    }

    /// Whether these columns are all that is in `text`.
    fn behind<'a>(&self, columns: &[Column], text: &'a [u8]) -> Option<Row<'a>> {
        let mut row = Row::empty();
        self.fill(&mut row, columns, text)?;
        Some(row)
    }

    fn fill<'a>(&self, row: &mut Row<'a>, columns: &[Column], text: &'a [u8]) -> Option<()> {
        let mut words = Words(text);
        for column in columns {
            if column.is_text() {
                return row.take(*column, words.0.trim_ascii());
            }
            row.take(*column, words.next())?;
        }
        words.next().is_empty().then_some(())
    }

    fn with_commas<'a>(&self, line: &'a [u8]) -> Option<Row<'a>> {
        let mut row = Row::empty();
        let mut words = line.splitn(self.columns.len(), |b| *b == b',');
        for column in &self.columns {
            row.take(*column, words.next()?)?;
        }
        Some(row)
    }
}

fn ns(word: &[u8], unit: i128) -> Option<i64> {
    scaled(word, unit).and_then(|ns| i64::try_from(ns).ok())
}

/// Hours, minutes and seconds, which may have a fraction, in ns.
fn of_day(word: &[u8]) -> Option<i64> {
    let mut parts = word.splitn(3, |b| *b == b':');
    let (h, m) = (number::<i64>(parts.next()?)?, number::<i64>(parts.next()?)?);
    let s = ns(parts.next()?, 1_000_000_000)?;
    let fits = (0..24).contains(&h) && (0..60).contains(&m) && (0..61_000_000_000).contains(&s);
    fits.then_some((h * 60 + m) * 60_000_000_000 + s)
}

impl<'a> Row<'a> {
    fn empty() -> Self {
        Self {
            at: At::Unknown,
            pid: None,
            comm: b"",
            disk: b"",
            kind: b"",
            sector: -1,
            bytes: 0,
            queue_ns: None,
            latency_ns: 0,
            offset: None,
            fd: -1,
            error: 0,
            flags: None,
            path: b"",
        }
    }

    fn take(&mut self, column: Column, word: &'a [u8]) -> Option<()> {
        let size = || number::<i64>(word).filter(|n| *n >= 0);
        match column {
            Column::Time => {
                self.at = match of_day(word) {
                    Some(ns) => At::OfDay(ns),
                    None => At::Ns(ns(word, 1_000_000_000)?),
                };
            }
            Column::TimeUs => self.at = At::Ns(ns(word, 1000)?),
            Column::TimeNs => self.at = At::Ns(ns(word, 1)?),
            Column::Pid => self.pid = Some(number(word)?),
            Column::Comm => self.comm = word,
            Column::Disk => self.disk = word,
            Column::Kind => self.kind = Some(word).filter(|w| w.iter().all(u8::is_ascii_alphabetic) && w.len() < 12)?,
            // Flushes have no sector.
            Column::Sector => self.sector = number::<i64>(word).or_else(|| number::<u64>(word).map(|_| -1))?,
            Column::Bytes => self.bytes = size()?,
            Column::Queue => self.queue_ns = Some(ns(word, 1_000_000)?).filter(|ns| *ns >= 0),
            Column::Latency => self.latency_ns = ns(word, 1_000_000).filter(|ns| *ns >= 0)?,
            Column::LatencyUs => self.latency_ns = ns(word, 1000).filter(|ns| *ns >= 0)?,
            Column::OffsetKib => self.offset = Some(number::<i64>(word)?.checked_mul(1024).filter(|n| *n >= 0)?),
            Column::Offset => self.offset = Some(size()?),
            Column::Fd => self.fd = number(word)?,
            Column::Error => self.error = number(word)?,
            Column::Flags => self.flags = i64::from_str_radix(std::str::from_utf8(word).ok()?, 8).ok().map(Some)?,
            Column::Path => self.path = word,
            Column::Number => _ = number::<i64>(word)?,
            Column::Word => _ = Some(word).filter(|w| !w.is_empty())?,
        }
        Some(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn names_with_blanks_are_found_by_what_is_behind_them() {
        let h = head(b"TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  QUE(ms) LAT(ms)").unwrap();
        let row = h.row(b"0.000004    Web Content 2  1950    xvda1     WS 13092560  4096     0.01   0.74").unwrap();
        assert_eq!(
            (row.comm, row.pid, row.disk, row.kind),
            (&b"Web Content 2"[..], Some(1950), &b"xvda1"[..], &b"WS"[..])
        );
        assert_eq!((row.at, row.sector, row.bytes), (At::Ns(4000), 13_092_560, 4096));
        assert_eq!((row.queue_ns, row.latency_ns), (Some(10_000), 740_000));
        assert_eq!(h.row(b"0.000004 a 1 xvda1 W 1 4096 0.01"), None);
        let h = head(b"PID    COMM               FD ERR PATH").unwrap();
        let row = h.row(b"17326  a 7 b               -1   2 /a  file 5").unwrap();
        assert_eq!((row.comm, row.fd, row.error, row.path), (&b"a 7 b"[..], -1, 2, &b"/a  file 5"[..]));
        assert_eq!(h.row(b"1      a                  -1   0 /a"), None);
        let row = h.row(b"1      a                   3   0 ").unwrap();
        assert_eq!((row.comm, row.path), (&b"a"[..], &b""[..]));
        let h = head(b"TIME     COMM           PID    T BYTES   OFF_KB   LAT(ms) FILENAME").unwrap();
        let row = h.row(b"06:35:01 cron           16464  R 1249    3          16.05 common-auth").unwrap();
        assert_eq!((row.at, row.offset, row.latency_ns), (At::OfDay(23_701_000_000_000), Some(3072), 16_050_000));
        let h = head(b"ENDTIME_us,TASK,PID,TYPE,BYTES,OFFSET_b,LATENCY_us,FILE").unwrap();
        let row = h.row(b"1234567,a b,7,W,10,20,30,x,y").unwrap();
        assert_eq!(
            (row.at, row.comm, row.path, row.offset),
            (At::Ns(1_234_567_000), &b"a b"[..], &b"x,y"[..], Some(20))
        );
        let h = head(b"ENDTIME_ns,TASK,PID,TYPE,BYTES,OFFSET_b,LATENCY_us,FILE").unwrap();
        assert_eq!(h.row(b"1234567,a,7,R,10,20,30,x").unwrap().at, At::Ns(1_234_567));
        let h = head(b"TIMESTAMP    COMM           PID     DISK    T    SECTOR     BYTES   LAT(ms)").unwrap();
        let row = h.row(b"06:35:01.250 dd             77      vda     FWFS 1024       4096      1.500").unwrap();
        assert_eq!((row.at, row.kind), (At::OfDay(23_701_250_000_000), &b"FWFS"[..]));
        let h = head(b"TIME     UID     PID    COMM              FD ERR FLAGS    MODE  PATH").unwrap();
        let row = h.row(b"06:35:01 0       9      cat                3   0 00100101 0644  /a b").unwrap();
        assert_eq!((row.fd, row.flags, row.path), (3, Some(0o100_101), &b"/a b"[..]));
        for bad in ["06:35", "06:60:00", "24:00:00", "06:35:-1", "06:35:61.5"] {
            assert_eq!(of_day(bad.as_bytes()), None, "{bad}");
        }
        for none in ["", "PID COMM", "Tracing ext4 operations slower than 10 ms", "a,b"] {
            assert_eq!(head(none.as_bytes()), None);
        }
    }
}
