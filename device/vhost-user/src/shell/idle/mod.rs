//! How model time passes while no thread is active.
//!
//! Deadlines of models are model time, and a live run does not know how much of it a guest's own computing takes. The
//! fabric is idle when nothing is in flight and no thread was active for a grace period of wall time. Then the earliest
//! deadline fires, on the assumption that nothing would precede it. The grace period is a guess, except in lockstep
//! ([`super::lockstep`]):
//!
//! * Where no frame is lost, no deadline needs to fire, and a guest may only have lost its core. The period is long.
//! * Where frames are lost, programs wait for deadlines. The period is short.
//! * What follows a deadline alone is no guess, and does not wait again.
//!
//! Activity is to post, release, send or receive. A driver that checks from time to time whether its device lives is
//! idle: it checks because nothing happens.
//!
//! Other nodes may never be idle: a program greets all the time, two further nodes stream, or a hostile guest tries to
//! prevent the deadlines of others. So a deadline fires regardless of others when it has not changed for longer
//! ([`STARVED`]), and frames that faults delay arrive after that time.

pub mod deadlines;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use self::deadlines::Unchanged;
use super::Shell;
use super::locks::LockedNodes;
use super::service::ethernet_function;
use super::{dispatch, observers};

/// Wall time without activity before the earliest deadline fires, once faults were injected.
pub const GRACE: Duration = Duration::from_millis(5);

/// Wall time without activity before the earliest deadline fires, if no faults were injected.
pub const LONG_GRACE: Duration = Duration::from_millis(500);

/// A deadline further away than this in model time waits as long in wall time. While firmware is loading, [`GRACE`]
/// applies instead: a number of such deadlines decides when a program without buffers loses messages.
pub const FAR: Duration = LONG_GRACE;

/// A busy fabric fires a deadline after this many grace periods without a change: a guest may have lost its core while
/// others continued.
pub const STARVED: u32 = 4;

/// What waits for model time, and when threads were last active.
#[derive(Debug, Default)]
pub struct Idle {
    /// The activity count of all nodes together, as last seen. Lock domains count their own.
    activity: AtomicU64,
    /// A deadline waits. Set with its node locked, and cleared with all nodes locked, so that none is missed.
    is_armed: AtomicBool,
    /// Work is pending for which no other thread returns: a closed connection or a request to the monitor left it.
    is_pending: AtomicBool,
    /// Faults were injected: the grace period is short.
    is_short: AtomicBool,
    /// Cards load firmware, which takes model time.
    is_loading: AtomicBool,
    stop: Mutex<bool>,
    wake: Condvar,
}

impl Idle {
    /// Faults are injected from now on.
    pub fn shorten(&self) {
        self.is_short.store(true, Ordering::Relaxed);
    }

    /// Whether cards load firmware, whose deadlines do not wait for guests.
    pub fn set_loading(&self, is_loading: bool) {
        self.is_loading.store(is_loading, Ordering::Relaxed);
    }

    /// The model time from which on a deadline is far.
    fn far(&self) -> Duration {
        if self.is_loading.load(Ordering::Relaxed) { GRACE } else { FAR }
    }

    fn grace(&self) -> Duration {
        if self.is_short.load(Ordering::Relaxed) || self.is_loading.load(Ordering::Relaxed) {
            GRACE
        } else {
            LONG_GRACE
        }
    }

    /// Records the activity count, and whether anything waits for model time. Called with all nodes locked.
    #[inline]
    pub fn touch(&self, activity: u64, waiting: bool) {
        self.activity.store(activity, Ordering::Relaxed);
        self.arm(waiting);
    }

    /// The recorded activity count.
    pub fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed)
    }

    /// Records whether anything waits for model time. Called with its nodes locked.
    #[inline]
    pub fn arm(&self, waiting: bool) {
        // All nodes write it, so it is read first.
        if waiting && !self.is_armed.load(Ordering::Relaxed) && !self.is_armed.swap(true, Ordering::Relaxed) {
            let _stop = self.stop.lock();
            self.wake.notify_one();
        }
    }

    /// Resumes pending work, one budget at a time, because its owner does not return. May be called with nodes locked.
    pub fn resume(&self) {
        if !self.is_pending.swap(true, Ordering::Relaxed) {
            let _stop = self.stop.lock();
            self.wake.notify_one();
        }
    }

    /// Starts the thread that watches `shell`.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn start(shell: &Arc<Shell>) -> std::io::Result<JoinHandle<()>> {
        let shell = Arc::clone(shell);
        std::thread::Builder::new().name("idle".to_owned()).spawn(move || shell.idle().watch(&shell))
    }

    /// Ends the thread.
    pub fn stop(&self) {
        *self.stop.lock() = true;
        self.wake.notify_one();
    }

    fn watch(&self, shell: &Shell) {
        let mut stop = self.stop.lock();
        // The activity count after the last deadline.
        let mut fired = None;
        // The activity count when a deadline was found to be far away, how far, and the idle time since.
        let mut far: Option<(u64, Duration, Duration)> = None;
        let mut unchanged = Unchanged::default();
        let mut checked = Instant::now();
        while !*stop {
            let is_resuming = self.is_pending.swap(false, Ordering::Relaxed);
            if !is_resuming && !self.is_armed.load(Ordering::Relaxed) {
                self.wake.wait(&mut stop);
                continue;
            }
            let before = shell.activity();
            far = far.filter(|(activity, ..)| *activity == before);
            // In steps: activity may set a deadline that is near.
            let grace = match far {
                Some((_, wall, waited)) => (wall - waited).min(FAR),
                None if fired == Some(before) => GRACE,
                None => self.grace(),
            };
            if is_resuming {
                parking_lot::MutexGuard::unlocked(&mut stop, || self.resume_pending(shell));
                // What a deadline left pending follows from it, too.
                fired = fired.filter(|activity| *activity == before).map(|_| shell.activity());
            } else {
                self.wake.wait_for(&mut stop, grace);
            }
            if *stop {
                continue;
            }
            let since = checked.elapsed();
            if since >= self.grace() * STARVED {
                checked = Instant::now();
                parking_lot::MutexGuard::unlocked(&mut stop, || {
                    self.pass_starved(shell, &mut unchanged, since)
                });
            }
            // Pending work precedes a deadline.
            if shell.activity() != before || is_resuming || self.is_pending.load(Ordering::Relaxed) {
                continue;
            }
            let waited = far.map_or(Duration::ZERO, |(.., waited)| waited) + grace;
            // `touch` takes this lock while all nodes are locked, so this lock is released first.
            match parking_lot::MutexGuard::unlocked(&mut stop, || self.pass(shell, waited)) {
                Ok(activity) => fired = Some(activity),
                Err(wall) => far = Some((before, wall, waited)),
            }
        }
    }

    /// Resumes pending work, for one budget.
    fn resume_pending(&self, shell: &Shell) {
        let mut locked = shell.lock_all();
        self.continue_in(&mut locked);
        shell.after_activity(&mut locked);
        locked.unlock_fair();
    }

    /// Resumes pending work, for one budget. What is left has another budget after other threads had the nodes.
    fn continue_in(&self, locked: &mut LockedNodes<'_>) {
        if dispatch::resume(locked) {
            self.is_pending.store(true, Ordering::Relaxed);
        }
    }

    /// Fires deadlines that have not changed since the previous check, which was `since` ago.
    fn pass_starved(&self, shell: &Shell, unchanged: &mut Unchanged, since: Duration) {
        let mut locked = shell.lock_all();
        if deadlines::pass_starved(&mut locked, unchanged, since) {
            self.continue_in(&mut locked);
            shell.resume_loading(&mut locked);
            observers::show(&mut locked);
        }
        self.touch(locked.common.activity, deadlines::is_waiting(&locked));
    }

    /// Lets model time pass, after `waited` of idle wall time. Returns the activity count afterwards.
    ///
    /// # Errors
    /// How far away the deadline is, if it waits as long in wall time: a program may only have lost its core.
    fn pass(&self, shell: &Shell, waited: Duration) -> Result<u64, Duration> {
        let mut locked = shell.lock_all();
        shell.resume_loading(&mut locked);
        let far = self.far();
        if let Some(wall) = deadlines::far_deadline(&locked).filter(|wall| *wall >= far && *wall > waited) {
            return Err(wall);
        }
        if !ethernet_function::release_delayed(&mut locked) {
            deadlines::pass_time(&mut locked);
            self.continue_in(&mut locked);
        }
        shell.resume_loading(&mut locked);
        observers::show(&mut locked);
        let waits = deadlines::is_waiting(&locked);
        self.is_armed.store(waits, Ordering::Relaxed);
        self.activity.store(locked.common.activity, Ordering::Relaxed);
        Ok(shell.activity())
    }
}
