//! Bytes to records: pure functions over what the rings hold, no libbpf, no state.

use std::mem::size_of;

use ioreel_bpf::types::{
    op_tail, rec_aio, rec_aio_end, rec_bio, rec_cache, rec_content, rec_exec, rec_fault, rec_fd, rec_file, rec_hdr,
    rec_map, rec_op, rec_passed, rec_place, rec_rq, rec_task, rec_type, rec_uring, rec_uring_paths, rec_uring_ring,
    rec_vfs, rec_wait, rq_part, rq_slot,
};

/// `cpu` of records that iterators made: they are not numbered (`WIRE_NO_CPU`).
pub const NO_CPU: u16 = 0xffff;

/// Room for a kernel stack when a user stack follows (`WIRE_STACK_DEPTH` addresses).
const STACK_ROOM_BYTES: usize = 48 * 8;

/// One record, its variable parts borrowed from the ring's bytes; those of the block layer are read by [`block`].
#[derive(Debug)]
pub enum Record<'a> {
    /// An operation without paths or second file.
    Op(rec_op, Option<Tail<'a>>),
    /// A file met for the first time; its path, and that from its file system's root.
    File(rec_file, &'a [u8], &'a [u8]),
    /// A thread was made or adopted.
    Task(rec_task),
    /// A program started, and its path.
    Exec(rec_exec, &'a [u8]),
    /// A thread ended.
    Exit(rec_task),
    /// An open descriptor; its file's paths.
    Fd(rec_fd, &'a [u8], &'a [u8]),
    /// What an adopted task had; its working directory and root.
    Place(rec_place, &'a [u8], &'a [u8]),
    /// A file that an adopted process had mapped; its paths.
    Map(rec_map, &'a [u8], &'a [u8]),
    /// A thread is no longer recorded.
    Left(rec_task),
    /// A thread was off its CPU; addresses on its kernel stack and its own, as bytes.
    Wait(rec_wait, &'a [u8], &'a [u8]),
    /// All that adopted tasks had has been told.
    Looked(rec_hdr),
    /// A descriptor came with a message.
    Passed(rec_passed),
    /// A request of asynchronous I/O.
    Aio(rec_aio),
    /// The result of one.
    AioEnd(rec_aio_end),
    /// A mapped file was touched.
    Fault(rec_fault),
    /// Something happened in the page cache.
    Cache(rec_cache),
    /// The kernel did something to a file by itself.
    Vfs(rec_vfs),
    /// Bytes that a write wrote.
    Content(rec_content, &'a [u8]),
    /// A request to io_uring ended.
    Uring(rec_uring),
    /// The names one was submitted with.
    UringPaths(rec_uring_paths, &'a [u8], &'a [u8]),
    /// An io_uring was made.
    UringRing(rec_uring_ring),
    /// A request ended that its completion queue had no room for.
    UringOverflow(rec_uring_ring),
}

/// The further parts of an operation.
#[derive(Debug)]
pub struct Tail<'a> {
    /// Fixed part.
    pub fixed: op_tail,
    /// First path, without NUL.
    pub path: &'a [u8],
    /// Second path, without NUL.
    pub path2: &'a [u8],
    /// A string that is no path.
    pub name: &'a [u8],
    /// Memory given to the call.
    pub input: &'a [u8],
    /// Memory it wrote.
    pub output: &'a [u8],
}

/// Types that are plain integers throughout: any bytes are a value of them.
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

/// The value that `bytes` begins with.
pub(crate) fn whole<T: Plain>(bytes: &[u8]) -> Option<T> {
    take(bytes).map(|(value, _)| value)
}

/// Records whose rarer members are at the end, sent only as far as needed: what was not sent is zero.
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

/// The header of the record that `bytes` begins with; `None` when there are too few bytes or the length
/// it states does not fit.
pub fn header(bytes: &[u8]) -> Option<rec_hdr> {
    let (hdr, _) = take::<rec_hdr>(bytes)?;
    let len = hdr.len_bytes as usize;
    (len >= size_of::<rec_hdr>() && len <= bytes.len()).then_some(hdr)
}

/// Whether it is the record of a file.
pub fn is_file(hdr: &rec_hdr) -> bool {
    u32::from(hdr.r#type) == rec_type::REC_FILE.0
}

/// The record that `bytes` begins with, when it is an operation: most are, and this way they are copied once.
pub fn op(bytes: &[u8]) -> Option<(rec_op, Option<Tail<'_>>)> {
    let hdr = header(bytes)?;
    let (op, rest) = take::<rec_op>(&bytes[..hdr.len_bytes as usize])?;
    match rec_type(u32::from(hdr.r#type)) {
        rec_type::REC_OP => Some((op, None)),
        rec_type::REC_OP_LONG => tail(rest).map(|t| (op, Some(t))),
        _ => None,
    }
}

/// The same when it is of the block layer: a request, a bio, or both.
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

/// How many numbers the record takes of its stream: one for each event that it tells.
pub fn numbers(hdr: &rec_hdr) -> u64 {
    if u32::from(hdr.r#type) == rec_type::REC_RQ_BIO.0 { 2 } else { 1 }
}

/// What follows an operation; there may be more behind it, to fill its place in a ring.
fn tail(bytes: &[u8]) -> Option<Tail<'_>> {
    let (fixed, rest) = take::<op_tail>(bytes)?;
    let (path, rest) = rest.split_at_checked(usize::from(fixed.path_bytes))?;
    let (path2, rest) = rest.split_at_checked(usize::from(fixed.path2_bytes))?;
    let (name, rest) = rest.split_at_checked(usize::from(fixed.name_bytes))?;
    let (input, rest) = rest.split_at_checked(usize::from(fixed.in_bytes))?;
    let (output, _) = rest.split_at_checked(usize::from(fixed.out_bytes))?;
    Some(Tail { fixed, path, path2, name, input, output })
}

/// The record that `bytes` begins with; `None` when it is cut short or of unknown type.
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
        assert_eq!(size_of::<rec_op>(), 136);
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
        // Cut, by its header or in its bytes.
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
