//! The steps of each case. The case's seed determines all random choices. A moment is the n-th action of a card for its
//! driver: a message sent or received, or an event. So the same seed meets the same program at about the same place,
//! also on a slow machine, and no moment comes before the program has begun.

use std::time::Duration;

use niclab_random::Random;
use niclab_spec::DeviceFaults;

use super::{
    case::{self, Case, CaseKind},
    laboratory::{Laboratory, Program, TRAFFIC_INTERVAL, Trouble},
    traffic::Moment,
};
use crate::host::deadline::Deadline;

/// How often a case kills programs, unbinds drivers or unloads modules.
const ROUNDS: u32 = 3;

/// The latest moment at which a case disturbs a program: after this many actions of its card.
const MAX_MOMENT: u32 = 1 << 9;

/// Time limit for a moment; it is reached only if the card does nothing more.
const MOMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a case restarts a program that ends before the moment. Each try has an earlier moment.
const TRIES: u32 = 4;

/// The longest time for which a card has no driver while the other nodes' programs continue.
const MAX_UNBOUND: Duration = Duration::from_millis(250);

/// How long a program may continue whose peer was killed, whose driver is gone or whose card is faulty. Then the case
/// kills it too, and only checks that this is possible.
const LEFTOVER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long programs may run with a faulty card.
const FAULTY_TIMEOUT: Duration = Duration::from_secs(8);

/// The random stream of a case's moments and nodes.
const STREAM: u64 = 0x636f_6e66;

/// A random moment of a program's run; its order of magnitude is uniformly distributed.
fn moment(random: &mut Random) -> u32 {
    let most = 1 << random.below(MAX_MOMENT.ilog2() + 1);
    1 + random.below(most)
}

/// Runs one case in a cluster that is up.
pub struct Conduct<'l, 'r, 'c> {
    lab: &'l mut Laboratory<'r>,
    command: &'c [String],
    limit: Duration,
    random: Random,
    /// The latest moment that is still tried, after programs ended before later ones.
    reach: u32,
    did: Did,
}

/// What a case did.
#[derive(Debug, Default)]
pub struct Did {
    /// A note for the reader, although no check failed.
    pub note: Option<String>,
    /// The moments at which the case disturbed the driver.
    pub moments: Vec<Moment>,
}

impl<'l, 'r, 'c> Conduct<'l, 'r, 'c> {
    /// `limit` is the time limit of the command where its result counts.
    pub fn new(lab: &'l mut Laboratory<'r>, case: Case, command: &'c [String], limit: Duration) -> Self {
        let random = Random::new(case.seed, STREAM);
        Self { lab, command, limit, random, reach: MAX_MOMENT, did: Did::default() }
    }

    /// Runs the case. Returns what it did, even if it failed.
    pub fn carry_out(mut self, kind: CaseKind) -> (Did, Result<(), Trouble>) {
        let result = match kind {
            CaseKind::Plain | CaseKind::Adversarial => self.must_succeed(),
            CaseKind::Kill => self.kill(),
            CaseKind::Rebind => self.rebind(),
            CaseKind::Reload => self.reload(),
            CaseKind::Fault(number) if kind.is_believed() => self.invalid_values(number),
            CaseKind::Fault(number) => self.fault(number),
            CaseKind::Combined => self.combined(),
            CaseKind::Reboot => self.reboot(),
        };
        (self.did, result)
    }

    /// Runs the command with one of several seeds in the same boot. A later seed is set while the cards have no driver.
    /// So each driver meets its seed from its first request on, like a driver that was loaded, until it is unbound.
    pub fn one_of_several(mut self, seed: u64, is_later: bool) -> Result<(), Trouble> {
        let all: Vec<usize> = (0..self.lab.nodes()).collect();
        if is_later {
            self.lab.set_adversarial_seed(seed)?;
            self.lab.bind(&all)?;
        }
        self.must_succeed()?;
        self.lab.unbind(&all)
    }

    /// Runs the command on every node; it must succeed.
    fn must_succeed(&mut self) -> Result<(), Trouble> {
        let programs = self.lab.start_all(self.command)?;
        let is_over = self.lab.wait(&programs, self.limit)?;
        let (failed, left) = (self.lab.failed(&programs), self.lab.left(&programs).join(", "));
        // If one failed, the others may wait for it forever; their results mean nothing.
        self.lab.kill(&programs, "the command")?;
        match failed {
            Some(trouble) => Err(trouble),
            None if is_over => Ok(()),
            None => Err(Trouble::Hang(format!(
                "the command on {left} did not end within {} s",
                self.limit.as_secs()
            ))),
        }
    }

    /// Ends programs whose peers, drivers or cards were disturbed.
    fn end(&mut self, programs: &[Program]) -> Result<(), Trouble> {
        self.lab.wait(programs, self.lab.scaled(LEFTOVER_TIMEOUT))?;
        self.lab.kill(programs, "the command")
    }

    /// After all drivers are bound again, the command must succeed.
    fn must_succeed_after_rebind(&mut self) -> Result<(), Trouble> {
        self.lab.settle()?;
        self.must_succeed()
    }

    fn node(&mut self) -> usize {
        self.random.below(u32::try_from(self.lab.nodes()).unwrap_or(u32::MAX)) as usize
    }

    /// Starts the command on every node, and waits for a random moment of one node's card, or of all cards together.
    /// The caller then does `what`.
    fn begin(&mut self, what: &'static str, rank: Option<usize>) -> Result<Vec<Program>, Trouble> {
        let sampled = moment(&mut self.random);
        let limit = self.lab.scaled(MOMENT_TIMEOUT);
        let mut tries_left = TRIES;
        loop {
            tries_left -= 1;
            let before = self.lab.traffic(rank)?;
            let programs = self.lab.start_all(self.command)?;
            let wanted = sampled.min(self.reach);
            let traffic = self.lab.await_traffic(&programs, rank, before, u64::from(wanted), limit)?;
            let is_late = self.lab.are_done(&programs) && tries_left > 0 && !traffic.is_none();
            if !is_late {
                let node = rank.map(|rank| self.lab.name(rank));
                self.did.moments.push(Moment { what, node, traffic });
                return Ok(programs);
            }
            // The program ended before the moment: retry with half of its actions at most, so that it is still running.
            let done = u32::try_from(traffic.count()).unwrap_or(MAX_MOMENT);
            self.reach = (done.min(wanted) / 2).max(1);
        }
    }

    fn kill(&mut self) -> Result<(), Trouble> {
        for _ in 0..ROUNDS {
            let first = self.node();
            let programs = self.begin("kill", Some(first))?;
            self.lab.kill(programs.get(first), "the command")?;
            // The other programs may or may not notice.
            self.run_until_moment(&programs, LEFTOVER_TIMEOUT)?;
            self.lab.kill(&programs, "the command")?;
        }
        // A killed program may leave unread messages, which can make the next command fail. So a failure here is only a
        // note.
        if let Err(Trouble::Exit { .. } | Trouble::Hang(_)) = self.must_succeed() {
            self.did.note =
                Some("after programs were killed the command failed until the driver was rebound".to_owned());
        }
        self.must_succeed_after_rebind()
    }

    /// Lets programs continue until a random moment, for at most `longest`: they may do nothing more.
    fn run_until_moment(&mut self, programs: &[Program], longest: Duration) -> Result<(), Trouble> {
        let wanted = u64::from(moment(&mut self.random));
        let before = self.lab.traffic(None)?;
        let deadline = Deadline::after(longest);
        while !deadline.is_over() && self.lab.traffic(None)?.since(before).count() < wanted {
            if self.lab.left(programs).is_empty() {
                break;
            }
            self.lab.pass(TRAFFIC_INTERVAL)?;
        }
        Ok(())
    }

    fn rebind(&mut self) -> Result<(), Trouble> {
        for _ in 0..ROUNDS {
            let programs = self.begin_and_unbind()?;
            self.end(&programs)?;
        }
        self.must_succeed_after_rebind()
    }

    /// Starts the command, unbinds a driver at a random moment, and binds it again at a later one.
    fn begin_and_unbind(&mut self) -> Result<Vec<Program>, Trouble> {
        let node = self.node();
        let unbind = self.lab.prepare_unbind(&[node])?;
        let programs = self.begin("unbind", Some(node))?;
        self.lab.unbind_prepared(&unbind)?;
        self.run_until_moment(&programs, MAX_UNBOUND)?;
        self.lab.bind(&[node])?;
        Ok(programs)
    }

    fn reload(&mut self) -> Result<(), Trouble> {
        let all: Vec<usize> = (0..self.lab.nodes()).collect();
        for _ in 0..ROUNDS {
            let programs = self.begin("reload", None)?;
            self.lab.kill(&programs, "the command")?;
            self.lab.unload(&all)?;
            self.lab.load(&all)?;
        }
        self.must_succeed()
    }

    fn fault(&mut self, number: usize) -> Result<(), Trouble> {
        self.lab.set_faults(&case::faults(number))?;
        if case::is_only_late(number) {
            self.must_succeed()?;
        } else {
            let programs = self.lab.start_all(self.command)?;
            self.lab.wait(&programs, self.lab.scaled(FAULTY_TIMEOUT))?;
            self.end(&programs)?;
        }
        self.lab.set_faults(&DeviceFaults::default())?;
        self.must_succeed_after_rebind()
    }

    /// Values out of range in everything that the card writes for its host, once the driver is bound. There are none
    /// while a driver starts. A driver that gives up at the first answer would reset the card while QEMU maps the BAR.
    /// QEMU 11.1 then crashes (segmentation fault).
    fn invalid_values(&mut self, number: usize) -> Result<(), Trouble> {
        for _ in 0..ROUNDS {
            self.lab.set_faults(&case::faults(number))?;
            let programs = self.lab.start_all(self.command)?;
            self.lab.wait(&programs, self.lab.scaled(FAULTY_TIMEOUT))?;
            self.end(&programs)?;
            self.lab.set_faults(&DeviceFaults::default())?;
            self.lab.settle()?;
        }
        self.must_succeed()
    }

    fn combined(&mut self) -> Result<(), Trouble> {
        let random = &mut self.random;
        let faults = case::several_faults(|| random.below(2) == 0);
        self.lab.set_faults(&faults)?;
        for _ in 0..ROUNDS {
            let programs = if self.random.below(2) == 0 {
                let node = self.node();
                let programs = self.begin("kill", Some(node))?;
                self.lab.kill(programs.get(node), "the command")?;
                programs
            } else {
                self.begin_and_unbind()?
            };
            self.end(&programs)?;
        }
        self.lab.set_faults(&DeviceFaults::default())?;
        self.must_succeed_after_rebind()
    }

    fn reboot(&mut self) -> Result<(), Trouble> {
        let node = self.node();
        let programs = self.begin("reset", Some(node))?;
        self.lab.reset(node)?;
        self.end(&programs)?;
        self.must_succeed_after_rebind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_after_the_first_action_early_and_late() {
        let mut random = Random::new(1, STREAM);
        let moments: Vec<u32> = (0..200).map(|_| moment(&mut random)).collect();
        assert!(moments.iter().all(|moment| (1..=MAX_MOMENT).contains(moment)), "{moments:?}");
        let early = moments.iter().filter(|moment| **moment <= 8).count();
        let late = moments.iter().filter(|moment| **moment > MAX_MOMENT / 4).count();
        assert!(early > 40 && late > 10, "{early} early, {late} late");
        let mut again = Random::new(1, STREAM);
        assert!(
            moments.iter().all(|first| *first == moment(&mut again)),
            "a seed has the same moments again"
        );
    }
}
