//! Where tasks stand while a recording is gone through: working directories, roots, and whose they are.

use std::{collections::HashMap, iter::Peekable, vec::IntoIter};

use ioreel_traces::rows::Task;

/// What the paths of a task start from.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Relative ones.
    pub(super) cwd: String,
    /// Absolute ones.
    pub(super) root: String,
    /// Its mounts were turned round (pivot_root): its paths are of a name space that nothing is known of.
    pub(super) elsewhere: bool,
}

impl Place {
    /// The name of something that lies at `path` below its root.
    pub(super) fn top(&self) -> &str {
        self.root.trim_end_matches('/')
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Places {
    forks: Peekable<IntoIter<Task>>,
    /// Task to the group of tasks it shares its place with.
    group_of: HashMap<i64, usize>,
    places: Vec<Place>,
}

impl Places {
    /// The tasks of a reel.
    pub(super) fn new(mut tasks: Vec<Task>) -> Self {
        tasks.sort_by_key(|t| (t.start_ns, t.parent.is_some(), t.task_id));
        Self { forks: tasks.into_iter().peekable(), group_of: HashMap::new(), places: Vec::new() }
    }

    /// Lets tasks be born until then.
    pub(super) fn follow_forks(&mut self, until_ns: i64) {
        const CLONE_FS: i64 = 0x200;
        while let Some(t) = self.forks.next_if(|t| t.start_ns <= until_ns) {
            let parent = t.parent.and_then(|p| self.group_of.get(&p).copied());
            let group = match parent {
                Some(group) if t.clone_flags & CLONE_FS != 0 => group,
                _ => {
                    let inherited = parent.map(|p| self.places[p].clone());
                    let own = |path: &Option<ioreel_traces::Text>, from: fn(&Place) -> &str| {
                        path.as_deref().or(inherited.as_ref().map(from)).unwrap_or("/").to_owned()
                    };
                    let elsewhere = inherited.as_ref().is_some_and(|p| p.elsewhere);
                    let place = Place { cwd: own(&t.cwd, |p| &p.cwd), root: own(&t.root, |p| &p.root), elsewhere };
                    self.places.push(place);
                    self.places.len() - 1
                }
            };
            self.group_of.insert(t.task_id, group);
        }
    }

    /// A task no longer shares its place with others.
    pub(super) fn apart(&mut self, task: i64) {
        if let Some(place) = self.of(task).cloned() {
            self.places.push(place);
            self.group_of.insert(task, self.places.len() - 1);
        }
    }

    /// Where a task stands; `None` when it is unknown.
    pub(super) fn of(&self, task: i64) -> Option<&Place> {
        self.places.get(*self.group_of.get(&task)?)
    }

    /// The same, to change it for all who stand there.
    pub(super) fn of_mut(&mut self, task: i64) -> Option<&mut Place> {
        self.places.get_mut(*self.group_of.get(&task)?)
    }
}
