//! Reads pieces of programs and stores outcomes for the replaying threads. These cannot use files of ioreel, because
//! their descriptor tables contain only descriptors of the workload.

use std::{
    collections::HashMap,
    io,
    ops::Range,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{self, SyncSender},
    },
    thread::{self, JoinHandle},
};

use crate::{
    ReplayError,
    plan::{
        chunk::{CHUNK_STEPS, Chunk},
        program::Plan,
        store::Stored,
    },
    reel::input::NONE,
    run::{
        engine::{BATCH_CALLS, Outcome},
        outcomes::Outcomes,
    },
};

/// Pieces of programs read ahead, over all threads. Each thread gets at least one and at most [`MOST_AHEAD`] of these.
const PIECES_AHEAD: usize = 64;
const MOST_AHEAD: usize = 16;
/// Pieces of outcomes on their way to the file.
const QUEUE: usize = 16;
/// Outcomes not handed over yet, over all threads: about 15 MB, and at least one piece per thread.
const ALL_BATCHES: usize = 64 * BATCH_CALLS;
/// Buffers for outcomes that are allocated in advance.
const ROOMS: usize = 4;

fn no_thread(source: io::Error) -> ReplayError {
    ReplayError::Io { doing: "starting a thread", source }
}

/// By thread and index: a piece that was requested. `None` if it cannot be read.
type Ready = HashMap<(u32, usize), Option<Arc<Chunk>>>;

/// A thread, and a range of its pieces.
type Wanted = (u32, Range<usize>);

/// Reads pieces before they are needed.
#[derive(Debug)]
pub(crate) struct Pieces {
    ready: Arc<(Mutex<Ready>, Condvar)>,
    /// Set if any piece is in a file.
    ask: Option<Mutex<mpsc::Sender<Wanted>>>,
    /// By thread: the first piece that was not requested yet.
    asked: Box<[AtomicUsize]>,
    /// Number of pieces of a thread that are read ahead. When half of them are left, the thread requests more.
    ahead: usize,
}

impl Pieces {
    /// Starts the reading thread. The caller must have ioreel's descriptors.
    pub(crate) fn start(plan: &Arc<Plan>) -> Result<Self, ReplayError> {
        let ready = Arc::new((Mutex::new(Ready::new()), Condvar::new()));
        let threads = plan.tasks.len();
        let ahead = (PIECES_AHEAD / threads.max(1)).clamp(1, MOST_AHEAD);
        let asked = (0..threads).map(|_| AtomicUsize::new(0)).collect();
        if plan.store.is_small() {
            return Ok(Self { ready, ask: None, asked, ahead });
        }
        let (ask, pieces) = mpsc::channel::<Wanted>();
        let (plan, told) = (plan.clone(), ready.clone());
        // It ends when no sender is left.
        thread::Builder::new()
            .name("reader".into())
            .spawn(move || {
                for (task, index) in pieces.into_iter().flat_map(|(task, range)| range.map(move |i| (task, i))) {
                    if is_in_file(&plan, task, index) {
                        let piece = plan.chunk(task, index);
                        told.0.lock().unwrap_or_else(PoisonError::into_inner).insert((task, index), piece);
                        told.1.notify_all();
                    }
                }
            })
            .map_err(no_thread)?;
        Ok(Self { ready, ask: Some(Mutex::new(ask)), asked, ahead })
    }

    /// Requests the pieces from `index` on, if few are requested already.
    fn ask(&self, plan: &Plan, task: u32, index: usize) {
        let Some(ask) = &self.ask else { return };
        let asked = &self.asked[task as usize];
        let from = asked.load(Relaxed).max(index);
        let to = (index + 1 + self.ahead).min(plan.tasks[task as usize].program.chunks.len());
        if from < to && from <= index + self.ahead.div_ceil(2) {
            asked.store(to, Relaxed);
            if (from..to).any(|i| is_in_file(plan, task, i)) {
                // Fails only if the reader has panicked.
                let _ = ask.lock().unwrap_or_else(PoisonError::into_inner).send((task, from..to));
            }
        }
    }

    /// A piece of a thread's program. Requests those after it.
    pub(crate) fn get(&self, plan: &Plan, task: u32, index: usize) -> Option<Arc<Chunk>> {
        let kept = plan.tasks[task as usize].program.chunks.get(index)?;
        self.ask(plan, task, index);
        if let Stored::Memory(chunk) = kept {
            return Some(chunk.clone());
        }
        let (ready, changed) = &*self.ready;
        let mut pieces = ready.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(piece) = pieces.remove(&(task, index)) {
                return piece;
            }
            pieces = changed.wait(pieces).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn is_in_file(plan: &Plan, task: u32, index: usize) -> bool {
    matches!(plan.tasks[task as usize].program.chunks.get(index), Some(Stored::File { .. }))
}

/// An empty buffer for `batch` outcomes whose memory is already mapped.
fn touched_room(batch: usize) -> Vec<Outcome> {
    let mut room = vec![Outcome { row: NONE, ..Outcome::default() }; batch];
    room.clear();
    room
}

/// A thread, and some of its outcomes.
type RecordedData = (u32, Vec<Outcome>);

/// Empty buffers for outcomes.
type Rooms = Arc<Mutex<Vec<Vec<Outcome>>>>;

/// Collects outcomes.
#[derive(Debug)]
pub(crate) struct Scribe {
    tell: Mutex<Option<SyncSender<RecordedData>>>,
    /// Outcomes that a thread hands over at a time.
    batch: usize,
    /// Buffers whose memory is already mapped, so that no operation waits for page faults.
    rooms: Rooms,
    kept: Mutex<Option<JoinHandle<io::Result<Outcomes>>>>,
}

impl Scribe {
    /// Starts the collecting thread. The caller must have ioreel's descriptors. `memory_bytes`: limit of memory.
    pub(crate) fn start(threads: usize, memory_bytes: usize) -> Result<Self, ReplayError> {
        let batch = (ALL_BATCHES / threads.max(1)).clamp(CHUNK_STEPS, BATCH_CALLS);
        let (tell, told) = mpsc::sync_channel::<RecordedData>(QUEUE);
        let rooms = Rooms::default();
        let made = rooms.clone();
        let kept = thread::Builder::new()
            .name("scribe".into())
            .spawn(move || {
                let mut outcomes = Outcomes::within(threads, memory_bytes);
                for (task, some) in told {
                    let is_full = some.len() + CHUNK_STEPS > batch;
                    outcomes.put(task, some)?;
                    let left = || made.lock().unwrap_or_else(PoisonError::into_inner);
                    // A thread that has filled one buffer may fill another.
                    if is_full && left().len() < ROOMS {
                        let room = touched_room(batch);
                        left().push(room);
                    }
                }
                Ok(outcomes)
            })
            .map_err(no_thread)?;
        Ok(Self { tell: Mutex::new(Some(tell)), batch, rooms, kept: Mutex::new(Some(kept)) })
    }

    /// An empty buffer for outcomes, for a thread that will make `calls` more calls.
    pub(crate) fn room(&self, calls: usize) -> Vec<Outcome> {
        let made = || self.rooms.lock().unwrap_or_else(PoisonError::into_inner).pop();
        (calls >= self.batch).then(made).flatten().unwrap_or_else(|| Vec::with_capacity(calls.min(self.batch)))
    }

    /// Takes outcomes of a thread.
    pub(crate) fn note(&self, task: u32, outcomes: Vec<Outcome>) {
        let tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(tell) = tell {
            // Fails only if the collecting thread failed. `finish` returns its error.
            let _ = tell.send((task, outcomes));
        }
    }

    /// All outcomes. Call it once.
    pub(crate) fn finish(&self) -> Result<Outcomes, ReplayError> {
        drop(self.tell.lock().unwrap_or_else(PoisonError::into_inner).take());
        let gone = || io::Error::other("outcomes were not stored");
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let joined = kept.ok_or_else(gone).and_then(|k| k.join().map_err(|_| gone())?);
        joined.map_err(|source| ReplayError::Io {
            doing: "storing outcomes in the folder for temporary files (TMPDIR)",
            source,
        })
    }
}
