//! `ioreel serve`: the page of [`crate::report`] over HTTP, with more detail for the shown window.
//!
//! In: a reel and an address. Out: HTTP answers. May use: `report`.
//!
//! * [`head`] parses a request, [`answer`] chooses the answer, [`detail`] lists single events of a window as JSON.
//!
//! The server is meant for one user on one machine. It limits the number of connections, their time and bytes, and
//! concurrent reads of the reel. Libraries for small servers leave these limits to their callers. It listens on the
//! loopback interface by default, and refuses cross-site requests.

mod answer;
mod detail;
mod head;

use std::{
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
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
const PATIENCE: Duration = Duration::from_secs(20);

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
    connections: AtomicUsize,
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
            connections: AtomicUsize::new(0),
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
        if served.connections.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
            served.connections.fetch_sub(1, Ordering::Relaxed);
            let _ = stream.write_all(&answer::Answer::refusal(503, "too many connections; try again").bytes());
            return;
        }
        let spawned = std::thread::Builder::new().spawn(move || {
            served.converse(&mut stream);
            served.connections.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            self.served.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Served {
    /// Handles one request per connection.
    fn converse(&self, stream: &mut TcpStream) {
        let answer = match head::read(stream) {
            Ok(request) => answer::answer(self, &request),
            Err(head::Refused { status, why }) => answer::Answer::refusal(status, why),
        };
        // Errors are ignored: the client has disconnected.
        let _ = stream.write_all(&answer.bytes());
    }
}

/// Maximum size of an answer with detail, bytes.
const MOST_ANSWER_BYTES: usize = MOST_PAGE_BYTES / 4 * 3;
