//! Lists of items, and the walk along one list, or along two as if they were one.

use alloc::collections::VecDeque;

use super::{Handle, Job, Linked, Search, Store, Use};
use crate::models::matching::item::Item;

/// Items of a list that are not in local memory.
pub(super) fn elsewhere(list: &VecDeque<Linked>) -> usize {
    list.iter().filter(|linked| linked.store != Store::Card).count()
}

/// Removes the item with a handle from a list. Returns the item, if it was there, and how many items were checked or
/// moved. Handles ascend in a list, except where their numbers wrap around. In such a list all items are checked.
pub(super) fn remove(list: &mut VecDeque<Linked>, handle: Handle) -> (Option<Linked>, u64) {
    let guess = list.partition_point(|linked| linked.handle < handle);
    let mut steps = u64::from(list.len().max(1).ilog2()) + 1;
    let is_it = |linked: &Linked| linked.handle == handle;
    let found = if list.get(guess).is_some_and(is_it) {
        Some(guess)
    } else {
        steps += list.len() as u64;
        list.iter().position(is_it)
    };
    let Some(place) = found else { return (None, steps) };
    let removed = list.remove(place);
    (removed, steps + place.min(list.len() - place) as u64)
}

/// Whether a result is valid. If items are consumed, it must be inside the message and the item at `index`.
pub(super) fn is_result(
    (uses, lists): (Use, &[VecDeque<Linked>]),
    job: &Job,
    index: usize,
    offset: u64,
    length: u64,
) -> bool {
    let item = || item_at(lists, job.search, index).map(|linked| linked.item);
    let is_inside = |item: Item| offset.checked_add(length).is_some_and(|end| end <= item.length);
    uses == Use::Keep || length <= job.length && item().is_some_and(is_inside)
}

/// Number of items that a search can meet.
pub(super) fn items_of(lists: &[VecDeque<Linked>], search: Search) -> usize {
    let items = |list: usize| lists.get(list).map_or(0, VecDeque::len);
    items(search.first) + search.then.map_or(0, items)
}

/// The item at an index of the walk along a search's lists.
#[inline]
pub(super) fn item_at(lists: &[VecDeque<Linked>], search: Search, index: usize) -> Option<&Linked> {
    let first = lists.get(search.first);
    match index.checked_sub(first.map_or(0, VecDeque::len)) {
        None => first?.get(index),
        Some(place) => lists.get(search.then?)?.get(place),
    }
}

/// The list, and the index in it, of a search's item.
pub(super) fn locate(lists: &[VecDeque<Linked>], search: Search, index: usize) -> Option<(usize, usize)> {
    let in_first = lists.get(search.first).map_or(0, VecDeque::len);
    match index.checked_sub(in_first) {
        None => Some((search.first, index)),
        Some(place) => Some((search.then?, place)),
    }
}
