//! Makes the current name space the initial one, at the start of a slice.

use super::{InitialState, Kind, NO_ATTRIBUTES, NO_INODE, NO_NODE, Names, NodeId, ROOT, State};

/// A name that exists when the slice starts.
#[derive(Clone, Debug)]
pub struct PresentName {
    /// Its path.
    pub node: NodeId,
    /// Its kind.
    pub kind: Kind,
    /// Target of a symbolic link.
    pub target: Option<Box<[u8]>>,
    /// Initial name of its file; [`NO_NODE`] if the workload created it.
    pub pre: NodeId,
    /// Number of its file, if it has several names.
    pub inode: Option<u32>,
}

impl Names {
    /// All names that exist now, except the root. Valid after [`Self::unfold`].
    pub fn there(&self) -> Vec<PresentName> {
        let nodes = self.nodes.iter().enumerate().skip(1);
        nodes
            .filter_map(|(i, n)| match &n.state {
                State::Present { kind, target, pre } => Some(PresentName {
                    node: i as NodeId,
                    kind: *kind,
                    target: target.clone(),
                    pre: *pre,
                    inode: self.inode_of(i as NodeId),
                }),
                _ => None,
            })
            .collect()
    }

    /// Whether the workload created what exists at `node`, possibly before the slice.
    pub fn is_made(&mut self, node: NodeId) -> bool {
        match self.pre(node) {
            NO_NODE => true,
            pre => self.nodes[pre as usize].made,
        }
    }

    /// Number of the file that `node` named at the start, if it had several names.
    pub fn inode_before(&self, node: NodeId) -> Option<u32> {
        Some(self.nodes[node as usize].inode_before).filter(|i| *i != NO_INODE)
    }

    /// Whether the workload created what existed at `node` at the start of the slice.
    pub fn was_made(&self, node: NodeId) -> bool {
        self.nodes[node as usize].made
    }

    /// Makes the current state the initial one. `row_of` returns the row of each name in the new `tree`.
    pub fn rebase(&mut self, row_of: impl Fn(NodeId) -> Option<u32>) {
        let befores: Vec<(InitialState, bool)> = (0..self.nodes.len() as NodeId)
            .map(|node| match &self.nodes[node as usize].state {
                _ if node == ROOT => (self.before(ROOT).clone(), false),
                State::Present { kind, target, pre } => {
                    let old = self.nodes.get(*pre as usize);
                    let made = old.is_none_or(|o| o.made);
                    let confirmed = old.is_none_or(|o| {
                        matches!(o.before, InitialState::Present { confirmed: true, .. } | InitialState::Absent)
                    });
                    let row = row_of(node).unwrap_or(NO_NODE);
                    (InitialState::Present { kind: *kind, target: target.clone(), row, confirmed }, made)
                }
                State::Absent => (InitialState::Absent, false),
                State::Unset | State::Unknown { .. } => (InitialState::Unknown, false),
            })
            .collect();
        self.links.clear();
        self.shape += 1;
        for (i, (before, made)) in befores.into_iter().enumerate() {
            let id = i as NodeId;
            let node = &mut self.nodes[i];
            node.before = before;
            node.made = made;
            node.traits = NO_ATTRIBUTES;
            node.inode_before = node.inode;
            match &mut node.state {
                State::Present { pre, .. } | State::Unknown { pre } => *pre = id,
                State::Absent | State::Unset => {}
            }
            if let Some(inode) = self.inode_of(id) {
                self.links.entry(inode).or_default().push(id);
            }
        }
        self.traits.of_names_are_gone();
    }
}
