//! The descriptor queues of a host: chains that its program posted, that the card has taken, and that the card has
//! completed.

#[cfg(test)]
#[path = "../../../../vhost-user/tests/suite/common/loopback.rs"]
#[allow(dead_code, reason = "the card has rings for tests of other shells")]
mod loopback;

use std::collections::VecDeque;

use niclab_model::nic::{Descriptor, DescriptorQueue, HostRange, HostRanges, Input, Nic};
use niclab_model::time::Time;
use niclab_workloads::Transport;

use super::CardHost;
use crate::checker::{Check, Checker};
use crate::host::Effects;

/// A chain that the card completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Time at which the program can see the completion.
    pub at: Time,
    /// The token from [`CardHost::post`].
    pub token: u64,
    /// Number of bytes that the card wrote, as it reports them.
    pub bytes: u32,
}

/// The chains of both queues.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// For each queue, in the order of posting.
    posted: [VecDeque<Descriptor>; 2],
    taken: Vec<Descriptor>,
    /// In the order in which they become visible.
    completed: VecDeque<Completed>,
    last_token: u64,
}

impl Chains {
    /// The next chain that the card accepts.
    pub(super) fn next(&mut self, nic: &dyn Nic) -> Option<Descriptor> {
        let wanted = |queue: &DescriptorQueue| nic.descriptors_wanted(*queue).is_some_and(|count| count > 0);
        let mut queues = self.posted.iter_mut().zip(DescriptorQueue::ALL);
        let (chains, _) = queues.find(|(chains, queue)| !chains.is_empty() && wanted(queue))?;
        let chain = chains.pop_front()?;
        self.taken.push(chain.clone());
        Some(chain)
    }

    /// The card completes a chain. Returns an error if that is wrong.
    pub(super) fn complete(&mut self, at: Time, token: u64, bytes: u32) -> Result<(), String> {
        let place = self.taken.iter().position(|chain| chain.token == token);
        let place =
            place.ok_or_else(|| format!("the card completed chain {token}, which it does not have"))?;
        let chain = self.taken.swap_remove(place);
        let room: u64 = chain.writable.iter().map(|range| range.bytes).sum();
        let after = self.completed.iter().rposition(|earlier| earlier.at <= at);
        self.completed.insert(after.map_or(0, |last| last + 1), Completed { at, token, bytes });
        if u64::from(bytes) > room {
            return Err(format!(
                "the card reported {bytes} bytes in chain {token}, which has room for {room}"
            ));
        }
        Ok(())
    }

    /// Whether the card may write there, because it has a chain with this memory.
    pub(super) fn may_write(&self, range: &HostRange) -> bool {
        let holds = |room: &HostRange| {
            range.address.checked_sub(room.address).is_some_and(|offset| offset + range.bytes <= room.bytes)
        };
        self.taken.iter().any(|chain| chain.writable.iter().any(holds))
    }

    /// Number of chains to send that the card has not completed.
    pub(super) fn unsent(&self) -> usize {
        let of_card = self.taken.iter().filter(|chain| chain.queue == DescriptorQueue::Transmit);
        of_card.count() + self.posted.first().map_or(0, VecDeque::len)
    }
}

impl<T: Transport> CardHost<T> {
    /// The program posts a chain and notifies the queue. Returns the chain's token.
    pub fn post(
        &mut self,
        now: Time,
        queue: DescriptorQueue,
        [readable, writable]: [HostRanges; 2],
        checker: &mut Checker,
        effects: &mut Effects,
    ) -> u64 {
        self.chains.last_token += 1;
        let token = self.chains.last_token;
        if let Some(chains) = self.chains.posted.get_mut(queue as usize) {
            chains.push_back(Descriptor { token, queue, readable, writable });
        }
        self.handle(now, Input::PollDemand { queue }, checker, effects);
        token
    }

    /// The next completed chain, if the program can see it by now.
    pub fn reap(&mut self, now: Time) -> Option<Completed> {
        self.chains.completed.front().filter(|completed| completed.at <= now)?;
        self.chains.completed.pop_front()
    }

    pub(super) fn on_complete(&mut self, at: Time, token: u64, bytes: u32, checker: &mut Checker) {
        if let Err(what) = self.chains.complete(at, token, bytes) {
            let node = self.node;
            checker.fail(Check::RightMemory, || format!("node {node}: {what}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use niclab_model::conventional::Conventional;
    use niclab_model::platform::ledger::Transaction;
    use niclab_model::platform::profile::Profile;
    use niclab_workloads::slices::SliceTransport;

    use super::loopback::{Loopback, MOST};
    use super::*;
    use crate::checker::Promise;
    use crate::host::Host;

    fn checker() -> Checker {
        let promise =
            Promise { is_lossless: true, is_lossless_when_healed: true, is_once: true, is_in_order: true };
        Checker::new(&[], promise)
    }

    fn is_sound(checker: &Checker) -> bool {
        checker.verdict().iter().all(|checked| checked.held)
    }

    fn range(address: u64, bytes: u64) -> HostRanges {
        HostRanges::from_slice(&[HostRange { address, bytes }])
    }

    fn host() -> CardHost<SliceTransport> {
        let ethernet = Conventional::new(Profile::default());
        CardHost::new(0, Box::new(Loopback::of_chains()), ethernet, |_| None)
    }

    #[test]
    fn completed_chains_return_and_are_charged() {
        const CHAINS: u64 = 3 * MOST as u64;
        let mut host = host();
        host.memory.open(8, 2 * 4_096);
        let pages: Vec<u64> = host.memory.extents(0).map(|extent| extent.address).collect();
        let (mut checker, mut effects) = (checker(), Effects::default());
        for chain in 0..CHAINS {
            let (from, to) = (range(pages[0] + 64 * chain, 40), range(pages[1] + 64 * chain, 64));
            host.memory.store(&from[0], &[chain as u8 + 1; 40]);
            let chains = [
                (DescriptorQueue::Receive, [HostRanges::new(), to]),
                (DescriptorQueue::Transmit, [from, HostRanges::new()]),
            ];
            for (queue, ranges) in chains {
                host.post(Time::ZERO, queue, ranges, &mut checker, &mut effects);
            }
        }
        assert_eq!(host.reap(Time::ZERO).map(|chain| chain.bytes), Some(0), "an idle bus adds no delay");
        let rest: Vec<u32> =
            std::iter::from_fn(|| host.reap(Time::from_ps(u64::MAX))).map(|c| c.bytes).collect();
        assert_eq!(rest.iter().filter(|bytes| **bytes == 40).count() as u64, CHAINS);
        assert_eq!(rest.len() as u64, 2 * CHAINS - 1);
        for chain in 0..CHAINS {
            let stored = host.memory.load(&range(pages[1] + 64 * chain, 40)[0]).unwrap();
            assert_eq!(stored, [chain as u8 + 1; 40]);
        }
        let bytes = |transaction| host.ledger().line(transaction).bytes;
        assert_eq!(bytes(Transaction::DescriptorFetch), 2 * CHAINS * 16);
        assert_eq!(bytes(Transaction::DescriptorWriteBack), 2 * CHAINS * 16);
        assert!(is_sound(&checker), "{:?}", checker.verdict());
    }

    #[test]
    fn completion_of_unknown_chain_or_of_too_many_bytes_fails() {
        let mut host = host();
        host.memory.open(8, 4_096);
        let room = range(host.memory.extents(0).map(|extent| extent.address).sum(), 64);
        let (mut checker, mut effects) = (self::checker(), Effects::default());
        let ranges = [HostRanges::new(), room];
        let token = host.post(Time::ZERO, DescriptorQueue::Receive, ranges, &mut checker, &mut effects);
        assert!(is_sound(&checker));
        host.on_complete(Time::ZERO, token, 65, &mut checker);
        assert!(!is_sound(&checker));
        let mut checker = self::checker();
        host.on_complete(Time::ZERO, token, 0, &mut checker);
        assert!(!is_sound(&checker), "twice");
    }
}
