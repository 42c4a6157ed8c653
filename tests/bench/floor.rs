//! What the recorder is measured against: observers that do as little as can be done.

use anyhow::{Context, Result};
use ioreel_bpf::empty::{Least, Observed, least_record, with_least, with_records};
use ioreel_traces::{
    Manifest, ReelWriter, Text, WriterOptions,
    manifest::Kind,
    rows::{Bio, Block, Op},
};

use crate::{Bench, session::remove};

/// An observer that does as little as can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    /// Its probes write nothing.
    Probes(Least),
    /// It writes a reel, in which each call, or bio, has its times and sizes, and nothing else: no file, no cause.
    Recorder,
}

/// All of them with their names, each doing more than the one before.
pub(crate) const FLOORS: [(&str, Floor); 3] = [
    ("probes that do nothing", Floor::Probes(Least::Empty)),
    ("probes that look at the clock", Floor::Probes(Least::Clock)),
    ("the least recorder", Floor::Recorder),
];

/// Runs `body` while this observer is at work.
pub(crate) fn beside<T: Send>(
    bench: &Bench,
    observed: Observed,
    floor: Floor,
    body: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let attaching = "attaching the least probes";
    match floor {
        Floor::Probes(least) => with_least(observed, least, body).context(attaching)?,
        Floor::Recorder => {
            let mut reel = Rows::create(bench, observed)?;
            let mut written = Ok(());
            let take = |record: &least_record| {
                if written.is_ok() {
                    written = reel.push(record);
                }
            };
            let (done, lost) = with_records(observed, take, body).context(attaching)?;
            written?;
            // What found no room has cost less than the rest.
            if lost > 0 {
                eprintln!("the least recorder lost {lost} records");
            }
            reel.close(bench)?;
            done
        }
    }
}

/// The least recorder's reel.
struct Rows {
    observed: Observed,
    writer: ReelWriter,
    manifest: Manifest,
    word: Text,
}

impl Rows {
    fn create(bench: &Bench, observed: Observed) -> Result<Self> {
        let path = bench.reels.path().join("least.reel");
        remove(&path)?;
        let manifest = Manifest::new(Kind::Synthetic, "bench");
        let writer = ReelWriter::create(&path, &manifest, WriterOptions::default())?;
        let word = Text::from(if observed == Observed::Calls { "call" } else { "read" });
        Ok(Self { observed, writer, manifest, word })
    }

    fn push(&mut self, record: &least_record) -> ioreel_traces::Result<()> {
        let (begin_ns, end_ns) = (record.begin_ns as i64, record.end_ns as i64);
        let word = || self.word.clone();
        if self.observed == Observed::Calls {
            return self.writer.ops.push(Op {
                op_id: -1,
                start_ns: begin_ns,
                dur_ns: end_ns - begin_ns,
                task_id: (record.key >> 6) as i64,
                op: word(),
                ret: Some(record.size),
                ..Op::default()
            });
        }
        let (sector, len_bytes) = (record.what as i64, record.size);
        let request = record.issue_ns != 0;
        if request {
            self.writer.block.push(Block {
                rq_id: -1,
                queue_ns: Some(begin_ns),
                issue_ns: record.issue_ns as i64,
                complete_ns: Some(end_ns),
                sector,
                len_bytes,
                op: word(),
                ..Block::default()
            })?;
        }
        let bio = Bio {
            bio_id: -1,
            queue_ns: begin_ns,
            complete_ns: Some(end_ns),
            sector,
            len_bytes,
            op: word(),
            ..Bio::default()
        };
        self.writer.bio.push(bio)
    }

    fn close(self, bench: &Bench) -> Result<()> {
        self.writer.close(self.manifest)?;
        remove(&bench.reels.path().join("least.reel"))
    }
}
