//! Finds the files of the named traces.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use crate::import::{ImportError, Result};

/// A trace: the files of one blktrace run on one device, or a dump.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// The part of the file names before `.blktrace.`, or the name of the dump.
    pub(super) name: String,
    /// Its files by CPU, or the dump.
    pub(super) files: Vec<PathBuf>,
    /// Whether this is a dump with the records of all CPUs.
    pub(super) merged: bool,
}

/// The CPU number at the end of a name such as `sda.blktrace.3`, and the part before it.
fn per_cpu(name: &str) -> Option<(&str, u32)> {
    let (base, cpu) = name.rsplit_once(".blktrace.")?;
    let plain = !base.is_empty() && cpu.bytes().all(|b| b.is_ascii_digit());
    cpu.parse().ok().filter(|_| plain).map(|cpu| (base, cpu))
}

/// All per-CPU files in a folder, by base name and CPU.
fn listed(folder: &Path) -> Result<BTreeMap<String, BTreeMap<u32, PathBuf>>> {
    let mut out: BTreeMap<String, BTreeMap<u32, PathBuf>> = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(ImportError::reading(folder))? {
        let entry = entry.map_err(ImportError::reading(folder))?;
        if let Some(name) = entry.file_name().to_str()
            && let Some((base, cpu)) = per_cpu(name)
        {
            out.entry(base.to_owned()).or_default().insert(cpu, entry.path());
        }
    }
    Ok(out)
}

/// Finds the traces by base name (`sda`), any one file (`sda.blktrace.0`), a folder of such files, or a dump.
pub(super) fn find(inputs: &[PathBuf]) -> Result<Vec<Source>> {
    let mut found: BTreeMap<(PathBuf, String), Source> = BTreeMap::new();
    for input in inputs {
        let folder = match input.parent() {
            Some(p) if !p.as_os_str().is_empty() => p.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let name = input.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let meta = match fs::metadata(input) {
            Ok(meta) => Some(meta),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(ImportError::reading(input)(e)),
        };
        let mut add = |folder: &Path, base: String, files: BTreeMap<u32, PathBuf>| {
            let source = Source { name: base.clone(), files: files.into_values().collect(), merged: false };
            found.insert((folder.into(), base), source);
        };
        match meta {
            Some(meta) if meta.is_dir() => {
                let all = listed(input)?;
                if all.is_empty() {
                    return Err(ImportError::input(
                        input,
                        "no files DEV.blktrace.N in this folder; name a folder, a trace (sda) or a dump",
                    ));
                }
                all.into_iter().for_each(|(base, files)| add(input, base, files));
            }
            _ if per_cpu(&name).is_some() || meta.is_none() => {
                let base = per_cpu(&name).map_or(&*name, |(base, _)| base);
                let base = base.strip_suffix(".blktrace").unwrap_or(base);
                let siblings = if folder.is_dir() { listed(&folder)?.remove(base) } else { None };
                let files = siblings.ok_or_else(|| {
                    let why = format!(
                        "no such file, and no {base}.blktrace.N; name a trace (sda), one of its files, or a dump"
                    );
                    ImportError::input(input, why)
                })?;
                add(&folder, base.to_owned(), files);
            }
            _ => {
                found.insert((folder, name.clone()), Source { name, files: vec![input.clone()], merged: true });
            }
        }
    }
    distinct(found.into_values().collect())
}

/// Refuses two traces of the same name, since the reel could not distinguish them.
fn distinct(sources: Vec<Source>) -> Result<Vec<Source>> {
    for (i, s) in sources.iter().enumerate() {
        if let Some(other) = sources[..i].iter().find(|o| o.name == s.name) {
            let why = format!("{} is another trace named {}; import them one by one", other.files[0].display(), s.name);
            return Err(ImportError::input(&s.files[0], why));
        }
    }
    Ok(sources)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_found_by_any_name_and_gaps_do_not_end_the_search() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in
            ["sda.blktrace.0", "sda.blktrace.2", "sda.blktrace.10", "sdb.blktrace.0", "sda.bin", "x.blktrace.old"]
        {
            fs::write(at(name), "").unwrap();
        }
        let sda = Source {
            name: "sda".into(),
            files: vec![at("sda.blktrace.0"), at("sda.blktrace.2"), at("sda.blktrace.10")],
            merged: false,
        };
        let sda = std::slice::from_ref(&sda);
        assert_eq!(find(&[at("sda")]).unwrap(), sda);
        assert_eq!(find(&[at("sda.blktrace.2")]).unwrap(), sda);
        assert_eq!(find(&[at("sda.blktrace.0"), at("sda"), at("sda.blktrace.10")]).unwrap(), sda);
        assert_eq!(find(&[dir.path().to_owned()]).unwrap().len(), 2);
        assert!(find(&[at("sda.bin")]).unwrap()[0].merged);
        let gone = find(&[at("sdc")]).unwrap_err().to_string();
        assert!(gone.contains("no sdc.blktrace.N;"), "{gone}");
        assert!(find(&[at("nowhere").join("sdc")]).is_err());
    }
}
