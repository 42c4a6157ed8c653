//! Memory mappings of files: effect of mmap, mremap and munmap, and which mapping a touch is in.

use crate::{
    Call, Skip,
    model::{
        machine::Machine,
        names::NO_NODE,
        operands::Operands,
        processes::{LeftOutMapping, Mapping},
    },
    reel::input::{NO_ID, Rec},
};

/// Lengths of mappings are rounded up to pages.
const PAGE_BYTES: i64 = 4096;

impl Machine {
    /// Why a process does not have a mapping: the reason for which the one that `is_it` was not made.
    fn why_not_mapped(&mut self, maps: usize, is_it: impl Fn(i64, &LeftOutMapping) -> bool) -> Skip {
        let all = self.processes.left_out_maps.get(&maps);
        self.processes.work += all.map_or(0, |all| all.len() as u64 / 64);
        let found = all.and_then(|all| all.iter().find(|(at, m)| is_it(**at, m)));
        found.map_or(Skip::NoMapping, |(_, m)| m.why)
    }

    /// Applies an operation on mappings. Sets `slot` to the slot of a new mapping, `fd` to the slot of the existing
    /// one, and `kept.offset2_bytes` to the offset within that.
    pub(crate) fn mappings(
        &mut self,
        r: &Rec,
        v: &Operands,
        (slot, fd): (&mut u32, &mut i32),
        kept: &mut Rec,
    ) -> Result<(), Skip> {
        let maps = self.processes.of(r.task as usize).maps;
        match r.call {
            Call::Mmap if r.ret > 0 => {
                if let Some(why) = v.skip {
                    let out = LeftOutMapping { len_bytes: r.len_bytes, file: r.file, why };
                    self.processes.left_out_maps.entry(maps).or_default().insert(r.ret, out);
                } else {
                    *slot = self.processes.new_map(r.task as usize);
                    let ofd = v.entry.map(|e| &self.processes.ofds[e.ofd as usize]);
                    let mapped = Mapping {
                        len_bytes: r.len_bytes,
                        slot: *slot,
                        file: ofd.map_or(NO_ID, |o| o.file),
                        node: ofd.map_or(NO_NODE, |o| o.node),
                        offset_bytes: r.offset_bytes.max(0),
                        prot: r.mode,
                        flags: r.flags as i32,
                    };
                    self.processes.mapped.insert(mapped.file);
                    self.processes.maps[maps].value.insert(r.ret, mapped);
                }
                Ok(())
            }
            c if c.on_mapping() => {
                let known = &mut self.processes.maps[maps].value;
                let hit = known.range(..=r.aux).next_back().filter(|(at, m)| r.aux < at.saturating_add(m.len_bytes));
                let Some((at, m)) = hit.map(|(at, m)| (*at, *m)) else {
                    return Err(
                        self.why_not_mapped(maps, |at, m| (at..at.saturating_add(m.len_bytes)).contains(&r.aux))
                    );
                };
                *fd = m.slot as i32;
                // Offset within the mapping.
                kept.offset2_bytes = r.aux - at;
                kept.len_bytes = r.len_bytes.min(at.saturating_add(m.len_bytes) - r.aux).max(0);
                let whole = r.aux == at && r.len_bytes.saturating_add(PAGE_BYTES - 1) >= m.len_bytes;
                if r.call == Call::Mremap {
                    if !whole || r.flags & !i64::from(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) != 0 {
                        return Err(Skip::NoMapping);
                    }
                    if r.ret > 0 {
                        known.remove(&at);
                        known.insert(r.ret, Mapping { len_bytes: r.aux2, ..m });
                    }
                }
                if r.call == Call::Munmap && r.ret == 0 && whole {
                    known.remove(&at);
                    self.processes.free_map(r.task as usize, m.slot);
                }
                Ok(())
            }
            c if c.touches() => {
                let known = &self.processes.maps[maps].value;
                self.processes.work += known.len() as u64 / 64;
                let holds = |m: &&Mapping| {
                    m.file == r.file
                        && (c != Call::Dirty || m.stores())
                        && r.offset_bytes >= m.offset_bytes
                        && r.offset_bytes - m.offset_bytes < m.len_bytes
                };
                let Some(m) = known.values().filter(holds).max_by_key(|m| m.stores()).copied() else {
                    return Err(self.why_not_mapped(maps, |_, m| m.file == r.file && r.file != NO_ID));
                };
                *fd = m.slot as i32;
                kept.offset2_bytes = r.offset_bytes - m.offset_bytes;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
