//! Limits of a replay on memory, tasks and threads.

use crate::{
    ReplayError,
    prepare::page_cache::CacheStart,
    run::{
        control_group::{ControlGroup, DefaultLimits},
        memory_limit::MemoryLimit,
        threads::{MOST_THREADS, MOST_UNTRUSTED_THREADS},
    },
    session::config::Config,
};

/// Limits memory and tasks of this process, where they are not limited by an option and a control group can be made.
pub(super) fn control_group(config: &Config) -> Option<ControlGroup> {
    if !config.control_group || config.memory_limit.is_some() || config.dry_run {
        return None;
    }
    let limits = DefaultLimits::of(most_threads(config), config.untrusted);
    ControlGroup::enter(limits)
        .inspect(|group| {
            let DefaultLimits { memory_bytes, tasks } = limits;
            let path = group.path().display();
            log::info!("control group {path}: at most {} MiB of memory and {tasks} tasks", memory_bytes >> 20);
        })
        .inspect_err(|why| log::info!("memory and tasks of the replay are not limited by a control group: {why}"))
        .ok()
}

/// Threads that run at the same time, at most.
pub(super) fn most_threads(config: &Config) -> usize {
    if config.untrusted { MOST_UNTRUSTED_THREADS } else { MOST_THREADS }
}

/// The limit on memory that is asked for; what else depends on it is set.
pub(super) fn limit_memory(config: &mut Config) -> Result<Option<MemoryLimit>, ReplayError> {
    let limit = config.memory_limit.map(MemoryLimit::make).transpose()?;
    if let Some(bytes) = config.memory_limit {
        // What is cached from before would not count.
        if config.cache == CacheStart::Prepared {
            config.cache = CacheStart::Cold;
        }
        config.memory_bytes = config.memory_bytes.min(bytes as usize / 8);
    }
    Ok(limit)
}
