//! Confines threads that handle input from elsewhere: should a reel make the program do what its maker wants, the kernel
//! lets it do little (Landlock, seccomp).
//!
//! Each function confines the calling thread and those that it starts from now on, for good, and sets `no_new_privs`.
//! They do what the kernel allows, because they are a second line of defence; `ioreel doctor` says what that is.

mod calls;

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};

pub use self::calls::{Argument, Permit};

/// The newest rules that are used. A kernel that knows fewer of them enforces those (5.13: files; 6.7: network; 6.12:
/// signals and abstract sockets).
const NEWEST: ABI = ABI::V6;

/// Devices without content, and terminals.
const HARMLESS_DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/pts", "/dev/console"];

/// What a reader of reels and traces needs beside reading.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Folders that it writes into, and files and devices that are there already.
    pub folders: Vec<PathBuf>,
    /// It runs another program.
    pub runs_programs: bool,
    /// It makes requests to io_uring, which pass no filter of calls.
    pub io_uring: bool,
}

impl Needs {
    /// Writes these files, each of which may be a folder that is not there yet.
    pub fn to_write<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        // Folders above it that are not there yet are made too.
        let folder = |file: &Path| {
            let there = file.ancestors().skip(1).find(|f| !f.as_os_str().is_empty() && f.exists());
            there.map_or_else(|| PathBuf::from(if file.is_absolute() { "/" } else { "." }), Path::to_owned)
        };
        Self { folders: files.into_iter().map(folder).collect(), ..Self::default() }
    }
}

/// Confines a reader. It writes only into the folders that it needs, and into that for temporary files. It executes
/// nothing, reaches no network, mounts nothing and looks into no other process.
pub fn reader(needs: &Needs) {
    if let Err(e) = files_of_reader(needs) {
        told("Landlock", &e);
    }
    if let Err(e) = calls::refuse_to_reader(needs) {
        told("seccomp", &e);
    }
}

/// Confines a thread whose root directory is the target of a replay, to these system calls. Below the target it may do
/// everything with files, but execute none.
pub fn replayer(permitted: &[Permit]) {
    if let Err(e) = files_of_replayer() {
        told("Landlock", &e);
    }
    if let Err(e) = calls::permit_only(permitted) {
        told("seccomp", &e);
    }
}

/// The kernel must not keep anybody from reading a reel because it lacks a second line of defence.
fn told(layer: &str, why: &dyn std::error::Error) {
    log::debug!("not confined by {layer}: {why}");
}

/// Rules that allow nothing yet. `alone`: it starts no program, which may want to talk to others.
fn nothing(alone: bool) -> Result<RulesetCreated, RulesetError> {
    let ruleset =
        Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?.handle_access(AccessNet::from_all(NEWEST))?;
    if alone { ruleset.scope(Scope::from_all(NEWEST))?.create() } else { ruleset.create() }
}

/// Allows `access` at and below a path. What is not there makes the command itself say so.
fn allow(ruleset: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    match PathFd::new(path) {
        Ok(place) => ruleset.add_rule(PathBeneath::new(place, access)),
        Err(_) => Ok(ruleset),
    }
}

fn files_of_reader(needs: &Needs) -> Result<(), RulesetError> {
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let run = if needs.runs_programs { read | AccessFs::Execute } else { read };
    let mut ruleset = allow(nothing(!needs.runs_programs)?, Path::new("/"), run)?;
    let write = AccessFs::from_all(NEWEST) & !AccessFs::Execute;
    // What does not fit into memory goes to unnamed files.
    for folder in needs.folders.iter().chain([&std::env::temp_dir()]) {
        ruleset = allow(ruleset, folder, write & !make_bitflags!(AccessFs::{MakeChar | MakeBlock}))?;
    }
    for device in HARMLESS_DEVICES {
        ruleset = allow(ruleset, Path::new(device), write)?;
    }
    ruleset.restrict_self()?;
    Ok(())
}

fn files_of_replayer() -> Result<(), RulesetError> {
    let forbidden = make_bitflags!(AccessFs::{Execute | MakeChar | MakeBlock});
    allow(nothing(true)?, Path::new("/"), AccessFs::from_all(NEWEST) & !forbidden)?.restrict_self()?;
    Ok(())
}

#[cfg(test)]
mod tests;
