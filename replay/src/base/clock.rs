//! Reads the monotonic clock at less than half of the cost of `clock_gettime`.
//!
//! A replay reads the clock twice per call. With `clock_gettime` that is a twentieth of the time of a short call:
//! mostly a fence, otherwise the vDSO's own work. If the kernel's clock source is `tsc`, the kernel has verified that
//! the counters of all CPUs agree and run at one rate. This module then reads the counter without a fence and converts
//! it to nanoseconds by a line fitted to the kernel's clock.
//!
//! The line is fitted again a thousand times a second, so a change of the kernel's rate (`adjtimex(2)`, at most 500
//! ppm) is followed to within a microsecond. All threads share the line, and each new line starts where the previous
//! one stood. Times of different threads are therefore comparable to the nanosecond. With any other clock source, this
//! module calls `clock_gettime`.

use std::{
    fs,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicI64, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
            fence,
        },
    },
};

use rustix::{thread::ClockId, time::clock_gettime};

/// How long a line is used before the kernel's clock is read again.
const INTERVAL_NS: i64 = 1_000_000;
/// How long both clocks are compared before the counter is used. Reading both at one moment has an error of about 20
/// ns, a millionth of this time. Until then the kernel's clock is read.
const CALIBRATION_NS: i64 = 20_000_000;
/// A lag behind the kernel's clock is normally made up over the next interval. A larger lag than this is corrected at
/// once.
const JUMP_NS: i64 = 10_000;
/// Both clocks count as read at one moment if that took at most this many ticks. It normally takes 120.
const CLOSE_TICKS: u64 = 400;
/// If it took longer than this, the thread was interrupted and the reading is discarded.
const APART_TICKS: u64 = 2000;
/// If the line is older than this (a few seconds), the counter may have stopped or been set: the line is not used.
const STRANGE_TICKS: i64 = 1 << 34;

/// Time of the monotonic clock, ns. It never goes back.
pub(crate) fn monotonic_ns() -> i64 {
    match COUNTER.get() {
        Some(Some(counter)) => counter.now_ns(),
        Some(None) => kernel_ns(),
        None => {
            start();
            kernel_ns()
        }
    }
}

/// Checks whether the counter can be used, and starts the calibration. Must be called before the containment, inside of
/// which `/sys` is not reachable.
#[cold]
pub(crate) fn start() {
    COUNTER.get_or_init(|| {
        let source = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").ok()?;
        if source.trim() != "tsc" {
            return None;
        }
        let (ticks, ns) = both()?;
        Some(Counter { ticks, ns, ..Counter::default() })
    });
}

/// Orders all earlier loads of this thread before its next reading of the counter, which has no fence of its own.
pub(crate) fn not_before() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a fence; every processor of this architecture has it.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
}

fn kernel_ns() -> i64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: reads a register; the kernel allows it where this is its clock source.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

/// Reads both clocks at one moment. `None` if there is no counter or every attempt was interrupted.
fn both() -> Option<(u64, i64)> {
    const TRIES: usize = 4;
    let mut best = None;
    for _ in 0..TRIES {
        let before = ticks();
        let ns = kernel_ns();
        let took = ticks().checked_sub(before).filter(|took| *took > 0 && *took < APART_TICKS);
        let Some(took) = took else { continue };
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, (before + took / 2, ns)));
        }
        if took < CLOSE_TICKS {
            break;
        }
    }
    best.map(|(_, at)| at)
}

static COUNTER: OnceLock<Option<Counter>> = OnceLock::new();

/// Number of lines kept: a thread that reads a line has some milliseconds before its place is overwritten.
const LINES: usize = 4;

/// The processor's counter and the lines that convert it to ns.
#[derive(Debug, Default)]
struct Counter {
    /// Values of both clocks at the start.
    ticks: u64,
    ns: i64,
    /// Number of lines fitted so far. The last [`LINES`] of them are kept.
    drawn: AtomicU64,
    lines: [SharedLine; LINES],
    /// A thread is reading the kernel's clock to fit a new line.
    busy: AtomicBool,
}

#[derive(Debug, Default)]
struct SharedLine {
    ticks: AtomicU64,
    ns: AtomicI64,
    rate: AtomicI64,
    interval_ticks: AtomicI64,
}

impl Counter {
    fn now_ns(&self) -> i64 {
        let now = ticks();
        let line = self.line();
        line.filter(|line| line.passed(now) < line.interval_ticks)
            .and_then(|line| line.at(now))
            .unwrap_or_else(|| self.ask(line))
    }

    /// The latest line. `None` before the first.
    fn line(&self) -> Option<Line> {
        loop {
            let drawn = self.drawn.load(Acquire);
            if drawn == 0 {
                return None;
            }
            let shared = &self.lines[drawn as usize % LINES];
            let line = Line {
                ticks: shared.ticks.load(Relaxed),
                ns: shared.ns.load(Relaxed),
                rate: shared.rate.load(Relaxed),
                interval_ticks: shared.interval_ticks.load(Relaxed),
            };
            fence(Acquire);
            // If so few lines were added meanwhile, this place was not overwritten while it was read.
            if self.drawn.load(Relaxed) - drawn < LINES as u64 - 1 {
                return Some(line);
            }
        }
    }

    /// Fits a new line to the kernel's clock. One thread at a time does so; the others keep the present line, or read
    /// the kernel's clock if there is none.
    #[cold]
    fn ask(&self, line: Option<Line>) -> i64 {
        if self.busy.swap(true, Acquire) {
            return line.and_then(|line| line.at(ticks())).unwrap_or_else(kernel_ns);
        }
        // Another thread may have fitted a line just before: load it again.
        let now_ns = self.bend(self.line());
        self.busy.store(false, Release);
        now_ns
    }

    fn bend(&self, line: Option<Line>) -> i64 {
        let Some((ticks, ns)) = both() else {
            return line.and_then(|line| line.at(ticks())).unwrap_or_else(kernel_ns);
        };
        let (passed_ticks, passed_ns) = (ticks.saturating_sub(self.ticks), ns - self.ns);
        if line.is_none() && passed_ns < CALIBRATION_NS || passed_ticks == 0 {
            return ns;
        }
        let ns_a_tick = passed_ns as f64 / passed_ticks as f64;
        // The first line starts ahead by the largest possible reading error: until now the kernel's clock was returned,
        // and time must not go back.
        let ahead_ns = if line.is_none() { (APART_TICKS as f64 / 2.0 * ns_a_tick) as i64 } else { 0 };
        let new = Line::after(line, ticks, ns + ahead_ns, ns_a_tick);
        let drawn = self.drawn.load(Relaxed) + 1;
        let shared = &self.lines[drawn as usize % LINES];
        shared.ticks.store(new.ticks, Relaxed);
        shared.ns.store(new.ns, Relaxed);
        shared.rate.store(new.rate, Relaxed);
        shared.interval_ticks.store(new.interval_ticks, Relaxed);
        self.drawn.store(drawn, Release);
        new.ns
    }
}

/// Converts a counter value to a time.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Counter value at the start of the line.
    ticks: u64,
    /// Time at the start of the line.
    ns: i64,
    /// ns per 2^32 ticks.
    rate: i64,
    /// After this many ticks a new line is due.
    interval_ticks: i64,
}

impl Line {
    /// Ticks since the start of the line.
    fn passed(&self, ticks: u64) -> i64 {
        ticks.wrapping_sub(self.ticks) as i64
    }

    fn after_ticks(&self, passed: i64) -> i64 {
        self.ns + ((i128::from(passed) * i128::from(self.rate)) >> 32) as i64
    }

    /// The time at this counter value. `None` if the counter cannot have got there by counting. The value may be
    /// slightly older than the line.
    fn at(&self, ticks: u64) -> Option<i64> {
        let passed = self.passed(ticks);
        (-self.interval_ticks..STRANGE_TICKS).contains(&passed).then(|| self.after_ticks(passed))
    }

    /// The line that follows `line`: the kernel's clock reads `ns`, and a tick has taken `ns_a_tick` on average since
    /// the start.
    fn after(line: Option<Self>, ticks: u64, ns: i64, ns_a_tick: f64) -> Self {
        // If the counter jumped, the last time returned is unknown. It is taken to be no later than this.
        let told_ns = line.map_or(ns, |l| l.at(ticks).unwrap_or_else(|| ns.max(l.after_ticks(l.interval_ticks))));
        let behind_ns = ns - told_ns;
        // A line that is ahead runs slower until the kernel's clock catches up. Time does not go back.
        let bent = (behind_ns as f64 / INTERVAL_NS as f64).max(-0.5);
        let (ns, bent) = if behind_ns > JUMP_NS { (ns, 0.0) } else { (told_ns, bent) };
        Self {
            ticks,
            ns,
            rate: (ns_a_tick * (1.0 + bent) * (1_u64 << 32) as f64) as i64,
            interval_ticks: (INTERVAL_NS as f64 / ns_a_tick).min((STRANGE_TICKS / 2) as f64) as i64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, thread, time::Duration};

    use super::*;

    #[test]
    fn it_is_the_kernels() {
        let mut last = monotonic_ns();
        let end = last + 200_000_000;
        let mut away: Vec<i64> = Vec::new();
        while last < end {
            let (before, now, after) = (kernel_ns(), monotonic_ns(), kernel_ns());
            assert!(now >= last, "{now} after {last}");
            last = now;
            away.push((before - now).max(now - after).max(0));
        }
        away.sort_unstable();
        // Any single reading may have been interrupted, so only the 99th percentile is checked.
        assert!(away[away.len() * 99 / 100] < 1000, "{:?}", away.last());
    }

    #[test]
    fn times_of_threads_can_be_compared() {
        monotonic_ns();
        thread::sleep(Duration::from_nanos(CALIBRATION_NS as u64));
        let told = Mutex::new(0);
        thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    for _ in 0..100_000 {
                        let mut last = told.lock().expect("nobody panics");
                        not_before();
                        let now = monotonic_ns();
                        assert!(now >= *last, "{now} was read after {last}");
                        *last = now;
                    }
                });
            }
        });
    }

    /// Simulates a 2.5 GHz counter that starts at `begin` and is read after each of `steps`, next to a reference clock.
    /// Returns the largest difference, ns.
    fn follow(begin: u64, clock_ns: impl Fn(u64) -> i64, steps: impl IntoIterator<Item = u64>) -> i64 {
        let (mut line, mut ticks) = (Line::after(None, begin, clock_ns(0), 0.4), begin);
        let (mut since, mut last, mut worst) = (0, i64::MIN, 0);
        for step in steps {
            (ticks, since) = (ticks.wrapping_add(step), since + step);
            if line.passed(ticks) >= line.interval_ticks {
                line = Line::after(Some(line), ticks, clock_ns(since), 0.4);
            }
            let now = line.at(ticks).expect("not set");
            assert!(now >= last, "it went back from {last} to {now}");
            last = now;
            worst = worst.max((now - clock_ns(since)).abs());
        }
        worst
    }

    #[test]
    fn a_clock_whose_rate_changes_is_followed() {
        let clock = |ppm: i64| move |ticks: u64| (ticks as f64 * 0.4 * (1.0 + ppm as f64 * 1e-6)) as i64;
        let often = || std::iter::repeat_n(1777, 100_000);
        for begin in [0, 1 << 60, u64::MAX - 1_000_000] {
            assert!(follow(begin, clock(0), often()) <= 2);
            for ppm in [-500, 500] {
                let worst = follow(begin, clock(ppm), often());
                assert!(worst <= 1010, "{ppm} ppm: {worst} ns");
            }
        }
    }

    #[test]
    fn who_sleeps_long_is_told_the_kernels_time() {
        let clock = |ticks: u64| (ticks as f64 * 0.4 * 1.0005) as i64;
        assert!(follow(0, clock, std::iter::repeat_n(1 << 35, 1000)) <= JUMP_NS);
    }

    #[test]
    fn a_counter_that_was_set_does_no_harm() {
        let mut line = Line::after(None, 1 << 60, 5_000_000, 0.4);
        let mut last = line.ns;
        for (i, ticks) in [1 << 23, 7, u64::MAX / 3, 1 << 63, (1 << 60) + 5, 3].into_iter().enumerate() {
            line = Line::after(Some(line), ticks, 6_000_000 + i as i64 * 1000, 0.4);
            assert!(line.ns >= last, "it went back from {last} to {}", line.ns);
            last = line.ns;
        }
        assert!(last < 9_000_000, "it is {last} ns");
    }
}
