//! Steps that read the reel. Those of a reel that is not trusted run in confined threads.

use std::{io, thread};

use ioreel_traces::confine::{Needs, reader};

use crate::ReplayError;

/// Stack of a confined thread, as large as that of the first thread usually is.
const STACK_BYTES: usize = 8 << 20;

/// Runs a step. `untrusted`: in a thread that can do no more than read, and write what it needs.
pub(crate) fn apart<T: Send>(
    untrusted: bool,
    needs: &Needs,
    step: impl FnOnce() -> Result<T, ReplayError> + Send,
) -> Result<T, ReplayError> {
    if !untrusted {
        return step();
    }
    let failed = |source| ReplayError::Io { doing: "reading the reel in a thread of its own", source };
    let confined = || {
        reader(needs);
        step()
    };
    thread::scope(|threads| {
        let made = thread::Builder::new().name("reader".into()).stack_size(STACK_BYTES);
        let thread = made.spawn_scoped(threads, confined).map_err(failed)?;
        thread.join().map_err(|_| failed(io::Error::other("the thread panicked")))?
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn steps_of_an_untrusted_reel_are_confined_and_others_are_not() {
        let socket = || std::net::UdpSocket::bind("127.0.0.1:0").is_ok();
        assert!(apart(false, &Needs::default(), || Ok(socket())).unwrap());
        assert!(!apart(true, &Needs::default(), || Ok(socket())).unwrap());
        assert!(socket(), "the caller is not");
    }
}
