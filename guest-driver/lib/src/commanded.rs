//! Ports that take commands and report events. [`Event`] defines both for each kind of card interface.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use niclab_port::command;

use crate::batch::batching_by_fields;
use crate::port::{self, Kind, Link, Parts, PortOptions, Queue, Requester, Status};
use crate::region::Region;
use crate::wait::{Next, Quiet, Wait};
use crate::{Address, Batching as _, Deadline, Device, Error, SharedMemory, WaitPolicy};

/// The name of a wait for an event, in errors.
const WAIT_FOR_EVENT: &str = "wait for an event";

/// The events of ports of one kind of card interface.
pub trait Event: Debug + Sized {
    /// Its record in the receive queue.
    type Record: Kind + Debug;

    /// The handle of a posted command.
    type Launched: Debug;

    /// The feature that the device must have: a bit of [`niclab_abi::config`], and its description.
    const FEATURE: (u64, &str);

    /// Minimum bytes of the memory that begins with the status line.
    const STATUS_BYTES: usize;

    /// Takes the next event out of the queue, if there is one. Also returns whether the device must be notified.
    fn take(
        queue: &mut niclab_port::Queue<Self::Record>,
        records: &mut impl niclab_port::Records,
    ) -> Option<(Self, bool)>;

    /// The handle of the post with this number.
    fn launched(number: u64) -> Self::Launched;
}

/// A command that a port can be asked to do.
pub trait Command: command::Command<Arc<Link>, Error> {}
impl<T: command::Command<Arc<Link>, Error>> Command for T {}

/// An open port. It is closed once it and all its regions are dropped.
#[derive(Debug)]
pub struct Port<E: Event> {
    pub(crate) link: Arc<Link>,
    pub(crate) commands: Commands<E>,
    events: Events<E>,
}

impl<E: Event> Port<E> {
    /// Opens a port of `device`. The options' slice count is the number of events in its event queue.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFeature`], [`Error::BadValue`], [`Error::PortBusy`], [`Error::Refused`], [`Error::DeviceGone`].
    pub fn open(device: &Device, options: PortOptions) -> Result<Self, Error> {
        device.expect(E::FEATURE.0, E::FEATURE.1)?;
        Self::from_parts(port::open(device, options)?)
    }

    /// A port of the given parts. `status` must hold all that the device writes there: a whole page if the device has
    /// counters.
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`] names the part that is too small.
    pub fn from_parts(parts: Parts) -> Result<Self, Error> {
        let have = parts.status.bytes();
        let (link, requester, queue) = parts.assemble()?;
        if have < E::STATUS_BYTES {
            return Err(Error::Inconsistent {
                device: link.name(),
                what: format!("the page of status line and counters has {have} bytes"),
            });
        }
        let commands = Commands {
            requester,
            policy: WaitPolicy::ADAPTIVE,
            quiet: Quiet::default(),
            answer: PhantomData,
        };
        Ok(Self { link, commands, events: Events { queue } })
    }

    /// This port on the cluster network.
    pub fn address(&self) -> Address {
        self.link.address
    }

    /// Registers memory for this port. Its pages are pinned, so `ulimit -l` must allow them.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `ENOSPC` if the device has no free region; [`Error::DeviceGone`].
    pub fn register(&self, memory: SharedMemory) -> Result<Region, Error> {
        Region::register(&self.link, memory)
    }

    /// Allocates and registers zeroed pages for at least `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`], and as [`Port::register`].
    pub fn allocate(&self, bytes: usize) -> Result<Region, Error> {
        self.register(self.link.backing.allocate(bytes)?)
    }

    /// Sets how both halves wait; the default is [`WaitPolicy::ADAPTIVE`].
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.commands.set_wait_policy(policy);
        self.events.set_wait_policy(policy);
    }

    /// The half that posts commands.
    pub fn commands(&mut self) -> &mut Commands<E> {
        &mut self.commands
    }

    /// The half that reads events.
    pub fn events(&mut self) -> &mut Events<E> {
        &mut self.events
    }

    /// Both halves, for two threads.
    pub fn split(&mut self) -> (&mut Commands<E>, &mut Events<E>) {
        (&mut self.commands, &mut self.events)
    }

    /// [`Commands::launch`].
    ///
    /// # Errors
    ///
    /// As [`Commands::launch`].
    #[inline]
    pub fn launch(
        &mut self,
        command: &impl Command,
        deadline: impl Into<Deadline>,
    ) -> Result<E::Launched, Error> {
        self.commands.launch(command, deadline)
    }

    /// [`Commands::try_launch`].
    ///
    /// # Errors
    ///
    /// As [`Commands::try_launch`].
    #[inline]
    pub fn try_launch(&mut self, command: &impl Command) -> Result<Option<E::Launched>, Error> {
        self.commands.try_launch(command)
    }

    /// Posts a command as [`Port::launch`] does. While no slot is free, reads events into `inbox`, because the device
    /// may wait for their slots in the event queue. These events precede all that [`Port::event`] returns.
    ///
    /// # Errors
    ///
    /// As [`Port::launch`].
    #[inline]
    pub fn launch_reading(
        &mut self,
        command: &impl Command,
        inbox: &mut VecDeque<E>,
        deadline: impl Into<Deadline>,
    ) -> Result<E::Launched, Error> {
        match self.try_launch(command)? {
            Some(launched) => Ok(launched),
            None => self.read_until_launched(command, inbox, deadline.into()),
        }
    }

    #[cold]
    fn read_until_launched<C: Command>(
        &mut self,
        command: &C,
        inbox: &mut VecDeque<E>,
        deadline: Deadline,
    ) -> Result<E::Launched, Error> {
        let Self { link, commands, events } = self;
        let mut wait = Wait::new(C::NAME, commands.policy, deadline);
        loop {
            inbox.extend(std::iter::from_fn(|| events.try_next()));
            if let Some(launched) = commands.try_launch(command)? {
                commands.quiet.on_progress();
                return Ok(launched);
            }
            commands.ring_deferred();
            events.ring_deferred();
            if let Next::Sleep(limit) = wait.next(&mut commands.quiet, &*link.backing)? {
                link.backing.wait_interrupts(limit.min(WaitPolicy::SENDER_SLEEP))?;
            }
        }
    }

    /// [`Events::next`].
    ///
    /// # Errors
    ///
    /// As [`Events::next`].
    #[inline]
    pub fn event(&mut self, deadline: impl Into<Deadline>) -> Result<E, Error> {
        if let Some(event) = self.try_event() {
            return Ok(event);
        }
        let Self { commands, events, .. } = self;
        events.queue.wait_for_both(&mut commands.requester, WAIT_FOR_EVENT, deadline.into(), take)
    }

    /// [`Events::try_next`].
    #[inline]
    pub fn try_event(&mut self) -> Option<E> {
        self.events.try_next()
    }
}

batching_by_fields!(Port<E>: commands, events; E: Event);

/// Posts the commands of a port.
#[derive(Debug)]
pub struct Commands<E> {
    pub(crate) requester: Requester,
    pub(crate) policy: WaitPolicy,
    /// For waits that poll more than slots.
    pub(crate) quiet: Quiet,
    answer: PhantomData<E>,
}

impl<E: Event> Commands<E> {
    /// Sets how this half waits.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.policy = policy;
        self.requester.set_wait_policy(policy);
    }

    /// Posts a command; waits while the page is full. The command is in progress when this returns; events and counters
    /// report its result.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`]; [`Error::TimedOut`], also if the program does not read the port's events;
    /// [`Error::DeviceGone`], [`Error::Launch`], [`Error::Inconsistent`]: nothing was posted.
    #[inline]
    pub fn launch(
        &mut self,
        command: &impl Command,
        deadline: impl Into<Deadline>,
    ) -> Result<E::Launched, Error> {
        if let Some(launched) = self.try_launch(command)? {
            return Ok(launched);
        }
        self.wait_and_launch(command, deadline.into())
    }

    /// Posts a command if the page has a free slot; otherwise returns `None` at once.
    ///
    /// # Errors
    ///
    /// As [`Commands::launch`], except those of the wait.
    #[inline]
    pub fn try_launch(&mut self, command: &impl Command) -> Result<Option<E::Launched>, Error> {
        let encoded = command.encode(self.requester.link())?;
        if !self.requester.has_slot()? {
            return Ok(None);
        }
        let launched = self.requester.launch(|slots, page, received| encoded.launch(slots, page, received));
        Ok(Some(E::launched(launched)))
    }

    #[cold]
    fn wait_and_launch<C: Command>(&mut self, command: &C, deadline: Deadline) -> Result<E::Launched, Error> {
        self.requester.wait_for_slot(C::NAME, deadline)?;
        let launched = self.try_launch(command)?;
        launched.ok_or_else(|| Error::Inconsistent {
            device: self.requester.link().name(),
            what: "a slot was free, and then was not".into(),
        })
    }

    /// Commands posted since the port was opened.
    pub fn launched(&self) -> u64 {
        self.requester.launched()
    }

    /// The status line as the device last wrote it.
    pub fn status(&self) -> Status {
        self.requester.status()
    }
}

batching_by_fields!(Commands<E>: requester; E: Event);

/// Reads the events of a port.
#[derive(Debug)]
pub struct Events<E: Event> {
    queue: Queue<E::Record>,
}

impl<E: Event> Events<E> {
    /// Sets how this half waits.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.queue.set_wait_policy(policy);
    }

    /// Maximum number of events in the queue.
    pub fn capacity(&self) -> u32 {
        self.queue.slices()
    }

    /// Events received since the port was opened.
    pub fn received(&self) -> u64 {
        self.queue.received()
    }

    /// The next event, if there is one. Reads only host memory, never the device.
    #[inline]
    pub fn try_next(&mut self) -> Option<E> {
        take(&mut self.queue)
    }

    /// The next event; waits for it according to the [`WaitPolicy`].
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::DeviceGone`]; [`Error::SlicesLost`] for events, after which the port remains
    /// usable.
    #[inline]
    pub fn next(&mut self, deadline: impl Into<Deadline>) -> Result<E, Error> {
        match self.try_next() {
            Some(event) => Ok(event),
            None => self.queue.wait(WAIT_FOR_EVENT, deadline.into(), take),
        }
    }

    /// Checks whether the device has skipped the next event without writing it, as a faulty device does, and then skips
    /// it too. [`Events::next`] does so while it waits.
    ///
    /// # Errors
    ///
    /// [`Error::SlicesLost`] for events, after which the port remains usable.
    pub fn check(&mut self) -> Result<(), Error> {
        self.queue.check()
    }

    /// Returns the interrupts for this port since the last call. Sleeps up to `timeout` for the first one; returns 0 if
    /// there was none. It requests no interrupt: messages and commands do that.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceGone`].
    pub fn wait_interrupts(&mut self, timeout: Duration) -> Result<u64, Error> {
        self.queue.wait_interrupts(timeout)
    }
}

batching_by_fields!(Events<E>: queue; E: Event);

/// Takes the next event out of the queue, if there is one.
#[inline]
fn take<E: Event>(queue: &mut Queue<E::Record>) -> Option<E> {
    queue.take(|queue, records| E::take(queue, records))
}
