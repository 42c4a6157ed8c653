//! The plan of a reel, made as often as it takes to know what belongs to its roots.

use std::mem;

use ioreel_traces::Reel;

use crate::{
    Config, ReplayError, Slice,
    base::paths::{is_at_or_below, normal},
    contents::slice_contents::ChangedFiles,
    model::names::{InitialState, NodeId, State},
    plan::{
        planner::{PlanOptions, plan},
        program::Plan,
    },
    prepare::page_cache::CacheStart,
    reel::{input::Input, residence::Residence},
};

/// So often a plan is made, at most, to learn which places outside its roots belong to it: a second one shows more only where something
/// came from within what strayed. What then still goes over the border is left out, and what follows from it told as wrong.
const ROUNDS: usize = 16;

/// Plans, and tells how many places outside the roots are replayed as well. These are those of the whole reel: one slice leaves what the
/// next one needs.
///
/// # Errors
/// When the reel cannot be read, or the plan not be kept.
pub(crate) fn plan_within(reel: &Reel, config: &Config, mut options: PlanOptions) -> Result<(Plan, i64), ReplayError> {
    let named_roots = options.roots.len();
    let is_slice = options.slice.from_ns > 0 || options.slice.to_ns < i64::MAX;
    let whole =
        |options: &PlanOptions| plan(input(reel, config)?, PlanOptions { slice: Slice::default(), ..options.clone() });
    let mut known = if named_roots > 0 { Some(whole(&options)?) } else { None };
    for _ in 1..ROUNDS {
        let strayed = known.as_mut().map(|plan| mem::take(&mut plan.strayed)).unwrap_or_default();
        if strayed.is_empty() {
            break;
        }
        options.roots.extend(strayed);
        // Not two at a time.
        drop(known.take());
        known = Some(whole(&options)?);
    }
    let strayed = (options.roots.len() - named_roots) as i64;
    let mut plan = match known.filter(|_| !is_slice) {
        Some(plan) => plan,
        None => plan(input(reel, config)?, options)?,
    };
    check_roots(config, &plan)?;
    if !config.skip_prepare {
        // All is filled anew.
        plan.keys.written = ChangedFiles::default();
    }
    Ok((plan, strayed))
}

/// Refuses roots that nothing of the reel is in.
fn check_roots(config: &Config, plan: &Plan) -> Result<(), ReplayError> {
    let is_known = |node: NodeId| {
        let is_present = matches!(plan.names.before(node), InitialState::Present { .. });
        is_present || matches!(plan.names.now(node), State::Present { .. } | State::Absent)
    };
    let is_in = |node: NodeId, root: &[u8]| is_at_or_below(&plan.names.path(node), root);
    let roots: Vec<Vec<u8>> = config.roots.iter().map(|root| normal(root)).collect();
    let is_used = |root: &Vec<u8>| (1..plan.names.len() as NodeId).any(|node| is_known(node) && is_in(node, root));
    match config.roots.first() {
        Some(root) if !roots.iter().any(is_used) => Err(ReplayError::NothingInRoot { root: root.clone() }),
        _ => Ok(()),
    }
}

fn input(reel: &Reel, config: &Config) -> Result<Input, ReplayError> {
    let mut input = Input::read(reel)?;
    if config.cache == CacheStart::Recorded {
        input.residence = Residence::read(reel, config.slice.from_ns)?;
    }
    Ok(input)
}
