//! Cycles and sizes of a list manager. Each is from the paper's text, or marked as assumed.

use crate::models::matching::item::WORDS;

/// Cycles and sizes of a list manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Items in the cache, at most three. Section 3.2: "two or three 64 byte items". Two are enough for
    /// [`Self::memory_latency`].
    pub cache_items: usize,
    /// Cycles from a request to the first word from local memory. Tables 2 and 3: memory is ten cycles away from the
    /// processors. Assumed: the match unit's local memory is at the same distance. The paper says only that the cache
    /// covers its round trip.
    pub memory_latency: u64,
    /// Words of the input FIFO. Assumed: two items; the paper gives no depth.
    pub fifo_words: usize,
    /// Steps between two headers, and for changes of a list.
    pub steps: Steps,
    /// Cycles from the start of a header to the first word of the first spilled item. Follows from the bus's prices.
    pub spill_latency: u64,
    /// Cycles from one spilled item to the next. At a header's start all spilled items that it can meet are requested,
    /// one after the other. Follows from the bus's prices.
    pub spill_interval: u64,
}

/// The list manager's steps between two headers, and for changes of a list. It is one sequencer, and executes one step
/// after the other. A step with words of 64 bits takes one cycle for each word, as everything in this unit does. The
/// paper names the steps (section 3.2) but gives no cycles, so each takes the minimum of a clocked step.
///
/// ```text
/// succeeded, offset, length received:  address | DMA command 2 | event 2 | item changed 2 or unlinked 3
/// meanwhile the unit flushes: 7 cycles from its length to its `done`
/// done received:                       hear | pull | the next header's first word is passed to the unit
/// ```
///
/// So a header whose item stays in the list costs 28 cycles, and 8 for each item traversed. A header that uses up its
/// item costs one cycle more. Nothing of this is fitted; [`Steps::FITTED`] shows what would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// To take the unit's last word and see that the unit is done. Section 5.4: "notify the list manager". Assumed: one
    /// cycle.
    pub hear: u64,
    /// To pull the next header's first word out of the header buffer. Section 3.2: "pulls it out of the header buffer
    /// and passes it to the match unit". Assumed: one cycle, and not before the previous header is finished, because
    /// the text has pulling and passing as one act. The words after the first follow as they are passed.
    pub pull: u64,
    /// To add the unit's offset to the start of the item's memory. Section 3.2: "used by the list manager to create the
    /// appropriate DMA commands". Assumed: one cycle.
    pub address: u64,
    /// Words of the DMA command. Assumed: address and length.
    pub command_words: u64,
    /// Words of the event for the host. Section 3.2: "also sends an event". Assumed: which item, and how many bytes.
    pub event_words: u64,
    /// Words of an item that are written back if it has taken a message and stays. Assumed: offset and threshold.
    pub update_words: u64,
    /// Links that are written to remove an item from its list: of the previous item, of the next item, of the free
    /// slots. Section 3.2: "deleting items from the posted receive queue". Assumed: one cycle each.
    pub unlink_words: u64,
    /// Links that are written to append an item: of the free slots, of the previous item. Section 3.2: "adding items
    /// to". Assumed: one cycle each; the item's own words are added.
    pub link_words: u64,
}

impl Steps {
    /// The steps derived above. Assumed: a cycle for each step and word. Section 3.2: which steps there are.
    pub const DERIVED: Self = Self {
        // Assumed: a cycle; the step: section 5.4.
        hear: 1,
        // Assumed: a cycle; the step: section 3.2.
        pull: 1,
        // Assumed: a cycle; the step: section 3.2.
        address: 1,
        // Assumed: address and length.
        command_words: 2,
        // Assumed: which item, and how many bytes.
        event_words: 2,
        // Assumed: offset and threshold.
        update_words: 2,
        // Assumed: three links, a cycle each.
        unlink_words: 3,
        // Assumed: two links, a cycle each.
        link_words: 2,
    };

    /// With four cycles from `done` to the next header instead. Fitted: to the paper's 19, 6 and 2.3 % over ideal
    /// hardware of 24 cycles and 8 for each item (section 6.1), for comparison with the derived steps. No card uses it.
    pub const FITTED: Self = Self { pull: 3, ..Self::DERIVED };

    /// Cycles from receiving `done` to passing the next header's first word, if nothing else has to be done.
    #[must_use]
    pub const fn turnaround(&self) -> u64 {
        self.hear + self.pull
    }

    /// Cycles from receiving a result's last word, including that cycle, until command and event are sent.
    pub(super) const fn result(&self) -> u64 {
        1 + self.address + self.command_words + self.event_words
    }

    /// Cycles to append an item in local memory.
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
            // Tables 2 and 3. Assumed: the match unit's memory is at the processors' distance.
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
    /// Cycles from the header's start until an item arrives that follows `before` spilled items.
    pub(super) const fn spill_cycles(&self, before: usize) -> u64 {
        self.spill_latency.saturating_add(self.spill_interval.saturating_mul(before as u64))
    }
}
