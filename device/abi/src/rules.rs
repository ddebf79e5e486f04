//! What a driver must do, by name: every "must" of the device programmer's manual.
//!
//! `docs/reference/RULES.md` is written from this table, `niclab rules` shows it, and a device that is asked to (`rules` of the
//! cluster file) names the rule that was broken. A rule is checked only where what the device sees proves that it was
//! broken, whatever a guest's scheduler and its host did meanwhile.

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// By which it is known; it stays.
    pub name: &'static str,
    /// Chapter of the manual.
    pub section: u8,
    /// What must be done.
    pub must: &'static str,
    /// Why.
    pub why: &'static str,
    /// What to look at where it is broken.
    pub fix: &'static str,
    /// Whether the device sees that it is broken.
    pub check: Check,
}

/// Whether the device sees that a rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It does: what is proof.
    Live(&'static str),
    /// It cannot: why not, and what does instead.
    No(&'static str),
}

impl Rule {
    /// Whether the device names it.
    #[must_use]
    pub const fn is_checked(&self) -> bool {
        matches!(self.check, Check::Live(_))
    }
}

/// The rule of this name.
#[must_use]
pub fn rule(name: &str) -> Option<&'static Rule> {
    all().find(|rule| rule.name == name)
}

/// All rules, in the order of the manual.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [COMMON, SENDING_AND_RECEIVING, OF_MODELS].into_iter().flatten()
}

/// Chapters of the manual in which there are rules.
pub const SECTIONS: &[(u8, &str)] = &[
    (1, "Finding the card"),
    (2, "Bringing it up"),
    (3, "Queues"),
    (4, "Control requests"),
    (5, "Sending: the requester page"),
    (6, "Receiving: slices, the status line, the completer page"),
    (7, "Interrupts and events"),
    (9, "What a faulty device can do"),
    (10, "Match entries and regions"),
    (11, "Posts"),
    (12, "Channels"),
    (13, "Descriptor rings and active ports"),
];

/// The title of a chapter.
#[must_use]
pub fn section_title(section: u8) -> &'static str {
    SECTIONS.iter().find(|(number, _)| *number == section).map_or("", |(_, title)| title)
}

/// What a driver names memory for and must not do, in words that several rules share.
const BELONGS_TO_HOST: &str =
    "only the guest's kernel knows; a debug kernel (KASAN) finds memory that was freed too early";

/// Bringing the card up, queues, requests.
const COMMON: &[Rule] = &[
    Rule {
        name: "check-identity",
        section: 1,
        must: "Read `DeviceConfig.magic` and `abi_version`, and leave the device alone where either is another.",
        why: "Virtio identity 38 is not niclab's alone.",
        fix: "Compare both in `probe` before anything else is read or written.",
        check: Check::No("QEMU answers reads of the configuration space"),
    },
    Rule {
        name: "no-access-platform",
        section: 1,
        must: "Do not negotiate `VIRTIO_F_ACCESS_PLATFORM`.",
        why: "The device takes guest-physical addresses: those of an IOMMU or of a bounce buffer would be others.",
        fix: "Clear the bit where the driver accepts features.",
        check: Check::No("QEMU negotiates, and a QEMU that niclab starts does not offer it"),
    },
    Rule {
        name: "interrupt-acknowledge",
        section: 1,
        must: "Acknowledge the interrupt through the virtio ISR register.",
        why: "The line is level-triggered: it stays up until somebody reads the register.",
        fix: "Read ISR in the handler (Linux: `vp_interrupt` does), and return `IRQ_HANDLED` only where it was not zero.",
        check: Check::No(
            "QEMU holds ISR and answers the read; the check `guest-interrupts` of reports compares what guests counted",
        ),
    },
    Rule {
        name: "queues-set-up",
        section: 2,
        must: "Set up the queues that the model uses, the doorbell queue, which holds nothing, too.",
        why: "The notify register of a queue that was not set up does nothing: no doorbell would ever be heard.",
        fix: "Give `virtio_find_vqs` a name for queue 4 as well.",
        check: Check::No(
            "queues start one after the other, and the device cannot tell one that was left out from one that is about to start",
        ),
    },
    Rule {
        name: "event-queue-filled",
        section: 2,
        must: "Fill the event queue before anything can interrupt.",
        why: "Without a buffer the device can tell no cause, and does not interrupt.",
        fix: "Add buffers before `DRIVER_OK`, or right behind it and before a port is opened.",
        check: Check::Live(
            "a cause of a port is to be told, and the driver never gave the event queue a buffer",
        ),
    },
    Rule {
        name: "event-buffer-size",
        section: 2,
        must: "Give the event queue writable buffers of at least `sizeof(Event)`.",
        why: "The device gives back what is too short as it was; the cause waits for the next buffer.",
        fix: "One device-writable buffer of 16 bytes or more for each descriptor (Linux: `virtqueue_add_inbuf`).",
        check: Check::Live("a buffer of the event queue was too short, or not to be written"),
    },
    Rule {
        name: "magic-first",
        section: 2,
        must: "Poll `InfoPage.magic` until it holds `MAGIC`, for at most `control_timeout_ms`, before the BAR is used.",
        why: "The device maps its memory a moment after `DRIVER_OK`; what is read or stored earlier is nobody's.",
        fix: "Send `OP_PING`, then poll the word with a time limit.",
        check: Check::No("before the BAR is mapped, no store into it reaches the device"),
    },
    Rule {
        name: "windows-checked",
        section: 2,
        must: "Refuse a device whose table of windows makes no sense, and map each window with the caching and access of its row.",
        why: "A window that lies on another would give a program what is not its own.",
        fix: "Check kinds, overlaps and bounds against `pages` before anything is mapped.",
        check: Check::No("how a guest maps pages is between it and its processor"),
    },
    Rule {
        name: "window-owner",
        section: 2,
        must: "Let only the owner of a port reach the port's part of a window.",
        why: "The device takes the place of a store as the identity of the sender.",
        fix: "Map by the port that the file has open, and take mappings away when it is closed.",
        check: Check::No("a store does not say who made it"),
    },
    Rule {
        name: "windows-emptied",
        section: 2,
        must: "Empty a port's part of every window when the port is closed.",
        why: "The next owner would find what another left.",
        fix: "Zero the pages once `OP_PORT_CLOSE` was answered, before the port is given out again.",
        check: Check::No("the device empties them, too, so that nothing is left to be seen"),
    },
    Rule {
        name: "dead-device",
        section: 2,
        must: "Fail every call once a request was not answered in time, and do not reuse memory that the device may hold.",
        why: "What does not answer may still write.",
        fix: "Mark the device dead, wake whoever waits, and leave the memory aside until a reset.",
        check: Check::No("what the driver waits for, and for how long, the device does not see"),
    },
    Rule {
        name: "virtqueue-sound",
        section: 3,
        must: "Keep each virtqueue sound: rings in memory, heads and links within the table, no loops, no more chains than descriptors.",
        why: "A queue that is broken is stopped until the next reset.",
        fix: "Use the kernel's virtqueue functions, or check the index that is stored into the available ring.",
        check: Check::Live("a head, link, index or address that cannot be"),
    },
    Rule {
        name: "request-length",
        section: 4,
        must: "Say in `Request.body_bytes` exactly the size of the operation's structure, and leave room for the answer.",
        why: "A length that is another says that driver and device mean different structures.",
        fix: "Take `sizeof` of the body's own structure, and room for the operation's answer.",
        check: Check::Live("the device answered `STATUS_BAD_LENGTH`"),
    },
    Rule {
        name: "request-answerable",
        section: 4,
        must: "Put writable room for a `Reply` behind the readable request, all of it in memory.",
        why: "What cannot be answered is given back as it was, and nothing is done.",
        fix: "One readable and one writable buffer, in this order (Linux: `virtqueue_add_sgs` with 1 and 1).",
        check: Check::Live("a chain of the control queue that cannot be answered"),
    },
    Rule {
        name: "request-unchanged",
        section: 4,
        must: "Leave a request and its buffers alone until it was answered.",
        why: "The device may still read the one and write the other.",
        fix: "Give each request that can be under way buffers of its own; do not free those of a request that timed out.",
        check: Check::Live(
            "the bytes of a request differ when it is answered from what they were when it was taken",
        ),
    },
    Rule {
        name: "request-once",
        section: 4,
        must: "Do not offer a chain again before it was given back.",
        why: "The device would answer it twice, and the second answer may go into memory that is something else by then.",
        fix: "Take descriptors for a new request only from those that came back in the used ring.",
        check: Check::Live("a head is offered whose chain is taken and not given back"),
    },
    Rule {
        name: "named-memory",
        section: 4,
        must: "Name only the guest's memory, aligned as the structure says, and nothing in the BAR.",
        why: "The device would write into its own registers, or nowhere.",
        fix: "Take physical addresses of memory from the page allocator or `kmalloc`, not of stacks or of device memory.",
        check: Check::Live("the device answered `STATUS_BAD_ADDRESS`"),
    },
    Rule {
        name: "port-memory-once",
        section: 4,
        must: "Do not name memory of an open port for anything else.",
        why: "It belongs to the device until `OP_PORT_CLOSE` was answered; two would write into the same place.",
        fix: "Keep the memory with the port, and free it behind the answer to `OP_PORT_CLOSE`, not before.",
        check: Check::Live("a port or a ring is opened on memory of another port that is open"),
    },
    Rule {
        name: "port-memory-untouched",
        section: 4,
        must: "Neither write nor free the slices and the status line of an open port.",
        why: "The device writes there at any time: what is freed is somebody else's by then, and a number that is changed is a lost slice.",
        fix: "Map receive memory read-only, zero it before `OP_PORT_OPEN`, free it behind the answer to `OP_PORT_CLOSE`.",
        check: Check::Live("a word of it is not what the device stored there last"),
    },
];

/// Launches, doorbells, slices, interrupts, faults.
const SENDING_AND_RECEIVING: &[Rule] = &[
    Rule {
        name: "slot-free",
        section: 5,
        must: "Wait until `s <= StatusLine.launched + 32` before anything is stored into the slot of launch `s`.",
        why: "The slot still holds a launch that the device has not taken, or that it did not say it took.",
        fix: "Compare with the status line, not with what was sent or acknowledged; load it with acquire ordering.",
        check: Check::Live(
            "a later number, or another word, stands in a slot of which the device has not told that it was taken",
        ),
    },
    Rule {
        name: "launch-number",
        section: 5,
        must: "Number launches 1, 2, 3 and so on, each in slot `(s - 1) mod 32`.",
        why: "A slot is not seen until it carries the number that is expected there.",
        fix: "Begin with 1 behind every `OP_PORT_OPEN`, and count only what was launched.",
        check: Check::Live("a number in a slot that is neither that of its next launch nor that of its last"),
    },
    Rule {
        name: "slot-unchanged",
        section: 5,
        must: "Store payload and tag before the launch word, and leave all of it alone until the status line tells that it was taken.",
        why: "From the launch word on the slot is the device's, which reads it once, whenever it gets there.",
        fix: "A store fence (`wmb`, `dma_wmb`) between payload and launch word; and no use of the slot as scratch memory.",
        check: Check::Live("a word of a launched slot changed before the device had told that it was taken"),
    },
    Rule {
        name: "launch-fence",
        section: 5,
        must: "Execute a store fence between payload and launch word where the page is mapped write-combining.",
        why: "Write-combined stores go out in any order: the device would read half a message.",
        fix: "`wmb()`, or `sfence`, right before the launch word.",
        check: Check::No("the device sees stores, not fences; what comes late shows as `slot-unchanged`"),
    },
    Rule {
        name: "launch-code",
        section: 5,
        must: "Leave reserved bits of the launch word zero, and give it a length, or a command, that there is.",
        why: "The device refuses the launch: its slot is used up, and nothing is sent.",
        fix: "Put the launch word together from the `CODE_` and `COMMAND_` constants; look at `StatusLine.refusal`.",
        check: Check::Live(
            "the status line tells `REFUSED_RESERVED_BITS`, `REFUSED_LENGTH` or `REFUSED_HEADER`",
        ),
    },
    Rule {
        name: "launch-barrier",
        section: 5,
        must: "Execute a full barrier between the launch word and the look at `InfoPage.doorbell`.",
        why: "A look that overtakes the store may find the device awake that sleeps when the store is there.",
        fix: "`mb()`, or a sequentially consistent fence, between the two.",
        check: Check::No(
            "the device sees stores, not fences; a doorbell that is missing for it shows as `launch-doorbell`",
        ),
    },
    Rule {
        name: "launch-doorbell",
        section: 5,
        must: "Look at `InfoPage.doorbell` behind each launch, and ring while it is `DOORBELL_WANTED`.",
        why: "The device sleeps, and finds the launch when something else wakes it, or never.",
        fix: "Steps 5 and 6 behind every launch word, in this order; read the word anew each time (`READ_ONCE`).",
        check: Check::Live(
            "two launches of a port are there, the word was `DOORBELL_WANTED` since before the first, and nobody rang",
        ),
    },
    Rule {
        name: "doorbell-unwanted",
        section: 5,
        must: "Do not ring while the word is `DOORBELL_SPARED`.",
        why: "Each doorbell is an exit from the virtual machine, and a device that polls has seen the launch.",
        fix: "Compare the word with `DOORBELL_WANTED` before the store to the notify register.",
        check: Check::Live(
            "a doorbell is rung though the word has been `DOORBELL_SPARED` since before any open port was opened \
             (`wait = \"poll\"`; a device that sleeps now and then cannot tell when the driver looked)",
        ),
    },
    Rule {
        name: "release-number",
        section: 6,
        must: "Store into `released` how many slices were consumed: never more than arrived, never less than before.",
        why: "A release frees credits: senders would overrun the queue.",
        fix: "Count slices as they are consumed, from 0 behind every `OP_PORT_OPEN`.",
        check: Check::Live("`released` fell, or is more than the device has stored"),
    },
    Rule {
        name: "release-interval-first",
        section: 6,
        must: "Store `release_interval` before `OP_AUTHORIZE` of a sender whose credits need it.",
        why: "Without it a live run's model time is an estimate.",
        fix: "Store it right behind `OP_PORT_OPEN`.",
        check: Check::No("an interval may be made shorter for each sender that comes later"),
    },
    Rule {
        name: "poll-memory",
        section: 6,
        must: "Poll the status word of the next slice in host memory; do not read across the bus on the way of a message.",
        why: "Such a read stops the processor for a round trip over the bus.",
        fix: "Look at the slice and at the status line; of the BAR, read page 0's doorbell word and nothing else.",
        check: Check::No("the BAR is memory that guests read without the device's help"),
    },
    Rule {
        name: "acquire-slice",
        section: 6,
        must: "Load the status word with acquire ordering before the rest of the slice.",
        why: "The rest may be read as it was before the device stored it.",
        fix: "`smp_load_acquire`, or `READ_ONCE` and `dma_rmb`.",
        check: Check::No("loads are not seen"),
    },
    Rule {
        name: "register-doorbell",
        section: 6,
        must: "Ring behind a store into the completer page as behind a launch.",
        why: "A device that sleeps frees no credits, and arms nothing.",
        fix: "Steps 5 and 6 of chapter 5 behind every register.",
        check: Check::No("of two stores into one register only the last is seen, and not when each was made"),
    },
    Rule {
        name: "look-before-sleep",
        section: 6,
        must: "Arm the slice, ring if that is wanted, and look at it once more before you sleep.",
        why: "What came between the last look and the store is told by no later interrupt of its own.",
        fix: "Arm, steps 5 and 6, look, sleep with a time limit.",
        check: Check::No("loads are not seen"),
    },
    Rule {
        name: "event-buffers-back",
        section: 7,
        must: "Give buffers of the event queue back as they are used.",
        why: "Without one causes wait, and are merged.",
        fix: "Add each buffer again where its event was read, and notify where all had been used up.",
        check: Check::No(
            "a driver that was not given the processor yet looks the same; `events_merged` counts what waited, and `niclab conform` \
             names the rule where events wait on 10 s after the end of its command",
        ),
    },
    Rule {
        name: "lost-slice",
        section: 9,
        must: "Take slice `k` for lost once a later one is there.",
        why: "Slices become visible in the order of their numbers.",
        fix: "Look at slice `k + 1` when `k` is long in coming, and go past it.",
        check: Check::No("a driver that waits longer is not wrong; `[device_faults] stale` tries it"),
    },
    Rule {
        name: "lengths-checked",
        section: 9,
        must: "Check every count and length that the device wrote before it is used.",
        why: "A faulty device writes anything.",
        fix: "Read it once, compare it with the room there is, and use what was compared.",
        check: Check::No("loads are not seen; `[device_faults] short` and `bad_status` try it"),
    },
    Rule {
        name: "waits-bounded",
        section: 9,
        must: "Give every wait an end, and look into memory now and then though no interrupt came.",
        why: "An interrupt may be lost.",
        fix: "`wait_event_timeout` and a look behind it.",
        check: Check::No("how long a driver waits is not seen; `[device_faults] lost_interrupt` tries it"),
    },
];

/// What cards of some models add.
const OF_MODELS: &[Rule] = &[
    Rule {
        name: "command-fields",
        section: 10,
        must: "Leave zero what a command does not use of words 0 to 9, and give its fields values that there are.",
        why: "The device refuses the command.",
        fix: "Zero all words of the slot, then fill in the command's.",
        check: Check::Live(
            "the event of a command is `EVENT_REFUSED`, with `RESULT_BAD_VALUE` or `RESULT_BAD_COMMAND`",
        ),
    },
    Rule {
        name: "region-extents",
        section: 10,
        must: "Name memory of a region in whole pages, but for the begin of the first and the end of the last extent.",
        why: "The device looks addresses up by pages.",
        fix: "Join pages that adjoin; do not split one.",
        check: Check::Live(
            "the device answered `STATUS_BAD_ADDRESS` to `OP_REGION_OPEN` or `OP_REGION_EXTEND`",
        ),
    },
    Rule {
        name: "region-pinned",
        section: 10,
        must: "Keep the pages of a region pinned until `OP_REGION_CLOSE`, `OP_PORT_CLOSE` or `OP_RESET` was answered.",
        why: "The device reads and writes them at any time before.",
        fix: "Unpin behind the answer; where none comes, never.",
        check: Check::No(BELONGS_TO_HOST),
    },
    Rule {
        name: "region-closed-after-refusal",
        section: 10,
        must: "Close a region after a refused `OP_REGION_EXTEND`.",
        why: "It will never be whole, and takes its place until its port is closed.",
        fix: "`OP_REGION_CLOSE` on the way out of the error.",
        check: Check::No("how soon that is to happen nobody says; closing the port does it, too"),
    },
    Rule {
        name: "spill-once",
        section: 10,
        must: "Give one spill area after each `OP_RESET`.",
        why: "The device keeps the one that it has, and the memory of another would be set aside for nothing.",
        fix: "`OP_SPILL_OPEN` in the way up, behind `OP_RESET`; again only behind the next.",
        check: Check::Live("`OP_SPILL_OPEN` while the device has an area"),
    },
    Rule {
        name: "firmware-in-place",
        section: 10,
        must: "Leave a firmware image in one piece of physical memory until the answer.",
        why: "The device reads it when it comes to the request.",
        fix: "Free it behind the answer.",
        check: Check::No(BELONGS_TO_HOST),
    },
    Rule {
        name: "reduce-memory",
        section: 11,
        must: "Leave the values of a reduction alone until it is done.",
        why: "The result takes their place.",
        fix: "Use them behind `POST_EVENT_DONE`.",
        check: Check::No("the memory is the program's before and behind, and no store says when it was made"),
    },
    Rule {
        name: "no-load-at-start",
        section: 11,
        must: "Do not load a program into the card when the driver starts.",
        why: "The others have what the host of the cluster has chosen, and cards with other programs do not understand one another.",
        fix: "Leave loading to who administers the cluster.",
        check: Check::No("why a program is loaded is not seen"),
    },
    Rule {
        name: "payload-before-launch",
        section: 12,
        must: "Store payload into the window before the launch that tells of it, and leave it until `sent` counts the message.",
        why: "The card reads the window as it sends.",
        fix: "A store fence behind the payload; reuse its part of the region by `StatusLine.sent`.",
        check: Check::No("bytes of the window say nothing of when they were stored"),
    },
    Rule {
        name: "payload-window-write-only",
        section: 12,
        must: "Write the payload window in whole words, and never read it.",
        why: "A read crosses the bus, and drains what is combined.",
        fix: "Keep a copy in memory where the payload is needed again.",
        check: Check::No("the BAR is memory that guests read without the device's help"),
    },
    Rule {
        name: "release-leaves-room",
        section: 12,
        must: "Release so often that what comes between two releases leaves room for the longest message.",
        why: "Payload comes free with its slice: a message without room waits, and with it all behind it.",
        fix: "Make the release interval shorter, or the payload region longer.",
        check: Check::No("which messages will come is not known"),
    },
    Rule {
        name: "segments-together",
        section: 12,
        must: "Launch nothing between a header and its last segment.",
        why: "A segment goes on with the message before it.",
        fix: "Keep a port's launches in one thread, or under one lock, from the header to the last segment.",
        check: Check::No(
            "the device answers `REFUSED_SEGMENT`, but to a program that was kept from pushing on, too",
        ),
    },
    Rule {
        name: "ring-layout",
        section: 13,
        must: "Begin descriptors at multiples of 8 bytes, `skip_bytes` of 8 to 120 apart, in memory below 4 GiB.",
        why: "The controller's addresses have 32 bits.",
        fix: "`GFP_DMA32`, and `RING_MAX_SKIP_BYTES`.",
        check: Check::Live(
            "the device answered `STATUS_BAD_ADDRESS` or `STATUS_BAD_VALUE` to `OP_RING_START`",
        ),
    },
    Rule {
        name: "ring-stopped-first",
        section: 13,
        must: "Stop a ring before it is moved.",
        why: "The card walks it, and holds descriptors of it.",
        fix: "`OP_RING_STOP`, and `OP_RING_START` behind its answer.",
        check: Check::Live("the device answered `STATUS_PORT_BUSY` to `OP_RING_START`"),
    },
    Rule {
        name: "descriptor-owned",
        section: 13,
        must: "Fill a descriptor before `RING_OWN` is stored, and leave it alone until the card has given it back.",
        why: "From that store on it is the card's, which reads it at any time.",
        fix: "A store fence before word 0; reuse a descriptor once its `RING_OWN` is zero.",
        check: Check::Live(
            "a descriptor differs when it is given back from what it was when the card took it",
        ),
    },
    Rule {
        name: "descriptor-sound",
        section: 13,
        must: "Describe whole frames of allowed length in the guest's memory: the first descriptor `RING_FIRST`, the last `RING_LAST`.",
        why: "The card refuses the frame, and gives its descriptors back with `RING_ERROR`.",
        fix: "Look at the reason in the low half of word 0.",
        check: Check::Live(
            "the card gives a descriptor back with `RING_STATUS_LENGTH`, `RING_STATUS_ADDRESS` or `RING_STATUS_SEGMENT`",
        ),
    },
    Rule {
        name: "ring-notify",
        section: 13,
        must: "Notify queue 2 behind descriptors that are given, and queue 3 where all descriptors had been the driver's.",
        why: "A card that found none looks again when it is told, or when a frame comes.",
        fix: "One store to the notify register behind the last `RING_OWN`, behind a full barrier.",
        check: Check::No(
            "one notification is enough for any number of descriptors, and nobody says how soon it is due",
        ),
    },
    Rule {
        name: "ring-look-before-wait",
        section: 13,
        must: "Look into the ring until a descriptor is the card's before you wait for `CAUSE_FRAMES`.",
        why: "No event comes for frames that are stored while the driver is at work.",
        fix: "Arm, look once more, sleep with a time limit.",
        check: Check::No("loads are not seen"),
    },
    Rule {
        name: "fifo-one-at-a-time",
        section: 13,
        must: "Do not send another frame through the FIFO before the last `OP_FIFO_SEND` was answered.",
        why: "There is one transfer at a time.",
        fix: "Wait for the answer.",
        check: Check::Live("the device answered `STATUS_PORT_BUSY` to `OP_FIFO_SEND`"),
    },
    Rule {
        name: "frames-numbered",
        section: 13,
        must: "Number all `FRAME_DATA` to a node from 1, keep to the window, never send anything again.",
        why: "A number that is ahead is how the other driver knows of a loss.",
        fix: "One counter for each node, reset with its incarnation.",
        check: Check::No("frames are between drivers; the card carries them as they are"),
    },
    Rule {
        name: "frames-acknowledged",
        section: 13,
        must: "Acknowledge once `acknowledge_every` frames of a node were taken out of the ring.",
        why: "Its window stays used up.",
        fix: "Count what is taken for each node, and keep a buffer for each acknowledgement.",
        check: Check::No("frames are between drivers; the card carries them as they are"),
    },
];

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_words_and_hyphens() {
        let names: BTreeSet<&str> = all().map(|rule| rule.name).collect();
        assert_eq!(names.len(), all().count());
        let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        assert!(names.iter().all(is_name), "{names:?}");
        assert!(names.iter().all(|name| rule(name).is_some_and(|found| found.name == *name)));
        assert_eq!(rule("no-such-rule"), None);
    }

    #[test]
    fn rules_say_all_that_there_is_to_say() {
        for rule in all() {
            let (Check::Live(how) | Check::No(how)) = rule.check;
            for text in [rule.must, rule.why, rule.fix, how] {
                assert!(
                    !text.is_empty() && !text.contains('\n') && !text.contains("  "),
                    "{}: {text}",
                    rule.name
                );
            }
            assert!(
                rule.must.ends_with('.') && rule.why.ends_with('.') && rule.fix.ends_with('.'),
                "{}",
                rule.name
            );
            assert!(!section_title(rule.section).is_empty(), "{}", rule.name);
        }
        assert!(all().is_sorted_by_key(|rule| rule.section), "in the order of the manual");
    }
}
