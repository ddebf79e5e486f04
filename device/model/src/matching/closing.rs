//! What ends when a region or a port is closed: nothing touches its memory after the answer, and whoever waits is told.

use alloc::vec::Vec;

use niclab_abi::matching::{RESULT_BAD_REGION, RESULT_NO_TARGET};

use crate::matching::control::ControlError;
use crate::matching::messages::Done;
use crate::matching::nic::Match;
use crate::matching::reception::{Into, Reception};
use crate::matching::regions::RegionError;
use crate::matching::wire::Operation;
use crate::time::Time;

/// What an entry costs when a port or a region is closed, as [`crate::nic::Nic::work_done`] counts.
const ENTRY_WORK: u64 = 4;

impl Match {
    /// Closes the port. Returns when the last of its effects is visible.
    pub(super) fn close_port(&mut self, now: Time, index: usize) -> Time {
        let Some(port) = self.ports[index].take() else { return Time::ZERO };
        let last = port.last_effect();
        self.engine.clear(index);
        self.effects.spent += ENTRY_WORK * port.entries.len() as u64;
        for place in port.entries.values().filter_map(|entry| entry.place) {
            self.engine.give_place_back(place);
        }
        self.regions[index].close_all();
        for (place, source_port, reception) in self.receptions_of(index) {
            if let Some(it) = &mut self.peers.all[place].receiving[source_port] {
                it.into = Into::Nothing;
            }
            if matches!(reception.into, Into::Entry { .. }) {
                self.answer_put(now, &reception.header, 0, 0, RESULT_NO_TARGET);
            }
        }
        for place in 0..self.peers.all.len() {
            let sending = &mut self.peers.all[place].sending[index];
            let before = sending.len();
            // What has begun is ended by a frame that says so. Who waits for an answer gets one.
            sending.retain(|outgoing| {
                let is_answer = matches!(outgoing.header.operation, Operation::Ack | Operation::Reply);
                outgoing.sent.is_some() || is_answer
            });
            self.effects.counters.discarded_at_close += (before - sending.len()) as u64;
            self.pump(now, place);
        }
        last
    }

    /// Messages that arrive for a port: the place of the card they come from, and its port.
    fn receptions_of(&self, index: usize) -> Vec<(usize, usize, Reception)> {
        let peers = self.peers.all.iter().enumerate();
        let all = peers.flat_map(|(place, peer)| {
            let receiving = peer.receiving.iter().enumerate();
            receiving.filter_map(move |(port, reception)| Some((place, port, (*reception)?)))
        });
        all.filter(|(.., reception)| reception.port == index && !matches!(reception.into, Into::Nothing))
            .collect()
    }

    /// Closes a region. Returns when the last effect of its port is visible.
    pub(super) fn close_region(
        &mut self,
        now: Time,
        index: usize,
        region: u32,
    ) -> Result<Time, ControlError> {
        if !self.regions[index].close(region) {
            return Err(RegionError::NotFound.into());
        }
        self.unlink_entries_of(index, region);
        for (place, source_port, reception) in self.receptions_of(index) {
            if reception.memory.region == region && reception.memory.bytes > 0 {
                self.end_reception(now, place, source_port as u8, RESULT_BAD_REGION);
                self.peers.all[place].receiving[source_port] = Some(reception.without_taker());
            }
        }
        for done in self.reads_of(index, region) {
            self.on_done(now, done, RESULT_BAD_REGION);
        }
        let Some(port) = &mut self.ports[index] else { return Ok(now) };
        // Those without operations, which nothing is left to end.
        port.entries.retain(|_, entry| entry.place.is_some() || entry.under_way > 0);
        let last = port.last_effect();
        (0..self.peers.all.len()).for_each(|place| self.pump(now, place));
        Ok(last)
    }

    /// Unlinks the entries in a region, without events but those that a command waits for.
    fn unlink_entries_of(&mut self, index: usize, region: u32) {
        let Some(port) = &mut self.ports[index] else { return };
        self.effects.spent += ENTRY_WORK * port.entries.len() as u64;
        let mut unlinked = Vec::new();
        for (&handle, entry) in &mut port.entries {
            if entry.memory.region != region || entry.memory.bytes == 0 {
                continue;
            }
            entry.tells_unlink = false;
            if let Some(place) = entry.place.take() {
                unlinked.push(handle);
                self.engine.give_place_back(place);
            }
        }
        self.engine.unlink_all(index, &unlinked);
        let is_gone = |handle: u32| port.entries.get(&handle).is_none_or(|entry| entry.place.is_none());
        if port.appending.is_some_and(|appending| is_gone(appending.handle)) {
            port.appending = None;
        }
    }

    /// Commands and served gets of a port that read a region, or wait for data into it.
    fn reads_of(&self, index: usize, region: u32) -> Vec<Done> {
        let Some(port) = &self.ports[index] else { return Vec::new() };
        let commands = port.under_way.iter().filter(|(_, it)| {
            let memory = &it.transfer.memory;
            let touches = it.waits_for_sent || it.transfer.is_get;
            touches && memory.region == region && memory.bytes > 0
        });
        let served = port.served.iter().filter(|(_, it)| {
            let entry = port.entries.get(&it.handle);
            it.bytes > 0 && entry.is_some_and(|entry| entry.memory.region == region)
        });
        let commands = commands.map(|(&token, _)| Done::Command { port: index, token });
        commands.chain(served.map(|(&number, _)| Done::Served { port: index, number })).collect()
    }
}
