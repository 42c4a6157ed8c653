//! `ioreel serve`: the page of [`crate::report`] over HTTP, which asks for more detail of the window shown.
//!
//! In: a reel and an address. Out: HTTP answers. May use: `report`.
//!
//! * [`head`] parses a request, [`answer`] chooses the answer, [`detail`] lists single events of a window as JSON.
//!
//! The server is meant for one user on one machine. It limits connections, their time and bytes, and concurrent readings of
//! the reel; libraries for small servers leave these limits to their callers. It listens on the loopback interface unless
//! told otherwise, and refuses cross-site requests.

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

/// Connections at once; a browser makes six.
const MOST_CONNECTIONS: usize = 16;
/// A client that does not send or take in this time is left.
const PATIENCE: Duration = Duration::from_secs(20);

/// A reel that is served.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    served: Arc<Served>,
}

/// What answers are made of.
#[derive(Debug)]
struct Served {
    reel: Reel,
    page: String,
    /// The longest that a request took.
    longest_ns: i64,
    /// Held while the reel is read: one reading at a time bounds memory.
    reading: Mutex<()>,
    connections: AtomicUsize,
}

/// Why a server could not be.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The reel cannot be read.
    #[error(transparent)]
    Report(#[from] crate::PlotError),
    /// The address is not to be had.
    #[error("{address}: cannot listen here: {why}; --address 127.0.0.1:0 uses any free port")]
    Listen {
        /// As asked for.
        address: SocketAddr,
        /// What the system said.
        why: std::io::Error,
    },
}

impl Server {
    /// Takes the address, then reads the reel and makes its page.
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

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until the process ends.
    pub fn run(&self) {
        for stream in self.listener.incoming() {
            match stream {
                Ok(stream) => self.accept(stream),
                // Out of descriptors, or a client that was gone again: others may come.
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
    /// One request, one answer: who wants more connects again.
    fn converse(&self, stream: &mut TcpStream) {
        let answer = match head::read(stream) {
            Ok(request) => answer::answer(self, &request),
            Err(head::Refused { status, why }) => answer::Answer::refusal(status, why),
        };
        // A client that is gone has no use for the rest.
        let _ = stream.write_all(&answer.bytes());
    }
}

/// Bytes of an answer with detail at most.
const MOST_ANSWER_BYTES: usize = MOST_PAGE_BYTES / 4 * 3;
