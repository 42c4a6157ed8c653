//! A finished picture, and how several reels share it.

use crate::{
    Result,
    canvas::{render, svg::Svg},
};

/// How several reels are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrange {
    /// Each in a column of its own.
    #[default]
    SideBySide,
    /// Over each other, each in a colour of its own.
    Overlay,
    /// The second less the first (P18).
    Difference,
}

/// A finished picture.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Width, px.
    pub width: u32,
    /// Height, px.
    pub height: u32,
    pub(crate) svg: Svg,
}

impl Picture {
    /// As an SVG document that carries its typeface.
    pub fn svg(&self) -> String {
        self.svg.document(self.width, self.height, true)
    }

    /// As PNG.
    pub fn png(&self) -> Result<Vec<u8>> {
        render::png(&self.svg.document(self.width, self.height, false), self.width, self.height)
    }
}
