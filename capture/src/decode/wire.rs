//! Parses records from the bytes of the rings: pure functions, without libbpf and without state.

use std::mem::size_of;

use ioreel_bpf::types::{
    op_tail, rec_aio, rec_aio_end, rec_bio, rec_cache, rec_commit, rec_content, rec_exec, rec_fault, rec_fd, rec_file,
    rec_hdr, rec_map, rec_op, rec_passed, rec_place, rec_rq, rec_task, rec_type, rec_uring, rec_uring_paths,
    rec_uring_ring, rec_vfs, rec_wait, rq_part, rq_slot,
};

/// `cpu` of records made by iterators, which have no sequence numbers (`WIRE_NO_CPU`).
pub const NO_CPU: u16 = 0xffff;

/// Space of the kernel stack in a record that also has a user stack (`WIRE_STACK_DEPTH` addresses).
const STACK_ROOM_BYTES: usize = 48 * 8;

/// A record. Its variable parts borrow from the ring's bytes. Records of the block layer are parsed by [`block`].
#[derive(Debug)]
pub enum Record<'a> {
    /// An operation, and its tail if it has one.
    Op(rec_op, Option<Tail<'a>>),
    /// A file seen for the first time; its path, and its path from the root of its file system.
    File(rec_file, &'a [u8], &'a [u8]),
    /// A thread was created or adopted.
    Task(rec_task),
    /// A program was executed; its path.
    Exec(rec_exec, &'a [u8]),
    /// A thread has another name.
    Named(rec_task),
    /// A thread ended.
    Exit(rec_task),
    /// An open descriptor of an adopted task; the two paths of its file.
    Fd(rec_fd, &'a [u8], &'a [u8]),
    /// State of an adopted task; the paths of its working directory and root.
    Place(rec_place, &'a [u8], &'a [u8]),
    /// A file that an adopted process has mapped; its two paths.
    Map(rec_map, &'a [u8], &'a [u8]),
    /// A thread is no longer recorded, for example because it left the cgroup.
    Left(rec_task),
    /// A thread was off its CPU; its kernel stack and user stack as raw addresses.
    Wait(rec_wait, &'a [u8], &'a [u8]),
    /// The snapshot of the adopted tasks is complete.
    Looked(rec_hdr),
    /// A descriptor was received with SCM_RIGHTS.
    Passed(rec_passed),
    /// A Linux AIO request was submitted.
    Aio(rec_aio),
    /// A Linux AIO request completed.
    AioEnd(rec_aio_end),
    /// A page of a mapped file was accessed.
    Fault(rec_fault),
    /// A page cache event.
    Cache(rec_cache),
    /// A commit of a journal or log ended.
    Commit(rec_commit),
    /// File I/O by the kernel itself.
    Vfs(rec_vfs),
    /// Bytes written by a write.
    Content(rec_content, &'a [u8]),
    /// An io_uring request ended.
    Uring(rec_uring),
    /// The paths of an io_uring request.
    UringPaths(rec_uring_paths, &'a [u8], &'a [u8]),
    /// An io_uring was created.
    UringRing(rec_uring_ring),
    /// A completion overflowed the completion queue.
    UringOverflow(rec_uring_ring),
}

/// The tail of an operation.
#[derive(Debug)]
pub struct Tail<'a> {
    /// Fixed part.
    pub fixed: op_tail,
    /// First path, without NUL.
    pub path: &'a [u8],
    /// Second path, without NUL.
    pub path2: &'a [u8],
    /// A string argument that is not a path.
    pub name: &'a [u8],
    /// Memory that the call read.
    pub input: &'a [u8],
    /// Memory that the call wrote.
    pub output: &'a [u8],
}

/// Types that consist of integers only, so any bytes are a valid value.
///
/// # Safety
/// The type must have no padding that matters and no invalid bit patterns.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: generated from C structs of fixed-width integers and arrays of them.
unsafe impl Plain for rec_hdr {}
// SAFETY: as above.
unsafe impl Plain for rec_op {}
// SAFETY: as above.
unsafe impl Plain for op_tail {}
// SAFETY: as above.
unsafe impl Plain for rec_file {}
// SAFETY: as above.
unsafe impl Plain for rec_task {}
// SAFETY: as above.
unsafe impl Plain for rec_exec {}
// SAFETY: as above.
unsafe impl Plain for rec_fd {}
// SAFETY: as above.
unsafe impl Plain for rec_place {}
// SAFETY: as above.
unsafe impl Plain for rec_map {}
// SAFETY: as above.
unsafe impl Plain for rec_wait {}
// SAFETY: as above.
unsafe impl Plain for rec_bio {}
// SAFETY: as above.
unsafe impl Plain for rec_rq {}
// SAFETY: as above.
unsafe impl Plain for rq_part {}
// SAFETY: as above.
unsafe impl Plain for rq_slot {}
// SAFETY: as above.
unsafe impl Plain for rec_passed {}
// SAFETY: as above.
unsafe impl Plain for rec_aio {}
// SAFETY: as above.
unsafe impl Plain for rec_aio_end {}
// SAFETY: as above.
unsafe impl Plain for rec_fault {}
// SAFETY: as above.
unsafe impl Plain for rec_cache {}
// SAFETY: as above.
unsafe impl Plain for rec_commit {}
// SAFETY: as above.
unsafe impl Plain for rec_vfs {}
// SAFETY: as above.
unsafe impl Plain for rec_uring {}
// SAFETY: as above.
unsafe impl Plain for rec_uring_paths {}
// SAFETY: as above.
unsafe impl Plain for rec_uring_ring {}
// SAFETY: as above.
unsafe impl Plain for rec_content {}

fn take<T: Plain>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let (head, rest) = bytes.split_at_checked(size_of::<T>())?;
    // SAFETY: `head` holds size_of::<T>() bytes and any bytes are a T; read_unaligned asks no alignment.
    Some((unsafe { head.as_ptr().cast::<T>().read_unaligned() }, rest))
}

/// The value at the start of `bytes`.
pub(crate) fn whole<T: Plain>(bytes: &[u8]) -> Option<T> {
    take(bytes).map(|(value, _)| value)
}

/// Reads a record whose rarely used last members may not have been sent; those are zero.
#[inline]
fn take_head<T: Plain>(bytes: &[u8], least: usize) -> Option<T> {
    if bytes.len() < least {
        return None;
    }
    let len = bytes.len().min(size_of::<T>());
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: `len` bytes are readable at the one and writable at the other; any bytes are a T.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), len);
        Some(value.assume_init())
    }
}

/// The header of the record at the start of `bytes`; `None` if it is cut off or its length does not fit.
pub fn header(bytes: &[u8]) -> Option<rec_hdr> {
    let (hdr, _) = take::<rec_hdr>(bytes)?;
    let len = hdr.len_bytes as usize;
    (len >= size_of::<rec_hdr>() && len <= bytes.len()).then_some(hdr)
}

/// Whether the record describes a file.
pub fn is_file(hdr: &rec_hdr) -> bool {
    u32::from(hdr.r#type) == rec_type::REC_FILE.0
}

/// The record at the start of `bytes`, if it is an operation. Most are, and this avoids a second copy of them.
pub fn op(bytes: &[u8]) -> Option<(rec_op, Option<Tail<'_>>)> {
    let hdr = header(bytes)?;
    let (op, rest) = take::<rec_op>(&bytes[..hdr.len_bytes as usize])?;
    match rec_type(u32::from(hdr.r#type)) {
        rec_type::REC_OP => Some((op, None)),
        rec_type::REC_OP_LONG => tail(rest).map(|t| (op, Some(t))),
        _ => None,
    }
}

/// The record at the start of `bytes`, if it belongs to the block layer: a request, a bio, or both.
#[inline]
pub fn block(bytes: &[u8]) -> Option<(Option<rec_rq>, Option<rec_bio>)> {
    const HEAD_BYTES: usize = std::mem::offset_of!(rec_bio, comm);
    let hdr = header(bytes)?;
    let bytes = &bytes[..hdr.len_bytes as usize];
    match rec_type(u32::from(hdr.r#type)) {
        rec_type::REC_RQ => Some((Some(whole(bytes)?), None)),
        rec_type::REC_BIO => Some((None, Some(take_head(bytes, HEAD_BYTES)?))),
        rec_type::REC_RQ_BIO => {
            let bio: rec_bio = take_head(bytes.get(..HEAD_BYTES)?, HEAD_BYTES)?;
            let part: rq_part = whole(&bytes[HEAD_BYTES..])?;
            let rq = rec_rq {
                hdr,
                rq_id: bio.rq_id,
                queue_ns: bio.queue_ns,
                issue_ns: part.issue_ns,
                sector: bio.sector,
                dev: bio.dev,
                len_bytes: bio.len_bytes,
                opf: part.opf,
                error: bio.error,
                issue_cpu: u32::from(part.issue_cpu),
                requeues: u32::from(part.requeues),
                bios: 1,
                no_end: 0,
            };
            Some((Some(rq), Some(bio)))
        }
        _ => None,
    }
}

/// Sequence numbers that the record uses: one per event in it.
pub fn numbers(hdr: &rec_hdr) -> u64 {
    if u32::from(hdr.r#type) == rec_type::REC_RQ_BIO.0 { 2 } else { 1 }
}

/// Parses the tail of an operation. Padding up to a multiple of the slot size may follow.
fn tail(bytes: &[u8]) -> Option<Tail<'_>> {
    let (fixed, rest) = take::<op_tail>(bytes)?;
    let (path, rest) = rest.split_at_checked(usize::from(fixed.path_bytes))?;
    let (path2, rest) = rest.split_at_checked(usize::from(fixed.path2_bytes))?;
    let (name, rest) = rest.split_at_checked(usize::from(fixed.name_bytes))?;
    let (input, rest) = rest.split_at_checked(usize::from(fixed.in_bytes))?;
    let (output, _) = rest.split_at_checked(usize::from(fixed.out_bytes))?;
    Some(Tail { fixed, path, path2, name, input, output })
}

/// Parses the record at the start of `bytes`; `None` if it is cut off or its type is unknown.
pub fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    let hdr = header(bytes)?;
    let bytes = &bytes[..hdr.len_bytes as usize];
    Some(match rec_type(u32::from(hdr.r#type)) {
        rec_type::REC_OP => Record::Op(take(bytes)?.0, None),
        rec_type::REC_OP_LONG => {
            let (op, rest) = take::<rec_op>(bytes)?;
            Record::Op(op, Some(tail(rest)?))
        }
        rec_type::REC_FILE => {
            let (rec, rest) = take::<rec_file>(bytes)?;
            let (path, fs_path) = rest.split_at_checked(rec.path_bytes as usize)?;
            Record::File(rec, path, fs_path)
        }
        rec_type::REC_TASK => Record::Task(take(bytes)?.0),
        rec_type::REC_EXEC => {
            let (rec, path) = take::<rec_exec>(bytes)?;
            Record::Exec(rec, path)
        }
        rec_type::REC_NAMED => Record::Named(take(bytes)?.0),
        rec_type::REC_EXIT => Record::Exit(take(bytes)?.0),
        rec_type::REC_FD => {
            let (rec, rest) = take::<rec_fd>(bytes)?;
            let (path, fs_path) = rest.split_at_checked(rec.path_bytes as usize)?;
            Record::Fd(rec, path, fs_path)
        }
        rec_type::REC_PLACE => {
            let (rec, rest) = take::<rec_place>(bytes)?;
            let (cwd, root) = rest.split_at_checked(rec.cwd_bytes as usize)?;
            Record::Place(rec, cwd, root)
        }
        rec_type::REC_MAP => {
            let (rec, rest) = take::<rec_map>(bytes)?;
            let (path, fs_path) = rest.split_at_checked(rec.path_bytes as usize)?;
            Record::Map(rec, path, fs_path)
        }
        rec_type::REC_LEFT => Record::Left(take(bytes)?.0),
        rec_type::REC_WAIT => {
            let (rec, rest) = take::<rec_wait>(bytes)?;
            let (kernel, _) = rest.split_at_checked(rec.kernel_bytes as usize)?;
            let user = match rec.user_bytes as usize {
                0 => &[][..],
                n => rest.get(STACK_ROOM_BYTES..STACK_ROOM_BYTES + n)?,
            };
            Record::Wait(rec, kernel, user)
        }
        rec_type::REC_LOOKED => Record::Looked(hdr),
        rec_type::REC_PASSED => Record::Passed(take(bytes)?.0),
        rec_type::REC_AIO => Record::Aio(take(bytes)?.0),
        rec_type::REC_AIO_END => Record::AioEnd(take(bytes)?.0),
        rec_type::REC_FAULT => Record::Fault(take(bytes)?.0),
        rec_type::REC_CACHE => Record::Cache(take(bytes)?.0),
        rec_type::REC_COMMIT => Record::Commit(take(bytes)?.0),
        rec_type::REC_VFS => Record::Vfs(take(bytes)?.0),
        rec_type::REC_CONTENT => {
            let (rec, bytes) = take::<rec_content>(bytes)?;
            Record::Content(rec, bytes)
        }
        rec_type::REC_URING => Record::Uring(take(bytes)?.0),
        rec_type::REC_URING_PATHS => {
            let (rec, rest) = take::<rec_uring_paths>(bytes)?;
            let (path, rest) = rest.split_at_checked(usize::from(rec.path_bytes))?;
            let (path2, _) = rest.split_at_checked(usize::from(rec.path2_bytes))?;
            Record::UringPaths(rec, path, path2)
        }
        rec_type::REC_URING_RING => Record::UringRing(take(bytes)?.0),
        rec_type::REC_URING_OVERFLOW => Record::UringOverflow(take(bytes)?.0),
        _ => return None,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(size_of::<rec_hdr>(), 24);
        assert_eq!(size_of::<rec_op>(), 144);
        assert_eq!(size_of::<op_tail>(), 80);
    }

    #[test]
    fn a_request_and_its_bio_in_one_record() {
        let len = offset_of!(rec_bio, comm) + size_of::<rq_part>();
        let hdr = rec_hdr { len_bytes: len as u32, r#type: rec_type::REC_RQ_BIO.0 as u8, ..rec_hdr::default() };
        let bio =
            rec_bio { hdr, rq_id: 3, queue_ns: 10, sector: 8, dev: 7, len_bytes: 4096, error: 5, ..rec_bio::default() };
        let part = rq_part { issue_ns: 12, opf: 1 << 11, issue_cpu: 1, requeues: 2 };
        let mut bytes = vec![0; len + 8];
        // SAFETY: both are plain integers, and lie within `bytes`.
        unsafe {
            let to = bytes.as_mut_ptr();
            std::ptr::copy_nonoverlapping((&raw const bio).cast(), to, offset_of!(rec_bio, comm));
            std::ptr::copy_nonoverlapping(
                (&raw const part).cast(),
                to.add(offset_of!(rec_bio, comm)),
                size_of::<rq_part>(),
            );
        }
        let (rq, told) = block(&bytes).unwrap();
        let (rq, told) = (rq.unwrap(), told.unwrap());
        assert_eq!((rq.rq_id, rq.queue_ns, rq.issue_ns, rq.sector, rq.dev, rq.len_bytes), (3, 10, 12, 8, 7, 4096));
        assert_eq!((rq.opf, rq.error, rq.issue_cpu, rq.requeues, rq.bios, rq.no_end), (1 << 11, 5, 1, 2, 1, 0));
        assert_eq!((told.rq_id, told.queue_ns, told.len_bytes, told.comm), (3, 10, 4096, [0; 16]));
        assert_eq!(numbers(&hdr), 2);
        // Cut off by its header, then by its bytes.
        assert!(block(&bytes[..len - 1]).is_none());
        bytes[offset_of!(rec_hdr, len_bytes)] -= 8;
        assert!(block(&bytes).is_none());
    }

    #[test]
    fn cut_or_strange_bytes_are_refused() {
        assert!(parse(&[]).is_none());
        assert!(parse(&[0xff; 200]).is_none());
        let mut bytes = vec![0u8; size_of::<rec_op>()];
        bytes[16] = size_of::<rec_op>() as u8;
        bytes[22] = rec_type::REC_OP_LONG.0 as u8;
        assert!(parse(&bytes).is_none(), "a long operation without its tail");
        bytes[22] = rec_type::REC_OP.0 as u8;
        assert!(matches!(parse(&bytes), Some(Record::Op(_, None))));
    }
}
