//! The program from end to end. Tests that record need root and a kernel that lets it load BPF programs: where
//! CI runs they must run; elsewhere they are ignored, and say why, when something is missing.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

#[path = "../harness/mod.rs"]
mod harness;

mod block;
mod calls;
mod names;
mod recording;
mod reels;
mod replaying;
mod scope;

use std::{env, path::Path, process::ExitCode};

use block::{attribution, bytes, devices, requests, stacked, truth, uncommon, witness};
use calls::{contents, ground_truth, kernel, mapped, observer, uring, waits, workload};
use harness::{cannot_record, mount::Fs};
use libtest_mimic::{Arguments, Failed, Trial};
use names::{derived, identity};
use recording::{crowd, daemon, ends, killed, life, lossless, marks, pass_through, refusals, top};
use reels::{damaged, samples};
use replaying::{block_replay, cached, corpus, layout, replays, slices, users, written};
use scope::{filters, follow, midway, private};

fn main() -> ExitCode {
    // The recorded programs of some tests are this one.
    let words: Vec<String> = env::args().collect();
    if let [_, word, rest @ ..] = words.as_slice()
        && word == workload::WORD
    {
        return match rest {
            [base, logs] => ExitCode::from(workload::run(base, Path::new(logs), false) as u8),
            [base, logs, _lenient] => ExitCode::from(workload::run(base, Path::new(logs), true) as u8),
            _ => ExitCode::from(2),
        };
    }
    if let [_, word, dir] = words.as_slice()
        && word == midway::WORD
    {
        midway::work(Path::new(dir));
    }
    if let [_, word, dir] = words.as_slice()
        && word == crowd::WORD
    {
        crowd::work(Path::new(dir));
        return ExitCode::SUCCESS;
    }
    if let [_, word, what, dir] = words.as_slice()
        && word == attribution::WORD
    {
        attribution::run(what, Path::new(dir));
        return ExitCode::SUCCESS;
    }
    if let [_, word] = words.as_slice()
        && word == devices::WORD
    {
        devices::swap_out_and_in();
        return ExitCode::SUCCESS;
    }
    if let [_, word, file] = words.as_slice()
        && word == mapped::WORD
    {
        mapped::work(file);
        return ExitCode::SUCCESS;
    }
    if let [_, word, dir] = words.as_slice()
        && word == identity::WORD
    {
        identity::work(Path::new(dir));
        return ExitCode::SUCCESS;
    }
    if let [_, word, what, file] = words.as_slice()
        && word == lossless::WORD
    {
        lossless::work(what, file);
        return ExitCode::SUCCESS;
    }
    if let [_, word, base, log] = words.as_slice()
        && word == uring::WORD
    {
        return ExitCode::from(uring::run(base, Path::new(log)) as u8);
    }
    heed_interrupts();
    let mut arguments = Arguments::from_args();
    let missing = cannot_record();
    if missing.is_none() {
        own_mounts();
    }
    // The failure's text is told in the end; here, where it was.
    std::panic::set_hook(Box::new(|info| {
        if let Some(at) = info.location() {
            eprintln!("failed at {}:{}", at.file(), at.line());
        }
    }));
    let ci = env::var_os("CI").is_some_and(|v| v == "true" || v == "1");
    let (mut trials, mut alone) = (Vec::new(), Vec::new());
    for test in tests() {
        let batch = if ALONE.contains(&&*test.name) { &mut alone } else { &mut trials };
        let why = missing.clone().filter(|_| test.records);
        let ignored = why.is_some() && !ci;
        let name = match &why {
            Some(why) if ignored => format!("{} (needs what is missing here: {why})", test.name),
            _ => test.name,
        };
        let body = move || match why {
            Some(why) => Err(Failed::from(format!("must run where CI runs, and cannot: {why}"))),
            None => {
                (test.body)();
                Ok(())
            }
        };
        batch.push(Trial::test(name, body).with_ignored_flag(ignored));
    }
    let done = libtest_mimic::run(&arguments, trials);
    arguments.test_threads = Some(1);
    let done_alone = libtest_mimic::run(&arguments, alone);
    end_what_is_left();
    if done.has_failed() { done.exit_code() } else { done_alone.exit_code() }
}

/// What is about something that all tests share: what the page cache holds, and who waits for a CPU.
const ALONE: [&str; 4] = [
    "cached::as_it_was",
    "devices::a_mount_in_the_place_of_another",
    "ends::beside_others_on_its_disk",
    "waits::busy_cpus",
];

/// A shell lets what it starts in the background ignore interrupts, as nohup does hang-ups, which is inherited: tests send some.
fn heed_interrupts() {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: restores a default disposition; no other thread runs yet.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Ends what failed tests have started and left: a recorder that runs on, or stands still, costs the whole machine.
fn end_what_is_left() {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
    for pid in children.flat_map(|c| c.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<i32>>()) {
        // SAFETY: no test runs any more, so nobody waits for a child of this process and its number is its own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

/// A name and what it runs; a panic is a failure.
struct Test {
    name: String,
    /// Whether it records or mounts.
    records: bool,
    body: Box<dyn FnOnce() + Send>,
}

fn tests() -> Vec<Test> {
    let mut all = Vec::new();
    macro_rules! once {
        ($records:literal: $($module:ident::$test:ident)*) => {$(
            let name = concat!(stringify!($module), "::", stringify!($test)).into();
            all.push(Test { name, records: $records, body: Box::new($module::$test) });
        )*};
    }
    macro_rules! on_each_file_system {
        ($($module:ident::$test:ident)*) => {$(
            for fs in Fs::here(&Fs::ALL) {
                let name = format!(concat!(stringify!($module), "::", stringify!($test), "::{}"), fs.name());
                all.push(Test { name, records: true, body: Box::new(move || $module::$test(fs)) });
            }
        )*};
    }
    for fs in Fs::here(&Fs::RECORDED) {
        let name = format!("ground_truth::the_reel_holds_exactly_what_was_done::{}", fs.name());
        all.push(Test {
            name,
            records: true,
            body: Box::new(move || ground_truth::the_reel_holds_exactly_what_was_done(fs)),
        });
    }
    if witness::is_here() {
        for fs in Fs::here(&[Fs::Ext4, Fs::Xfs, Fs::Btrfs]) {
            let name = format!("witness::blktrace_sees_the_same::{}", fs.name());
            all.push(Test { name, records: true, body: Box::new(move || witness::blktrace_sees_the_same(fs)) });
        }
    }
    if kernel::has_nfs_server() {
        for fs in Fs::here(&[Fs::Ext4, Fs::Xfs, Fs::Btrfs]) {
            let name = format!("kernel::the_nfs_server::{}", fs.name());
            all.push(Test { name, records: true, body: Box::new(move || kernel::the_nfs_server(fs)) });
        }
    }
    if kernel::is_guest() {
        once! { true:
            kernel::ends_in_interrupts
            requests::sorted_and_merged
            requests::refused
            requests::before_a_flush
            stacked::a_mapped_device
            stacked::a_mapped_device_made_later
            stacked::an_encrypted_device
            stacked::an_array
            stacked::zones
        }
        for fs in Fs::here(&[Fs::Ext4, Fs::Xfs, Fs::Btrfs]) {
            let name = format!("kernel::files_under_an_overlay::{}", fs.name());
            all.push(Test { name, records: true, body: Box::new(move || kernel::files_under_an_overlay(fs)) });
            let name = format!("kernel::a_loop_device::{}", fs.name());
            all.push(Test { name, records: true, body: Box::new(move || kernel::a_loop_device(fs)) });
        }
    }
    for fs in Fs::here(&[Fs::Ext4, Fs::Xfs, Fs::Btrfs]) {
        let name = format!("block_replay::the_same_places::{}", fs.name());
        all.push(Test { name, records: true, body: Box::new(move || block_replay::the_same_places(fs)) });
    }
    on_each_file_system! {
        bytes::a_copy_is_seen_whole
        attribution::data_goes_to_its_file
        attribution::counts_are_the_kernels
        truth::data_is_where_fiemap_says
        uring::every_request_is_seen
        identity::names_over_time
        mapped::touches_and_stores
        mapped::the_page_cache
        mapped::readahead_asked_for
        replays::an_unpacked_archive
        replays::a_reworked_tree
        replays::moves_without_a_snapshot
        replays::rare_names
        replays::links_made_where_nothing_was
        replays::direct_io_that_is_not_aligned_here
        replays::copies_and_attributes
        waits::a_sync
    }
    for fs in [Fs::Overlay, Fs::Fuse] {
        let name = format!("truth::little_device_time_is_nobodys::{}", fs.name());
        all.push(Test { name, records: true, body: Box::new(move || truth::little_device_time_is_nobodys(fs)) });
    }
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let name = format!("waits::one_file::{}", fs.name());
        all.push(Test { name, records: true, body: Box::new(move || waits::one_file(fs)) });
    }
    for fs in Fs::here(&[Fs::Ext4, Fs::Xfs, Fs::Btrfs]) {
        let name = format!("layout::pieces_and_holes::{}", fs.name());
        all.push(Test { name, records: true, body: Box::new(move || layout::pieces_and_holes(fs, fs)) });
    }
    for (fs, to) in [(Fs::Ext4, Fs::Xfs), (Fs::Xfs, Fs::Btrfs), (Fs::Btrfs, Fs::Ext4)] {
        let name = format!("layout::pieces_and_holes::{}_on_{}", fs.name(), to.name());
        all.push(Test { name, records: true, body: Box::new(move || layout::pieces_and_holes(fs, to)) });
    }
    for fs in Fs::RECORDED {
        let name = format!("life::few_capabilities_on::{}", fs.name());
        all.push(Test { name, records: true, body: Box::new(move || life::few_capabilities_on(fs)) });
    }
    for fs in [Fs::Overlay, Fs::Fuse] {
        let name = format!("uring::every_request_is_seen::{}", fs.name());
        all.push(Test { name, records: true, body: Box::new(move || uring::every_request_is_seen(fs)) });
    }
    if refusals::may_lock_down() {
        let name = "refusals::under_lockdown".into();
        all.push(Test { name, records: true, body: Box::new(refusals::under_lockdown) });
    }
    if let Some(some) = env::var("IOREEL_CORPUS").ok().and_then(|v| Some(v.strip_prefix("foretell")?.to_owned())) {
        let body = Box::new(move || corpus::foretells(&some));
        all.push(Test { name: "corpus::foretells".into(), records: true, body });
    }
    for (i, program) in corpus::PROGRAMS.iter().enumerate() {
        let name = format!("corpus::{}", program.name);
        all.push(Test { name, records: true, body: Box::new(move || corpus::replays(i)) });
    }
    once! { false:
        daemon::the_unit_file
        damaged::a_sound_reel_is_valid
        damaged::a_missing_reel
        damaged::a_newer_format
        damaged::a_broken_manifest
        damaged::a_truncated_segment
        damaged::a_reader_that_goes_away
        samples::are_valid_and_small
    }
    once! { true:
        attribution::kinds_of_ext4
        attribution::beside_holes
        attribution::reads_of_the_disk_by_others
        attribution::bios_that_outlive_their_thread
        attribution::compressed_data_goes_to_its_file
        identity::subvolumes
        identity::an_overlay
        identity::a_container
        identity::bind_mounts
        identity::reused_numbers
        identity::nameless
        identity::ends_of_a_socket
        identity::deep
        identity::an_adopted_container
        attribution::ext4_metadata_is_what_debugfs_says
        truth::xfs_metadata_is_what_xfs_db_says
        truth::btrfs_nodes_are_of_the_trees_that_dump_tree_says
        attribution::xfs_log_is_where_xfs_db_says
        attribution::btrfs_trees_are_told_by_owner
        attribution::journalled_data_goes_to_its_file
        attribution::what_was_on_its_way
        crowd::every_call_is_there
        derived::roots_and_places
        derived::mounts
        derived::hard_links
        derived::out_of_sight
        derived::moving_places
        derived::subvolumes
        devices::an_ext4_journal_elsewhere
        devices::an_xfs_log_elsewhere
        devices::a_btrfs_mirror
        devices::btrfs_with_parity
        devices::btrfs_that_replaces_a_device
        devices::a_mount_in_the_place_of_another
        devices::a_partition
        devices::anothers_partition
        devices::compressed_memory
        devices::requests_in_workers_without_calls
        devices::swap
        devices::discards
        devices::zeroes
        devices::a_file_system_made_meanwhile
        devices::a_scrub
        uncommon::mounted_out_of_sight
        uncommon::ciphertext
        uncommon::clusters_of_small_blocks
        uncommon::parts_of_blocks
        uncommon::a_device_read_by_itself
        uncommon::a_mounted_image_read_by_itself
        pass_through::exit_status_of_the_command
        pass_through::a_command_that_is_not_there
        pass_through::input_and_output
        pass_through::what_the_command_begins_with
        pass_through::ctrl_c_on_a_terminal
        pass_through::a_signal_to_the_recorder_alone
        pass_through::arguments_of_any_bytes
        pass_through::output_that_cannot_be_written
        pass_through::an_exec_by_a_thread
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
        contents::hashes_are_those_of_the_bytes
        contents::asynchronous_writes
        contents::of_a_32_bit_program
        contents::bytes_are_kept
        contents::only_what_was_asked_for
        contents::losses_of_contents_are_counted
        contents::rotated_contents_are_counted
        contents::contents_without_room_on_the_disk
        contents::bytes_without_room_on_the_disk
        contents::vectors_and_what_brings_no_bytes
        filters::by_path
        filters::by_device
        filters::by_call
        filters::by_thread_name
        filters::by_user
        filters::by_latency
        filters::by_layer
        filters::combined
        replays::hashed_links
        filters::through_folders
        filters::where_names_begin
        filters::through_other_mounts
        filters::asynchronous_requests
        filters::of_what_is_no_call
        filters::that_cannot_be
        marks::reach_the_manifest
        top::files_processes_and_totals
        top::on_a_terminal
        top::refusals
        private::no_name_reaches_the_disk
        private::whatever_a_call_is_given
        private::a_killed_recorder_leaves_no_name
        private::one_key_makes_reels_comparable_and_afterwards_is_the_same
        midway::a_process_with_threads
        midway::two_processes
        midway::a_control_group
        midway::the_whole_machine
        midway::processes_that_end_at_once
        observer::counts_are_those_of_bpftrace
        observer::shipped_scripts_run
        waits::a_cold_read
        waits::busy_cpus
        waits::a_writer_ahead_of_its_disk
        waits::nothing_unless_asked
        waits::losses_are_exact
        refusals::no_privileges
        refusals::a_probe
        kernel::backends
        refusals::without_type_information
        refusals::no_program_is_large
        refusals::lossless_without_the_right_to_resume
        refusals::an_unknown_device
        refusals::an_unknown_process
        refusals::a_process_that_ends_meanwhile
        refusals::small_limits
        refusals::a_reel_that_is_there
        refusals::an_empty_command
        refusals::no_room_at_all
        refusals::a_full_disk
        refusals::a_disk_that_the_command_fills
        replays::a_target_that_does_not_do
        replays::inside_a_chroot
        users::owners_and_refusals
        block_replay::what_is_in_use_is_left_alone
        cached::as_it_was
        written::compresses_as_it_did
        slices::parts_of_a_program
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
        ends::beside_a_mount_that_does_not_answer
        ends::by_a_trigger_after_a_signal
        ends::by_a_terminal_that_hangs_up
        life::a_largest_size
        life::room_left_to_others
        life::few_capabilities
        life::as_inherited
        life::rotation_keeps_the_newest
        life::rotation_leaves_room
        life::rotation_hides_nothing
        life::rotation_is_no_loss
        life::a_flight_recorder
        life::a_flight_recorder_asked_before_it_began
        life::a_flight_recorder_with_a_trigger
        life::a_flight_recorder_triggered_twice
        life::a_slow_operation
        life::a_reel_removed_meanwhile
        mapped::by_many_at_once
        mapped::the_last_touch
        mapped::ranges_that_begin_elsewhere
        mapped::stores_to_what_may_be_executed
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
        killed::closed_segments_are_kept
        uring::as_many_as_fio_says
        uring::direct_on_btrfs
        uring::batches_recur
    }
    all
}

/// A mount name space of this program's own: whatever happens to it, its mounts end with it.
fn own_mounts() {
    use rustix::{
        mount::{MountPropagationFlags, mount_change},
        thread::{UnshareFlags, unshare_unsafe},
    };
    // SAFETY: one thread so far, and no descriptor table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
    // Not every machine has it mounted, and bpftrace finds tracepoints there. Where it may not be, tests say what is missing.
    if !Path::new("/sys/kernel/tracing/events").exists() {
        let mount = ["-t", "tracefs", "tracefs", "/sys/kernel/tracing"];
        let _ = std::process::Command::new("mount").args(mount).status();
    }
}
