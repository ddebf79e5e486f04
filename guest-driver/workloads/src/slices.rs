//! Messages over a port with slices: each takes one slot and one slice, and credits limit the sender.

use niclab_port::slices::{self, Flags, PAYLOAD_WORDS, Slice};
use niclab_port::{Queue, Reports, Requester};

use crate::{End, Listener, Mark, Memory, PortPlan, Read, Transport};

/// A port.
#[derive(Debug)]
pub struct SliceTransport {
    end: End,
    sends: bool,
    senders: u32,
    next: Option<(Mark, Flags)>,
}

impl SliceTransport {
    /// Over a port of `node`.
    #[must_use]
    pub fn new(node: u16, plan: &PortPlan) -> Self {
        Self {
            end: End { node, port: plan.number as u16 },
            sends: !plan.sends.is_empty(),
            senders: plan.partners.len() as u32,
            next: None,
        }
    }
}

impl Transport for SliceTransport {
    type Records = Slice;

    const HAS_WHOLE_RECORDS: bool = false;
    const STANDS_ALONE: bool = true;
    const OWES_LAUNCHES: bool = false;

    fn release_interval(&self, slices: u32) -> u64 {
        u64::from(slices / 4).max(1)
    }

    fn credits(&self, slices: u32) -> Option<u32> {
        Some(slices.checked_div(self.senders).unwrap_or(slices).max(1))
    }

    fn mark_of(words: &[u64]) -> Option<Mark> {
        let [.., first, second, _] = words else { return None };
        Some(Mark::from_tag([*first, *second]))
    }

    fn region_bytes(&self) -> u64 {
        0
    }

    fn is_posted(&self, _: u64, _: u64) -> bool {
        false
    }

    fn begin(&mut self, _: u32) {}

    fn has_launches(&self) -> bool {
        self.next.is_some()
    }

    fn is_blocked(&self, _: &impl Reports) -> bool {
        false
    }

    fn waits_for_news(&self, requester: &Requester) -> bool {
        self.sends && requester.is_full()
    }

    fn send(&mut self, mark: &Mark, interrupts: bool, _: &mut impl Memory) {
        self.next = Some((*mark, if interrupts { Flags::INTERRUPT } else { Flags::NONE }));
    }

    fn launch(&mut self, requester: &mut Requester, memory: &mut impl Memory, received: u64) -> bool {
        let Some((mark, flags)) = self.next.take() else { return false };
        let mut payload = [0; PAYLOAD_WORDS];
        let mut words = 0;
        for (place, word) in payload.iter_mut().zip(mark.payload()) {
            *place = word;
            words += 1;
        }
        slices::launch(
            requester,
            memory,
            payload.get(..words).unwrap_or(&payload),
            mark.tag(),
            flags,
            received,
        );
        true
    }

    fn read(
        &mut self,
        queue: &mut Queue<Slice>,
        memory: &mut impl Memory,
        listener: &mut impl Listener,
    ) -> Option<Read> {
        let (message, _) = slices::take(queue, memory)?;
        let mark = Mark::from_tag(message.tag());
        listener.on_message(self.end, message.source().into(), &mark, message.payload().iter().copied());
        Some(Read::Message)
    }
}
