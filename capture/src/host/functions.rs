//! Names of kernel functions by address, and locations in user programs.

use std::{collections::HashMap, fs};

/// Size of one record of the symbol iterator: address, length of the name, name (`struct symbol` in tasks/waits.bpf.h).
const RECORD_BYTES: usize = 72;
const NAME_AT: usize = 9;

/// The kernel's functions, sorted by address.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    functions: Vec<(u64, Box<str>)>,
}

impl Functions {
    /// Parses the records of the iterator.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut functions: Vec<(u64, Box<str>)> = bytes
            .chunks_exact(RECORD_BYTES)
            .filter_map(|r| {
                let address = u64::from_ne_bytes(r.get(..8)?.try_into().ok()?);
                let name = r.get(NAME_AT..NAME_AT + usize::from(r[8]))?;
                (address != 0).then(|| (address, String::from_utf8_lossy(name).into()))
            })
            .collect();
        functions.sort_unstable();
        // Several names may share an address: one is kept.
        functions.dedup_by_key(|f| f.0);
        Self { functions }
    }

    /// The function that contains `address`.
    pub(crate) fn name(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(start, _)| *start <= address);
        self.functions.get(after.checked_sub(1)?).map(|(_, name)| &**name)
    }
}

/// Executable mappings of processes, read from `/proc/PID/maps` when a process is first looked up.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    processes: HashMap<i32, Vec<Module>>,
}

#[derive(Debug)]
struct Module {
    start: u64,
    end: u64,
    offset_bytes: u64,
    name: Box<str>,
}

impl Modules {
    /// `module+0xoffset` for an address in a process; the bare address if it lies in no known module.
    pub(crate) fn place(&mut self, pid: i32, address: u64) -> String {
        let modules = self.processes.entry(pid).or_insert_with(|| read_modules(pid));
        let module = modules.iter().find(|m| (m.start..m.end).contains(&address));
        module.map_or_else(
            || format!("{address:#x}"),
            |m| format!("{}+{:#x}", m.name, address - m.start + m.offset_bytes),
        )
    }

    /// Call this when the process ran execve or ended.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.processes.remove(&pid);
    }
}

fn read_modules(pid: i32) -> Vec<Module> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.lines().filter_map(module).collect()
}

fn module(line: &str) -> Option<Module> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (_, offset) = (words.next()?, words.next()?);
    let path = words.nth(2)?;
    let hex = |s| u64::from_str_radix(s, 16).ok();
    let name = path.rsplit('/').next().unwrap_or(path).into();
    Some(Module { start: hex(start)?, end: hex(end)?, offset_bytes: hex(offset)?, name })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_function_that_begins_before_it() {
        let mut bytes = Vec::new();
        for (address, name) in [(200u64, "second"), (100, "first")] {
            let mut r = vec![0; RECORD_BYTES];
            r[..8].copy_from_slice(&address.to_ne_bytes());
            r[8] = name.len() as u8;
            r[NAME_AT..NAME_AT + name.len()].copy_from_slice(name.as_bytes());
            bytes.extend(r);
        }
        let s = Functions::read(&bytes);
        assert_eq!(
            [s.name(99), s.name(100), s.name(199), s.name(1 << 40)],
            [None, Some("first"), Some("first"), Some("second")]
        );
    }

    #[test]
    fn a_place_is_told_by_module_and_offset_in_its_file() {
        let m = module("7f00-8f00 r-xp 00001000 08:01 42    /usr/lib/libc.so.6").unwrap();
        assert_eq!((m.start, m.end, m.offset_bytes, &*m.name), (0x7f00, 0x8f00, 0x1000, "libc.so.6"));
        assert!(module("7f00-8f00 rw-p 00000000 00:00 0").is_none());
        let mut own = Modules::default();
        let here =
            own.place(std::process::id() as i32, a_place_is_told_by_module_and_offset_in_its_file as *const () as u64);
        assert!(here.contains("+0x"), "{here}");
    }
}
