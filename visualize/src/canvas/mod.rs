pub mod color;
pub mod font;
pub mod raster;
pub mod render;
pub mod scale;
pub mod svg;
pub mod theme;
