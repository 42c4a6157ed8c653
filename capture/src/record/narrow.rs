//! What a recorder may record that has its capabilities from its program's file: its caller's own processes.

use super::config::{Backend, Config, Layers, Target};
use crate::{CaptureError, host};

/// Why the reel has no block layer.
pub(super) const WARNING: &str = "only operations of the caller's own processes are recorded, and no block layer: the program has its capabilities \
     from its file (setcap)";

/// The configuration without what belongs to others, if there is a caller to keep to. The block layer is left out: what
/// a disk does is everybody's.
///
/// # Errors
/// An option asks for what is others'.
pub(super) fn to_caller(config: &Config) -> Result<Option<Config>, CaptureError> {
    if config.caller.is_none() {
        return Ok(None);
    }
    if let Some(option) = beyond_caller(config) {
        return Err(CaptureError::NotCallers { option: option.into() });
    }
    if let Target::Processes(pids) = &config.target {
        for pid in pids {
            host::expect_process(*pid)?;
            host::expect_own_process(*pid)?;
        }
    }
    Ok(Some(Config { layers: Layers::Operations, backend: Backend::Tracepoint, ..config.clone() }))
}

/// The first option that asks for more than a caller may have.
fn beyond_caller(config: &Config) -> Option<&'static str> {
    match config.target {
        Target::All => return Some("--all"),
        Target::Cgroup(_) => return Some("--cgroup"),
        Target::Command(_) | Target::Processes(_) => {}
    }
    let options = [
        ("--block-only", config.layers == Layers::Block),
        ("--device", !config.devices.is_empty()),
        ("--cache", config.cache),
        ("--backend fentry", config.backend == Backend::Fentry),
    ];
    options.into_iter().find_map(|(option, given)| given.then_some(option))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::probes::session::Caller;

    fn of_caller(target: Target) -> Config {
        Config { caller: Some(Caller { uid: 1000, gid: 1000 }), ..Config::new("x.reel".into(), target) }
    }

    fn own() -> Target {
        Target::Processes(vec![std::process::id()])
    }

    #[test]
    fn without_a_caller_nothing_changes() {
        assert!(to_caller(&Config::new("x.reel".into(), Target::All)).unwrap().is_none());
    }

    #[test]
    fn a_caller_gets_operations_alone() {
        let narrowed = to_caller(&of_caller(own())).unwrap().unwrap();
        assert_eq!((narrowed.layers, narrowed.backend), (Layers::Operations, Backend::Tracepoint));
    }

    #[test]
    fn what_is_others_is_refused() {
        let refused = [
            (of_caller(Target::All), "--all"),
            (of_caller(Target::Cgroup("/".into())), "--cgroup"),
            (Config { layers: Layers::Block, ..of_caller(own()) }, "--block-only"),
            (Config { devices: vec!["sda".into()], ..of_caller(own()) }, "--device"),
            (Config { cache: true, ..of_caller(own()) }, "--cache"),
            (Config { backend: Backend::Fentry, ..of_caller(own()) }, "--backend fentry"),
        ];
        for (config, option) in refused {
            let error = to_caller(&config).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{option}: ")), "{error}");
        }
    }
}
