//! The reel as a replay reads it.
//!
//! In: the tables of a reel. Out: operations as [`input::Rec`], in the order of their return, with paths as bytes and
//! few of them in memory at a time.
//!
//! * [`call`]: the calls a replay knows; [`submission`]: requests to io_uring and of Linux AIO;
//! * `feed` reads segments in order, [`input`] decodes rows, [`texts`] stores their paths;
//! * [`footprint`] scales positions and lengths; `residence` finds the pages cached at the start; [`recorder`]
//!   is what recording cost.
//!
//! May use: `base`.

pub mod call;
pub(crate) mod feed;
pub mod footprint;
pub(crate) mod in_flight;
pub mod input;
pub(crate) mod record_kind;
pub mod recorder;
pub(crate) mod residence;
pub(crate) mod skip;
pub(crate) mod slice;
pub mod submission;
pub mod texts;
