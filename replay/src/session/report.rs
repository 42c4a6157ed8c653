//! The report of a replay that has ended: what happened, held against the original.

use std::collections::{HashMap, HashSet};

use ioreel_traces::{
    Reel,
    confine::Needs,
    manifest::{KILLED, Span},
    rows::File,
};

use crate::{
    ReplayError,
    plan::dependencies::{FINISH, Stamp},
    prepare::{
        layout::LayoutReport,
        mapped_targets::target_paths,
        page_cache::{CacheReport, CacheStart},
        path_map::Map,
        target::Target,
    },
    reel::slice::Slice,
    run::{memory_limit::MemoryReport, outcomes::Outcomes, threads::World},
    session::{
        apart::apart,
        config::{Config, Report, Summary},
    },
    verdict::{
        end_state,
        judgement::{Facts, Judgement, judge},
        recorded_tree::RecordedTree,
    },
};

/// What is known of a replay beside the outcomes of its operations.
pub(super) struct Ran {
    /// What was to be done.
    pub(super) summary: Summary,
    /// So far.
    pub(super) warnings: Vec<String>,
    /// How near files came to how they lay.
    pub(super) layout: Option<LayoutReport>,
    /// Bytes that were read into the page cache before the start.
    pub(super) resident_bytes: i64,
    /// CPU time of the process while operations were issued.
    pub(super) cpu_ns: i64,
    /// From the start to the end of syncfs.
    pub(super) synced_ns: i64,
    /// What memory was taken.
    pub(super) memory: Option<MemoryReport>,
}

/// Looks at what was left behind, judges, and reports.
pub(super) fn report(
    config: &Config,
    reel: &Reel,
    (target, maps): (&Target, &[Map]),
    world: &World,
    outcomes: &Outcomes,
    ran: Ran,
) -> Result<Report, ReplayError> {
    let mut warnings = ran.warnings;
    let dry = config.dry_run;
    let tree = if dry {
        None
    } else {
        let read = || RecordedTree::read(reel, &world.plan, !config.scale.is_none());
        let recorded = apart(config.untrusted, &Needs::default(), read).unwrap_or_else(|e| {
            warnings.push(format!("{e}; the final tree is compared with what the operations tell alone"));
            RecordedTree::default()
        });
        end_state::check(
            &world.plan,
            &recorded,
            &target.directory,
            &target_paths(target, maps).1,
            !config.force && !config.skip_prepare,
        )
        .map_err(|e| warnings.push(format!("cannot read the final tree: {e}")))
        .ok()
    };
    let lost = reel.manifest.ledger.get("ops").map_or(0, |l| l.lost);
    let mut data = world.checked();
    let bad_reads = data.as_ref().map_or(0, |d| d.bad_reads);
    name_examples(reel, data.iter_mut().flat_map(|d| &mut d.examples).map(|e| (Some(e.file), &mut e.path)).collect())?;
    let facts = Facts { lost, bad_reads, tree, dry };
    let mut verdict = judge(&world.plan, config.clockwork, outcomes, config.limits, facts);
    if reel.manifest.ended == KILLED {
        verdict.sentence += " The recording ended early: its recorder was killed.";
    }
    name_files(reel, &mut verdict)?;
    let last =
        world.plan.tasks.iter().enumerate().filter_map(|(i, _)| outcomes.until(Stamp { task: i as u32, step: FINISH }));
    let elapsed_ns = last.map(|o| o.end_ns).max().unwrap_or(0);
    let span = &reel.manifest.span;
    Ok(Report {
        pace: config.clockwork.pace.name(),
        order: config.order.name(),
        catch_up: config.clockwork.catch_up.name(),
        dry_run: dry,
        scale_footprint: config.scale.get(),
        slice: Some(config.slice).filter(|s| !s.is_whole()),
        done: outcomes.len(),
        elapsed_ns,
        original_elapsed_ns: world.plan.last_end_ns,
        synced_ns: (!dry).then_some(ran.synced_ns),
        original_synced_ns: original_synced_ns(span, &config.slice, world.plan.last_end_ns),
        shift_ns: world.shift_ns(),
        spun_ns: world.spun_ns(),
        cpu_ns: ran.cpu_ns,
        verdict,
        cache: (config.cache != CacheStart::Prepared && !dry)
            .then_some(CacheReport { start: config.cache, resident_bytes: ran.resident_bytes }),
        layout: ran.layout,
        memory: ran.memory,
        data,
        restored: None,
        warnings,
        summary: ran.summary,
    })
}

/// When the original's file systems were quiet, after the start of what was replayed.
fn original_synced_ns(span: &Span, slice: &Slice, last_end_ns: i64) -> Option<i64> {
    let end_ns = span.elapsed_ns.saturating_sub(slice.from_ns).max(last_end_ns);
    (slice.to_ns > span.elapsed_ns).then(|| end_ns.saturating_add(span.settle_ns))
}

/// Gives examples that have no path the one of their file.
fn name_files(reel: &Reel, verdict: &mut Judgement) -> Result<(), ReplayError> {
    let examples = verdict.results.differences.iter_mut().flat_map(|d| &mut d.examples);
    name_examples(reel, examples.map(|e| (e.file, &mut e.path)).collect())
}

/// Likewise, of files and where their paths go.
fn name_examples(reel: &Reel, mut examples: Vec<(Option<i64>, &mut Option<String>)>) -> Result<(), ReplayError> {
    examples.retain(|(file, path)| path.is_none() && file.is_some());
    let wanted: HashSet<i64> = examples.iter().filter_map(|(file, _)| *file).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut paths = HashMap::new();
    for file in reel.rows::<File>() {
        let file = file?;
        if wanted.contains(&file.file) {
            paths.insert(file.file, file.path.map(|p| p.to_string()));
        }
    }
    for (file, path) in examples {
        *path = file.and_then(|f| paths.get(&f).cloned().flatten());
    }
    Ok(())
}
