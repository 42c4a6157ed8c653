//! Pictures of reels.
//!
//! A reel is read twice: [`model::survey`] finds its devices, address ranges and end; `panels::gather` then feeds all
//! panels in one pass. Memory and output size depend on the number of pixels, not events. The fonts are built in, so
//! the same reels give the same bytes on every machine. Stages, each of which uses only those named:
//!
//! * [`canvas`]: SVG, PNG, text, colours and pixel grids. Uses nothing else;
//! * [`model`]: survey, axes, palettes and the shapes that panels fill. Uses `canvas`;
//! * `panels`: one file per panel, and the pass that feeds them. Uses `canvas`, `model`;
//! * `draw`: draws shapes and the page around them. Uses `canvas`, `model`, `panels`;
//! * [`plot`]: a picture of one or more reels. Uses all of these;
//! * [`movie`]: a movie of the disk. Uses `canvas`, `model`; [`terminal`]: a picture in characters. Uses all but
//!   `plot`;
//! * [`report`]: the interactive HTML page. Uses `canvas`, `model`; [`serve`]: that page over HTTP. Uses `report`.

pub mod canvas;
mod draw;
pub mod model;
pub mod movie;
mod panels;
pub mod plot;
pub mod report;
pub mod serve;
pub mod terminal;

pub use draw::picture::{Arrange, Picture};
pub use model::{idle::SkipIdle, palette::ColorBy};
pub use panels::names as panel_names;
pub use plot::{PlotOptions, plot};
pub use report::{Finding, ReportOptions, report};

use ioreel_traces::{ReelError, suggest::unknown};

/// Why a picture failed.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// A reel cannot be read.
    #[error(transparent)]
    Reel(#[from] ReelError),
    /// The reel has no requests of the requested device.
    #[error("{reel}: no requests of device '{asked}'{hint}; devices with requests: {present}")]
    UnknownDevice {
        /// The reel's name.
        reel: String,
        /// The requested device.
        asked: String,
        /// A device with a similar name, as [`ioreel_traces::suggest::hint`] gives it.
        hint: String,
        /// The devices with requests.
        present: String,
    },
    /// The time window is empty.
    #[error("no time between {from_s} s and {to_s} s; --from must be before --to and before the end of the reel")]
    EmptyWindow {
        /// Its start, s.
        from_s: f64,
        /// Its end, s.
        to_s: f64,
    },
    /// There is no such panel.
    #[error("{}", unknown("panel", asked, present))]
    UnknownPanel {
        /// The name asked for.
        asked: String,
        /// All panels.
        present: Vec<&'static str>,
    },
    /// A difference needs two reels.
    #[error("--diff needs exactly two reels, {given} given; it draws the second minus the first")]
    NotTwo {
        /// Number of reels.
        given: usize,
    },
    /// The width is out of range.
    #[error("--width {width}: out of range for {columns} reels; use {least} to {most} pixels")]
    Width {
        /// The requested width.
        width: u32,
        /// Number of columns.
        columns: usize,
        /// Minimum width.
        least: u32,
        /// Maximum width.
        most: u32,
    },
    /// The reel has no data for a movie.
    #[error("{reel}: no requests of a block device, which a movie shows; `ioreel plot -o x.png` draws the operations")]
    NothingToShow {
        /// The reel's name.
        reel: String,
    },
    /// The movie could not be written.
    #[error("{path}: writing the movie: {why}")]
    Movie {
        /// The file.
        path: std::path::PathBuf,
        /// The cause.
        why: String,
    },
    /// The rasteriser failed.
    #[error("cannot render the picture: {why}; write an .svg instead")]
    Render {
        /// Its message.
        why: String,
    },
}

/// Shorthand for results of this crate.
pub type Result<T, E = PlotError> = std::result::Result<T, E>;
