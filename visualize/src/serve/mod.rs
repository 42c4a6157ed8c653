//! `ioreel serve`: the page of [`crate::report`] over HTTP, with more detail for the shown window.
//!
//! In: a reel and an address. Out: HTTP answers. May use: `report`.
//!
//! * [`head`] parses a request, [`answer`] chooses the answer, [`detail`] lists single events of a window as JSON.
//!
//! The server is meant for one user on one machine. It limits the number of connections, their time and bytes, and
//! concurrent reads of the reel. Libraries for small servers leave these limits to their callers. It listens on the
//! loopback interface by default, and refuses cross-site requests.
//!
//! Other users of the machine reach the loopback interface too. So the address has a random token as its first component,
//! without which nothing is answered, and connections that send no request are closed in favour of new ones.

mod answer;
mod detail;
mod head;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ioreel_traces::Reel;

use crate::{
    Result,
    report::{Bundle, Finding, MOST_PAGE_BYTES, page_of, whole_bundle},
};

/// Maximum number of connections. A browser opens six.
const MOST_CONNECTIONS: usize = 16;
/// Time limit for sending to or receiving from a client.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server for a reel.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    served: Arc<Served>,
}

/// State shared by all connections.
#[derive(Debug)]
struct Served {
    reel: Reel,
    page: String,
    /// The longest duration of a request.
    longest_ns: i64,
    /// Locked while the reel is read. One read at a time bounds memory.
    reading: Mutex<()>,
    /// First component of all paths.
    token: String,
    connections: Mutex<Connections>,
}

/// The open connections.
#[derive(Debug, Default)]
struct Connections {
    next: u64,
    /// By age, those whose request has not come yet.
    waiting: BTreeMap<u64, TcpStream>,
    /// How many are being answered.
    answered: usize,
}

impl Connections {
    /// Takes in a connection, in the place of the oldest that has sent no request. None if all are being answered.
    fn admit(&mut self, stream: &TcpStream) -> Option<u64> {
        if self.waiting.len() + self.answered >= MOST_CONNECTIONS {
            let (_, oldest) = self.waiting.pop_first()?;
            // Wakes its thread, which ends.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        let id = self.next;
        self.next += 1;
        self.waiting.insert(id, stream.try_clone().ok()?);
        Some(id)
    }

    /// The request of a connection has come; whether it still had its place.
    fn leave(&mut self, id: u64, is_answered: bool) -> bool {
        let had = self.waiting.remove(&id).is_some();
        self.answered += usize::from(had && is_answered);
        had
    }
}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The reel cannot be read.
    #[error(transparent)]
    Report(#[from] crate::PlotError),
    /// Listening at the address failed.
    #[error("{address}: cannot listen here: {why}; --address 127.0.0.1:0 uses any free port")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        why: std::io::Error,
    },
    /// The system gives no random numbers.
    #[error("/dev/urandom: cannot draw a token for the address: {0}")]
    Token(std::io::Error),
}

/// 128 random bits.
fn token() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

impl Server {
    /// Listens at the address, then reads the reel and creates the page.
    ///
    /// # Errors
    /// When the address is taken, or the reel cannot be read.
    pub fn new(reel: &Reel, address: SocketAddr, findings: &[Finding]) -> Result<Self, ServeError> {
        let listen = |why| ServeError::Listen { address, why };
        let listener = TcpListener::bind(address).map_err(listen)?;
        let Bundle { bytes, longest_ns, .. } = whole_bundle(reel, findings)?;
        let served = Served {
            reel: reel.clone(),
            page: page_of(&bytes, None, true),
            longest_ns,
            reading: Mutex::new(()),
            token: token().map_err(ServeError::Token)?,
            connections: Mutex::default(),
        };
        Ok(Self { listener, served: Arc::new(served) })
    }

    /// The listening address.
    ///
    /// # Errors
    /// If the system does not return it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The path of the page: `/TOKEN/`.
    pub fn path(&self) -> String {
        format!("/{}/", self.served.token)
    }

    /// Serves until the process ends.
    pub fn run(&self) {
        for stream in self.listener.incoming() {
            match stream {
                Ok(stream) => self.accept(stream),
                // Out of descriptors, or the client has disconnected. Continue.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn accept(&self, mut stream: TcpStream) {
        let limits = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        if limits.is_err() {
            return;
        }
        let served = Arc::clone(&self.served);
        let Some(id) = served.connections().admit(&stream) else {
            let _ = stream.write_all(&answer::Answer::refusal(503, "too many connections; try again").bytes());
            return;
        };
        let spawned = std::thread::Builder::new().spawn(move || served.converse(&mut stream, id));
        if spawned.is_err() {
            self.served.connections().waiting.remove(&id);
        }
    }
}

impl Served {
    fn connections(&self) -> std::sync::MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles one request per connection.
    fn converse(&self, stream: &mut TcpStream, id: u64) {
        let request = head::read(stream).and_then(|request| request.under(&self.token));
        // Only those who know the token hold a place for as long as an answer takes.
        let goes_on = self.connections().leave(id, request.is_ok());
        let answer = match request {
            Ok(request) if goes_on => {
                let answer = answer::answer(self, &request);
                // A client that is gone has no use for the rest.
                let _ = stream.write_all(&answer.bytes());
                self.connections().answered -= 1;
                return;
            }
            Ok(_) => return,
            Err(head::Refused { status, why }) => answer::Answer::refusal(status, why),
        };
        let _ = stream.write_all(&answer.bytes());
    }
}

/// Maximum size of an answer with detail, bytes.
const MOST_ANSWER_BYTES: usize = MOST_PAGE_BYTES / 4 * 3;
