//! Turns panics of the Parquet decoder into errors. The decoder checks much of its input, but panics on some wrong
//! lengths of a damaged file.

use std::{
    any::Any,
    cell::Cell,
    fmt::Display,
    panic::{self, AssertUnwindSafe},
    sync::Once,
};

thread_local! {
    /// Whether this thread is decoding. A panic is then an error of the file and is reported as one.
    static DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Runs a step of decoding. A panic becomes an error. After an error, do not use the objects of that step again.
pub(crate) fn decode<T, E: Display>(step: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !DECODING.get() {
                told(info);
            }
        }));
    });
    let before = DECODING.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(step));
    DECODING.set(before);
    match done {
        Ok(done) => done.map_err(|e| e.to_string()),
        Err(payload) => Err(format!("the file is damaged: {}", message(&*payload))),
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    match payload.downcast_ref::<String>() {
        Some(text) => text,
        None => payload.downcast_ref::<&str>().copied().unwrap_or("the decoder gave up"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_and_others_stay_panics() {
        #[expect(clippy::panic, reason = "the subject of this test")]
        let garbled = decode(|| -> Result<(), String> { panic!("index 7 out of range") });
        assert_eq!(garbled, Err("the file is damaged: index 7 out of range".into()));
        assert_eq!(decode(|| Err::<(), _>("plain")), Err("plain".into()));
        assert_eq!(decode(|| Ok::<_, String>(5)), Ok(5));
        assert!(!DECODING.get());
    }
}
