//! Why one step waits for another.

use std::fmt;

use serde::Serialize;

use crate::plan::dependencies::Stamp;

/// What a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The step that must have returned.
    pub on: Stamp,
    /// Why.
    pub kind: EdgeKind,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)+) => {
        /// Kinds of constraints, each of which can be switched off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "lowercase")]
        #[repr(u8)]
        pub enum EdgeKind {
            $($(#[$doc])* $variant,)+
        }

        impl EdgeKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// As on the command line and in reports.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }
    };
}

kinds! {
    /// A name is made before it is used, and used before it goes.
    Name = "name",
    /// Likewise where a call found nothing: it looks before the name is made, or after it went.
    Absent = "absent",
    /// A directory that is made, renamed or removed, and what is below it.
    Tree = "tree",
    /// Which names are in a directory: listing it, removing it.
    Entries = "entries",
    /// A file's size.
    Size = "size",
    /// The position of an open file description.
    Position = "position",
    /// Descriptors of a table that threads share, and their mappings.
    Descriptor = "descriptor",
    /// Working directory and umask of threads that share them.
    Directory = "directory",
    /// A file's mode, owner and extended attributes.
    Attribute = "attribute",
    /// Locks on a file: one that is dropped, or refused, and the next that is asked for.
    Lock = "lock",
    /// A thread's end before what its parent did next.
    Life = "life",
    /// A read from a pipe or socket and the writes whose bytes it took.
    Pipe = "pipe",
    /// Whatever had returned before another call was entered.
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
    /// None.
    pub const NONE: Self = Self(0);

    /// These.
    pub fn of(kinds: &[EdgeKind]) -> Self {
        Self(kinds.iter().fold(0, |set, k| set | 1 << *k as u8))
    }

    /// Whether it is among them.
    pub fn has(self, kind: EdgeKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// These but for `others`.
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

/// Which constraints are kept beside each thread's program order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OrderMode {
    /// All that names, files, open file descriptions and descriptors demand.
    #[default]
    Resource,
    /// Only descriptors, locks, ends of threads, and that a name is made before it is used.
    Thread,
    /// What `Resource` keeps, and that whatever had returned before a call was entered has returned before it.
    Global,
    /// Nothing: each thread by itself.
    None,
}

impl OrderMode {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resource => "resource",
            Self::Thread => "thread",
            Self::Global => "global",
            Self::None => "none",
        }
    }

    /// The kinds of edges it keeps.
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
