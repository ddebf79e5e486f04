//! What is done in the cluster is shown to those who watch it ([`crate::watch`]).

use std::sync::Arc;

use niclab_model::fabric::take_stages;
use niclab_model::platform::ledger::Ledger;
use niclab_model::time::Time;
use niclab_observe::timeline::Owner;
use niclab_spec::monitor::LOCK_TIMEOUT;
use niclab_spec::watch::{WatchRequest, WatchSubject};

use super::Shell;
use super::world::{Common, World};
use crate::watch::{Subject, Watch, WatchError};

/// Most stages of one ledger between two looks at it.
const MAX_STAGES: usize = 64 * 1024;

impl Shell {
    /// Begins to watch. Whoever asks writes what there is by [`crate::watch::write::write`], and ends by
    /// [`Shell::end_watch`].
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn begin_watch(&self, request: &WatchRequest) -> Result<Arc<Watch>, WatchError> {
        let WatchRequest { subject, links, messages, live } = request;
        if *messages == Some(0) {
            return Err(WatchError::NoMessages);
        }
        if !links.is_empty() && *subject != WatchSubject::Capture {
            return Err(WatchError::NotOfLinks);
        }
        let mut world = self.try_world(LOCK_TIMEOUT).ok_or(WatchError::Stuck)?;
        let subject = match subject {
            WatchSubject::Trace => Subject::Trace,
            WatchSubject::Capture => self.capture(links)?,
            WatchSubject::Recording => {
                // No program begins to send anything before its host's clock.
                let clocks = world.nodes.iter().map(|(_, node)| node.bus.clock());
                Subject::Recording { begin: clocks.min().unwrap_or(Time::ZERO) }
            }
        };
        let watch = Watch::new(subject, *messages, *live, world.common.network.taps().share());
        // What was done before is not part of it.
        world.show();
        world.common.network.taps_mut().add(Arc::clone(&watch));
        world.follow_taps();
        Ok(watch)
    }

    fn capture(&self, links: &[String]) -> Result<Subject, WatchError> {
        let nodes: Vec<&str> = self.nodes().iter().map(|info| info.name.as_str()).collect();
        if let Some(link) = links.iter().find(|link| !nodes.contains(&link.as_str())) {
            return Err(WatchError::UnknownLink { link: link.clone(), known: nodes.join(", ") });
        }
        let mut names = Vec::new();
        let mut interface = |node: &&str| {
            let is_wanted = links.is_empty() || links.iter().any(|link| link == node);
            is_wanted.then(|| {
                names.push((*node).to_owned());
                names.len() as u32 - 1
            })
        };
        let interfaces = nodes.iter().map(&mut interface).collect();
        Ok(Subject::Capture { interfaces, names })
    }

    /// Ends a watch, with all that happened until now.
    pub fn end_watch(&self, watch: &Arc<Watch>) {
        let mut world = self.world();
        world.show();
        world.common.network.taps_mut().remove(watch);
        world.follow_taps();
        watch.end();
    }

    /// Ends all watches: the daemon goes.
    pub fn end_watches(&self) {
        let mut world = self.world();
        world.show();
        world.common.network.taps_mut().clear();
        world.follow_taps();
    }
}

impl World<'_> {
    /// Shows to those who watch what was done since the last call.
    #[inline]
    pub fn show(&mut self) {
        if self.common.network.taps().is_any() {
            self.show_stages();
        }
    }

    #[cold]
    fn show_stages(&mut self) {
        if self.common.network.taps().is_traced() {
            let Common { ethernet, network, .. } = &mut *self.common;
            let mut show = |owner, ledger: &mut Ledger| {
                let (stages, lost) = ledger.take_stages();
                network.taps().on_stages(owner, &stages, lost);
            };
            for (number, node) in self.nodes.iter_mut() {
                Owner::visit(number as u16, &mut *node.card.nic, &mut show);
            }
            for (node, state) in (0..).zip(&mut ethernet.states) {
                show(Owner::Ethernet(node), state.nic.ledger_mut());
            }
            let (stages, lost) = take_stages(self.nodes.iter_mut().map(|(_, node)| node.port.ledger_mut()));
            self.common.network.taps().on_stages(Owner::Network, &stages, lost);
        }
        self.common.network.taps().end_full();
    }

    /// Has all ledgers keep their stages exactly while somebody wants them.
    fn follow_taps(&mut self) {
        let most = if self.common.network.taps().is_traced() { MAX_STAGES } else { 0 };
        self.for_each_ledger(|ledger| ledger.record_stages(most));
    }
}
