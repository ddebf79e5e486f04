//! A port as its program sees it: requester page and status line on the sending side; receive queue, released slices
//! and armed interrupts on the receiving side.
//!
//! A shell sees a program's actions in wall time: late, and several at once. When the program knew of an event, and
//! when it was due to act, follows from the model alone. Actions take effect here at those instants.

use alloc::collections::VecDeque;
use core::ops::Range;

use niclab_abi::bar::SLOTS;
use niclab_abi::control::PortOpen;
use niclab_abi::event::CAUSE_ARMED;
use niclab_abi::receive::{REFUSED_RELEASE, SLICE_BYTES, STATUS_LINE_INTERVAL, StatusLine};
use niclab_abi::{FromBytes, to_words};

use crate::nic::{Content, DmaWords, Register};
use crate::parts::counters::Counting;
use crate::parts::effects::{Effects, WORD_BYTES};
use crate::parts::obligation::Obligation;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Words of the status line.
const LINE_WORDS: usize = StatusLine::BYTES / WORD_BYTES as usize;

/// The slots of a port's requester page, and the status line.
#[derive(Clone, Debug)]
pub struct RequesterPage {
    address: u64,
    /// The content of the next status line.
    pub line: StatusLine,
    /// When the last status line is visible.
    visible: Time,
    /// Status lines that freed slots which were not reused yet: the count of posts in each, and when it is visible.
    /// Both only increase. At most one entry for each slot of a page.
    freed: VecDeque<(u64, Time)>,
}

impl RequesterPage {
    /// A newly opened page, with its status line at this address.
    pub const fn new(address: u64) -> Self {
        const LINE: StatusLine = StatusLine {
            launched: 0,
            notified: 0,
            acknowledged: 0,
            sent: 0,
            refusal: 0,
            refused: 0,
            reserved0: 0,
            reserved1: 0,
        };
        Self { address, line: LINE, visible: Time::ZERO, freed: VecDeque::new() }
    }

    /// When the last status line is visible.
    pub const fn visible(&self) -> Time {
        self.visible
    }

    /// The earliest instant of the next post: `now`, when the shell sees it, or the instant when the program could
    /// know that its slot is free, whichever is later. The latter is when the status line became visible that counts
    /// the previous post of that slot. A shell that observes a program in wall time sees the post after that line, for
    /// any model times of both.
    pub fn launched_at(&mut self, now: Time) -> Time {
        let Some(needed) = (self.line.launched + 1).checked_sub(SLOTS.into()).filter(|needed| *needed > 0)
        else {
            return now;
        };
        while self.freed.front().is_some_and(|&(counted, _)| counted < needed) {
            self.freed.pop_front();
        }
        self.freed.front().map_or(now, |&(_, visible)| now.max(visible))
    }

    /// Counts a post. Returns its number, and whether the status line is due.
    pub const fn count_launch(&mut self) -> (u64, bool) {
        self.line.launched += 1;
        (self.line.launched, self.line.launched.is_multiple_of(STATUS_LINE_INTERVAL as u64))
    }

    /// Writes the status line. Each reason has its own line, because the number of lines must not depend on how many
    /// posts a shell passes at once.
    pub fn write<C: Counting>(&mut self, at: Time, effects: &mut Effects<C>) {
        effects.card().status_lines += 1;
        // The line belongs to no message: it reports to the sender, and no part of a message waits for it. The bus
        // keeps the order, so a later line is never visible before an earlier one.
        let words = DmaWords::from_slice(&to_words::<LINE_WORDS>(&self.line));
        self.visible =
            effects.unattributed(|effects| effects.dma_write(at, self.address, words, Content::Counts));
        if self.freed.back().is_none_or(|&(counted, _)| counted < self.line.launched) {
            self.freed.push_back((self.line.launched, self.visible));
        }
    }

    /// Counts a post or a register store that is refused, for a `REFUSED_` of the ABI, and reports it to the program.
    pub fn refuse<C: Counting>(&mut self, at: Time, reason: u64, effects: &mut Effects<C>) {
        effects.card().refused += 1;
        self.line.refused += 1;
        self.line.refusal = reason;
        self.write(at, effects);
    }
}

/// Reserved slices of a receive queue.
#[derive(Debug)]
#[must_use = "slices that are not needed must be given back"]
pub struct Promise {
    places: u64,
    obligation: Obligation,
}

impl Promise {
    const fn of(places: u64) -> Self {
        Self { places, obligation: Obligation::new("a slice of a receive queue that was promised") }
    }

    /// Number of slices.
    pub const fn places(&self) -> u64 {
        self.places
    }

    /// Splits one slice off, if any is left.
    pub const fn take_one(&mut self) -> Option<Self> {
        if self.places == 0 {
            return None;
        }
        self.places -= 1;
        Some(Self::of(1))
    }

    /// Cancels it: the queue is gone.
    pub fn void(self) {
        self.obligation.void();
    }
}

/// A slice of the queue that is filled now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceSlot {
    /// Number of the slice, from 1.
    pub number: u64,
    /// Its index in the queue, from 0.
    pub index: usize,
    /// Its address in host memory.
    pub address: u64,
}

/// Consecutive slices that are filled now.
#[derive(Clone, Copy, Debug)]
pub struct SliceSlots {
    stored: u64,
    last_index: u64,
    address: u64,
}

impl SliceSlots {
    /// The next slice.
    #[inline]
    pub const fn next(&mut self) -> SliceSlot {
        let index = (self.stored & self.last_index) as usize;
        self.stored += 1;
        SliceSlot { number: self.stored, index, address: self.address + index as u64 * SLICE_BYTES }
    }
}

/// Slices that the program released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The range, in counts of stored slices.
    pub places: Range<u64>,
    /// When the release took effect.
    pub at: Time,
}

/// A receive queue: slices in host memory, which the card fills in order.
#[derive(Clone, Debug)]
pub struct ReceiveQueue {
    address: u64,
    slices: u64,
    stored: u64,
    released: u64,
    promised: u64,
    /// Number of the slice whose arrival interrupts the host; zero: none.
    armed: u64,
    /// Slices that the program consumes between two stores of its register; zero: unknown.
    release_interval: u64,
    /// Slices whose release was charged to the host.
    release_priced: u64,
    /// Releases that were charged to the host but that the shell has not seen yet: the count of slices, and when the
    /// store arrives. At most one for each interval of slices in the queue.
    releases_due: VecDeque<(u64, Time)>,
    visible: Time,
}

impl ReceiveQueue {
    /// An empty queue. Its number of slices is a power of two.
    pub const fn new(open: &PortOpen) -> Self {
        Self {
            address: open.slices_address,
            slices: open.slices as u64,
            stored: 0,
            released: 0,
            promised: 0,
            armed: 0,
            release_interval: 0,
            release_priced: 0,
            releases_due: VecDeque::new(),
            visible: Time::ZERO,
        }
    }

    /// Slices of the queue.
    pub const fn slices(&self) -> u64 {
        self.slices
    }

    /// Slices stored since the port was opened.
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// When the last stored slice is visible.
    pub const fn visible(&self) -> Time {
        self.visible
    }

    /// The index of the slice after `stored` stored slices.
    pub const fn index_of(&self, stored: u64) -> usize {
        (stored & (self.slices - 1)) as usize
    }

    /// Whether `places` more slices can be promised.
    #[inline]
    pub const fn has_room(&self, places: u64) -> bool {
        self.stored - self.released + self.promised + places <= self.slices
    }

    /// Max slices that can be promised and filled in a row before one interrupts.
    pub fn room(&self) -> u64 {
        let free = self.slices.saturating_sub(self.stored - self.released + self.promised);
        if self.armed == 0 { free } else { free.min(self.armed.saturating_sub(self.stored + 1)) }
    }

    /// Promises slices. The caller has checked [`ReceiveQueue::has_room`], or limits senders by other means.
    #[inline]
    pub const fn promise(&mut self, places: u64) -> Promise {
        self.promised += places;
        Promise::of(places)
    }

    /// Takes a promise back.
    #[inline]
    pub fn forgo(&mut self, promise: Promise) {
        let Promise { places, obligation } = promise;
        self.promised = self.promised.saturating_sub(places);
        obligation.fulfil();
    }

    /// Fills the next slice, which was promised.
    #[inline]
    pub fn store(&mut self, promise: Promise) -> SliceSlot {
        debug_assert!(promise.places == 1, "one slice is filled at a time");
        self.forgo(promise);
        let index = self.index_of(self.stored);
        self.stored += 1;
        SliceSlot { number: self.stored, index, address: self.address + index as u64 * SLICE_BYTES }
    }

    /// The next slices, in order.
    #[inline]
    pub const fn next_slots(&self) -> SliceSlots {
        SliceSlots { stored: self.stored, last_index: self.slices - 1, address: self.address }
    }

    /// Counts `places` consecutive stored slices without a promise; the caller has checked [`ReceiveQueue::room`]. The
    /// last is visible at `visible`.
    #[inline]
    pub fn on_stored(&mut self, places: u64, visible: Time) {
        debug_assert!(self.has_room(places), "the caller must check for room");
        self.stored += places;
        self.on_visible(visible);
    }

    /// The last stored slice is visible at `visible`.
    #[inline]
    pub fn on_visible(&mut self, visible: Time) {
        self.visible = self.visible.max(visible);
    }

    /// The program gets the last stored slice at `consumed`: charges the host for its register store if that is due.
    #[inline]
    pub fn on_consumed<C: Counting>(&mut self, consumed: Time, effects: &mut Effects<C>) {
        if self.release_interval != 0 && self.stored - self.release_priced >= self.release_interval {
            self.release_priced = self.stored;
            self.releases_due.push_back((self.stored, effects.store_register(consumed)));
        }
    }

    /// Raises an interrupt at `visible` if the armed slice is stored, and disarms.
    #[inline]
    pub fn wake<C: Counting>(
        &mut self,
        visible: Time,
        port: usize,
        message: Option<TraceTag>,
        effects: &mut Effects<C>,
    ) {
        if self.armed != 0 && self.armed <= self.stored {
            self.armed = 0;
            effects.interrupt(visible, CAUSE_ARMED, port, message);
        }
    }

    /// Handles a store to a register of the completer page. Returns the count of released slices;
    /// [`ReceiveQueue::take_due`] and [`ReceiveQueue::take_early`] then free them.
    pub fn on_register<C: Counting>(
        &mut self,
        now: Time,
        port: usize,
        register: Register,
        page: &mut RequesterPage,
        effects: &mut Effects<C>,
    ) -> Option<u64> {
        match register {
            Register::ReleaseInterval(slices) => self.release_interval = slices.min(self.slices),
            Register::Armed(slice) => {
                effects.card().unordered += 1;
                let arrived = effects.store_register(now);
                self.armed = slice;
                self.wake(arrived.max(self.visible), port, None, effects);
            }
            Register::Released(released) if released < self.released || released > self.stored => {
                effects.card().unordered += 1;
                let arrived = effects.store_register(now);
                page.refuse(arrived, REFUSED_RELEASE, effects);
            }
            Register::Released(released) => return Some(released),
        }
        None
    }

    /// The next due release that the register's new value confirms. The shell sees stores late, several at once. The
    /// host was charged for each store when its last slice was consumed, and the release takes effect then.
    pub fn take_due(&mut self, released: u64) -> Option<Release> {
        let (end, at) = self.releases_due.front().copied().filter(|(end, _)| *end <= released)?;
        self.releases_due.pop_front();
        Some(self.release(end, at))
    }

    /// The part of the register's new value beyond the due releases. The program released early, because it went to
    /// sleep or changed its interval.
    pub fn take_early<C: Counting>(
        &mut self,
        now: Time,
        released: u64,
        effects: &mut Effects<C>,
    ) -> Option<Release> {
        if released <= self.released && self.release_interval != 0 {
            return None;
        }
        effects.card().unordered += 1;
        self.releases_due.clear();
        self.release_priced = released;
        let arrived = effects.store_register(now);
        Some(self.release(released, arrived))
    }

    fn release(&mut self, released: u64, at: Time) -> Release {
        let before = self.released;
        self.released = before.max(released);
        Release { places: before..self.released, at }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::nic::Output;
    use crate::parts::counters::CardCounters;
    use crate::parts::effects::WorkPrices;
    use crate::parts::host_interface::HostInterface;
    use crate::platform::profile::Profile;

    #[derive(Debug, Default)]
    struct Counters(CardCounters);

    impl AsMut<CardCounters> for Counters {
        fn as_mut(&mut self) -> &mut CardCounters {
            &mut self.0
        }
    }

    fn effects() -> Effects<Counters> {
        let prices = WorkPrices {
            input: 1,
            checked_bytes_in_unit: u64::MAX,
            output: 1,
            copied_bytes_in_unit: u64::MAX,
        };
        Effects::new(HostInterface::new(Profile::ultra_200mhz_htx()), prices)
    }

    fn queue(slices: u32) -> ReceiveQueue {
        ReceiveQueue::new(&PortOpen { slices, slices_address: 0x1000, ..PortOpen::default() })
    }

    fn store(queue: &mut ReceiveQueue) -> SliceSlot {
        let promise = queue.promise(1);
        queue.store(promise)
    }

    #[test]
    fn promised_slices_are_not_available_to_others() {
        let (mut queue, mut effects) = (queue(8), effects());
        assert!(queue.has_room(8) && !queue.has_room(9));
        let mut promise = queue.promise(6);
        assert!(queue.has_room(2) && !queue.has_room(3));
        let one = promise.take_one().unwrap();
        assert_eq!(queue.store(one), SliceSlot { number: 1, index: 0, address: 0x1000 });
        assert!(queue.has_room(2) && !queue.has_room(3), "the slice is stored, no longer promised");
        assert_eq!(promise.places(), 5);
        queue.forgo(promise);
        assert!(queue.has_room(7) && !queue.has_room(8));
        let release = queue.take_early(Time::ZERO, 1, &mut effects).unwrap();
        assert_eq!((release.places, queue.has_room(8)), (0..1, true));
    }

    #[test]
    fn empty_promise_has_no_slice_to_take() {
        let mut queue = queue(8);
        let mut promise = queue.promise(1);
        promise.take_one().unwrap().void();
        assert!(promise.take_one().is_none());
        promise.void();
    }

    #[test]
    fn slices_are_filled_in_order_and_wrap() {
        let mut queue = queue(8);
        let places: Vec<SliceSlot> = (0..9).map(|_| store(&mut queue)).collect();
        assert_eq!(places[1], SliceSlot { number: 2, index: 1, address: 0x1000 + SLICE_BYTES });
        assert_eq!(places[8], SliceSlot { number: 9, index: 0, address: 0x1000 });
    }

    #[test]
    fn due_releases_take_effect_when_they_were_due() {
        let (mut queue, mut effects, mut page) = (queue(8), effects(), RequesterPage::new(0));
        let interval = Register::ReleaseInterval(2);
        assert_eq!(queue.on_register(Time::ZERO, 0, interval, &mut page, &mut effects), None);
        for at in 1..=4 {
            store(&mut queue);
            queue.on_consumed(Time::from_ps(at * 1_000_000), &mut effects);
        }
        let price = effects.interface.transfer(
            crate::parts::host_interface::BusTransfer::PioWrite,
            Time::from_ps(9_000_000),
            8,
        );
        let price = price.end.since(price.start);
        assert_eq!(queue.take_due(1), None);
        let late = Time::from_ps(20_000_000);
        let stored = Register::Released(4);
        assert_eq!(queue.on_register(late, 0, stored, &mut page, &mut effects), Some(4));
        let due = core::iter::from_fn(|| queue.take_due(4)).map(|release| (release.places, release.at));
        let at = |us: u64| Time::from_ps(us * 1_000_000) + price;
        assert!(due.eq([(0..2, at(2)), (2..4, at(4))]));
        assert_eq!(queue.take_early(late, 4, &mut effects), None);
        assert_eq!(effects.counters.0.unordered, 0);
    }

    #[test]
    fn register_out_of_range_is_refused_and_reported() {
        let (mut queue, mut effects, mut page) = (queue(8), effects(), RequesterPage::new(0x40));
        store(&mut queue);
        let told = queue.on_register(Time::ZERO, 0, Register::Released(2), &mut page, &mut effects);
        assert_eq!((told, page.line.refused, page.line.refusal), (None, 1, REFUSED_RELEASE));
        assert!(matches!(effects.poll(), Some(Output::DmaWrite { address: 0x40, .. })));
        assert_eq!(queue.on_register(Time::ZERO, 0, Register::Released(1), &mut page, &mut effects), Some(1));
    }

    #[test]
    fn armed_slice_interrupts_once_even_if_already_stored() {
        let (mut queue, mut effects, mut page) = (queue(8), effects(), RequesterPage::new(0));
        queue.on_register(Time::ZERO, 3, Register::Armed(2), &mut page, &mut effects);
        let mut raised = Vec::new();
        for _ in 0..3 {
            store(&mut queue);
            queue.wake(Time::ZERO, 3, None, &mut effects);
            raised.push(effects.poll().is_some());
        }
        assert_eq!(raised, [false, true, false]);
        queue.on_register(Time::ZERO, 3, Register::Armed(3), &mut page, &mut effects);
        assert!(matches!(effects.poll(), Some(Output::Interrupt { cause: CAUSE_ARMED, port: 3, .. })));
    }

    proptest! {
        /// A post never takes effect before the program could know that its slot is free, and otherwise when the shell
        /// sees it.
        #[test]
        fn slot_is_reused_once_a_visible_line_has_counted_it(
            steps in prop::collection::vec((any::<bool>(), 0..400_u64), 1..300),
        ) {
            let (mut effects, mut page) = (effects(), RequesterPage::new(0));
            // Count of posts in each line, and when it is visible.
            let mut lines: Vec<(u64, Time)> = Vec::new();
            let mut now = Time::ZERO;
            for (writes, ns) in steps {
                now = Time::from_ps(now.as_ps() + ns * 1_000);
                if writes {
                    page.write(now, &mut effects);
                    lines.push((page.line.launched, page.visible()));
                    continue;
                }
                // A program that sees no free slot does not post.
                let needed = (page.line.launched + 1).saturating_sub(SLOTS.into());
                let free = lines.iter().find(|(counted, _)| *counted >= needed).map(|&(_, at)| at);
                if needed > 0 && free.is_none() {
                    continue;
                }
                let free = free.filter(|_| needed > 0).unwrap_or(Time::ZERO);
                // However early a shell sees the post.
                prop_assert_eq!(page.launched_at(Time::ZERO), free);
                prop_assert_eq!(page.launched_at(now), now.max(free));
                page.count_launch();
                prop_assert!(page.freed.len() <= SLOTS as usize + 1);
            }
        }

        /// For any releases, a slice becomes free once, in order, and not before it was stored.
        #[test]
        fn slices_become_free_once_and_in_order(
            interval in 0..9_u64,
            steps in prop::collection::vec((any::<bool>(), 0..12_u64), 1..200),
        ) {
            let (mut queue, mut effects, mut page) = (queue(8), effects(), RequesterPage::new(0));
            queue.on_register(Time::ZERO, 0, Register::ReleaseInterval(interval), &mut page, &mut effects);
            let (mut freed, mut now) = (0, Time::ZERO);
            for (stores, released) in steps {
                now = Time::from_ps(now.as_ps() + 1_000_000);
                if stores && queue.has_room(1) {
                    let next = queue.next_slots().next();
                    prop_assert_eq!(store(&mut queue), next);
                    queue.on_consumed(now, &mut effects);
                }
                let is_possible = (queue.released..=queue.stored).contains(&released);
                let register = Register::Released(released);
                let told = queue.on_register(now, 0, register, &mut page, &mut effects);
                prop_assert_eq!(told, is_possible.then_some(released));
                let Some(released) = told else { continue };
                let mut releases: Vec<Release> = core::iter::from_fn(|| queue.take_due(released)).collect();
                releases.extend(queue.take_early(now, released, &mut effects));
                for release in releases {
                    prop_assert_eq!(release.places.start, freed);
                    freed = release.places.end;
                }
                prop_assert_eq!(freed, released);
                prop_assert_eq!(queue.released, released);
            }
        }
    }
}
