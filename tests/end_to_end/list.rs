//! The list of tests, which every folder adds its own to, and how long each took.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use libtest_mimic::{Failed, Trial};

use crate::harness::mount::Fs;

/// A name and what it runs; a panic is a failure.
pub(crate) struct Test {
    pub(crate) name: String,
    /// Whether it records or mounts, for which it needs root and a kernel that loads BPF programs.
    records: bool,
    body: Box<dyn FnOnce() + Send>,
}

/// The tests so far, in the order in which they are run.
#[derive(Default)]
pub(crate) struct Tests(pub(crate) Vec<Test>);

impl Tests {
    /// Adds a test that records or mounts.
    pub(crate) fn add(&mut self, name: impl Into<String>, body: impl FnOnce() + Send + 'static) {
        self.0.push(Test { name: name.into(), records: true, body: Box::new(body) });
    }

    /// Adds a test that any user can run anywhere.
    pub(crate) fn add_for_all(&mut self, name: impl Into<String>, body: impl FnOnce() + Send + 'static) {
        self.0.push(Test { name: name.into(), records: false, body: Box::new(body) });
    }

    /// Adds `NAME::FS` for each of these file systems.
    pub(crate) fn add_on(&mut self, systems: &[Fs], name: &str, body: impl Fn(Fs) + Copy + Send + 'static) {
        for &fs in systems {
            self.add(format!("{name}::{}", fs.name()), move || body(fs));
        }
    }
}

/// Adds tests by their paths, `module::test`, which are their names too.
macro_rules! tests {
    ($list:ident.$add:ident: $($module:ident::$test:ident)*) => {
        $($list.$add(concat!(stringify!($module), "::", stringify!($test)), $module::$test);)*
    };
    ($list:ident on $systems:expr => $($module:ident::$test:ident)*) => {
        $($list.add_on($systems, concat!(stringify!($module), "::", stringify!($test)), $module::$test);)*
    };
}
pub(crate) use tests;

/// Name and time of each test that has ended.
static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

impl Test {
    /// As the test harness takes it. `missing` is what this machine lacks for recording: where CI runs, that is a failure.
    pub(crate) fn trial(self, missing: Option<&str>, is_ci: bool) -> Trial {
        let missing = missing.filter(|_| self.records).map(str::to_owned);
        let is_ignored = missing.is_some() && !is_ci;
        let name = match &missing {
            Some(why) if is_ignored => format!("{} (needs what is missing here: {why})", self.name),
            _ => self.name.clone(),
        };
        let body = move || match missing {
            Some(why) => Err(Failed::from(format!("must run where CI runs, and cannot: {why}"))),
            None => {
                let timer = Timer(Instant::now(), self.name);
                (self.body)();
                drop(timer);
                Ok(())
            }
        };
        Trial::test(name, body).with_ignored_flag(is_ignored)
    }
}

/// Notes how long a test took, also of one that fails.
struct Timer(Instant, String);

impl Drop for Timer {
    fn drop(&mut self) {
        if let Ok(mut times) = TIMES.lock() {
            times.push((self.0.elapsed(), std::mem::take(&mut self.1)));
        }
    }
}

/// Prints the tests that took longest, at most `count`.
pub(crate) fn print_longest(count: usize) {
    let Ok(mut times) = TIMES.lock() else { return };
    times.sort_unstable();
    for (time, name) in times.iter().rev().take(count) {
        println!("took {:6.1} s: {name}", time.as_secs_f64());
    }
}
