//! A recording's life: how it begins and ends, what it may use, what it loses, what it refuses.

pub(crate) mod crowd;
pub(crate) mod daemon;
pub(crate) mod ends;
pub(crate) mod folders;
pub(crate) mod killed;
pub(crate) mod life;
pub(crate) mod lossless;
pub(crate) mod marks;
pub(crate) mod pass_through;
pub(crate) mod places;
pub(crate) mod refusals;
pub(crate) mod rotation;
pub(crate) mod top;
pub(crate) mod unprivileged;

use crate::{
    harness::mount::Fs,
    list::{Tests, tests},
};

/// Adds the tests of this folder.
///
/// Long because it is a list.
pub(crate) fn add_to(list: &mut Tests) {
    tests! { list on &Fs::RECORDED => life::few_capabilities_on }
    tests! { list on &[Fs::Ext4, Fs::Xfs, Fs::Btrfs] => places::a_file_system_and_its_disk }
    if refusals::may_lock_down() {
        tests! { list.add: refusals::under_lockdown }
    }
    tests! { list.add_for_all:
        daemon::the_unit_file
    }
    tests! { list.add:
        crowd::every_call_is_there
        pass_through::exit_status_of_the_command
        pass_through::a_command_that_is_not_there
        pass_through::input_and_output
        pass_through::what_the_command_begins_with
        pass_through::ctrl_c_on_a_terminal
        pass_through::a_signal_to_the_recorder_alone
        pass_through::arguments_of_any_bytes
        pass_through::output_that_cannot_be_written
        pass_through::an_exec_by_a_thread
        marks::reach_the_manifest
        places::limits_of_a_control_group
        top::files_processes_and_totals
        top::on_a_terminal
        top::refusals
        refusals::no_privileges
        refusals::a_probe
        refusals::without_type_information
        refusals::no_program_is_large
        refusals::lossless_without_the_right_to_resume
        refusals::an_unknown_device
        refusals::an_unknown_process
        refusals::a_process_that_ends_meanwhile
        refusals::small_limits
        refusals::a_reel_that_is_there
        refusals::a_reel_where_no_folder_can_be
        refusals::an_empty_command
        refusals::no_room_at_all
        refusals::a_full_disk
        refusals::a_disk_that_the_command_fills
        daemon::in_the_background
        daemon::a_signal_while_it_begins
        daemon::a_log_that_cannot_be_written
        daemon::as_systemd_keeps_it
        daemon::names_laid_by_others
        life::io_in_flight_at_the_end
        life::what_a_call_is_delayed_by
        life::losses_are_exact
        life::losses_of_every_class
        life::strict_fails_on_loss
        life::a_cpu_budget
        life::what_a_budget_left_is_taken_at_the_end
        ends::of_a_budget_beside_others
        ends::of_a_command_stopped_at_its_begin
        ends::before_the_command_began
        ends::while_the_tree_is_looked_at
        ends::of_a_program_that_changes_nothing
        ends::beside_others_on_its_disk
        ends::in_a_large_folder
        ends::in_the_root_folder
        ends::whose_begin_is_told
        ends::with_what_was_recorded
        ends::beside_a_mount_that_does_not_answer
        ends::by_a_trigger_after_a_signal
        ends::by_a_terminal_that_hangs_up
        life::a_largest_size
        life::room_left_to_others
        life::few_capabilities
        life::as_inherited
        unprivileged::other_commands
        unprivileged::a_command
        unprivileged::what_is_others
        unprivileged::a_process_and_the_set_uid_program_it_runs
        rotation::rotation_keeps_the_newest
        rotation::rotation_leaves_room
        rotation::rotation_hides_nothing
        rotation::rotation_is_no_loss
        rotation::a_flight_recorder
        rotation::a_flight_recorder_asked_before_it_began
        rotation::a_flight_recorder_with_a_trigger
        rotation::a_flight_recorder_triggered_twice
        rotation::a_slow_operation
        life::a_reel_removed_meanwhile
        folders::a_reel_is_its_owners_alone
        folders::a_reel_replaced_meanwhile
        folders::a_reel_removed_from_a_quiet_recording
        lossless::loses_no_operation
        lossless::loses_no_request
        lossless::requests_in_workers
        lossless::requests_by_calls_left_out
        lossless::requests_of_a_polled_queue
        lossless::requests_behind_bios
        lossless::stores_to_memory
        lossless::loads_that_stand_still
        lossless::a_guardian_is_not_recorded
        lossless::a_guardian_resumes_when_the_recorder_is_killed
        lossless::a_stop_by_others_stays
        lossless::two_recorders_of_one_process
        lossless::stops_by_others_between_ours
        lossless::a_program_s_own_affair
        killed::at_random_instants
        killed::after_five_seconds
        killed::closed_segments_are_kept
    }
}
