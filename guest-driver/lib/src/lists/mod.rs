//! Lists of posted receives: a NIC that matches incoming messages itself, and writes each into the memory that was posted for it.
//!
//! Semantics are those of Portals 3.0, docs/MATCH.md has the rule. A [`Port`] has eight portals, each with a list of posted
//! match entries and an overflow list behind it. A program registers memory ([`Region`]), appends entries ([`Append`]), puts
//! and gets ([`Put`], [`Get`]), and learns of it all by [`Event`]s or by counters. No system call is on the path of a
//! message, and no copy: the NIC writes into the memory of the program.
//!
//! ```no_run
//! use std::time::Duration;
//! use niclab_user::lists::{Append, Port, Put, Target};
//! use niclab_user::{Address, Device, slices::PortOptions};
//!
//! # fn main() -> Result<(), niclab_user::Error> {
//! let device = Device::open_first()?;
//! let mut port = Port::open(&device, PortOptions::default().port(0))?;
//! let region = port.allocate(1 << 20)?;
//! let limit = Duration::from_secs(1);
//! // Whatever comes with match bits 7 and anything in the upper half goes into the first half of the region.
//! port.launch(&Append::put(0, region.span(0..1 << 19)?).match_bits(7, 0xffff_ffff << 32), limit)?;
//! let target = Target { port: Address { node: 1, port: 0 }, portal: 0 };
//! port.launch(&Put::new(target, region.span(1 << 19..(1 << 19) + 64)?).match_bits(7), limit)?;
//! let event = port.event(limit)?;
//! println!("{:?}: {} bytes from {}", event.kind, event.moved_bytes, event.initiator);
//! # Ok(())
//! # }
//! ```
//!
//! The device takes a command only while the event queue has room for what it may cause: a program that waits for a free
//! slot and does not read its events waits for itself. [`messages`] has sends and receives in the manner of MPI on top of this,
//! and looks after all that.

pub mod messages;
mod region;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use niclab_abi::PAGE_BYTES;
use niclab_abi::config::FEATURE_LISTS;
use niclab_port::lists::{self as heart, EventRecord, check_counter};

pub use niclab_port::lists::{
    ArmCounter, COUNTERS, Count, Event, Handle, Kind, Outcome, PORTALS, Target, Unlink,
};
pub use region::{Region, Span};

pub use crate::port::{Parts, PortOptions, Status};

use crate::port::{self, Link, Queue, Requester};
use crate::wait::{Next, Quiet, Wait};
use crate::{Address, Deadline, Device, Error, Memory, WaitPolicy};

/// Sends bytes to the first entry of a portal that matches: [`heart::Put`].
///
/// cbindgen:ignore
pub type Put<'a> = heart::Put<Span<'a>>;
/// Fetches bytes from the first entry of a portal that matches: [`heart::Get`].
///
/// cbindgen:ignore
pub type Get<'a> = heart::Get<Span<'a>>;
/// Appends a match entry to a portal of this port: [`heart::Append`].
///
/// cbindgen:ignore
pub type Append<'a> = heart::Append<Span<'a>>;

/// What a port can be asked to do: [`Put`], [`Get`], [`Append`], [`Unlink`], [`ArmCounter`].
pub trait Command: heart::Command<Arc<Link>, Error> {}
impl<T: heart::Command<Arc<Link>, Error>> Command for T {}

/// An open port. It is closed once it and all its regions are dropped; its entries are unlinked then.
#[derive(Debug)]
pub struct Port {
    link: Arc<Link>,
    commands: Commands,
    events: Events,
}

impl Port {
    /// Opens a port of `device`, with an event queue of so many events as the options say slices.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFeature`], [`Error::BadValue`], [`Error::PortBusy`], [`Error::Refused`], [`Error::DeviceGone`].
    pub fn open(device: &Device, options: PortOptions) -> Result<Self, Error> {
        device.expect(FEATURE_LISTS, "lists of posted receives")?;
        Self::from_parts(port::open(device, options)?)
    }

    /// A port of the given parts. `status` must be a whole page, with the counters in it.
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`] names the part that is too small.
    pub fn from_parts(parts: Parts) -> Result<Self, Error> {
        let have = parts.status.bytes();
        let (link, requester, queue) = parts.assemble()?;
        if have < PAGE_BYTES as usize {
            return Err(Error::Inconsistent {
                device: link.name(),
                what: format!("the page of status line and counters has {have} bytes"),
            });
        }
        let commands = Commands { requester, policy: WaitPolicy::ADAPTIVE, quiet: Quiet::default() };
        Ok(Self { link, commands, events: Events { queue } })
    }

    /// This port on the cluster network.
    pub fn address(&self) -> Address {
        self.link.address
    }

    /// Registers memory for this port. Its pages are pinned, so that `ulimit -l` must allow them.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `ENOSPC` when the device has no region left; [`Error::DeviceGone`].
    pub fn register(&self, memory: Memory) -> Result<Region, Error> {
        Region::register(&self.link, memory)
    }

    /// Registers fresh pages, zeros all of them: at least `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`], and as [`Port::register`].
    pub fn allocate(&self, bytes: usize) -> Result<Region, Error> {
        self.register(self.link.backing.allocate(bytes)?)
    }

    /// Sets how both halves wait; [`WaitPolicy::ADAPTIVE`] at first.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.commands.set_wait_policy(policy);
        self.events.set_wait_policy(policy);
    }

    /// The half that launches commands.
    pub fn commands(&mut self) -> &mut Commands {
        &mut self.commands
    }

    /// The half that reads events.
    pub fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    /// Both halves, for two threads.
    pub fn split(&mut self) -> (&mut Commands, &mut Events) {
        (&mut self.commands, &mut self.events)
    }

    /// [`Commands::launch`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn launch(&mut self, command: &impl Command, deadline: impl Into<Deadline>) -> Result<Handle, Error> {
        self.commands.launch(command, deadline)
    }

    /// [`Commands::try_launch`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn try_launch(&mut self, command: &impl Command) -> Result<Option<Handle>, Error> {
        self.commands.try_launch(command)
    }

    /// Launches a command as [`Port::launch`] does, and reads events into `inbox` while there is no slot: the device may be
    /// waiting for their places in the queue. They come before all that [`Port::event`] has.
    ///
    /// # Errors
    ///
    /// As [`Port::launch`].
    #[inline]
    pub fn launch_reading(
        &mut self,
        command: &impl Command,
        inbox: &mut VecDeque<Event>,
        deadline: impl Into<Deadline>,
    ) -> Result<Handle, Error> {
        match self.try_launch(command)? {
            Some(handle) => Ok(handle),
            None => self.read_until_launched(command, inbox, deadline.into()),
        }
    }

    #[cold]
    fn read_until_launched<C: Command>(
        &mut self,
        command: &C,
        inbox: &mut VecDeque<Event>,
        deadline: Deadline,
    ) -> Result<Handle, Error> {
        let Self { link, commands, events } = self;
        let mut wait = Wait::new(C::NAME, commands.policy, deadline);
        loop {
            inbox.extend(std::iter::from_fn(|| events.try_next()));
            if let Some(handle) = commands.try_launch(command)? {
                commands.quiet.on_progress();
                return Ok(handle);
            }
            if let Next::Sleep(limit) = wait.next(&mut commands.quiet, &*link.backing)? {
                link.backing.wait_interrupts(limit.min(WaitPolicy::SENDER_SLEEP))?;
            }
        }
    }

    /// [`Events::next`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn event(&mut self, deadline: impl Into<Deadline>) -> Result<Event, Error> {
        self.events.next(deadline)
    }

    /// [`Events::try_next`].
    #[inline]
    pub fn try_event(&mut self) -> Option<Event> {
        self.events.try_next()
    }

    /// [`Commands::counter`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn counter(&self, counter: u32) -> Result<Count, Error> {
        self.commands.counter(counter)
    }
}

/// Launches the commands of a port, and reads its counters.
#[derive(Debug)]
pub struct Commands {
    requester: Requester,
    policy: WaitPolicy,
    /// Of waits for a counter, and of those that read events.
    quiet: Quiet,
}

impl Commands {
    /// Sets how this half waits.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.policy = policy;
        self.requester.set_wait_policy(policy);
    }

    /// Launches a command; waits while the page is full. The command is on its way when this returns: what becomes of it,
    /// events and counters tell.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`]; [`Error::TimedOut`], which it is too when nobody reads the port's events;
    /// [`Error::DeviceGone`], [`Error::Launch`], [`Error::Inconsistent`]: nothing was launched.
    #[inline]
    pub fn launch(&mut self, command: &impl Command, deadline: impl Into<Deadline>) -> Result<Handle, Error> {
        if let Some(handle) = self.try_launch(command)? {
            return Ok(handle);
        }
        self.wait_and_launch(command, deadline.into())
    }

    /// Launches a command if the page has a free slot, else returns `None` at once.
    ///
    /// # Errors
    ///
    /// As [`Commands::launch`], but for the waiting.
    #[inline]
    pub fn try_launch(&mut self, command: &impl Command) -> Result<Option<Handle>, Error> {
        let encoded = command.encode(self.requester.link())?;
        if !self.requester.has_slot()? {
            return Ok(None);
        }
        let launched =
            self.requester.launch(|slots, page, received| heart::launch(slots, page, &encoded, received));
        Ok(Some(launched))
    }

    #[cold]
    fn wait_and_launch<C: Command>(&mut self, command: &C, deadline: Deadline) -> Result<Handle, Error> {
        self.requester.wait_for_slot(C::NAME, deadline)?;
        let launched = self.try_launch(command)?;
        launched.ok_or_else(|| Error::Inconsistent {
            device: self.requester.link().name(),
            what: "a slot was free and is not any more".into(),
        })
    }

    /// Commands launched since the port was opened.
    pub fn launched(&self) -> u64 {
        self.requester.launched()
    }

    /// The status line as the device last wrote it.
    pub fn status(&self) -> Status {
        self.requester.status()
    }

    /// A counter, as the device last wrote it.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] when there is no such counter.
    pub fn counter(&self, counter: u32) -> Result<Count, Error> {
        check_counter(counter)?;
        Ok(Count::read(&self.requester.page(), counter))
    }

    /// Waits until a counter has at least so many successes, or a failure more than when the wait began. What the operations
    /// that it counts have stored can be read then.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`], [`Error::TimedOut`], [`Error::DeviceGone`].
    pub fn wait_counter(
        &mut self,
        counter: u32,
        successes: u64,
        deadline: impl Into<Deadline>,
    ) -> Result<Count, Error> {
        let failures = self.counter(counter)?.failures;
        let mut wait = Wait::new("wait for a counter", self.policy, deadline.into());
        let mut is_armed = false;
        loop {
            let count = self.counter(counter)?;
            if count.successes >= successes || count.failures > failures {
                self.quiet.on_progress();
                return Ok(count);
            }
            let next = wait.next(&mut self.quiet, &*self.requester.link().backing)?;
            let Next::Sleep(limit) = next else { continue };
            // The interrupt comes at once where the counter is there already, so that it is not slept through.
            is_armed = is_armed || self.try_launch(&ArmCounter { counter, successes })?.is_some();
            let limit = if is_armed { limit } else { limit.min(WaitPolicy::SENDER_SLEEP) };
            self.requester.link().backing.wait_interrupts(limit)?;
        }
    }
}

/// Reads the events of a port.
#[derive(Debug)]
pub struct Events {
    queue: Queue<EventRecord>,
}

impl Events {
    /// Sets how this half waits.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.queue.set_wait_policy(policy);
    }

    /// Events that the queue holds.
    pub fn capacity(&self) -> u32 {
        self.queue.slices()
    }

    /// Events received since the port was opened.
    pub fn received(&self) -> u64 {
        self.queue.received()
    }

    /// The next event, if it is there. Reads host memory only, never the device.
    #[inline]
    pub fn try_next(&mut self) -> Option<Event> {
        take(&mut self.queue)
    }

    /// The next event; waits for it as the [`WaitPolicy`] says.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::DeviceGone`]; [`Error::SlicesLost`] for events, after which the port can be used on.
    #[inline]
    pub fn next(&mut self, deadline: impl Into<Deadline>) -> Result<Event, Error> {
        match self.try_next() {
            Some(event) => Ok(event),
            None => self.queue.wait("wait for an event", deadline.into(), take),
        }
    }

    /// Looks whether the device has gone past the next event without writing it, as a faulty device does, and goes past it
    /// too. [`Events::next`] does so while it waits.
    ///
    /// # Errors
    ///
    /// [`Error::SlicesLost`] for events, after which the port can be used on.
    pub fn check(&mut self) -> Result<(), Error> {
        self.queue.check()
    }

    /// Interrupts for this port since the last call; sleeps up to `timeout` for the first one, and returns 0 when there was
    /// none. Does not ask for one: messages put with [`Put::interrupt`] bring theirs, and [`ArmCounter`] asks for one.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceGone`].
    pub fn wait_interrupts(&mut self, timeout: Duration) -> Result<u64, Error> {
        self.queue.wait_interrupts(timeout)
    }
}

/// Takes the next event out of the queue, if it is there.
#[inline]
fn take(queue: &mut Queue<EventRecord>) -> Option<Event> {
    queue.take(|queue, records| heart::take(queue, records))
}
