pub(crate) mod contents;
pub(crate) mod ground_truth;
pub(crate) mod kernel;
pub(crate) mod mapped;
pub(crate) mod observer;
pub(crate) mod uring;
pub(crate) mod waits;
pub(crate) mod workload;
