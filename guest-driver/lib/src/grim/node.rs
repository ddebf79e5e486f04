//! The paper's API (section 5.4): the channels of a program, with handlers that run when it polls.

use std::thread;
use std::time::{Duration, Instant};

use niclab_port::grim::names::Entry;
use niclab_port::grim::{Outgoing, Short};

use super::handlers::{Handler, Handlers};
use super::send_queue::{ExposedPart, SendQueue, bulk, memory};
use super::{Message, Port, Receiver, Refusal, Sender, Terms};
use crate::port::{Parts, PortOptions};
use crate::wait::{Next, Quiet, Wait};
use crate::{Address, Batching, Deadline, Device, Error, WaitPolicy};

/// Maximum number of messages of a channel that are handled before the next channel is polled.
const BATCH: u32 = 64;
/// Polls for a message between two checks for skipped messages.
const LOOKS_PER_CHECK: u32 = 4096;
/// Interval after which an unanswered list of handlers is sent again: its keeper may have been absent.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Options of a program's channels.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of channels. With several, streams of messages do not wait for each other (section 4.2).
    pub channels: u32,
    /// Port of the first channel; the others follow it. `None`: any free ports.
    pub first_port: Option<u32>,
    /// Slices of each receive queue: a power of two.
    pub slices: u32,
    /// Terms of each channel; `None`: the card's own terms.
    pub terms: Option<Terms>,
    /// How calls wait.
    pub policy: WaitPolicy,
    /// The channel that keeps the list of handlers. Its program must poll. It is the same for all programs of the
    /// cluster.
    pub keeper: Address,
    /// Maximum number of messages that wait for room outside of the cards' queues.
    pub queue_messages: usize,
    /// Maximum bytes of their payload.
    pub queue_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            channels: 1,
            first_port: None,
            slices: 256,
            terms: None,
            policy: WaitPolicy::ADAPTIVE,
            keeper: Address { node: 0, port: 0 },
            queue_messages: 1 << 14,
            queue_bytes: 16 << 20,
        }
    }
}

impl Options {
    /// `channels` channels, the first at port `first_port`.
    #[must_use]
    pub fn at(first_port: u32, channels: u32) -> Self {
        Self { channels, first_port: Some(first_port), ..Self::default() }
    }
}

/// The channels of a program, with its handlers.
///
/// [`Node::poll`] and every call that waits run handlers, one at a time, in the order in which messages arrived at a
/// channel; never from within a handler. A call that waits for room also takes messages out of the receive queues, so
/// programs that send to each other with full queues make progress. Dropping a node discards messages that have not
/// left; [`Node::close`] waits for them.
pub struct Node {
    send_queue: SendQueue,
    receivers: Vec<Receiver>,
    handlers: Handlers,
    policy: WaitPolicy,
    quiet: Quiet,
    /// Number of messages handled by the last [`Node::progress`].
    handled: u32,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Node").field("send_queue", &self.send_queue).finish_non_exhaustive()
    }
}

impl Node {
    /// Opens the channels of a program.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFeature`], [`Error::BadValue`], [`Error::NoMemory`], [`Error::PortBusy`], [`Error::Refused`],
    /// [`Error::DeviceGone`].
    pub fn enable(device: &Device, options: &Options) -> Result<Self, Error> {
        let terms = options.terms.unwrap_or_else(|| Terms::of(device.info()));
        let open = |number| {
            let port = PortOptions::default().slices(options.slices);
            let port = options.first_port.map_or(port, |first| port.port(first.saturating_add(number)));
            Port::open_on(device, port, terms)
        };
        Self::of_ports((0..options.channels).map(open).collect::<Result<_, _>>()?, options)
    }

    /// Channels of the given parts.
    ///
    /// # Errors
    ///
    /// As [`Node::enable`]; [`Error::Inconsistent`] names a part that is too small.
    pub fn from_parts(parts: Vec<Parts>, terms: Terms, options: &Options) -> Result<Self, Error> {
        let ports = parts.into_iter().map(|parts| Port::from_parts(parts, terms));
        Self::of_ports(ports.collect::<Result<_, _>>()?, options)
    }

    fn of_ports(ports: Vec<Port>, options: &Options) -> Result<Self, Error> {
        if ports.is_empty() {
            return Err(Error::BadValue {
                what: "the number of channels",
                value: 0,
                range: "1 or more".into(),
            });
        }
        let (senders, mut receivers): (Vec<Sender>, Vec<Receiver>) =
            ports.into_iter().map(|port| (port.sender, port.receiver)).unzip();
        receivers.iter_mut().for_each(|receiver| receiver.set_wait_policy(options.policy));
        Ok(Self {
            send_queue: SendQueue::new(senders, options.queue_messages, options.queue_bytes),
            receivers,
            handlers: Handlers::new(options.keeper),
            policy: options.policy,
            quiet: Quiet::default(),
            handled: 0,
        })
    }

    /// The address of a channel, counted from 0; `None` if it does not exist.
    pub fn address(&self, channel: usize) -> Option<Address> {
        self.send_queue.senders().get(channel).map(Sender::address)
    }

    /// The queue by which handlers send, with calls that do not wait.
    pub fn send_queue(&mut self) -> &mut SendQueue {
        &mut self.send_queue
    }

    /// Sets how calls wait.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.policy = policy;
    }

    /// Registers a handler, at any time. It has no number, and cannot be called, before [`Node::synch_handlers`].
    ///
    /// # Errors
    ///
    /// [`Error::Handlers`] has the problem with the name.
    pub fn register_handler(
        &mut self,
        name: &str,
        handler: impl FnMut(&mut SendQueue, &Message<'_>) + Send + 'static,
    ) -> Result<(), Error> {
        self.register(Entry { name: name.into(), number: None }, Box::new(handler))
    }

    /// Registers a handler with this number, [`super::FIRST_HANDLER`] or more. It can be called from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Handlers`] has the problem with name or number.
    pub fn register_numbered(
        &mut self,
        name: &str,
        number: u32,
        handler: impl FnMut(&mut SendQueue, &Message<'_>) + Send + 'static,
    ) -> Result<(), Error> {
        self.register(Entry { name: name.into(), number: Some(number) }, Box::new(handler))
    }

    fn register(&mut self, entry: Entry, handler: Handler) -> Result<(), Error> {
        self.handlers.register(entry, handler)
    }

    /// Adds the handlers that are registered here to the cluster's list, and waits for that. Afterwards this program
    /// knows the names that others have added by then; later names arrive with messages. The program that keeps the
    /// list must poll.
    ///
    /// # Errors
    ///
    /// [`Error::Handlers`] names the handlers that could not be merged; all others were. [`Error::TimedOut`],
    /// [`Error::DeviceGone`].
    pub fn synch_handlers(&mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        if self.handlers.is_keeper(&self.send_queue) {
            let merged = self.handlers.merge_own();
            self.handlers.publish(&mut self.send_queue)?;
            return merged;
        }
        let most = self.send_queue.sender(0)?.max_bytes() as usize;
        let mut asked: Option<Instant> = None;
        // Collect refusals of earlier messages first: they must not be mistaken for those of this call.
        self.send_queue.push_on()?;
        let known = self.send_queue.troubles.len();
        self.wait_until("wait for the keeper of the handlers", deadline.into(), false, |node| {
            if let Some(outcome) = node.handlers.outcome().filter(|_| asked.is_some()) {
                return outcome.map(Some);
            }
            node.forgive_absence(known);
            if asked.is_none_or(|asked| asked.elapsed() > ASK_AGAIN) {
                for (message, payload) in node.handlers.ask(most) {
                    node.send_queue.post(0, message, &payload)?;
                }
                asked = Some(Instant::now());
            }
            Ok(None)
        })
    }

    /// Drops refusals by an absent keeper: until the deadline they are not errors.
    fn forgive_absence(&mut self, known: usize) {
        let is_absence = |error: &Error| {
            matches!(error, Error::Launch { refusal: Some(Refusal::Closed | Refusal::NoPayload), .. })
        };
        let mut place = 0;
        self.send_queue.troubles.retain(|error| {
            place += 1;
            place <= known || !is_absence(error)
        });
    }

    /// The number of a handler, as far as this program knows the cluster's list.
    pub fn handler_by_name(&self, name: &str) -> Option<u32> {
        self.handlers.names().number(name)
    }

    /// The number of a handler; waits until it is in the list. This program must have called
    /// [`Node::synch_handlers`].
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::DeviceGone`].
    pub fn wait_for_handler(&mut self, name: &str, deadline: impl Into<Deadline>) -> Result<u32, Error> {
        self.wait_until("wait for a handler to be registered", deadline.into(), true, |node| {
            Ok(node.handler_by_name(name))
        })
    }

    /// Sends a message without payload through this channel, counted from 0. Runs handlers while there is no room.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`], [`Error::TimedOut`], [`Error::DeviceGone`], [`Error::Inconsistent`]: nothing was sent.
    #[inline]
    pub fn send_short(
        &mut self,
        channel: usize,
        short: Short,
        deadline: impl Into<Deadline>,
    ) -> Result<(), Error> {
        self.send(channel, Outgoing::Short(short), &[], deadline.into())
    }

    /// Sends a message with payload: at most 48 KiB, and at most [`Sender::max_bytes`]. Without payload it is a short
    /// message.
    ///
    /// # Errors
    ///
    /// As [`Node::send_short`].
    #[inline]
    pub fn send_bulk(
        &mut self,
        channel: usize,
        short: Short,
        payload: &[u8],
        deadline: impl Into<Deadline>,
    ) -> Result<(), Error> {
        self.send(channel, bulk(short, payload), payload, deadline.into())
    }

    /// Copies bytes, without a limit, into memory of another program. That program is not notified; a later message on
    /// this channel arrives after the bytes and can notify it.
    ///
    /// # Errors
    ///
    /// As [`Node::send_short`]; part of the bytes may have been sent.
    pub fn send_memory(
        &mut self,
        channel: usize,
        exposed: &ExposedPart,
        bytes: &[u8],
        deadline: impl Into<Deadline>,
    ) -> Result<(), Error> {
        let deadline = deadline.into();
        let piece = self.send_queue.sender(channel)?.piece_bytes();
        for (number, part) in bytes.chunks(piece).enumerate() {
            self.send(channel, memory(exposed, number * piece, part), part, deadline)?;
        }
        Ok(())
    }

    #[inline]
    fn send(
        &mut self,
        channel: usize,
        message: Outgoing,
        payload: &[u8],
        deadline: Deadline,
    ) -> Result<(), Error> {
        if self.send_queue.try_post(channel, message, payload)? {
            return Ok(());
        }
        self.wait_until("push a message", deadline, false, |node| {
            Ok(node.send_queue.try_post(channel, message, payload)?.then_some(()))
        })
    }

    /// Runs the handlers of all received messages, and pushes messages that wait for room. Returns the number of
    /// received messages. Reads only host memory, never the device.
    ///
    /// # Errors
    ///
    /// Problems since the last call, one for each call: [`Error::UnknownHandler`]; [`Error::Launch`] for messages that
    /// this card or their receiver's card refused. The channels remain usable after these. [`Error::Inconsistent`],
    /// [`Error::SlicesLost`].
    pub fn poll(&mut self) -> Result<u32, Error> {
        let (handled, _) = self.progress()?;
        match self.send_queue.troubles.pop_front() {
            Some(trouble) => Err(trouble),
            None => Ok(handled),
        }
    }

    /// As [`Node::poll`], but waits for the first message. With one channel, a sleeping wait lasts until an interrupt.
    /// With several it sleeps for short times, because no single interrupt covers all of them.
    ///
    /// # Errors
    ///
    /// As [`Node::poll`]; [`Error::TimedOut`], [`Error::DeviceGone`].
    pub fn wait(&mut self, deadline: impl Into<Deadline>) -> Result<u32, Error> {
        let handled = self.poll()?;
        if handled > 0 {
            return Ok(handled);
        }
        self.wait_until("wait for a message", deadline.into(), true, |node| {
            // `progress` has handled messages before this check; another poll would not find them.
            match node.send_queue.troubles.pop_front() {
                Some(trouble) => Err(trouble),
                None => Ok(Some(node.handled).filter(|handled| *handled > 0)),
            }
        })
    }

    /// Waits until all sent messages have left: their receivers' cards have them, or have refused them. Runs handlers
    /// while it waits.
    ///
    /// # Errors
    ///
    /// As [`Node::wait`].
    pub fn flush(&mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        self.wait_until("flush", deadline.into(), false, |node| {
            Ok(node.send_queue.is_flushed()?.then_some(()))
        })?;
        self.send_queue.troubles.pop_front().map_or(Ok(()), Err)
    }

    /// Notifies the keeper of the handlers, waits until all messages have left, and closes the channels.
    ///
    /// # Errors
    ///
    /// As [`Node::flush`]; the channels are closed also after an error.
    pub fn close(mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        if let Some(short) = self.handlers.leave() {
            self.send_queue.send_short(0, short)?;
        }
        self.flush(deadline)
    }

    /// Runs handlers and pushes waiting messages. Returns the number of handled messages, and whether there was
    /// progress.
    fn progress(&mut self) -> Result<(u32, bool), Error> {
        let Self { send_queue, receivers, handlers, .. } = self;
        let mut handled = 0;
        for receiver in receivers {
            for _ in 0..BATCH {
                match receiver.try_receive(|message| handlers.run(send_queue, message))? {
                    Some(()) => handled += 1,
                    None => break,
                }
            }
        }
        self.handled = handled;
        handlers.publish(send_queue)?;
        let has_moved = send_queue.push_on()?;
        Ok((handled, has_moved || handled > 0))
    }

    /// Runs handlers until `done` returns a value. With `wakes`, a received message may end the wait.
    #[cold]
    fn wait_until<T>(
        &mut self,
        operation: &'static str,
        deadline: Deadline,
        wakes: bool,
        mut done: impl FnMut(&mut Self) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let mut wait = Wait::new(operation, self.policy, deadline);
        let mut looks = 0_u32;
        loop {
            let (_, has_moved) = self.progress()?;
            if let Some(found) = done(self)? {
                self.quiet.on_progress();
                return Ok(found);
            }
            if has_moved {
                self.quiet.on_progress();
            }
            // Each half has a doorbell of its own.
            self.ring_deferred();
            let Self { send_queue, quiet, receivers, .. } = self;
            let link = send_queue.senders().first().map(Sender::link);
            let Some(link) = link else { continue };
            let next = wait.next(quiet, &*link.backing)?;
            looks = looks.wrapping_add(1);
            if next != Next::Look || looks.is_multiple_of(LOOKS_PER_CHECK) {
                receivers.iter_mut().try_for_each(Receiver::check)?;
            }
            match (next, &mut receivers[..]) {
                (Next::Look, _) => {}
                (Next::Sleep(_), _) if has_moved => {}
                (Next::Sleep(limit), [receiver]) if wakes && send_queue.waiting() == 0 => {
                    receiver.sleep(limit)?
                }
                (Next::Sleep(limit), _) => thread::sleep(limit.min(WaitPolicy::SENDER_SLEEP)),
            }
        }
    }
}

impl Batching for Node {
    fn begin_batch(&mut self) {
        self.send_queue.senders_mut().for_each(Batching::begin_batch);
        self.receivers.iter_mut().for_each(Batching::begin_batch);
    }

    fn end_batch(&mut self) {
        self.send_queue.senders_mut().for_each(Batching::end_batch);
        self.receivers.iter_mut().for_each(Batching::end_batch);
    }

    fn ring_deferred(&mut self) {
        self.send_queue.senders_mut().for_each(Batching::ring_deferred);
        self.receivers.iter_mut().for_each(Batching::ring_deferred);
    }
}
