//! Working directories, roots and open descriptors of tasks, following the operations of a recording.

use std::{cell::RefCell, collections::BTreeMap, collections::HashMap, iter::Peekable, rc::Rc, vec::IntoIter};

use ioreel_traces::rows::{Fd, Task};

use super::{
    descriptors::Descriptors,
    mounts::{INITIAL, Mounts},
};

/// Minimum number of directories at which unused ones are forgotten, all at once. Also at least twice the number left
/// the last time.
const FEW_FOLDERS: usize = 1 << 10;

/// Most directories looked at because of new roots. Beyond them, paths behind a new root are not interpreted.
const MOST_PIVOTED: usize = 1 << 26;

/// A directory in use by tasks and shared by them, so that a rename changes it for all. `None`: removed or unknown.
#[derive(Clone, Debug, Default)]
pub(super) struct Folder(Rc<RefCell<Option<String>>>);

impl Folder {
    pub(super) fn name(&self) -> Option<String> {
        self.0.borrow().clone()
    }
}

/// Where the paths of a task start.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Start of relative paths.
    pub(super) cwd: Folder,
    /// Start of absolute paths.
    pub(super) root: Folder,
    /// Number of its mount namespace.
    pub(super) mounts: usize,
    /// It entered another mount namespace, so its paths cannot be interpreted.
    pub(super) elsewhere: bool,
}

impl Place {
    /// Prefix of absolute paths of the task: its root without a trailing slash.
    pub(super) fn top(&self) -> Option<String> {
        let mut top = self.root.name()?;
        top.truncate(top.trim_end_matches('/').len());
        Some(top)
    }
}

/// The directories and descriptors of all tasks; see the module.
#[derive(Debug)]
pub(super) struct Places {
    forks: Peekable<IntoIter<Task>>,
    /// Ends of processes: time and process id.
    exits: Peekable<IntoIter<(i64, i32)>>,
    /// Task to the group of tasks that share its directories.
    group_of: HashMap<i64, usize>,
    /// Process to its first thread.
    first_of: HashMap<i32, i64>,
    pid_of: HashMap<i64, i32>,
    pub(super) descriptors: Descriptors,
    pub(super) mounts: Mounts,
    /// Directories looked at because of new roots.
    pivoted: usize,
    places: Vec<Place>,
    folders: Folders,
}

impl Places {
    /// Creates it from the tasks of a reel, and the descriptors that some had at the start.
    pub(super) fn new(mut tasks: Vec<Task>, fds: &[Fd]) -> Self {
        let first = tasks.iter().filter(|t| is_first(t));
        let mut exits: Vec<(i64, i32)> = first.filter_map(|t| Some((t.exit_ns?, t.pid))).collect();
        exits.sort_unstable();
        tasks.sort_by_key(|t| (t.start_ns, t.parent.is_some(), t.task_id));
        Self {
            forks: tasks.into_iter().peekable(),
            exits: exits.into_iter().peekable(),
            group_of: HashMap::new(),
            first_of: HashMap::new(),
            pid_of: HashMap::new(),
            descriptors: Descriptors::given(fds),
            mounts: Mounts::default(),
            pivoted: 0,
            places: Vec::new(),
            folders: Folders::default(),
        }
    }

    /// Processes starts of tasks and ends of processes up to this time.
    pub(super) fn follow_forks(&mut self, until_ns: i64) {
        const CLONE_FS: i64 = 0x200;
        const CLONE_NEWNS: i64 = libc::CLONE_NEWNS as i64;
        while let Some(t) = self.forks.next_if(|t| t.start_ns <= until_ns) {
            self.follow_exits(t.start_ns);
            let parent = t.parent.and_then(|p| self.group_of.get(&p).copied());
            let group = match parent {
                Some(group) if t.clone_flags & CLONE_FS != 0 => group,
                _ => {
                    let inherited = parent.map(|p| self.places[p].clone());
                    let folders = &mut self.folders;
                    let mut own = |path: &Option<ioreel_traces::Text>, from: fn(&Place) -> &Folder| match path {
                        Some(path) => folders.at(path),
                        None => inherited.as_ref().map_or_else(|| folders.at("/"), |p| from(p).clone()),
                    };
                    let (cwd, root) = (own(&t.cwd, |p| &p.cwd), own(&t.root, |p| &p.root));
                    let elsewhere = inherited.as_ref().is_some_and(|p| p.elsewhere);
                    let mounts = inherited.as_ref().filter(|_| t.cwd.is_none()).map_or(INITIAL, |p| p.mounts);
                    let mounts = if t.clone_flags & CLONE_NEWNS != 0 { self.mounts.copy(mounts) } else { mounts };
                    self.places.push(Place { cwd, root, mounts, elsewhere });
                    self.places.len() - 1
                }
            };
            self.group_of.insert(t.task_id, group);
            if is_first(&t) {
                let parent = t.parent.and_then(|p| self.pid_of.get(&p).copied());
                self.descriptors.born(t.task_id, t.pid, parent);
                self.first_of.insert(t.pid, t.task_id);
            }
            self.pid_of.insert(t.task_id, t.pid);
        }
        self.follow_exits(until_ns);
    }

    fn follow_exits(&mut self, until_ns: i64) {
        while let Some((_, pid)) = self.exits.next_if(|(at_ns, _)| *at_ns < until_ns) {
            self.descriptors.ended(pid);
        }
    }

    /// A task stops sharing its directories with others.
    pub(super) fn apart(&mut self, task: i64) {
        if let Some(place) = self.of(task).cloned() {
            self.places.push(place);
            self.group_of.insert(task, self.places.len() - 1);
        }
    }

    /// A task gets a copy of its mount namespace.
    pub(super) fn own_mounts(&mut self, task: i64) {
        let Some(space) = self.of(task).map(|p| p.mounts) else { return };
        let copy = self.mounts.copy(space);
        if let Some(place) = self.of_mut(task) {
            place.mounts = copy;
        }
    }

    /// The root of a mount namespace becomes the directory seen as `new`. The old one is then below `old`, if that is
    /// known.
    pub(super) fn pivot(&mut self, space: usize, new: &str, old: Option<&str>) {
        let new = new.trim_end_matches('/');
        let below_new =
            |name: &str| name.strip_prefix(new).filter(|r| r.is_empty() || r.starts_with('/')).map(str::to_owned);
        let old = old.and_then(below_new);
        self.pivoted += self.places.len();
        for at in 0..self.places.len() {
            if self.places[at].mounts != space {
                continue;
            }
            if self.pivoted > MOST_PIVOTED {
                self.places[at].elsewhere = true;
                continue;
            }
            let own = |folder: &Folder| match &*folder.name()? {
                // Who was in the old root is in the new one.
                "/" => Some("/".to_owned()),
                name => match below_new(name) {
                    Some(rest) if rest.is_empty() => Some("/".to_owned()),
                    Some(rest) => Some(rest),
                    None => Some(format!("{}{name}", old.as_ref()?)),
                },
            };
            let names = [own(&self.places[at].cwd), own(&self.places[at].root)];
            let [cwd, root] = names.map(|n| n.map_or_else(Folder::default, |name| self.folders.at(&name)));
            (self.places[at].cwd, self.places[at].root) = (cwd, root);
        }
    }

    /// Directories of a task; `None` if unknown.
    pub(super) fn of(&self, task: i64) -> Option<&Place> {
        self.places.get(*self.group_of.get(&task)?)
    }

    /// Directories of the first thread of a process.
    pub(super) fn of_process(&self, pid: i32) -> Option<&Place> {
        self.of(*self.first_of.get(&pid)?)
    }

    /// Likewise, to change them for all tasks that share them.
    fn of_mut(&mut self, task: i64) -> Option<&mut Place> {
        self.places.get_mut(*self.group_of.get(&task)?)
    }

    /// A task changed its working directory; `None`: to an unknown one.
    pub(super) fn set_cwd(&mut self, task: i64, path: Option<&str>) {
        let cwd = path.map_or_else(Folder::default, |path| self.folders.at(path));
        if let Some(place) = self.of_mut(task) {
            place.cwd = cwd;
        }
    }

    /// A task changed its root.
    pub(super) fn set_root(&mut self, task: i64, path: Option<&str>) {
        let root = path.map_or_else(Folder::default, |path| self.folders.at(path));
        if let Some(place) = self.of_mut(task) {
            place.root = root;
        }
    }

    /// From now on the paths of this task cannot be interpreted.
    pub(super) fn lose(&mut self, task: i64) {
        if let Some(place) = self.of_mut(task) {
            place.elsewhere = true;
        }
    }

    /// A directory was removed: it has no name any more.
    pub(super) fn removed(&mut self, path: &str) {
        for (_, folder) in self.folders.take_out(path) {
            folder.0.replace(None);
        }
    }

    /// A directory was renamed; `exchange`: both names were exchanged.
    pub(super) fn renamed(&mut self, from: &str, to: &str, exchange: bool) {
        if from == to {
            return;
        }
        if !exchange {
            self.removed(to);
        }
        let (moved, other) = (self.folders.take_out(from), self.folders.take_out(to));
        self.folders.put(to, moved);
        self.folders.put(from, other);
    }
}

/// Whether it is the first thread of a process whose start was seen.
fn is_first(task: &Task) -> bool {
    task.pid == task.tid && task.pid != 0
}

/// Directories by their current names.
#[derive(Debug, Default)]
struct Folders {
    at: BTreeMap<String, Folder>,
    /// Number left after the last cleanup.
    left: usize,
}

impl Folders {
    fn at(&mut self, path: &str) -> Folder {
        if let Some(folder) = self.at.get(path) {
            return folder.clone();
        }
        if self.at.len() >= FEW_FOLDERS.max(2 * self.left) {
            self.at.retain(|_, folder| Rc::strong_count(&folder.0) > 1);
            self.left = self.at.len();
        }
        let folder = Folder(Rc::new(RefCell::new(Some(path.to_owned()))));
        self.at.insert(path.to_owned(), folder.clone());
        folder
    }

    /// Takes the directory with this name and all below it, by the rest of the name.
    fn take_out(&mut self, path: &str) -> Vec<(String, Folder)> {
        let prefix = format!("{path}/");
        let below = self.at.range(prefix.clone()..).take_while(|(p, _)| p.starts_with(&prefix)).map(|(p, _)| p.clone());
        let mut names: Vec<String> = below.collect();
        names.push(path.to_owned());
        let taken = |name: String| Some((name[path.len()..].to_owned(), self.at.remove(&name)?));
        names.into_iter().filter_map(taken).collect()
    }

    fn put(&mut self, path: &str, folders: Vec<(String, Folder)>) {
        for (rest, folder) in folders {
            let name = format!("{path}{rest}");
            folder.0.replace(Some(name.clone()));
            self.at.insert(name, folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(places: &Places) -> Vec<Option<String>> {
        (0..3).map(|task| places.of(task).and_then(|p| p.cwd.name())).collect()
    }

    #[test]
    fn tasks_stay_in_their_folder_when_its_name_changes() {
        let mut p = Places::new((0..3).map(|task_id| Task { task_id, ..Task::default() }).collect(), &[]);
        p.follow_forks(0);
        for (task, path) in ["/a", "/a/b", "/a-c"].iter().enumerate() {
            p.set_cwd(task as i64, Some(path));
        }
        let some = |names: [&str; 3]| names.map(|n| Some(n.to_owned())).to_vec();
        p.renamed("/a", "/d", false);
        assert_eq!(standing(&p), some(["/d", "/d/b", "/a-c"]));
        p.renamed("/a-c", "/d/b", true);
        assert_eq!(standing(&p), some(["/d", "/a-c", "/d/b"]));
        p.renamed("/x", "/a-c", false);
        p.removed("/d/b");
        assert_eq!(standing(&p), [Some("/d".to_owned()), None, None]);
        p.set_cwd(2, Some("/d/b"));
        assert_eq!(standing(&p), [Some("/d".to_owned()), None, Some("/d/b".to_owned())], "another of that name");
    }

    #[test]
    fn folders_left_behind_are_forgotten() {
        let mut p = Places::new(vec![Task::default()], &[]);
        p.follow_forks(0);
        for i in 0..4 * FEW_FOLDERS {
            p.set_cwd(0, Some(&format!("/{i}")));
        }
        assert!(p.folders.at.len() <= FEW_FOLDERS);
        p.renamed(&format!("/{}", 4 * FEW_FOLDERS - 1), "/now", false);
        assert_eq!(p.of(0).and_then(|p| p.cwd.name()).as_deref(), Some("/now"));
    }
}
