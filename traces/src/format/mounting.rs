//! What the flags of mount(2) ask for.

/// How a mount passes on and receives what is mounted on other mounts of its peer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Passes on and receives.
    Shared,
    /// Receives.
    Slave,
    /// Neither.
    Private,
    /// Neither, and bind mounts leave it out.
    Unbindable,
}

/// What a call of mount(2) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounting {
    /// Changes options of a mount.
    Reconfigure,
    /// Mounts what is at the source; `recursive`: with what is mounted below it.
    Bind {
        /// `MS_REC`.
        recursive: bool,
    },
    /// Changes how a mount propagates; `recursive`: also what is mounted below it.
    Propagate {
        /// The new type.
        how: Propagation,
        /// `MS_REC`.
        recursive: bool,
    },
    /// Moves a mount.
    Move,
    /// Mounts a file system.
    New,
}

impl Mounting {
    /// Of the flags of a call. The kernel asks for them in this order (fs/namespace.c, `path_mount`).
    pub fn of(flags: i64) -> Self {
        let mut flags = flags as u64;
        // A number that callers had to pass before Linux 2.4.
        if flags & libc::MS_MGC_MSK == libc::MS_MGC_VAL {
            flags &= !libc::MS_MGC_MSK;
        }
        let has = |flag| flags & flag != 0;
        let recursive = has(libc::MS_REC);
        let how = [
            (libc::MS_SHARED, Propagation::Shared),
            (libc::MS_SLAVE, Propagation::Slave),
            (libc::MS_PRIVATE, Propagation::Private),
            (libc::MS_UNBINDABLE, Propagation::Unbindable),
        ];
        let how = how.into_iter().find(|(flag, _)| has(*flag));
        match how {
            _ if has(libc::MS_REMOUNT) => Self::Reconfigure,
            _ if has(libc::MS_BIND) => Self::Bind { recursive },
            Some((_, how)) => Self::Propagate { how, recursive },
            None if has(libc::MS_MOVE) => Self::Move,
            None => Self::New,
        }
    }

    /// Whether its source is a path in the tree.
    pub fn has_source_path(self) -> bool {
        matches!(self, Self::Bind { .. } | Self::Move)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_count_in_the_order_of_the_kernel() {
        let of = |flags: u64| Mounting::of(flags as i64);
        assert_eq!(of(0), Mounting::New);
        assert_eq!(of(libc::MS_RDONLY | libc::MS_NOSUID), Mounting::New);
        assert_eq!(of(libc::MS_MGC_VAL), Mounting::New);
        assert_eq!(of(libc::MS_MGC_VAL | libc::MS_BIND), Mounting::Bind { recursive: false });
        assert_eq!(of(libc::MS_BIND | libc::MS_REC | libc::MS_PRIVATE), Mounting::Bind { recursive: true });
        assert_eq!(of(libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY), Mounting::Reconfigure);
        assert_eq!(of(libc::MS_MOVE), Mounting::Move);
        let slave = Mounting::Propagate { how: Propagation::Slave, recursive: true };
        assert_eq!(of(libc::MS_SLAVE | libc::MS_REC | libc::MS_SILENT), slave);
        assert_eq!(of(libc::MS_PRIVATE), Mounting::Propagate { how: Propagation::Private, recursive: false });
        assert_eq!(of(libc::MS_UNBINDABLE), Mounting::Propagate { how: Propagation::Unbindable, recursive: false });
    }
}
