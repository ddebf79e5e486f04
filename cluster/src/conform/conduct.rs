//! What is done in each case, moment by moment. What is drawn follows from the case's seed. A moment is the n-th thing
//! that a card does for its driver (a message sent or received, an event). So the same seed meets the same program at
//! about the same place, on a slow machine, too, and no moment comes before the program has begun.

use std::time::{Duration, Instant};

use niclab_random::Random;
use niclab_spec::DeviceFaults;

use super::{
    case::{self, Case, Kind},
    laboratory::{Laboratory, Program, TRAFFIC_INTERVAL, Trouble},
    traffic::Moment,
};

/// How often programs are killed, drivers unbound or modules unloaded in a case.
const ROUNDS: u32 = 3;

/// The latest moment at which something is done to a program that was started: the n-th thing that a card does for it.
const LATEST: u32 = 1 << 9;

/// How long a moment is waited for. It is that long in coming where nothing comes any more.
const MOMENT: Duration = Duration::from_secs(10);

/// How often a program is started that comes to its end before the moment: each time with an earlier one.
const TRIES: u32 = 4;

/// The longest time for which a card has no driver while the other nodes' programs go on.
const TAKEN_AWAY: Duration = Duration::from_millis(250);

/// How long a program may go on whose peer was killed, whose driver is gone or whose card is faulty: then it is killed,
/// too. Nothing is judged of it but that it can be.
const LEFT_ALONE: Duration = Duration::from_secs(2);

/// How long programs may run over a faulty card.
const FAULTY: Duration = Duration::from_secs(8);

/// The stream of moments and nodes that are drawn for a case.
const STREAM: u64 = 0x636f_6e66;

/// A moment within what a program does, its order of magnitude drawn first.
fn moment(random: &mut Random) -> u32 {
    let most = 1 << random.below(LATEST.ilog2() + 1);
    1 + random.below(most)
}

/// One case over a cluster that is up.
pub struct Conduct<'l, 'r, 'c> {
    lab: &'l mut Laboratory<'r>,
    command: &'c [String],
    limit: Duration,
    random: Random,
    /// The latest moment that a program was seen to reach.
    reach: u32,
    did: Did,
}

/// What was done in a case.
#[derive(Debug, Default)]
pub struct Did {
    /// What a reader should know, though nothing is wrong.
    pub note: Option<String>,
    /// The moments at which something was done to the driver.
    pub moments: Vec<Moment>,
}

impl<'l, 'r, 'c> Conduct<'l, 'r, 'c> {
    /// With this command, which may take so long where it is judged.
    pub fn new(lab: &'l mut Laboratory<'r>, case: Case, command: &'c [String], limit: Duration) -> Self {
        let random = Random::new(case.seed, STREAM);
        Self { lab, command, limit, random, reach: LATEST, did: Did::default() }
    }

    /// Does it, and gives what was done, though something went wrong.
    pub fn carry_out(mut self, kind: Kind) -> (Did, Result<(), Trouble>) {
        let result = match kind {
            Kind::Plain | Kind::Adversarial => self.judged(),
            Kind::Kill => self.kill(),
            Kind::Rebind => self.rebind(),
            Kind::Reload => self.reload(),
            Kind::Fault(number) if kind.is_believed() => self.invalid_values(number),
            Kind::Fault(number) => self.fault(number),
            Kind::Combined => self.combined(),
            Kind::Reboot => self.reboot(),
        };
        (self.did, result)
    }

    /// One of several seeds in the same boot: the command over drivers that begin with it. A later one is given to the
    /// cards while they have none, so that each driver meets it from its first request on, as one that is loaded; the
    /// last of a seed is what its driver does when it goes.
    pub fn one_of_several(mut self, seed: u64, is_later: bool) -> Result<(), Trouble> {
        let all: Vec<usize> = (0..self.lab.nodes()).collect();
        if is_later {
            self.lab.set_adversarial_seed(seed)?;
            self.lab.bind(&all)?;
        }
        self.judged()?;
        self.lab.unbind(&all)
    }

    /// The command on every node, which must come to a good end.
    fn judged(&mut self) -> Result<(), Trouble> {
        let programs = self.lab.start_all(self.command)?;
        let is_over = self.lab.wait(&programs, self.limit)?;
        let (failed, left) = (self.lab.failed(&programs), self.lab.left(&programs).join(", "));
        // Where one failed the others may wait for it for ever; what they would say is of no use.
        self.lab.kill(&programs, "the command")?;
        match failed {
            Some(trouble) => Err(trouble),
            None if is_over => Ok(()),
            None => Err(Trouble::Hang(format!(
                "the command on {left} takes more than {} s",
                self.limit.as_secs()
            ))),
        }
    }

    /// What is left of programs whose peers, drivers or cards are not what they were.
    fn end(&mut self, programs: &[Program]) -> Result<(), Trouble> {
        self.lab.wait(programs, self.lab.patient(LEFT_ALONE))?;
        self.lab.kill(programs, "the command")
    }

    /// All began anew, so the command must come to a good end.
    fn judged_anew(&mut self) -> Result<(), Trouble> {
        self.lab.settle()?;
        self.judged()
    }

    fn node(&mut self) -> usize {
        self.random.below(u32::try_from(self.lab.nodes()).unwrap_or(u32::MAX)) as usize
    }

    /// Starts the command everywhere, and lets it go on until a moment that is drawn, at which `what` is done to a
    /// node, or to all.
    fn begin(&mut self, what: &'static str, rank: Option<usize>) -> Result<Vec<Program>, Trouble> {
        let drawn = moment(&mut self.random);
        let limit = self.lab.patient(MOMENT);
        let mut tries_left = TRIES;
        loop {
            tries_left -= 1;
            let before = self.lab.traffic(rank)?;
            let programs = self.lab.start_all(self.command)?;
            let wanted = drawn.min(self.reach);
            let traffic = self.lab.await_traffic(&programs, rank, before, u64::from(wanted), limit)?;
            let is_late = self.lab.are_done(&programs) && tries_left > 0 && !traffic.is_none();
            if !is_late {
                let node = rank.map(|rank| self.lab.name(rank));
                self.did.moments.push(Moment { what, node, traffic });
                return Ok(programs);
            }
            // What the program does in all, and sooner: that must be left of it which is in the way.
            let done = u32::try_from(traffic.count()).unwrap_or(LATEST);
            self.reach = (done.min(wanted) / 2).max(1);
        }
    }

    fn kill(&mut self) -> Result<(), Trouble> {
        for _ in 0..ROUNDS {
            let first = self.node();
            let programs = self.begin("kill", Some(first))?;
            self.lab.kill(programs.get(first), "the command")?;
            // The others may notice, and may not.
            self.go_on(&programs, LEFT_ALONE)?;
            self.lab.kill(&programs, "the command")?;
        }
        // A program that was killed leaves nothing behind, if the command does not ask for what it left unread.
        if let Err(Trouble::Exit { .. } | Trouble::Hang(_)) = self.judged() {
            self.did.note = Some(
                "after programs were killed the command failed until the driver was bound anew".to_owned(),
            );
        }
        self.judged_anew()
    }

    /// Lets programs go on until a moment that is drawn, but not for long: what they do may have come to its end.
    fn go_on(&mut self, programs: &[Program], longest: Duration) -> Result<(), Trouble> {
        let wanted = u64::from(moment(&mut self.random));
        let before = self.lab.traffic(None)?;
        let deadline = Instant::now() + longest;
        while Instant::now() < deadline && self.lab.traffic(None)?.since(before).count() < wanted {
            if self.lab.left(programs).is_empty() {
                break;
            }
            self.lab.pass(TRAFFIC_INTERVAL)?;
        }
        Ok(())
    }

    fn rebind(&mut self) -> Result<(), Trouble> {
        for _ in 0..ROUNDS {
            let programs = self.begin_and_take_away()?;
            self.end(&programs)?;
        }
        self.judged_anew()
    }

    /// Starts the command, and takes a card away from its driver at a moment that is drawn, until another one.
    fn begin_and_take_away(&mut self) -> Result<Vec<Program>, Trouble> {
        let node = self.node();
        let unbind = self.lab.prepare_unbind(&[node])?;
        let programs = self.begin("unbind", Some(node))?;
        self.lab.unbind_prepared(&unbind)?;
        self.go_on(&programs, TAKEN_AWAY)?;
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
        self.judged()
    }

    fn fault(&mut self, number: usize) -> Result<(), Trouble> {
        self.lab.set_faults(&case::faults(number))?;
        if case::is_only_late(number) {
            self.judged()?;
        } else {
            let programs = self.lab.start_all(self.command)?;
            self.lab.wait(&programs, self.lab.patient(FAULTY))?;
            self.end(&programs)?;
        }
        self.lab.set_faults(&DeviceFaults::default())?;
        self.judged_anew()
    }

    /// Values out of range in all that the card gives its host once the driver has it. While a driver starts there are
    /// none: one that leaves the card alone at the first answer resets it while QEMU maps the BAR, and QEMU 11.1 ends
    /// by that (segmentation fault).
    fn invalid_values(&mut self, number: usize) -> Result<(), Trouble> {
        for _ in 0..ROUNDS {
            self.lab.set_faults(&case::faults(number))?;
            let programs = self.lab.start_all(self.command)?;
            self.lab.wait(&programs, self.lab.patient(FAULTY))?;
            self.end(&programs)?;
            self.lab.set_faults(&DeviceFaults::default())?;
            self.lab.settle()?;
        }
        self.judged()
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
                self.begin_and_take_away()?
            };
            self.end(&programs)?;
        }
        self.lab.set_faults(&DeviceFaults::default())?;
        self.judged_anew()
    }

    fn reboot(&mut self) -> Result<(), Trouble> {
        let node = self.node();
        let programs = self.begin("reset", Some(node))?;
        self.lab.reset(node)?;
        self.end(&programs)?;
        self.judged_anew()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_after_the_first_act_and_are_early_and_late() {
        let mut random = Random::new(1, STREAM);
        let moments: Vec<u32> = (0..200).map(|_| moment(&mut random)).collect();
        assert!(moments.iter().all(|moment| (1..=LATEST).contains(moment)), "{moments:?}");
        let early = moments.iter().filter(|moment| **moment <= 8).count();
        let late = moments.iter().filter(|moment| **moment > LATEST / 4).count();
        assert!(early > 40 && late > 10, "{early} early, {late} late");
        let mut again = Random::new(1, STREAM);
        assert!(
            moments.iter().all(|first| *first == moment(&mut again)),
            "a seed has the same moments again"
        );
    }
}
