//! Writes a reel in segments. A segment is collected in memory, sorted by time, written, synced and renamed into place, so
//! a crash costs at most the open segments.
//!
//! In: rows and a manifest. Out: a reel. May use: `format`, `private`, `anonymize`, `reader`.
//!
//! * `table` and `chunks` write the segments of one table; `parts` writes the rows of open segments for a repair;
//!   `reserve` keeps disk space for the small tables;
//! * [`causes`] fills in which operation caused a bio; [`rotate`] drops the oldest segments;
//! * `close` ends a reel; `copy` makes a reel of the closed segments, [`anonymized`] one with all names replaced.

use std::{
    any::Any,
    collections::BTreeMap,
    fs::{self, File},
    io,
    ops::Deref,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub mod anonymized;
pub mod causes;
mod chunks;
mod reserve;
pub mod rotate;
mod table;

pub use self::table::{TableWriter, Tap};
use self::{parts::Schedule, reserve::Reserve, table::Synced};
use crate::{
    Manifest, ReelError, Result,
    anonymize::Anonymizer,
    format::{
        manifest::{Segment, State},
        rows,
        table::Row,
    },
    private::Folder,
    writer::causes::{Causes, OpKey},
};

/// When a segment is closed.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Maximum number of rows. Bounds memory: a waiting operation takes some 150 bytes.
    pub segment_rows: usize,
    /// Maximum waiting time of the first row.
    pub segment_age: Duration,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { segment_rows: DEFAULT_SEGMENT_ROWS, segment_age: DEFAULT_SEGMENT_AGE }
    }
}

/// 256 Ki rows: 40 MB of waiting operations, 2.5 MB on disk.
pub const DEFAULT_SEGMENT_ROWS: usize = 256 * 1024;
/// One minute: what a crash may lose of a quiet recording.
pub const DEFAULT_SEGMENT_AGE: Duration = Duration::from_secs(60);
/// The segment of tasks that have not ended. It is not in the manifest, and removed when the reel is closed.
pub(crate) const LIVING: &str = "living.parquet";

/// Called with every Parquet file after its creation, before it is written. The returned value is dropped when the file
/// is completely written.
#[derive(Clone)]
pub struct OnCreate(pub Arc<dyn Fn(&File) -> LeftOut + Send + Sync>);

/// When dropped, undoes what [`OnCreate`] did for a file.
pub type LeftOut = Box<dyn Any + Send + Sync>;

impl std::fmt::Debug for OnCreate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnCreate")
    }
}

/// A nameless file in the reel's folder. It disappears when closed, and is not recorded until then.
pub struct Scratch {
    file: File,
    _left_out: Option<LeftOut>,
}

impl From<File> for Scratch {
    /// For a file that no recording excludes.
    fn from(file: File) -> Self {
        Self { file, _left_out: None }
    }
}

impl Deref for Scratch {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.file.fmt(f)
    }
}

/// Locks the names. A panic of another thread leaves them consistent.
fn locked(names: &Names) -> MutexGuard<'_, Anonymizer> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maps the names of rows and manifests before they are written. Shared by all tables and by code that needs the
/// original of a mapped name.
pub type Names = Arc<Mutex<Anonymizer>>;

/// Writes a reel: a [`TableWriter`] per table, and the manifest at the end.
#[derive(Debug)]
pub struct ReelWriter {
    /// Rotation has dropped all operations before this one.
    pub(crate) least_op: i64,
    /// Rotation has dropped no event that started at or after this time.
    kept_from_ns: i64,
    /// Number of closed segments of `ops`, `block` and `bio` when the other tables were last closed.
    closed: usize,
    names: Option<Names>,
    causes: Causes,
    reserve: Reserve,
    schedule: Schedule,
    /// Leaves the I/O of the file of living tasks out of the recording.
    living_left_out: Option<LeftOut>,
    /// The reel's folder, locked while this writer lives, so that nobody repairs it.
    _lock: Option<File>,
    /// Operations.
    pub ops: TableWriter<rows::Op>,
    /// Requests.
    pub block: TableWriter<rows::Block>,
    /// Bios.
    pub bio: TableWriter<rows::Bio>,
    /// Events of the page cache.
    pub cache: TableWriter<rows::Cache>,
    /// Threads.
    pub tasks: TableWriter<rows::Task>,
    /// Program starts.
    pub execs: TableWriter<rows::Exec>,
    /// Files.
    pub files: TableWriter<rows::File>,
    /// Descriptors at the start.
    pub fds: TableWriter<rows::Fd>,
    /// Commits of journals and logs.
    pub commits: TableWriter<rows::Commit>,
    /// What slow operations waited for.
    pub waits: TableWriter<rows::Wait>,
    /// Names of files over time.
    pub file_names: TableWriter<rows::Name>,
    /// Files mapped at the start.
    pub maps: TableWriter<rows::Map>,
    /// Stops of programs by the recorder.
    pub stops: TableWriter<rows::Stop>,
    /// The initial tree.
    pub tree: TableWriter<rows::Tree>,
    /// The final tree.
    pub final_tree: TableWriter<rows::FinalName>,
    /// On-disk layout of its files.
    pub extents: TableWriter<rows::Extent>,
    /// Contents of writes.
    pub contents: TableWriter<rows::Content>,
    /// Records of an imported block trace.
    pub actions: TableWriter<rows::Action>,
}

/// Applies an action to every table writer. This is the only list of table writers; [`crate::format::tables`] lists the
/// tables. Small tables that others refer to come first, because they matter most when the disk is full.
macro_rules! each_table {
    ($w:expr, $t:ident => $body:expr) => {{
        {
            let $t = &mut $w.tasks;
            $body
        }
        {
            let $t = &mut $w.execs;
            $body
        }
        {
            let $t = &mut $w.files;
            $body
        }
        {
            let $t = &mut $w.fds;
            $body
        }
        {
            let $t = &mut $w.maps;
            $body
        }
        {
            let $t = &mut $w.tree;
            $body
        }
        {
            let $t = &mut $w.final_tree;
            $body
        }
        {
            let $t = &mut $w.extents;
            $body
        }
        {
            let $t = &mut $w.stops;
            $body
        }
        {
            let $t = &mut $w.ops;
            $body
        }
        {
            let $t = &mut $w.file_names;
            $body
        }
        {
            let $t = &mut $w.waits;
            $body
        }
        {
            let $t = &mut $w.commits;
            $body
        }
        {
            let $t = &mut $w.block;
            $body
        }
        {
            let $t = &mut $w.bio;
            $body
        }
        {
            let $t = &mut $w.cache;
            $body
        }
        {
            let $t = &mut $w.contents;
            $body
        }
        {
            let $t = &mut $w.actions;
            $body
        }
    }};
}

mod close;
mod copy;
pub(crate) mod parts;

/// Whether the folder that `path` lies in exists.
fn has_parent(path: &Path) -> bool {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.is_dir(),
        _ => true,
    }
}

/// Creates the folder of a new reel.
fn create_folder(path: &Path) -> Result<Folder> {
    if path.symlink_metadata().is_ok() {
        return Err(ReelError::Exists { path: path.into() });
    }
    let made = Folder::create(path).map_err(|e| {
        let told = match e.kind() {
            // Virtual file systems such as proc refuse new names with this error.
            io::ErrorKind::NotFound if has_parent(path) => {
                "its parent folder takes no new folders; use a folder on another file system"
            }
            io::ErrorKind::NotFound => "its parent folder does not exist; create it first",
            io::ErrorKind::NotADirectory => "its parent is not a folder; name a path inside a folder",
            io::ErrorKind::ReadOnlyFilesystem => "the file system is mounted read-only; use another one",
            _ => return e,
        };
        io::Error::new(e.kind(), told)
    });
    made.map_err(ReelError::io(path, "creating the reel"))
}

impl ReelWriter {
    /// Creates the folder `path` with a manifest in state `recording`. `path` must not exist.
    pub fn create(path: &Path, manifest: &Manifest, options: WriterOptions) -> Result<Self> {
        Self::create_mapped(path, manifest, options, None)
    }

    /// Like [`Self::create`], and maps the names of all rows and manifests with `names` before they are written.
    pub fn create_mapped(
        path: &Path,
        manifest: &Manifest,
        options: WriterOptions,
        names: Option<Names>,
    ) -> Result<Self> {
        let folder = create_folder(path)?;
        let lock = folder.to_file().map_err(ReelError::io(path, "opening the reel"))?;
        // Without lock support in the file system, a repair cannot be prevented; recording still works.
        let _ = lock.try_lock();
        let mut writer = Self::tables(Some(&folder), options, Some(lock));
        writer.names.clone_from(&names);
        if names.is_some() {
            each_table!(writer, t => t.names = names.clone());
        }
        writer.write_manifest(&Manifest { state: State::Recording, ..manifest.clone() }).inspect_err(|_| {
            // Best effort: an empty folder is not a reel, and would prevent the next attempt.
            let _ = folder.remove_this_reel();
        })?;
        writer.reserve = Reserve::new(&folder);
        Ok(writer)
    }

    /// A writer that adds tables to a closed or repaired reel which does not have them. [`Self::segments`] lists only
    /// the added segments.
    ///
    /// # Errors
    /// If another process writes the reel.
    pub fn beside(path: &Path) -> Result<Self> {
        let folder = Folder::open(path).map_err(ReelError::io(path, "opening the reel"))?;
        let lock = folder.to_file().map_err(ReelError::io(path, "opening the reel"))?;
        if let Err(fs::TryLockError::WouldBlock) = lock.try_lock() {
            return Err(ReelError::Write { path: path.into(), why: "another process is writing it".into() });
        }
        Ok(Self::tables(Some(&folder), WriterOptions::default(), Some(lock)))
    }

    fn tables(folder: Option<&Folder>, options: WriterOptions, lock: Option<File>) -> Self {
        Self {
            least_op: 0,
            kept_from_ns: 0,
            closed: 0,
            names: None,
            causes: Causes::default(),
            reserve: Reserve::default(),
            schedule: Schedule::new(),
            living_left_out: None,
            _lock: lock,
            ops: TableWriter::new(folder, options),
            block: TableWriter::new(folder, options),
            bio: TableWriter::new(folder, options),
            cache: TableWriter::new(folder, options),
            commits: TableWriter::new(folder, options),
            tasks: TableWriter::new(folder, options),
            execs: TableWriter::new(folder, options),
            files: TableWriter::new(folder, options),
            fds: TableWriter::new(folder, options),
            maps: TableWriter::new(folder, options),
            file_names: TableWriter::new(folder, options),
            stops: TableWriter::new(folder, options),
            waits: TableWriter::new(folder, options),
            tree: TableWriter::new(folder, options),
            final_tree: TableWriter::new(folder, options),
            extents: TableWriter::new(folder, options),
            contents: TableWriter::new(folder, options),
            actions: TableWriter::new(folder, options),
        }
    }

    /// A writer that writes nothing. Rows go to the tables' taps only.
    pub fn discarding() -> Self {
        let mut writer = Self::tables(None, WriterOptions::default(), None);
        each_table!(writer, t => t.discard = true);
        writer
    }

    /// Writes this manifest to the reel, with mapped names if names are mapped.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        let manifest = self.with_kept(manifest);
        match &self.names {
            Some(names) => locked(names).manifest(&manifest).write(self.folder()?),
            None => manifest.write(self.folder()?),
        }
    }

    /// The name mapping, if names are mapped.
    pub fn names(&self) -> Option<&Names> {
        self.names.as_ref()
    }

    /// Calls `f` with every Parquet file after its creation, before it is written. The recorder uses this to exclude
    /// I/O on these files until they are synced.
    pub fn on_create(&mut self, f: OnCreate) {
        each_table!(self, t => t.on_create = Some(f.clone()));
    }

    /// Temporary space on disk. It is excluded from the recording, like the reel's files.
    pub fn scratch(&self) -> io::Result<Scratch> {
        if self.ops.discard {
            return Ok(tempfile::tempfile()?.into());
        }
        let file = self.folder().map_err(io::Error::other)?.unnamed_file()?;
        let left_out = self.ops.on_create.as_ref().map(|OnCreate(f)| f(&file));
        Ok(Scratch { file, _left_out: left_out })
    }

    /// The reel's folder.
    ///
    /// # Errors
    /// When this writer discards what it gets.
    pub fn folder(&self) -> Result<&Folder> {
        self.ops.reel()
    }

    /// Adds an operation that caused bios, which may refer to it.
    pub fn push_op_with_io(&mut self, op: rows::Op) -> Result<()> {
        if self.ops.discard {
            return self.ops.push(op);
        }
        self.ops.asked.push((self.ops.times.len() as u32, (op.task_id, op.start_ns)));
        self.ops.push(op)
    }

    /// Adds an operation and the operations below it, each with the index of its parent. `io`: the first one caused
    /// bios.
    pub fn push_op_tree(&mut self, ops: Vec<(rows::Op, Option<usize>)>, io: bool) -> Result<()> {
        if let Some((op, _)) = ops.first().filter(|_| io && !self.ops.discard) {
            self.ops.asked.push((self.ops.times.len() as u32, (op.task_id, op.start_ns)));
        }
        self.ops.push_together(ops)
    }

    /// Adds a bio that was queued during an operation. `cause` is filled in when the segment closes, since operations
    /// get their ids when they end.
    pub fn push_bio(&mut self, mut bio: rows::Bio, cause: Option<OpKey>) -> Result<()> {
        if self.bio.discard {
            return self.bio.push(bio);
        }
        self.bio.map_names(&mut bio);
        if let Some(key) = cause {
            self.causes.wait(self.bio.next_segment as usize, self.bio.times.len() as u32, key);
        }
        self.bio.add(&bio);
        if self.bio.is_full() {
            self.find_causes()?;
            self.bio.flush()?;
        }
        Ok(())
    }

    pub(crate) fn find_causes(&mut self) -> Result<()> {
        let flushed = self.ops.flush();
        self.causes.named(self.ops.named.drain(..));
        let mut causes = self.causes.resolve(self.bio.next_segment as usize, self.bio.times.len());
        causes.iter_mut().for_each(|c| *c = c.filter(|op| *op >= self.least_op));
        if causes.iter().any(Option::is_some) {
            <rows::Bio as Row>::refer(&mut self.bio.columns, causes);
        }
        flushed
    }

    /// Closes segments that have waited long enough. When operations, requests or bios close a segment, the tables they
    /// refer to close theirs too: after a crash, operations on files without names are of little use.
    ///
    /// `living` returns the rows of tasks that have not ended. They are stored beside the closed ones, so that a repair
    /// can add them if this writer dies, and are replaced each time. For a repair, the rows of open segments are written
    /// too, every few seconds, see [`parts`].
    pub fn flush_if_old(&mut self, living: impl Fn() -> Vec<rows::Task>) -> Result<()> {
        if self.bio.is_old() {
            self.find_causes()?;
        }
        self.causes.named(self.ops.named.drain(..));
        // Before the ended tasks: a crash in between must not leave a task in both places.
        if self.tasks.is_old() {
            self.living_left_out = self.tasks.write_apart(LIVING, living(), Synced::AtOnce)?;
        }
        each_table!(self, t => t.flush_if_old()?);
        let closed = self.ops.segments.len() + self.block.segments.len() + self.bio.segments.len();
        if closed != self.closed {
            self.closed = closed;
            self.reserve.grow(closed);
            self.living_left_out = self.tasks.write_apart(LIVING, living(), Synced::AtOnce)?;
            self.flush_referred()?;
        }
        if let Some(interval) = self.schedule.due() {
            // Best effort: a full disk fails the segment itself.
            let _ = self.write_parts(interval, living);
        }
        Ok(())
    }

    /// Closes the segments of tables that operations, requests and bios refer to.
    fn flush_referred(&mut self) -> Result<()> {
        let all = [
            self.tasks.flush(),
            self.execs.flush(),
            self.files.flush(),
            self.fds.flush(),
            self.maps.flush(),
            self.tree.flush(),
        ];
        all.into_iter().collect()
    }

    /// Frees the reserved space for the small tables, at the end of the recording.
    pub fn use_reserve(&self) {
        self.reserve.give_way();
    }

    /// Closes every open segment. Tries all tables and returns the first error. If space runs out, tables that others
    /// refer to were written first.
    pub fn flush(&mut self) -> Result<()> {
        let referred = self.flush_referred();
        let mut first = referred.and(self.find_causes());
        each_table!(self, t => {
            let r = t.flush();
            if first.is_ok() { first = r; }
        });
        first
    }

    /// Likewise at the end of a recording, when all tasks are rows. A crash leaves none of them in two places.
    pub fn flush_all_tasks(&mut self) -> Result<()> {
        let removed = self.tasks.remove_apart(LIVING);
        self.flush().and(removed)
    }

    /// Frees the memory of tables without waiting rows: some 100 bytes per row that waited at the peak.
    pub fn release(&mut self) {
        each_table!(self, t => t.release());
    }

    /// Size of the reel, see [`TableWriter::bytes_about`].
    pub fn bytes_about(&mut self) -> i64 {
        let mut bytes = 0;
        each_table!(self, t => bytes += t.bytes_about());
        bytes
    }

    /// The closed segments by table, as listed in the manifest.
    pub fn segments(&mut self) -> BTreeMap<String, Vec<Segment>> {
        let mut out = BTreeMap::new();
        each_table!(self, t => {
            if !t.segments.is_empty() {
                out.insert(t.name().to_owned(), t.segments.clone());
            }
        });
        out
    }

    /// Number of rows of events that could not be written, by table.
    pub fn lost(&mut self) -> BTreeMap<String, i64> {
        let mut out = BTreeMap::new();
        each_table!(self, t => {
            if t.lost > 0 {
                out.insert(t.name().to_owned(), t.lost);
            }
        });
        out
    }
}
