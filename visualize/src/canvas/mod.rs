//! Drawing without reels: SVG, PNG, text, colours and pixel grids.
//!
//! In: shapes, numbers and rectangles of cells. Out: an SVG document, PNG bytes, counts per cell.
//! May use: nothing else of this crate.
//!
//! * [`svg`] writes elements, [`render`] turns SVG into PNG, [`font`] measures the built-in typeface;
//! * [`color`] mixes colours, [`theme`] names them by meaning, [`scale`] chooses ticks and formats numbers;
//! * [`raster`] counts how many events touch each cell of a grid.

pub mod color;
pub mod font;
pub mod raster;
pub mod render;
pub mod scale;
pub mod svg;
pub mod theme;
