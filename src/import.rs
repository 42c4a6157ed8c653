//! `ioreel import`: converts another tool's trace to a reel.

use std::{path::PathBuf, process::ExitCode};

use ioreel_traces::{Manifest, confine::Needs, import};

use crate::{
    columns::count,
    output::{out, tell},
    units::duration,
};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    format: Option<Format>,
    /// Files to import; their format is recognised. `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    inputs: Vec<PathBuf>,
    /// Reel to write; must not exist
    #[arg(short, long, required = true, value_name = "REEL")]
    output: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  ioreel import trace.txt.gz -o a.reel               any known format; says which one it found
  ioreel import blktrace sda -o disk.reel            sda.blktrace.0, sda.blktrace.1, …
  ioreel import blktrace sda sdb -o both.reel        two devices in one reel
  ioreel import fio job.log -o job.reel              a log of fio's write_iolog
  ioreel import strace calls.txt -o calls.reel       output of `strace -f -ttt -T -y -o calls.txt`
  zcat hm_0.csv.gz | ioreel import csv --preset msr - -o hm.reel
  ioreel import csv disk.csv --table block --columns issue_s,-,op,sector,len_sectors,d2c_us -o disk.reel

Inputs may be compressed (gzip, zstd, xz, bzip2) and in tar archives. Several files make one reel.
docs/import-export.md describes what each format can and cannot represent.";

#[derive(clap::Subcommand, Debug)]
enum Format {
    /// blktrace files, a dump of `blkparse -d`, or text of blkparse
    Blktrace {
        /// Base name (sda for sda.blktrace.0, …), any one of its files, a folder of such files, a dump, or text
        #[arg(required = true, value_name = "TRACE")]
        inputs: Vec<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Text of blkparse
    Blkparse {
        #[command(flatten)]
        inputs: Inputs,
        /// Format that was given to `blkparse -f` [default: that of blkparse]
        #[arg(short, long, value_name = "FORMAT")]
        format: Option<import::blkparse::Format>,
        #[command(flatten)]
        output: Output,
    },
    /// Kernel trace text: trace_pipe, `trace-cmd report`, `perf script`
    Ktrace {
        #[command(flatten)]
        inputs: Inputs,
        #[command(flatten)]
        output: Output,
    },
    /// Tables of bcc and libbpf-tools: biosnoop, opensnoop, ext4slower, xfsslower, fileslower, …
    Bcc {
        #[command(flatten)]
        inputs: Inputs,
        #[command(flatten)]
        output: Output,
    },
    /// fio I/O log (write_iolog), version 2 or 3
    Fio {
        /// Log to read
        input: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Output of strace, best of `strace -f -ttt -T -y -o FILE`
    Strace {
        /// Files to read; a folder, or FILE for FILE.PID of `strace -ff`. `-` reads standard input
        #[arg(required = true, value_name = "FILE")]
        inputs: Vec<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// CSV: one request or operation per line
    Csv(Csv),
}

#[derive(clap::Args, Debug)]
struct Csv {
    #[command(flatten)]
    inputs: Inputs,
    /// Columns of a public data set
    #[arg(long, value_enum, conflicts_with_all = ["table", "columns", "separator"])]
    preset: Option<Preset>,
    /// What each line describes
    #[arg(long, value_enum, required_unless_present = "preset")]
    table: Option<Table>,
    /// Column names in order; `-` skips a column. Names: docs/import-export.md [default: taken from the first line]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    columns: Vec<String>,
    /// Field separator: one character, `tab`, or `blanks` for any number of blanks and tabs
    #[arg(long, default_value = ",", value_parser = separator)]
    separator: import::csv::Separator,
    /// Number of lines to skip at the start of each file
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u32,
    /// Operation of lines that name none
    #[arg(long, value_name = "OP")]
    op: Option<String>,
    /// Meaning of words in column op, such as 0=read,1=write
    #[arg(long, value_delimiter = ',', value_name = "WORD=OP,…", value_parser = mapping)]
    op_map: Vec<(String, String)>,
    /// Skip and count lines that cannot be read, up to N of them [without N: until they are most lines; always on with --preset]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    skip_bad: Option<Option<u32>>,
    #[command(flatten)]
    output: Output,
}

/// Data sets.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Preset {
    /// MSR Cambridge: time, host, disk, kind, offset, size, response
    Msr,
    /// Alibaba block traces: device, kind, offset, length, time
    Alibaba,
    /// Tencent block storage: time, offset, size, kind, volume
    Tencent,
    /// FIU: time, pid, process, sector, sectors, kind, major, minor, hash
    Fiu,
    /// Storage Performance Council: unit, sector, bytes, kind, time
    Spc,
    /// SYSTOR '17: time, response, kind, LUN, offset, size
    Systor,
    /// CloudPhysics as CSV: time, sector, kind, bytes; or with the head version,time,op,size,lbn
    Cloudphysics,
}

impl From<Preset> for import::csv::Preset {
    fn from(preset: Preset) -> Self {
        match preset {
            Preset::Msr => Self::Msr,
            Preset::Alibaba => Self::Alibaba,
            Preset::Tencent => Self::Tencent,
            Preset::Fiu => Self::Fiu,
            Preset::Spc => Self::Spc,
            Preset::Systor => Self::Systor,
            Preset::Cloudphysics => Self::Cloudphysics,
        }
    }
}

/// What a line of CSV describes.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Table {
    /// Block requests
    Block,
    /// File operations
    Ops,
}

fn separator(text: &str) -> Result<import::csv::Separator, String> {
    use import::csv::Separator::{Blanks, Byte};
    match text.as_bytes() {
        b"\\t" | b"tab" => Ok(Byte(b'\t')),
        b"blanks" => Ok(Blanks),
        [one] if *one != b'"' => Ok(Byte(*one)),
        _ => Err("expected one character, tab or blanks".into()),
    }
}

fn mapping(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((word, op)) if !word.is_empty() && !op.is_empty() => Ok((word.to_owned(), op.to_owned())),
        _ => Err("expected WORD=OP, such as 0=read".into()),
    }
}

#[derive(clap::Args, Debug)]
struct Inputs {
    /// Files to read. `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    inputs: Vec<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct Output {
    /// Reel to write; must not exist
    #[arg(short, long, value_name = "REEL")]
    output: PathBuf,
}

impl Args {
    /// The reel to write.
    fn output(&self) -> PathBuf {
        let output = match &self.format {
            Some(
                Format::Blktrace { output, .. }
                | Format::Blkparse { output, .. }
                | Format::Ktrace { output, .. }
                | Format::Bcc { output, .. }
                | Format::Fio { output, .. }
                | Format::Strace { output, .. }
                | Format::Csv(Csv { output, .. }),
            ) => Some(&output.output),
            None => self.output.as_ref(),
        };
        output.cloned().unwrap_or_default()
    }

    /// What the command needs beside reading.
    pub(crate) fn needs(&self) -> Needs {
        Needs::to_write([&*self.output()])
    }
}

/// Runs `ioreel import`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let output = args.output();
    let manifest = match args.format {
        None => {
            let first = args.inputs.first().cloned().unwrap_or_default();
            import::detect::import(&args.inputs, &output, |format| {
                tell!("ioreel: {} is {}", first.display(), format.describe());
            })?
        }
        Some(Format::Blktrace { inputs, .. }) => import::blktrace::import(&inputs, &output)?,
        Some(Format::Blkparse { inputs, format, .. }) => {
            import::blkparse::import(&inputs.inputs, &output, format.as_ref())?
        }
        Some(Format::Ktrace { inputs, .. }) => import::ktrace::import(&inputs.inputs, &output)?,
        Some(Format::Bcc { inputs, .. }) => import::bcc::import(&inputs.inputs, &output)?,
        Some(Format::Fio { input, .. }) => import::fio::import(&input, &output)?,
        Some(Format::Strace { inputs, .. }) => import::strace::import(&inputs, &output)?,
        Some(Format::Csv(csv)) => import::csv::import(&csv.inputs.inputs, &output, &csv.options())?,
    };
    for warning in &manifest.warnings {
        tell!("ioreel: warning: {warning}");
    }
    out!("{}: {}", output.display(), described(&manifest));
    Ok(ExitCode::SUCCESS)
}

impl Csv {
    fn options(&self) -> import::csv::Options {
        import::csv::Options {
            rows: match self.table {
                Some(Table::Ops) => import::csv::Rows::Ops,
                Some(Table::Block) | None => import::csv::Rows::Block,
            },
            preset: self.preset.map(Into::into),
            columns: self.columns.clone(),
            separator: self.separator,
            skip: i64::from(self.skip),
            op: self.op.clone(),
            op_map: self.op_map.clone(),
            skip_bad: match self.skip_bad {
                None => import::csv::SkipBad::Never,
                Some(limit) => import::csv::SkipBad::UpTo(limit.map(i64::from)),
            },
        }
    }
}

/// The imported rows, on one line.
fn described(m: &Manifest) -> String {
    let records = m.import.as_ref().map_or(0, |i| i.records);
    let tables = ["ops", "block", "bio"].into_iter().zip(["operations", "requests", "bios"]);
    let rows = tables.filter_map(|(table, what)| {
        let n: i64 = m.segments.get(table)?.iter().map(|s| s.rows).sum();
        Some(format!("{} {what}", count(n.max(0) as u64)))
    });
    let rows = rows.collect::<Vec<_>>().join(", ");
    let rows = if rows.is_empty() { "no operations, no requests".to_owned() } else { rows };
    format!("{rows} over {}, from {} records", duration(m.span.elapsed_ns), count(records.max(0) as u64))
}
