//! Kinds of dependency edges, and the orders (`--order`) that keep them.

use std::fmt;

use serde::Serialize;

use crate::plan::dependencies::Stamp;

/// A dependency edge: a step waits for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The step that must have returned.
    pub on: Stamp,
    /// The reason.
    pub kind: EdgeKind,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)+) => {
        /// Reasons for which a step waits. Each can be switched off (`--without`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "lowercase")]
        #[repr(u8)]
        pub enum EdgeKind {
            $($(#[$doc])* $variant,)+
        }

        impl EdgeKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Name on the command line and in reports.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }
    };
}

kinds! {
    /// Use of a name waits for its creation, its removal for its uses.
    Name = "name",
    /// Likewise for calls that found nothing: they run before the creation or after the removal.
    Absent = "absent",
    /// Operations below a directory, against its creation, rename and removal.
    Tree = "tree",
    /// Listing and removing a directory, against creation and removal of entries.
    Entries = "entries",
    /// Size of a file.
    Size = "size",
    /// Position of an open file description.
    Position = "position",
    /// Descriptors of a table that threads share, and mappings of those threads.
    Descriptor = "descriptor",
    /// Working directory and umask that threads share.
    Directory = "directory",
    /// Mode, owner and extended attributes of a file.
    Attribute = "attribute",
    /// Locks: a request waits for the release, a release for the requests that were refused because of the lock.
    Lock = "lock",
    /// A parent waits for the end of its child.
    Life = "life",
    /// A read from a pipe or socket waits for the writes whose bytes it read.
    Pipe = "pipe",
    /// A call waits for all calls that had returned before it was entered.
    Global = "global",
}

impl fmt::Display for EdgeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Kinds(u16);

impl Kinds {
    /// No kinds.
    pub const NONE: Self = Self(0);

    /// These kinds.
    pub fn of(kinds: &[EdgeKind]) -> Self {
        Self(kinds.iter().fold(0, |set, k| set | 1 << *k as u8))
    }

    /// Whether it contains this kind.
    pub fn has(self, kind: EdgeKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// Without those in `others`.
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

/// `--order`: which recorded order between threads is enforced. Each thread always keeps its own order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OrderMode {
    /// Order of operations that use the same resource.
    #[default]
    Resource,
    /// Descriptors, locks, ends of threads, and creation of a name before its use.
    Thread,
    /// As `Resource`; also, a call waits for all calls that had returned before it was entered.
    Global,
    /// Nothing.
    None,
}

impl OrderMode {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resource => "resource",
            Self::Thread => "thread",
            Self::Global => "global",
            Self::None => "none",
        }
    }

    /// The kinds of edges that it keeps.
    pub fn kinds(self) -> Kinds {
        use EdgeKind::*;
        match self {
            Self::Resource => Kinds::of(EdgeKind::ALL).without(Kinds::of(&[Global])),
            Self::Thread => Kinds::of(&[Name, Tree, Descriptor, Lock, Life]),
            Self::Global => Kinds::of(EdgeKind::ALL),
            Self::None => Kinds::NONE,
        }
    }
}
