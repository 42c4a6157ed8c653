#![expect(clippy::unwrap_used, reason = "tests")]

use std::{fs, io, net::TcpListener, process::Command, thread};

use super::*;

fn kind(e: io::Error) -> io::ErrorKind {
    e.kind()
}

fn status_has(line: &str) -> bool {
    fs::read_to_string("/proc/thread-self/status").unwrap().contains(line)
}

/// Whether this kernel has Landlock.
fn has_landlock() -> bool {
    let version = 1;
    // SAFETY: with this flag, the kernel only returns the version of its rules.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, version) > 0 }
}

#[test]
fn a_reader_writes_only_where_its_output_goes() {
    let (inside, outside) = ("/var/tmp/ioreel-confine-in", "/var/tmp/ioreel-confine-out");
    let folders = [inside, outside].map(|f| {
        fs::create_dir_all(f).unwrap();
        PathBuf::from(f)
    });
    let [inside, outside] = folders.clone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        reader(&Needs::to_write([&*inside.join("page.html")]));
        if !has_landlock() {
            return eprintln!("this kernel has no Landlock");
        }
        fs::write(inside.join("page.html"), "a page").unwrap();
        fs::write("/dev/null", "nothing").unwrap();
        fs::read_dir(&outside).unwrap();
        assert_eq!(fs::write(outside.join("file"), "x").map_err(kind), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(
            fs::rename(inside.join("page.html"), outside.join("file")).map_err(kind).unwrap_err(),
            io::ErrorKind::PermissionDenied
        );
        // Devices are no place for output.
        assert_eq!(fs::write("/dev/ioreel-file", "x").map_err(kind), Err(io::ErrorKind::PermissionDenied));
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

#[test]
fn a_reader_has_no_network_and_no_programs_by_its_calls_alone() {
    thread::spawn(|| {
        calls::refuse_to_reader(&Needs::default()).unwrap();
        assert!(status_has("NoNewPrivs:\t1") && status_has("Seccomp:\t2"));
        assert_eq!(
            std::net::UdpSocket::bind("127.0.0.1:0").map_err(kind).unwrap_err(),
            io::ErrorKind::PermissionDenied
        );
        assert_eq!(TcpListener::bind("127.0.0.1:0").map_err(kind).unwrap_err(), io::ErrorKind::PermissionDenied);
        assert_eq!(Command::new("true").status().map_err(kind).unwrap_err(), io::ErrorKind::PermissionDenied);
        // SAFETY: changes nothing, as it is refused.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWUSER) }, -1);
        // Threads that it starts are confined too, and may do what readers do.
        let listed = thread::spawn(|| fs::read_dir("/").unwrap().count()).join().unwrap();
        assert!(listed > 0);
    })
    .join()
    .unwrap();
    thread::spawn(|| {
        calls::refuse_to_reader(&Needs { runs_programs: true, ..Needs::default() }).unwrap();
        assert!(Command::new("true").status().unwrap().success());
    })
    .join()
    .unwrap();
}

#[test]
fn only_permitted_calls_are_made_and_only_with_permitted_arguments() {
    /// `PR_GET_NAME` and `PR_GET_DUMPABLE`.
    const NAME: libc::c_int = 16;
    const DUMPABLE: libc::c_int = 3;
    thread::spawn(|| {
        let name = Argument { index: 0, mask: u32::MAX, value: NAME as u32 };
        let mut permitted: Vec<Permit> =
            [libc::SYS_futex, libc::SYS_munmap, libc::SYS_exit, libc::SYS_rt_sigprocmask, libc::SYS_madvise]
                .map(Permit::from)
                .into();
        permitted.extend([libc::SYS_sigaltstack, libc::SYS_write, libc::SYS_close, libc::SYS_mmap].map(Permit::from));
        permitted.push(Permit { number: libc::SYS_prctl, only: Some(name) });
        calls::permit_only(&permitted).unwrap();
        let mut room = [0_u8; 16];
        // SAFETY: the name of a thread has 16 bytes.
        let (named, refused) = unsafe { (libc::prctl(NAME, room.as_mut_ptr()), libc::prctl(DUMPABLE)) };
        assert_eq!((named, refused), (0, -1));
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EPERM));
        // SAFETY: takes no arguments.
        assert_eq!(unsafe { libc::syscall(libc::SYS_getppid) }, -1);
        // SAFETY: refused before its arguments are looked at.
        assert_eq!(unsafe { libc::syscall(libc::SYS_clone3, 0, 0) }, -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS));
    })
    .join()
    .unwrap();
}

#[test]
fn what_is_written_below_folders_that_are_not_there_needs_the_nearest_one_that_is() {
    let of = |path: &str| Needs::to_write([Path::new(path)]).folders;
    assert_eq!(of("/var/tmp/ioreel-none/none/x.png"), [PathBuf::from("/var/tmp")]);
    assert_eq!(of("ioreel-none/none/x.png"), [PathBuf::from(".")]);
    assert_eq!(of("x.png"), [PathBuf::from(".")]);
    assert_eq!(of("/x.png"), [PathBuf::from("/")]);
}
