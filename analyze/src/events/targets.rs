//! Where bytes of calls go to and come from: files, pipes, devices, or nowhere.

use ioreel_traces::{
    Reel, Text,
    rows::File,
    table::{Cell, Column, Row, column},
};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::{Result, bad_column};

/// What a file is for bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A file of a file system. Also a file of which nothing is known.
    #[default]
    Files,
    /// A pipe or a socket: bytes go to a program.
    Pipes,
    /// A character or block device, such as a terminal.
    Devices,
    /// `/dev/null`, `/dev/zero`, `/dev/full`, `/dev/random`, `/dev/urandom`: what is written vanishes, what is read was
    /// made up.
    Nowhere,
}

impl Target {
    /// All of them, files first.
    pub const ALL: [Self; 4] = [Self::Files, Self::Pipes, Self::Devices, Self::Nowhere];

    /// Its name in JSON and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Pipes => "pipes",
            Self::Devices => "devices",
            Self::Nowhere => "nowhere",
        }
    }

    /// Of a file with this `files.kind`. Which device it is says [`leads_nowhere`].
    fn of_kind(kind: &str) -> Self {
        match kind {
            "fifo" | "socket" => Self::Pipes,
            "char" | "block" => Self::Devices,
            _ => Self::Files,
        }
    }
}

/// Whether the character device at this path has nothing behind it. A change of root leaves the end of a path.
fn leads_nowhere(path: &str) -> bool {
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"].iter().any(|end| path.ends_with(end))
}

/// The targets of all files that are not files of a file system. Memory: one entry for each of these.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    others: FxHashMap<i64, Target>,
}

/// Maximum number of entries: 100 MB. Only a made-up reel has so many; further ones count as files.
const MOST: usize = 4_000_000;

impl Targets {
    /// Reads the table `files`; paths only if there are devices.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn of(reel: &Reel) -> Result<Self> {
        let mut targets = Self::default();
        let bad = |why| bad_column(File::TABLE)(why);
        for batch in reel.batches::<File>(&["file", "kind"]) {
            let batch = batch?;
            let file = column::<i64>(&batch, "file").map_err(bad)?;
            let kind = column::<Text>(&batch, "kind").map_err(bad)?;
            let Column::Text(kind, kinds) = &kind else { return Err(bad("kind is no text".into())) };
            let known: Vec<Target> =
                kinds.iter().map(|k| k.as_ref().map_or(Target::Files, |k| Target::of_kind(k))).collect();
            if known.iter().all(|t| *t == Target::Files) {
                continue;
            }
            for i in 0..batch.num_rows() {
                let target = kind.key(i).and_then(|k| known.get(k).copied()).unwrap_or_default();
                if target != Target::Files && targets.others.len() < MOST {
                    targets.others.insert(<i64 as Cell>::get(&file, i), target);
                }
            }
        }
        if targets.others.values().any(|t| *t == Target::Devices) {
            targets.find_nowhere(reel)?;
        }
        Ok(targets)
    }

    fn find_nowhere(&mut self, reel: &Reel) -> Result<()> {
        let bad = |why| bad_column(File::TABLE)(why);
        for batch in reel.batches::<File>(&["file", "path"]) {
            let batch = batch?;
            let file = column::<i64>(&batch, "file").map_err(bad)?;
            let path = column::<Option<Text>>(&batch, "path").map_err(bad)?;
            for i in 0..batch.num_rows() {
                if let Some(target) = self.others.get_mut(&<i64 as Cell>::get(&file, i))
                    && *target == Target::Devices
                    && <Option<Text> as Cell>::get(&path, i).is_some_and(|p| leads_nowhere(&p))
                {
                    *target = Target::Nowhere;
                }
            }
        }
        Ok(())
    }

    /// The target of a file; of no file, that of a file of a file system.
    pub fn of_file(&self, file: Option<i64>) -> Target {
        file.and_then(|f| self.others.get(&f).copied()).unwrap_or_default()
    }
}

/// Bytes by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Read.
    pub read_bytes: u64,
    /// Written.
    pub write_bytes: u64,
}

impl Bytes {
    /// Both directions.
    pub fn sum(self) -> u64 {
        self.read_bytes.saturating_add(self.write_bytes)
    }
}

/// Bytes that calls moved, by target and direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Of files.
    pub files: Bytes,
    /// Of pipes and sockets.
    pub pipes: Bytes,
    /// Of devices.
    pub devices: Bytes,
    /// Of devices with nothing behind them.
    pub nowhere: Bytes,
}

impl Moved {
    /// The bytes of one target.
    pub fn of(&self, target: Target) -> Bytes {
        match target {
            Target::Files => self.files,
            Target::Pipes => self.pipes,
            Target::Devices => self.devices,
            Target::Nowhere => self.nowhere,
        }
    }

    /// Adds bytes read from a target, and bytes written to one.
    pub fn add_bytes(&mut self, (from, read): (Target, u64), (to, written): (Target, u64)) {
        let from = self.at(from);
        from.read_bytes = from.read_bytes.saturating_add(read);
        let to = self.at(to);
        to.write_bytes = to.write_bytes.saturating_add(written);
    }

    /// Adds other sums.
    pub fn add(&mut self, other: &Self) {
        for target in Target::ALL {
            let of = other.of(target);
            self.add_bytes((target, of.read_bytes), (target, of.write_bytes));
        }
    }

    fn at(&mut self, target: Target) -> &mut Bytes {
        match target {
            Target::Files => &mut self.files,
            Target::Pipes => &mut self.pipes,
            Target::Devices => &mut self.devices,
            Target::Nowhere => &mut self.nowhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_with_nothing_behind_them_are_told_by_their_paths() {
        let paths = ["/dev/null", "/srv/jail/dev/zero", "/dev/tty", "/dev/sda", "null"];
        assert_eq!(paths.map(leads_nowhere), [true, true, false, false, false]);
        let kinds = ["regular", "directory", "fifo", "socket", "char", "block", "new"].map(Target::of_kind);
        use Target::{Devices, Files, Pipes};
        assert_eq!(kinds, [Files, Files, Pipes, Pipes, Devices, Devices, Files]);
    }
}
