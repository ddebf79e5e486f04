//! The BAR: a memory file that guests store into and the device looks at.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use niclab_abi::bar::{
    COMPLETER_ARMED_OFFSET, COMPLETER_INTERVAL_OFFSET, COMPLETER_RELEASED_OFFSET, COMPLETER_REPORT_OFFSET,
    COMPLETER_TURN_OFFSET, COMPLETER_TURN_TIME_OFFSET, COMPLETER_WAKE_OFFSET, DOORBELL_WANTED,
    INFO_DOORBELL_OFFSET, INFO_WINDOWS_OFFSET, InfoPage, LAUNCH_SEQUENCE_SHIFT, PAYLOAD_WORDS,
    RECEIVED_KNOWN, REPORT_ACTED, REPORT_BITS, REPORT_IDLE, REPORT_READY, SLOT_LAUNCH_WORD,
    SLOT_RECEIVED_WORD, SLOT_WORDS, SLOTS, TAG_WORDS, TURN_OVER, WINDOW_COMPLETER, WINDOW_REQUESTER, Window,
    slot_of,
};
use niclab_abi::{ABI_VERSION, MAGIC, PAGE_BYTES, ToBytes};
use niclab_model::nic::series::Series;
use niclab_model::nic::windows::{self, LayoutError, lay_out};
use niclab_model::nic::{FrameBytes, PageStore, Register, WindowRange};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use thiserror::Error;
use vm_memory::FileOffset;
use vm_memory::mmap::{MmapRegion, MmapRegionError};

use crate::memory::{FileIdentity, identity};

const WORDS_PER_PAGE: usize = PAGE_BYTES as usize / 8;

/// The BAR cannot be made.
#[derive(Debug, Error)]
pub enum PagesError {
    /// The model declares what cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The kernel refused the file.
    #[error("cannot make a memory file of {bytes} bytes for a BAR: {error}; is the memory limit too low?")]
    File {
        /// Bytes wanted.
        bytes: u64,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The kernel refused to fix the file's size.
    #[error("cannot seal the memory file of a BAR: {0}")]
    Seal(#[source] io::Error),
    /// The kernel refused the mapping.
    #[error("cannot map the memory file of a BAR: {0}")]
    Map(#[from] MmapRegionError),
}

/// What the owner of a port has told so far.
#[derive(Clone, Copy, Debug)]
struct PortView {
    /// Sequence number of the launch that is looked for next.
    expected: u32,
    released: u64,
    armed: u64,
    release_interval: u64,
    /// The program's last report of a turn.
    report: u64,
    /// Turns that were given over this port.
    grants: u64,
}

impl PortView {
    const FRESH: Self =
        Self { expected: 1, released: 0, armed: 0, release_interval: 0, report: 0, grants: 0 };

    /// Those that were seen last, in the order of [`Pages::registers`].
    const fn registers(&self) -> [u64; 3] {
        [self.released, self.armed, self.release_interval]
    }
}

/// A launched slot, taken out of its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// What the model is told.
    pub store: PageStore,
    /// The low half of the number of slices that the program had consumed when it launched, if it said so.
    pub received: Option<u32>,
}

/// What a program did of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// It waits for its first turn.
    Began,
    /// One operation.
    Acted,
    /// There was nothing to do.
    Nothing,
}

/// A program's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Of which turn.
    pub number: u64,
    /// What it did.
    pub did: Did,
    /// Model time before which it wants no turn, in picoseconds, where it wants one though nothing comes.
    pub wake_ps: Option<u64>,
}

/// One node's BAR. All access is by atomic words, because the guest stores at any time.
#[derive(Debug)]
pub struct Pages {
    file: File,
    mapping: MmapRegion,
    ports: Vec<PortView>,
    windows: Vec<Window>,
    requesters: Window,
    completers: Window,
    /// What the device has stored into the two words of the information page that change. It never reads them back: a
    /// guest may store there. Only the holder of the node changes these.
    magic: AtomicU64,
    doorbell: AtomicU64,
    /// How often the doorbell's word was changed.
    doorbell_changes: AtomicU64,
}

impl Pages {
    /// A BAR with these windows for `ports` ports.
    ///
    /// # Errors
    /// [`PagesError`].
    pub fn new(windows: &[windows::Window], ports: u32) -> Result<Self, PagesError> {
        let layout = lay_out(windows, ports)?;
        let pages = layout.pages;
        let bytes = u64::from(pages) * PAGE_BYTES;
        let file_error = |error| PagesError::File { bytes, error };
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let memory = memfd_create(c"niclab-bar", flags).map_err(|errno| file_error(errno.into()))?;
        let file = File::from(memory);
        file.set_len(bytes).map_err(file_error)?;
        // The front end gets this very file: one that cut it short would end the next look at the pages with SIGBUS.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(|errno| PagesError::Seal(errno.into()))?;
        let shared = file.try_clone().map_err(file_error)?;
        let mapping = MmapRegion::from_file(FileOffset::new(shared, 0), bytes as usize)?;
        // There is one of each in every layout.
        let of_kind =
            |kind| layout.table.iter().find(|window| window.kind == kind).copied().unwrap_or_default();
        let this = Self {
            file,
            mapping,
            ports: vec![PortView::FRESH; ports as usize],
            requesters: of_kind(WINDOW_REQUESTER),
            completers: of_kind(WINDOW_COMPLETER),
            windows: layout.table,
            magic: AtomicU64::new(0),
            doorbell: AtomicU64::new(DOORBELL_WANTED),
            doorbell_changes: AtomicU64::new(0),
        };
        this.write_info();
        Ok(this)
    }

    /// A host starts anew: it finds nothing in the BAR that the host before it stored. (The attack: a guest stores a
    /// version, a window's place or a launch, and the node's next guest reads it.) All windows and spare pages are zero
    /// afterwards, and the information page is written anew.
    ///
    /// # Errors
    /// The kernel's, where it does not take the pages back. They are zero all the same.
    pub fn renew(&mut self) -> io::Result<()> {
        self.write_info();
        self.ports.fill(PortView::FRESH);
        let first = PAGE_BYTES as usize;
        let bytes = self.mapping.size() - first;
        // SAFETY: the range is whole pages of the mapping, which this value owns. Its content goes, as if zeros were
        // stored: this process reads it by atomics or by copies alone (`words`, `append`).
        let gone =
            unsafe { libc::madvise(self.mapping.as_ptr().add(first).cast(), bytes, libc::MADV_REMOVE) == 0 };
        let refused = io::Error::last_os_error();
        if !gone {
            self.words().iter().skip(WORDS_PER_PAGE).for_each(|word| word.store(0, Ordering::Relaxed));
        }
        fence(Ordering::SeqCst);
        if gone { Ok(()) } else { Err(refused) }
    }

    /// All of the information page. Its magic word is stored last.
    fn write_info(&self) {
        let info = InfoPage {
            magic: self.magic.load(Ordering::Relaxed),
            abi_version: ABI_VERSION,
            pages: (self.bytes() / PAGE_BYTES) as u32,
            ports: self.ports.len() as u32,
            slots: SLOTS,
            windows: self.windows.len() as u32,
            doorbell: self.doorbell.load(Ordering::Relaxed),
            ..InfoPage::default()
        };
        let mut bytes = [0; PAGE_BYTES as usize];
        info.to_bytes(&mut bytes);
        let (_, table) = bytes.split_at_mut(INFO_WINDOWS_OFFSET as usize);
        for (row, window) in table.chunks_exact_mut(size_of::<Window>()).zip(&self.windows) {
            window.to_bytes(row);
        }
        for (place, word) in self.words().iter().zip(bytes.chunks_exact(8)).rev() {
            // `chunks_exact` gives eight bytes, and the memory holds the guest's little-endian words.
            place.store(word.try_into().map_or(0, u64::from_ne_bytes), Ordering::Release);
        }
    }

    /// Says that the region stands in the guest's BAR: the driver waits for this word. The rest of the page is written
    /// anew.
    pub fn publish(&self) {
        self.magic.store(MAGIC, Ordering::Relaxed);
        self.write_info();
    }

    /// Says that the region stands nowhere any more.
    pub fn retract(&self) {
        self.magic.store(0, Ordering::Relaxed);
        self.write_info();
    }

    /// The memory file, for the front end to map.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// By what the file is recognised in a memory table.
    pub fn identity(&self) -> Option<FileIdentity> {
        identity(&self.file)
    }

    /// Bytes of the BAR, a power of two.
    pub fn bytes(&self) -> u64 {
        self.mapping.size() as u64
    }

    /// Tells guests whether a doorbell must follow a store, and executes a full barrier: what was stored before a guest
    /// could read the new value is seen by the next look at the pages.
    pub fn set_doorbell(&self, wanted: u64) {
        if self.doorbell.load(Ordering::Relaxed) != wanted {
            self.doorbell.store(wanted, Ordering::Relaxed);
            let changes = self.doorbell_changes.load(Ordering::Relaxed);
            self.doorbell_changes.store(changes.wrapping_add(1), Ordering::Relaxed);
        }
        if let Some(word) = self.words().get(INFO_DOORBELL_OFFSET as usize / 8) {
            word.store(wanted.to_le(), Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// What guests are told of the doorbell.
    pub fn doorbell(&self) -> u64 {
        self.doorbell.load(Ordering::Relaxed)
    }

    /// How often that was changed.
    pub fn doorbell_changes(&self) -> u64 {
        self.doorbell_changes.load(Ordering::Relaxed)
    }

    /// Sequence number of the launch of `port` that is looked for next.
    pub fn expected(&self, port: u32) -> u32 {
        self.ports.get(port as usize).map_or(1, |view| view.expected)
    }

    /// The register that says what the program of `port` has consumed, as it was read last.
    pub fn released(&self, port: u32) -> u64 {
        self.ports.get(port as usize).map_or(0, |view| view.released)
    }

    fn slot(&self, port: u32, slot: u32) -> Option<&[AtomicU64]> {
        let first = slot as usize * SLOT_WORDS;
        self.page(self.requester_page(port)).get(first..first + SLOT_WORDS)
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

    /// The number that stands in the slot of the launch `sequence`.
    pub fn sequence_in_slot_of(&self, port: u32, sequence: u32) -> u32 {
        let launch = self.slot(port, slot_of(sequence)).and_then(|slot| slot.get(SLOT_LAUNCH_WORD));
        launch.map_or(0, |word| (u64::from_le(word.load(Ordering::Acquire)) >> LAUNCH_SEQUENCE_SHIFT) as u32)
    }

    /// A port is opened or closed: its part of every window is zeroed, so that nothing of an earlier owner is seen or
    /// taken.
    pub fn clear(&mut self, port: u32) {
        for window in self.windows.iter().filter(|window| window.stride > 0) {
            let first = window.first_page + window.stride * port;
            let pages = (first..first + window.pages).flat_map(|page| self.page(page));
            pages.for_each(|word| word.store(0, Ordering::Relaxed));
        }
        fence(Ordering::SeqCst);
        if let Some(view) = self.ports.get_mut(port as usize) {
            *view = PortView::FRESH;
        }
    }

    /// Whether the next launch of `port` is in its page.
    #[inline]
    pub fn is_launched(&self, port: u32) -> bool {
        self.launch(port).is_some()
    }

    /// Slot and launch word of the next launch, if it is there.
    #[inline]
    fn launch(&self, port: u32) -> Option<(&[AtomicU64], u64)> {
        let view = self.ports.get(port as usize)?;
        let first = slot_of(view.expected) as usize * SLOT_WORDS;
        let slot = self.page(self.requester_page(port)).get(first..first + SLOT_WORDS)?;
        let launch = u64::from_le(slot.get(SLOT_LAUNCH_WORD)?.load(Ordering::Acquire));
        ((launch >> LAUNCH_SEQUENCE_SHIFT) as u32 == view.expected).then_some((slot, launch))
    }

    /// Takes the next launched slot out of the page of `port`.
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

    /// What the next launch of `port` asks for, if it is in its page.
    #[inline]
    pub fn launched_code(&self, port: u32) -> Option<u32> {
        self.launch(port).map(|(_, launch)| launch as u32)
    }

    /// Copies the next launches of a port that ask for the same into `series`, as many as it takes, and leaves them in
    /// their page: [`Pages::pass_over`] takes them. Returns how many programs said that they had consumed just
    /// `received` slices then.
    #[inline]
    pub fn copy_series(&self, code: u32, received: u32, series: &mut Series) -> u64 {
        let (port, words) = (series.way.port, series.way.words.clone());
        let Some(view) = self.ports.get(port as usize) else { return 0 };
        let page = self.page(self.requester_page(port));
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
            let Some(member) = series.place() else { break };
            let (fours, rest) = slot.get(words.clone()).unwrap_or_default().as_chunks::<4>();
            let (fours_to, _) = member.words.as_chunks_mut::<4>();
            for (words, places) in fours_to.iter_mut().zip(fours) {
                *words = places.each_ref().map(|place| load(place, Ordering::Relaxed));
            }
            let rest_to = member.words.iter_mut().skip(4 * fours.len());
            rest_to.zip(rest).for_each(|(word, place)| *word = load(place, Ordering::Relaxed));
            let told = slot.get(SLOT_RECEIVED_WORD).map_or(0, |place| load(place, Ordering::Relaxed));
            in_order += u64::from(told & (RECEIVED_KNOWN | u64::from(u32::MAX)) == received);
            sequence = sequence.wrapping_add(1);
        }
        in_order
    }

    /// Takes the next launches of `port` out of its page, which somebody has copied.
    #[inline]
    pub fn pass_over(&mut self, port: u32, launches: usize) {
        if let Some(view) = self.ports.get_mut(port as usize) {
            view.expected = view.expected.wrapping_add(launches as u32);
        }
    }

    /// What the registers of `port` hold: released, armed, release interval.
    #[inline]
    fn registers(&self, port: u32) -> [u64; 3] {
        let page = self.page(self.completer_page(port));
        let load = |offset: u64| {
            page.get(offset as usize / 8).map_or(0, |word| u64::from_le(word.load(Ordering::Acquire)))
        };
        // Armed before released in memory order, so that an `armed` which was stored after a `released` never arrives
        // before it.
        let armed = load(COMPLETER_ARMED_OFFSET);
        let released = load(COMPLETER_RELEASED_OFFSET);
        // Stored before the first slice can arrive, so that it is never seen after a release that it is for.
        let interval = load(COMPLETER_INTERVAL_OFFSET);
        [released, armed, interval]
    }

    /// Whether a register of `port` was stored since the last look.
    #[inline]
    pub fn has_registers(&self, port: u32) -> bool {
        let seen = self.ports.get(port as usize).map(PortView::registers);
        seen.is_some_and(|seen| seen != self.registers(port))
    }

    /// The registers of `port` that were stored since the last look.
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

    /// Whether a program that takes turns over `port` stored a report since the last look.
    pub fn has_report(&self, port: u32) -> bool {
        let word = self.page(self.completer_page(port)).get(COMPLETER_REPORT_OFFSET as usize / 8);
        let report = word.map_or(0, |word| u64::from_le(word.load(Ordering::Acquire)));
        self.ports.get(port as usize).is_some_and(|view| view.report != report)
    }

    /// The report of a program that takes turns over `port`, if it stored one since the last look.
    pub fn take_report(&mut self, port: u32) -> Option<Report> {
        let page = self.page(self.completer_page(port));
        let load = |offset: u64| {
            page.get(offset as usize / 8).map_or(0, |word| u64::from_le(word.load(Ordering::Acquire)))
        };
        let report = load(COMPLETER_REPORT_OFFSET);
        let wake_ps = Some(load(COMPLETER_WAKE_OFFSET)).filter(|wake_ps| *wake_ps != 0);
        let view = self.ports.get_mut(port as usize).filter(|view| view.report != report)?;
        view.report = report;
        let did = match report & ((1 << REPORT_BITS) - 1) {
            REPORT_READY => Did::Began,
            REPORT_ACTED => Did::Acted,
            REPORT_IDLE => Did::Nothing,
            _ => return None,
        };
        Some(Report { number: report >> REPORT_BITS, did, wake_ps })
    }

    /// Turns that were given over `port`.
    pub fn grants(&self, port: u32) -> u64 {
        self.ports.get(port as usize).map_or(0, |view| view.grants)
    }

    /// Tells the program of `port` that it has a turn.
    pub fn give_grant(&mut self, port: u32, number: u64, model_ps: u64) {
        self.store(port, COMPLETER_TURN_TIME_OFFSET, model_ps);
        self.store(port, COMPLETER_TURN_OFFSET, number);
        self.ports.iter_mut().skip(port as usize).take(1).for_each(|view| view.grants = number);
    }

    /// Tells the program of `port`, which had so many turns, that there are no more.
    pub fn end_grants(&mut self, port: u32, grants: u64) {
        self.store(port, COMPLETER_TURN_OFFSET, grants | TURN_OVER);
    }

    /// Stores a word into the completer page of `port`, behind all that was stored before.
    fn store(&self, port: u32, offset: u64, value: u64) {
        if let Some(word) = self.page(self.completer_page(port)).get(offset as usize / 8) {
            word.store(value.to_le(), Ordering::Release);
        }
    }

    /// Appends bytes of a window to `into`; false where the window has no such bytes. The program may store there at
    /// the same time: what is read then is its own concern.
    pub fn append(&self, range: &WindowRange, into: &mut FrameBytes) -> bool {
        let window = self.windows.iter().find(|window| window.kind == range.window);
        let Some(window) = window.filter(|_| (range.port as usize) < self.ports.len()) else { return false };
        let first_page = u64::from(window.first_page + window.stride * range.port);
        let is_inside =
            range.bytes.start <= range.bytes.end && range.bytes.end <= u64::from(window.pages) * PAGE_BYTES;
        if !is_inside {
            return false;
        }
        let begin = first_page * PAGE_BYTES + range.bytes.start;
        let end = first_page * PAGE_BYTES + range.bytes.end;
        let (begin, count) = (begin as usize, (end - begin) as usize);
        if begin + count > self.mapping.size() {
            return false;
        }
        let have = into.len();
        into.reserve(count);
        // SAFETY: the mapping keeps `count` bytes from `begin` on readable, as was just looked; `into` has reserved as
        // many behind the `have` that it holds, in memory of its own, which cannot overlap the BAR; all of them are
        // written before its length says so. What a program stores meanwhile is copied or not, and every bit pattern is
        // a byte.
        unsafe {
            let end = into.as_mut_ptr().add(have);
            std::ptr::copy_nonoverlapping(self.mapping.as_ptr().add(begin), end, count);
            into.set_len(have + count);
        }
        true
    }

    /// The page of the BAR from which `port` sends.
    #[inline]
    pub const fn requester_page(&self, port: u32) -> u32 {
        self.requesters.first_page + self.requesters.stride * port
    }

    /// The page of the BAR in which `port` reports what it has received.
    #[inline]
    pub const fn completer_page(&self, port: u32) -> u32 {
        self.completers.first_page + self.completers.stride * port
    }

    #[inline]
    fn page(&self, page: u32) -> &[AtomicU64] {
        let first = page as usize * WORDS_PER_PAGE;
        self.words().get(first..first + WORDS_PER_PAGE).unwrap_or_default()
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `size()` bytes of readable and writable memory, aligned to a page, and lives as long
        // as `self`, from which the slice borrows. It is never accessed but through these atomics, or copied out of
        // (`append`), neither in this process nor, with more than plain stores and loads, in another. Nobody else can
        // shrink the file: it is handed out only to the front end, which already has power over the whole guest.
        unsafe {
            std::slice::from_raw_parts(self.mapping.as_ptr().cast::<AtomicU64>(), self.mapping.size() / 8)
        }
    }
}

#[cfg(test)]
mod tests {
    use niclab_abi::FromBytes;
    use niclab_abi::bar::{DOORBELL_SPARED, MAX_BAR_PAGES, WINDOW_OF_MODEL, launch_word};
    use niclab_model::nic::windows::{Access, Caching, Owner, PAGES_OF_PORTS, REQUESTER};
    use niclab_port::Windows;
    use proptest::prelude::*;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn store(pages: &Pages, page: u32, offset: u64, word: u64) {
        pages.file().write_all_at(&word.to_le_bytes(), u64::from(page) * PAGE_BYTES + offset).unwrap();
    }

    #[test]
    fn renewed_bar_holds_nothing_of_what_a_guest_stored() {
        let mut pages = Pages::new(PAGES_OF_PORTS, 8).unwrap();
        let bytes = pages.bytes() as usize;
        let content = |pages: &Pages| {
            let mut content = vec![0; bytes];
            pages.file().read_exact_at(&mut content, 0).unwrap();
            content
        };
        let fresh = content(&pages);
        pages.publish();
        pages.set_doorbell(DOORBELL_SPARED);
        let spared = content(&pages);
        pages.retract();
        for (is_published, expected) in [(false, &fresh), (true, &spared)] {
            pages.set_doorbell(if is_published { DOORBELL_SPARED } else { DOORBELL_WANTED });
            pages.file().write_all_at(&vec![0xa5; bytes], 0).unwrap();
            assert!(pages.is_launched(0) || pages.has_registers(0), "the device sees it");
            if is_published {
                pages.publish();
                assert_eq!(content(&pages)[..4096], expected[..4096], "the page alone, at each mapping");
            }
            pages.renew().unwrap();
            assert!(content(&pages) == *expected, "published: {is_published}");
            assert!(!pages.is_launched(0) && !pages.has_registers(0));
        }
        assert_eq!(pages.doorbell(), DOORBELL_SPARED, "what a guest stores is not asked");
    }

    #[test]
    fn the_information_page_is_whole_before_its_magic_word() {
        let pages = Pages::new(PAGES_OF_PORTS, 8).unwrap();
        let mut bytes = [0; InfoPage::BYTES];
        pages.file().read_exact_at(&mut bytes, 0).unwrap();
        let info = InfoPage::from_bytes(&bytes).unwrap();
        assert_eq!((info.magic, info.abi_version, info.ports, info.slots), (0, ABI_VERSION, 8, SLOTS));
        assert_eq!(u64::from(info.pages) * PAGE_BYTES, pages.bytes());
        assert!(pages.bytes().is_power_of_two());
        pages.publish();
        pages.file().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(InfoPage::from_bytes(&bytes).unwrap(), InfoPage { magic: MAGIC, ..info });
    }

    const PAYLOAD: u32 = WINDOW_OF_MODEL;
    const COMMON: u32 = WINDOW_OF_MODEL + 1;

    /// What no card has yet: four pages of each port between the usual two, and some of the card's own, only to be
    /// read.
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
        pages.file().read_exact_at(&mut bytes, range.start).unwrap();
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn the_table_of_windows_to_the_byte() {
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
    fn hosts_find_every_window_where_the_shell_has_it() {
        let pages = Pages::new(MORE, 2).unwrap();
        let windows = Windows::read(pages.words()).unwrap();
        for port in 0..2 {
            let place = |kind| windows.place(kind, port).unwrap();
            let (requester, completer) = (pages.requester_page(port), pages.completer_page(port));
            assert_eq!(place(WINDOW_REQUESTER).pages, requester..requester + 1);
            assert_eq!(place(WINDOW_COMPLETER).pages, completer..completer + 1);
            assert_eq!((place(PAYLOAD).pages.len(), place(PAYLOAD).is_writable), (4, true));
            assert_eq!((place(COMMON).pages, place(COMMON).is_writable), (13..16, false));
        }
    }

    #[test]
    fn a_port_begins_with_empty_windows_and_leaves_those_of_others_alone() {
        let mut pages = Pages::new(MORE, 2).unwrap();
        let windows = Windows::read(pages.words()).unwrap();
        for page in 1..16 {
            (0..512).for_each(|word| store(&pages, page, 8 * word, 7));
        }
        pages.clear(1);
        let mine =
            [WINDOW_REQUESTER, PAYLOAD, WINDOW_COMPLETER].map(|kind| windows.place(kind, 1).unwrap().pages);
        let mine: Vec<_> = mine.into_iter().flatten().collect();
        for page in 1..16 {
            let expected = if mine.contains(&page) { 0 } else { 7 };
            let place = u64::from(page) * PAGE_BYTES;
            assert_eq!(words_of(&pages, place..place + PAGE_BYTES), [expected; 512], "page {page}");
        }
    }

    #[test]
    fn what_a_model_must_not_declare_is_no_bar() {
        let error = Pages::new(&PAGES_OF_PORTS[..1], 2).err().unwrap();
        assert!(error.to_string().contains("completer page"), "{error}");
        assert!(Pages::new(PAGES_OF_PORTS, MAX_BAR_PAGES / 2).is_err());
    }

    #[test]
    fn a_register_is_reported_once_and_release_comes_first() {
        let mut pages = Pages::new(PAGES_OF_PORTS, 2).unwrap();
        pages.clear(1);
        assert_eq!(pages.take_registers(1), [None; 3]);
        store(&pages, pages.completer_page(1), COMPLETER_ARMED_OFFSET, 9);
        store(&pages, pages.completer_page(1), COMPLETER_RELEASED_OFFSET, 4);
        store(&pages, pages.completer_page(1), COMPLETER_INTERVAL_OFFSET, 2);
        let expected = [Register::ReleaseInterval(2), Register::Released(4), Register::Armed(9)];
        assert_eq!(pages.take_registers(1), expected.map(Some));
        assert_eq!(pages.take_registers(1), [None; 3]);
    }

    #[test]
    fn opening_forgets_what_an_earlier_owner_left() {
        let mut pages = Pages::new(PAGES_OF_PORTS, 1).unwrap();
        store(&pages, pages.requester_page(0), SLOT_LAUNCH_WORD as u64 * 8, launch_word(64, 1));
        assert!(pages.is_launched(0));
        pages.clear(0);
        assert!(!pages.is_launched(0));
        assert_eq!(pages.take(0), None);
    }

    proptest! {
        #[test]
        fn launches_are_taken_in_order_and_once(count in 1_u32..200, tag: u64) {
            let mut pages = Pages::new(PAGES_OF_PORTS, 1).unwrap();
            for sequence in 1..=count {
                let slot = u64::from(slot_of(sequence)) * SLOT_WORDS as u64 * 8;
                store(&pages, pages.requester_page(0), slot + 64, tag ^ u64::from(sequence));
                prop_assert!(!pages.is_launched(0));
                store(&pages, pages.requester_page(0), slot + SLOT_LAUNCH_WORD as u64 * 8, launch_word(64, sequence));
                let taken = pages.take(0).unwrap();
                prop_assert_eq!(taken.store.words[8], tag ^ u64::from(sequence));
                prop_assert_eq!((taken.store.code, taken.received), (64, None));
                prop_assert_eq!(pages.take(0), None);
            }
        }

        #[test]
        fn no_port_number_reaches_outside(port: u32) {
            let mut pages = Pages::new(PAGES_OF_PORTS, 8).unwrap();
            if port < 8 { return Ok(()); }
            prop_assert_eq!(pages.take(port.min(1 << 20)), None);
        }
    }
}
