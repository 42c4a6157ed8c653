//! Imports between the files of a tree, and the circles they form.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use super::source::{self, Source, Use};

/// Files that a file uses, each with the first line that does.
pub(crate) type Graph = BTreeMap<String, BTreeMap<String, usize>>;

/// All files below `root` with one of these endings, as paths relative to it.
pub(crate) fn files(root: &Path, endings: &[&str]) -> BTreeMap<String, String> {
    fn walk(root: &Path, dir: &Path, endings: &[&str], found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                if name != "target" && !name.starts_with('.') {
                    walk(root, &path, endings, found);
                }
            } else if endings.iter().any(|e| name.ends_with(e)) {
                let relative = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.insert(relative, fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(root, root, endings, &mut found);
    found
}

/// A crate as far as its paths lead: modules, and what each of them imports.
struct Crate {
    /// Module to its file.
    modules: BTreeMap<Vec<String>, String>,
    /// Module to its imports.
    imports: BTreeMap<Vec<String>, Vec<Use>>,
}

/// The module of a file: `a/b.rs` and `a/b/mod.rs` are `a::b`, `lib.rs` and `main.rs` the root.
fn module_of(file: &str) -> Vec<String> {
    let mut module: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let last = module.last().map_or("", String::as_str);
    if last == "mod" || (module.len() == 1 && matches!(last, "lib" | "main")) {
        module.pop();
    }
    module
}

/// The imports between the files of a crate's `src`, tests left out. A name imported through a re-export counts as an import
/// of the file that defines it. A module that re-exports its own parts does not thereby use them, nor does the crate's root.
pub(crate) fn imports(src: &Path) -> Graph {
    let texts = files(src, &[".rs"]);
    let mut modules: BTreeMap<Vec<String>, String> = texts.keys().map(|f| (module_of(f), f.clone())).collect();
    let sources: BTreeMap<String, Source> =
        texts.iter().map(|(f, text)| (f.clone(), source::read(text, &module_of(f)))).collect();
    for (file, source) in &sources {
        for name in &source.test_modules {
            let mut hidden = module_of(file);
            hidden.push(name.clone());
            modules.retain(|m, _| !m.starts_with(&hidden));
        }
    }
    let mut this = Crate { modules, imports: BTreeMap::new() };
    let mut uses: Vec<(String, Use)> = Vec::new();
    for (file, source) in sources {
        if this.modules.values().any(|f| *f == file) {
            uses.extend(source.uses.into_iter().map(|u| (file.clone(), u)));
        }
    }
    // A path that starts at no keyword may start at a module declared beside it or imported.
    for (_, u) in &uses {
        if u.binds.is_some() {
            let copy = Use { path: u.path.clone(), module: u.module.clone(), binds: u.binds.clone(), ..*u };
            this.imports.entry(u.module.clone()).or_default().push(copy);
        }
    }
    let mut graph = Graph::new();
    for (file, u) in &uses {
        let Some(target) = this.file_of(u) else { continue };
        let own = module_of(file);
        let facade = u.exported && module_of(&target).starts_with(&own);
        if target != *file && !own.is_empty() && !module_of(&target).is_empty() && !facade {
            graph.entry(file.clone()).or_default().entry(target).or_insert(u.line);
        }
    }
    graph
}

impl Crate {
    /// The file that defines what a path names; none where the path leads out of the crate.
    fn file_of(&self, u: &Use) -> Option<String> {
        let module = if u.from_root {
            self.resolve(&[], &u.path, 0)?
        } else {
            // What the `use` line itself binds is no help to resolve it.
            let first = u.path.first()?;
            let child = [u.module.as_slice(), std::slice::from_ref(first)].concat();
            let known = self.modules.contains_key(&child)
                || (u.binds.is_none() && self.imports.get(&u.module)?.iter().any(|i| i.binds.as_ref() == Some(first)));
            known.then(|| self.resolve(&u.module, &u.path, 0))??
        };
        self.file_of_module(&module)
    }

    /// The file of the innermost module that has one.
    fn file_of_module(&self, module: &[String]) -> Option<String> {
        (0..=module.len()).rev().find_map(|n| self.modules.get(&module[..n]).cloned())
    }

    /// The module that defines what `path` names, seen from `base`: through modules, then imports.
    fn resolve(&self, base: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        let whole = path;
        let Some((first, rest)) = path.split_first() else { return Some(base.to_vec()) };
        let child = [base, std::slice::from_ref(first)].concat();
        if self.modules.contains_key(&child) {
            return self.resolve(&child, rest, depth);
        }
        // Re-exports that lead to each other end here.
        if depth > 16 {
            return Some(base.to_vec());
        }
        let imports = self.imports.get(base).map_or(&[][..], Vec::as_slice);
        if let Some(import) = imports.iter().find(|i| i.binds.as_ref() == Some(first)) {
            let start: &[String] = if import.from_root { &[] } else { base };
            if !import.from_root {
                let known = import.path.first() != Some(first)
                    && self.modules.contains_key(&[base, &import.path[..1]].concat());
                // A name from another crate.
                if !known {
                    return None;
                }
            }
            let whole: Vec<String> = import.path.iter().chain(rest).cloned().collect();
            return self.resolve(start, &whole, depth + 1);
        }
        for import in imports.iter().filter(|i| i.binds.as_deref() == Some("*") && i.exported) {
            let (last, path) = import.path.split_last()?;
            debug_assert_eq!(last, "*");
            let start: &[String] = if import.from_root { &[] } else { base };
            let inside = self.resolve(start, path, depth + 1)?;
            let names_it = [inside.as_slice(), std::slice::from_ref(first)].concat();
            if self.modules.contains_key(&names_it)
                || self.imports.get(&inside).is_some_and(|i| i.iter().any(|i| i.binds.as_ref() == Some(first)))
            {
                return self.resolve(&inside, whole, depth + 1);
            }
        }
        Some(base.to_vec())
    }
}

/// The includes between the files of a folder of C. A name that is no file there is a system's or a generated one.
pub(crate) fn includes(dir: &Path) -> Graph {
    let texts = files(dir, &[".c", ".h"]);
    let mut graph = Graph::new();
    for (file, text) in &texts {
        let folder = file.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
        for (name, line) in source::includes(text) {
            let beside = format!("{folder}{name}");
            if let Some(target) = [beside, name].into_iter().find(|n| texts.contains_key(n)) {
                graph.entry(file.clone()).or_default().insert(target, line);
            }
        }
    }
    graph
}

/// The sets of files each of which reaches all others of its set.
pub(crate) fn circles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|f| (f.as_str(), reach(graph, f))).collect();
    let mut found: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for (file, to) in reached.iter().filter(|(file, to)| to.contains(*file)) {
        let back = to.iter().filter(|f| reached.get(*f).is_some_and(|r| r.contains(file)));
        found.insert(back.map(|f| (*f).to_owned()).collect());
    }
    found.into_iter().collect()
}

/// The files that lead on from `file`, itself only when a way leads back.
fn reach<'a>(graph: &'a Graph, file: &str) -> BTreeSet<&'a str> {
    let next = |f: &str| graph.get(f).into_iter().flat_map(|to| to.keys().map(String::as_str));
    let (mut found, mut open): (BTreeSet<&str>, Vec<&str>) = (BTreeSet::new(), next(file).collect());
    while let Some(file) = open.pop() {
        if found.insert(file) {
            open.extend(next(file));
        }
    }
    found
}
