//! The live view on a terminal.

use std::{
    io,
    time::{Duration, Instant},
};

use ioreel_capture::live::{Entry, Live, View};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Modifier, Style},
    text::Line,
    widgets::{Cell, Row, Table},
};

use super::{HEADS, Sort, cells, shown, sorted};
use crate::{
    columns::count,
    units::{bytes, duration},
};

/// A key is answered within this.
const PATIENCE: Duration = Duration::from_millis(100);

/// Which list is shown.
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

/// What the keys have chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    list: List,
    sort: Sort,
    /// Since the start rather than since the last look.
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

/// Shows `live` until it ends or a key ends it. The terminal is as it was afterwards, also after a panic.
pub(super) fn run(live: &mut Live, interval: Duration, sort: Sort) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, live, interval, sort);
    ratatui::try_restore()?;
    shown
}

fn show(terminal: &mut DefaultTerminal, live: &mut Live, interval: Duration, sort: Sort) -> io::Result<()> {
    let mut state = State { list: List::Files, sort, total: false, paused: false, quit: false };
    let mut view = live.look();
    let mut next = Instant::now() + interval;
    loop {
        terminal.draw(|frame| draw(frame, &view, &state))?;
        let wait = next.saturating_duration_since(Instant::now()).min(PATIENCE);
        if event::poll(wait)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            state.key(key.code, key.modifiers.contains(KeyModifiers::CONTROL));
        }
        if state.quit || live.has_ended() {
            return Ok(());
        }
        if Instant::now() >= next {
            next = Instant::now() + interval;
            if !state.paused {
                view = live.look();
            }
        }
    }
}

fn draw(frame: &mut Frame<'_>, view: &View, state: &State) {
    let [head, sum, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(3), Constraint::Length(1)])
            .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let span = if state.total { view.elapsed } else { view.recent };
    let seconds = span.as_secs_f64();
    let pause = if state.paused { ", STANDING STILL" } else { "" };
    let over = if state.total { "since the start" } else { "since the last look" };
    let by = match state.sort {
        Sort::Bytes => "bytes",
        Sort::Ops => "operations",
        Sort::Time => "time",
        Sort::Max => "the longest",
    };
    let title = format!("{} by {by}, {over} ({}){pause}", state.list.title(), duration(span.as_nanos() as i64));
    frame.render_widget(Line::styled(title, bold), head);
    let all = if state.total { view.calls.total } else { view.calls.recent };
    let rate = |n: u64| (n as f64 / seconds.max(1e-9)) as u64;
    let lost = if view.lost > 0 { format!(", {} EVENTS LOST", count(view.lost)) } else { String::new() };
    let sums = format!(
        "{} calls/s, {}/s read, {}/s written, {} files, {} processes{lost}",
        count(rate(all.count)),
        bytes(rate(all.read_bytes) as i64),
        bytes(rate(all.write_bytes) as i64),
        count(view.files.len() as u64),
        count(view.processes.len() as u64),
    );
    frame.render_widget(Line::raw(sums), sum);
    let room = usize::from(body.height.saturating_sub(1));
    let rows = sorted(state.list.of(view), state.sort, state.total, room).into_iter().map(|(entry, work)| {
        let numbers = cells(&work, seconds).map(|c| Cell::from(Line::from(c).right_aligned()));
        Row::new(numbers.into_iter().chain([Cell::from(shown(state.list.title(), entry))]))
    });
    let heads = HEADS.map(|h| Cell::from(Line::from(h).right_aligned())).into_iter().chain([Cell::from("name")]);
    let widths = [9, 8, 11, 11, 9, 9, 8].map(Constraint::Length).into_iter().chain([Constraint::Min(10)]);
    frame.render_widget(Table::new(rows, widths).header(Row::new(heads).style(bold)), body);
    let help = "f files  p processes  d devices   b bytes  o operations  t time  m longest   a all  space stop  q quit";
    frame.render_widget(Line::styled(help, Style::new().add_modifier(Modifier::DIM)), foot);
}

#[cfg(test)]
mod tests {
    use ioreel_capture::live::Work;
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
        let Ok(mut terminal) = Terminal::new(TestBackend::new(110, 8));
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
}
