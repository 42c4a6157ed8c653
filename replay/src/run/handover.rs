//! Hands descriptors from thread to thread, as messages did in the recording.
//!
//! Replaying threads have descriptor tables of their own. A keeper, a thread with another table, takes each descriptor
//! that is handed in and gives it to those that receive it. All threads talk to the keeper through one socket, which has
//! the same number in every table: the tables are copies of the one in which the keeper was started.

use std::{
    collections::HashMap,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicI32, AtomicU32, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, JoinHandle},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
    thread::{UnshareFlags, unshare_unsafe},
};

/// Instead of a descriptor: none.
const NO_DESCRIPTOR: i32 = -1;

/// In a message to the keeper: asks for the descriptor at a place. The descriptor sent along is the socket to answer.
const ASKS: u32 = 1 << 31;

/// The threads' end of the handover.
#[derive(Debug)]
pub(crate) struct Handover {
    /// The socket to the keeper, the same number in every table; -1: nothing is handed over.
    keeper: AtomicI32,
    /// Number of receipts, by place.
    receipts: OnceLock<Vec<u32>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Number of descriptors that could not be handed over.
    failed: AtomicU32,
}

impl Default for Handover {
    fn default() -> Self {
        Self {
            keeper: AtomicI32::new(NO_DESCRIPTOR),
            receipts: OnceLock::new(),
            thread: Mutex::default(),
            failed: AtomicU32::new(0),
        }
    }
}

/// A pair of connected sockets that keep messages apart.
fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends a number and a descriptor.
fn send(to: BorrowedFd<'_>, number: u32, fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let bytes = number.to_le_bytes();
    loop {
        match sendmsg(to, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Receives a number and a descriptor; `None` when nobody can send any more.
fn take(from: BorrowedFd<'_>) -> Result<Option<(u32, Option<OwnedFd>)>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4];
    let got = loop {
        match recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut fd = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.last();
        }
    }
    Ok((got.bytes > 0).then_some((u32::from_le_bytes(bytes), fd)))
}

impl Handover {
    /// Starts the keeper, unless nothing is received: `receipts` are their numbers by place. The calling thread starts
    /// all others; its descriptor table is its own.
    pub(crate) fn start(&self, receipts: &[u32]) -> io::Result<()> {
        if receipts.iter().all(|n| *n == 0) {
            return Ok(());
        }
        let (ours, keepers) = pair()?;
        let (ours, keepers) = (ours.into_raw_fd(), keepers.into_raw_fd());
        let left = receipts.to_vec();
        let (told, has_table) = mpsc::channel();
        let keeper = thread::Builder::new().name("keeper".into()).spawn(move || {
            // SAFETY: the numbers in the new table are those of the starting thread, and no Rust value owns them.
            let own = unsafe { unshare_unsafe(UnshareFlags::FILES) };
            if own.is_ok() {
                // SAFETY: as above. The end of the threads is kept open by their tables alone.
                unsafe { rustix::io::close(ours) };
            }
            let made = own.is_ok();
            // The starting thread waits for it.
            let _ = told.send(own);
            if made {
                // SAFETY: open in this thread's table, and used by nothing else there.
                keep(&unsafe { OwnedFd::from_raw_fd(keepers) }, left);
            }
        });
        let started = match keeper {
            Ok(thread) => {
                *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
                has_table.recv().unwrap_or(Err(Errno::SRCH)).map_err(io::Error::from)
            }
            Err(e) => Err(e),
        };
        // SAFETY: the keeper has its own table now, or did not start.
        unsafe { rustix::io::close(keepers) };
        match started {
            Ok(()) => {
                // Started only once.
                let _ = self.receipts.set(receipts.to_vec());
                self.keeper.store(ours, SeqCst);
                Ok(())
            }
            Err(e) => {
                // SAFETY: as above.
                unsafe { rustix::io::close(ours) };
                Err(e)
            }
        }
    }

    fn keeper(&self) -> Option<BorrowedFd<'static>> {
        let fd = self.keeper.load(SeqCst);
        // SAFETY: open in the table of every replaying thread until it ends; no recorded call reaches it, because calls
        // act on descriptors of cells.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Hands in the descriptor `fd` of the calling thread at `place`, if it is open and received by anybody.
    pub(crate) fn hand_in(&self, place: u32, fd: i32) {
        let receipts = self.receipts.get().and_then(|all| all.get(place as usize)).copied().unwrap_or(0);
        let Some(keeper) = self.keeper().filter(|_| fd >= 0 && receipts > 0) else { return };
        // SAFETY: open in the calling thread's table until its next step.
        if send(keeper, place, unsafe { BorrowedFd::borrow_raw(fd) }).is_err() {
            self.failed.fetch_add(1, SeqCst);
        }
    }

    /// A descriptor, in the calling thread's table, of what was handed in at `place`; -1 if nothing was.
    pub(crate) fn receive(&self, place: u32) -> i32 {
        match self.keeper().map(|keeper| ask(keeper, place)) {
            Some(Ok(fd)) => fd.into_raw_fd(),
            _ => {
                self.failed.fetch_add(1, SeqCst);
                NO_DESCRIPTOR
            }
        }
    }

    /// Waits for the keeper to end, after all other threads.
    pub(crate) fn end(&self) {
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It cannot fail: it has no result.
            let _ = thread.join();
        }
    }

    /// A warning if something could not be handed over.
    pub(crate) fn told(&self) -> Option<String> {
        let n = self.failed.load(SeqCst);
        (n > 0).then(|| format!("{n} descriptors that messages brought were not handed over; calls on them failed"))
    }
}

fn ask(keeper: BorrowedFd<'_>, place: u32) -> Result<OwnedFd, Errno> {
    let (ours, answers) = pair()?;
    send(keeper, place | ASKS, answers.as_fd())?;
    drop(answers);
    take(ours.as_fd())?.and_then(|(_, fd)| fd).ok_or(Errno::BADF)
}

/// The keeper's work, until all other threads have ended. `left`: receipts to come, by place.
fn keep(socket: &OwnedFd, mut left: Vec<u32>) {
    let mut kept: HashMap<u32, OwnedFd> = HashMap::new();
    loop {
        match take(socket.as_fd()) {
            Ok(Some((number, Some(fd)))) if number & ASKS != 0 => {
                let place = number & !ASKS;
                if let Some(kept) = kept.get(&place) {
                    // If the thread that asked gets no answer, it counts that.
                    let _ = send(fd.as_fd(), place, kept.as_fd());
                }
                let left = left.get_mut(place as usize).map(|left| {
                    *left = left.saturating_sub(1);
                    *left
                });
                if left == Some(0) {
                    kept.remove(&place);
                }
            }
            Ok(Some((place, Some(fd)))) => {
                kept.insert(place, fd);
            }
            // No room for another descriptor. The one that asks for it gets none.
            Ok(Some((_, None))) => {}
            Ok(None) => return,
            Err(e) => {
                log::error!("the thread that hands descriptors over ended: {e}");
                return;
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_is_handed_in_is_received_as_often_as_told() {
        let handover = std::sync::Arc::new(Handover::default());
        let inside = handover.clone();
        // A thread with a table of its own, like the one that starts a replay.
        thread::spawn(move || {
            // SAFETY: no Rust value of this thread owns a descriptor.
            unsafe { unshare_unsafe(UnshareFlags::FILES) }.unwrap();
            inside.start(&[2, 0, 1]).unwrap();
            let file = tempfile::tempfile().unwrap();
            inside.hand_in(0, file.as_raw_fd());
            inside.hand_in(1, file.as_raw_fd());
            drop(file);
            let first = inside.receive(0);
            assert!(first >= 0);
            // SAFETY: open in this thread's table.
            let first = unsafe { BorrowedFd::borrow_raw(first) };
            assert_eq!(rustix::io::write(first, b"abc"), Ok(3));
            let other = inside.clone();
            thread::spawn(move || {
                // SAFETY: as above.
                unsafe { unshare_unsafe(UnshareFlags::FILES) }.unwrap();
                let second = other.receive(0);
                // The position is shared.
                // SAFETY: as above.
                let second = unsafe { BorrowedFd::borrow_raw(second) };
                assert_eq!(rustix::fs::tell(second), Ok(3));
            })
            .join()
            .unwrap();
            assert_eq!(inside.receive(2), NO_DESCRIPTOR, "nothing was handed in there");
            assert!(inside.told().unwrap().starts_with("1 descriptor"));
            crate::prepare::containment::close_all();
        })
        .join()
        .unwrap();
        handover.end();
    }
}
