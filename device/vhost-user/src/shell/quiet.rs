//! How model time passes while nobody does anything.
//!
//! Timers of models run in model time, and live nobody knows how much of it a guest's own computing takes. When the
//! whole fabric was quiet for a while of wall time, nothing is in flight and it is taken that nothing will precede the
//! earliest deadline: it fires. How long a while is a guess, but for programs that take turns
//! (`shell/world/lockstep.rs`). Where nothing was ever lost, no deadline needs to fire at all, and a guest may merely
//! have lost its core for long: patience costs nothing there. Where frames are lost, deadlines are what programs wait
//! for. What follows a deadline alone is a guess no more, and does not wait again.
//!
//! Quiet is who launches, releases, sends or receives nothing. A driver that asks every while whether its device lives
//! is quiet: it does so because nothing happens.
//!
//! Others are never quiet: a program that says every while that it is there, a stream between two further nodes, or a
//! guest that wants deadlines of others never to come. So a deadline that has stood still for a longer while of wall
//! time fires whatever others do, and so arrives what faults held back for as long ([`STARVED`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Shell;
use super::world::World;
use super::world::deadlines::Standing;

/// Wall time without any activity before the earliest deadline of model time fires, where faults were ever injected.
pub const GRACE: Duration = Duration::from_millis(5);

/// The same, where they were not.
pub const PATIENT_GRACE: Duration = Duration::from_millis(500);

/// A deadline that is further off in model time waits as long in wall time. While cards take another program every one
/// is far that is further off than [`GRACE`]: how long a program may post no room before its messages are given up is a
/// number of such deadlines.
pub const FAR: Duration = PATIENT_GRACE;

/// So many times as long as a quiet fabric waits, one that is not quiet waits, from when a deadline was first seen: a
/// guest's core may have been away for that long while others went on.
pub const STARVED: u32 = 4;

/// Who is waiting, and since when nothing happened.
#[derive(Debug, Default)]
pub struct Quiet {
    /// [`World::acts`] of what is done with all nodes, as last seen. What is done with some they count themselves.
    activity: AtomicU64,
    /// A deadline waits. Set by who has its node, and taken back by who has all, so that none is overlooked.
    is_armed: AtomicBool,
    /// Work is pending for which nobody else comes back: a connection that is gone has left it, or a request to the
    /// monitor.
    is_pending: AtomicBool,
    /// Faults were injected.
    is_hasty: AtomicBool,
    /// Cards take another program, which takes model time.
    is_loading: AtomicBool,
    stop: Mutex<bool>,
    wake: Condvar,
}

impl Quiet {
    /// Faults are injected from now on.
    pub fn hurry(&self) {
        self.is_hasty.store(true, Ordering::Relaxed);
    }

    /// Whether there are deadlines of another kind, which do not wait for guests.
    pub fn hurry_while(&self, is_loading: bool) {
        self.is_loading.store(is_loading, Ordering::Relaxed);
    }

    /// From where on a deadline is far.
    fn far(&self) -> Duration {
        if self.is_loading.load(Ordering::Relaxed) { GRACE } else { FAR }
    }

    fn grace(&self) -> Duration {
        if self.is_hasty.load(Ordering::Relaxed) || self.is_loading.load(Ordering::Relaxed) {
            GRACE
        } else {
            PATIENT_GRACE
        }
    }

    /// So many things happened so far; `waiting` says whether anything waits for model time. Called with the world
    /// locked.
    #[inline]
    pub fn touch(&self, acts: u64, waiting: bool) {
        self.activity.store(acts, Ordering::Relaxed);
        self.arm(waiting);
    }

    /// [`World::acts`] when it was last touched.
    pub fn acts(&self) -> u64 {
        self.activity.load(Ordering::Relaxed)
    }

    /// `waiting` says whether anything waits for model time. Called with its nodes locked.
    #[inline]
    pub fn arm(&self, waiting: bool) {
        // Written by all nodes, so that it is looked at first.
        if waiting && !self.is_armed.load(Ordering::Relaxed) && !self.is_armed.swap(true, Ordering::Relaxed) {
            let _stop = self.stop.lock();
            self.wake.notify_one();
        }
    }

    /// What is pending is resumed, turn by turn: its owner does not come back for it. May be called with nodes locked.
    pub fn resume(&self) {
        if !self.is_pending.swap(true, Ordering::Relaxed) {
            let _stop = self.stop.lock();
            self.wake.notify_one();
        }
    }

    /// Starts the thread that watches `shell`.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(shell: &Arc<Shell>) -> std::io::Result<JoinHandle<()>> {
        let shell = Arc::clone(shell);
        std::thread::Builder::new().name("quiet".to_owned()).spawn(move || shell.quiet().watch(&shell))
    }

    /// Ends the thread.
    pub fn stop(&self) {
        *self.stop.lock() = true;
        self.wake.notify_one();
    }

    fn watch(&self, shell: &Shell) {
        let mut stop = self.stop.lock();
        // What had happened when a deadline had fired.
        let mut fired = None;
        // What had happened when a deadline was found to be far off, how far, and for how long nothing has happened
        // since.
        let mut far: Option<(u64, Duration, Duration)> = None;
        let mut standing = Standing::default();
        let mut looked = Instant::now();
        while !*stop {
            let is_resuming = self.is_pending.swap(false, Ordering::Relaxed);
            if !is_resuming && !self.is_armed.load(Ordering::Relaxed) {
                self.wake.wait(&mut stop);
                continue;
            }
            let before = shell.acts();
            far = far.filter(|(activity, ..)| *activity == before);
            // Not all of a long wait at once: what happens meanwhile may set a deadline that is near.
            let grace = match far {
                Some((_, wall, waited)) => (wall - waited).min(FAR),
                None if fired == Some(before) => GRACE,
                None => self.grace(),
            };
            if is_resuming {
                parking_lot::MutexGuard::unlocked(&mut stop, || self.resume_turn(shell));
                // What a deadline left pending follows from it as well.
                fired = fired.filter(|activity| *activity == before).map(|_| shell.acts());
            } else {
                self.wake.wait_for(&mut stop, grace);
            }
            if *stop {
                continue;
            }
            let since = looked.elapsed();
            if since >= self.grace() * STARVED {
                looked = Instant::now();
                parking_lot::MutexGuard::unlocked(&mut stop, || self.feed(shell, &mut standing, since));
            }
            // Nothing may precede a deadline that fires, and what is pending does.
            if shell.acts() != before || is_resuming || self.is_pending.load(Ordering::Relaxed) {
                continue;
            }
            let waited = far.map_or(Duration::ZERO, |(.., waited)| waited) + grace;
            // `touch` takes this lock while it holds the world's: never both the other way round.
            match parking_lot::MutexGuard::unlocked(&mut stop, || self.pass(shell, waited)) {
                Ok(activity) => fired = Some(activity),
                Err(wall) => far = Some((before, wall, waited)),
            }
        }
    }

    /// Resumes what is pending, for a turn.
    fn resume_turn(&self, shell: &Shell) {
        let mut world = shell.world();
        self.continue_in(&mut world);
        shell.did(&mut world);
        world.give_back();
    }

    /// One turn of what is pending. What is left then has another one, after others have had the world.
    fn continue_in(&self, world: &mut World<'_>) {
        if world.go_on() {
            self.is_pending.store(true, Ordering::Relaxed);
        }
    }

    /// Has deadlines fire that have stood still since the look before, which was so long ago.
    fn feed(&self, shell: &Shell, standing: &mut Standing, since: Duration) {
        let mut world = shell.world();
        if world.pass_by(standing, since) {
            self.continue_in(&mut world);
            shell.go_on_loading(&mut world);
            world.show();
        }
        self.touch(world.acts(), world.is_waiting() || world.common.ethernet.is_holding());
    }

    /// Lets model time pass, after so long of wall time. What has happened by then.
    ///
    /// # Errors
    /// The deadline is so far off in model time that as long is waited in wall time: a program may merely have lost its
    /// core.
    fn pass(&self, shell: &Shell, waited: Duration) -> Result<u64, Duration> {
        let mut world = shell.world();
        shell.go_on_loading(&mut world);
        let far = self.far();
        if let Some(wall) = world.far_deadline().filter(|wall| *wall >= far && *wall > waited) {
            return Err(wall);
        }
        if !world.release_held() {
            world.pass_time();
            self.continue_in(&mut world);
        }
        shell.go_on_loading(&mut world);
        world.show();
        let waits = world.is_waiting() || world.common.ethernet.is_holding();
        self.is_armed.store(waits, Ordering::Relaxed);
        self.activity.store(world.acts(), Ordering::Relaxed);
        Ok(shell.acts())
    }
}
