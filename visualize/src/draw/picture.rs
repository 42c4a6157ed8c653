//! A finished picture, and the arrangement of several reels.

use crate::{
    Result,
    canvas::{render, svg::Svg},
};

/// Arrangement of several reels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrange {
    /// One column per reel.
    #[default]
    SideBySide,
    /// Over each other, in different colours.
    Overlay,
    /// The second minus the first (P18).
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
    /// The picture as SVG with embedded fonts.
    pub fn svg(&self) -> String {
        self.svg.document(self.width, self.height, true)
    }

    /// The picture as PNG.
    pub fn png(&self) -> Result<Vec<u8>> {
        render::png(&self.svg.document(self.width, self.height, false), self.width, self.height)
    }
}
