//! SVG to PNG, with the built-in typeface and no other.

use std::sync::Arc;

use resvg::{
    tiny_skia::{Pixmap, Transform},
    usvg::{ImageRendering, Options, Tree, fontdb},
};

use crate::{PlotError, Result, font};

/// The picture as PNG, one pixel per SVG unit.
pub fn png(svg: &str, width: u32, height: u32) -> Result<Vec<u8>> {
    let failed = |why: String| PlotError::Render { why };
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(font::REGULAR.to_vec());
    fonts.load_font_data(font::BOLD.to_vec());
    fonts.set_sans_serif_family(font::FAMILY);
    let options = Options {
        fontdb: Arc::new(fonts),
        font_family: font::FAMILY.into(),
        image_rendering: ImageRendering::OptimizeSpeed,
        ..Options::default()
    };
    let tree = Tree::from_str(svg, &options).map_err(|e| failed(e.to_string()))?;
    let mut map =
        Pixmap::new(width, height).ok_or_else(|| failed(format!("{width} x {height} pixels are too many")))?;
    resvg::render(&tree, Transform::default(), &mut map.as_mut());
    map.encode_png().map_err(|e| failed(e.to_string()))
}
