//! Runs a thread's program. All that touches a clock, a file or another thread is behind [`Engine`], so
//! that the scheduling can be tested to the nanosecond.

use crate::{
    order::{FINISH, Stamp},
    pace::{Base, Pace},
    plan::{Act, Plan},
};

/// How one operation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Index in [`Plan::recs`].
    pub rec: u32,
    /// CPU it returned on.
    pub cpu: i32,
    /// When it was to be issued by the schedule; at pace max [`crate::verdict::lateness`] says. ns of the replay.
    pub due_ns: i64,
    /// Issued.
    pub start_ns: i64,
    /// Returned.
    pub end_ns: i64,
    /// Result or -errno.
    pub ret: i64,
}

/// What a thread's program needs of the world.
pub trait Engine {
    /// ns since the replay's epoch.
    fn now_ns(&mut self) -> i64;
    /// The CPU it runs on.
    fn cpu(&mut self) -> i32;
    /// Returns at `due_ns`, never earlier.
    fn sleep_until(&mut self, due_ns: i64);
    /// Returns once the step is done.
    fn wait_for(&mut self, step: Stamp);
    /// Tells those who wait.
    fn publish(&mut self, step: u32);
    /// Does it; for a call, its result.
    fn act(&mut self, act: &Act) -> i64;
    /// Starts a thread; `base` is what its computing time counts from.
    fn spawn(&mut self, task: u32, base: Base);
    /// When an ended thread's computing was over, ns of the replay.
    fn ended_ns(&mut self, task: u32) -> i64;
}

/// Runs thread `task` from birth to end. Returns what its computing time after its end counts from.
pub fn run_program<E: Engine>(
    plan: &Plan,
    task: u32,
    pace: Pace,
    birth: Base,
    engine: &mut E,
    outcomes: &mut Vec<Outcome>,
) -> Base {
    let mut base = birth;
    for (i, step) in plan.tasks[task as usize].program.iter().enumerate() {
        for s in step.after.of(&plan.edges) {
            engine.wait_for(*s);
            if s.step == FINISH && pace == Pace::Think {
                let child = &plan.tasks[s.task as usize];
                let recorded_ns = child.exit_ns.unwrap_or(base.recorded_ns);
                base = base.later(Base { recorded_ns, now_ns: engine.ended_ns(s.task) });
            }
        }
        match step.act {
            Act::Call { rec, .. } => {
                let r = &plan.recs[rec as usize];
                let due_ns = match pace.due_ns(r.start_ns, base) {
                    Some(due_ns) => {
                        engine.sleep_until(due_ns);
                        due_ns
                    }
                    None => base.now_ns,
                };
                let start_ns = engine.now_ns();
                let ret = engine.act(&step.act);
                let end_ns = engine.now_ns();
                outcomes.push(Outcome { rec, cpu: engine.cpu(), due_ns, start_ns, end_ns, ret });
                base = Base { recorded_ns: r.end_ns, now_ns: end_ns };
            }
            Act::Spawn { task: child } => {
                let recorded_ns = plan.tasks[child as usize].start_ns;
                let now_ns = if pace == Pace::Think { base.due_ns(recorded_ns) } else { base.now_ns };
                engine.spawn(child, Base { recorded_ns, now_ns });
            }
            _ => {
                engine.act(&step.act);
            }
        }
        if step.awaited {
            engine.publish(i as u32);
        }
    }
    base
}
