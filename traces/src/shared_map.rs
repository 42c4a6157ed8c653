//! A map whose copies share memory: copying takes constant time, and a change copies a few hundred bytes.
//!
//! Descriptor tables and the like are inherited by every forked process. A chain of forks, each of which adds an entry,
//! would cost the square of its length if each process had a copy of its own.

use std::sync::Arc;

/// Bits of the key that one level of the tree decides.
const BITS: u32 = 4;
const WIDTH: usize = 1 << BITS;

#[derive(Clone, Debug)]
enum Node<V> {
    Inner([Option<Arc<Node<V>>>; WIDTH]),
    Leaf([Option<V>; WIDTH]),
}

/// A map from numbers to values. The tree is as high as its largest key needs: at most eight levels.
#[derive(Clone, Debug)]
pub struct SharedMap<V> {
    root: Option<Arc<Node<V>>>,
    /// Levels above the leaves.
    height: u32,
}

impl<V> Default for SharedMap<V> {
    fn default() -> Self {
        Self { root: None, height: 0 }
    }
}

/// Position of a key in a node at this height.
fn at(key: u32, height: u32) -> usize {
    (key >> (height * BITS)) as usize & (WIDTH - 1)
}

impl<V: Clone> SharedMap<V> {
    /// Whether a tree of the current height has a place for this key.
    fn holds(&self, key: u32) -> bool {
        u64::from(key) >> ((self.height + 1) * BITS) == 0
    }

    /// The value at this key.
    pub fn get(&self, key: u32) -> Option<&V> {
        if !self.holds(key) {
            return None;
        }
        let (mut node, mut height) = (self.root.as_deref()?, self.height);
        loop {
            match node {
                Node::Inner(below) => node = below[at(key, height)].as_deref()?,
                Node::Leaf(values) => return values[at(key, 0)].as_ref(),
            }
            height = height.saturating_sub(1);
        }
    }

    /// Sets the value at this key, and returns the one before.
    pub fn insert(&mut self, key: u32, value: V) -> Option<V> {
        while !self.holds(key) {
            if let Some(root) = self.root.take() {
                let mut below = std::array::from_fn(|_| None);
                below[0] = Some(root);
                self.root = Some(Arc::new(Node::Inner(below)));
            }
            self.height += 1;
        }
        let (mut place, mut height) = (&mut self.root, self.height);
        loop {
            let fresh = || {
                Arc::new(match height {
                    0 => Node::Leaf(std::array::from_fn(|_| None)),
                    _ => Node::Inner(std::array::from_fn(|_| None)),
                })
            };
            match Arc::make_mut(place.get_or_insert_with(fresh)) {
                Node::Inner(below) => place = &mut below[at(key, height)],
                Node::Leaf(values) => return values[at(key, 0)].replace(value),
            }
            height = height.saturating_sub(1);
        }
    }

    /// Removes the value at this key, and returns it.
    pub fn remove(&mut self, key: u32) -> Option<V> {
        self.get(key)?;
        let mut node = Arc::make_mut(self.root.as_mut()?);
        let mut height = self.height;
        loop {
            match node {
                Node::Inner(below) => node = Arc::make_mut(below[at(key, height)].as_mut()?),
                Node::Leaf(values) => return values[at(key, 0)].take(),
            }
            height = height.saturating_sub(1);
        }
    }

    /// All keys and values, in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &V)> {
        let mut todo: Vec<(u32, u32, &Node<V>)> =
            self.root.as_deref().map(|n| (0, self.height, n)).into_iter().collect();
        let mut leaf: Vec<(u32, &V)> = Vec::new();
        std::iter::from_fn(move || {
            while leaf.is_empty() {
                let (from, height, node) = todo.pop()?;
                match node {
                    Node::Inner(below) => {
                        let known = below.iter().enumerate().rev().filter_map(|(i, n)| Some((i as u32, n.as_deref()?)));
                        todo.extend(known.map(|(i, n)| (from | i << (height * BITS), height.saturating_sub(1), n)));
                    }
                    Node::Leaf(values) => {
                        let known = values.iter().enumerate().rev().filter_map(|(i, v)| Some((i as u32, v.as_ref()?)));
                        leaf.extend(known.map(|(i, v)| (from | i, v)));
                    }
                }
            }
            leaf.pop()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_is_a_map_and_copies_are_independent() {
        let (mut map, mut plain) = (SharedMap::default(), BTreeMap::new());
        let (mut copy, mut plain_copy) = (map.clone(), plain.clone());
        let mut x = 1_u32;
        for i in 0..5000_u32 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Dense, sparse and extreme keys.
            let key = match i % 3 {
                0 => x >> 24,
                1 => x,
                _ => u32::MAX - (x >> 28),
            };
            if i % 4 == 3 {
                assert_eq!(map.remove(key), plain.remove(&key));
            } else {
                assert_eq!(map.insert(key, i), plain.insert(key, i));
            }
            assert_eq!(map.get(key), plain.get(&key));
            assert_eq!(copy.get(key), plain_copy.get(&key));
            if i % 500 == 0 {
                assert!(copy.iter().eq(plain_copy.iter().map(|(k, v)| (*k, v))));
                (copy, plain_copy) = (map.clone(), plain.clone());
            }
        }
        assert!(map.iter().eq(plain.iter().map(|(k, v)| (*k, v))));
    }
}
