//! What is recorded and what is not: filters, processes, names that are kept secret.

pub(crate) mod filters;
pub(crate) mod follow;
pub(crate) mod midway;
pub(crate) mod private;

use crate::list::{Tests, tests};

/// Adds the tests of this folder.
pub(crate) fn add_to(list: &mut Tests) {
    tests! { list.add:
        follow::forks_and_execs
        follow::a_recorder_in_a_container
        follow::very_many_at_a_time
        follow::a_daemon
        follow::a_running_process_for_a_while
        follow::a_write_that_does_not_append
        follow::a_while_is_kept_by_a_recorder_that_is_behind
        follow::a_while_of_a_program_that_writes_on
        follow::a_running_process_to_its_end
        follow::a_command_for_a_while
        filters::by_path
        filters::by_device
        filters::by_call
        filters::by_thread_name
        filters::by_user
        filters::by_latency
        filters::by_layer
        filters::combined
        filters::through_folders
        filters::where_names_begin
        filters::through_other_mounts
        filters::asynchronous_requests
        filters::of_what_is_no_call
        filters::that_cannot_be
        private::no_name_reaches_the_disk
        private::whatever_a_call_is_given
        private::a_killed_recorder_leaves_no_name
        private::one_key_makes_reels_comparable_and_afterwards_is_the_same
        midway::a_process_with_threads
        midway::two_processes
        midway::a_control_group
        midway::the_whole_machine
        midway::processes_that_end_at_once
    }
}
