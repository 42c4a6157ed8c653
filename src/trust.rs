//! Whether a reel is trusted: the user recorded it, or has taken it over.
//!
//! A reel does not tell who recorded it, or its maker would say what is wanted. So its owner decides: the recorder gives a
//! reel to the user who called it, and whoever copies or unpacks one makes it their own.

use std::{io, os::unix::fs::MetadataExt, path::Path};

use ioreel_traces::manifest;
use rustix::process::getuid;

/// Who owns a reel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The caller.
    Own,
    /// This user, in whole or in part.
    OfUser(u32),
    /// The caller, but everybody may change it.
    Open,
}

/// User ids of the caller: root is also who called sudo.
fn callers() -> Vec<u32> {
    let uid = getuid().as_raw();
    let sudo = std::env::var("SUDO_UID").ok().and_then(|id| id.parse().ok());
    [Some(uid), sudo.filter(|_| uid == 0)].into_iter().flatten().collect()
}

/// Looks at the folder of a reel and its manifest, which lists everything else. What is not there has no owner: reading it
/// fails, with an error of its own.
pub(crate) fn of(reel: &Path) -> Trust {
    [reel.to_owned(), reel.join(manifest::FILE_NAME)]
        .iter()
        .filter_map(|path| path.metadata().and_then(|m| judged(&m, &callers())).ok())
        .find(|trust| *trust != Trust::Own)
        .unwrap_or(Trust::Own)
}

fn judged(metadata: &std::fs::Metadata, callers: &[u32]) -> io::Result<Trust> {
    const OTHERS_WRITE: u32 = 0o002;
    Ok(match metadata.uid() {
        uid if !callers.contains(&uid) => Trust::OfUser(uid),
        _ if metadata.mode() & OTHERS_WRITE != 0 => Trust::Open,
        _ => Trust::Own,
    })
}

impl Trust {
    /// Why it is not trusted. `None` if it is.
    pub(crate) fn why_not(self) -> Option<String> {
        match self {
            Self::Own => None,
            Self::OfUser(uid) => Some(format!("it belongs to user {uid}")),
            Self::Open => Some("everybody may change it".into()),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_reel_is_its_owners() {
        let dir = tempfile::tempdir().unwrap();
        let reel = dir.path().join("x.reel");
        assert_eq!(of(&reel), Trust::Own, "what is not there");
        fs::create_dir(&reel).unwrap();
        let manifest = reel.join(manifest::FILE_NAME);
        fs::write(&manifest, "{}").unwrap();
        assert_eq!(of(&reel), Trust::Own);
        fs::set_permissions(&manifest, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(of(&reel), Trust::Open);
        fs::set_permissions(&manifest, fs::Permissions::from_mode(0o600)).unwrap();
        let me = fs::metadata(&manifest).unwrap();
        assert_eq!(judged(&me, &[me.uid()]).unwrap(), Trust::Own);
        assert_eq!(judged(&me, &[me.uid() + 1]).unwrap(), Trust::OfUser(me.uid()));
        assert!(Trust::OfUser(7).why_not().unwrap().contains("user 7"));
    }
}
