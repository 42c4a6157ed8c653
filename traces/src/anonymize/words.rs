//! Words that are not secret: they exist on every system, or a replay or a statistic needs them.

use crate::format::calls::SET_IDS;

/// Components that stay anywhere in a path. A replay skips `/proc`, `/sys` and `/dev`, and handles `/proc/self/fd`.
/// Relative paths can reach them too, so the rule cannot depend on the position.
const PLAIN: &[&str] = &[
    "dev",
    "fd",
    "full",
    "null",
    "proc",
    "ptmx",
    "pts",
    "random",
    "self",
    "shm",
    "stderr",
    "stdin",
    "stdout",
    "sys",
    "thread-self",
    "tty",
    "urandom",
    "zero",
];

/// Whether a path component stays as it is.
pub(super) fn is_plain(name: &str) -> bool {
    PLAIN.binary_search(&name).is_ok()
}

/// Extensions of file formats, as opposed to names of persons or projects.
const EXTENSIONS: &[&str] = &[
    "7z", "a", "aac", "avi", "bak", "bin", "bmp", "bz2", "c", "cache", "cc", "cert", "cfg", "class", "conf", "cpp",
    "crc", "crt", "csr", "css", "csv", "cxx", "d", "dat", "data", "db", "deb", "debug", "diff", "dll", "doc", "docx",
    "dylib", "elf", "eml", "exe", "f90", "flac", "flv", "gif", "go", "gz", "h", "hdf5", "hh", "hpp", "htm", "html",
    "hxx", "ico", "idx", "img", "in", "inc", "ini", "ipynb", "iso", "jar", "java", "jpeg", "jpg", "js", "json", "key",
    "ko", "la", "lck", "ldb", "lib", "lock", "log", "lua", "lz4", "lzma", "m4", "map", "md", "mdb", "mid", "mjs", "mk",
    "mkv", "ml", "mo", "mov", "mp3", "mp4", "mpg", "msi", "o", "obj", "odp", "ods", "odt", "ogg", "old", "orc", "orig",
    "out", "parquet", "part", "patch", "pc", "pdb", "pdf", "pem", "php", "pid", "pkl", "pl", "pm", "png", "po", "ppm",
    "ppt", "pptx", "proto", "ps", "py", "pyc", "qcow2", "rar", "raw", "rb", "rej", "rlib", "rmeta", "rpm", "rs", "rst",
    "rtf", "s", "scss", "sh", "so", "sock", "sql", "sqlite", "sqlite3", "sst", "svg", "swap", "swp", "tar", "tbz2",
    "tcl", "tex", "tgz", "tif", "tiff", "tmp", "toml", "ts", "tsv", "ttf", "txt", "txz", "vdi", "vhd", "vmdk", "wal",
    "wasm", "wav", "webm", "webp", "whl", "woff", "woff2", "xls", "xlsx", "xml", "xz", "yaml", "yml", "z", "zip",
    "zst",
];

/// Whether an extension stays: a known one in any case, or a short number (`libc.so.6`, `log.1`).
pub(super) fn is_extension(word: &str) -> bool {
    const LONGEST_NUMBER: usize = 3;
    let number = !word.is_empty() && word.len() <= LONGEST_NUMBER && word.bytes().all(|b| b.is_ascii_digit());
    number || EXTENSIONS.binary_search(&word.to_ascii_lowercase().as_str()).is_ok()
}

/// Namespaces of extended attributes, as the kernel defines them.
pub(super) const XATTR_SPACES: &[&str] = &["security.", "system.", "trusted.", "user."];

/// Extended attributes with a defined meaning.
pub(super) const XATTRS: &[&str] =
    &["security.capability", "security.ima", "security.selinux", "system.posix_acl_access", "system.posix_acl_default"];

/// Attributes of that list that contain an access control list.
pub(super) const ACLS: &[&str] = &["system.posix_acl_access", "system.posix_acl_default"];

/// Calls that set the owner of a file: column `value` has the ids of its user and group.
const CHOWNS: &[&str] = &["chown", "lchown", "fchown", "fchownat"];

/// Whether column `value` of this call has ids of users and groups.
pub(super) fn names_users(call: &str) -> bool {
    CHOWNS.contains(&call) || SET_IDS.contains(&call)
}

/// Mount options whose value is a path. The value is mapped, the name stays.
const PLACE_OPTIONS: &[&str] = &["lowerdir", "lowerdir+", "source", "upperdir", "workdir"];

/// Whether this is the name of a mount option.
pub(super) fn is_option(name: &str) -> bool {
    [OPTIONS, VALUED_OPTIONS, PLACE_OPTIONS].into_iter().any(|list| list.contains(&name))
}

/// File system types, as in mountinfo.
pub(super) const FILE_SYSTEMS: &[&str] = &[
    "9p",
    "autofs",
    "bcachefs",
    "bpf",
    "btrfs",
    "ceph",
    "cgroup",
    "cgroup2",
    "cifs",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "ecryptfs",
    "efivarfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "fuse",
    "fuse.sshfs",
    "fuseblk",
    "fusectl",
    "gfs2",
    "hfsplus",
    "hugetlbfs",
    "isofs",
    "jfs",
    "mqueue",
    "nfs",
    "nfs4",
    "nilfs2",
    "nsfs",
    "ntfs",
    "ntfs3",
    "ocfs2",
    "orangefs",
    "overlay",
    "proc",
    "pstore",
    "ramfs",
    "rootfs",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smb3",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "ubifs",
    "udf",
    "vfat",
    "virtiofs",
    "xfs",
    "zfs",
    "zonefs",
];

/// Mount options without a value.
pub(super) const OPTIONS: &[&str] = &[
    "acl",
    "allow_other",
    "async",
    "attr2",
    "atime",
    "barrier",
    "bsddf",
    "default_permissions",
    "delalloc",
    "diratime",
    "dirsync",
    "discard",
    "exec",
    "grpid",
    "grpquota",
    "hard",
    "ikeep",
    "inode32",
    "inode64",
    "lazytime",
    "noacl",
    "noalign",
    "noatime",
    "nobarrier",
    "nodatacow",
    "nodatasum",
    "nodev",
    "nodelalloc",
    "nodiratime",
    "nodiscard",
    "noexec",
    "noikeep",
    "nolargeio",
    "noload",
    "nonempty",
    "noquota",
    "norecovery",
    "nosuid",
    "nouser_xattr",
    "prjquota",
    "quota",
    "relatime",
    "ro",
    "rw",
    "seclabel",
    "soft",
    "space_cache",
    "ssd",
    "ssd_spread",
    "strictatime",
    "suid",
    "swalloc",
    "sync",
    "user_xattr",
    "usrquota",
    "xattr",
];

/// Mount options whose value is a number or a word that the file system defines.
pub(super) const VALUED_OPTIONS: &[&str] = &[
    "allocsize",
    "blksize",
    "commit",
    "compress",
    "compress-force",
    "data",
    "discard",
    "errors",
    "gid",
    "huge",
    "index",
    "init_itable",
    "inode_readahead_blks",
    "iversion",
    "jqfmt",
    "logbsize",
    "logbufs",
    "max_batch_time",
    "max_read",
    "metacopy",
    "min_batch_time",
    "mode",
    "mpol",
    "nfs_export",
    "nr_blocks",
    "nr_inodes",
    "prot",
    "redirect_dir",
    "resgid",
    "resuid",
    "rsize",
    "size",
    "space_cache",
    "stripe",
    "subvolid",
    "sunit",
    "swidth",
    "thread_pool",
    "uid",
    "umask",
    "uuid",
    "vers",
    "wsize",
    "xino",
];

/// First words of the names of kernel threads that work for a file system or a device.
pub(super) const KERNEL_THREADS: &[&str] =
    &["dmcrypt_write", "iou-sqp", "iou-wrk", "jbd2", "kswapd0", "kworker", "loop", "xfs-buf", "xfs-conv", "xfsaild"];

/// Whether this is a kernel name of a disk or partition: a driver's name and a number or letters.
pub(super) fn is_disk(name: &str) -> bool {
    const DRIVERS: &[&str] =
        &["bcache", "dm-", "hd", "loop", "md", "mmcblk", "nbd", "nullb", "nvme", "pmem", "ram", "rbd", "sr", "zram"];
    const LETTERED: &[&str] = &["sd", "vd", "xvd"];
    let numbered = |rest: &str| {
        rest.starts_with(|c: char| c.is_ascii_digit())
            && rest.chars().all(|c| c.is_ascii_digit() || matches!(c, 'n' | 'p' | 'c'))
    };
    let lettered = |rest: &str| {
        let letters = rest.trim_end_matches(|c: char| c.is_ascii_digit());
        (1..=3).contains(&letters.len()) && letters.bytes().all(|b| b.is_ascii_lowercase())
    };
    DRIVERS.iter().any(|d| name.strip_prefix(d).is_some_and(numbered))
        || LETTERED.iter().any(|d| name.strip_prefix(d).is_some_and(lettered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_for_the_search() {
        assert!(PLAIN.is_sorted());
        assert!(EXTENSIONS.is_sorted());
        assert!(FILE_SYSTEMS.is_sorted());
    }

    #[test]
    fn the_kernels_names_of_disks_are_known_and_others_are_not() {
        for name in ["sda", "sdaa12", "nvme0n1p3", "loop7", "dm-0", "md127", "zram0", "vdb1", "mmcblk0p2"] {
            assert!(is_disk(name), "{name}");
        }
        for name in ["vg-payroll", "md_payroll", "sdsecret", "loop", "dm-name", "nvme", "secret", ""] {
            assert!(!is_disk(name), "{name}");
        }
    }
}
