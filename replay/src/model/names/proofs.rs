//! What results prove about names.

use super::{InitialState, Kind, NO_NODE, Names, Node, NodeId, ROOT, State};

impl Names {
    /// A result proved that something of this kind exists at `node` now, and so do the directories above it.
    pub fn prove_present(&mut self, node: NodeId, kind: Kind, target: Option<Box<[u8]>>) {
        let (mut node, mut proven) = (node, self.proven(node, kind, target));
        while proven && node != ROOT {
            node = self.parent(node);
            self.work += 1;
            proven = self.proven(node, Kind::Directory, None);
        }
    }

    /// Enters the proof for `node` alone. Returns whether it is news, also for the directory above.
    fn proven(&mut self, node: NodeId, kind: Kind, target: Option<Box<[u8]>>) -> bool {
        if self.is_nameless(node) {
            return false;
        }
        let (pre, known) = match self.state(node) {
            State::Unknown { pre } => (*pre, Kind::Unknown),
            State::Present { pre, kind, .. } => (*pre, *kind),
            // Created by something not recorded. It exists from now on, and the replay leaves it alone.
            State::Absent | State::Unset => {
                self.shape += 1;
                self.nodes[node as usize].state = State::Present { kind: Kind::Foreign, target: None, pre: NO_NODE };
                return false;
            }
        };
        let unproven =
            pre != NO_NODE && !matches!(self.nodes[pre as usize].before, InitialState::Present { confirmed: true, .. });
        let settles = known == Kind::Unknown && kind != Kind::Unknown;
        // A link that was seen before its target was read.
        let reads = target.is_some()
            && pre != NO_NODE
            && matches!(self.nodes[pre as usize].before, InitialState::Present { target: None, .. });
        if !unproven && !settles && !reads {
            return false;
        }
        let kind = if known == Kind::Unknown { kind } else { known };
        self.shape += u64::from(kind != Kind::Regular);
        if pre != NO_NODE {
            let before = &mut self.nodes[pre as usize].before;
            match before {
                InitialState::Present { confirmed, kind: k, target: t, .. } => {
                    *confirmed = true;
                    *k = kind;
                    if t.is_none() {
                        *t = target.clone();
                    }
                }
                _ => *before = InitialState::Present { kind, target: target.clone(), row: NO_NODE, confirmed: true },
            }
        }
        if let State::Present { kind: k, target: t, .. } = &mut self.nodes[node as usize].state {
            *k = kind;
            if t.is_none() {
                *t = target;
            }
        } else {
            self.nodes[node as usize].state = State::Present { kind, target, pre };
        }
        true
    }

    /// A result proved that nothing exists at `node` now. If the reel's `tree` lists it and no result confirmed that,
    /// its entry and the unconfirmed ones below are dropped: the recorder may have looked at the name only after the
    /// workload created it.
    pub fn prove_absent(&mut self, node: NodeId) {
        let pre = self.pre(node);
        let confirmed = |n: &Node| matches!(n.before, InitialState::Present { confirmed: true, .. });
        if pre != NO_NODE && !confirmed(&self.nodes[pre as usize]) {
            let below = self.subtree(pre);
            self.work += below.len() as u64 / 2;
            for n in below {
                let n = &mut self.nodes[n as usize];
                if !confirmed(n) {
                    n.before = InitialState::Absent;
                }
            }
        }
        self.clear(node);
    }
}
