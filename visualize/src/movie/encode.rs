//! Writes frames to a file: H.264 with ffmpeg, or animated PNG.

use std::{
    io::{BufWriter, Read, Write},
    os::fd::AsFd,
    path::Path,
    process::{Child, Command, Stdio},
};

use ioreel_traces::private::Output;

use crate::{PlotError, Result};

/// Format of a movie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// H.264 in an MP4 file, written by ffmpeg.
    Mp4,
    /// Animated PNG, which browsers play.
    Apng,
}

impl Format {
    /// The format that a file of this name has.
    ///
    /// # Errors
    /// For `.mp4` if there is no ffmpeg.
    pub fn for_output(output: &Path) -> Result<Self> {
        if !output.extension().is_some_and(|e| e.eq_ignore_ascii_case("mp4")) {
            return Ok(Self::Apng);
        }
        let program = Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        match program {
            Ok(status) if status.success() => Ok(Self::Mp4),
            _ => Err(failed(output, "an .mp4 needs ffmpeg, which was not found; install it, or name an .apng")),
        }
    }

    /// Frames per second. An animated PNG is lossless, and half as many frames halve its size.
    pub(super) fn frames_per_s(self) -> u32 {
        match self {
            Self::Mp4 => 25,
            Self::Apng => 12,
        }
    }
}

/// Writes a movie.
pub(super) enum Encoder {
    Mp4 { ffmpeg: Child, output: Output },
    Apng { writer: png::Writer<BufWriter<std::fs::File>>, output: Output },
}

fn failed(path: &Path, why: impl std::fmt::Display) -> PlotError {
    PlotError::Movie { path: path.into(), why: why.to_string() }
}

impl Encoder {
    /// Starts a file of `frames` RGB frames.
    pub(super) fn start(format: Format, path: &Path, width: u32, height: u32, frames: u32) -> Result<Self> {
        let rate = format.frames_per_s();
        let output = Output::replace(path).map_err(|e| failed(path, e))?;
        let file = output.file().as_fd().try_clone_to_owned().map_err(|e| failed(path, e))?;
        match format {
            Format::Mp4 => {
                let ffmpeg = Command::new("ffmpeg")
                    .args(["-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24"])
                    .args(["-s", &format!("{width}x{height}"), "-r", &rate.to_string(), "-i", "-"])
                    .args(["-an", "-c:v", "libx264", "-preset", "superfast", "-tune", "animation", "-crf", "20"])
                    .args(["-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4"])
                    // The open file, however its name may have changed; ffmpeg opens it a second time to move its index.
                    .arg("file:/proc/self/fd/1")
                    .stdin(Stdio::piped())
                    .stdout(file)
                    .stderr(Stdio::piped())
                    .spawn()
                    .map_err(|e| failed(path, format_args!("starting ffmpeg: {e}")))?;
                Ok(Self::Mp4 { ffmpeg, output })
            }
            Format::Apng => {
                let mut encoder = png::Encoder::new(BufWriter::new(file.into()), width, height);
                encoder.set_color(png::ColorType::Rgb);
                encoder.set_depth(png::BitDepth::Eight);
                encoder.set_compression(png::Compression::Fast);
                encoder.set_animated(frames, 0).map_err(|e| failed(path, e))?;
                encoder.set_frame_delay(1, rate as u16).map_err(|e| failed(path, e))?;
                let writer = encoder.write_header().map_err(|e| failed(path, e))?;
                Ok(Self::Apng { writer, output })
            }
        }
    }

    /// Writes the next frame, RGB row by row.
    pub(super) fn frame(&mut self, rgb: &[u8]) -> Result<()> {
        match self {
            Self::Mp4 { ffmpeg, output } => {
                let sent = ffmpeg.stdin.as_mut().map(|pipe| pipe.write_all(rgb));
                match sent {
                    Some(Ok(())) => Ok(()),
                    // ffmpeg has exited; its message says why.
                    _ => Err(failed(output.path(), last_words(ffmpeg))),
                }
            }
            Self::Apng { writer, output } => writer.write_image_data(rgb).map_err(|e| failed(output.path(), e)),
        }
    }

    /// Completes the file.
    pub(super) fn finish(self) -> Result<()> {
        let output = match self {
            Self::Mp4 { mut ffmpeg, output } => {
                drop(ffmpeg.stdin.take());
                let said = last_words(&mut ffmpeg);
                let status = ffmpeg.wait().map_err(|e| failed(output.path(), e))?;
                if !status.success() {
                    return Err(failed(output.path(), said));
                }
                output
            }
            Self::Apng { writer, output } => {
                writer.finish().map_err(|e| failed(output.path(), e))?;
                output
            }
        };
        let path = output.path().to_owned();
        output.keep().map_err(|e| failed(&path, e))
    }
}

/// The last message of ffmpeg, in one line.
fn last_words(ffmpeg: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = &mut ffmpeg.stderr {
        // Unreadable output is ignored.
        let _ = stderr.take(4096).read_to_string(&mut text);
    }
    let line = text.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("ffmpeg printed no message");
    format!("ffmpeg: {line}")
}
