//! The live shell: what lies between the models and the guests that QEMU runs.
//!
//! * [`world`]: cards and the network, in parts or as a whole, and programs that take turns; [`node`]: what is behind a
//!   node's lock;
//! * [`card`]: one node's model with its pages, queues and counts; cards whose device the front end has stopped;
//! * [`pages`]: the BAR; [`control`] and [`events`]: the two queues that are not rings of packets;
//! * [`descriptors`]: the queues that carry chains of buffers to models that take them;
//! * [`ethernet`]: the Ethernet functions; [`network`]: frames under way, [`in_order`]; [`lent`]: those whose data lies
//!   in guests;
//! * [`time_limit`]: that model time has reached its end;
//! * [`turn`]: how much may be done before others get the world;
//! * [`wait`]: when to sleep and when to poll;
//! * [`adversarial`] and [`adversary`]: what cards do that the manual allows and kind hardware seldom does;
//! * `watching`: what is done, shown to those who watch;
//! * [`rules`]: what drivers must do, where somebody looks;
//! * [`quiet`]: how model time passes while nobody does anything.

pub mod adversarial;
pub mod adversary;
pub mod card;
pub mod control;
pub mod descriptors;
pub mod ethernet;
pub mod events;
pub mod in_order;
pub mod lent;
pub mod network;
pub mod node;
pub mod pages;
pub mod quiet;
pub mod rules;
pub mod time_limit;
pub mod turn;
pub mod wait;
mod watching;
pub mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use niclab_abi::config::DeviceConfig;
use niclab_model::time::{EndOfTime, Span};
use niclab_spec::Faults;
use parking_lot::{Condvar, Mutex};

use self::adversarial::deferred::DeferredTimer;
use self::adversary::Tick;
use self::quiet::Quiet;
use self::rules::book::{Alarm, Book};
use self::wait::Policy;
use self::world::World;
use self::world::cluster::Cluster;
use self::world::hand_over::LoadError;
use crate::watch::watchers::Watchers;

/// What of a node is fixed.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Host name.
    pub name: String,
    /// What the driver reads in configuration space.
    pub config: DeviceConfig,
    /// How its doorbells are waited for.
    pub policy: Policy,
    /// Queue pairs that its Ethernet function offers.
    pub queue_pairs: usize,
}

/// What of a node is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connected {
    /// Somebody holds the cluster function's socket.
    pub cluster: bool,
    /// Somebody holds the Ethernet function's socket.
    pub ethernet: bool,
    /// The BAR stands in the guest's address space.
    pub bar: bool,
}

/// The nodes behind their locks, and what needs no lock.
pub struct Shell {
    cluster: Cluster,
    nodes: Vec<NodeInfo>,
    connected: Mutex<Vec<Connected>>,
    quiet: Quiet,
    deferred_timer: DeferredTimer,
    /// How long the last program took, in model time, since it was given to cards.
    loaded: Mutex<Option<Span>>,
    loaded_now: Condvar,
    watchers: Watchers,
    /// Rung when a rule is broken.
    alarm: Arc<Alarm>,
    started: Instant,
}

/// Turns that a report gives each node for what its programs have posted. A card that always has work would keep it for
/// ever.
const CATCH_UP_TURNS: u32 = 32;

impl Shell {
    /// A shell for this world, whose nodes are described by `nodes`.
    pub fn new(cluster: Cluster, nodes: Vec<NodeInfo>) -> Arc<Self> {
        let connected = Mutex::new(vec![Connected::default(); nodes.len()]);
        let quiet = Quiet::default();
        let world = cluster.world();
        if world.common.network.is_any_faulty() || world.has_device_faults() {
            quiet.hurry();
        }
        drop(world);
        Arc::new(Self {
            cluster,
            nodes,
            connected,
            quiet,
            deferred_timer: DeferredTimer::default(),
            loaded: Mutex::new(None),
            loaded_now: Condvar::new(),
            watchers: Watchers::default(),
            alarm: Arc::default(),
            started: Instant::now(),
        })
    }

    /// Holds drivers and programs to the manual's rules from now on, or does not.
    pub fn set_rules(&self, world: &mut World<'_>, is_on: bool) {
        for (number, node) in world.nodes.iter_mut() {
            let features = self.nodes.get(number).map_or(0, |info| info.config.features);
            node.card.set_rules(is_on.then(|| Book::new(&self.alarm, self.started)), features);
        }
    }

    /// Rung when a rule is broken.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Sets what goes wrong on a node's link from now on. False when there is no such node.
    pub fn set_faults(&self, world: &mut World<'_>, node: u16, faults: &Faults) -> bool {
        if *faults != Faults::default() {
            self.quiet.hurry();
        }
        let is_there = world.set_link_faults(node, faults);
        world.tell_link(node.into());
        is_there
    }

    /// The world, for as long as the guard lives. Whoever did something in it calls [`Shell::did`] before giving it
    /// back.
    #[inline]
    pub fn world(&self) -> World<'_> {
        self.cluster.world()
    }

    /// The nodes, to be held in parts.
    #[inline]
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What was done so far, by anybody but who merely asked: while it stays the same, the fabric is quiet.
    pub fn acts(&self) -> u64 {
        self.quiet.acts() + self.cluster.acts_in_parts()
    }

    /// The world, if it is to be had within so long. Whoever must answer though the world is stuck asks so.
    pub fn try_world(&self, timeout: Duration) -> Option<World<'_>> {
        self.cluster.try_world(timeout)
    }

    /// Something was done in the world: if anybody launched, released, sent or received, model time is not to pass by
    /// itself for a while. Those who watch see it.
    #[inline]
    pub fn did(&self, world: &mut World<'_>) {
        self.go_on_loading(world);
        world.mind(Tick::Act, None);
        world.show();
        self.quiet.touch(world.acts(), world.is_waiting() || world.common.ethernet.is_holding());
    }

    /// Polls every page once more, so that what programs have posted is counted, and lets others have the world between
    /// turns.
    pub fn catch_up(&self, world: &mut World<'_>) {
        for node in 0..world.nodes.len() {
            for _ in 0..CATCH_UP_TURNS {
                let found = world.serve_pages(node);
                if found.work > 0 || found.more {
                    world.bump();
                }
                if !found.more {
                    break;
                }
            }
        }
        self.leave(world);
    }

    /// What the caller leaves pending in the world, the thread that has model time pass resumes: the caller does not
    /// come back.
    pub fn leave(&self, world: &World<'_>) {
        if world.has_pending() {
            self.quiet.resume();
        }
    }

    /// Calls `call` once when model time reaches its end, with nodes locked.
    pub fn when_time_ends(&self, call: fn()) {
        self.cluster.time_limit().when_reached(call);
    }

    /// Why the cluster ends, if model time has reached its end.
    pub fn end_of_time(&self) -> Option<EndOfTime> {
        self.cluster.time_limit().reached()
    }

    /// Gives the cards of these nodes another program.
    ///
    /// # Errors
    /// Why they do not take it.
    pub fn load(&self, world: &mut World<'_>, nodes: &[usize], image: &[u8]) -> Result<(), LoadError> {
        world.load(nodes, image)?;
        *self.loaded.lock() = None;
        self.quiet.hurry_while(true);
        self.did(world);
        self.leave(world);
        Ok(())
    }

    /// Waits until the program runs that was given to cards last. How long that took in model time; nothing when it
    /// does not run within so long.
    pub fn wait_until_loaded(&self, wall: Duration) -> Option<Span> {
        let mut loaded = self.loaded.lock();
        self.loaded_now.wait_while_for(&mut loaded, |loaded| loaded.is_none(), wall);
        *loaded
    }

    /// Cards that take another program may go on. To be called after anything was done.
    #[inline]
    fn go_on_loading(&self, world: &mut World<'_>) {
        if world.is_loading()
            && let Some(took) = world.go_on_loading()
        {
            self.quiet.hurry_while(false);
            *self.loaded.lock() = Some(took);
            self.loaded_now.notify_all();
        }
    }

    /// What is fixed of each node.
    pub fn nodes(&self) -> &[NodeInfo] {
        &self.nodes
    }

    /// What is connected of each node.
    pub fn connected(&self) -> Vec<Connected> {
        self.connected.lock().clone()
    }

    /// Notes a change of what is connected. A card's link is up while QEMU holds any of its two functions.
    pub fn set_connected(&self, node: usize, change: impl FnOnce(&mut Connected)) {
        // The node alone: others may be at work, and a connection does not wait for them.
        let mut nodes = self.cluster.alone(node);
        let mut connected = self.connected.lock();
        if let (Some(state), Some(node)) = (connected.get_mut(node), nodes.get_mut(node)) {
            change(state);
            node.port.set_link_up(state.cluster || state.ethernet);
        }
    }

    /// How model time passes while nobody does anything.
    pub fn quiet(&self) -> &Quiet {
        &self.quiet
    }

    /// How what adversarial cards keep back comes while nobody does anything.
    pub const fn deferred_timer(&self) -> &DeferredTimer {
        &self.deferred_timer
    }

    /// The connections over which somebody watches.
    pub const fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// When the daemon was ready.
    pub fn started(&self) -> Instant {
        self.started
    }
}
