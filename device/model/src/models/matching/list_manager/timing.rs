//! Cycles and sizes of a list manager: each from the paper's text, or assumed, which is said.

use crate::models::matching::item::WORDS;

/// Cycles and sizes of a list manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Items in the cache, three at most. Section 3.2: "two or three 64 byte items". Two are enough for
    /// [`Self::memory_latency`].
    pub cache_items: usize,
    /// Cycles from a request to the first word out of local memory. Tables 2 and 3: memory is ten cycles away from the
    /// processors. Assumed: the match unit's local memory is as far; the paper says only that the cache covers its
    /// round trip.
    pub memory_latency: u64,
    /// Words of the input FIFO. Assumed: two items; the paper names no depth.
    pub fifo_words: usize,
    /// What lies between two headers, and what changes of a list take.
    pub steps: Steps,
    /// Cycles from the begin of a header to the first word of the first item that is spilled. Follows from the bus's
    /// prices.
    pub spill_latency: u64,
    /// Cycles from one spilled item to the next. All that a header meets are asked for as it begins, one behind the
    /// other. Follows from the bus's prices.
    pub spill_interval: u64,
}

/// What the list manager does between two headers and to change a list. It is one sequencer: it does one step after the
/// other, and what needs words of 64 bits does one word a cycle, as everything in this unit. The paper names the steps
/// (section 3.2) and prices none, so each is the least that a clocked step can take.
///
/// ```text
/// succeeded, offset, length heard:  address | DMA command 2 | event 2 | item changed 2 or unlinked 3
/// meanwhile the unit flushes: 7 cycles from its length to its `done`
/// done heard:                       hear | pull | the next header's first word is passed to the unit
/// ```
///
/// So a header that the list keeps its item for costs 28 cycles and 8 for each item traversed, and one that uses its
/// item up one cycle more. Nothing of this is fitted; [`Steps::FITTED`] is what would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// To take the unit's last word and see that it is done. Section 5.4: "notify the list manager". Assumed: one
    /// cycle.
    pub hear: u64,
    /// To pull the next header's first word out of the header buffer. Section 3.2: "pulls it out of the header buffer
    /// and passes it to the match unit". Assumed: one cycle, and not before the last header is done with: the text has
    /// pulling and passing as one act. The words behind the first follow as they are passed.
    pub pull: u64,
    /// To add the unit's offset to where the item's memory begins. Section 3.2: "used by the list manager to create the
    /// appropriate DMA commands". Assumed: one cycle.
    pub address: u64,
    /// Words of the DMA command. Assumed: address and length.
    pub command_words: u64,
    /// Words of the event for the host. Section 3.2: "also sends an event". Assumed: whose item, and how much.
    pub event_words: u64,
    /// Words of an item that are written back when it has taken a message and stays. Assumed: offset and threshold.
    pub update_words: u64,
    /// Links that are written to take an item out of its list: of the item before, of the item behind, of the free
    /// places. Section 3.2: "deleting items from the posted receive queue". Assumed: one cycle each.
    pub unlink_words: u64,
    /// Links that are written to append an item: of the free places, of the item before. Section 3.2: "adding items
    /// to". Assumed: one cycle each; the item's own words come on top.
    pub link_words: u64,
}

impl Steps {
    /// What is derived above. Assumed: a cycle for each step and word; which steps there are: section 3.2.
    pub const DERIVED: Self = Self {
        // Assumed: a cycle; the step: section 5.4.
        hear: 1,
        // Assumed: a cycle; the step: section 3.2.
        pull: 1,
        // Assumed: a cycle; the step: section 3.2.
        address: 1,
        // Assumed: address and length.
        command_words: 2,
        // Assumed: whose item, and how much.
        event_words: 2,
        // Assumed: offset and threshold.
        update_words: 2,
        // Assumed: three links, a cycle each.
        unlink_words: 3,
        // Assumed: two links, a cycle each.
        link_words: 2,
    };

    /// With four cycles from `done` to the next header instead. Fitted: to the paper's 19, 6 and 2.3 % over ideal
    /// hardware of 24 cycles and 8 an item (section 6.1), to show beside what is derived. No card has it.
    pub const FITTED: Self = Self { pull: 3, ..Self::DERIVED };

    /// From the cycle in which `done` is heard to the one in which the next header's first word is passed, where
    /// nothing else is to be done.
    #[must_use]
    pub const fn turnaround(&self) -> u64 {
        self.hear + self.pull
    }

    /// From the cycle in which a result's last word is heard until it is commanded and told, and that cycle.
    pub(super) const fn result(&self) -> u64 {
        1 + self.address + self.command_words + self.event_words
    }

    /// To append an item that lies in local memory.
    #[must_use]
    pub const fn append(&self) -> u64 {
        self.link_words + WORDS as u64
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            // Section 3.2: "two or three".
            cache_items: 2,
            // Tables 2 and 3. Assumed: the match unit's memory is as far as the processors'.
            memory_latency: 10,
            // Assumed: two items.
            fifo_words: 16,
            steps: Steps::DERIVED,
            spill_latency: 0,
            spill_interval: WORDS as u64,
        }
    }
}

impl Timing {
    /// When an item is here that has so many spilled items before it.
    pub(super) const fn spill_cycles(&self, before: usize) -> u64 {
        self.spill_latency.saturating_add(self.spill_interval.saturating_mul(before as u64))
    }
}
