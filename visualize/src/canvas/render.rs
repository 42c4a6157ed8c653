//! Converts SVG to PNG with the built-in font.

use std::sync::{Arc, OnceLock};

use resvg::{
    tiny_skia::{Pixmap, Transform},
    usvg::{ImageRendering, Options, Tree, fontdb},
};

use crate::{PlotError, Result, canvas::font};

/// The built-in fonts, loaded once, because a movie draws its clock in every frame.
fn options() -> Options<'static> {
    static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let fonts = FONTS.get_or_init(|| {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(font::REGULAR.to_vec());
        fonts.load_font_data(font::BOLD.to_vec());
        fonts.set_sans_serif_family(font::FAMILY);
        Arc::new(fonts)
    });
    Options {
        fontdb: Arc::clone(fonts),
        font_family: font::FAMILY.into(),
        image_rendering: ImageRendering::OptimizeSpeed,
        ..Options::default()
    }
}

fn pixels(svg: &str, width: u32, height: u32) -> Result<Pixmap> {
    let failed = |why: String| PlotError::Render { why };
    let tree = Tree::from_str(svg, &options()).map_err(|e| failed(e.to_string()))?;
    let mut map =
        Pixmap::new(width, height).ok_or_else(|| failed(format!("{width} x {height} pixels are too many")))?;
    resvg::render(&tree, Transform::default(), &mut map.as_mut());
    Ok(map)
}

/// The picture as PNG, with one pixel per SVG unit.
pub fn png(svg: &str, width: u32, height: u32) -> Result<Vec<u8>> {
    pixels(svg, width, height)?.encode_png().map_err(|e| PlotError::Render { why: e.to_string() })
}

/// A raster as PNG. Its pixels must be opaque or fully transparent; then tiny-skia's premultiplied colours are valid
/// for PNG. Compressed fast, because the picture decompresses it again.
pub(crate) fn encode(map: &Pixmap) -> Result<Vec<u8>> {
    let failed = |e: png::EncodingError| PlotError::Render { why: e.to_string() };
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, map.width(), map.height());
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(map.data()).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(out)
}

/// The picture as RGB, row by row. It must be opaque.
pub(crate) fn rgb(svg: &str, width: u32, height: u32) -> Result<Vec<u8>> {
    Ok(pixels(svg, width, height)?.pixels().iter().flat_map(|p| [p.red(), p.green(), p.blue()]).collect())
}
