//! Facts about requests from their bios: file, thread and class.

use std::collections::{BTreeSet, HashMap};

use ioreel_analyze::events::requests::{Request, bios_as_requests};
use ioreel_traces::{
    Reel, ReelError, Text,
    rows::Bio,
    table::{Cell, Column, Row, column},
};
use rustc_hash::FxHashMap;

use crate::Result;

/// Facts about a request from its bios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    /// File, key into `files`.
    pub(super) file: Option<i64>,
    /// Offset in the file.
    pub(super) offset_bytes: Option<i64>,
    /// Thread, key into `tasks`.
    pub(super) task: Option<i64>,
    /// Name of the thread, as index into [`Carriage::comms`].
    pub(super) comm: usize,
    /// Class, as index into [`Carriage::classes`].
    pub(super) class: usize,
}

/// Bytes that a device moved for a file or thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// Read.
    pub(super) read_bytes: u64,
    /// Written.
    pub(super) write_bytes: u64,
}

/// Result of reading the bios.
#[derive(Debug, Default)]
pub(super) struct Carriage {
    /// Facts by request.
    pub(super) requests: FxHashMap<i64, Carried>,
    /// Bytes by file.
    pub(super) files: FxHashMap<i64, Moved>,
    /// Bytes by name of the thread that queued them.
    pub(super) threads: HashMap<String, Moved>,
    /// Names of threads.
    pub(super) comms: Vec<String>,
    /// Names of the classes.
    pub(super) classes: Vec<String>,
}

/// Names in order of first use.
#[derive(Debug, Default)]
struct Names(HashMap<Text, usize>, Vec<String>);

impl Names {
    fn place(&mut self, name: &Text) -> usize {
        if let Some(at) = self.0.get(name) {
            return *at;
        }
        let at = self.1.len();
        self.1.push(name.to_string());
        self.0.insert(name.clone(), at);
        at
    }
}

const COLUMNS: [&str; 8] = ["rq_id", "len_bytes", "op", "task_id", "comm", "file", "file_offset_bytes", "class"];

fn bad(why: String) -> ReelError {
    ReelError::BadSegment { path: Bio::TABLE.into(), why }
}

/// Reads all bios: sums by file and thread, and facts about requests for which `wanted` is true.
pub(super) fn carriage(reel: &Reel, wanted: impl Fn(i64) -> bool) -> Result<Carriage> {
    let mut out = Carriage::default();
    let (mut comms, mut classes) = (Names::default(), Names::default());
    let mut threads: Vec<Moved> = Vec::new();
    for batch in reel.batches::<Bio>(&COLUMNS) {
        let batch = batch?;
        let maybe = |name: &str| column::<Option<i64>>(&batch, name).map_err(bad);
        let (rq_id, file, offset, task) =
            (maybe("rq_id")?, maybe("file")?, maybe("file_offset_bytes")?, maybe("task_id")?);
        let len = column::<i64>(&batch, "len_bytes").map_err(bad)?;
        let texts = |name: &str| column::<Text>(&batch, name).map_err(bad);
        let (op, comm, class) = (texts("op")?, texts("comm")?, texts("class")?);
        let (op, comm, class) = (
            keyed(&op, |t| usize::from(**t == *"read") + 2 * usize::from(**t == *"write")),
            keyed(&comm, |t| comms.place(t)),
            keyed(&class, |t| classes.place(t)),
        );
        threads.resize(comms.1.len(), Moved::default());
        let get = <Option<i64> as Cell>::get;
        for i in 0..batch.num_rows() {
            let (file, comm) = (get(&file, i), comm(i).unwrap_or(0));
            let bytes = u64::try_from(<i64 as Cell>::get(&len, i)).unwrap_or(0);
            let add = |m: &mut Moved| match op(i) {
                Some(1) => m.read_bytes = m.read_bytes.saturating_add(bytes),
                Some(2) => m.write_bytes = m.write_bytes.saturating_add(bytes),
                _ => {}
            };
            if let Some(file) = file {
                add(out.files.entry(file).or_default());
            }
            threads.get_mut(comm).into_iter().for_each(add);
            let Some(id) = get(&rq_id, i).filter(|id| wanted(*id)) else { continue };
            let told = Carried {
                file,
                offset_bytes: get(&offset, i),
                task: get(&task, i),
                comm,
                class: class(i).unwrap_or(0),
            };
            // The first bio with a file determines the file of the request.
            let known = out.requests.entry(id).or_insert(told);
            if known.file.is_none() && file.is_some() {
                *known = told;
            }
        }
    }
    out.threads = comms.1.iter().cloned().zip(threads).collect();
    (out.comms, out.classes) = (comms.1, classes.1);
    Ok(out)
}

/// A text column converted by `of`, once per distinct text.
fn keyed<'a, T: Copy + 'a>(column: &'a Column<'a>, mut of: impl FnMut(&Text) -> T) -> impl Fn(usize) -> Option<T> + 'a {
    let (keys, values) = match column {
        Column::Text(keys, words) => (Some(keys), words.iter().map(|w| w.as_ref().map(&mut of)).collect::<Vec<_>>()),
        _ => (None, Vec::new()),
    };
    move |i| keys.and_then(|k| k.key(i)).and_then(|k| values.get(k).copied().flatten())
}

/// Calls `each` with bios of devices that are not in `queued`, in queue order: devices without requests (zram, device
/// mapper). Such a bio counts as a request issued when it is queued; its id is not a request id.
pub(super) fn each_unqueued_bio(reel: &Reel, queued: &BTreeSet<i64>, mut each: impl FnMut(&Request)) -> Result<()> {
    let mut all = bios_as_requests(reel);
    while let Some(batch) = all.next_batch()? {
        batch.iter().filter(|r| !queued.contains(&r.dev)).for_each(&mut each);
    }
    Ok(())
}
