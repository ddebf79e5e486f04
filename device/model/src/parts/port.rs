//! A port as its program sees it: the slots of the requester page with the status line that frees them, and the receive
//! queue with the registers by which the program gives its slices back and asks to be woken.
//!
//! A shell sees what a program did when the wall clock has it: late, and several things at once. What the program could
//! have known, and what it was due to do, follows from the model alone, and that is when it takes effect here.

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
    /// What the line says when it is written next.
    pub line: StatusLine,
    /// When the line last written is visible.
    visible: Time,
    /// Lines that freed slots which were not launched again yet: launches that each counts, and when it is visible.
    /// Both rise. Never more than slots of a page.
    freed: VecDeque<(u64, Time)>,
}

impl RequesterPage {
    /// A page that was just opened, with its status line at this address.
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

    /// When the line last written is visible.
    pub const fn visible(&self) -> Time {
        self.visible
    }

    /// When the next launch can have been made: at `now`, where the shell sees it, or when the program could know that
    /// its slot is free, which is not before a status line was visible that counts the launch which used that slot
    /// last. A shell that follows a program in wall time sees the launch after that line, whatever the model times of
    /// both.
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

    /// How many launches, from the next one on, are made when the shell sees them ([`RequesterPage::launched_at`]), if
    /// that is at `now` or later, and no line is written before.
    #[inline]
    pub fn not_held(&self, now: Time) -> u64 {
        let mut counted = 0;
        for &(next, visible) in &self.freed {
            if visible > now {
                return (counted + u64::from(SLOTS)).saturating_sub(self.line.launched);
            }
            counted = next;
        }
        u64::MAX
    }

    /// How many launches there are until the status line is due, and that one with them.
    #[inline]
    pub const fn until_line(&self) -> u64 {
        STATUS_LINE_INTERVAL as u64 - self.line.launched % STATUS_LINE_INTERVAL as u64
    }

    /// Counts so many launches, none of them held ([`RequesterPage::not_held`]). Returns whether the status line is due
    /// for the last.
    #[inline]
    pub fn count_launches(&mut self, launches: u64) -> bool {
        self.line.launched += launches.saturating_sub(1);
        // Of those before it, what the last one needs says more.
        let _ = self.launched_at(Time::END);
        self.count_launch().1
    }

    /// Counts a launch. Returns its number, and whether the status line is due for it.
    pub const fn count_launch(&mut self) -> (u64, bool) {
        self.line.launched += 1;
        (self.line.launched, self.line.launched.is_multiple_of(STATUS_LINE_INTERVAL as u64))
    }

    /// Writes the status line. Each reason has a line of its own: how many there are must not depend on how much a
    /// shell feeds at once.
    pub fn write<C: Counting>(&mut self, at: Time, effects: &mut Effects<C>) {
        effects.card().status_lines += 1;
        // It tells the sender of a message, and no part of the message waits for it. The bus keeps the order: a later
        // line is never seen before an earlier one.
        let words = DmaWords::from_slice(&to_words::<LINE_WORDS>(&self.line));
        self.visible =
            effects.unattributed(|effects| effects.dma_write(at, self.address, words, Content::Counts));
        if self.freed.back().is_none_or(|&(counted, _)| counted < self.line.launched) {
            self.freed.push_back((self.line.launched, self.visible));
        }
    }

    /// Counts a launch or a register store that is refused, for a `REFUSED_` of the ABI, and tells the program.
    pub fn refuse<C: Counting>(&mut self, at: Time, reason: u64, effects: &mut Effects<C>) {
        effects.card().refused += 1;
        self.line.refused += 1;
        self.line.refusal = reason;
        self.write(at, effects);
    }
}

/// Places of a receive queue that are kept for what will be stored: nobody else gets them.
#[derive(Debug)]
#[must_use = "places that nobody needs are given back"]
pub struct Promise {
    places: u64,
    obligation: Obligation,
}

impl Promise {
    const fn of(places: u64) -> Self {
        Self { places, obligation: Obligation::new("a place of a receive queue that was promised") }
    }

    /// How many.
    pub const fn places(&self) -> u64 {
        self.places
    }

    /// One of them, while there are any.
    pub const fn take_one(&mut self) -> Option<Self> {
        if self.places == 0 {
            return None;
        }
        self.places -= 1;
        Some(Self::of(1))
    }

    /// The queue is gone.
    pub fn void(self) {
        self.obligation.void();
    }
}

/// A place that is filled now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of what is stored, from 1.
    pub number: u64,
    /// Which place of the queue, from 0.
    pub index: usize,
    /// Where it begins in host memory.
    pub address: u64,
}

/// Places that are filled now, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    stored: u64,
    last_index: u64,
    address: u64,
}

impl Places {
    /// The next.
    #[inline]
    pub const fn next(&mut self) -> Place {
        let index = (self.stored & self.last_index) as usize;
        self.stored += 1;
        Place { number: self.stored, index, address: self.address + index as u64 * SLICE_BYTES }
    }
}

/// Places that the program gave back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// By how much was stored before each of them.
    pub places: Range<u64>,
    /// When that took effect.
    pub at: Time,
}

/// A receive queue: slices in host memory, that the card fills in turn.
#[derive(Clone, Debug)]
pub struct ReceiveQueue {
    address: u64,
    slices: u64,
    stored: u64,
    released: u64,
    promised: u64,
    /// Number of the slice that interrupts; zero: none.
    armed: u64,
    /// Slices that the program consumes between two stores of its register; zero: not known.
    release_interval: u64,
    /// Slices whose release the host has been charged for.
    release_priced: u64,
    /// Releases that the host has been charged for and that were not seen yet: how many slices, and when the store is
    /// there. One for each interval of slices in the queue at most.
    releases_due: VecDeque<(u64, Time)>,
    visible: Time,
}

impl ReceiveQueue {
    /// An empty queue. Its slices are a power of two.
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

    /// When the slice stored last is visible.
    pub const fn visible(&self) -> Time {
        self.visible
    }

    /// The place of a slice before which so many were stored.
    pub const fn index_of(&self, stored: u64) -> usize {
        (stored & (self.slices - 1)) as usize
    }

    /// Whether `places` more can be promised.
    #[inline]
    pub const fn has_room(&self, places: u64) -> bool {
        self.stored - self.released + self.promised + places <= self.slices
    }

    /// How many places can be promised and filled one behind the other before one interrupts.
    pub fn room(&self) -> u64 {
        let free = self.slices.saturating_sub(self.stored - self.released + self.promised);
        if self.armed == 0 { free } else { free.min(self.armed.saturating_sub(self.stored + 1)) }
    }

    /// Promises places. The caller has asked [`ReceiveQueue::has_room`], or holds back senders by other means.
    #[inline]
    pub const fn promise(&mut self, places: u64) -> Promise {
        self.promised += places;
        Promise::of(places)
    }

    /// Takes a promise back that was not needed.
    #[inline]
    pub fn forgo(&mut self, promise: Promise) {
        let Promise { places, obligation } = promise;
        self.promised = self.promised.saturating_sub(places);
        obligation.fulfil();
    }

    /// What is stored next takes a place that was promised.
    #[inline]
    pub fn store(&mut self, promise: Promise) -> Place {
        debug_assert!(promise.places == 1, "one place is filled at a time");
        self.forgo(promise);
        let index = self.index_of(self.stored);
        self.stored += 1;
        Place { number: self.stored, index, address: self.address + index as u64 * SLICE_BYTES }
    }

    /// The places of what is stored next, one behind the other.
    #[inline]
    pub const fn next_places(&self) -> Places {
        Places { stored: self.stored, last_index: self.slices - 1, address: self.address }
    }

    /// So many are stored, one behind the other, for which nobody has promised a place, and there is room
    /// ([`ReceiveQueue::room`]). The last is visible at `visible`.
    #[inline]
    pub fn on_stored(&mut self, places: u64, visible: Time) {
        debug_assert!(self.has_room(places), "who stores has asked for room");
        self.stored += places;
        self.on_visible(visible);
    }

    /// The slice stored last is visible at `visible`.
    #[inline]
    pub fn on_visible(&mut self, visible: Time) {
        self.visible = self.visible.max(visible);
    }

    /// The program has the slice stored last at `consumed`: charges the host for its register, where that is due now.
    #[inline]
    pub fn on_consumed<C: Counting>(&mut self, consumed: Time, effects: &mut Effects<C>) {
        if self.release_interval != 0 && self.stored - self.release_priced >= self.release_interval {
            self.release_priced = self.stored;
            self.releases_due.push_back((self.stored, effects.store_register(consumed)));
        }
    }

    /// How many slices can be stored, from the next one on, before the host is charged for its register.
    #[inline]
    pub const fn until_release(&self) -> u64 {
        match self.release_interval {
            0 => u64::MAX,
            interval => (interval - 1).saturating_sub(self.stored - self.release_priced),
        }
    }

    /// Interrupts at `visible` if the armed slice is stored; that disarms.
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

    /// A store to a register of the completer page. Returns the slices that the program says to have consumed: they
    /// come free by [`ReceiveQueue::take_due`] and [`ReceiveQueue::take_early`].
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

    /// The next release, of those that the program was due to make, that the register's new value tells of. It is seen
    /// late and by whole batches, as the wall clock has it; but the host was charged for each store when its last slice
    /// was consumed, and that is when it took effect.
    pub fn take_due(&mut self, released: u64) -> Option<Release> {
        let (end, at) = self.releases_due.front().copied().filter(|(end, _)| *end <= released)?;
        self.releases_due.pop_front();
        Some(self.release(end, at))
    }

    /// What the register's new value says beyond the releases that were due: the program released early, because it
    /// went to sleep or is of another mind.
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

    fn store(queue: &mut ReceiveQueue) -> Place {
        let promise = queue.promise(1);
        queue.store(promise)
    }

    #[test]
    fn what_is_promised_has_no_room_for_others() {
        let (mut queue, mut effects) = (queue(8), effects());
        assert!(queue.has_room(8) && !queue.has_room(9));
        let mut promise = queue.promise(6);
        assert!(queue.has_room(2) && !queue.has_room(3));
        let one = promise.take_one().unwrap();
        assert_eq!(queue.store(one), Place { number: 1, index: 0, address: 0x1000 });
        assert!(queue.has_room(2) && !queue.has_room(3), "stored instead of promised");
        assert_eq!(promise.places(), 5);
        queue.forgo(promise);
        assert!(queue.has_room(7) && !queue.has_room(8));
        let release = queue.take_early(Time::ZERO, 1, &mut effects).unwrap();
        assert_eq!((release.places, queue.has_room(8)), (0..1, true));
    }

    #[test]
    fn a_promise_of_nothing_has_nothing_to_take() {
        let mut queue = queue(8);
        let mut promise = queue.promise(1);
        promise.take_one().unwrap().void();
        assert!(promise.take_one().is_none());
        promise.void();
    }

    #[test]
    fn places_follow_one_another_and_begin_anew() {
        let mut queue = queue(8);
        let places: Vec<Place> = (0..9).map(|_| store(&mut queue)).collect();
        assert_eq!(places[1], Place { number: 2, index: 1, address: 0x1000 + SLICE_BYTES });
        assert_eq!(places[8], Place { number: 9, index: 0, address: 0x1000 });
    }

    #[test]
    fn stores_on_the_beat_take_effect_when_they_were_due() {
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
    fn a_register_that_falls_or_runs_ahead_is_refused_and_told() {
        let (mut queue, mut effects, mut page) = (queue(8), effects(), RequesterPage::new(0x40));
        store(&mut queue);
        let told = queue.on_register(Time::ZERO, 0, Register::Released(2), &mut page, &mut effects);
        assert_eq!((told, page.line.refused, page.line.refusal), (None, 1, REFUSED_RELEASE));
        assert!(matches!(effects.poll(), Some(Output::DmaWrite { address: 0x40, .. })));
        assert_eq!(queue.on_register(Time::ZERO, 0, Register::Released(1), &mut page, &mut effects), Some(1));
    }

    #[test]
    fn an_armed_slice_interrupts_once_and_at_once_when_it_is_there() {
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

    /// Launches that are not held are not, the one behind them is, and counted together they are what they are one by
    /// one.
    fn hold_launches_together(page: &RequesterPage, now: Time) -> Result<(), TestCaseError> {
        let (mut one_by_one, unheld) = (page.clone(), page.not_held(now));
        for count in 1..=unheld.min(40) {
            prop_assert_eq!(one_by_one.launched_at(now), now);
            let (_, is_due) = one_by_one.count_launch();
            let interval = u64::from(STATUS_LINE_INTERVAL);
            prop_assert_eq!(is_due, (count + page.line.launched).is_multiple_of(interval));
            let mut together = page.clone();
            prop_assert_eq!(together.count_launches(count), is_due);
            let behind_first_line = count.checked_sub(page.until_line());
            prop_assert_eq!(is_due, behind_first_line.is_some_and(|more| more.is_multiple_of(interval)));
            prop_assert_eq!(alloc::format!("{:?}", together), alloc::format!("{:?}", one_by_one));
        }
        let is_held = one_by_one.launched_at(now) > now;
        prop_assert!(
            unheld > 40 || is_held || one_by_one.freed.is_empty(),
            "no line counts the one behind them"
        );
        Ok(())
    }

    proptest! {
        /// A launch is never carried out before the program could know that its slot is free, and never later than that
        /// or its being seen.
        #[test]
        fn a_slot_is_launched_again_once_a_visible_line_has_counted_it(
            steps in prop::collection::vec((any::<bool>(), 0..400_u64), 1..300),
        ) {
            let (mut effects, mut page) = (effects(), RequesterPage::new(0));
            // Launches that each line counts, and when it is visible.
            let mut lines: Vec<(u64, Time)> = Vec::new();
            let mut now = Time::ZERO;
            for (writes, ns) in steps {
                now = Time::from_ps(now.as_ps() + ns * 1_000);
                if writes {
                    page.write(now, &mut effects);
                    lines.push((page.line.launched, page.visible()));
                    continue;
                }
                // A program that sees no free slot does not launch.
                let needed = (page.line.launched + 1).saturating_sub(SLOTS.into());
                let free = lines.iter().find(|(counted, _)| *counted >= needed).map(|&(_, at)| at);
                if needed > 0 && free.is_none() {
                    continue;
                }
                let free = free.filter(|_| needed > 0).unwrap_or(Time::ZERO);
                hold_launches_together(&page, now)?;
                // However early a shell sees it.
                prop_assert_eq!(page.launched_at(Time::ZERO), free);
                prop_assert_eq!(page.launched_at(now), now.max(free));
                page.count_launch();
                prop_assert!(page.freed.len() <= SLOTS as usize + 1);
            }
        }

        /// However a program releases, a slice comes free once, in order, and not before it was stored.
        #[test]
        fn slices_come_free_once_and_in_order(
            interval in 0..9_u64,
            steps in prop::collection::vec((any::<bool>(), 0..12_u64), 1..200),
        ) {
            let (mut queue, mut effects, mut page) = (queue(8), effects(), RequesterPage::new(0));
            queue.on_register(Time::ZERO, 0, Register::ReleaseInterval(interval), &mut page, &mut effects);
            let (mut freed, mut now) = (0, Time::ZERO);
            for (stores, released) in steps {
                now = Time::from_ps(now.as_ps() + 1_000_000);
                if stores && queue.has_room(1) {
                    let is_register_due = queue.until_release() == 0;
                    let due = queue.releases_due.len();
                    let next = queue.next_places().next();
                    prop_assert_eq!(store(&mut queue), next);
                    queue.on_consumed(now, &mut effects);
                    prop_assert_eq!(queue.releases_due.len() > due, is_register_due);
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
