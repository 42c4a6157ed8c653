//! Replaces names by keyed hashes, so that a reel can be shared. Names are hidden. Tree shape, known extensions,
//! equality of names, sizes, times and results stay.
//!
//! In: rows, a manifest and a key. Out: the same with names replaced. May use: `format`, `host`.
//!
//! A path is mapped component by component. A component gets the same hash wherever it appears, so `..`, symbolic links and
//! relative paths still resolve, and two reels made with one key can be compared. A hash is [`HASH_CHARS`] characters of
//! base32 (60 bits of keyed BLAKE3), followed by the extension if that is a known one. Among a million names the chance of a
//! collision is one in two million. With the key, guesses can be tested; without it, names cannot be recovered.
//!
//! `docs/anonymize.md` lists what is mapped and what stays.

mod key;
mod manifest;
mod words;

use std::{collections::HashMap, path::PathBuf};

pub use key::Key;

use crate::{
    Text,
    format::{
        table::Row,
        text,
        xattrs::{self, Attributes},
    },
    host::os_path,
};

/// Characters of a hashed component, 5 bits each. Short, because a path of many short names becomes longer, and must
/// stay below the kernel's limit of 4096 bytes.
pub const HASH_CHARS: usize = 12;
/// Maximum length of a file name on Linux. Longer names map to longer hashes, so that a call that failed with
/// ENAMETOOLONG fails again.
const NAME_MAX: usize = 255;
/// Size of the cache of hashed texts. Dropping the cache costs only time.
const REMEMBERED: usize = 1 << 18;
/// The kernel's suffix of the path of a deleted file.
const DELETED: &str = " (deleted)";

/// Maps names.
#[derive(Debug)]
pub struct Anonymizer {
    key: [u8; 32],
    paths: HashMap<Text, Text>,
    whole: HashMap<Text, Text>,
    /// Clear component by hash. Kept only if the recorder must find files on disk again.
    originals: Option<HashMap<String, Box<[u8]>>>,
}

/// Meaning of a text column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A word of the format or the kernel.
    Word,
    /// A path, or a name in a directory.
    Path,
    /// A thread's name.
    Comm,
    /// A name whose meaning depends on the call, in `name`.
    Name,
    /// The value that belongs to that name.
    Value,
    /// Names and values of extended attributes.
    Attributes,
    /// Free text, which may contain names: hashed as a whole.
    Message,
    /// Anything else: hashed as a whole.
    Other,
}

/// The meaning of the column `column` in every table. An unlisted column is hashed as a whole.
pub(crate) fn holds(column: &str) -> Holds {
    match column {
        "op" | "source" | "state" | "kind" | "class" | "origin" | "event" | "payload" | "reason" | "stack"
        | "lock_kind" | "detail" | "how" | "ended" => Holds::Word,
        "path" | "path2" | "host_path" | "cwd" | "root" | "target" | "trace" => Holds::Path,
        "comm" | "waker_comm" | "owner_comm" => Holds::Comm,
        // A content hash would prove that known data was written.
        "message" | "user_stack" | "content_hash" => Holds::Message,
        "name" => Holds::Name,
        "value" => Holds::Value,
        "xattrs" => Holds::Attributes,
        _ => Holds::Other,
    }
}

impl Anonymizer {
    /// An anonymizer with this key.
    pub fn new(key: &Key) -> Self {
        Self { key: key.bytes(), paths: HashMap::new(), whole: HashMap::new(), originals: None }
    }

    /// An anonymizer that can also map hashed paths back while it lives, because the recorder reads the disk again at
    /// the end. Uses memory per distinct name, up to a limit.
    pub fn reversible(key: &Key) -> Self {
        Self { originals: Some(HashMap::new()), ..Self::new(key) }
    }

    /// 64 bits of keyed hash.
    pub(crate) fn number(&self, bytes: &[u8]) -> u64 {
        let hash = blake3::keyed_hash(&self.key, bytes);
        hash.as_bytes().iter().take(8).fold(0, |n, b| n << 8 | u64::from(*b))
    }

    fn hash(&self, bytes: &[u8]) -> String {
        const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut number = self.number(bytes);
        (0..HASH_CHARS)
            .map(|_| {
                let digit = char::from(DIGITS[(number & 31) as usize]);
                number >>= 5;
                digit
            })
            .collect()
    }

    /// Maps one component of a path. `.`, `..` and words that exist on every system stay.
    fn component(&mut self, name: &str) -> String {
        if matches!(name, "" | "." | "..") || words::is_plain(name) || words::is_disk(name) {
            return name.to_owned();
        }
        let (name, deleted) = name.strip_suffix(DELETED).map_or((name, ""), |n| (n, DELETED));
        let clear = text::to_bytes(name);
        let mut mapped = self.stem_and_extension(name);
        if clear.len() > NAME_MAX {
            let missing = clear.len().saturating_sub(mapped.len());
            mapped.insert_str(0, &"a".repeat(missing));
        }
        if let Some(originals) = &mut self.originals {
            /// Maximum number of names kept. Later names cannot be found on disk; their tree rows are derived.
            const NAMES: usize = 4 << 20;
            if originals.len() < NAMES && !originals.contains_key(&mapped) {
                originals.insert(mapped.clone(), clear.into());
            }
        }
        mapped.push_str(deleted);
        mapped
    }

    fn stem_and_extension(&self, name: &str) -> String {
        // A leading dot hides a file, which is part of the tree's shape.
        let (dot, rest) = name.strip_prefix('.').map_or(("", name), |rest| (".", rest));
        let mut stem = rest;
        // At most two extensions, as in .tar.gz and .so.6.
        for _ in 0..2 {
            match stem.rsplit_once('.') {
                Some((left, ext)) if !left.is_empty() && words::is_extension(ext) => stem = left,
                _ => break,
            }
        }
        // The dot and known extensions are not part of the hash input, so main.c and main.o keep a common name.
        format!("{dot}{}{}", self.hash(&text::to_bytes(stem)), &rest[stem.len()..])
    }

    /// Maps a path, absolute or relative, or a single name.
    pub fn path(&mut self, path: &Text) -> Text {
        if let Some(known) = self.paths.get(path) {
            return known.clone();
        }
        let mapped: Text = self.map_path(path).into();
        if self.paths.len() >= REMEMBERED {
            self.paths.clear();
        }
        self.paths.insert(path.clone(), mapped.clone());
        mapped
    }

    fn map_path(&mut self, path: &str) -> String {
        for fds in ["/proc/self/fd/", "/dev/fd/"] {
            if path.strip_prefix(fds).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
                return path.to_owned();
            }
        }
        let mut out = String::with_capacity(path.len() + HASH_CHARS);
        for (i, component) in path.split('/').enumerate() {
            if i > 0 {
                out.push('/');
            }
            out.push_str(&self.component(component));
        }
        out
    }

    /// Maps a thread name. If it was the last component of the program's path, it still is. The first word of a kernel
    /// thread's name stays.
    fn comm(&mut self, comm: &Text) -> Text {
        self.whole(comm, |this, comm| match comm.split_once(['/', ':']) {
            Some((first, rest)) if words::KERNEL_THREADS.contains(&first) => {
                format!("{first}{}{}", &comm[first.len()..=first.len()], this.hash(rest.as_bytes()))
            }
            _ => this.component(comm),
        })
    }

    /// Hashes a text as a whole.
    fn other(&mut self, what: &Text) -> Text {
        self.whole(what, |this, what| if what.is_empty() { String::new() } else { this.hash(&text::to_bytes(what)) })
    }

    /// Maps the name of an extended attribute. Its namespace stays, because the kernel's behaviour depends on it.
    fn xattr(&self, name: &str) -> String {
        if words::XATTRS.contains(&name) {
            return name.to_owned();
        }
        let space = words::XATTR_SPACES.iter().find(|s| name.starts_with(**s)).copied().unwrap_or_default();
        format!("{space}{}", self.hash(&text::to_bytes(&name[space.len()..])))
    }

    /// Maps the names and values of extended attributes.
    fn attributes(&mut self, all: &Text) -> Text {
        let mut mapped = Attributes::new();
        for (name, value) in xattrs::from_text(all) {
            let name = text::from_bytes(&name);
            let keep = words::ACLS.contains(&&*name) && is_access_list(&value)
                || *name == *"security.capability" && is_capability(&value);
            // The length is a result of getxattr.
            let hash = self.hash(&value).into_bytes();
            let hashed = || hash.iter().cycle().take(value.len()).copied().collect();
            let value = if keep { value.clone() } else { hashed() };
            mapped.insert(text::to_bytes(&self.xattr(&name)).into(), value);
        }
        xattrs::to_text(&mapped).unwrap_or_default()
    }

    fn whole(&mut self, what: &Text, map: impl FnOnce(&mut Self, &str) -> String) -> Text {
        if let Some(known) = self.whole.get(what) {
            return known.clone();
        }
        let mapped: Text = map(self, what).into();
        if self.whole.len() >= REMEMBERED {
            self.whole.clear();
        }
        self.whole.insert(what.clone(), mapped.clone());
        mapped
    }

    /// Maps all names in a row.
    pub fn row<R: Row>(&mut self, row: &mut R) {
        let mut call: Option<Text> = None;
        let mut acl = false;
        row.map_text(&mut |column, value| match holds(column) {
            Holds::Word => {
                if column == "op" {
                    call = Some(value.clone());
                }
                value.clone()
            }
            Holds::Name => {
                acl = words::ACLS.contains(&&**value);
                match call.as_deref().unwrap_or_default() {
                    // The recorder's own name of the request.
                    "ioctl" => value.clone(),
                    // Kernel functions.
                    c if c.starts_with("vfs_") => value.clone(),
                    // Words that the kernel defines. A call may pass any other word.
                    "mount" | "fsopen" => self.fstype(value).into(),
                    "fsconfig" if words::is_option(value) => value.clone(),
                    c if c.contains("xattr") => self.xattr(value).into(),
                    _ => self.other(value),
                }
            }
            // An access control list contains only numbers; other values may contain names.
            Holds::Value if acl && is_access_list(&text::to_bytes(value)) => value.clone(),
            // Ids, which are numbers.
            Holds::Value if call.as_deref().is_some_and(words::names_users) => value.clone(),
            Holds::Value => self.other(value),
            Holds::Attributes => self.attributes(value),
            Holds::Path => self.path(value),
            Holds::Comm => self.comm(value),
            Holds::Message | Holds::Other => self.other(value),
        });
    }

    /// The clear path of a mapped absolute path. `None` if one of its names is unknown, or if this anonymizer is not
    /// [reversible](Self::reversible).
    pub fn original(&self, path: &str) -> Option<PathBuf> {
        let originals = self.originals.as_ref()?;
        let mut clear = String::with_capacity(path.len());
        for (i, component) in path.split('/').enumerate() {
            if i > 0 {
                clear.push('/');
            }
            if matches!(component, "" | "." | "..") || words::is_plain(component) || words::is_disk(component) {
                clear.push_str(component);
            } else {
                clear.push_str(&text::from_bytes(originals.get(component)?));
            }
        }
        Some(os_path(&clear))
    }
}

/// Whether these bytes are an access control list (include/uapi/linux/posix_acl_xattr.h): a version, then entries of
/// type, permissions and user or group.
fn is_access_list(bytes: &[u8]) -> bool {
    const KINDS: [u16; 6] = [1, 2, 4, 8, 16, 32];
    let entry = |e: &[u8]| {
        let word = |at: usize| u16::from_le_bytes([e[at], e[at + 1]]);
        KINDS.contains(&word(0)) && word(2) <= 7
    };
    bytes.strip_prefix(&[2, 0, 0, 0]).is_some_and(|rest| rest.len().is_multiple_of(8) && rest.chunks(8).all(entry))
}

/// Whether these bytes are the capabilities of a file, which are numbers (include/uapi/linux/capability.h): a revision and
/// flags, then sets, of revision 3 also a user.
fn is_capability(bytes: &[u8]) -> bool {
    matches!((bytes.len(), bytes.get(3)), (12, Some(1)) | (20, Some(2)) | (24, Some(3)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::format::{rows::Op, tables};

    #[test]
    fn only_access_lists_pass_as_such() {
        assert!(is_access_list(b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff"));
        assert!(!is_access_list(b"secret") && !is_access_list(b"\x02\0\0\0\x01\0\x06\0sec"));
        assert!(!is_access_list(b"\x02\0\0\0password"));
    }

    fn mapped(path: &str) -> String {
        Anonymizer::new(&Key::of(b"0123456789abcdef").unwrap()).path(&path.into()).to_string()
    }

    #[test]
    fn shape_and_extensions_stay_and_names_do_not() {
        let p = mapped("/home/alice/../payroll.tar.gz");
        let parts: Vec<&str> = p.split('/').collect();
        assert_eq!((parts.len(), parts[0], parts[3]), (5, "", ".."));
        assert!(parts[4].ends_with(".tar.gz") && !p.contains("alice") && !p.contains("payroll"));
        assert_eq!(mapped("//a/./b/").matches('/').count(), 5);
        assert_eq!(mapped(".."), "..");
        assert_eq!(mapped(""), "");
        assert!(mapped(".bashrc").starts_with('.'));
        assert!(!mapped("john.doe").contains("doe"), "an unknown extension is a name");
        assert_eq!(mapped("/dev/null"), "/dev/null");
        assert_eq!(mapped("/proc/self/fd/17"), "/proc/self/fd/17");
        assert!(!mapped("/proc/acme").contains("acme"));
    }

    #[test]
    fn equal_names_stay_equal_and_different_ones_different() {
        assert_eq!(mapped("/a/x.c").rsplit('/').next(), mapped("b/c/x.c").rsplit('/').next());
        assert_eq!(mapped("x.c").strip_suffix(".c"), mapped("x.o").strip_suffix(".o"));
        let names = ["a", "A", "a.c", ".a", "a.C", "a.x", "ä", "\u{F7FF}", "a ", "b"];
        let all: std::collections::HashSet<String> = names.iter().map(|n| mapped(n)).collect();
        assert_eq!(all.len(), names.len());
    }

    #[test]
    fn another_key_makes_other_names() {
        let other = Anonymizer::new(&Key::of(b"another key of 16").unwrap()).path(&"/a".into());
        assert_ne!(mapped("/a"), &*other);
        assert_ne!(Key::random().unwrap().bytes(), Key::random().unwrap().bytes());
        assert!(Key::of(b"short").is_err());
    }

    #[test]
    fn names_too_long_stay_too_long_and_others_fit() {
        assert_eq!(mapped(&"n".repeat(300)).len(), 300);
        assert!(mapped(&"n".repeat(255)).len() <= 255);
        assert!(mapped(&format!("{}.sqlite3.parquet", "n".repeat(200))).len() <= 255);
    }

    #[test]
    fn clear_paths_come_back_while_recording() {
        let mut a = Anonymizer::reversible(&Key::of(b"0123456789abcdef").unwrap());
        let clear = "/home/\u{F7FF}x/../dev/loop0/b.c";
        let hidden = a.path(&clear.into());
        assert_eq!(a.original(&hidden), Some(os_path(clear)));
        assert_eq!(a.original("/never/met"), None);
    }

    #[test]
    fn functions_of_the_kernel_keep_their_names() {
        let mut a = Anonymizer::new(&Key::of(b"0123456789abcdef").unwrap());
        let mut op = Op { op: "vfs_write".into(), name: Some("vfs_iter_write".into()), ..Op::default() };
        a.row(&mut op);
        assert_eq!(op.name.as_deref(), Some("vfs_iter_write"));
    }

    #[test]
    fn attributes_keep_their_name_space() {
        let a = Anonymizer::new(&Key::of(b"0123456789abcdef").unwrap());
        assert!(a.xattr("user.secret").starts_with("user.") && !a.xattr("user.secret").contains("secret"));
        assert_eq!(a.xattr("system.posix_acl_access"), "system.posix_acl_access");
    }

    /// A new text column is hashed as a whole until someone has thought about it here.
    #[test]
    fn every_text_column_has_been_thought_about() {
        for table in tables::all() {
            for c in &table.columns {
                let text = matches!(c.data_type, arrow_schema::DataType::Dictionary(_, _));
                let thought = holds(c.name) != Holds::Other;
                assert!(!text || thought, "{}.{}: say in anonymize.rs what it holds", table.name, c.name);
            }
        }
    }
}
