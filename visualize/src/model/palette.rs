//! Meaning of colours: `--color-by`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use ioreel_analyze::events::{
    bios::{Bio, each_bio},
    calls::{Call, Kind, each_call},
    requests::{Class, Request},
};
use ioreel_traces::{
    Reel, Text,
    rows::{Bio as BioRow, File, Task},
};
use rustc_hash::FxHashMap;

use crate::{
    Result,
    canvas::{
        raster::{Blend, Grid},
        theme::{HEATS, HUES, Ink},
    },
    model::{shape::Layer, survey::Survey},
};

/// Meaning of the colours of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorBy {
    /// Reads, writes, others.
    #[default]
    Op,
    /// Names of processes.
    Process,
    /// Content of bios: data, journal, inode table, …
    Class,
    /// Files.
    File,
    /// Latency.
    Latency,
    /// The reels.
    Reel,
}

/// Colours of one reel's events. The colour of an event is the index of its layer.
#[derive(Clone, Debug)]
pub(crate) struct Palette {
    pub(crate) by: ColorBy,
    /// Names by rank, most bytes first. All others have layer 0.
    names: Arc<Vec<String>>,
    files: HashMap<i64, usize>,
    tasks: HashMap<i64, usize>,
    texts: HashMap<Text, usize>,
    /// Layers of requests by id, derived from their bios; or of bios that stand for requests.
    requests: Arc<FxHashMap<i64, u8>>,
    reel: usize,
}

/// Upper limits of the latency steps, ns.
const STEPS_NS: [i64; HEATS - 1] = [100_000, 1_000_000, 10_000_000, 100_000_000];
const STEP_LABELS: [&str; HEATS] = ["below 100 µs", "below 1 ms", "below 10 ms", "below 100 ms", "100 ms and more"];

/// A category matters if it has at least this share of the bytes.
const LEAST_SHARE: f64 = 0.1;
/// Files tell the story if those that matter have at least this share of the bytes together.
const LEAST_OF_FILES: f64 = 0.75;

/// Beginnings of the names of those who write for others: kernel threads, and ioreel when it syncs at the end.
const FOR_OTHERS: [&str; 9] =
    ["kworker/", "jbd2/", "loop", "xfsaild/", "btrfs-", "kswapd", "flush-", "f2fs_", "ioreel"];

/// The meaning of colours that tells most: the processes if several matter, else the files, else the kind of operation.
fn telling(processes: &BTreeMap<String, u64>, files: &BTreeMap<String, u64>) -> ColorBy {
    let for_others = |name: &str| FOR_OTHERS.iter().any(|k| name.starts_with(k));
    // How many matter, and their share.
    let matter = |names: &mut dyn Iterator<Item = (&String, u64)>| {
        let sizes: Vec<u64> = names.map(|(_, bytes)| bytes).collect();
        let all = sizes.iter().fold(0.0, |sum, n| sum + *n as f64);
        let large: Vec<u64> = sizes.into_iter().filter(|n| *n as f64 >= all * LEAST_SHARE && *n > 0).collect();
        let share = if all > 0.0 { large.iter().fold(0.0, |sum, n| sum + *n as f64) / all } else { 0.0 };
        (large.len(), share)
    };
    let (of_processes, _) = matter(&mut processes.iter().filter(|(n, _)| !for_others(n)).map(|(n, bytes)| (n, *bytes)));
    let (of_files, share) = matter(&mut files.iter().map(|(n, bytes)| (n, *bytes)));
    match (of_processes, of_files) {
        (2.., _) => ColorBy::Process,
        (_, 2..) if share >= LEAST_OF_FILES => ColorBy::File,
        _ => ColorBy::Op,
    }
}

impl Palette {
    /// The meaning of colours that tells most about these reels.
    pub(crate) fn telling(reels: &[Reel], surveys: &[Survey]) -> Result<ColorBy> {
        let (mut processes, mut by_file) = (BTreeMap::new(), BTreeMap::new());
        for (reel, survey) in reels.iter().zip(surveys) {
            let (of_tasks, of_files) = (tasks(reel)?, files(reel)?);
            let none = HashMap::new();
            weigh(reel, survey, ColorBy::Process, &none, &of_tasks, &mut processes)?;
            weigh(reel, survey, ColorBy::File, &of_files, &none, &mut by_file)?;
        }
        Ok(telling(&processes, &by_file))
    }

    /// One palette per reel, by what its survey chose. A category has the same colour in all of them.
    pub(crate) fn of(reels: &[Reel], surveys: &[Survey], by: ColorBy) -> Result<Vec<Self>> {
        let mut weights: BTreeMap<String, u64> = BTreeMap::new();
        let mut named: Vec<(HashMap<i64, Text>, HashMap<i64, Text>)> = Vec::new();
        for (reel, survey) in reels.iter().zip(surveys) {
            named.push(match by {
                ColorBy::File => (files(reel)?, HashMap::new()),
                ColorBy::Process => (HashMap::new(), tasks(reel)?),
                _ => Default::default(),
            });
            if let Some((files, tasks)) = named.last() {
                weigh(reel, survey, by, files, tasks, &mut weights)?;
            }
        }
        let mut ranked: Vec<(u64, String)> = weights.into_iter().map(|(name, n)| (n, name)).collect();
        ranked.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let names: Arc<Vec<String>> = Arc::new(ranked.into_iter().take(HUES).map(|(_, name)| name).collect());
        let layer = |name: &Text| names.iter().position(|n| *n == **name).map_or(0, |i| i + 1);
        Ok(named
            .iter()
            .enumerate()
            .map(|(reel, (files, tasks))| Self {
                by,
                names: Arc::clone(&names),
                files: files.iter().map(|(id, name)| (*id, layer(name))).collect(),
                tasks: tasks.iter().map(|(id, name)| (*id, layer(name))).collect(),
                texts: names.iter().enumerate().map(|(i, n)| (n.as_str().into(), i + 1)).collect(),
                requests: Arc::default(),
                reel,
            })
            .collect())
    }

    /// Whether the colour of requests depends on their bios.
    pub(crate) fn needs_bios(&self) -> bool {
        matches!(self.by, ColorBy::Process | ColorBy::Class | ColorBy::File)
    }

    /// How layers are combined.
    pub(crate) fn blend(&self) -> Blend {
        match self.by {
            ColorBy::Op | ColorBy::Reel => Blend::Overprint,
            ColorBy::Process | ColorBy::Class | ColorBy::File => Blend::Most,
            // The slowest is the most interesting.
            ColorBy::Latency => Blend::Last,
        }
    }

    /// Colour and name of each layer. `others`, `reads` and `writes` are the labels for operations.
    pub(crate) fn layers(&self, words: [&str; 3]) -> Vec<(Ink, String)> {
        match self.by {
            ColorBy::Op => [Ink::Other, Ink::Read, Ink::Write].into_iter().zip(words.map(String::from)).collect(),
            ColorBy::Reel => vec![(Ink::Hue(self.reel), String::new())],
            ColorBy::Latency => STEP_LABELS.iter().enumerate().map(|(i, l)| (Ink::Heat(i), (*l).to_owned())).collect(),
            ColorBy::Process | ColorBy::Class | ColorBy::File => {
                let named = self.names.iter().enumerate().map(|(i, n)| (Ink::Hue(i), n.clone()));
                std::iter::once((Ink::Grey, "others".to_owned())).chain(named).collect()
            }
        }
    }

    fn class(class: Class) -> usize {
        match class {
            Class::Read => 1,
            Class::Write => 2,
            _ => 0,
        }
    }

    fn step(dur_ns: Option<i64>) -> usize {
        dur_ns.map_or(0, |d| STEPS_NS.iter().filter(|end| d >= **end).count())
    }

    /// The layer of a request. By process, class or file, only after [`Self::look_at_bios`].
    pub(crate) fn of_request(&self, r: &Request) -> usize {
        match self.by {
            ColorBy::Op => Self::class(r.class),
            ColorBy::Latency => Self::step(r.complete_ns.map(|c| c.saturating_sub(r.issue_ns))),
            ColorBy::Reel => 0,
            ColorBy::Process | ColorBy::Class | ColorBy::File => {
                self.requests.get(&r.rq_id).copied().map_or(0, usize::from)
            }
        }
    }

    /// The layer of a bio.
    pub(crate) fn of_bio(&self, b: &Bio<'_>) -> usize {
        match self.by {
            ColorBy::Op => Self::class(b.class),
            ColorBy::Latency => Self::step(b.complete_ns.map(|c| c.saturating_sub(b.queue_ns))),
            ColorBy::Reel => 0,
            ColorBy::Process => self.texts.get(b.comm).copied().unwrap_or(0),
            ColorBy::Class => self.texts.get(b.content).copied().unwrap_or(0),
            ColorBy::File => b.file.and_then(|f| self.files.get(&f)).copied().unwrap_or(0),
        }
    }

    /// The layer of a call. Calls have no class, only data or not.
    pub(crate) fn of_call(&self, c: &Call<'_>) -> usize {
        match self.by {
            ColorBy::Op => match c.kind {
                Kind::Read => 1,
                Kind::Write | Kind::Copy => 2,
                Kind::Sync | Kind::Metadata | Kind::Other => 0,
            },
            ColorBy::Latency => Self::step(c.dur_ns),
            ColorBy::Reel => 0,
            ColorBy::Process => self.tasks.get(&c.task_id).copied().unwrap_or(0),
            ColorBy::Class => match c.kind {
                Kind::Read | Kind::Write | Kind::Copy => self.texts.get("data").copied().unwrap_or(0),
                _ => 0,
            },
            ColorBy::File => c.file.and_then(|f| self.files.get(&f)).copied().unwrap_or(0),
        }
    }

    /// Reads the colours of requests by process, class or file from their bios. The first bio with a colour determines
    /// that of the request. With `of_bios`, each bio is its own request.
    pub(crate) fn look_at_bios(&mut self, reel: &Reel, of_bios: bool) -> Result<()> {
        if !self.needs_bios() {
            return Ok(());
        }
        let mut known: FxHashMap<i64, u8> = FxHashMap::default();
        each_bio(reel, |b| {
            // Bios without a category are not stored; they have the colour of the rest.
            let id = if of_bios { Some(b.bio_id) } else { b.rq_id };
            if let (Some(id), Ok(layer @ 1..)) = (id, u8::try_from(self.of_bio(b))) {
                known.entry(id).or_insert(layer);
            }
        })?;
        self.requests = Arc::new(known);
        Ok(())
    }
}

/// Grids of the layers of a palette, created on first use.
#[derive(Debug)]
pub(crate) struct Grids {
    width: u32,
    height: u32,
    grids: Vec<Option<Grid>>,
}

impl Grids {
    pub(crate) fn new(width: u32, height: u32, layers: usize) -> Self {
        Self { width, height, grids: (0..layers).map(|_| None).collect() }
    }

    /// Adds an event to a layer; see [`Grid::add`].
    pub(crate) fn add(&mut self, layer: usize, x: (u32, u32), y: (u32, u32)) {
        let (width, height) = (self.width, self.height);
        if let Some(grid) = self.grids.get_mut(layer) {
            grid.get_or_insert_with(|| Grid::new(width, height)).add(x, y);
        }
    }

    /// The layers. Empty ones are omitted from the legend, unless all are empty.
    pub(crate) fn layers(self, inks: Vec<(Ink, String)>) -> Vec<Layer> {
        let empty = Grid::new(self.width, self.height);
        let grids = self.grids.into_iter().zip(inks);
        grids
            .map(|(grid, (ink, label))| Layer {
                ink,
                label: if grid.is_some() { label } else { String::new() },
                counts: grid.as_ref().unwrap_or(&empty).counts(),
                flat: false,
            })
            .collect()
    }
}

fn files(reel: &Reel) -> Result<HashMap<i64, Text>> {
    let mut out = HashMap::new();
    for row in reel.rows::<File>() {
        let row = row?;
        let path = row.path.unwrap_or_default();
        let name = path.rsplit('/').next().filter(|n| !n.is_empty()).map_or_else(|| path.clone(), Text::from);
        out.insert(row.file, name);
    }
    Ok(out)
}

fn tasks(reel: &Reel) -> Result<HashMap<i64, Text>> {
    reel.rows::<Task>().map(|t| Ok(t.map(|t| (t.task_id, t.comm))?)).collect()
}

/// Sums the bytes of each category: of bios of the drawn device if there are any, otherwise of calls.
fn weigh(
    reel: &Reel,
    survey: &Survey,
    by: ColorBy,
    files: &HashMap<i64, Text>,
    tasks: &HashMap<i64, Text>,
    weights: &mut BTreeMap<String, u64>,
) -> Result<()> {
    if !matches!(by, ColorBy::Process | ColorBy::Class | ColorBy::File) {
        return Ok(());
    }
    let mut by_text: HashMap<Text, u64> = HashMap::new();
    let choice = &survey.choice;
    if reel.count::<BioRow>() > 0 {
        let is_drawn = |dev: i64| survey.device.as_ref().is_none_or(|d| d.dev == dev);
        each_bio(reel, |b| {
            let name = match by {
                ColorBy::Process => Some(b.comm),
                ColorBy::Class => Some(b.content),
                _ => b.file.and_then(|f| files.get(&f)),
            };
            if let Some(name) = name.filter(|n| !n.is_empty() && is_drawn(b.dev) && choice.holds(b.queue_ns)) {
                let sum = by_text.entry(name.clone()).or_default();
                *sum = sum.saturating_add(u64::try_from(b.len_bytes).unwrap_or(0));
            }
        })?;
    } else {
        each_call(reel, |c| {
            let name = match by {
                ColorBy::Process => tasks.get(&c.task_id),
                _ => c.file.and_then(|f| files.get(&f)),
            };
            if let Some(name) = name.filter(|n| !n.is_empty() && !c.by_tool && choice.holds(c.end_ns())) {
                // Each call also counts by itself, so that calls without bytes have a colour too.
                let sum = by_text.entry(name.clone()).or_default();
                *sum = sum.saturating_add(c.bytes()).saturating_add(1);
            }
        })?;
    }
    for (name, n) in by_text {
        let sum = weights.entry(name.to_string()).or_default();
        *sum = sum.saturating_add(n);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_tell_processes_then_files_then_operations() {
        let of = |names: &[(&str, u64)]| names.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        let one = of(&[("tar", 90), ("kworker/0:1", 90), ("jbd2/loop0-8", 50), ("sh", 5)]);
        let two = of(&[("writer", 50), ("scan", 50)]);
        let few = of(&[("s.db", 60), ("s.db-journal", 40)]);
        let many: BTreeMap<String, u64> = (0..50).map(|i| (format!("f{i}"), 2)).collect();
        assert_eq!(telling(&two, &few), ColorBy::Process);
        assert_eq!(telling(&one, &few), ColorBy::File);
        assert_eq!(telling(&one, &many), ColorBy::Op);
        assert_eq!(telling(&one, &of(&[("one", 100), ("two", 5)])), ColorBy::Op);
        assert_eq!(telling(&of(&[]), &of(&[])), ColorBy::Op);
    }
}
