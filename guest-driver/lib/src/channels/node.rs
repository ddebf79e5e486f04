//! The paper's API (section 5.4): channels of a program, with handlers that are run when it polls.

use std::thread;
use std::time::{Duration, Instant};

use niclab_port::channels::names::Entry;
use niclab_port::channels::{Outgoing, Short};

use super::handlers::{Handler, Handlers};
use super::send_queue::{Place, SendQueue, bulk, memory};
use super::{Message, Port, Receiver, Refusal, Sender, Terms};
use crate::port::{Parts, PortOptions};
use crate::wait::{Next, Quiet, Wait};
use crate::{Address, Deadline, Device, Error, WaitPolicy};

/// Messages of one channel that are handled before the others' are looked at.
const BATCH: u32 = 64;
/// Looks for a message between two looks at those after it.
const LOOKS_PER_CHECK: u32 = 4096;
/// A list of handlers that nobody answers is sent again after so long: its keeper may not have been there.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// How a program's channels are opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many there are; more than one for streams of messages that do not wait for one another (section 4.2).
    pub channels: u32,
    /// Port of the first; the others follow it. Any that are free where it is not said.
    pub first_port: Option<u32>,
    /// Slices of each receive queue: a power of two.
    pub slices: u32,
    /// What else is said of each; what fits the card where it is not said.
    pub terms: Option<Terms>,
    /// How calls wait.
    pub policy: WaitPolicy,
    /// Who keeps the list of handlers: a channel of a program that polls. The same for all programs of the cluster.
    pub keeper: Address,
    /// Messages that may wait for room, beside those that are in the queues.
    pub queue_messages: usize,
    /// Bytes of their payload.
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
    /// So many channels, the first at this port.
    #[must_use]
    pub fn at(first_port: u32, channels: u32) -> Self {
        Self { channels, first_port: Some(first_port), ..Self::default() }
    }
}

/// The channels of a program, with its handlers.
///
/// Handlers are run by every call that waits and by [`Node::poll`], one after the other, in the order in which messages
/// came at a channel; never from within a handler. While a call waits for room, messages are taken out of the receive
/// queues, so that programs that send to one another under full queues go on. Dropping it takes back what has not left:
/// [`Node::close`] waits for that.
pub struct Node {
    send_queue: SendQueue,
    receivers: Vec<Receiver>,
    handlers: Handlers,
    policy: WaitPolicy,
    quiet: Quiet,
    /// Messages that were handled when this was last looked for.
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

    /// The address of a channel, counted from 0, where there is one.
    pub fn address(&self, channel: usize) -> Option<Address> {
        self.send_queue.senders().get(channel).map(Sender::address)
    }

    /// What handlers send by: calls that do not wait.
    pub fn send_queue(&mut self) -> &mut SendQueue {
        &mut self.send_queue
    }

    /// Sets how calls wait.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.policy = policy;
    }

    /// Registers a handler, at any time. It has no number, and nobody can call it, before [`Node::synch_handlers`].
    ///
    /// # Errors
    ///
    /// [`Error::Handlers`] says what is wrong with the name.
    pub fn register_handler(
        &mut self,
        name: &str,
        handler: impl FnMut(&mut SendQueue, &Message<'_>) + Send + 'static,
    ) -> Result<(), Error> {
        self.register(Entry { name: name.into(), number: None }, Box::new(handler))
    }

    /// Registers a handler that has this number from now on, [`super::FIRST_HANDLER`] or more. Whoever knows the number
    /// can call it.
    ///
    /// # Errors
    ///
    /// [`Error::Handlers`] says what is wrong with name or number.
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

    /// Makes the handlers that are registered here part of the cluster's list, and waits until they are. Names that
    /// others have made part of it by then are known here afterwards, and later ones as messages come. The keeper of
    /// the list must poll.
    ///
    /// # Errors
    ///
    /// [`Error::Handlers`] names all that could not be merged; all else was. [`Error::TimedOut`],
    /// [`Error::DeviceGone`].
    pub fn synch_handlers(&mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        if self.handlers.is_keeper(&self.send_queue) {
            let merged = self.handlers.merge_own();
            self.handlers.publish(&mut self.send_queue)?;
            return merged;
        }
        let most = self.send_queue.sender(0)?.max_bytes() as usize;
        let mut asked: Option<Instant> = None;
        // Of what the calls before could not deliver this call knows nothing.
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

    /// A keeper that is not there yet is no trouble, while there is time.
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

    /// The number of a handler, as far as the list of the cluster is known here.
    pub fn handler_by_name(&self, name: &str) -> Option<u32> {
        self.handlers.names().number(name)
    }

    /// The number of a handler; waits until it is part of the list. This program must have called
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

    /// Sends a message without payload through this channel, counted from 0. While there is no room, handlers are run.
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

    /// Sends a message with payload, at most 48 KiB and at most as much as [`Sender::max_bytes`] says. Without payload
    /// it is a short one.
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

    /// Copies bytes, of which there may be any number, into memory of another program. It is not told: a message behind
    /// them on this channel, which comes behind them, may do that.
    ///
    /// # Errors
    ///
    /// As [`Node::send_short`], after some of it was sent.
    pub fn send_memory(
        &mut self,
        channel: usize,
        place: &Place,
        bytes: &[u8],
        deadline: impl Into<Deadline>,
    ) -> Result<(), Error> {
        let deadline = deadline.into();
        let piece = self.send_queue.sender(channel)?.piece_bytes();
        for (number, part) in bytes.chunks(piece).enumerate() {
            self.send(channel, memory(place, number * piece, part), part, deadline)?;
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

    /// Runs the handlers of messages that are there, and pushes on what waits for room. Returns how many messages there
    /// were. Reads host memory only, never the device.
    ///
    /// # Errors
    ///
    /// What went wrong since the last call, one for each call: [`Error::UnknownHandler`], [`Error::Launch`] for
    /// messages that were refused, which their receivers' cards do too. Nothing stops for these.
    /// [`Error::Inconsistent`], [`Error::SlicesLost`].
    pub fn poll(&mut self) -> Result<u32, Error> {
        let (handled, _) = self.progress()?;
        match self.send_queue.troubles.pop_front() {
            Some(trouble) => Err(trouble),
            None => Ok(handled),
        }
    }

    /// As [`Node::poll`], but waits for the first message. With one channel a wait that sleeps does so until an
    /// interrupt; with more it naps, as there is none for all of them.
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
            // Messages were handled before this is asked: another look would not find them any more.
            match node.send_queue.troubles.pop_front() {
                Some(trouble) => Err(trouble),
                None => Ok(Some(node.handled).filter(|handled| *handled > 0)),
            }
        })
    }

    /// Waits until all that was sent has left: its receivers' cards have it, or have refused it. Runs handlers
    /// meanwhile.
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

    /// Waits until all has left, tells the keeper of the handlers, and closes the channels.
    ///
    /// # Errors
    ///
    /// As [`Node::flush`]; the channels are closed all the same.
    pub fn close(mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        if let Some(short) = self.handlers.leave() {
            self.send_queue.send_short(0, short)?;
        }
        self.flush(deadline)
    }

    /// Runs handlers and pushes on. Returns how many there were, and whether anything has moved.
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

    /// Runs handlers until `done` says so; with `wakes` a message may be what it waits for.
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
