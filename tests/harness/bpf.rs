//! Which BPF programs of ioreel the kernel holds, asked of the kernel itself.

use std::{collections::HashSet, fs};

/// `bpf(2)` commands and the sizes of what they take, from include/uapi/linux/bpf.h.
const BPF_PROG_GET_NEXT_ID: i64 = 11;
const BPF_PROG_GET_FD_BY_ID: i64 = 13;
const BPF_OBJ_GET_INFO_BY_FD: i64 = 15;

fn bpf(command: i64, attr: &mut [u32; 4]) -> i64 {
    // SAFETY: `attr` is 16 bytes, of which these commands read or write no more.
    unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), 16) }
}

/// The name of the program with this id; it may have gone meanwhile.
fn name_of(id: u32) -> Option<String> {
    let fd = bpf(BPF_PROG_GET_FD_BY_ID, &mut [id, 0, 0, 0]);
    if fd < 0 {
        return None;
    }
    // struct bpf_prog_info: the name is 16 bytes from offset 64.
    let mut info = [0u8; 80];
    let address = info.as_mut_ptr() as u64;
    let told = bpf(BPF_OBJ_GET_INFO_BY_FD, &mut [fd as u32, info.len() as u32, address as u32, (address >> 32) as u32]);
    // SAFETY: the descriptor is this function's own.
    unsafe { libc::close(fd as i32) };
    let name: Vec<u8> = info[64..].iter().copied().take_while(|b| *b != 0).collect();
    (told >= 0).then(|| String::from_utf8_lossy(&name).into_owned())
}

/// Programs called as ioreel's are that no running process holds.
pub(crate) fn left_behind() -> Vec<String> {
    const OURS: [&str; 8] =
        ["op_enter", "op_exit", "task_fork", "task_exec", "task_exit", "bio_queue", "rq_issue", "rq_complete"];
    let mut held = HashSet::new();
    for info in fs::read_dir("/proc").unwrap().flatten() {
        for fd in fs::read_dir(info.path().join("fdinfo")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(fd.path()).unwrap_or_default();
            held.extend(text.lines().filter_map(|l| l.strip_prefix("prog_id:")?.trim().parse::<u32>().ok()));
        }
    }
    let mut left = Vec::new();
    let mut attr = [0u32; 4];
    while bpf(BPF_PROG_GET_NEXT_ID, &mut attr) == 0 {
        let id = attr[1];
        if !held.contains(&id)
            && let Some(name) = name_of(id)
            && OURS.contains(&name.as_str())
        {
            left.push(format!("{name} ({id})"));
        }
        attr = [id, 0, 0, 0];
    }
    left
}
