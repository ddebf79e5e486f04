//! The live shell: everything between the models and the guests that QEMU runs.
//!
//! From the bottom up, each layer uses those above it in this list:
//!
//! * [`card`]: one node's model with its pages, queues and counts, and cards whose device is stopped. Its parts:
//!   [`pages`] (the BAR), [`control`], [`events`], [`descriptors`], [`adversary`], and [`rules`], which drivers must
//!   follow;
//! * [`network`]: the switch and frames in flight; [`ethernet`]: the Ethernet functions; [`card_frame`]: borrowed
//!   payload;
//! * [`node`]: what each node's lock protects; [`budget`]: how long a thread holds locks; [`time_limit`];
//! * [`locks`]: what a thread holds while it serves nodes;
//! * [`dispatch`]: runs models to completion;
//! * [`lockstep`]: programs that take turns in model time;
//! * [`cluster`]: takes the locks;
//! * [`service`]: handles notifications of drivers and front ends;
//! * [`settings`], [`ledgers`], [`firmware_reload`], [`adversarial`], [`observers`]: requests of the monitor;
//! * [`idle`]: how model time passes while no thread is active; [`wait`]: when a thread sleeps and when it polls.

pub mod adversarial;
pub mod adversary;
pub mod budget;
pub mod card;
pub mod card_frame;
pub mod cluster;
pub mod control;
pub mod descriptors;
pub mod dispatch;
pub mod ethernet;
pub mod events;
pub mod firmware_reload;
pub mod idle;
pub mod ledgers;
pub mod locks;
pub mod lockstep;
pub mod network;
pub mod node;
pub mod observers;
pub mod pages;
pub mod rules;
pub mod service;
pub mod settings;
pub mod time_limit;
pub mod wait;

use std::sync::Arc;
use std::time::{Duration, Instant};

use niclab_abi::config::DeviceConfig;
use niclab_model::time::{EndOfTime, Span};
use niclab_spec::Faults;
use parking_lot::{Condvar, Mutex};

use self::adversarial::deferred::DeferredTimer;
use self::adversary::Tick;
use self::cluster::Cluster;
use self::firmware_reload::LoadError;
use self::idle::Idle;
use self::idle::deadlines;
use self::locks::LockedNodes;
use self::rules::book::{Alarm, Book};
use self::service::{queues, serve_pages};
use self::wait::Policy;
use crate::watch::watchers::Watchers;

/// The fixed properties of a node.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Host name.
    pub name: String,
    /// What the driver reads in the configuration space.
    pub config: DeviceConfig,
    /// How its thread waits for doorbells.
    pub policy: Policy,
    /// Queue pairs that its Ethernet function offers.
    pub queue_pairs: usize,
}

/// Which sockets of a node are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connected {
    /// A front end is connected to the cluster function.
    pub cluster: bool,
    /// A front end is connected to the Ethernet function.
    pub ethernet: bool,
    /// The BAR is mapped into the guest's address space.
    pub bar: bool,
}

/// The nodes with their locks, and state that needs no lock of a node.
pub struct Shell {
    cluster: Cluster,
    nodes: Vec<NodeInfo>,
    connected: Mutex<Vec<Connected>>,
    idle: Idle,
    deferred_timer: DeferredTimer,
    /// How long the last firmware reload took, in model time.
    loaded: Mutex<Option<Span>>,
    loaded_now: Condvar,
    watchers: Watchers,
    /// Raised when a driver breaks a rule.
    alarm: Arc<Alarm>,
    started: Instant,
}

/// Budgets that a report gives each node for posted slots. A card that always has work would keep it for ever.
const CATCH_UP_BUDGETS: u32 = 32;

impl Shell {
    /// A shell for this cluster, whose nodes have these properties.
    pub fn new(cluster: Cluster, nodes: Vec<NodeInfo>) -> Arc<Self> {
        let connected = Mutex::new(vec![Connected::default(); nodes.len()]);
        let idle = Idle::default();
        let locked = cluster.lock_all();
        if locked.common.network.is_any_faulty() || locked.common.has_device_faults {
            idle.shorten();
        }
        drop(locked);
        Arc::new(Self {
            cluster,
            nodes,
            connected,
            idle,
            deferred_timer: DeferredTimer::default(),
            loaded: Mutex::new(None),
            loaded_now: Condvar::new(),
            watchers: Watchers::default(),
            alarm: Arc::default(),
            started: Instant::now(),
        })
    }

    /// Turns the checking of drivers and programs against the manual's rules on or off.
    pub fn set_rules(&self, locked: &mut LockedNodes<'_>, is_on: bool) {
        for (number, node) in locked.nodes.iter_mut() {
            let features = self.nodes.get(number).map_or(0, |info| info.config.features);
            node.card.set_rules(is_on.then(|| Book::new(&self.alarm, self.started)), features);
        }
    }

    /// Raised when a driver breaks a rule.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Sets the faults of a node's link. False when there is no such node.
    pub fn set_faults(&self, locked: &mut LockedNodes<'_>, node: u16, faults: &Faults) -> bool {
        if *faults != Faults::default() {
            self.idle.shorten();
        }
        let exists = settings::set_link_faults(locked, node, faults);
        queues::report_link(locked, node.into());
        exists
    }

    /// Locks all nodes. A thread that was active calls [`Shell::after_activity`] before it unlocks them.
    #[inline]
    pub fn lock_all(&self) -> LockedNodes<'_> {
        self.cluster.lock_all()
    }

    /// The nodes, for work that needs only some of them.
    #[inline]
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The activity count of all nodes. While it does not change, the fabric is idle.
    pub fn activity(&self) -> u64 {
        self.idle.activity() + self.cluster.activity_of_domains()
    }

    /// Locks all nodes, if that takes no longer than `timeout`: for threads that must answer even if the nodes stay
    /// locked.
    pub fn try_lock_all(&self, timeout: Duration) -> Option<LockedNodes<'_>> {
        self.cluster.try_lock_all(timeout)
    }

    /// A thread was active with all nodes locked: model time does not pass by itself for a while, and observers see the
    /// activity.
    #[inline]
    pub fn after_activity(&self, locked: &mut LockedNodes<'_>) {
        self.resume_loading(locked);
        adversarial::tick(locked, Tick::Activity, None);
        observers::show(locked);
        self.idle.touch(locked.common.activity, deadlines::is_waiting(locked));
    }

    /// Polls every page once more, so that posted slots are counted. Other threads get the nodes between budgets.
    pub fn catch_up(&self, locked: &mut LockedNodes<'_>) {
        for node in 0..locked.nodes.len() {
            for _ in 0..CATCH_UP_BUDGETS {
                let found = serve_pages(locked, node);
                if found.work > 0 || found.more {
                    locked.bump();
                }
                if !found.more {
                    break;
                }
            }
        }
        self.leave(locked);
    }

    /// The caller may leave work pending and does not return: the thread of [`idle`] resumes it.
    pub fn leave(&self, locked: &LockedNodes<'_>) {
        if locked.has_pending() {
            self.idle.resume();
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

    /// Loads firmware into the cards of these nodes.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(&self, locked: &mut LockedNodes<'_>, nodes: &[usize], image: &[u8]) -> Result<(), LoadError> {
        firmware_reload::load(locked, nodes, image)?;
        *self.loaded.lock() = None;
        self.idle.set_loading(true);
        self.after_activity(locked);
        self.leave(locked);
        Ok(())
    }

    /// Waits until the last loaded firmware runs. Returns how long the reload took in model time, or `None` after
    /// `wall`.
    pub fn wait_until_loaded(&self, wall: Duration) -> Option<Span> {
        let mut loaded = self.loaded.lock();
        self.loaded_now.wait_while_for(&mut loaded, |loaded| loaded.is_none(), wall);
        *loaded
    }

    /// Resumes a firmware reload. Called after any activity.
    #[inline]
    fn resume_loading(&self, locked: &mut LockedNodes<'_>) {
        if locked.common.loading.is_some()
            && let Some(took) = firmware_reload::resume(locked)
        {
            self.idle.set_loading(false);
            *self.loaded.lock() = Some(took);
            self.loaded_now.notify_all();
        }
    }

    /// The fixed properties of each node.
    pub fn nodes(&self) -> &[NodeInfo] {
        &self.nodes
    }

    /// Which sockets of each node are connected.
    pub fn connected(&self) -> Vec<Connected> {
        self.connected.lock().clone()
    }

    /// Records a change of what is connected. A card's link is up while a front end is connected to one of its
    /// functions.
    pub fn set_connected(&self, node: usize, change: impl FnOnce(&mut Connected)) {
        // Only this node: a connection does not wait for work on others.
        let mut nodes = self.cluster.lock_one(node);
        let mut connected = self.connected.lock();
        if let (Some(state), Some(node)) = (connected.get_mut(node), nodes.get_mut(node)) {
            change(state);
            node.port.set_link_up(state.cluster || state.ethernet);
        }
    }

    /// How model time passes while no thread is active.
    pub fn idle(&self) -> &Idle {
        &self.idle
    }

    /// Releases what adversarial cards delay while no thread is active.
    pub const fn deferred_timer(&self) -> &DeferredTimer {
        &self.deferred_timer
    }

    /// The connections of observers.
    pub const fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// When the daemon was ready.
    pub fn started(&self) -> Instant {
        self.started
    }
}
