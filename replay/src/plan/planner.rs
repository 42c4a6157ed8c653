//! Makes the plan of a reel: visits operations in an order in which their results can recur, and makes a program for
//! each thread.
//!
//! [`Planner`] holds the parts: the recorded machine ([`Machine`]), the unfinished programs ([`Programs`]), and the
//! state of requests, races and pipes. [`crate::plan::walk`] visits the operations, [`crate::plan::commit`] passes one
//! operation to all parts.

use std::collections::HashMap;

use crate::{
    ReplayError,
    model::machine::{Machine, MachineOptions},
    plan::{
        dependencies::{Order, OrderMode},
        edge::Kinds,
        gaps::Gaps,
        initial_descriptors::Begin,
        messages::Messages,
        overlap::ResolvedNames,
        pipes::Pipes,
        pool::Pool,
        program::Plan,
        programs::Programs,
        races::Races,
        requests::Requests,
        store::DEFAULT_MEMORY_BYTES,
    },
    reel::{footprint::Scale, input::Input, slice::Slice},
};

/// Options of a plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Which order between threads to enforce.
    pub order: OrderMode,
    /// Kinds of edges to drop from it.
    pub without: Kinds,
    /// `--root`: absolute prefixes that the replay is limited to; empty for no limit.
    pub roots: Vec<Vec<u8>>,
    /// The replay runs as root, so owners can be set.
    pub privileged: bool,
    /// Set-ID bits and privileged attributes are replayed: see [`crate::base::privileges`].
    pub set_ids: bool,
    /// Device nodes are replayed: see [`crate::model::device_nodes`].
    pub device_nodes: bool,
    /// Size of the plan in memory, bytes; the rest goes to an unnamed file.
    pub memory_bytes: usize,
    /// The part of the reel to replay.
    pub slice: Slice,
    /// Scale of file sizes.
    pub scale: Scale,
    /// Data is generated from file and position (`--verify`).
    pub keep_keys: bool,
    /// The target can share data between files.
    pub shares_data: bool,
    /// The target can have subvolumes of btrfs.
    pub subvolumes: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            order: OrderMode::default(),
            without: Kinds::NONE,
            roots: Vec::new(),
            privileged: false,
            set_ids: false,
            device_nodes: false,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            slice: Slice::default(),
            scale: Scale::NONE,
            keep_keys: false,
            shares_data: false,
            subvolumes: false,
        }
    }
}

/// The parts of an unfinished plan.
pub(crate) struct Planner {
    pub(crate) options: PlanOptions,
    /// The recorded machine as of the current operation.
    pub(crate) machine: Machine,
    /// The programs of the threads, as far as they are made.
    pub(crate) programs: Programs,
    /// Requests (io_uring, AIO) in flight.
    pub(crate) requests: Requests,
    /// Descriptors that messages bring.
    pub(crate) messages: Messages,
    /// Requests and name changes that overlap.
    pub(crate) races: Races,
    pub(crate) pipes: Pipes,
    /// Operations in flight.
    pub(crate) pool: Pool,
    /// Resolved operands of operations in flight, by id.
    pub(crate) looks: Vec<Option<ResolvedNames>>,
    /// Work done so far on comparing operations in flight.
    pub(crate) compared: u64,
    /// What threads have open and mapped before their first step.
    pub(crate) begin: Begin,
    /// Index in `begin.unnamed`, by file.
    pub(crate) unnamed: HashMap<i64, u32>,
    /// Return of the last operation, ns of the plan.
    pub(crate) last_end_ns: i64,
    /// Some operations start at the target's root although their thread has another root directory.
    pub(crate) from_top: bool,
}

/// Makes the plan of a reel.
///
/// # Errors If the reel cannot be read or the plan cannot be stored.
pub fn plan(input: Input, options: PlanOptions) -> Result<Plan, ReplayError> {
    let mut planner = Planner::new(input, options);
    planner.walk()?;
    planner.finish()
}

impl Planner {
    fn new(input: Input, options: PlanOptions) -> Self {
        let before_slice = options.slice.from_ns > 0;
        // Operations before the slice are not planned, so they need no order.
        let order = if before_slice {
            Order::new(OrderMode::None, Kinds::NONE)
        } else {
            Order::new(options.order, options.without)
        };
        let machine = Machine::new(
            input,
            &MachineOptions {
                roots: &options.roots,
                privileged: options.privileged,
                set_ids: options.set_ids,
                device_nodes: options.device_nodes,
                footprint: options.scale,
                keep_keys: options.keep_keys,
                shares_data: options.shares_data,
                subvolumes: options.subvolumes,
                before_slice,
            },
        );
        let mut planner = Self {
            machine,
            programs: Programs::new(order, options.memory_bytes, before_slice),
            requests: Requests::default(),
            messages: Messages::default(),
            races: Races::default(),
            pipes: Pipes::default(),
            pool: Pool::default(),
            compared: 0,
            looks: Vec::new(),
            begin: Begin::default(),
            unnamed: HashMap::new(),
            last_end_ns: 0,
            from_top: false,
            options,
        };
        planner.programs.grow(planner.machine.reel.tasks.len());
        planner.start_roots();
        planner.hand_in();
        planner
    }

    /// Completes the plan after the last operation.
    fn finish(self) -> Result<Plan, ReplayError> {
        let Self { options, mut machine, mut programs, requests, messages, begin, last_end_ns, from_top, .. } = self;
        if programs.before_slice {
            return Err(ReplayError::NothingAfter { from_ns: options.slice.from_ns, last_ns: last_end_ns });
        }
        for task in 0..programs.tasks.len() {
            programs.seal(task);
        }
        if let Some(source) = programs.failed {
            return Err(ReplayError::Io {
                doing: "storing the plan in the folder for temporary files (TMPDIR)",
                source,
            });
        }
        for (why, n) in std::mem::take(&mut machine.reel.other_layers) {
            *programs.skipped.entry(why).or_default() += n;
        }
        let strayed = machine.strayed();
        machine.names.unfold();
        let end_sizes = machine.end_sizes();
        let makes_devices = machine.makes_devices();
        let mut plan = Plan {
            end_sizes,
            tasks: programs.tasks,
            task_index: machine.reel.task_index,
            store: programs.store,
            fd_slots: machine.processes.slots as usize,
            map_slots: machine.processes.map_slots as usize,
            tree: machine.reel.tree,
            calls: programs.calls,
            skipped: programs.skipped,
            gaps: Gaps { unfollowed_mounts: machine.unfollowed_mounts, ..programs.gaps },
            unknown: machine.reel.unknown,
            strayed,
            implied: requests.implied + messages.received,
            receipts: messages.receipts,
            ring_flags: machine.reel.ring_flags,
            names: machine.names,
            sizes: machine.sizes,
            longest_write_bytes: programs.longest_write_bytes,
            last_end_ns,
            begin,
            users_change: machine.users_change,
            resident: machine.reel.residence.map(crate::reel::residence::Residence::take).unwrap_or_default(),
            keys: machine.keys,
            told: programs.recorded_data,
            attributes: machine.attributes,
            slice: options.slice,
            privileged: options.privileged,
            set_ids: options.set_ids,
            set_ids_left_out: machine.set_ids_left_out,
            makes_devices,
            subvolumes: machine.subvolumes_before,
            device_nodes_left_out: machine.device_nodes_left_out,
            recorder: machine.reel.recorder,
            from_top,
        };
        plan.finish();
        plan.finish_begin();
        Ok(plan)
    }
}
