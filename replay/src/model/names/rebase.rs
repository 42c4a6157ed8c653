//! The model begins anew: what is there now is what stood there at the start.

use super::{InitialState, Kind, NO_ATTRIBUTES, NO_INODE, NO_NODE, Names, NodeId, ROOT, State};

/// What is at a node when the model begins anew.
#[derive(Clone, Debug)]
pub struct PresentName {
    /// Where.
    pub node: NodeId,
    /// What.
    pub kind: Kind,
    /// Text of a symbolic link.
    pub target: Option<Box<[u8]>>,
    /// Where it was at the start; [`NO_NODE`] when the workload made it.
    pub pre: NodeId,
    /// Which of the files with several names it is.
    pub inode: Option<u32>,
}

impl Names {
    /// All that is there now but the root, after [`Self::unfold`].
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

    /// Whether the workload made what is at `node`, be it before the slice that is replayed.
    pub fn is_made(&mut self, node: NodeId) -> bool {
        match self.pre(node) {
            NO_NODE => true,
            pre => self.nodes[pre as usize].made,
        }
    }

    /// The number that names of one file shared at the start, where it had several.
    pub fn inode_before(&self, node: NodeId) -> Option<u32> {
        Some(self.nodes[node as usize].inode_before).filter(|i| *i != NO_INODE)
    }

    /// Whether the workload made what was at `node` at the start of the slice.
    pub fn was_made(&self, node: NodeId) -> bool {
        self.nodes[node as usize].made
    }

    /// What is there now stood there at the start; `row_of` tells the row of the new `tree` of each.
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
