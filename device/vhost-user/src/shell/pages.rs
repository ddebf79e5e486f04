//! The pages of ports: guests post slots and registers there, and the device polls them.

mod bar;
pub mod grants;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use niclab_abi::bar::{
    COMPLETER_ARMED_OFFSET, COMPLETER_INTERVAL_OFFSET, COMPLETER_RELEASED_OFFSET, DOORBELL_SPARED,
    INFO_DOORBELL_OFFSET, INFO_WINDOWS_OFFSET, InfoPage, LAUNCH_SEQUENCE_SHIFT, PAYLOAD_WORDS,
    RECEIVED_KNOWN, SLOT_LAUNCH_WORD, SLOT_RECEIVED_WORD, SLOT_WORDS, SLOTS, TAG_WORDS, Window, slot_of,
};
use niclab_abi::{ABI_VERSION, MAGIC, PAGE_BYTES, ToBytes};
use niclab_model::nic::batch::Batch;
use niclab_model::nic::windows;
use niclab_model::nic::{PageStore, Register};
use niclab_port::doorbell;

pub use self::bar::{Bar, PagesError};

/// What the device has taken from a port's pages so far.
#[derive(Clone, Copy, Debug)]
struct PortView {
    /// Sequence number of the next post.
    expected: u32,
    released: u64,
    armed: u64,
    release_interval: u64,
    /// The program's last report of a lockstep grant.
    report: u64,
    /// Lockstep grants through this port.
    grants: u64,
}

impl PortView {
    const FRESH: Self =
        Self { expected: 1, released: 0, armed: 0, release_interval: 0, report: 0, grants: 0 };

    /// The registers as last taken, in the order of [`Pages::registers`].
    const fn registers(&self) -> [u64; 3] {
        [self.released, self.armed, self.release_interval]
    }
}

/// A posted slot, taken out of its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// What the model gets.
    pub store: PageStore,
    /// The low half of the number of slices that the program had consumed when it posted, if the slot says so.
    pub received: Option<u32>,
}

/// The pages of one node's ports, and the information page.
#[derive(Debug)]
pub struct Pages {
    /// The memory.
    pub bar: Bar,
    ports: Vec<PortView>,
    /// The device's copies of the two words of the information page that change. The device never reads the page
    /// itself: a guest may store there. Only the holder of the node's lock changes these.
    magic: AtomicU64,
    doorbell: AtomicU64,
    /// Number of changes of the doorbell word.
    doorbell_changes: AtomicU64,
}

/// The number of a device's first sleep. A device sleeps until the first doorbell.
const FIRST_SLEEP: u64 = 1;

impl Pages {
    /// The pages of `ports` ports in a BAR with these windows.
    ///
    /// # Errors
    /// [`PagesError`].
    pub fn new(windows: &[windows::Window], ports: u32) -> Result<Self, PagesError> {
        let this = Self {
            bar: Bar::new(windows, ports)?,
            ports: vec![PortView::FRESH; ports as usize],
            magic: AtomicU64::new(0),
            doorbell: AtomicU64::new(FIRST_SLEEP),
            doorbell_changes: AtomicU64::new(0),
        };
        this.write_info();
        Ok(this)
    }

    /// Clears the BAR for a new host: all windows and spare pages are zero afterwards, and the information page is
    /// written again. Otherwise a guest could store a version, a window's address or a post, and the node's next guest
    /// would read it.
    ///
    /// # Errors
    /// The kernel's, if it does not take the pages back. They are zero even then.
    pub fn renew(&mut self) -> io::Result<()> {
        self.write_info();
        self.ports.fill(PortView::FRESH);
        self.bar.clear()
    }

    /// Clears the pages of a port that is opened or closed, so that nothing of an earlier owner is seen or taken.
    pub fn clear(&mut self, port: u32) {
        self.bar.clear_port(port);
        if let Some(view) = self.ports.get_mut(port as usize) {
            *view = PortView::FRESH;
        }
    }

    /// The 64-bit word at an offset of the completer page of `port`.
    #[inline]
    fn load(&self, port: u32, offset: u64) -> u64 {
        let word = self.bar.page(self.bar.completer_page(port)).get(offset as usize / 8);
        word.map_or(0, |word| u64::from_le(word.load(Ordering::Acquire)))
    }

    /// Stores a word into the completer page of `port`, after everything that was stored before.
    fn store(&self, port: u32, offset: u64, value: u64) {
        if let Some(word) = self.bar.page(self.bar.completer_page(port)).get(offset as usize / 8) {
            word.store(value.to_le(), Ordering::Release);
        }
    }

    /// Writes the complete information page, the magic word last.
    fn write_info(&self) {
        let info = InfoPage {
            magic: self.magic.load(Ordering::Relaxed),
            abi_version: ABI_VERSION,
            pages: (self.bar.bytes() / PAGE_BYTES) as u32,
            ports: self.ports.len() as u32,
            slots: SLOTS,
            windows: self.bar.windows().len() as u32,
            doorbell: self.doorbell.load(Ordering::Relaxed),
            ..InfoPage::default()
        };
        let mut bytes = [0; PAGE_BYTES as usize];
        info.to_bytes(&mut bytes);
        let (_, table) = bytes.split_at_mut(INFO_WINDOWS_OFFSET as usize);
        for (row, window) in table.chunks_exact_mut(size_of::<Window>()).zip(self.bar.windows()) {
            window.to_bytes(row);
        }
        for (place, word) in self.bar.words().iter().zip(bytes.chunks_exact(8)).rev() {
            // `chunks_exact` gives eight bytes, and the memory holds the guest's little-endian words.
            place.store(word.try_into().map_or(0, u64::from_ne_bytes), Ordering::Release);
        }
    }

    /// Stores the magic word, for which the driver waits, because the BAR is mapped. Writes the rest of the page again.
    pub fn publish(&self) {
        self.magic.store(MAGIC, Ordering::Relaxed);
        self.write_info();
    }

    /// Removes the magic word, because the BAR is no longer mapped.
    pub fn retract(&self) {
        self.magic.store(0, Ordering::Relaxed);
        self.write_info();
    }

    /// Suppresses doorbells, or enables them with a new number, unless they are enabled. Executes a full barrier: the
    /// next poll sees what a guest stored before it could read the new value.
    pub fn set_doorbell(&self, is_wanted: bool) {
        let mut value = self.doorbell();
        if is_wanted != (value != DOORBELL_SPARED) {
            let changes = self.doorbell_changes().wrapping_add(1);
            self.doorbell_changes.store(changes, Ordering::Relaxed);
            // Changes are even when doorbells are enabled, so this number is new.
            value = if is_wanted { 1 + changes } else { DOORBELL_SPARED };
            self.doorbell.store(value, Ordering::Relaxed);
        }
        doorbell::announce(self.bar.words().get(INFO_DOORBELL_OFFSET as usize / 8), value);
    }

    /// The doorbell word.
    pub fn doorbell(&self) -> u64 {
        self.doorbell.load(Ordering::Relaxed)
    }

    /// Number of changes of the doorbell word.
    pub fn doorbell_changes(&self) -> u64 {
        self.doorbell_changes.load(Ordering::Relaxed)
    }

    /// Sequence number of the next post of `port`.
    pub fn expected(&self, port: u32) -> u32 {
        self.ports.get(port as usize).map_or(1, |view| view.expected)
    }

    /// The released count of `port`, as last taken.
    pub fn released(&self, port: u32) -> u64 {
        self.ports.get(port as usize).map_or(0, |view| view.released)
    }

    fn slot(&self, port: u32, slot: u32) -> Option<&[AtomicU64]> {
        let first = slot as usize * SLOT_WORDS;
        self.bar.page(self.bar.requester_page(port)).get(first..first + SLOT_WORDS)
    }

    /// A copy of a slot of `port`. Its launch word, which is the last one, is loaded first.
    pub fn copy_slot(&self, port: u32, slot: u32) -> Option<[u64; SLOT_WORDS]> {
        const { assert!(SLOT_LAUNCH_WORD + 1 == SLOT_WORDS) };
        let mut words = [0; SLOT_WORDS];
        for (word, place) in words.iter_mut().zip(self.slot(port, slot)?).rev() {
            *word = u64::from_le(place.load(Ordering::Acquire));
        }
        Some(words)
    }

    /// The sequence number in the slot that post `sequence` uses.
    pub fn sequence_in_slot_of(&self, port: u32, sequence: u32) -> u32 {
        let launch = self.slot(port, slot_of(sequence)).and_then(|slot| slot.get(SLOT_LAUNCH_WORD));
        launch.map_or(0, |word| (u64::from_le(word.load(Ordering::Acquire)) >> LAUNCH_SEQUENCE_SHIFT) as u32)
    }

    /// Whether the next post of `port` is in its page.
    #[inline]
    pub fn is_launched(&self, port: u32) -> bool {
        self.launch(port).is_some()
    }

    /// Slot and launch word of the next post, if it is there.
    #[inline]
    fn launch(&self, port: u32) -> Option<(&[AtomicU64], u64)> {
        let view = self.ports.get(port as usize)?;
        let first = slot_of(view.expected) as usize * SLOT_WORDS;
        let slot = self.bar.page(self.bar.requester_page(port)).get(first..first + SLOT_WORDS)?;
        let launch = u64::from_le(slot.get(SLOT_LAUNCH_WORD)?.load(Ordering::Acquire));
        ((launch >> LAUNCH_SEQUENCE_SHIFT) as u32 == view.expected).then_some((slot, launch))
    }

    /// Takes the next posted slot out of the page of `port`.
    #[inline]
    pub fn take(&mut self, port: u32) -> Option<Launch> {
        let (slot, launch) = self.launch(port)?;
        let mut words = [0; PAYLOAD_WORDS + TAG_WORDS];
        for (word, place) in words.iter_mut().zip(slot) {
            *word = u64::from_le(place.load(Ordering::Relaxed));
        }
        let received =
            slot.get(SLOT_RECEIVED_WORD).map_or(0, |word| u64::from_le(word.load(Ordering::Relaxed)));
        let received = (received & RECEIVED_KNOWN != 0).then_some(received as u32);
        let view = self.ports.get_mut(port as usize)?;
        view.expected = view.expected.wrapping_add(1);
        Some(Launch { store: PageStore { port, code: launch as u32, words }, received })
    }

    /// The code of the next post of `port`, if it is in its page.
    #[inline]
    pub fn launched_code(&self, port: u32) -> Option<u32> {
        self.launch(port).map(|(_, launch)| launch as u32)
    }

    /// Copies the next posts of a port with the same code into `batch`, until it is full, and leaves them in their
    /// page: [`Pages::pass_over`] takes them. Returns how many of them say that the program had consumed exactly
    /// `received` slices.
    #[inline]
    pub fn copy_batch(&self, code: u32, received: u32, batch: &mut Batch) -> u64 {
        let (port, words) = (batch.route.port, batch.route.words.clone());
        let Some(view) = self.ports.get(port as usize) else { return 0 };
        let page = self.bar.page(self.bar.requester_page(port));
        let received = RECEIVED_KNOWN | u64::from(received);
        let (mut sequence, mut in_order) = (view.expected, 0);
        loop {
            let first = slot_of(sequence) as usize * SLOT_WORDS;
            let Some(slot) = page.get(first..first + SLOT_WORDS) else { break };
            let load = |place: &AtomicU64, order| u64::from_le(place.load(order));
            let launch = slot.get(SLOT_LAUNCH_WORD).map_or(0, |place| load(place, Ordering::Acquire));
            if launch != u64::from(code) | u64::from(sequence) << LAUNCH_SEQUENCE_SHIFT {
                break;
            }
            let Some(member) = batch.add() else { break };
            let (fours, rest) = slot.get(words.clone()).unwrap_or_default().as_chunks::<4>();
            let (fours_to, _) = member.words.as_chunks_mut::<4>();
            for (words, places) in fours_to.iter_mut().zip(fours) {
                *words = places.each_ref().map(|place| load(place, Ordering::Relaxed));
            }
            let rest_to = member.words.iter_mut().skip(4 * fours.len());
            rest_to.zip(rest).for_each(|(word, place)| *word = load(place, Ordering::Relaxed));
            let reported = slot.get(SLOT_RECEIVED_WORD).map_or(0, |place| load(place, Ordering::Relaxed));
            in_order += u64::from(reported & (RECEIVED_KNOWN | u64::from(u32::MAX)) == received);
            sequence = sequence.wrapping_add(1);
        }
        in_order
    }

    /// Takes posts of `port` out of its page that were copied.
    #[inline]
    pub fn pass_over(&mut self, port: u32, launches: usize) {
        if let Some(view) = self.ports.get_mut(port as usize) {
            view.expected = view.expected.wrapping_add(launches as u32);
        }
    }

    /// The registers of `port`: released, armed, release interval.
    #[inline]
    fn registers(&self, port: u32) -> [u64; 3] {
        let load = |offset| self.load(port, offset);
        // Armed first: then an `armed` that was stored after a `released` is never taken before it.
        let armed = load(COMPLETER_ARMED_OFFSET);
        let released = load(COMPLETER_RELEASED_OFFSET);
        // Stored before the first slice can arrive, so it is never taken after a release to which it applies.
        let interval = load(COMPLETER_INTERVAL_OFFSET);
        [released, armed, interval]
    }

    /// Whether a register of `port` was stored since the last poll.
    #[inline]
    pub fn has_registers(&self, port: u32) -> bool {
        let seen = self.ports.get(port as usize).map(PortView::registers);
        seen.is_some_and(|seen| seen != self.registers(port))
    }

    /// The registers of `port` that were stored since the last poll.
    pub fn take_registers(&mut self, port: u32) -> [Option<Register>; 3] {
        let registers = self.registers(port);
        let [released, armed, interval] = registers;
        let Some(view) = self.ports.get_mut(port as usize) else { return [None; 3] };
        if view.registers() == registers {
            return [None; 3];
        }
        let changed = [
            (view.release_interval != interval).then_some(Register::ReleaseInterval(interval)),
            (view.released != released).then_some(Register::Released(released)),
            (view.armed != armed).then_some(Register::Armed(armed)),
        ];
        (view.released, view.armed, view.release_interval) = (released, armed, interval);
        changed
    }
}

#[cfg(test)]
mod tests {
    use niclab_abi::FromBytes;
    use niclab_abi::bar::{
        DOORBELL_SPARED, MAX_BAR_PAGES, WINDOW_COMPLETER, WINDOW_OF_MODEL, WINDOW_REQUESTER, launch_word,
    };
    use niclab_model::nic::windows::{Access, Caching, Owner, PAGES_OF_PORTS, REQUESTER};
    use niclab_port::Windows;
    use proptest::prelude::*;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn store(pages: &Pages, page: u32, offset: u64, word: u64) {
        pages.bar.file().write_all_at(&word.to_le_bytes(), u64::from(page) * PAGE_BYTES + offset).unwrap();
    }

    #[test]
    fn renewed_bar_holds_no_guest_data() {
        let mut pages = Pages::new(PAGES_OF_PORTS, 8).unwrap();
        let bytes = pages.bar.bytes() as usize;
        let content = |pages: &Pages| {
            let mut content = vec![0; bytes];
            pages.bar.file().read_exact_at(&mut content, 0).unwrap();
            content
        };
        let fresh = content(&pages);
        pages.publish();
        pages.set_doorbell(false);
        let spared = content(&pages);
        pages.retract();
        for (is_published, mut expected) in [(false, fresh), (true, spared)] {
            pages.set_doorbell(!is_published);
            // Each sleep has a new number.
            let word = INFO_DOORBELL_OFFSET as usize;
            expected[word..word + 8].copy_from_slice(&pages.doorbell().to_le_bytes());
            pages.bar.file().write_all_at(&vec![0xa5; bytes], 0).unwrap();
            assert!(pages.is_launched(0) || pages.has_registers(0), "the device sees it");
            if is_published {
                pages.publish();
                assert_eq!(
                    content(&pages)[..4096],
                    expected[..4096],
                    "each mapping rewrites the information page"
                );
            }
            pages.renew().unwrap();
            assert!(content(&pages) == expected, "published: {is_published}");
            assert!(!pages.is_launched(0) && !pages.has_registers(0));
        }
        assert_eq!(pages.doorbell(), DOORBELL_SPARED, "the device does not read what a guest stores");
    }

    #[test]
    fn information_page_is_complete_before_its_magic_word() {
        let pages = Pages::new(PAGES_OF_PORTS, 8).unwrap();
        let mut bytes = [0; InfoPage::BYTES];
        pages.bar.file().read_exact_at(&mut bytes, 0).unwrap();
        let info = InfoPage::from_bytes(&bytes).unwrap();
        assert_eq!((info.magic, info.abi_version, info.ports, info.slots), (0, ABI_VERSION, 8, SLOTS));
        assert_eq!(u64::from(info.pages) * PAGE_BYTES, pages.bar.bytes());
        assert!(pages.bar.bytes().is_power_of_two());
        pages.publish();
        pages.bar.file().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(InfoPage::from_bytes(&bytes).unwrap(), InfoPage { magic: MAGIC, ..info });
    }

    const PAYLOAD: u32 = WINDOW_OF_MODEL;
    const COMMON: u32 = WINDOW_OF_MODEL + 1;

    /// Windows that no model has yet: four pages of each port between the usual two, and three read-only pages of the
    /// card.
    const MORE: &[windows::Window] = &[
        REQUESTER,
        windows::Window { name: "payload", kind: PAYLOAD, pages: 4, ..REQUESTER },
        windows::Window {
            name: "completer page",
            kind: WINDOW_COMPLETER,
            caching: Caching::Uncached,
            ..REQUESTER
        },
        windows::Window {
            name: "table",
            kind: COMMON,
            pages: 3,
            owner: Owner::Card,
            caching: Caching::WriteBack,
            access: Access::ReadOnly,
        },
    ];

    fn words_of(pages: &Pages, range: std::ops::Range<u64>) -> Vec<u64> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        pages.bar.file().read_exact_at(&mut bytes, range.start).unwrap();
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn window_table_has_these_bytes() {
        let words = |low: u64, high: u64| low | high << 32;
        let pages = Pages::new(MORE, 2).unwrap();
        let head = [0, words(ABI_VERSION.into(), 16), words(2, 32), 4, 0, 0, 0, 0, 1];
        assert_eq!(words_of(&pages, 0..72), head);
        // Kind, caching; access, first page; pages, stride.
        let rows = [
            [words(1, 2), words(2, 1), words(1, 1)],
            [words(16, 2), words(2, 3), words(4, 4)],
            [words(2, 1), words(2, 11), words(1, 1)],
            [words(17, 3), words(1, 13), words(3, 0)],
        ];
        assert_eq!(words_of(&pages, 128..128 + 96), rows.as_flattened());
        assert_eq!(words_of(&pages, 128 + 96..4096), [0; 484]);
    }

    #[test]
    fn host_and_shell_agree_on_every_window() {
        let pages = Pages::new(MORE, 2).unwrap();
        let windows = Windows::read(pages.bar.words()).unwrap();
        for port in 0..2 {
            let location = |kind| windows.location(kind, port).unwrap();
            let (requester, completer) = (pages.bar.requester_page(port), pages.bar.completer_page(port));
            assert_eq!(location(WINDOW_REQUESTER).pages, requester..requester + 1);
            assert_eq!(location(WINDOW_COMPLETER).pages, completer..completer + 1);
            assert_eq!((location(PAYLOAD).pages.len(), location(PAYLOAD).is_writable), (4, true));
            assert_eq!((location(COMMON).pages, location(COMMON).is_writable), (13..16, false));
        }
    }

    #[test]
    fn clearing_a_port_zeroes_only_its_own_windows() {
        let mut pages = Pages::new(MORE, 2).unwrap();
        let windows = Windows::read(pages.bar.words()).unwrap();
        for page in 1..16 {
            (0..512).for_each(|word| store(&pages, page, 8 * word, 7));
        }
        pages.clear(1);
        let mine = [WINDOW_REQUESTER, PAYLOAD, WINDOW_COMPLETER]
            .map(|kind| windows.location(kind, 1).unwrap().pages);
        let mine: Vec<_> = mine.into_iter().flatten().collect();
        for page in 1..16 {
            let expected = if mine.contains(&page) { 0 } else { 7 };
            let place = u64::from(page) * PAGE_BYTES;
            assert_eq!(words_of(&pages, place..place + PAGE_BYTES), [expected; 512], "page {page}");
        }
    }

    #[test]
    fn invalid_windows_are_refused() {
        let error = Pages::new(&PAGES_OF_PORTS[..1], 2).err().unwrap();
        assert!(error.to_string().contains("completer page"), "{error}");
        assert!(Pages::new(PAGES_OF_PORTS, MAX_BAR_PAGES / 2).is_err());
    }

    #[test]
    fn a_register_is_reported_once_and_release_comes_first() {
        let mut pages = Pages::new(PAGES_OF_PORTS, 2).unwrap();
        pages.clear(1);
        assert_eq!(pages.take_registers(1), [None; 3]);
        store(&pages, pages.bar.completer_page(1), COMPLETER_ARMED_OFFSET, 9);
        store(&pages, pages.bar.completer_page(1), COMPLETER_RELEASED_OFFSET, 4);
        store(&pages, pages.bar.completer_page(1), COMPLETER_INTERVAL_OFFSET, 2);
        let expected = [Register::ReleaseInterval(2), Register::Released(4), Register::Armed(9)];
        assert_eq!(pages.take_registers(1), expected.map(Some));
        assert_eq!(pages.take_registers(1), [None; 3]);
    }

    #[test]
    fn cleared_port_has_no_post_of_its_last_owner() {
        let mut pages = Pages::new(PAGES_OF_PORTS, 1).unwrap();
        store(&pages, pages.bar.requester_page(0), SLOT_LAUNCH_WORD as u64 * 8, launch_word(64, 1));
        assert!(pages.is_launched(0));
        pages.clear(0);
        assert!(!pages.is_launched(0));
        assert_eq!(pages.take(0), None);
    }

    proptest! {
        #[test]
        fn posts_are_taken_in_order_and_once(count in 1_u32..200, tag: u64) {
            let mut pages = Pages::new(PAGES_OF_PORTS, 1).unwrap();
            for sequence in 1..=count {
                let slot = u64::from(slot_of(sequence)) * SLOT_WORDS as u64 * 8;
                let page = pages.bar.requester_page(0);
                store(&pages, page, slot + 64, tag ^ u64::from(sequence));
                prop_assert!(!pages.is_launched(0));
                store(&pages, page, slot + SLOT_LAUNCH_WORD as u64 * 8, launch_word(64, sequence));
                let taken = pages.take(0).unwrap();
                prop_assert_eq!(taken.store.words[8], tag ^ u64::from(sequence));
                prop_assert_eq!((taken.store.code, taken.received), (64, None));
                prop_assert_eq!(pages.take(0), None);
            }
        }

        #[test]
        fn port_number_out_of_range_has_no_post(port: u32) {
            let mut pages = Pages::new(PAGES_OF_PORTS, 8).unwrap();
            if port < 8 { return Ok(()); }
            prop_assert_eq!(pages.take(port.min(1 << 20)), None);
        }
    }
}
