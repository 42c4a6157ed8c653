//! Confines commands that read reels and traces from elsewhere: should one of these make the program do what its maker
//! wants, it can write only where the output goes, execute nothing and reach no network (Landlock).

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    Scope, make_bitflags,
};

/// The newest rules that are used. A kernel that knows fewer of them enforces those (5.13: files; 6.7: network; 6.12:
/// signals and abstract sockets).
const NEWEST: ABI = ABI::V6;

/// What a command needs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Folders that it writes into.
    pub(crate) folders: Vec<PathBuf>,
    /// It runs another program.
    pub(crate) runs_programs: bool,
}

impl Needs {
    /// Writes these files, each of which may be a folder that is not there yet.
    pub(crate) fn to_write<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        let folder = |file: &Path| match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        Self { folders: files.into_iter().map(folder).collect(), runs_programs: false }
    }
}

/// Confines the calling thread and those that it starts from now on. Does what the kernel allows; `ioreel doctor` says
/// what that is.
pub(crate) fn confine(needs: &Needs) {
    // It is a second line of defence: a kernel that refuses it must not keep anybody from reading a reel.
    if let Err(e) = try_confine(needs) {
        log::debug!("not confined by Landlock: {e}");
    }
}

fn try_confine(needs: &Needs) -> Result<(), RulesetError> {
    let all = AccessFs::from_all(NEWEST);
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let run = if needs.runs_programs { read | AccessFs::Execute } else { read };
    let mut ruleset = Ruleset::default().handle_access(all)?.handle_access(AccessNet::from_all(NEWEST))?;
    if !needs.runs_programs {
        ruleset = ruleset.scope(Scope::from_all(NEWEST))?;
    }
    let mut ruleset = ruleset.create()?;
    if let Ok(root) = PathFd::new("/") {
        ruleset = ruleset.add_rule(PathBeneath::new(root, run))?;
    }
    // Terminals, /dev/null and /dev/stdout; and unnamed files for what does not fit into memory.
    let common = [PathBuf::from("/dev"), std::env::temp_dir()];
    for folder in common.iter().chain(&needs.folders) {
        // What is not there makes the command itself say so.
        if let Ok(folder) = PathFd::new(folder) {
            ruleset = ruleset.add_rule(PathBeneath::new(folder, all & !AccessFs::Execute))?;
        }
    }
    ruleset.restrict_self()?;
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::{fs, io, net::TcpListener, process::Command, thread};

    use super::*;

    #[test]
    fn a_confined_thread_writes_only_where_its_output_goes() {
        let kind = |e: io::Error| e.kind();
        let (inside, outside) = ("/var/tmp/ioreel-sandbox-in", "/var/tmp/ioreel-sandbox-out");
        let folders = [inside, outside].map(|f| {
            fs::create_dir_all(f).unwrap();
            PathBuf::from(f)
        });
        let [inside, outside] = folders.clone();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            confine(&Needs::to_write([&*inside.join("page.html")]));
            if !fs::read_to_string("/proc/thread-self/status").unwrap().contains("NoNewPrivs:\t1") {
                return eprintln!("this kernel has no Landlock");
            }
            fs::write(inside.join("page.html"), "a page").unwrap();
            fs::read_dir(&outside).unwrap();
            assert_eq!(fs::write(outside.join("file"), "x").map_err(kind), Err(io::ErrorKind::PermissionDenied));
            assert_eq!(
                fs::rename(inside.join("page.html"), outside.join("file")).map_err(kind).unwrap_err(),
                io::ErrorKind::PermissionDenied
            );
            assert_eq!(Command::new("true").status().map_err(kind).unwrap_err(), io::ErrorKind::PermissionDenied);
            // Since Linux 6.7.
            if let Err(e) = std::net::TcpStream::connect(address) {
                assert_eq!(e.kind(), io::ErrorKind::PermissionDenied);
            }
        })
        .join()
        .unwrap();
        folders.iter().for_each(|f| fs::remove_dir_all(f).unwrap());
    }
}
