//! The plan of a reel, made as often as it takes to know what belongs to its roots.

use std::mem;

use ioreel_traces::Reel;

use crate::{
    Config, ReplayError, Slice,
    contents::slice_contents::ChangedFiles,
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
    if !config.skip_prepare {
        // All is filled anew.
        plan.keys.written = ChangedFiles::default();
    }
    Ok((plan, strayed))
}

fn input(reel: &Reel, config: &Config) -> Result<Input, ReplayError> {
    let mut input = Input::read(reel)?;
    if config.cache == CacheStart::Recorded {
        input.residence = Residence::read(reel, config.slice.from_ns)?;
    }
    Ok(input)
}
