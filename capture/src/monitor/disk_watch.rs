//! Records the requests and bios of given disks without any operations. A replay uses it for its target.

use std::{
    collections::HashSet,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread::JoinHandle,
    time::Instant,
};

use ioreel_bpf::types::rec_class;
use ioreel_traces::{
    disk::DiskActivity,
    manifest::Ledger,
    rows::{Bio, Block},
};

use crate::{
    CaptureError,
    assemble::{block::Blocks, classify::classify},
    decode::wire,
    host,
    pipeline::{
        ledger::Books,
        settle::{FOR_IDLE, QUIET},
    },
    probes::session::{DEFAULT_RING_BYTES, Plan, SHORTEST_TICK, Session, Storage, Targets},
    record::hide_backing_files,
};

enum Order {
    Begin,
    /// Wait until the disks are idle, then end. Rows start at this monotonic time.
    End(i64),
}

/// A running watch. It keeps rows in memory, about 300 bytes per request, so that it does not write to any disk while
/// the disks are measured.
#[derive(Debug)]
pub struct DiskWatch {
    orders: SyncSender<Order>,
    thread: JoinHandle<Result<DiskActivity, CaptureError>>,
}

impl DiskWatch {
    /// Loads the block probes for `disks` (`dev_t`). Recording starts with [`DiskWatch::begin`].
    pub fn start(disks: Vec<i64>) -> Result<Self, CaptureError> {
        let (orders, receiver) = sync_channel(2);
        let (ready, loaded) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let plan = Plan {
                target: Targets::None,
                devices: disks.clone(),
                fixed_devices: true,
                ring_bytes: DEFAULT_RING_BYTES,
                lossless: false,
                ops: false,
                ..Plan::default()
            };
            let mut storage = Storage::default();
            let session = Session::load(&plan, &mut storage)
                .and_then(|s| hide_backing_files(&s.tables()?, &host::mounts(), &plan.devices).map(|()| s));
            match session {
                Ok(session) => {
                    // The receiver waits, so this does not fail.
                    let _ = ready.send(Ok(()));
                    watch(session, &disks, &receiver)
                }
                Err(e) => {
                    let _ = ready.send(Err(e));
                    Ok(DiskActivity::default())
                }
            }
        });
        loaded
            .recv()
            .unwrap_or(Err(CaptureError::Bpf { doing: "loading them", why: "the watching thread died".into() }))?;
        Ok(Self { orders, thread })
    }

    /// Starts recording.
    pub fn begin(&self) {
        // Fails only if the thread has died, which `end` reports.
        let _ = self.orders.send(Order::Begin);
    }

    /// Waits until the disks are idle (at most 500 ms: others may use them) and returns what they did, in ns since `t0_ns`. What was issued
    /// before `t0_ns` is left out and counted. Bios have no file, because inode numbers of a replay differ from those
    /// of the original.
    pub fn end(self, t0_ns: i64) -> Result<DiskActivity, CaptureError> {
        let _ = self.orders.send(Order::End(t0_ns));
        let died = || CaptureError::Bpf { doing: "watching disks", why: "the watching thread died".into() };
        self.thread.join().map_err(|_| died())?
    }
}

fn watch(mut session: Session<'_>, disks: &[i64], orders: &Receiver<Order>) -> Result<DiskActivity, CaptureError> {
    let mut rows = Rows::default();
    loop {
        match orders.recv_timeout(session.tick) {
            Ok(Order::Begin) => session.activate(),
            Ok(Order::End(t0_ns)) => {
                // The replay's file systems have been synced.
                let deadline = Instant::now() + FOR_IDLE;
                // Everything that ended before this time has been taken.
                let mut known_to = host::monotonic_ns();
                rows.last_ns = rows.last_ns.max(known_to);
                while Instant::now() < deadline
                    && (known_to - rows.last_ns < QUIET.as_nanos() as i64
                        || disks.iter().any(|d| host::in_flight(*d) != 0))
                {
                    known_to = host::monotonic_ns();
                    rows.drain(&session);
                    std::thread::sleep(SHORTEST_TICK);
                }
                session.end();
                std::thread::sleep(SHORTEST_TICK);
                rows.drain(&session);
                return rows.seen(&session, disks, t0_ns);
            }
            Err(RecvTimeoutError::Timeout) => rows.drain(&session),
            Err(RecvTimeoutError::Disconnected) => return Ok(DiskActivity::default()),
        }
    }
}

/// Rows with monotonic times, because the start is known only at the end.
#[derive(Default)]
struct Rows {
    block: Vec<Block>,
    bio: Vec<Bio>,
    blocks: Blocks,
    last_ns: i64,
}

impl Rows {
    fn drain(&mut self, session: &Session<'_>) {
        loop {
            let pass = session.drain(Vec::new());
            let mut bytes = &pass.bytes[..];
            while let Some(hdr) = wire::header(bytes) {
                self.last_ns = self.last_ns.max(hdr.end_ns as i64);
                let (rq, bio) = wire::block(bytes).unwrap_or_default();
                self.block.extend(rq.map(|rec| self.blocks.request(&rec, 0)));
                self.bio.extend(bio.map(|rec| {
                    let told = classify(&rec, &mut self.blocks.layouts);
                    self.blocks.bio(&rec, told, None, 0)
                }));
                bytes = &bytes[hdr.len_bytes as usize..];
            }
            if !pass.more {
                return;
            }
        }
    }

    fn seen(self, session: &Session<'_>, disks: &[i64], t0_ns: i64) -> Result<DiskActivity, CaptureError> {
        let Self { mut block, mut bio, .. } = self;
        let (all_block, all_bio) = (block.len() as i64, bio.len() as i64);
        block.retain(|b| b.issue_ns >= t0_ns);
        for b in &mut block {
            b.issue_ns -= t0_ns;
            b.queue_ns = b.queue_ns.map(|t| t - t0_ns);
            b.complete_ns = b.complete_ns.map(|t| t - t0_ns);
        }
        let kept: HashSet<i64> = block.iter().map(|b| b.rq_id).collect();
        bio.retain(|b| b.rq_id.map_or(b.queue_ns >= t0_ns, |rq| kept.contains(&rq)));
        for b in &mut bio {
            b.queue_ns -= t0_ns;
            b.complete_ns = b.complete_ns.map(|t| t - t0_ns);
        }
        let ledgers = session.ledgers()?;
        let books = Books(&ledgers);
        let mut seen = DiskActivity {
            devices: disks.iter().map(|d| host::device(*d)).collect(),
            probes: session.probes(),
            ..DiskActivity::default()
        };
        let early = "requests and bios before the first operation";
        let passed = "requests and bios a watched loop device passed to its backing file";
        for (name, class, all, written, (own, backing)) in [
            ("block", rec_class::CLASS_BLOCK, all_block, block.len() as i64, books.hidden(|l| l.hidden_rq)),
            ("bio", rec_class::CLASS_BIO, all_bio, bio.len() as i64, books.hidden(|l| l.hidden_bio)),
        ] {
            let (met, lost) = books.class(class);
            let hidden = own + backing;
            let filtered = hidden + all - written;
            seen.ledger.insert(name.into(), Ledger { seen: met + hidden, written, lost, filtered });
            for (why, n) in [(early, all - written), (passed, hidden)] {
                if n != 0 {
                    *seen.left_out.entry(why.into()).or_default() += n;
                }
            }
        }
        (seen.block, seen.bio) = (block, bio);
        Ok(seen)
    }
}
