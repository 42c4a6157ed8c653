//! Finds the files of the named traces.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::{Path, PathBuf},
};

use crate::import::{ImportError, Result, input};

/// A trace: the files of one blktrace run on one device, or a dump.
#[derive(Debug)]
pub(super) struct Source {
    /// The part of the file names before `.blktrace.`, or the name of the dump.
    pub(super) name: String,
    /// Its files by CPU, or the dump.
    pub(super) files: Vec<input::Source>,
    /// Whether this is a dump with the records of all CPUs.
    pub(super) merged: bool,
}

/// The CPU number at the end of a name such as `sda.blktrace.3` or `sda.blktrace.3.gz`, and the part before it.
fn per_cpu(name: &str) -> Option<(&str, u32)> {
    let name = input::without_compression(name);
    let (base, cpu) = name.rsplit_once(".blktrace.")?;
    let plain = !base.is_empty() && cpu.bytes().all(|b| b.is_ascii_digit());
    cpu.parse().ok().filter(|_| plain).map(|cpu| (base, cpu))
}

/// Files by CPU.
type ByCpu = BTreeMap<u32, input::Source>;

/// All per-CPU files in a folder, by base name and CPU.
fn listed(folder: &Path) -> Result<BTreeMap<String, ByCpu>> {
    let mut out: BTreeMap<String, ByCpu> = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(ImportError::reading(folder))? {
        let entry = entry.map_err(ImportError::reading(folder))?;
        if let Some(name) = entry.file_name().to_str()
            && let Some((base, cpu)) = per_cpu(name)
        {
            out.entry(base.to_owned()).or_default().insert(cpu, input::Source::of(&entry.path()));
        }
    }
    Ok(out)
}

/// Finds the traces by base name (`sda`), any one file (`sda.blktrace.0`), a folder or archive of such files, or a dump.
/// `scratch`: see [`input::open`].
pub(super) fn find(inputs: &[PathBuf], scratch: &Path) -> Result<Vec<Source>> {
    let mut found: BTreeMap<(PathBuf, String), Source> = BTreeMap::new();
    for input in inputs {
        let folder = match input.parent() {
            Some(p) if !p.as_os_str().is_empty() => p.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let name = input.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let meta = match fs::metadata(input) {
            _ if input.as_os_str() == input::STDIN => None,
            Ok(meta) => Some(meta),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(ImportError::reading(input)(e)),
        };
        let mut add = |folder: &Path, base: String, files: ByCpu| {
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
            _ if per_cpu(&name).is_some() || meta.is_none() && input.as_os_str() != input::STDIN => {
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
                let files = input::open(std::slice::from_ref(input), scratch)?;
                let keyed = |s: Source| ((folder.clone(), s.files[0].name.display().to_string()), s);
                found.extend(grouped(files, input).into_iter().map(keyed));
            }
        }
    }
    distinct(found.into_values().collect())
}

/// The traces that these files make: those per CPU, by their folder, and dumps. `single`: a file that is a dump whatever its
/// name.
pub(super) fn grouped(files: Vec<input::Source>, single: &Path) -> Vec<Source> {
    let mut out = Vec::new();
    let mut by_name: BTreeMap<(String, String), ByCpu> = BTreeMap::new();
    for file in files {
        let name = file.file_name();
        match per_cpu(&name).filter(|_| file.name != single) {
            Some((base, cpu)) => {
                let whole = file.name.to_string_lossy();
                let folder = whole.rsplit_once(['/', ':']).map_or("", |(folder, _)| folder).to_owned();
                by_name.entry((folder, base.to_owned())).or_default().insert(cpu, file);
            }
            None => out.push(Source { name, files: vec![file], merged: true }),
        }
    }
    let per_cpu = |((_, name), files): ((String, String), ByCpu)| Source {
        name,
        files: files.into_values().collect(),
        merged: false,
    };
    out.extend(by_name.into_iter().map(per_cpu));
    out
}

/// Whether a name can only be that of a binary trace: a file per CPU, a base name, or a folder of such files.
pub(super) fn is_name(input: &Path) -> bool {
    let name = input.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    if per_cpu(&name).is_some() {
        return true;
    }
    match fs::metadata(input) {
        Ok(meta) if meta.is_dir() => listed(input).is_ok_and(|all| !all.is_empty()),
        Ok(_) => false,
        Err(_) => listed(&input::folder(input)).is_ok_and(|all| all.contains_key(&name)),
    }
}

/// Refuses two traces of the same name, since the reel could not distinguish them.
pub(super) fn distinct(sources: Vec<Source>) -> Result<Vec<Source>> {
    let mut by_name: HashMap<&str, &Source> = HashMap::with_capacity(sources.len());
    for s in &sources {
        if let Some(other) = by_name.insert(&s.name, s) {
            let other = other.files[0].name.display();
            let why = format!("{other} is another trace named {}; import them one by one", s.name);
            return Err(ImportError::input(&s.files[0].name, why));
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
            ["sda.blktrace.0", "sda.blktrace.2", "sda.blktrace.10.gz", "sdb.blktrace.0", "sda.bin", "x.blktrace.old"]
        {
            fs::write(at(name), "").unwrap();
        }
        let names = |all: Result<Vec<Source>>| -> Vec<(String, Vec<PathBuf>, bool)> {
            let files = |s: &Source| s.files.iter().map(|f| f.name.clone()).collect();
            all.unwrap().iter().map(|s| (s.name.clone(), files(s), s.merged)).collect()
        };
        let found = |inputs: &[PathBuf]| find(inputs, dir.path());
        let files = vec![at("sda.blktrace.0"), at("sda.blktrace.2"), at("sda.blktrace.10.gz")];
        let sda = [("sda".to_owned(), files, false)];
        assert_eq!(names(found(&[at("sda")])), sda);
        assert_eq!(names(found(&[at("sda.blktrace.2")])), sda);
        assert_eq!(names(found(&[at("sda.blktrace.0"), at("sda"), at("sda.blktrace.10.gz")])), sda);
        assert_eq!(found(&[dir.path().to_owned()]).unwrap().len(), 2);
        assert!(found(&[at("sda.bin")]).unwrap()[0].merged);
        let gone = found(&[at("sdc")]).unwrap_err().to_string();
        assert!(gone.contains("no sdc.blktrace.N;"), "{gone}");
        assert!(found(&[at("nowhere").join("sdc")]).is_err());
    }
}
