//! Markers that are added to a running recording from outside.
//!
//! The recorder listens on an abstract Unix socket named after the device and inode of the reel's folder, and a random
//! number, so that no other user can bind the name first. Such a socket disappears with the recorder, however it ends, and
//! cannot be hidden or replaced by a file. It has no permissions, so the listener asks the kernel for the user of the
//! caller. It accepts root, its own user, and the user who called sudo. Both ends must be in the same network namespace.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use ioreel_traces::{manifest::Mark, private::Folder, text};

use crate::{CaptureError, host};

/// Prefix of the socket names.
const PREFIX: &str = "ioreel-mark/";
/// Maximum length of a marker's name in bytes.
pub const MAX_NAME_BYTES: usize = 200;
/// Maximum number of markers, because they are kept in memory and in the manifest.
const MAX_MARKS: usize = 10_000;
/// Time that a caller has to send its name.
const PATIENCE: Duration = Duration::from_secs(1);
/// Minimum time between two accounts of new markers.
const BETWEEN_NEWS: Duration = Duration::from_millis(500);
/// The answer to an accepted marker.
const TAKEN: &str = "taken";

/// Accepts markers until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    /// Monotonic time and name of each.
    taken: Arc<Mutex<Vec<(i64, String)>>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the names of the sockets of this reel begin with.
fn prefix_of(reel: &Folder) -> io::Result<String> {
    let (dev, ino) = reel.id()?;
    Ok(format!("{PREFIX}{dev:x}-{ino:x}-"))
}

/// A number that nobody can guess: another user could take the name that was known before the socket is bound.
fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_ne_bytes(bytes))
}

impl Listener {
    /// Listens for markers of the reel in this folder.
    pub(crate) fn start(reel: &Folder) -> io::Result<Self> {
        let name = format!("{}{:032x}", prefix_of(reel)?, random()?);
        let address = SocketAddr::from_abstract_name(name)?;
        let listener = UnixListener::bind_addr(&address)?;
        let taken = Arc::new(Mutex::new(Vec::new()));
        let end = Arc::new(AtomicBool::new(false));
        let (sink, ended) = (Arc::clone(&taken), Arc::clone(&end));
        let thread = std::thread::Builder::new().name("ioreel-marks".into()).spawn(move || {
            let allowed = allowed();
            while let Ok((caller, _)) = listener.accept() {
                // The time of the connection, not of its end.
                let now_ns = host::monotonic_ns();
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(e) = answer(caller, now_ns, &allowed, &sink) {
                    log::debug!("a mark was not taken: {e}");
                }
            }
        })?;
        Ok(Self { address, taken, end, thread: Some(thread) })
    }

    /// Number of markers so far.
    fn count(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The markers so far. Their times are ns since `t0_ns`.
    pub(crate) fn marks(&self, t0_ns: i64) -> Vec<Mark> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.iter().map(|(ns, name)| Mark { ns: (ns - t0_ns).max(0), name: name.clone() }).collect()
    }
}

/// Tells of new markers. They are kept in memory, and a recorder may die.
#[derive(Debug, Default)]
pub(super) struct News {
    told: usize,
    last: Option<Instant>,
}

impl News {
    /// All markers so far, if some are new. At most twice a second: a program may add thousands.
    pub(super) fn of(&mut self, listener: &Listener, t0_ns: i64) -> Option<Vec<Mark>> {
        let count = listener.count();
        if count == self.told || self.last.is_some_and(|t| t.elapsed() < BETWEEN_NEWS) {
            return None;
        }
        (self.told, self.last) = (count, Some(Instant::now()));
        Some(listener.marks(t0_ns))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        // Wakes the thread. If that fails, the thread ends with the process.
        if UnixStream::connect_addr(&self.address).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// Users whose markers are accepted.
fn allowed() -> BTreeSet<u32> {
    let sudo = std::env::var("SUDO_UID").ok().and_then(|u| u.parse().ok());
    let own = [0, rustix::process::getuid().as_raw(), rustix::process::geteuid().as_raw()];
    own.into_iter().chain(sudo).collect()
}

/// User id of the other end. Its pid is 0 if it is in another pid namespace, which rustix treats as an error.
fn peer(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `len` bytes.
    let failed = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &mut len)
    };
    if failed == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

fn answer(
    mut caller: UnixStream,
    now_ns: i64,
    allowed: &BTreeSet<u32>,
    taken: &Mutex<Vec<(i64, String)>>,
) -> io::Result<()> {
    caller.set_read_timeout(Some(PATIENCE))?;
    caller.set_write_timeout(Some(PATIENCE))?;
    if !allowed.contains(&peer(&caller)?) {
        return caller.write_all(b"only root and the recording user may add markers");
    }
    let mut name = Vec::new();
    (&caller).take(MAX_NAME_BYTES as u64 + 1).read_to_end(&mut name)?;
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return caller.write_all(b"the name is empty or too long");
    }
    let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
    if taken.len() >= MAX_MARKS {
        return caller.write_all(format!("it already has {MAX_MARKS} markers").as_bytes());
    }
    taken.push((now_ns, text::from_bytes(&name).to_string()));
    drop(taken);
    caller.write_all(TAKEN.as_bytes())
}

/// Adds a marker to the recording of `reel`, or to all running recordings that accept this user. Returns their number,
/// at least one.
pub fn mark(name: &str, reel: Option<&Path>) -> Result<usize, CaptureError> {
    let bad = |why: &str| CaptureError::Mark { name: name.escape_debug().to_string(), why: why.into() };
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(bad(&format!("a marker name must have 1 to {MAX_NAME_BYTES} bytes")));
    }
    if name.chars().any(char::is_control) {
        return Err(bad("a marker name cannot contain control characters"));
    }
    let sockets = match reel {
        Some(reel) => {
            let prefix = Folder::open(reel).and_then(|folder| prefix_of(&folder));
            running(&prefix.map_err(|e| bad(&format!("{}: {e}", reel.display())))?)
        }
        None => running(PREFIX),
    };
    let mut taken = 0;
    let mut refused = None;
    for socket in &sockets {
        match send(name, socket) {
            Ok(None) => taken += 1,
            Ok(Some(why)) => refused = Some(why),
            // The recording has ended meanwhile.
            Err(e) => log::debug!("{socket}: {e}"),
        }
    }
    match (taken, refused, reel) {
        (0, Some(why), _) => Err(bad(&format!("the recording refused it: {why}"))),
        (0, None, Some(reel)) => Err(bad(&format!(
            "{} is not being recorded, or only in another network namespace; start a recording first",
            reel.display()
        ))),
        (0, None, None) => {
            Err(bad("nothing is being recorded, or only in another network namespace; start a recording first"))
        }
        (n, ..) => Ok(n),
    }
}

/// Names of sockets that start with `prefix`: those of running recordings, and sockets that other users bound.
fn running(prefix: &str) -> BTreeSet<String> {
    // Other names may be invalid UTF-8.
    let sockets = fs::read("/proc/net/unix").unwrap_or_default();
    let sockets = String::from_utf8_lossy(&sockets);
    let abstract_names = sockets.lines().filter_map(|l| l.split_whitespace().nth(7)?.strip_prefix('@'));
    abstract_names.filter(|n| n.starts_with(prefix)).map(str::to_owned).collect()
}

/// Connects at once or not at all: a listener that accepts nobody would block the caller for ever.
fn connect(name: &str) -> io::Result<UnixStream> {
    // SAFETY: takes only numbers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just opened and that nobody else owns.
    let stream = unsafe { UnixStream::from_raw_fd(fd) };
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    // An abstract name follows a zero byte.
    let Some(place) = address.sun_path.get_mut(1..=name.len()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    place.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    let len = (size_of::<libc::sa_family_t>() + 1 + name.len()) as libc::socklen_t;
    // SAFETY: the address is as long as is said, on this stack.
    if unsafe { libc::connect(fd, (&raw const address).cast(), len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Sends a marker. Returns the reason if it was refused.
fn send(name: &str, socket: &str) -> io::Result<Option<String>> {
    let mut stream = connect(socket)?;
    // Anybody may listen under such a name. So a marker is sent only to recorders of root or of this user.
    let listener = peer(&stream)?;
    if listener != 0 && listener != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("the listener belongs to another user"));
    }
    stream.set_read_timeout(Some(PATIENCE * 2))?;
    stream.write_all(name.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.take(1000).read_to_string(&mut answer)?;
    match answer.as_str() {
        TAKEN => Ok(None),
        "" => Err(io::Error::other("no answer")),
        _ => Ok(Some(answer)),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reaches_its_reel_with_its_time() {
        let dir = std::env::temp_dir().join(format!("ioreel-mark-test-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let listener = Listener::start(&Folder::open(&dir).unwrap()).unwrap();
        let before = host::monotonic_ns();
        assert_eq!(mark("phase two: größer", Some(&dir)).unwrap(), 1);
        let marks = listener.marks(before);
        assert_eq!(marks.len(), 1);
        assert_eq!(marks[0].name, "phase two: größer");
        assert!((0..2_000_000_000).contains(&marks[0].ns));
        let mut news = News::default();
        assert_eq!(news.of(&listener, before), Some(marks));
        mark("phase three", Some(&dir)).unwrap();
        assert_eq!(news.of(&listener, before), None, "too soon");
        news.last = None;
        assert_eq!(news.of(&listener, before).unwrap().len(), 2);
        assert_eq!(news.of(&listener, before), None);
        drop(listener);
        let gone = mark("late", Some(&dir)).unwrap_err().to_string();
        assert!(gone.contains("not being recorded"), "{gone}");
        fs::remove_dir(&dir).unwrap();
    }

    /// Another user binds all names that can be guessed, in front of the recorder, and accepts nobody.
    #[test]
    fn no_name_can_be_taken_before() {
        let dir = std::env::temp_dir().join(format!("ioreel-mark-taken-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let folder = Folder::open(&dir).unwrap();
        let prefix = prefix_of(&folder).unwrap();
        let bind = |name: &str| UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let takers = [prefix.trim_end_matches('-'), &prefix, &format!("{prefix}0")].map(bind);
        // Their queues are full.
        let mut waiting = Vec::new();
        for taker in &takers {
            // SAFETY: only sets the length of the queue.
            unsafe { libc::listen(taker.as_raw_fd(), 0) };
            let address = taker.local_addr().unwrap();
            let name = String::from_utf8(address.as_abstract_name().unwrap().into()).unwrap();
            while let Ok(stream) = connect(&name) {
                waiting.push(stream);
            }
        }
        let listener = Listener::start(&folder).unwrap();
        assert_eq!(mark("mine", Some(&dir)).unwrap(), 1);
        assert_eq!(listener.marks(0).len(), 1);
        drop(listener);
        fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn names_are_checked() {
        for name in ["", "a\nb", &"x".repeat(MAX_NAME_BYTES + 1)] {
            assert!(matches!(mark(name, None), Err(CaptureError::Mark { .. })));
        }
    }

    #[test]
    fn other_users_are_refused() {
        let (a, mut b) = UnixStream::pair().unwrap();
        let taken = Mutex::new(Vec::new());
        answer(a, 1, &BTreeSet::from([u32::MAX]), &taken).unwrap();
        let mut said = String::new();
        b.read_to_string(&mut said).unwrap();
        assert!(said.contains("only root and"), "{said}");
        assert!(taken.lock().unwrap().is_empty());
    }
}
