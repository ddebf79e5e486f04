//! Effects of a card's units: queued for the shell, priced and counted.

use alloc::collections::VecDeque;
use core::ops::Range;

use niclab_abi::control::{Reply, STATUS_OK};
use niclab_abi::{FromBytes, ToBytes};

use crate::nic::frame::{Data, SharedFrame};
use crate::nic::{
    Content, Descriptor, DmaWords, FrameBytes, HostRanges, Input, Output, ReplyBytes, ShellCounts,
    WindowRange,
};
use crate::parts::counters::{CardCounters, Counting};
use crate::parts::descriptor_ring::{Layout, WriteBack};
use crate::parts::host_interface::{self, BusTransfer, HostInterface, Passed, Passes};
use crate::parts::obligation::Obligation;
use crate::platform::ledger::Stage;
use crate::platform::profile::Passing;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Time};

/// Bytes of a word. Ours: the interface has words of 64 bits.
pub const WORD_BYTES: u64 = 8;

/// Bytes of a queue descriptor: as in a split virtqueue (Virtio 1.3, section 2.7.5), and as in most cards of the
/// papers' time.
pub const DESCRIPTOR_BYTES: u64 = 16;

/// Machines that most cards have; a unit with others gets them from [`HostInterface::machine`].
#[derive(Clone, Copy, Debug)]
pub enum Machine {
    /// Takes the host's posts.
    Load,
    /// Sends frames.
    Transmit,
    /// Checks frames.
    Receive,
    /// Stores into host memory.
    Store,
}

impl Machine {
    /// Names in profiles and in timelines.
    const NAMES: [(&'static str, &'static str); 4] =
        [("load", "load"), ("transmit", "tx"), ("receive", "rx"), ("store", "store")];
}

/// Work units of inputs and outputs, for [`crate::nic::Nic::work_done`].
#[derive(Clone, Copy, Debug)]
pub struct WorkPrices {
    /// Any input.
    pub input: u64,
    /// Bytes of an input that are checked per work unit, a power of two; `u64::MAX` if inputs are short.
    pub checked_bytes_in_unit: u64,
    /// Any output.
    pub output: u64,
    /// Bytes that are copied for an output per work unit, a power of two; `u64::MAX` if outputs are short.
    pub copied_bytes_in_unit: u64,
}

/// The reply to a control request.
#[derive(Debug)]
#[must_use = "a driver waits for the reply"]
pub struct ReplyDue {
    token: u64,
    obligation: Obligation,
}

impl ReplyDue {
    /// The reply to the request with this token.
    pub const fn new(token: u64) -> Self {
        Self { token, obligation: Obligation::new("a reply to a control request") }
    }

    /// Cancels the reply: the driver is gone.
    pub fn void(self) {
        self.obligation.void();
    }
}

/// A chain of a descriptor queue that the card took.
#[derive(Debug)]
#[must_use = "a chain that was taken must be returned"]
pub struct CompletionDue {
    token: u64,
    obligation: Obligation,
}

impl CompletionDue {
    /// Cancels the completion: the driver is gone.
    pub fn void(self) {
        self.obligation.void();
    }
}

/// Host interface, queued effects and counters of a card. `C` is the model's counters.
#[derive(Debug)]
pub struct Effects<C> {
    /// Host and bus.
    pub interface: HostInterface,
    /// The card's counters.
    pub counters: C,
    /// The shell's counters.
    pub shell_counts: ShellCounts,
    machines: [host_interface::Machine; 4],
    queue: VecDeque<Output>,
    prices: WorkPrices,
    /// Powers of two by which bytes of each input and output are divided.
    checked_shift: u32,
    copied_shift: u32,
    spent: u64,
    tokens: u64,
}

impl<C: Counting> Effects<C> {
    /// Without effects.
    pub fn new(interface: HostInterface, prices: WorkPrices) -> Self {
        let machine = |(name, track)| interface.machine(name, track);
        Self {
            machines: Machine::NAMES.map(machine),
            interface,
            counters: C::default(),
            shell_counts: ShellCounts::default(),
            queue: VecDeque::new(),
            prices,
            checked_shift: prices.checked_bytes_in_unit.checked_ilog2().unwrap_or(0),
            copied_shift: prices.copied_bytes_in_unit.checked_ilog2().unwrap_or(0),
            spent: 0,
            tokens: 0,
        }
    }

    /// The counters of every card.
    #[inline]
    pub fn card(&mut self) -> &mut CardCounters {
        self.counters.as_mut()
    }

    /// Counts an input. Until the next attribution, transactions belong to no message.
    #[inline]
    pub fn on_input(&mut self, input: &Input<'_>) {
        self.attribute(None);
        self.spent += self.prices.input;
        // Most cards have inputs of constant cost.
        if self.prices.checked_bytes_in_unit != u64::MAX {
            let bytes = match input {
                Input::Frame { frame, .. } => frame.len(),
                Input::Control { request, .. } => request.len(),
                Input::DmaData { bytes, .. } => bytes.len(),
                _ => 0,
            };
            self.spent += bytes as u64 >> self.checked_shift;
        }
    }

    /// A number that no other command, read or message of this card has.
    pub const fn next_token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// The next effect, in the order of the card's decisions.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        self.queue.pop_front()
    }

    /// Drops the effects for a host that is gone.
    pub fn on_host_reset(&mut self) {
        self.queue.retain(|output| matches!(output, Output::Frame { .. } | Output::BorrowedFrame { .. }));
    }

    /// Counts an output for which `bytes` bytes are copied.
    #[inline]
    const fn spend_output(&mut self, bytes: u64) {
        self.spent += self.prices.output + (bytes >> self.copied_shift);
    }

    /// Counts other work than inputs and outputs, as [`crate::nic::Nic::work_done`] does.
    #[inline]
    pub const fn spend(&mut self, units: u64) {
        self.spent += units;
    }

    /// Work so far.
    #[inline]
    pub const fn spent(&self) -> u64 {
        self.spent
    }

    /// Names the message of the next transactions.
    #[inline]
    pub fn attribute(&mut self, message: Option<TraceTag>) {
        self.interface.ledger_mut().attribute(message);
    }

    /// Runs `act` with its transactions attributed to no message, and restores the attribution.
    #[inline]
    pub fn unattributed<R>(&mut self, act: impl FnOnce(&mut Self) -> R) -> R {
        let message = self.interface.ledger().attributed();
        self.attribute(None);
        let result = act(self);
        self.attribute(message);
        result
    }

    /// Charges a machine for `bytes`.
    #[inline]
    pub fn work(&mut self, machine: Machine, ready: Time, bytes: u64) -> Stage {
        self.interface.work(&mut self.machines[machine as usize], ready, bytes)
    }

    /// Passes a packet of `bytes`, whose words arrive at `come`, through a machine: [`HostInterface::pass`].
    #[inline(always)]
    pub fn pass(&mut self, machine: Machine, passing: Passing, come: Passage, bytes: u64) -> Passed {
        self.interface.pass(&mut self.machines[machine as usize], passing, come, bytes)
    }

    /// Begins a batch of packets of `bytes` through a machine: [`HostInterface::passes`].
    #[inline]
    pub fn passes(&self, machine: Machine, passing: Passing, bytes: u64) -> Passes {
        self.interface.passes(&self.machines[machine as usize], passing, bytes)
    }

    /// Records a batch of packets that a machine has passed.
    pub fn enter_passes(&mut self, machine: Machine, passes: &Passes) {
        self.interface.enter_passes(&mut self.machines[machine as usize], passes);
    }

    /// Whether a batch is possible: the ledger records no single stages, and no effect is pending.
    #[inline]
    pub fn takes_batch(&self) -> bool {
        self.queue.is_empty() && !self.interface.ledger().is_recording()
    }

    /// Counts the inputs and outputs of a batch: inputs without checked bytes, and one output for each with
    /// `copied_bytes` copied.
    #[inline]
    pub fn on_batch(&mut self, count: usize, copied_bytes: u64) {
        debug_assert!(
            self.prices.checked_bytes_in_unit == u64::MAX,
            "checked inputs are counted by their bytes"
        );
        let each = self.prices.input + self.prices.output + (copied_bytes >> self.copied_shift);
        self.spent += count as u64 * each;
    }

    /// The host stores a register. Returns when the store arrives.
    #[inline]
    pub fn store_register(&mut self, ready: Time) -> Time {
        self.interface.transfer(BusTransfer::PioWrite, ready, WORD_BYTES).end
    }

    /// Writes `words` as one DMA transfer. Returns when they are visible.
    #[inline]
    pub fn dma_write(&mut self, ready: Time, address: u64, words: DmaWords, content: Content) -> Time {
        let message = self.interface.ledger().attributed();
        let at = self.interface.transfer(BusTransfer::DmaWrite, ready, words.len() as u64 * WORD_BYTES).end;
        self.spend_output(0);
        self.queue.push_back(Output::DmaWrite { at, address, words, content, message });
        at
    }

    /// Stores a part of a frame as one DMA transfer. Returns when it is visible.
    pub fn dma_frame(
        &mut self,
        ready: Time,
        frame: &SharedFrame,
        bytes: Range<usize>,
        ranges: HostRanges,
    ) -> Time {
        let message = self.interface.ledger().attributed();
        let at = self.interface.transfer(BusTransfer::DmaWrite, ready, bytes.len() as u64).end;
        self.spend_output(bytes.len() as u64);
        self.queue.push_back(Output::DmaFrame { at, frame: frame.clone(), bytes, ranges, message });
        at
    }

    /// Stores the first bytes of a frame's data, contained or borrowed, as one DMA transfer. Returns when they are
    /// visible.
    pub fn dma_data(&mut self, ready: Time, data: &Data<'_>, bytes: usize, ranges: HostRanges) -> Time {
        let first = data.bytes().start;
        let bytes = first..first + bytes;
        match data {
            Data::Here(piece) => self.dma_frame(ready, piece.frame, bytes, ranges),
            Data::Borrowed(_) => {
                let message = self.interface.ledger().attributed();
                let at = self.interface.transfer(BusTransfer::DmaWrite, ready, bytes.len() as u64).end;
                // Borrowed bytes were counted when they were borrowed, and are copied once.
                self.spend_output(0);
                self.queue.push_back(Output::DmaBorrowed { at, bytes, ranges, message });
                at
            }
        }
    }

    /// Reads host memory as one DMA transfer, appended to `into`. Returns when the data arrives.
    pub fn dma_read(&mut self, ready: Time, token: u64, ranges: HostRanges, into: FrameBytes) -> Time {
        let bytes = ranges.iter().map(|range| range.bytes).sum();
        self.read(BusTransfer::DmaRead, bytes, ready, token, ranges, into)
    }

    /// Reads the descriptor of a ring in host memory, laid out as `L`, from the ranges of [`DescriptorRing::look`].
    /// Returns when it arrives.
    ///
    /// [`DescriptorRing::look`]: crate::parts::descriptor_ring::DescriptorRing::look
    pub fn fetch_descriptor<L: Layout>(&mut self, ready: Time, token: u64, ranges: HostRanges) -> Time {
        let into = FrameBytes::new();
        self.read(BusTransfer::DescriptorFetch, L::FETCHED_BYTES, ready, token, ranges, into)
    }

    fn read(
        &mut self,
        transfer: BusTransfer,
        bytes: u64,
        ready: Time,
        token: u64,
        ranges: HostRanges,
        into: FrameBytes,
    ) -> Time {
        let message = self.interface.ledger().attributed();
        let at = self.interface.transfer(transfer, ready, bytes).end;
        self.spend_output(bytes);
        self.queue.push_back(Output::DmaRead { at, token, ranges, into, message });
        at
    }

    /// Reads bytes that the host stored into a window of the card, appended to `into`. They are already in the card.
    pub fn window_read(&mut self, at: Time, token: u64, range: WindowRange, into: FrameBytes) {
        let message = self.interface.ledger().attributed();
        self.spend_output(range.bytes.end - range.bytes.start);
        self.queue.push_back(Output::WindowRead { at, token, range, into, message });
    }

    /// Returns a descriptor of a ring in host memory. Returns when the host sees it.
    pub fn write_back(&mut self, ready: Time, write_back: WriteBack) -> Time {
        let WriteBack { address, word, status } = write_back;
        let message = self.interface.ledger().attributed();
        let at = self.interface.transfer(BusTransfer::DescriptorWriteBack, ready, WORD_BYTES).end;
        self.spend_output(0);
        let (words, content) = (DmaWords::from_slice(&[word]), Content::Completion { status });
        self.queue.push_back(Output::DmaWrite { at, address, words, content, message });
        at
    }

    /// Takes a chain of a descriptor queue. Returns when its descriptors arrive, and the obligation to return it.
    pub fn take_chain(&mut self, ready: Time, chain: &Descriptor) -> (Time, CompletionDue) {
        let descriptors = (chain.readable.len() + chain.writable.len()) as u64;
        let bytes = descriptors * DESCRIPTOR_BYTES;
        let at = self.interface.transfer(BusTransfer::DescriptorFetch, ready, bytes).end;
        let obligation = Obligation::new("a chain that was taken");
        (at, CompletionDue { token: chain.token, obligation })
    }

    /// Returns a chain with `bytes` bytes written into its memory. Returns when the host sees it.
    pub fn complete(&mut self, ready: Time, due: CompletionDue, bytes: u32) -> Time {
        let CompletionDue { token, obligation } = due;
        let at = self.interface.transfer(BusTransfer::DescriptorWriteBack, ready, DESCRIPTOR_BYTES).end;
        self.spend_output(0);
        self.queue.push_back(Output::Complete { at, token, bytes });
        obligation.fulfil();
        at
    }

    /// Sends a frame that is `ready`, completely at an instant or from its head to its tail.
    #[inline]
    pub fn frame(
        &mut self,
        ready: impl Into<Passage>,
        frame: impl Into<SharedFrame>,
        message: Option<TraceTag>,
    ) {
        let (Passage { head, tail }, frame) = (ready.into(), frame.into());
        self.spend_output(frame.len() as u64);
        self.queue.push_back(Output::Frame { at: head, tail, frame, message });
    }

    /// Sends a frame before all effects that were decided meanwhile: it has waited for its data.
    pub fn frame_first(
        &mut self,
        ready: impl Into<Passage>,
        frame: impl Into<SharedFrame>,
        message: Option<TraceTag>,
    ) {
        let (Passage { head, tail }, frame) = (ready.into(), frame.into());
        self.spend_output(frame.len() as u64);
        self.queue.push_front(Output::Frame { at: head, tail, frame, message });
    }

    /// As [`Self::frame_first`], for a frame whose data was just borrowed.
    pub fn borrowed_frame_first(
        &mut self,
        ready: impl Into<Passage>,
        head: FrameBytes,
        message: Option<TraceTag>,
    ) {
        let Passage { head: at, tail } = ready.into();
        self.spend_output(0);
        self.queue.push_front(Output::BorrowedFrame { at, tail, head, message });
    }

    /// Interrupts the host, for a `CAUSE_` of [`niclab_abi::event`].
    pub fn interrupt(&mut self, ready: Time, cause: u32, port: usize, message: Option<TraceTag>) {
        let at = self.interface.interrupt(ready);
        self.card().interrupts += 1;
        self.spend_output(0);
        self.queue.push_back(Output::Interrupt { at, cause, port: port as u32, message });
    }

    /// Answers a control request with these bytes.
    pub fn reply(&mut self, at: Time, due: ReplyDue, bytes: ReplyBytes) {
        let ReplyDue { token, obligation } = due;
        self.spend_output(0);
        self.queue.push_back(Output::Reply { at, token, bytes });
        obligation.fulfil();
    }

    /// Refuses a control request, for a `STATUS_` of the ABI.
    pub fn refuse(&mut self, at: Time, due: ReplyDue, status: u32) {
        self.card().control_refused += 1;
        self.reply(at, due, reply_bytes(status, None::<&Reply>));
    }
}

/// A reply that reports success, with a body.
pub fn reply_of(body: &impl ToBytes) -> ReplyBytes {
    reply_bytes(STATUS_OK, Some(body))
}

/// A reply that reports success, without a body.
pub fn empty_reply() -> ReplyBytes {
    reply_bytes(STATUS_OK, None::<&Reply>)
}

fn reply_bytes<T: ToBytes>(status: u32, body: Option<&T>) -> ReplyBytes {
    let body_bytes = if body.is_some() { T::BYTES } else { 0 };
    let mut bytes = ReplyBytes::from_elem(0, Reply::BYTES + body_bytes);
    let (head, rest) = bytes.split_at_mut(Reply::BYTES);
    Reply { status, body_bytes: body_bytes as u32 }.to_bytes(head);
    if let Some(body) = body {
        body.to_bytes(rest);
    }
    bytes
}
