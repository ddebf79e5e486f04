//! The rules for drivers, by name: every "must" of the device programmer's manual.
//!
//! The header generator writes `docs/reference/RULES.md` from this table, and `niclab rules` shows it. If the cluster
//! file has `rules`, the device reports the rule that a driver broke. It reports a rule only if what the device sees
//! proves that the rule was broken, independently of the schedulers of guest and host.

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, which never changes.
    pub name: &'static str,
    /// Chapter of the manual.
    pub section: u8,
    /// What a driver must do.
    pub must: &'static str,
    /// The reason.
    pub why: &'static str,
    /// The fix of a driver that breaks it.
    pub fix: &'static str,
    /// Whether the device can detect that it is broken.
    pub check: Check,
}

/// Whether the device can detect that a rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It can: the condition that proves it.
    Live(&'static str),
    /// It cannot: the reason, and what detects it instead.
    No(&'static str),
}

impl Rule {
    /// Whether the device checks the rule.
    #[must_use]
    pub const fn is_checked(&self) -> bool {
        matches!(self.check, Check::Live(_))
    }
}

/// The rule with this name.
#[must_use]
pub fn rule(name: &str) -> Option<&'static Rule> {
    all().find(|rule| rule.name == name)
}

/// All rules, in the order of the manual.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [COMMON, SENDING_AND_RECEIVING, OF_MODELS].into_iter().flatten()
}

/// Chapters of the manual that have rules.
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

/// The reason why the device cannot check rules on memory that the driver named.
const BELONGS_TO_HOST: &str =
    "only the guest's kernel knows; a debug kernel (KASAN) finds memory that was freed too early";

/// Rules for start-up, queues and requests.
const COMMON: &[Rule] = &[
    Rule {
        name: "check-identity",
        section: 1,
        must: "Read `DeviceConfig.magic` and `abi_version`, and leave the device alone if either differs.",
        why: "Virtio identity 38 is not reserved for niclab.",
        fix: "Compare both in `probe`, before the driver reads or writes anything else.",
        check: Check::No("QEMU answers reads of the configuration space"),
    },
    Rule {
        name: "no-access-platform",
        section: 1,
        must: "Do not negotiate `VIRTIO_F_ACCESS_PLATFORM`.",
        why: "The device takes guest-physical addresses. Those of an IOMMU or of a bounce buffer differ from \
              them.",
        fix: "Clear the bit when the driver accepts features.",
        check: Check::No("QEMU negotiates features, and a QEMU that niclab starts does not offer this one"),
    },
    Rule {
        name: "interrupt-acknowledge",
        section: 1,
        must: "Acknowledge the interrupt through the virtio ISR register.",
        why: "The line is level-triggered: it stays asserted until the driver reads the register.",
        fix: "Read ISR in the handler (Linux: `vp_interrupt` does), and return `IRQ_HANDLED` only if it was \
              not zero.",
        check: Check::No(
            "QEMU holds ISR and answers the read; the check `guest-interrupts` of reports compares the \
             guests' counts",
        ),
    },
    Rule {
        name: "queues-set-up",
        section: 2,
        must: "Set up all queues that the model uses, including the doorbell queue, which stays empty.",
        why: "The notify register of a queue that is not set up has no effect, so the device sees no \
              doorbell.",
        fix: "Give `virtio_find_vqs` a name for queue 4 as well.",
        check: Check::No(
            "queues start one after the other, and the device cannot distinguish a missing queue from one \
             that is about to start",
        ),
    },
    Rule {
        name: "event-queue-filled",
        section: 2,
        must: "Fill the event queue before the device can raise an interrupt.",
        why: "Without a buffer the device cannot report a cause, and raises no interrupt.",
        fix: "Add buffers before `DRIVER_OK`, or directly after it and before a port is opened.",
        check: Check::Live(
            "the device has a cause of a port to report, and the driver has never given the event queue a \
             buffer",
        ),
    },
    Rule {
        name: "event-buffer-size",
        section: 2,
        must: "Give the event queue writable buffers of at least `sizeof(Event)`.",
        why: "The device returns a shorter buffer unchanged, and the cause waits for the next buffer.",
        fix: "Add one device-writable buffer of 16 bytes or more for each descriptor (Linux: \
              `virtqueue_add_inbuf`).",
        check: Check::Live("a buffer of the event queue is too short, or not writable"),
    },
    Rule {
        name: "magic-first",
        section: 2,
        must: "Before using the BAR, poll `InfoPage.magic` until it holds `MAGIC`, for at most \
               `control_timeout_ms`.",
        why: "The device maps its memory shortly after `DRIVER_OK`. Earlier loads and stores do not reach \
              the device.",
        fix: "Send `OP_PING`, then poll the word with a time limit.",
        check: Check::No("before the BAR is mapped, no store into it reaches the device"),
    },
    Rule {
        name: "windows-checked",
        section: 2,
        must: "Refuse a device with an invalid table of windows, and map each window with the caching and \
               access of its row.",
        why: "If two windows overlapped, a program would reach memory that is not its own.",
        fix: "Check kinds, overlaps and bounds against `pages` before mapping anything.",
        check: Check::No("the device does not see how a guest maps pages"),
    },
    Rule {
        name: "window-owner",
        section: 2,
        must: "Let only the owner of a port reach the port's part of a window.",
        why: "The device identifies the sender by the address of a store.",
        fix: "Map by the port that the file has open, and remove the mappings when it is closed.",
        check: Check::No("the device does not see which program stored"),
    },
    Rule {
        name: "windows-emptied",
        section: 2,
        must: "Zero a port's part of every window when the port is closed.",
        why: "The next owner would find the previous owner's data.",
        fix: "Zero the pages after the reply to `OP_PORT_CLOSE`, before the port is opened again.",
        check: Check::No("the device zeroes them as well, so it cannot see whether the driver did"),
    },
    Rule {
        name: "dead-device",
        section: 2,
        must: "Fail every call after a request without a reply in time, and do not reuse memory that the \
               device may still hold.",
        why: "A device that does not reply may still write.",
        fix: "Mark the device dead, wake all waiting programs, and keep the memory unused until a reset.",
        check: Check::No("the device does not see what the driver waits for, or for how long"),
    },
    Rule {
        name: "virtqueue-sound",
        section: 3,
        must: "Keep each virtqueue valid: rings in memory, heads and links within the table, no loops, no \
               more chains than descriptors.",
        why: "The device stops an invalid queue until the next reset.",
        fix: "Use the kernel's virtqueue functions, or check the index that the driver stores into the \
              available ring.",
        check: Check::Live("a head, link, index or address is invalid"),
    },
    Rule {
        name: "request-length",
        section: 4,
        must: "Set `Request.body_bytes` to exactly the size of the operation's structure, and leave room for \
               the reply.",
        why: "A different length means that driver and device use different structures.",
        fix: "Use `sizeof` of the body's own structure, and add room for the operation's reply.",
        check: Check::Live("the device replied `STATUS_BAD_LENGTH`"),
    },
    Rule {
        name: "request-answerable",
        section: 4,
        must: "Put writable room for a `Reply` after the readable request, all of it in memory.",
        why: "If the device cannot reply to a chain, it returns the chain unchanged and does nothing.",
        fix: "Add one readable and one writable buffer, in this order (Linux: `virtqueue_add_sgs` with 1 and \
              1).",
        check: Check::Live("a chain of the control queue has no valid room for a reply"),
    },
    Rule {
        name: "request-unchanged",
        section: 4,
        must: "Leave a request and its buffers alone until the device has replied.",
        why: "The device may still read the request and write the reply.",
        fix: "Give each request in flight buffers of its own; do not free those of a request that timed out.",
        check: Check::Live("the bytes of a request at the reply differ from those that the device took"),
    },
    Rule {
        name: "request-once",
        section: 4,
        must: "Do not offer a chain again before the device has returned it.",
        why: "The device would reply twice, and the second reply may overwrite memory that has a new use by \
              then.",
        fix: "Take descriptors for a new request only from chains that came back in the used ring.",
        check: Check::Live("a head is offered whose chain the device has taken and not returned"),
    },
    Rule {
        name: "named-memory",
        section: 4,
        must: "Name only memory of the guest, aligned as the structure says, and nothing in the BAR.",
        why: "The device would write into its own registers, or into no memory at all.",
        fix: "Use physical addresses of memory from the page allocator or `kmalloc`, not of stacks or of \
              device memory.",
        check: Check::Live("the device replied `STATUS_BAD_ADDRESS`"),
    },
    Rule {
        name: "port-memory-once",
        section: 4,
        must: "Do not name memory of an open port for another purpose.",
        why: "It belongs to the device until the reply to `OP_PORT_CLOSE`. The device would store data of \
              both uses there.",
        fix: "Keep the memory with the port, and free it after the reply to `OP_PORT_CLOSE`, not before.",
        check: Check::Live("a port or a ring is opened on memory of another open port"),
    },
    Rule {
        name: "port-memory-untouched",
        section: 4,
        must: "Neither write nor free the slices and the status line of an open port.",
        why: "The device writes there at any time. Freed memory may have a new owner, and a changed number \
              loses a slice.",
        fix: "Map receive memory read-only, zero it before `OP_PORT_OPEN`, and free it after the reply to \
              `OP_PORT_CLOSE`.",
        check: Check::Live("a word of it differs from the device's last store"),
    },
];

/// Launches, doorbells, slices, interrupts, faults.
const SENDING_AND_RECEIVING: &[Rule] = &[
    Rule {
        name: "slot-free",
        section: 5,
        must: "Wait until `s <= StatusLine.launched + 32` before storing anything into the slot of post `s`.",
        why: "The slot still holds a post that the device has not taken, or has not reported as taken.",
        fix: "Compare with the status line, not with what was sent or acknowledged; load it with acquire \
              ordering.",
        check: Check::Live(
            "a slot that the device has not reported as taken gets a later number, or another word",
        ),
    },
    Rule {
        name: "launch-number",
        section: 5,
        must: "Number posts 1, 2, 3 and so on, each in slot `(s - 1) mod 32`.",
        why: "The device does not see a slot until it has the expected number.",
        fix: "Begin with 1 after every `OP_PORT_OPEN`, and count only posts.",
        check: Check::Live("a slot has a number that is neither that of its next post nor that of its last"),
    },
    Rule {
        name: "slot-unchanged",
        section: 5,
        must: "Store payload and tag before the launch word, and leave the slot alone until the status line \
               reports it as taken.",
        why: "From the launch word on the slot belongs to the device, which reads it once, at any time.",
        fix: "Use a store fence (`wmb`, `dma_wmb`) between payload and launch word, and never use the slot \
              as scratch memory.",
        check: Check::Live(
            "a word of a posted slot changes before the device has reported the slot as taken",
        ),
    },
    Rule {
        name: "launch-fence",
        section: 5,
        must: "Execute a store fence between payload and launch word if the page is mapped write-combining.",
        why: "Write-combined stores leave in any order, so the device could read half a message.",
        fix: "Use `wmb()` or `sfence` directly before the launch word.",
        check: Check::No("the device sees stores, not fences; a late store shows as `slot-unchanged`"),
    },
    Rule {
        name: "launch-code",
        section: 5,
        must: "Set the reserved bits of the launch word to zero, and use a defined length or command.",
        why: "The device refuses the post: its slot is used up, and nothing is sent.",
        fix: "Compose the launch word from the `CODE_` and `COMMAND_` constants; read `StatusLine.refusal`.",
        check: Check::Live(
            "the status line reports `REFUSED_RESERVED_BITS`, `REFUSED_LENGTH` or `REFUSED_HEADER`",
        ),
    },
    Rule {
        name: "launch-barrier",
        section: 5,
        must: "Execute a full barrier between the store of the launch word and the load of \
               `InfoPage.doorbell`.",
        why: "A load that overtakes the store may find the device awake, though it sleeps when the store \
              arrives.",
        fix: "Use `mb()`, or a sequentially consistent fence, between the two.",
        check: Check::No(
            "the device sees stores, not fences; a doorbell that is missing for this reason shows as \
             `launch-doorbell`",
        ),
    },
    Rule {
        name: "launch-doorbell",
        section: 5,
        must: "Read `InfoPage.doorbell` after each post or batch, and ring if it is a number for which you have not \
               rung.",
        why: "A sleeping device finds the post only when something else wakes it, or never.",
        fix: "Execute steps 5 and 6 after every launch word or batch, in this order; load the word from memory \
              each time (`READ_ONCE`).",
        check: Check::Live(
            "two posts of a port have arrived, the word had one number since before the first, and no doorbell \
             was rung since the device stored that number; with `PORT_BATCHES`, one post, and the driver \
             closes the port",
        ),
    },
    Rule {
        name: "doorbell-unwanted",
        section: 5,
        must: "Do not ring while the word is `DOORBELL_SPARED`.",
        why: "Each doorbell is an exit from the virtual machine, and a polling device has seen the post.",
        fix: "Compare the word with `DOORBELL_SPARED` before the store to the notify register.",
        check: Check::Live(
            "a doorbell is rung though the word has been `DOORBELL_SPARED` since before any open port was \
             opened (`wait = \"poll\"`; a device that sometimes sleeps cannot tell when the driver read the \
             word)",
        ),
    },
    Rule {
        name: "release-number",
        section: 6,
        must: "Store into `released` the number of slices consumed: never more than arrived, never less than \
               before.",
        why: "A release returns credits, so senders would overrun the queue.",
        fix: "Count slices as they are consumed, from 0 after every `OP_PORT_OPEN`.",
        check: Check::Live(
            "`released` decreases, or exceeds the number of slices that the device has stored",
        ),
    },
    Rule {
        name: "release-interval-first",
        section: 6,
        must: "Store `release_interval` before `OP_AUTHORIZE` of a sender whose credits need it.",
        why: "Without it, a live run's model time is an estimate.",
        fix: "Store it directly after `OP_PORT_OPEN`.",
        check: Check::No("a program may shorten the interval for each later sender"),
    },
    Rule {
        name: "poll-memory",
        section: 6,
        must: "Poll the status word of the next slice in host memory; do not read across the bus on the path \
               of a message.",
        why: "Such a read stalls the processor for a round trip over the bus.",
        fix: "Poll the slice and the status line; in the BAR, read page 0's doorbell word and nothing else.",
        check: Check::No("the BAR is memory that guests read without the device's help"),
    },
    Rule {
        name: "acquire-slice",
        section: 6,
        must: "Load the status word with acquire ordering before the rest of the slice.",
        why: "Otherwise the processor may read the rest from before the device's store.",
        fix: "Use `smp_load_acquire`, or `READ_ONCE` and `dma_rmb`.",
        check: Check::No("the device does not see loads"),
    },
    Rule {
        name: "register-doorbell",
        section: 6,
        must: "Ring after a store into the completer page as after a post; once for a batch.",
        why: "A sleeping device returns no credits, and arms nothing.",
        fix: "Execute steps 5 and 6 of chapter 5 after every register store or batch.",
        check: Check::No(
            "of two stores into one register the device sees only the last, and not when each was made",
        ),
    },
    Rule {
        name: "look-before-sleep",
        section: 6,
        must: "Before sleeping, arm the slice, ring if a doorbell is wanted, and check the slice once more.",
        why: "No later interrupt reports a slice that arrived between the last check and the store.",
        fix: "Arm, execute steps 5 and 6, check, and sleep with a time limit.",
        check: Check::No("the device does not see loads"),
    },
    Rule {
        name: "event-buffers-back",
        section: 7,
        must: "Return buffers to the event queue as they are used.",
        why: "Without a buffer causes wait, and are merged.",
        fix: "Add each buffer again after reading its event, and notify if all had been used up.",
        check: Check::No(
            "a driver that has not got the processor yet looks the same; `events_merged` counts what waited, \
             and `niclab conform` names the rule if events still wait 10 s after the end of its command",
        ),
    },
    Rule {
        name: "lost-slice",
        section: 9,
        must: "Treat slice `k` as lost when a later one has arrived.",
        why: "Slices become visible in the order of their numbers.",
        fix: "Check slice `k + 1` if `k` does not arrive for long, and skip `k`.",
        check: Check::No("a driver that waits longer is not wrong; `[device_faults] stale` tests it"),
    },
    Rule {
        name: "lengths-checked",
        section: 9,
        must: "Check every count and length that the device wrote before using it.",
        why: "A faulty device may write any value.",
        fix: "Read it once, compare it with the room that there is, and use the compared value.",
        check: Check::No("the device does not see loads; `[device_faults] short` and `bad_status` test it"),
    },
    Rule {
        name: "waits-bounded",
        section: 9,
        must: "Limit every wait, and check memory from time to time without an interrupt.",
        why: "An interrupt may be lost.",
        fix: "Use `wait_event_timeout`, and check after it.",
        check: Check::No(
            "the device does not see how long a driver waits; `[device_faults] lost_interrupt` tests it",
        ),
    },
];

/// What cards of some models add.
const OF_MODELS: &[Rule] = &[
    Rule {
        name: "command-fields",
        section: 10,
        must: "Set unused parts of words 0 to 9 of a command to zero, and give its fields defined values.",
        why: "The device refuses the command.",
        fix: "Zero all words of the slot, then fill in the command's.",
        check: Check::Live(
            "the event of a command is `EVENT_REFUSED`, with `RESULT_BAD_VALUE` or `RESULT_BAD_COMMAND`",
        ),
    },
    Rule {
        name: "region-extents",
        section: 10,
        must: "Name the memory of a region in whole pages, except at the begin of the first and the end of \
               the last extent.",
        why: "The device looks addresses up by page.",
        fix: "Join adjacent pages; do not split a page.",
        check: Check::Live(
            "the device replied `STATUS_BAD_ADDRESS` to `OP_REGION_OPEN` or `OP_REGION_EXTEND`",
        ),
    },
    Rule {
        name: "region-pinned",
        section: 10,
        must: "Keep the pages of a region pinned until the reply to `OP_REGION_CLOSE`, `OP_PORT_CLOSE` or \
               `OP_RESET`.",
        why: "Until then the device reads and writes them at any time.",
        fix: "Unpin after the reply; without a reply, never unpin.",
        check: Check::No(BELONGS_TO_HOST),
    },
    Rule {
        name: "region-closed-after-refusal",
        section: 10,
        must: "Close a region after a refused `OP_REGION_EXTEND`.",
        why: "The region never becomes complete, and occupies its slot until its port is closed.",
        fix: "Send `OP_REGION_CLOSE` in the error path.",
        check: Check::No("the manual sets no time for this, and closing the port does it, too"),
    },
    Rule {
        name: "spill-once",
        section: 10,
        must: "Give the device one spill area after each `OP_RESET`.",
        why: "The device keeps its current area, so the memory of a second one would be unused.",
        fix: "Send `OP_SPILL_OPEN` at start, after `OP_RESET`, and again only after the next `OP_RESET`.",
        check: Check::Live("the driver sends `OP_SPILL_OPEN` while the device has an area"),
    },
    Rule {
        name: "firmware-in-place",
        section: 10,
        must: "Keep a firmware image in one piece of physical memory until the reply.",
        why: "The device reads the image when it processes the request.",
        fix: "Free it after the reply.",
        check: Check::No(BELONGS_TO_HOST),
    },
    Rule {
        name: "reduce-memory",
        section: 11,
        must: "Leave the values of a reduction alone until it is done.",
        why: "The result replaces them.",
        fix: "Use them after `POST_EVENT_DONE`.",
        check: Check::No(
            "the memory is the program's before and after, and the device does not see when a store was made",
        ),
    },
    Rule {
        name: "no-load-at-start",
        section: 11,
        must: "Do not load a program into the card when the driver starts.",
        why: "The other cards have the program that the cluster's host has chosen. Cards with different \
              programs do not understand one another.",
        fix: "Leave loading to the administrator of the cluster.",
        check: Check::No("the device does not see why a program is loaded"),
    },
    Rule {
        name: "payload-before-launch",
        section: 12,
        must: "Store payload into the window before the post that announces it, and leave it until `sent` \
               counts the message.",
        why: "The card reads the window while it sends.",
        fix: "Use a store fence after the payload; reuse its part of the region according to \
              `StatusLine.sent`.",
        check: Check::No("the device does not see when bytes of the window were stored"),
    },
    Rule {
        name: "payload-window-write-only",
        section: 12,
        must: "Write the payload window in whole words, and never read it.",
        why: "A read crosses the bus, and flushes the write-combining buffers.",
        fix: "Keep a copy in memory if the payload is needed again.",
        check: Check::No("the BAR is memory that guests read without the device's help"),
    },
    Rule {
        name: "release-leaves-room",
        section: 12,
        must: "Release often enough that the messages between two releases leave room for the longest \
               message.",
        why: "Payload is freed with its slice: a message without room waits, and all later ones wait after \
              it.",
        fix: "Shorten the release interval, or enlarge the payload region.",
        check: Check::No("the device does not know which messages will arrive"),
    },
    Rule {
        name: "segments-together",
        section: 12,
        must: "Post nothing between a header and its last segment.",
        why: "A segment continues the message before it.",
        fix: "Keep a port's posts in one thread, or under one lock, from the header to the last segment.",
        check: Check::No(
            "the device answers `REFUSED_SEGMENT`, but also to a program that was delayed while it pushed",
        ),
    },
    Rule {
        name: "ring-layout",
        section: 13,
        must: "Place descriptors at multiples of 8 bytes, `skip_bytes` of 8 to 120 apart, in memory below 4 \
               GiB.",
        why: "The controller's addresses have 32 bits.",
        fix: "Use `GFP_DMA32`, and `RING_MAX_SKIP_BYTES`.",
        check: Check::Live(
            "the device replied `STATUS_BAD_ADDRESS` or `STATUS_BAD_VALUE` to `OP_RING_START`",
        ),
    },
    Rule {
        name: "ring-stopped-first",
        section: 13,
        must: "Stop a ring before moving it.",
        why: "The card walks it, and holds some of its descriptors.",
        fix: "Send `OP_RING_STOP`, and `OP_RING_START` after its reply.",
        check: Check::Live("the device replied `STATUS_PORT_BUSY` to `OP_RING_START`"),
    },
    Rule {
        name: "descriptor-owned",
        section: 13,
        must: "Fill a descriptor before storing `RING_OWN`, and leave it alone until the card has returned \
               it.",
        why: "From that store on the descriptor belongs to the card, which reads it at any time.",
        fix: "Use a store fence before word 0; reuse a descriptor when its `RING_OWN` is zero.",
        check: Check::Live("a returned descriptor differs from what the card took"),
    },
    Rule {
        name: "descriptor-sound",
        section: 13,
        must: "Describe complete frames of allowed length in the guest's memory: `RING_FIRST` in the first \
               descriptor, `RING_LAST` in the last.",
        why: "The card refuses the frame, and returns its descriptors with `RING_ERROR`.",
        fix: "Read the reason in the low half of word 0.",
        check: Check::Live(
            "the card returns a descriptor with `RING_STATUS_LENGTH`, `RING_STATUS_ADDRESS` or \
             `RING_STATUS_SEGMENT`",
        ),
    },
    Rule {
        name: "ring-notify",
        section: 13,
        must: "Notify queue 2 after giving descriptors, and queue 3 if all descriptors had been the \
               driver's.",
        why: "A card that found no descriptor checks again when it is notified, or when a frame arrives.",
        fix: "Store once to the notify register after the last `RING_OWN`, with a full barrier between them.",
        check: Check::No(
            "one notification is enough for any number of descriptors, and the manual sets no time for it",
        ),
    },
    Rule {
        name: "ring-look-before-wait",
        section: 13,
        must: "Check the ring until a descriptor is the card's before waiting for `CAUSE_FRAMES`.",
        why: "No event reports frames that are stored while the driver is working.",
        fix: "Arm, check once more, and sleep with a time limit.",
        check: Check::No("the device does not see loads"),
    },
    Rule {
        name: "fifo-one-at-a-time",
        section: 13,
        must: "Do not send another frame through the FIFO before the reply to the last `OP_FIFO_SEND`.",
        why: "The card does one transfer at a time.",
        fix: "Wait for the reply.",
        check: Check::Live("the device replied `STATUS_PORT_BUSY` to `OP_FIFO_SEND`"),
    },
    Rule {
        name: "frames-numbered",
        section: 13,
        must: "Number all `FRAME_DATA` frames to a node from 1, keep to the window, and never retransmit.",
        why: "The other driver detects a loss by a number that is ahead.",
        fix: "Keep one counter for each node, reset with its incarnation.",
        check: Check::No("frames are between drivers; the card carries them unchanged"),
    },
    Rule {
        name: "frames-acknowledged",
        section: 13,
        must: "Send an acknowledgement after taking `acknowledge_every` frames of a node out of the ring.",
        why: "Otherwise its window stays used up.",
        fix: "Count the frames taken for each node, and keep a buffer for each acknowledgement.",
        check: Check::No("frames are between drivers; the card carries them unchanged"),
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
    fn every_rule_has_complete_texts() {
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
