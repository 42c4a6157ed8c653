//! Names of errnos.

/// The name of an errno, or `errno N` for one not listed here.
pub fn errno_name(errno: i64) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::EPERM, "EPERM"),
        (libc::ERANGE, "ERANGE"),
        (libc::E2BIG, "E2BIG"),
        (libc::ENOENT, "ENOENT"),
        (libc::EINTR, "EINTR"),
        (libc::EIO, "EIO"),
        (libc::ENXIO, "ENXIO"),
        (libc::EBADF, "EBADF"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::EXDEV, "EXDEV"),
        (libc::ENODEV, "ENODEV"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EISDIR, "EISDIR"),
        (libc::EINVAL, "EINVAL"),
        (libc::ENFILE, "ENFILE"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::ETXTBSY, "ETXTBSY"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::ESPIPE, "ESPIPE"),
        (libc::EROFS, "EROFS"),
        (libc::EMLINK, "EMLINK"),
        (libc::ENAMETOOLONG, "ENAMETOOLONG"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ENOTEMPTY, "ENOTEMPTY"),
        (libc::ELOOP, "ELOOP"),
        (libc::ENODATA, "ENODATA"),
        (libc::EOVERFLOW, "EOVERFLOW"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::ESTALE, "ESTALE"),
        (libc::EDQUOT, "EDQUOT"),
        // Results of an interrupted call inside the kernel (linux/errno.h). The program sees EINTR, or the kernel
        // restarts the call.
        (512, "ERESTARTSYS"),
        (513, "ERESTARTNOINTR"),
        (514, "ERESTARTNOHAND"),
        (516, "ERESTART_RESTARTBLOCK"),
    ];
    NAMES.iter().find(|(n, _)| i64::from(*n) == errno).map_or_else(|| format!("errno {errno}"), |(_, n)| (*n).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_have_names() {
        assert_eq!(errno_name(2), "ENOENT");
        assert_eq!(errno_name(200), "errno 200");
    }
}
