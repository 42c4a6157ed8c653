//! Hands out pieces of programs and takes in outcomes, for threads that cannot touch a file of ioreel's: the
//! descriptors they have are the workload's alone.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        mpsc::{
            self, Receiver, SyncSender,
            TrySendError::{Disconnected, Full},
        },
    },
    thread::{self, JoinHandle},
};

use crate::{
    ReplayError,
    chunk::{CHUNK_STEPS, Chunk},
    engine::{BATCH_CALLS, Outcome},
    outcomes::Outcomes,
    plan::Plan,
    store::Kept,
};

/// Pieces of outcomes under way to the file.
const QUEUE: usize = 16;
/// Room for pieces of outcomes that is made before it is asked for.
const ROOMS: usize = 4;

fn no_thread(source: io::Error) -> ReplayError {
    ReplayError::Io { doing: "starting a thread", source }
}

/// By thread and index: a piece that was asked for, `None` when it cannot be read.
type Ready = HashMap<(u32, usize), Option<Arc<Chunk>>>;

/// Reads pieces before they are needed.
#[derive(Debug)]
pub(crate) struct Pieces {
    ready: Arc<(Mutex<Ready>, Condvar)>,
    /// Set when any piece is in a file.
    ask: Option<Mutex<mpsc::Sender<(u32, usize)>>>,
}

impl Pieces {
    /// Of this plan; called by a thread that has its descriptors.
    pub(crate) fn start(plan: &Arc<Plan>) -> Result<Self, ReplayError> {
        let ready = Arc::new((Mutex::new(Ready::new()), Condvar::new()));
        if plan.store.is_small() {
            return Ok(Self { ready, ask: None });
        }
        let (ask, asked) = mpsc::channel();
        let (plan, told) = (plan.clone(), ready.clone());
        // Ends when the last who may ask is gone.
        thread::Builder::new()
            .name("reader".into())
            .spawn(move || {
                for (task, index) in asked {
                    let piece = plan.chunk(task, index);
                    told.0.lock().unwrap_or_else(PoisonError::into_inner).insert((task, index), piece);
                    told.1.notify_all();
                }
            })
            .map_err(no_thread)?;
        Ok(Self { ready, ask: Some(Mutex::new(ask)) })
    }

    fn ask(&self, plan: &Plan, task: u32, index: usize) {
        let kept = plan.tasks[task as usize].program.chunks.get(index);
        if let (Some(ask), Some(Kept::File { .. })) = (&self.ask, kept) {
            // A reader that is gone is told by its silence below.
            let _ = ask.lock().unwrap_or_else(PoisonError::into_inner).send((task, index));
        }
    }

    /// A piece of a thread's program; asks for the one after it.
    pub(crate) fn get(&self, plan: &Plan, task: u32, index: usize) -> Option<Arc<Chunk>> {
        match plan.tasks[task as usize].program.chunks.get(index)? {
            Kept::Memory(chunk) => {
                self.ask(plan, task, index + 1);
                Some(chunk.clone())
            }
            Kept::File { .. } => {
                if index == 0 {
                    self.ask(plan, task, 0);
                }
                let (ready, changed) = &*self.ready;
                let mut pieces = ready.lock().unwrap_or_else(PoisonError::into_inner);
                loop {
                    if let Some(piece) = pieces.remove(&(task, index)) {
                        drop(pieces);
                        self.ask(plan, task, index + 1);
                        return piece;
                    }
                    pieces = changed.wait(pieces).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Room for a piece of outcomes, in memory that was touched.
fn touched_room() -> Vec<Outcome> {
    let mut room =
        vec![Outcome { step: 0, cpu: 0, due_ns: 0, start_ns: 0, end_ns: 0, ret: 0, free_ns: 0, row: 1 }; BATCH_CALLS];
    room.clear();
    room
}

/// A thread, and some of its outcomes.
type Told = (u32, Vec<Outcome>);

/// Keeps outcomes.
#[derive(Debug)]
pub(crate) struct Scribe {
    tell: Mutex<Option<SyncSender<Told>>>,
    /// Memory that is there already, so that no operation waits for it to be.
    rooms: Mutex<Receiver<Vec<Outcome>>>,
    kept: Mutex<Option<JoinHandle<io::Result<Outcomes>>>>,
}

impl Scribe {
    /// Of so many threads, with so much in memory; called by a thread that has its descriptors.
    pub(crate) fn start(threads: usize, memory_bytes: usize) -> Result<Self, ReplayError> {
        let (tell, told) = mpsc::sync_channel::<Told>(QUEUE);
        let (make, rooms) = mpsc::sync_channel(ROOMS);
        let kept = thread::Builder::new()
            .name("scribe".into())
            .spawn(move || {
                let mut outcomes = Outcomes::within(threads, memory_bytes);
                let mut next = None;
                for (task, some) in told {
                    let is_full = some.len() + CHUNK_STEPS > BATCH_CALLS;
                    outcomes.put(task, some)?;
                    // Whoever has filled one may fill another.
                    while is_full {
                        if let Err(Full(room) | Disconnected(room)) =
                            make.try_send(next.take().unwrap_or_else(touched_room))
                        {
                            next = Some(room);
                            break;
                        }
                    }
                }
                Ok(outcomes)
            })
            .map_err(no_thread)?;
        Ok(Self { tell: Mutex::new(Some(tell)), rooms: Mutex::new(rooms), kept: Mutex::new(Some(kept)) })
    }

    /// Room for outcomes of a thread that makes so many more calls.
    pub(crate) fn room(&self, calls: usize) -> Vec<Outcome> {
        let made = || self.rooms.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok();
        (calls >= BATCH_CALLS).then(made).flatten().unwrap_or_else(|| Vec::with_capacity(calls.min(BATCH_CALLS)))
    }

    /// Some outcomes of a thread.
    pub(crate) fn note(&self, task: u32, outcomes: Vec<Outcome>) {
        let tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(tell) = tell {
            // Fails only when the scribe failed, which its end tells.
            let _ = tell.send((task, outcomes));
        }
    }

    /// All of them; to be called once.
    pub(crate) fn finish(&self) -> Result<Outcomes, ReplayError> {
        drop(self.tell.lock().unwrap_or_else(PoisonError::into_inner).take());
        let gone = || io::Error::other("what happened was not kept");
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let joined = kept.ok_or_else(gone).and_then(|k| k.join().map_err(|_| gone())?);
        joined.map_err(|source| ReplayError::Io { doing: "keeping outcomes in the folder for temporary files", source })
    }
}
