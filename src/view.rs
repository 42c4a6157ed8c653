//! `ioreel view`: browse a reel in the terminal.
//!
//! A separate thread reads the reel, so that the screen appears at once and keys are answered during the read.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
    time::Duration,
};

use anyhow::Context;
use ioreel_traces::Reel;
use ioreel_visualize::{
    ColorBy,
    model::survey::Choice,
    terminal::{Sketch, SketchOptions, sketch, window_words},
};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Rect, Size},
    style::{Color, Modifier, Style},
    text::Line,
};

use crate::{
    output::one_line,
    plot::{Colors, Theme, colors},
};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// Reel to read
    #[arg(value_name = "REEL")]
    reel: PathBuf,
    /// Block device to show [default: the one below the files that the workload used most]
    #[arg(long, value_name = "NAME|MAJ:MIN")]
    device: Option<String>,
    /// What colours stand for at the start
    #[arg(long, value_name = "WHAT", default_value = "op")]
    color_by: Colors,
    /// Colour scheme of the terminal
    #[arg(long, value_name = "NAME", default_value = "dark")]
    theme: Theme,
}

const NOTES: &str = "\
Keys: left, right pan; + and - zoom; 0 shows the whole reel; c cycles the colours (operation, process, class, file,
latency); q, Esc or Ctrl-C quits.";

/// Longest wait before a key is answered.
const PATIENCE: Duration = Duration::from_millis(30);
/// Colours in the order of the key `c`.
const CYCLE: [ColorBy; 5] = [ColorBy::Op, ColorBy::Process, ColorBy::Class, ColorBy::File, ColorBy::Latency];

/// Runs `ioreel view`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reel = Reel::open(&args.reel)?;
    anyhow::ensure!(io::stdout().is_terminal(), "standard output is not a terminal; use `ioreel plot --terminal`");
    let mut state = State {
        choice: Choice { device: args.device, from_ns: None, to_ns: None },
        dark: args.theme == Theme::Dark,
        color_by: args.color_by.into(),
        whole: None,
        quit: false,
    };
    let mut terminal = ratatui::try_init().context("showing the reel")?;
    let shown = show(&mut terminal, &reel, &mut state);
    ratatui::try_restore().context("restoring the terminal")?;
    shown?;
    Ok(ExitCode::SUCCESS)
}

/// State set by keys.
#[derive(Clone, Debug)]
struct State {
    choice: Choice,
    dark: bool,
    color_by: ColorBy,
    /// Time span of the whole reel, ns, once it is known.
    whole: Option<(i64, i64)>,
    quit: bool,
}

/// A sketch read in the background, or the error.
type Made = Result<Sketch, String>;

impl State {
    /// The time window shown, ns.
    fn window(&self) -> Option<(i64, i64)> {
        let whole = self.whole?;
        Some((self.choice.from_ns.unwrap_or(whole.0), self.choice.to_ns.unwrap_or(whole.1)))
    }

    /// Shows `[from, to]`, clamped to the reel and at least 1 us long.
    fn go(&mut self, from: i64, to: i64) {
        let Some(whole) = self.whole else { return };
        let span = (to - from).max(1_000).min(whole.1 - whole.0);
        let from = from.clamp(whole.0, whole.1 - span);
        let all = from <= whole.0 && from + span >= whole.1;
        (self.choice.from_ns, self.choice.to_ns) = if all { (None, None) } else { (Some(from), Some(from + span)) };
    }

    /// Handles a key; returns whether the sketch has to be made again.
    fn key(&mut self, code: KeyCode, ctrl: bool) -> bool {
        let before = (self.choice.from_ns, self.choice.to_ns, self.color_by);
        let (from, to) = self.window().unwrap_or((0, 0));
        let (span, middle) = (to - from, from + (to - from) / 2);
        match code {
            KeyCode::Char('c') if ctrl => self.quit = true,
            KeyCode::Char('q') | KeyCode::Esc => self.quit = true,
            KeyCode::Left => self.go(from - span / 4, to - span / 4),
            KeyCode::Right => self.go(from + span / 4, to + span / 4),
            KeyCode::Char('+' | '=') | KeyCode::Up => self.go(middle - span / 4, middle + span / 4),
            KeyCode::Char('-') | KeyCode::Down => self.go(middle - span, middle + span),
            KeyCode::Char('0') | KeyCode::Home => (self.choice.from_ns, self.choice.to_ns) = (None, None),
            KeyCode::Char('c') => {
                let at = CYCLE.iter().position(|c| *c == self.color_by).unwrap_or(0);
                self.color_by = CYCLE[(at + 1) % CYCLE.len()];
            }
            _ => {}
        }
        before != (self.choice.from_ns, self.choice.to_ns, self.color_by)
    }

    /// Makes a sketch in the background, one line shorter than the screen: the last line shows the keys.
    fn read(&self, reel: &Reel, size: Size) -> Receiver<Made> {
        let options = SketchOptions {
            choice: self.choice.clone(),
            dark: self.dark,
            color_by: self.color_by,
            columns: size.width,
            rows: size.height.saturating_sub(1),
        };
        let (reel, (sender, receiver)) = (reel.clone(), channel());
        thread::spawn(move || {
            // The receiver is gone if a later key asked for another sketch.
            let _ = sender.send(sketch(&reel, &options).map_err(|e| e.to_string()));
        });
        receiver
    }
}

fn show(terminal: &mut DefaultTerminal, reel: &Reel, state: &mut State) -> io::Result<()> {
    let mut reading = Some(state.read(reel, terminal.size()?));
    let mut shown: Option<Made> = None;
    // A key or a resize during a read: the sketch is made again once the read has ended.
    let mut again = false;
    loop {
        terminal.draw(|frame| draw(frame, shown.as_ref(), state, reading.is_some()))?;
        if event::poll(PATIENCE)? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    again |= state.key(key.code, key.modifiers.contains(KeyModifiers::CONTROL));
                }
                Event::Resize(..) => again = true,
                _ => {}
            }
        }
        if state.quit {
            return Ok(());
        }
        if again && reading.is_none() {
            again = false;
            reading = Some(state.read(reel, terminal.size()?));
        }
        match reading.as_ref().map(Receiver::try_recv) {
            Some(Ok(made)) => {
                if let (Ok(sketch), None) = (&made, state.whole) {
                    state.whole = Some(sketch.window);
                }
                (shown, reading) = (Some(made), None);
            }
            Some(Err(TryRecvError::Disconnected)) => reading = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
    }
}

fn color(c: [u8; 3]) -> Color {
    Color::Rgb(c[0], c[1], c[2])
}

fn draw(frame: &mut Frame<'_>, shown: Option<&Made>, state: &State, reading: bool) {
    let area = frame.area();
    let plain = colors() == 0;
    match shown {
        Some(Ok(sketch)) => {
            let buffer = frame.buffer_mut();
            for (y, line) in sketch.lines.iter().enumerate().take(area.height.saturating_sub(1).into()) {
                for (x, glyph) in line.iter().enumerate().take(area.width.into()) {
                    let Some(cell) = buffer.cell_mut((x as u16, y as u16)) else { continue };
                    cell.set_char(if plain && glyph.bg.is_some() { '█' } else { glyph.ch });
                    if !plain {
                        cell.set_fg(glyph.fg.map_or(Color::Reset, color));
                        cell.set_bg(glyph.bg.map_or(Color::Reset, color));
                    }
                }
            }
        }
        Some(Err(why)) => frame.render_widget(Line::raw(one_line(why)), area),
        None => {}
    }
    let foot = Rect { y: area.height.saturating_sub(1), height: 1.min(area.height), ..area };
    let window = state.window().map_or(String::new(), window_words);
    let doing = if reading { "reading ...  " } else { "" };
    let text = format!("{doing}{window}   left right pan  + - zoom  0 all  c colours  q quit");
    frame.render_widget(Line::styled(text, Style::new().add_modifier(Modifier::DIM)), foot);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let choice = Choice::default();
        State { choice, dark: true, color_by: ColorBy::Op, whole: Some((0, 1_000_000)), quit: false }
    }

    #[test]
    fn keys_move_the_window_within_the_reel() {
        let mut s = state();
        assert!(s.key(KeyCode::Char('+'), false));
        assert_eq!(s.window(), Some((250_000, 750_000)));
        for _ in 0..3 {
            s.key(KeyCode::Left, false);
        }
        assert_eq!(s.window(), Some((0, 500_000)));
        assert!(!s.key(KeyCode::Left, false), "there is nothing before the start");
        for _ in 0..40 {
            s.key(KeyCode::Char('+'), false);
        }
        assert!(s.window().is_some_and(|(a, b)| b - a == 1_000));
        for _ in 0..40 {
            s.key(KeyCode::Char('-'), false);
        }
        assert_eq!((s.choice.from_ns, s.choice.to_ns), (None, None));
    }

    #[test]
    fn colours_go_round_and_q_ends() {
        let mut s = state();
        for _ in 0..CYCLE.len() {
            assert!(s.key(KeyCode::Char('c'), false));
        }
        assert_eq!(s.color_by, ColorBy::Op);
        s.key(KeyCode::Char('q'), false);
        assert!(s.quit);
    }

    #[test]
    fn keys_before_the_reel_is_known_do_nothing() {
        let mut s = State { whole: None, ..state() };
        assert!(!s.key(KeyCode::Left, false) && !s.key(KeyCode::Char('+'), false));
    }
}
