//! Pictures of reels.
//!
//! One way to a picture: [`survey`] reads each reel once to learn what there is (devices, address range,
//! end), [`layers`] reads it again into grids and series of the picture's size, [`picture`] lays panels out
//! as SVG, [`render`] turns the same SVG into a PNG. Size and memory are bounded by pixels, never by events;
//! the fonts are built in and nothing depends on the machine, so the same reels give the same bytes.

pub mod bands;
mod caption;
pub mod color;
pub mod facts;
pub mod font;
pub mod layers;
mod marks;
pub mod movie;
mod painter;
pub mod panel;
pub mod picture;
pub mod raster;
mod rates;
pub mod render;
pub mod scale;
pub mod survey;
pub mod svg;

pub use picture::{Picture, PlotOptions, plot};

use ioreel_traces::ReelError;

/// What can go wrong with a picture.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// A reel cannot be read.
    #[error(transparent)]
    Reel(#[from] ReelError),
    /// The device asked for has no requests in the reel.
    #[error("{reel}: no requests of device {asked}; it has: {present}")]
    UnknownDevice {
        /// The reel's name.
        reel: String,
        /// The device as asked for.
        asked: String,
        /// Those there are.
        present: String,
    },
    /// The window holds no time.
    #[error("the window from {from_s} s to {to_s} s is empty; --from must be before --to and before the reel's end")]
    EmptyWindow {
        /// Its start, s.
        from_s: f64,
        /// Its end, s.
        to_s: f64,
    },
    /// The picture would be unreasonably small or large.
    #[error("a picture {width} pixels wide is not possible for {columns} reels: {least} to {most} are")]
    Width {
        /// As asked for.
        width: u32,
        /// Reels side by side.
        columns: usize,
        /// Least possible.
        least: u32,
        /// Most possible.
        most: u32,
    },
    /// There is nothing to make a movie of.
    #[error(
        "{reel}: has no requests of a block device, and a movie shows the disk; `ioreel plot -o x.png` draws its operations"
    )]
    NothingToShow {
        /// The reel's name.
        reel: String,
    },
    /// The movie could not be written.
    #[error("{path}: writing the movie: {why}")]
    Movie {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        why: String,
    },
    /// The rasteriser did not accept the picture.
    #[error("cannot render the picture: {why}; the SVG output does without the rasteriser")]
    Render {
        /// What it said.
        why: String,
    },
}

/// Shorthand for results of this crate.
pub type Result<T, E = PlotError> = std::result::Result<T, E>;
