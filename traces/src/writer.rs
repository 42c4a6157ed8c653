//! Writes a reel in segments. A segment is collected in memory, sorted by time, written, synced and
//! renamed into place: a crash costs at most the open one.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use parquet::arrow::ArrowWriter;

use self::reserve::Reserve;
use crate::{
    Manifest, ReelError, Result,
    anonymize::Anonymizer,
    build::Order,
    causes::{Causes, OpKey},
    manifest::{ROW_CLASSES, Segment, State},
    reader::{next_batch, open_segment},
    rows,
    table::{Row, batch, properties, schema},
};

/// When a segment is closed.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// At this many rows. Bounds memory: an operation takes some 150 bytes while it waits.
    pub segment_rows: usize,
    /// Or when its first row has waited this long, whichever is first.
    pub segment_age: Duration,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { segment_rows: DEFAULT_SEGMENT_ROWS, segment_age: DEFAULT_SEGMENT_AGE }
    }
}

/// 256 Ki rows: 40 MB of operations while waiting, 2.5 MB on disk.
pub const DEFAULT_SEGMENT_ROWS: usize = 256 * 1024;
/// One minute: what a crash may cost of a quiet recording.
pub const DEFAULT_SEGMENT_AGE: Duration = Duration::from_secs(60);
/// What a row takes on disk before one has been written.
const ROW_BYTES_GUESS: i64 = 12;
/// Rows turned into one Arrow batch at a time.
const BATCH_ROWS: usize = 16 * 1024;

/// The segment of tasks that have not ended; not in the manifest's list, and gone when the reel is closed.
pub(crate) const LIVING: &str = "living.parquet";

/// What to do with every Parquet file as it is created, before it is written to.
#[derive(Clone)]
pub struct OnCreate(pub Arc<dyn Fn(&File) + Send + Sync>);

impl std::fmt::Debug for OnCreate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnCreate")
    }
}

/// The lock itself; whoever panicked while holding it left nothing half done.
fn locked(names: &Names) -> MutexGuard<'_, Anonymizer> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes one table.
#[derive(Debug)]
pub struct TableWriter<R: Row> {
    reel: PathBuf,
    options: WriterOptions,
    columns: R::Columns,
    /// Time of each waiting row; shorter than a row, and so cheap to sort by.
    times: Vec<i64>,
    /// Greatest time of a waiting row, its duration included.
    to_ns: i64,
    /// Waiting rows that events led to.
    events: i64,
    oldest: Option<Instant>,
    next_id: i64,
    next_segment: u32,
    pub(crate) segments: Vec<Segment>,
    /// Rows of events in closed segments, and those that could not be written.
    pub(crate) events_written: i64,
    /// Rows that a rotation has dropped again.
    pub(crate) rotated: i64,
    lost: i64,
    on_create: Option<OnCreate>,
    names: Option<Names>,
    /// Waiting rows whose ids others ask for, and those that have got them.
    asked: Vec<(u32, OpKey)>,
    named: Vec<(OpKey, i64)>,
    tap: Option<Tap<R>>,
    /// Rows end here.
    discard: bool,
}

/// Shown every row of a table as it is pushed.
#[derive(Clone)]
pub struct Tap<R>(pub Arc<dyn Fn(&R) + Send + Sync>);

impl<R> std::fmt::Debug for Tap<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tap")
    }
}

/// What maps the names of rows and manifests on their way to the disk, shared by all tables and whoever asks
/// what a mapped name was.
pub type Names = Arc<Mutex<Anonymizer>>;

impl<R: Row> TableWriter<R> {
    pub(crate) fn new(reel: &Path, options: WriterOptions) -> Self {
        Self {
            reel: reel.into(),
            options,
            columns: R::Columns::default(),
            times: Vec::new(),
            to_ns: i64::MIN,
            events: 0,
            oldest: None,
            next_id: 0,
            next_segment: 0,
            segments: Vec::new(),
            events_written: 0,
            rotated: 0,
            lost: 0,
            on_create: None,
            names: None,
            asked: Vec::new(),
            named: Vec::new(),
            tap: None,
            discard: false,
        }
    }

    /// Shows every row from now on to `tap`, before its names are mapped.
    pub fn tap(&mut self, tap: Tap<R>) {
        self.tap = Some(tap);
    }

    /// Adds a row; closes the segment when it is full.
    pub fn push(&mut self, mut row: R) -> Result<()> {
        if let Some(Tap(tap)) = &self.tap {
            tap(&row);
        }
        if self.discard {
            return Ok(());
        }
        self.map_names(&mut row);
        self.push_as_is(row)
    }

    fn map_names(&self, row: &mut R) {
        if let Some(names) = &self.names {
            locked(names).row(row);
        }
    }

    /// The same of a row whose names are mapped already, where names are mapped at all.
    pub fn push_as_is(&mut self, row: R) -> Result<()> {
        self.add(row);
        if self.is_full() { self.flush() } else { Ok(()) }
    }

    fn is_full(&self) -> bool {
        self.times.len() >= self.options.segment_rows
    }

    fn add(&mut self, row: R) {
        if self.times.is_empty() {
            self.oldest = Some(Instant::now());
        }
        row.append(&mut self.columns);
        self.times.push(row.time_ns());
        self.to_ns = self.to_ns.max(row.end_ns());
        self.events += i64::from(row.is_event());
    }

    /// Closes the segment if it is old enough; to be called now and then when no rows come.
    pub fn flush_if_old(&mut self) -> Result<()> {
        if self.is_old() { self.flush() } else { Ok(()) }
    }

    fn is_old(&self) -> bool {
        self.oldest.is_some_and(|t| t.elapsed() >= self.options.segment_age)
    }

    /// The table's name.
    pub fn name(&self) -> &'static str {
        R::TABLE
    }

    /// Rows written and closed so far; rows of the open segment do not count.
    pub fn written(&self) -> i64 {
        self.segments.iter().map(|s| s.rows).sum()
    }

    /// Bytes of the table: what is closed, and what the open segment will take if its rows are like those before.
    pub fn bytes_about(&self) -> i64 {
        let closed: i64 = self.segments.iter().map(|s| s.bytes).sum();
        let rows = self.written();
        let waiting = self.times.len() as i64;
        if rows == 0 { waiting * ROW_BYTES_GUESS } else { closed + waiting * closed / rows }
    }

    /// Rows waiting in the open segment.
    pub fn waiting(&self) -> usize {
        self.times.len()
    }

    /// Rows of events that were pushed but could not be written.
    pub fn lost(&self) -> i64 {
        self.lost
    }

    /// Rows that were written and that a rotation has dropped again.
    pub fn rotated(&self) -> i64 {
        self.rotated
    }

    /// Puts other rows in the place of a closed segment; without any, the segment goes. Ids stay as they are.
    pub(crate) fn replace(&mut self, index: usize, rows: &[R]) -> Result<()> {
        let file = self.segments[index].file.clone();
        if rows.is_empty() {
            let path = self.reel.join(&file);
            fs::remove_file(&path).map_err(ReelError::io(&path, "dropping the segment"))?;
            self.segments.remove(index);
            return Ok(());
        }
        let mut apart = self.apart(rows);
        let bytes = apart.put_segment(&file, None)?;
        self.segments[index] = span_of(file, bytes, rows);
        Ok(())
    }

    /// A writer of these rows alone, which are sorted and have their ids.
    fn apart(&self, rows: &[R]) -> Self {
        let mut apart = Self { on_create: self.on_create.clone(), ..Self::new(&self.reel, self.options) };
        for row in rows {
            row.append(&mut apart.columns);
            apart.times.push(row.time_ns());
        }
        apart
    }

    /// Writes rows, which are sorted and have their ids, to `path` as what will be the segment `file`.
    pub(crate) fn write_rows(&self, path: &Path, file: &str, rows: &[R]) -> Result<Segment> {
        let bytes = self.apart(rows).write_segment(path, None)?;
        Ok(span_of(file.into(), bytes, rows))
    }

    /// The reel's folder.
    pub(crate) fn reel(&self) -> &Path {
        &self.reel
    }

    /// The rows of a closed segment.
    pub(crate) fn rows_of(&self, index: usize) -> Result<Vec<R>> {
        let path = self.reel.join(&self.segments[index].file);
        let mut rows = Vec::new();
        let mut reader = open_segment(&path, &[])?;
        while let Some(batch) = next_batch(&mut reader) {
            batch
                .and_then(|b| R::read(&b, &mut rows))
                .map_err(|why| ReelError::BadSegment { path: path.clone(), why })?;
        }
        Ok(rows)
    }

    /// The closed segments.
    pub(crate) fn into_segments(self) -> Vec<Segment> {
        self.segments
    }

    /// Closes the open segment. On failure its rows are gone, counted as lost, and nothing of it stays on disk.
    pub fn flush(&mut self) -> Result<()> {
        self.oldest = None;
        if self.times.is_empty() {
            return Ok(());
        }
        let done = self.close_segment();
        match done {
            Ok(()) => self.events_written += self.events,
            Err(_) => self.lost += self.events,
        }
        R::clear(&mut self.columns);
        self.asked.clear();
        self.times.clear();
        self.to_ns = i64::MIN;
        self.events = 0;
        done
    }

    fn close_segment(&mut self) -> Result<()> {
        let times = &self.times;
        // Calls are written when they end and sorted by when they began, so rows of one thread are sorted already.
        let sorted: Option<Vec<u32>> = (!times.is_sorted()).then(|| {
            let mut rows: Vec<u32> = (0..times.len() as u32).collect();
            rows.sort_by_key(|row| times[*row as usize]);
            rows
        });
        let order = sorted.as_deref();
        let from_ns = times[order.map_or(0, |o| o[0] as usize)];
        R::assign_ids(&mut self.columns, order, &mut self.next_id);
        let columns = &self.columns;
        let ids = self.asked.drain(..).filter_map(|(row, key)| Some((key, R::id_of(columns, row)?)));
        self.named.extend(ids);
        let name = format!("{}/{:06}.parquet", R::TABLE, self.next_segment);
        let bytes = self.put_segment(&name, order)?;
        self.next_segment += 1;
        self.segments.push(Segment { file: name, rows: self.times.len() as i64, bytes, from_ns, to_ns: self.to_ns });
        Ok(())
    }

    /// Writes rows of their own as the segment `name`, which replaces the one before. Not counted, not listed.
    fn write_apart(&mut self, name: &str, mut rows: Vec<R>) -> Result<()> {
        if rows.is_empty() {
            return self.remove_apart(name);
        }
        rows.sort_by_key(Row::time_ns);
        let mut apart = Self { on_create: self.on_create.clone(), ..Self::new(&self.reel, self.options) };
        for mut row in rows {
            if let Some(names) = &self.names {
                locked(names).row(&mut row);
            }
            row.append(&mut apart.columns);
            apart.times.push(row.time_ns());
        }
        apart.put_segment(&format!("{}/{name}", R::TABLE), None).map(drop)
    }

    fn remove_apart(&self, name: &str) -> Result<()> {
        let path = self.reel.join(R::TABLE).join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(ReelError::io(&path, "removing the segment")(e)),
            _ => Ok(()),
        }
    }

    /// Writes the waiting rows as the file `name` of the reel, whole or not at all; its size.
    fn put_segment(&mut self, name: &str, order: Order<'_>) -> Result<i64> {
        let dir = self.reel.join(R::TABLE);
        match fs::create_dir(&dir) {
            // Not the folders above: where somebody has removed the reel, that shall be told.
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(ReelError::io(&dir, "creating the table's folder")(e));
            }
            _ => {}
        }
        let path = self.reel.join(name);
        let tmp = path.with_extension("parquet.tmp");
        let bytes = self.write_segment(&tmp, order).inspect_err(|_| {
            // Best effort: on a full disk this is what makes room for the manifest.
            let _ = fs::remove_file(&tmp);
        })?;
        fs::rename(&tmp, &path).map_err(ReelError::io(&path, "putting the segment in place"))?;
        // The name, too, has to outlive a crash of the machine.
        File::open(&dir).and_then(|d| d.sync_all()).map_err(ReelError::io(&dir, "syncing the table's folder"))?;
        Ok(bytes)
    }

    fn write_segment(&mut self, tmp: &Path, order: Order<'_>) -> Result<i64> {
        let bad = |why: String| ReelError::Write { path: tmp.into(), why };
        let file = File::create(tmp).map_err(ReelError::io(tmp, "creating the segment"))?;
        if let Some(OnCreate(f)) = &self.on_create {
            f(&file);
        }
        let schema = schema::<R>();
        let properties = properties::<R>(&R::shapes(&self.columns, order))?;
        let mut w = ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(|e| bad(e.to_string()))?;
        let rows = self.times.len();
        for first in (0..rows).step_by(BATCH_ROWS) {
            let places = first..rows.min(first + BATCH_ROWS);
            let batch = batch::<R>(&schema, &mut self.columns, places, order).map_err(bad)?;
            w.write(&batch).map_err(|e| bad(e.to_string()))?;
        }
        let file = w.into_inner().map_err(|e| bad(e.to_string()))?;
        file.sync_all().map_err(ReelError::io(tmp, "syncing the segment"))?;
        Ok(file.metadata().map_err(ReelError::io(tmp, "measuring the segment"))?.len() as i64)
    }
}

/// The entry of a segment of these rows.
fn span_of<R: Row>(file: String, bytes: i64, rows: &[R]) -> Segment {
    let from_ns = rows.first().map_or(0, Row::time_ns);
    let to_ns = rows.iter().map(Row::end_ns).max().unwrap_or(from_ns);
    Segment { file, rows: rows.len() as i64, bytes, from_ns, to_ns }
}

/// Writes a reel: one [`TableWriter`] per table and, at the end, the manifest.
#[derive(Debug)]
pub struct ReelWriter {
    path: PathBuf,
    /// Operations before this one have been dropped by rotation.
    pub(crate) least_op: i64,
    /// Segments closed of `ops`, `block` and `bio` when the others were last closed.
    closed: usize,
    names: Option<Names>,
    causes: Causes,
    reserve: Reserve,
    /// The reel's folder, locked for as long as this writer lives: a repair keeps off.
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
    /// What slow operations waited for.
    pub waits: TableWriter<rows::Wait>,
    /// Names of files over time.
    pub file_names: TableWriter<rows::Name>,
    /// Files mapped at the start.
    pub maps: TableWriter<rows::Map>,
    /// Stops by the recorder.
    pub stops: TableWriter<rows::Stop>,
    /// The name space before the workload.
    pub tree: TableWriter<rows::Tree>,
    /// Bytes of writes.
    pub contents: TableWriter<rows::Content>,
    /// Records of an imported block trace.
    pub actions: TableWriter<rows::Action>,
}

/// Does something to every table writer: there is no other place that lists them; [`crate::tables`] lists the tables.
/// Small ones that others refer to come first: on a disk that fills they are worth most.
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

mod copy;
mod reserve;

impl ReelWriter {
    /// Makes the folder `path` and a manifest in state `recording`. An existing path is an error.
    pub fn create(path: &Path, manifest: &Manifest, options: WriterOptions) -> Result<Self> {
        Self::create_mapped(path, manifest, options, None)
    }

    /// The same, with the names of all rows and manifests mapped by `names` before they reach the disk.
    pub fn create_mapped(
        path: &Path,
        manifest: &Manifest,
        options: WriterOptions,
        names: Option<Names>,
    ) -> Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(ReelError::Exists { path: path.into() });
        }
        fs::create_dir(path).map_err(ReelError::io(path, "creating the reel"))?;
        let lock = File::open(path).map_err(ReelError::io(path, "opening the reel"))?;
        // Where the file system has no locks, a repair cannot be kept off; recording still works.
        let _ = lock.try_lock();
        let mut writer = Self::tables(path, options, Some(lock));
        writer.names.clone_from(&names);
        if names.is_some() {
            each_table!(writer, t => t.names = names.clone());
        }
        writer.write_manifest(&Manifest { state: State::Recording, ..manifest.clone() })?;
        writer.reserve = Reserve::new(path);
        Ok(writer)
    }

    fn tables(path: &Path, options: WriterOptions, lock: Option<File>) -> Self {
        Self {
            path: path.into(),
            least_op: 0,
            closed: 0,
            names: None,
            causes: Causes::default(),
            reserve: Reserve::default(),
            _lock: lock,
            ops: TableWriter::new(path, options),
            block: TableWriter::new(path, options),
            bio: TableWriter::new(path, options),
            cache: TableWriter::new(path, options),
            tasks: TableWriter::new(path, options),
            execs: TableWriter::new(path, options),
            files: TableWriter::new(path, options),
            fds: TableWriter::new(path, options),
            maps: TableWriter::new(path, options),
            file_names: TableWriter::new(path, options),
            stops: TableWriter::new(path, options),
            waits: TableWriter::new(path, options),
            tree: TableWriter::new(path, options),
            contents: TableWriter::new(path, options),
            actions: TableWriter::new(path, options),
        }
    }

    /// A writer that writes nothing: rows are shown to the tables' taps, and end there.
    pub fn discarding() -> Self {
        let none = Path::new("");
        let options = WriterOptions::default();
        let mut writer = Self::tables(none, options, None);
        each_table!(writer, t => t.discard = true);
        writer
    }

    /// Puts this manifest into the reel, its names mapped where names are.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        match &self.names {
            Some(names) => locked(names).manifest(manifest).write(&self.path),
            None => manifest.write(&self.path),
        }
    }

    /// What maps names, if they are mapped.
    pub fn names(&self) -> Option<&Names> {
        self.names.as_ref()
    }

    /// Calls `f` with every Parquet file as it is created, before it is written to: the recorder
    /// tells the kernel to leave these files' own I/O out.
    pub fn on_create(&mut self, f: OnCreate) {
        each_table!(self, t => t.on_create = Some(f.clone()));
    }

    /// A file in the reel's folder that has no name and goes when it is closed; told of as the reel's own files are.
    pub fn scratch(&self) -> std::io::Result<File> {
        if self.ops.discard {
            return tempfile::tempfile();
        }
        let file = tempfile::tempfile_in(&self.path)?;
        if let Some(OnCreate(f)) = &self.ops.on_create {
            f(&file);
        }
        Ok(file)
    }

    /// The reel's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds an operation that made bios: they may name it as their cause.
    pub fn push_op_with_io(&mut self, op: rows::Op) -> Result<()> {
        if self.ops.discard {
            return self.ops.push(op);
        }
        self.ops.asked.push((self.ops.times.len() as u32, (op.task_id, op.start_ns)));
        self.ops.push(op)
    }

    /// Adds a bio that was queued during an operation. `cause` is filled when the segment closes: operations that
    /// have ended get their ids by then.
    pub fn push_bio(&mut self, mut bio: rows::Bio, cause: Option<OpKey>) -> Result<()> {
        if self.bio.discard {
            return self.bio.push(bio);
        }
        self.bio.map_names(&mut bio);
        if let Some(key) = cause {
            self.causes.wait(self.bio.next_segment as usize, self.bio.times.len() as u32, key);
        }
        self.bio.add(bio);
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

    /// Closes segments that have waited long enough. When operations, requests or bios have closed one, so do the
    /// tables they refer to: after a crash, operations on files without names are of little use.
    ///
    /// `living` gives the rows of tasks that have not ended. They are kept beside the closed ones, for a repair to
    /// take in should this writer die, and replaced each time.
    pub fn flush_if_old(&mut self, living: impl FnOnce() -> Vec<rows::Task>) -> Result<()> {
        if self.bio.is_old() {
            self.find_causes()?;
        }
        self.causes.named(self.ops.named.drain(..));
        each_table!(self, t => t.flush_if_old()?);
        let closed = self.ops.segments.len() + self.block.segments.len() + self.bio.segments.len();
        if closed != self.closed {
            self.closed = closed;
            self.reserve.grow(closed);
            // Before the ended ones: a crash in between must not leave a task in both.
            self.tasks.write_apart(LIVING, living())?;
            self.tasks.flush()?;
            self.execs.flush()?;
            self.files.flush()?;
            self.fds.flush()?;
            self.maps.flush()?;
            self.tree.flush()?;
        }
        Ok(())
    }

    /// Something could not be written: what was set aside for the small tables is left to them.
    pub fn use_reserve(&self) {
        self.reserve.give_way();
    }

    /// Closes every open segment. Tries all tables, then returns the first error.
    pub fn flush(&mut self) -> Result<()> {
        let mut first = self.find_causes();
        each_table!(self, t => {
            let r = t.flush();
            if first.is_ok() { first = r; }
        });
        first
    }

    /// Bytes of the reel: see [`TableWriter::bytes_about`].
    pub fn bytes_about(&mut self) -> i64 {
        let mut bytes = 0;
        each_table!(self, t => bytes += t.bytes_about());
        bytes
    }

    /// The closed segments by table, as the manifest lists them.
    pub fn segments(&mut self) -> BTreeMap<String, Vec<Segment>> {
        let mut out = BTreeMap::new();
        each_table!(self, t => {
            if !t.segments.is_empty() {
                out.insert(t.name().to_owned(), t.segments.clone());
            }
        });
        out
    }

    /// Rows of events that could not be written, by table.
    pub fn lost(&mut self) -> BTreeMap<String, i64> {
        let mut out = BTreeMap::new();
        each_table!(self, t => {
            if t.lost > 0 {
                out.insert(t.name().to_owned(), t.lost);
            }
        });
        out
    }

    /// Closes every segment and writes the final manifest, with `segments`, `cost.reel_bytes` and `state`
    /// filled in. When a segment cannot be written (disk full), now or earlier, the manifest is written all the
    /// same, in state `truncated`: what was closed before is a valid reel. In that state the ledger's
    /// `written` becomes what is on disk, and what is missing from `seen` is lost.
    ///
    /// # Errors
    /// When a segment cannot be written now, or the manifest cannot.
    pub fn close(mut self, mut manifest: Manifest) -> Result<Manifest> {
        // Before those tasks are written to their place: see `flush_if_old`.
        let removed = self.tasks.remove_apart(LIVING);
        let flushed = self.flush().and(removed);
        manifest.segments = self.segments();
        let lost = self.lost();
        if !lost.is_empty() || flushed.is_err() || manifest.state == State::Truncated {
            self.settle_ledger(&mut manifest);
        }
        self.reserve.release();
        manifest.cost.reel_bytes = manifest.segments.values().flatten().map(|s| s.bytes).sum();
        if manifest.state == State::Recording {
            manifest.state = if lost.is_empty() && flushed.is_ok() { State::Complete } else { State::Truncated };
        }
        self.write_manifest(&manifest)?;
        flushed.map(|()| manifest)
    }

    /// Makes the ledger of a reel that ends early say what is on disk: its maker stopped counting at the failure.
    fn settle_ledger(&mut self, manifest: &mut Manifest) {
        each_table!(self, t => {
            if ROW_CLASSES.contains(&t.name())
                && let Some(ledger) = manifest.ledger.get_mut(t.name())
            {
                ledger.written = t.events_written;
            }
        });
        for ledger in manifest.ledger.values_mut() {
            ledger.seen = ledger.seen.max(ledger.written + ledger.filtered);
            ledger.lost = ledger.seen - ledger.written - ledger.filtered;
        }
    }
}
