//! Descriptors that change hands: by message (SCM_RIGHTS), or taken out of another process (`pidfd_getfd`).
//!
//! The sender of a descriptor may close it before it is received. Therefore an open file description that others receive
//! is handed in right after it is opened. The model keeps it open until the last receipt, as the kernel does while it is
//! in a message.

use std::collections::HashMap;

use crate::{Skip, model::processes::Slot, plan::dependencies::Stamp};

/// An open file description that others receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Its index in the model.
    pub(crate) ofd: u32,
    /// Why it is not open in the replay.
    pub(crate) skip: Option<Skip>,
    /// Where it is handed in, and the step that does.
    pub(crate) place: Option<(u32, Stamp)>,
    /// Receipts to come.
    pub(crate) left: u32,
}

/// A descriptor to hand in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToHandIn {
    pub(crate) task: usize,
    /// Id of the open file description in the reel.
    pub(crate) recorded: i64,
    pub(crate) slot: Slot,
}

/// What the planner knows about descriptors that change hands.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// By the reel's id of the open file description.
    pub(crate) sent: HashMap<i64, Sent>,
    /// Opened by the current operation.
    pub(crate) opened: Vec<ToHandIn>,
    /// Number of receipts by place.
    pub(crate) receipts: Vec<u32>,
    /// Number of receipts that are replayed.
    pub(crate) received: i64,
}
