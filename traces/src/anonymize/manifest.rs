//! Names in the manifest. Every member is listed here, so that a new one does not compile until somebody decides
//! whether it contains names.

use super::{Anonymizer, words};
use crate::{
    Manifest,
    format::manifest::{Cgroup, Command, Container, Device, Host, Import, Mark, Mount, Replay},
};

impl Anonymizer {
    /// The manifest with all names mapped. Warnings may contain any name, so they are dropped and counted.
    pub fn manifest(&mut self, manifest: &Manifest) -> Manifest {
        let Manifest {
            format,
            tool,
            kind,
            state,
            host,
            clock,
            command,
            span,
            mounts,
            devices,
            cgroups,
            containers,
            probes,
            backend,
            filters,
            waits_min_ns,
            ledger,
            losses,
            clock_jumps,
            left_out,
            resolution,
            snapshot,
            final_tree,
            cost,
            warnings,
            marks,
            replay,
            import,
            segments,
            ended,
        } = manifest.clone();
        Manifest {
            format,
            tool,
            kind,
            state,
            host: self.host(host),
            clock,
            command: command.map(|c| self.command(c)),
            span,
            mounts: mounts.into_iter().map(|m| self.mount(m)).collect(),
            devices: devices.into_iter().map(|d| self.device(d)).collect(),
            cgroups: cgroups.into_iter().map(|c| self.cgroup(c)).collect(),
            containers: containers.into_iter().map(|c| self.container(c)).collect(),
            probes,
            backend,
            filters: filters.iter().map(|f| self.filter(f)).collect(),
            waits_min_ns,
            ledger,
            losses,
            clock_jumps,
            left_out,
            resolution,
            snapshot,
            final_tree,
            cost,
            warnings: withheld(&warnings),
            marks: marks.into_iter().map(|Mark { ns, name }| Mark { ns, name: self.word(&name) }).collect(),
            replay: replay.map(|r| self.replay(r)),
            import: import.map(|i| self.import(i)),
            segments,
            ended,
        }
    }

    fn word(&mut self, text: &str) -> String {
        self.map_path(text)
    }

    fn host(&mut self, host: Host) -> Host {
        let Host { name, kernel, arch, cpus, mem_bytes, vm_dirty } = host;
        let name = if name.is_empty() { name } else { self.hash(name.as_bytes()) };
        Host { name, kernel, arch, cpus, mem_bytes, vm_dirty }
    }

    fn import(&mut self, import: Import) -> Import {
        let Import { format, files, at_realtime_ns, records } = import;
        Import { format, files: files.iter().map(|f| self.word(f)).collect(), at_realtime_ns, records }
    }

    fn command(&mut self, command: Command) -> Command {
        let Command { argv, cwd, exit_status } = command;
        Command { argv: argv.iter().map(|w| self.word(w)).collect(), cwd: self.word(&cwd), exit_status }
    }

    /// Maps a command-line option such as `--path /home/x`: the option itself stays.
    fn filter(&mut self, filter: &str) -> String {
        match filter.split_once([' ', '=']) {
            Some((option, value)) if option.starts_with("--") => {
                let named = matches!(option, "--path" | "--comm" | "--cgroup" | "--container" | "--unit" | "--device");
                let number = !named && value.bytes().all(|b| b.is_ascii_digit());
                let value = if number { value.to_owned() } else { self.word(value) };
                format!("{option}{}{value}", &filter[option.len()..=option.len()])
            }
            None if filter.starts_with("--") => filter.to_owned(),
            _ => self.word(filter),
        }
    }

    fn mount(&mut self, mount: Mount) -> Mount {
        let Mount {
            sb_dev,
            fstype,
            source,
            mountpoint,
            root,
            options,
            total_bytes,
            free_bytes,
            free_end_bytes,
            block_bytes,
            journal_bytes,
            stripe_unit_bytes,
            stripe_width_bytes,
            features,
        } = mount;
        Mount {
            sb_dev,
            fstype: self.fstype(&fstype),
            // The source of a file system without a device is its type.
            source: if words::FILE_SYSTEMS.binary_search(&&*source).is_ok() { source } else { self.word(&source) },
            mountpoint: self.word(&mountpoint),
            root: self.word(&root),
            options: options.split(',').map(|o| self.option(o)).collect::<Vec<_>>().join(","),
            total_bytes,
            free_bytes,
            free_end_bytes,
            block_bytes,
            journal_bytes,
            stripe_unit_bytes,
            stripe_width_bytes,
            features,
        }
    }

    fn container(&mut self, container: Container) -> Container {
        let Container { id, name, image, runtime, pod, namespace } = container;
        let hashed = |word: Option<String>| word.map(|word| self.hash(word.as_bytes()));
        let [id, name] = [id, name].map(|word| hashed(Some(word)).unwrap_or_default());
        Container { id, name, image: hashed(image), runtime, pod: hashed(pod), namespace: hashed(namespace) }
    }

    fn cgroup(&mut self, cgroup: Cgroup) -> Cgroup {
        let Cgroup { path, memory_max_bytes, memory_high_bytes, cpu_quota_us, cpu_period_us, io_max } = cgroup;
        Cgroup { path: self.word(&path), memory_max_bytes, memory_high_bytes, cpu_quota_us, cpu_period_us, io_max }
    }

    pub(super) fn fstype(&mut self, fstype: &str) -> String {
        match fstype.split_once('.') {
            _ if fstype.is_empty() || words::FILE_SYSTEMS.binary_search(&fstype).is_ok() => fstype.to_owned(),
            // The mounting program chooses FUSE's subtype freely.
            Some(("fuse", name)) => format!("fuse.{}", self.hash(name.as_bytes())),
            _ => self.hash(fstype.as_bytes()),
        }
    }

    fn option(&mut self, option: &str) -> String {
        match option.split_once('=') {
            None if option.is_empty() || words::OPTIONS.contains(&option) => option.to_owned(),
            None => self.word(option),
            Some((name, value)) if words::VALUED_OPTIONS.contains(&name) => format!("{name}={value}"),
            // lowerdir= lists several paths. A path after an escaped comma has no `=` and was hashed above.
            Some((name, value)) => {
                let known = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
                let name = if known { name.to_owned() } else { self.word(name) };
                let value = value.split(':').map(|v| self.word(v)).collect::<Vec<_>>().join(":");
                format!("{name}={value}")
            }
        }
    }

    fn device(&mut self, device: Device) -> Device {
        let Device {
            dev,
            name,
            size_bytes,
            rotational,
            logical_block_bytes,
            physical_block_bytes,
            max_sectors_kb,
            nr_requests,
            scheduler,
            backing_file,
            model,
            write_cache,
            wbt_lat_usec,
            read_ahead_kb,
            max_hw_sectors_kb,
            min_io_bytes,
            optimal_io_bytes,
            discard_max_bytes,
        } = device;
        Device {
            dev,
            name: self.word(&name),
            size_bytes,
            rotational,
            logical_block_bytes,
            physical_block_bytes,
            max_sectors_kb,
            nr_requests,
            scheduler,
            backing_file: backing_file.map(|f| self.word(&f)),
            model: model.map(|m| self.word(&m)),
            write_cache,
            wbt_lat_usec,
            read_ahead_kb,
            max_hw_sectors_kb,
            min_io_bytes,
            optimal_io_bytes,
            discard_max_bytes,
        }
    }

    fn replay(&mut self, replay: Replay) -> Replay {
        let Replay {
            original,
            pace,
            order,
            target,
            fstype,
            original_elapsed_ns,
            done,
            differing,
            faithful,
            verdict,
            skipped,
            from_ns,
            to_ns,
        } = replay;
        Replay {
            original: self.word(&original),
            pace,
            order,
            target: self.word(&target),
            fstype: self.fstype(&fstype),
            original_elapsed_ns,
            done,
            differing,
            faithful,
            verdict,
            skipped,
            from_ns,
            to_ns,
        }
    }
}

fn withheld(warnings: &[String]) -> Vec<String> {
    match warnings.len() {
        0 => Vec::new(),
        n => vec![format!(
            "anonymized: {n} warning{} removed, because {} may contain names",
            if n == 1 { "" } else { "s" },
            if n == 1 { "it" } else { "they" }
        )],
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::{anonymize::Key, format::manifest::Kind};

    #[test]
    fn no_name_of_the_manifest_is_left() {
        let secret = "acme";
        let manifest = Manifest {
            host: Host { name: "acme-db1".into(), kernel: "6.18".into(), ..Host::default() },
            command: Some(Command {
                argv: vec!["/opt/acme/bin/x".into(), "--for=acme".into(), "acme run".into()],
                cwd: "/srv/acme".into(),
                exit_status: Some(0),
            }),
            mounts: vec![Mount {
                fstype: "fuse.acme".into(),
                source: "acme:/export".into(),
                mountpoint: "/mnt/acme".into(),
                root: "/acme".into(),
                options: "rw,lowerdir=/l/acme:/x\\,acme,subvol=/acme,size=10k".into(),
                ..Mount::default()
            }],
            devices: vec![Device {
                name: "md_acme".into(),
                backing_file: Some("/img/acme".into()),
                model: Some("acme".into()),
                ..Device::default()
            }],
            cgroups: vec![Cgroup { path: "/user.slice/acme".into(), ..Cgroup::default() }],
            containers: vec![Container {
                id: "acme".into(),
                name: "acme".into(),
                image: Some("acme:1".into()),
                pod: Some("acme-1".into()),
                ..Container::default()
            }],
            filters: vec![
                "--path /srv/acme".into(),
                "--pid 17".into(),
                "--comm=acme".into(),
                "--path 1984".into(),
                "--container 1984".into(),
                "--unit=1984".into(),
            ],
            warnings: vec!["acme is slow".into()],
            marks: vec![Mark { ns: 3, name: "acme begins".into() }],
            replay: Some(Replay { original: "acme".into(), target: "/mnt/acme".into(), ..Replay::default() }),
            ..Manifest::new(Kind::Recording, "tracepoint")
        };
        let mut a = Anonymizer::new(&Key::of(b"0123456789abcdef").unwrap());
        let mapped = a.manifest(&manifest);
        let json = serde_json::to_string(&mapped).unwrap();
        assert!(!json.contains(secret), "{json}");
        assert!(mapped.mounts[0].options.starts_with("rw,lowerdir=/"));
        assert!(mapped.mounts[0].options.ends_with(",size=10k"));
        assert_eq!(mapped.filters[1], "--pid 17");
        for filter in &mapped.filters[3..] {
            assert!(filter.starts_with("--") && !filter.contains("1984"), "{filter}");
        }
        assert_eq!(mapped.host.kernel, "6.18");
        assert_eq!(mapped.warnings.len(), 1);
    }
}
