//! Reads a reel for a replay.
//!
//! In: the tables of a reel. Out: operations as [`input::Rec`] in the order of their return, streamed, with paths as
//! bytes.
//!
//! * [`call`]: the calls that a replay knows; [`submission`]: io_uring and AIO requests;
//! * `feed` reads segments in time order, [`input`] decodes rows, [`texts`] stores their paths;
//! * [`footprint`] scales positions and lengths; `roots` tells where replayed files are;
//!   `residence` finds the pages cached at the start; [`recorder`] has the
//!   overhead of the recording.
//!
//! May use: `base`.

pub(crate) mod bind;
pub mod call;
pub(crate) mod equivalents;
pub(crate) mod feed;
pub mod footprint;
pub(crate) mod in_flight;
pub mod input;
pub(crate) mod record_kind;
pub mod recorder;
pub(crate) mod residence;
pub(crate) mod roots;
pub(crate) mod skip;
pub(crate) mod slice;
pub mod submission;
pub mod texts;
pub mod user_ids;
