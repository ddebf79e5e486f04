//! Shows the activity of the cluster to its observers ([`crate::watch`]).

use std::sync::Arc;

use niclab_model::fabric::take_stages;
use niclab_model::platform::ledger::Ledger;
use niclab_model::time::Time;
use niclab_observe::timeline::Owner;
use niclab_spec::monitor::LOCK_TIMEOUT;
use niclab_spec::watch::{WatchRequest, WatchSubject};

use super::Shell;
use super::ledgers;
use super::locks::{Common, LockedNodes};
use crate::watch::{Subject, Watch, WatchError};

/// Maximum of stages of one ledger between two calls of [`show`].
const MAX_STAGES: usize = 64 * 1024;

/// Begins a watch. The caller writes its events with [`crate::watch::write::write`], and ends it with [`end`].
///
/// # Errors
/// [`WatchError`].
pub fn begin(shell: &Shell, request: &WatchRequest) -> Result<Arc<Watch>, WatchError> {
    let WatchRequest { subject, links, messages, live } = request;
    if *messages == Some(0) {
        return Err(WatchError::NoMessages);
    }
    if !links.is_empty() && *subject != WatchSubject::Capture {
        return Err(WatchError::NotOfLinks);
    }
    let mut locked = shell.try_lock_all(LOCK_TIMEOUT).ok_or(WatchError::Stuck)?;
    let subject = match subject {
        WatchSubject::Trace => Subject::Trace,
        WatchSubject::Capture => capture(shell, links)?,
        WatchSubject::Recording => {
            // No program sends before its host's clock.
            let clocks = locked.nodes.iter().map(|(_, node)| node.bus.clock());
            Subject::Recording { begin: clocks.min().unwrap_or(Time::ZERO) }
        }
    };
    let watch = Watch::new(subject, *messages, *live, locked.common.network.observers.share());
    // Earlier activity is not part of it.
    show(&mut locked);
    locked.common.network.observers.add(Arc::clone(&watch));
    follow_observers(&mut locked);
    Ok(watch)
}

/// The links that a capture watches: all, or those of these nodes.
fn capture(shell: &Shell, links: &[String]) -> Result<Subject, WatchError> {
    let nodes: Vec<&str> = shell.nodes().iter().map(|info| info.name.as_str()).collect();
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

/// Ends a watch after everything that has happened so far.
pub fn end(shell: &Shell, watch: &Arc<Watch>) {
    let mut locked = shell.lock_all();
    show(&mut locked);
    locked.common.network.observers.remove(watch);
    follow_observers(&mut locked);
    watch.end();
}

/// Ends all watches, because the daemon ends.
pub fn end_all(shell: &Shell) {
    let mut locked = shell.lock_all();
    show(&mut locked);
    locked.common.network.observers.clear();
    follow_observers(&mut locked);
}

/// Shows the observers all activity since the last call.
#[inline]
pub fn show(locked: &mut LockedNodes<'_>) {
    if locked.common.network.observers.is_any() {
        show_stages(locked);
    }
}

#[cold]
fn show_stages(locked: &mut LockedNodes<'_>) {
    if locked.common.network.observers.is_traced() {
        let Common { ethernet, network, .. } = &mut *locked.common;
        let mut show = |owner, ledger: &mut Ledger| {
            let (stages, lost) = ledger.take_stages();
            network.observers.on_stages(owner, &stages, lost);
        };
        for (number, node) in locked.nodes.iter_mut() {
            Owner::visit(number as u16, &mut *node.card.nic, &mut show);
        }
        for (node, state) in (0..).zip(&mut ethernet.states) {
            show(Owner::Ethernet(node), state.nic.ledger_mut());
        }
        let (stages, lost) = take_stages(locked.nodes.iter_mut().map(|(_, node)| node.port.ledger_mut()));
        locked.common.network.observers.on_stages(Owner::Network, &stages, lost);
    }
    locked.common.network.observers.end_full();
}

/// Makes all ledgers record stages while an observer wants them.
fn follow_observers(locked: &mut LockedNodes<'_>) {
    let max_stages = if locked.common.network.observers.is_traced() { MAX_STAGES } else { 0 };
    ledgers::for_each(locked, |ledger| ledger.record_stages(max_stages));
}
