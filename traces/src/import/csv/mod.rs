//! Imports requests or operations from CSV. The caller, the first line or a preset names the columns.

mod fields;
mod judge;
mod maker;
mod presets;
mod values;

use std::path::{Path, PathBuf};

use super::{
    ImportError, Result,
    damage::Damage,
    input::{self, Source},
    lines::Lines,
    made,
};
use crate::{Manifest, format::manifest::Span};
use judge::Judge;
use maker::Maker;
use presets::Layout;
pub use presets::Preset;
pub use values::Separator;
pub(super) use values::scaled;
use values::{Extra, Values, Words};

/// What each line describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Block requests.
    Block,
    /// File operations.
    Ops,
}

/// What happens to lines that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipBad {
    /// The first one ends the import.
    Never,
    /// They are counted. The import ends beyond this number; without one, if they are more than 1000 and more than half
    /// of all lines.
    UpTo(Option<i64>),
}

/// Options of an import.
#[derive(Clone, Debug)]
pub struct Options {
    /// What each line describes.
    pub rows: Rows,
    /// The data set. It defines `rows`, `columns` and `separator`.
    pub preset: Option<Preset>,
    /// Column names; `-` skips a column. If empty, the first line contains the names.
    pub columns: Vec<String>,
    /// Field separator.
    pub separator: Separator,
    /// Lines to skip at the start of each file.
    pub skip: i64,
    /// The operation of every line that names none.
    pub op: Option<String>,
    /// Meaning of words in the operation column, before the usual ones.
    pub op_map: Vec<(String, String)>,
    /// Lines that cannot be read.
    pub skip_bad: SkipBad,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rows: Rows::Block,
            preset: None,
            columns: Vec::new(),
            separator: Separator::Byte(b','),
            skip: 0,
            op: None,
            op_map: Vec::new(),
            skip_bad: SkipBad::Never,
        }
    }
}

/// Imports CSV files as the reel `out`. `docs/import-export.md` lists the column names. Time 0 is the earliest time in the
/// files.
///
/// # Errors
/// If a column name is unknown, a required column is missing, or a line is invalid (with its number) and bad lines are not
/// skipped; if an input cannot be read or the reel cannot be written.
pub fn import(inputs: &[PathBuf], out: &Path, options: &Options) -> Result<Manifest> {
    options.complete(inputs)?;
    from(&input::open(inputs, &input::scratch(out))?, inputs, out, options)
}

/// [`import`] of open inputs.
pub(super) fn from(sources: &[Source], inputs: &[PathBuf], out: &Path, options: &Options) -> Result<Manifest> {
    let options = &options.complete(inputs)?;
    let format = options.preset.map_or("csv", Preset::name);
    // Most files start with their earliest line: the others are read again.
    let mut base_ns = None;
    loop {
        let mut is_earlier = false;
        let done = made::reel(out, made::manifest(format, inputs), |writer, manifest| {
            let mut maker = Maker::new(writer, base_ns, options);
            let filled = fill(sources, options, &mut maker, manifest);
            is_earlier = maker.is_earlier;
            filled
        });
        if !is_earlier {
            return done;
        }
        base_ns = earliest(sources, options)?;
    }
}

/// The earliest time of a row.
fn earliest(sources: &[Source], options: &Options) -> Result<Option<i128>> {
    let mut base_ns: Option<i128> = None;
    let mut table = Table::new(sources, options);
    let mut judge = Judge::new(options);
    while table.next()? {
        match judge.check(&table.values, &table.layout.ops) {
            Ok(()) => {
                table.damage.good += 1;
                base_ns = base_ns.into_iter().chain(table.values.earliest()).min();
            }
            Err(why) => table.bad(&why)?,
        }
    }
    Ok(base_ns)
}

/// Writes the rows and completes the manifest.
fn fill(sources: &[Source], options: &Options, maker: &mut Maker<'_>, manifest: &mut Manifest) -> Result<()> {
    let mut table = Table::new(sources, options);
    while table.next()? {
        match maker.row(&table.values, &table.layout.ops) {
            Ok(row) => {
                table.damage.good += 1;
                maker.push(row)?;
            }
            Err(why) if maker.is_earlier => return Err(table.lines.wrong(why)),
            Err(why) => table.bad(&why)?,
        }
    }
    if options.preset.is_some() || options.skip_bad != SkipBad::Never {
        table.damage.check(&table.lines, "name a file with one request per line, and its --preset or --columns")?;
    }
    table.damage.describe(&table.lines, manifest);
    let name = if options.rows == Rows::Block { "block" } else { "ops" };
    manifest.ledger.insert(name.into(), made::all_written(maker.count));
    if maker.bios > 0 {
        manifest.ledger.insert("bio".into(), made::all_written(maker.bios));
    }
    manifest.span = Span { elapsed_ns: maker.last_ns, ..Span::default() };
    manifest.devices = maker.devices();
    if let Some(import) = &mut manifest.import {
        import.records = maker.count;
    }
    Ok(())
}

/// What a CSV file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A public data set.
    Preset(Preset),
    /// Its first line names the columns.
    Named(Rows),
}

/// What a file with these first bytes is. `None` if it is no CSV that needs no further options.
pub(super) fn looks_like(head: &[u8]) -> Option<Found> {
    // The last line may be cut.
    let whole = &head[..head.iter().rposition(|b| *b == b'\n').map_or(head.len(), |n| n + 1)];
    let mut lines: Vec<&[u8]> =
        whole.split(|b| *b == b'\n').take(100).map(|l| without_mark(l).trim_ascii_end()).collect();
    lines.retain(|l| !l.is_empty());
    let first = lines.first()?;
    for preset in Preset::ALL {
        let options = Options { preset: Some(preset), ..Options::default() };
        let Ok((layout, _)) = options.layout(first) else { continue };
        let (mut values, mut words, mut judge) = (Values::default(), Words::default(), Judge::new(&options));
        let mut fits = |line: &&&[u8]| {
            let Layout { columns, separator, extra, ops } = &layout;
            values.read(line, &mut words, columns, *separator, *extra).is_ok()
                && judge.check(&values, ops).is_ok()
                // The lines of `spc` have as many fields, and a letter there.
                && (preset != Preset::Tencent || matches!(&values.op[..], b"0" | b"1"))
        };
        let good = lines.iter().filter(|l| fits(l)).count();
        if good > 0 && good * 2 >= lines.len() {
            return Some(Found::Preset(preset));
        }
    }
    let named = |rows| Options { rows, ..Options::default() }.layout(first).is_ok();
    [Rows::Block, Rows::Ops].into_iter().find(|rows| named(*rows)).map(Found::Named)
}

impl Options {
    /// These options with those of the preset. Names the problem if they contradict each other.
    fn complete(&self, inputs: &[PathBuf]) -> Result<Self> {
        let mut all = self.clone();
        let input = inputs.first().cloned().unwrap_or_default();
        if let Some(preset) = self.preset {
            if self.rows != Rows::Block || !self.columns.is_empty() {
                let why = format!("preset {} already names the table and its columns; leave them out", preset.name());
                return Err(ImportError::input(input, why));
            }
            if self.skip_bad == SkipBad::Never {
                all.skip_bad = SkipBad::UpTo(None);
            }
        }
        if self.rows == Rows::Block {
            for word in self.op.iter().chain(self.op_map.iter().map(|(_, to)| to)) {
                if fields::request(word.as_bytes()).is_none() {
                    return Err(ImportError::input(input, fields::unknown_request(word.as_bytes())));
                }
            }
        }
        Ok(all)
    }

    /// How a file with this first line is read, and whether that line names the columns.
    fn layout(&self, first: &[u8]) -> Result<(Layout, bool), String> {
        if let Some(preset) = self.preset {
            return Ok((preset.layout(first)?, false));
        }
        let mut words = Words::default();
        let named = if self.columns.is_empty() {
            words.split(first, self.separator)?;
            let name = |i| String::from_utf8_lossy(words.get(first, i)).trim().to_owned();
            (0..words.len()).map(name).collect()
        } else {
            self.columns.clone()
        };
        let columns = fields::columns(&named, self.rows, self.op.is_some())?;
        let extra = Extra { more: false, fewer: 0 };
        let layout = Layout { columns, separator: self.separator, extra, ops: Vec::new() };
        Ok((layout, self.columns.is_empty()))
    }
}

/// The rows of all files.
struct Table<'o> {
    options: &'o Options,
    lines: Lines,
    layout: Layout,
    words: Words,
    values: Values,
    damage: Damage,
    /// Files begun so far.
    files: usize,
}

impl<'o> Table<'o> {
    fn new(sources: &[Source], options: &'o Options) -> Self {
        let limit = match options.skip_bad {
            SkipBad::Never => Some(0),
            SkipBad::UpTo(limit) => limit,
        };
        Self {
            options,
            lines: Lines::of(sources),
            layout: Layout {
                columns: Vec::new(),
                separator: options.separator,
                extra: Extra { more: false, fewer: 0 },
                ops: Vec::new(),
            },
            words: Words::default(),
            values: Values::default(),
            damage: Damage::up_to(limit),
            files: 0,
        }
    }

    /// Reads the next row into `values`. False at the end.
    fn next(&mut self) -> Result<bool> {
        loop {
            if self.lines.next()?.is_none() {
                // A file without a line has no columns either.
                if self.files == 0 {
                    self.options.layout(b"").map_err(|e| self.lines.error(e))?;
                }
                return Ok(false);
            }
            let first = std::mem::replace(&mut self.files, self.lines.files) != self.lines.files;
            if first {
                for _ in 0..self.options.skip {
                    self.lines.next()?;
                }
                let line = without_mark(self.lines.current());
                let (layout, is_head) = self.options.layout(line).map_err(|e| self.lines.error(e))?;
                self.layout = layout;
                if is_head {
                    continue;
                }
            }
            let line = without_mark(self.lines.current());
            if line.trim_ascii().is_empty() {
                continue;
            }
            let Layout { columns, separator, extra, .. } = &self.layout;
            match self.values.read(line, &mut self.words, columns, *separator, *extra) {
                Ok(()) => return Ok(true),
                Err(_) if line.starts_with(b"#") || (first && self.is_head(line)) => {}
                Err(why) => self.bad(&why)?,
            }
        }
    }

    /// Whether a line that cannot be read has words in place of every number: a head line.
    fn is_head(&self, line: &[u8]) -> bool {
        let numbers = self.layout.columns.iter().enumerate().filter(|(_, column)| {
            use fields::Field::{Duration, End, Len, Offset, Queue, Time};
            matches!(column, Some(Time(_) | Queue(_) | End(_) | Duration(_) | Offset(_) | Len(_)))
        });
        self.words.len() > 1
            && numbers.map(|(i, _)| self.words.get(line, i)).all(|w| w.iter().any(u8::is_ascii_alphabetic))
    }

    /// Handles a line that is no row: ends the import, or counts the line.
    fn bad(&mut self, why: &str) -> Result<()> {
        if self.options.skip_bad == SkipBad::Never {
            return Err(self.lines.wrong(why));
        }
        self.damage.line(&self.lines, &format!("is not a row ({why})"), "check --preset or --columns")
    }
}

/// A line without the mark that some programs write at the start of a file.
fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line)
}
