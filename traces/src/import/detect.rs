//! Finds the format of files by their first bytes, and imports them.

use std::path::{Path, PathBuf};

use super::{
    ImportError, Result, bcc, blkparse, blktrace,
    csv::{self, Preset},
    fio,
    input::{self, HEAD_BYTES},
    ktrace, strace,
};
use crate::{Manifest, blktrace::Endian};

/// Number of files by which the format is found.
const MOST_LOOKED_AT: usize = 100;

/// A format that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Binary block traces.
    Blktrace,
    /// Text of blkparse.
    Blkparse,
    /// A log of fio.
    Fio,
    /// Output of strace.
    Strace,
    /// Text of kernel tracepoints.
    Ktrace,
    /// A table of bcc.
    Bcc,
    /// A public data set.
    Preset(Preset),
    /// CSV whose first line names the columns.
    Csv(csv::Rows),
}

impl Format {
    /// What it is, in words.
    pub fn describe(self) -> String {
        match self {
            Self::Blktrace => "a block trace of blktrace".into(),
            Self::Blkparse => "text of blkparse".into(),
            Self::Fio => "an I/O log of fio".into(),
            Self::Strace => "output of strace".into(),
            Self::Ktrace => "kernel trace text (trace_pipe, trace-cmd, perf script)".into(),
            Self::Bcc => "a table of bcc (biosnoop, opensnoop, *slower)".into(),
            Self::Preset(preset) => format!("CSV of the data set {}", preset.name()),
            Self::Csv(csv::Rows::Block) => "CSV of block requests".into(),
            Self::Csv(csv::Rows::Ops) => "CSV of operations".into(),
        }
    }
}

/// Finds out what the inputs are, tells `told`, and imports them as the reel `out`.
///
/// # Errors
/// If the format is not known, or as the importer of that format.
pub fn import(inputs: &[PathBuf], out: &Path, told: impl FnOnce(Format)) -> Result<Manifest> {
    let from_stdin = inputs.iter().any(|i| i.as_os_str() == input::STDIN);
    if !from_stdin && blktrace::are_names(inputs) {
        told(Format::Blktrace);
        return blktrace::import(inputs, out);
    }
    let files = strace::found(inputs)?;
    let sources = input::open(&files, &input::scratch(out))?;
    // An archive may begin with a text about it.
    let mut format = None;
    for source in sources.iter().take(MOST_LOOKED_AT) {
        format = of(&source.head(HEAD_BYTES)?);
        if format.is_some() {
            break;
        }
    }
    let Some(format) = format else {
        let input = sources.first().map_or_else(PathBuf::new, |s| s.name.clone());
        for source in sources.iter().take(MOST_LOOKED_AT) {
            if blkparse::looks_formatted(&source.head(HEAD_BYTES)?) {
                let why = format!("this looks like text of blkparse in a format of its own; {}", blkparse::NAME_FORMAT);
                return Err(ImportError::input(&source.name, why));
            }
        }
        let why = "cannot tell the format of this file; name it (`ioreel import FORMAT …`), and for CSV its --columns or --preset";
        return Err(ImportError::input(input, why));
    };
    told(format);
    match format {
        Format::Blktrace => blktrace::of(sources, inputs, out),
        Format::Blkparse => blkparse::from(&sources, out, None),
        Format::Fio => fio::from(&sources, out),
        Format::Strace => strace::from(&sources, out),
        Format::Ktrace => ktrace::from(&sources, out),
        Format::Bcc => bcc::from(&sources, out),
        Format::Preset(preset) => {
            let options = csv::Options { preset: Some(preset), ..csv::Options::default() };
            csv::from(&sources, inputs, out, &options)
        }
        Format::Csv(rows) => csv::from(&sources, inputs, out, &csv::Options { rows, ..csv::Options::default() }),
    }
}

/// The format of a file with these first bytes.
fn of(head: &[u8]) -> Option<Format> {
    if let Some([a, b, c, d]) = head.first_chunk()
        && Endian::of([*a, *b, *c, *d]).is_some()
    {
        return Some(Format::Blktrace);
    }
    if head.starts_with(b"fio version ") {
        return Some(Format::Fio);
    }
    // From the strictest to the loosest.
    if bcc::looks_so(head) {
        return Some(Format::Bcc);
    }
    if blkparse::looks_so(head) {
        return Some(Format::Blkparse);
    }
    if ktrace::looks_so(head) {
        return Some(Format::Ktrace);
    }
    if strace::looks_so(head) {
        return Some(Format::Strace);
    }
    // CSV is loose enough to take rows of `blkparse -f` for another data set.
    if blkparse::looks_formatted(head) {
        return None;
    }
    csv::looks_like(head).map(|found| match found {
        csv::Found::Preset(preset) => Format::Preset(preset),
        csv::Found::Named(rows) => Format::Csv(rows),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_found_by_a_few_lines() {
        for (head, format) in [
            ("fio version 2 iolog\n", Some(Format::Fio)),
            ("Hello,\n\n> 8,0 3 11 0.009507758 697 D W 223490 + 56 [kjournald]\n", Some(Format::Blkparse)),
            (
                "# tracer: nop\n#\n  cat-1 [000] d..1 1.000000: sys_read(fd: 3, buf: 7f, count: 1)\n",
                Some(Format::Ktrace),
            ),
            ("swapper 0 [006] 2.409875: block:block_rq_complete: 8,16 RM () 39 + 8 [0]\n", Some(Format::Ktrace)),
            ("Tracing... Ctrl-C to end.\nPID    COMM               FD ERR PATH\n", Some(Format::Bcc)),
            ("close(3)                = 0\n", Some(Format::Strace)),
            ("128166372003061629,hm,1,Read,383496192,32768,413\n", Some(Format::Preset(Preset::Msr))),
            ("419,W,8792731648,16384,1577808144360767\n", Some(Format::Preset(Preset::Alibaba))),
            ("1538323199,12910952,8,1,1063\n", Some(Format::Preset(Preset::Tencent))),
            ("89966188033 4892 syslogd 904265560 8 W 6 0 531e\n", Some(Format::Preset(Preset::Fiu))),
            ("0,20941264,8192,W,0.551706\n", Some(Format::Preset(Preset::Spc))),
            ("Timestamp,Response,IOType,LUN,Offset,Size\n1.0,,W,0,512,512\n", Some(Format::Preset(Preset::Systor))),
            ("version,time,op,size,lbn\n2,5633898,42,512,42932745\n", Some(Format::Preset(Preset::Cloudphysics))),
            ("issue_s,op,sector,len_bytes\n1,r,1,1\n", Some(Format::Csv(csv::Rows::Block))),
            ("start_s,op\n1,read\n", Some(Format::Csv(csv::Rows::Ops))),
            ("8,0,D,W,0.009507758,223490,28672\n8,0,C,W,0.011507758,223490,28672\n", None),
            ("hello\nworld, this is, no trace\n", None),
            ("", None),
            ("\0\u{1}\u{2}", None),
        ] {
            assert_eq!(of(head.as_bytes()), format, "{head}");
        }
    }
}
