//! A queue of items in their order, the first one first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Items in their order, of which no two are equal. Only an item that overtakes others is sorted. Frames of one sender,
/// and replies of one receiver, mostly come after all others.
#[derive(Debug)]
pub struct InOrder<T> {
    /// Items that came after all others in it, in their order.
    run: VecDeque<T>,
    overtaking: BinaryHeap<Reverse<T>>,
}

impl<T: Ord> InOrder<T> {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { run: VecDeque::new(), overtaking: BinaryHeap::new() }
    }

    /// Whether it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.run.is_empty() && self.overtaking.is_empty()
    }

    /// Number of items.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.run.len() + self.overtaking.len()
    }

    /// Adds an item.
    #[inline]
    pub fn push(&mut self, next: T) {
        if self.run.back().is_none_or(|last| *last < next) {
            self.run.push_back(next);
        } else {
            self.overtaking.push(Reverse(next));
        }
    }

    /// Removes the first item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let is_overtaken = match (self.run.front(), self.overtaking.peek()) {
            (Some(first), Some(Reverse(other))) => other < first,
            (first, _) => first.is_none(),
        };
        if is_overtaken { self.overtaking.pop().map(|Reverse(first)| first) } else { self.run.pop_front() }
    }

    /// Changes all items, but not their order.
    pub fn for_each_mut(&mut self, mut change: impl FnMut(&mut T)) {
        self.run.iter_mut().for_each(&mut change);
        let mut overtaking = std::mem::take(&mut self.overtaking).into_vec();
        overtaking.iter_mut().for_each(|Reverse(it)| change(it));
        self.overtaking = overtaking.into();
    }
}

impl<T: Ord> Default for InOrder<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pop_removes_the_first_of_all_items(
            steps in prop::collection::vec(prop::option::weighted(0.6, 0..20_u32), 0..200),
        ) {
            let (mut found, mut plain) = (InOrder::new(), BTreeSet::new());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Some(at) => {
                        // Mostly rising.
                        let next = (at + number as u32 / 8, number);
                        found.push(next);
                        plain.insert(next);
                    }
                    None => prop_assert_eq!(found.pop(), plain.pop_first()),
                }
                prop_assert_eq!((found.len(), found.is_empty()), (plain.len(), plain.is_empty()));
                let mut seen = BTreeSet::new();
                found.for_each_mut(|it| {
                    seen.insert(*it);
                });
                prop_assert_eq!(&seen, &plain);
            }
            let rest: Vec<_> = std::iter::from_fn(|| found.pop()).collect();
            prop_assert_eq!(rest, plain.into_iter().collect::<Vec<_>>());
        }
    }
}
