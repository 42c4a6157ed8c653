pub(crate) mod block_replay;
pub(crate) mod cached;
pub(crate) mod corpus;
pub(crate) mod layout;
pub(crate) mod replays;
pub(crate) mod slices;
pub(crate) mod users;
pub(crate) mod written;
