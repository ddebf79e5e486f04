//! What is done in each case, moment by moment. What is drawn follows from the case's seed; moments are of wall time, so that the
//! same seed meets the same program at about the same place.

use std::time::Duration;

use niclab_random::Random;
use niclab_spec::DeviceFaults;

use super::{
    case::{self, Case, Kind},
    laboratory::{Laboratory, Program, Trouble},
};

/// How often programs are killed, drivers unbound or modules unloaded in a case.
const ROUNDS: u32 = 3;

/// The latest moment at which something is done to a program that was started.
const LATEST_MS: u32 = 1 << 11;

/// How long a program may go on whose peer was killed, whose driver is gone or whose card is faulty: then it is killed, too. Nothing
/// is judged of it but that it can be.
const LEFT_ALONE: Duration = Duration::from_secs(2);

/// How long programs may run over a faulty card.
const FAULTY: Duration = Duration::from_secs(8);

/// The stream of moments and nodes that are drawn for a case.
const STREAM: u64 = 0x636f_6e66;

/// One case over a cluster that is up.
pub struct Conduct<'l, 'r, 'c> {
    lab: &'l mut Laboratory<'r>,
    command: &'c [String],
    limit: Duration,
    random: Random,
    note: Option<String>,
}

impl<'l, 'r, 'c> Conduct<'l, 'r, 'c> {
    /// With this command, which may take so long where it is judged.
    pub fn new(lab: &'l mut Laboratory<'r>, case: Case, command: &'c [String], limit: Duration) -> Self {
        Self { lab, command, limit, random: Random::new(case.seed, STREAM), note: None }
    }

    /// Does it. Gives what a reader should know, though nothing is wrong.
    pub fn carry_out(mut self, kind: Kind) -> Result<Option<String>, Trouble> {
        match kind {
            Kind::Plain | Kind::Unkind => self.judged()?,
            Kind::Kill => self.kill()?,
            Kind::Rebind => self.rebind()?,
            Kind::Reload => self.reload()?,
            Kind::Fault(number) => self.fault(number)?,
            Kind::Combined => self.combined()?,
            Kind::Reboot => self.reboot()?,
        }
        Ok(self.note)
    }

    /// One of several seeds in the same boot: the command over drivers that begin with it. A later one is given to the cards while they
    /// have none, so that each driver meets it from its first request on, as one that is loaded; the last of a seed is what
    /// its driver does when it goes.
    pub fn one_of_several(mut self, seed: u64, is_later: bool) -> Result<(), Trouble> {
        let all: Vec<usize> = (0..self.lab.nodes()).collect();
        if is_later {
            self.lab.set_unkind_seed(seed)?;
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

    /// A moment within what a program takes, its order of magnitude drawn first.
    fn moment(&mut self) -> Duration {
        let most = 1 << self.random.below(LATEST_MS.ilog2() + 1);
        Duration::from_millis(u64::from(self.random.below(most)))
    }

    fn node(&mut self) -> usize {
        self.random.below(u32::try_from(self.lab.nodes()).unwrap_or(u32::MAX)) as usize
    }

    /// Starts the command everywhere, and lets it go on until a moment that is drawn.
    fn begin(&mut self) -> Result<Vec<Program>, Trouble> {
        let programs = self.lab.start_all(self.command)?;
        let moment = self.moment();
        self.lab.pass(moment)?;
        Ok(programs)
    }

    fn kill(&mut self) -> Result<(), Trouble> {
        for _ in 0..ROUNDS {
            let programs = self.begin()?;
            let (first, moment) = (self.node(), self.moment());
            self.lab.kill(programs.get(first), "the command")?;
            // The other one may notice, and may not.
            self.lab.pass(moment)?;
            self.lab.kill(&programs, "the command")?;
        }
        // A program that was killed leaves nothing behind, if the command does not ask for what it left unread.
        if let Err(Trouble::Exit { .. } | Trouble::Hang(_)) = self.judged() {
            self.note = Some(
                "after programs were killed the command failed until the driver was bound anew".to_owned(),
            );
        }
        self.judged_anew()
    }

    fn rebind(&mut self) -> Result<(), Trouble> {
        for _ in 0..ROUNDS {
            let programs = self.begin()?;
            let node = self.node();
            self.take_away(node)?;
            self.end(&programs)?;
        }
        self.judged_anew()
    }

    /// Takes a card away from its driver for a moment that is drawn.
    fn take_away(&mut self, node: usize) -> Result<(), Trouble> {
        self.lab.unbind(&[node])?;
        let moment = self.moment() / 8;
        self.lab.pass(moment)?;
        self.lab.bind(&[node])
    }

    fn reload(&mut self) -> Result<(), Trouble> {
        let all: Vec<usize> = (0..self.lab.nodes()).collect();
        for _ in 0..ROUNDS {
            let programs = self.begin()?;
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

    fn combined(&mut self) -> Result<(), Trouble> {
        let random = &mut self.random;
        let faults = case::several_faults(|| random.below(2) == 0);
        self.lab.set_faults(&faults)?;
        for _ in 0..ROUNDS {
            let programs = self.begin()?;
            let node = self.node();
            if self.random.below(2) == 0 {
                self.lab.kill(programs.get(node), "the command")?;
            } else {
                self.take_away(node)?;
            }
            self.end(&programs)?;
        }
        self.lab.set_faults(&DeviceFaults::default())?;
        self.judged_anew()
    }

    fn reboot(&mut self) -> Result<(), Trouble> {
        let programs = self.begin()?;
        let node = self.node();
        self.lab.reset(node)?;
        self.end(&programs)?;
        self.judged_anew()
    }
}
