//! The card: requester and completer on one bus and one link.

use niclab_abi::control::Statistics;

use crate::nic::{HostRanges, Input, Nic, Output, ShellCounts};
use crate::parts::host_interface::HostInterface;
use crate::parts::ledger::Ledger;
use crate::time::Time;
use crate::ultra::completer::Completer;
use crate::ultra::config::{Config, ConfigError, PORTS};
use crate::ultra::control;
use crate::ultra::counters::Counters;
use crate::ultra::effects::Effects;
use crate::ultra::requester::Requester;

/// What any input costs, as [`Nic::work_done`] counts: none is long.
const INPUT_WORK: u64 = 10;
/// What any output costs.
const OUTPUT_WORK: u64 = 5;

/// An ULTRA card.
pub struct Ultra {
    pub(super) config: Config,
    pub(super) requester: Requester,
    pub(super) completer: Completer,
    pub(super) effects: Effects,
    pub(super) shell_counts: ShellCounts,
}

impl Ultra {
    /// A card with no port open.
    ///
    /// # Errors
    /// When there can be no such card.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            requester: Requester::new(&config),
            completer: Completer::new(&config),
            effects: Effects::new(HostInterface::new(config.profile.clone())),
            shell_counts: ShellCounts::default(),
            config,
        })
    }

    /// What the card was made with.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What the card has counted.
    pub const fn counters(&self) -> &Counters {
        &self.effects.counters
    }

    /// Closes the port. Returns when the last of its effects is visible.
    pub(super) fn close_port(&mut self, port: usize) -> Time {
        let last = self.requester.last_effect(port).max(self.completer.last_effect(port));
        self.requester.close(port, &mut self.effects);
        self.completer.close(port);
        last
    }
}

impl Nic for Ultra {
    #[inline]
    fn handle(&mut self, now: Time, input: Input<'_>) {
        let (requester, effects) = (&mut self.requester, &mut self.effects);
        effects.interface.ledger_mut().attribute(None);
        effects.spent += INPUT_WORK;
        match input {
            Input::PageStore(store) => requester.on_store(now, &store, effects),
            Input::Frame { frame, message } => {
                effects.interface.ledger_mut().attribute(message);
                self.completer.on_frame(now, frame, message.as_ref(), requester, effects);
            }
            Input::Register { port, register } => {
                self.completer.on_register(now, port as usize, register, requester, effects);
            }
            Input::Control { token, request } => self.on_control(now, token, request),
            Input::ShellCounts(counts) => self.shell_counts = counts,
            // It never reads host memory.
            Input::DmaData { .. } => {}
            Input::Timeout => while requester.on_timeout(now, effects) {},
            Input::HostReset => {
                for port in 0..PORTS {
                    self.close_port(port);
                }
                let is_for_the_host = |output: &Output| !matches!(output, Output::Frame { .. });
                self.effects.outputs.retain(|output| !is_for_the_host(output));
            }
        }
    }

    fn memory_named_by(&self, request: &[u8]) -> HostRanges {
        control::memory_named_by(request)
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        let output = self.effects.outputs.pop_front();
        self.effects.spent += if output.is_some() { OUTPUT_WORK } else { 0 };
        output
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        self.requester.next_timeout()
    }

    #[inline]
    fn accepts_store(&self, port: u32) -> bool {
        self.requester.accepts_store(port as usize)
    }

    #[inline]
    fn is_open(&self, port: u32) -> bool {
        self.completer.is_open(port as usize)
    }

    #[inline]
    fn host_clock(&self) -> Time {
        self.effects.interface.host_clock()
    }

    fn delivered(&self, port: u32) -> u64 {
        self.completer.stored(port as usize)
    }

    #[inline]
    fn work_done(&self) -> u64 {
        self.effects.spent
    }

    fn unordered(&self) -> u64 {
        self.effects.counters.unordered
    }

    fn ledger(&self) -> &Ledger {
        self.effects.interface.ledger()
    }

    fn ledger_mut(&mut self) -> &mut Ledger {
        self.effects.interface.ledger_mut()
    }

    fn statistics(&self, shell: &ShellCounts) -> Statistics {
        self.effects.counters.statistics(shell)
    }
}
