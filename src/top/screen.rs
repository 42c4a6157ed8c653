//! The screen of `ioreel top`.

use std::{
    io,
    time::{Duration, Instant},
};

use ioreel_capture::monitor::live::{self, Entry, Live, View};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::{Cell, Row, Table},
};

use super::{
    HEADS, Sort, cells,
    columns::{Shown, ending, fitting, sorted_by, width_of},
    shown, sorted,
};
use crate::{
    columns::count,
    units::{bytes, duration},
};

/// Longest wait before a key is answered.
const PATIENCE: Duration = Duration::from_millis(100);

/// The list shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Files,
    Processes,
    Devices,
}

impl List {
    const ALL: [Self; 3] = [Self::Files, Self::Processes, Self::Devices];

    fn title(self) -> &'static str {
        match self {
            Self::Files => "Files",
            Self::Processes => "Processes",
            Self::Devices => "Devices",
        }
    }

    fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }

    fn of(self, view: &View) -> &[Entry] {
        match self {
            Self::Files => &view.files,
            Self::Processes => &view.processes,
            Self::Devices => &view.devices,
        }
    }
}

/// State set by keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    list: List,
    sort: Sort,
    /// Show totals since the start instead of the last interval.
    total: bool,
    paused: bool,
    quit: bool,
}

impl State {
    fn key(&mut self, code: KeyCode, ctrl: bool) {
        match code {
            KeyCode::Char('c') if ctrl => self.quit = true,
            KeyCode::Char('q') | KeyCode::Esc => self.quit = true,
            KeyCode::Char('f') => self.list = List::Files,
            KeyCode::Char('p') => self.list = List::Processes,
            KeyCode::Char('d') => self.list = List::Devices,
            KeyCode::Tab => self.list = self.list.next(),
            KeyCode::Char('b') => self.sort = Sort::Bytes,
            KeyCode::Char('o') => self.sort = Sort::Ops,
            KeyCode::Char('t') => self.sort = Sort::Time,
            KeyCode::Char('m') => self.sort = Sort::Max,
            KeyCode::Char('a') => self.total = !self.total,
            KeyCode::Char(' ') => self.paused = !self.paused,
            _ => {}
        }
    }
}

/// What ended the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// A key.
    Key,
    /// The watched processes have exited, or the probes have stopped.
    Target,
    /// A signal.
    Signal(i32),
}

/// Shows `live` until it ends, or a key or a signal ends it. Restores the terminal, also after a panic.
pub(super) fn run(live: &mut Live, interval: Duration, sort: Sort) -> io::Result<Ended> {
    live::heed_signals();
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, live, interval, sort);
    let restored = ratatui::try_restore();
    let ended = shown?;
    // A closed terminal cannot be restored.
    if !matches!(ended, Ended::Signal(_)) {
        restored?;
    }
    Ok(ended)
}

fn show(terminal: &mut DefaultTerminal, live: &mut Live, interval: Duration, sort: Sort) -> io::Result<Ended> {
    let mut state = State { list: List::Files, sort, total: false, paused: false, quit: false };
    let mut view = live.look();
    let mut next = Instant::now() + interval;
    loop {
        let pressed = round(terminal, &view, &state, next);
        // After a hangup, drawing fails as well: report the signal instead.
        if let Some(signal) = live::signal() {
            return Ok(Ended::Signal(signal));
        }
        if let Some(key) = pressed? {
            state.key(key.code, key.modifiers.contains(KeyModifiers::CONTROL));
        }
        if state.quit {
            return Ok(Ended::Key);
        }
        if live.has_ended() {
            return Ok(Ended::Target);
        }
        if Instant::now() >= next {
            next = Instant::now() + interval;
            if !state.paused {
                view = live.look();
            }
        }
    }
}

/// Draws the screen and waits briefly for a key.
fn round(
    terminal: &mut DefaultTerminal,
    view: &View,
    state: &State,
    until: Instant,
) -> io::Result<Option<event::KeyEvent>> {
    terminal.draw(|frame| draw(frame, view, state))?;
    let wait = until.saturating_duration_since(Instant::now()).min(PATIENCE);
    let key = if event::poll(wait)? { event::read()? } else { return Ok(None) };
    Ok(match key {
        Event::Key(key) if key.kind == KeyEventKind::Press => Some(key),
        _ => None,
    })
}

/// Key help; the longest line that fits is shown.
const HELP: [&str; 4] = [
    "f files  p processes  d devices   b bytes  o operations  t time  m longest   a totals  space pause  q quit",
    "f files  p processes  d devices  b o t m sort  a totals  space pause  q quit",
    "q quit  f p d lists  b o t m sort  a totals",
    "q quit",
];

/// Areas for title, totals, list and key help. Short terminals drop totals and key help.
fn areas(area: Rect) -> [Rect; 4] {
    let (sums, keys) = (u16::from(area.height > 4), u16::from(area.height > 3));
    let heights = [Constraint::Length(1), Constraint::Length(sums), Constraint::Fill(1), Constraint::Length(keys)];
    Layout::vertical(heights).areas(area)
}

fn draw(frame: &mut Frame<'_>, view: &View, state: &State) {
    let [head, sum, body, foot] = areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let span = if state.total { view.elapsed } else { view.recent };
    let seconds = span.as_secs_f64();
    frame.render_widget(Line::styled(title(state, span), bold), head);
    frame.render_widget(Line::raw(sums(view, state, seconds)), sum);
    let Shown { numbers, name } = fitting(body.width, state.sort);
    let by = sorted_by(state.sort);
    let room = usize::from(body.height.saturating_sub(1));
    let rows = sorted(state.list.of(view), state.sort, state.total, room).into_iter().map(|(entry, work)| {
        let all = cells(&work, seconds);
        let shown_cells = numbers.iter().map(|c| Cell::from(Line::raw(all[*c].clone()).right_aligned()));
        Row::new(shown_cells.chain([Cell::from(ending(&shown(state.list.title(), entry), name))]).collect::<Vec<_>>())
    });
    let heads = numbers.iter().map(|c| {
        let style = if by.contains(c) { bold.add_modifier(Modifier::REVERSED) } else { bold };
        Cell::from(Line::styled(HEADS[*c], style).right_aligned())
    });
    let heads = Row::new(heads.chain([Cell::from(Line::styled("name", bold))]).collect::<Vec<_>>());
    let widths = numbers.iter().map(|c| Constraint::Length(width_of(*c))).chain([Constraint::Length(name)]);
    frame.render_widget(Table::new(rows, widths).header(heads), body);
    let help = HELP.iter().find(|h| h.len() <= usize::from(foot.width)).unwrap_or(&HELP[3]);
    frame.render_widget(Line::styled(*help, Style::new().add_modifier(Modifier::DIM)), foot);
}

fn title(state: &State, span: Duration) -> String {
    let pause = if state.paused { "PAUSED: " } else { "" };
    let over = if state.total { "since the start" } else { "last interval" };
    let by = match state.sort {
        Sort::Bytes => "bytes",
        Sort::Ops => "operations",
        Sort::Time => "time",
        Sort::Max => "the longest",
    };
    format!("{pause}{} by {by}, {over} ({})", state.list.title(), duration(span.as_nanos() as i64))
}

/// Totals of all calls, and losses that make the numbers too low.
fn sums(view: &View, state: &State, seconds: f64) -> String {
    let all = if state.total { view.calls.total } else { view.calls.recent };
    let rate = |n: u64| (n as f64 / seconds.max(1e-9)) as u64;
    let some = |n: u64, what: &str| if n > 0 { format!("{} {what}, ", count(n)) } else { String::new() };
    format!(
        "{}{}{} calls/s, {}/s read, {}/s written, {} files, {} processes",
        some(view.lost, "EVENTS LOST"),
        some(view.forgotten, "FORGOTTEN"),
        count(rate(all.count)),
        bytes(rate(all.read_bytes) as i64),
        bytes(rate(all.write_bytes) as i64),
        count(view.files.len() as u64),
        count(view.processes.len() as u64),
    )
}

#[cfg(test)]
mod tests {
    use ioreel_capture::monitor::live::Work;
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    fn view() -> View {
        let entry = |name: &str, id, n: u64| {
            let w =
                Work { count: n, read_bytes: n * 1000, write_bytes: 0, time_ns: n * 10_000, max_ns: 500, errors: 0 };
            Entry { name: name.into(), id, recent: w, total: Work { count: 100 * n, ..w } }
        };
        View {
            recent: Duration::from_secs(1),
            elapsed: Duration::from_secs(100),
            files: vec![entry("/few", 1, 3), entry("/ma\u{1b}ny", 2, 300)],
            processes: vec![entry("tar", 17, 303)],
            ..View::default()
        }
    }

    fn drawn(state: &State) -> String {
        drawn_in(110, 8, state)
    }

    fn drawn_in(width: u16, height: u16, state: &State) -> String {
        let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
        assert!(terminal.draw(|f| draw(f, &view(), state)).is_ok());
        format!("{}", terminal.backend())
    }

    #[test]
    fn most_comes_first_and_control_characters_do_not_reach_the_terminal() {
        let mut state = State { list: List::Files, sort: Sort::Bytes, total: false, paused: false, quit: false };
        let text = drawn(&state);
        let (many, few) = (text.find("/ma\u{FFFD}ny"), text.find("/few"));
        assert!(many.is_some() && many < few, "{text}");
        state.key(KeyCode::Char('p'), false);
        assert!(drawn(&state).contains("17 tar"));
    }

    #[test]
    fn keys_choose() {
        let mut state = State { list: List::Files, sort: Sort::Bytes, total: false, paused: false, quit: false };
        for _ in 0..3 {
            state.key(KeyCode::Tab, false);
        }
        assert_eq!(state.list, List::Files);
        state.key(KeyCode::Char('t'), false);
        state.key(KeyCode::Char('a'), false);
        assert!(state.sort == Sort::Time && state.total && !state.quit);
        state.key(KeyCode::Char('c'), true);
        assert!(state.quit);
    }

    #[test]
    fn any_size_of_terminal() {
        let state = State { list: List::Files, sort: Sort::Bytes, total: false, paused: false, quit: false };
        for width in [1, 2, 5, 20, 40, 80, 300] {
            for height in 1..8 {
                drawn_in(width, height, &state);
            }
        }
        let narrow = drawn_in(48, 4, &state);
        assert!(narrow.contains("ma\u{FFFD}ny") && narrow.contains("read/s") && !narrow.contains("busy"), "{narrow}");
        assert!(drawn_in(20, 6, &state).contains("q quit"));
    }
}
