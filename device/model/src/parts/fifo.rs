//! A FIFO RAM that pointer memory splits into up to eight queues of configurable size (Fröning, Litz, Brüning 2007,
//! sections 3.1 and 3.2).
//!
//! Times are computed analytically, without ticks: a packet that was taken frees its words at a known instant, and a
//! packet that needs room gets the instant when there is enough.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use thiserror::Error;

use crate::time::Time;

/// Queues of one RAM (section 3.1: "up to eight queues").
pub const QUEUES: usize = 8;

/// Why a queue cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FifoError {
    /// The number is at least [`QUEUES`], or the queue is open.
    #[error("queue {queue} of the FIFO RAM does not exist or is in use")]
    BadQueue {
        /// The requested queue.
        queue: usize,
    },
    /// A queue without words cannot hold a packet.
    #[error("a queue of the FIFO RAM needs at least one word")]
    Empty,
    /// The RAM has no contiguous free range of this length.
    #[error(
        "a FIFO RAM of {ram_words} words has no {words} contiguous free words; make other queues smaller"
    )]
    NoSpace {
        /// The requested words.
        words: usize,
        /// Words of the RAM.
        ram_words: usize,
    },
}

/// A packet in a queue, without its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    /// Its words in the RAM.
    pub words: usize,
    /// When its last word was written.
    pub ready: Time,
    /// The owner's data for this packet.
    pub note: T,
}

#[derive(Clone, Debug)]
struct Queue<T> {
    base: usize,
    size: usize,
    /// Offset from `base` of the oldest word.
    read: usize,
    packets: VecDeque<Packet<T>>,
    /// Packets that were taken, and when their words become free.
    leaving: VecDeque<(Time, usize)>,
    leaving_words: usize,
}

/// The RAM and its pointer memory. `T` is kept with each packet.
#[derive(Clone, Debug)]
pub struct FifoRam<T> {
    ram: Vec<u64>,
    /// Free words of each queue; zero for a closed queue. Contiguous, because a shell reads them at every step.
    free: [usize; QUEUES],
    queues: [Option<Queue<T>>; QUEUES],
}

impl<T: Copy> FifoRam<T> {
    /// A RAM of `ram_words` words of 64 bits and no queue.
    pub fn new(ram_words: usize) -> Self {
        Self { ram: vec![0; ram_words], free: [0; QUEUES], queues: [const { None }; QUEUES] }
    }

    /// Allocates `words` of the RAM to a queue.
    ///
    /// # Errors
    /// If the queue does not exist or is open, or if no contiguous range is free.
    pub fn open(&mut self, queue: usize, words: usize) -> Result<(), FifoError> {
        if words == 0 {
            return Err(FifoError::Empty);
        }
        if !matches!(self.queues.get(queue), Some(None)) {
            return Err(FifoError::BadQueue { queue });
        }
        let no_space = FifoError::NoSpace { words, ram_words: self.ram.len() };
        let base = self.first_fit(words).ok_or(no_space)?;
        self.queues[queue] = Some(Queue {
            base,
            size: words,
            read: 0,
            packets: VecDeque::new(),
            leaving: VecDeque::new(),
            leaving_words: 0,
        });
        self.free[queue] = words;
        Ok(())
    }

    /// Frees the queue's words. Returns the number of its packets.
    pub fn close(&mut self, queue: usize) -> usize {
        if let Some(free) = self.free.get_mut(queue) {
            *free = 0;
        }
        self.queues.get_mut(queue).and_then(Option::take).map_or(0, |queue| queue.packets.len())
    }

    /// Whether a packet of `words`, at least one, fits after the packets in the queue.
    pub fn accepts(&self, queue: usize, words: usize) -> bool {
        self.free.get(queue).is_some_and(|&free| words.max(1) <= free)
    }

    /// When there is room for a packet of `words` that is ready at `ready`, given the packets that are leaving.
    pub fn room_at(&mut self, queue: usize, words: usize, ready: Time) -> Time {
        let Some(&free) = self.free.get(queue) else { return ready };
        let Some(queue) = self.queue_mut(queue) else { return ready };
        let mut room = ready;
        while let Some(&(at, left)) = queue.leaving.front() {
            let is_full = queue.leaving_words + words > free;
            if at > room && !is_full {
                break;
            }
            room = room.max(at);
            queue.leaving_words -= left;
            queue.leaving.pop_front();
        }
        room
    }

    /// Writes a packet whose last word arrives at `ready`. Returns false, and changes nothing, if it does not fit.
    pub fn push(&mut self, queue: usize, words: &[u64], ready: Time, note: T) -> bool {
        if !self.accepts(queue, words.len()) {
            return false;
        }
        let Some(free) = self.free.get_mut(queue) else { return false };
        let Some(queue) = self.queues.get_mut(queue).and_then(Option::as_mut) else { return false };
        let ram = &mut self.ram[queue.base..queue.base + queue.size];
        let mut write = (queue.read + queue.size - *free) % queue.size;
        for &word in words {
            ram[write] = word;
            write = if write + 1 == queue.size { 0 } else { write + 1 };
        }
        *free -= words.len();
        queue.packets.push_back(Packet { words: words.len(), ready, note });
        true
    }

    /// The oldest packet in the queue.
    pub fn front(&self, queue: usize) -> Option<&Packet<T>> {
        self.queue(queue)?.packets.front()
    }

    /// Packets in the queue.
    pub fn len(&self, queue: usize) -> usize {
        self.queue(queue).map_or(0, |queue| queue.packets.len())
    }

    /// Takes the oldest packet and copies its words to `out`, up to its length. The caller reports by
    /// [`FifoRam::leave`] when its room becomes free.
    pub fn take(&mut self, queue: usize, out: &mut [u64]) -> Option<Packet<T>> {
        let free = self.free.get_mut(queue)?;
        let queue = self.queues.get_mut(queue)?.as_mut()?;
        let packet = queue.packets.pop_front()?;
        let ram = &self.ram[queue.base..queue.base + queue.size];
        let mut read = queue.read;
        for word in out.iter_mut().take(packet.words) {
            *word = ram[read];
            read = if read + 1 == queue.size { 0 } else { read + 1 };
        }
        queue.read = (queue.read + packet.words) % queue.size;
        *free += packet.words;
        Some(packet)
    }

    /// Keeps `words` of the queue occupied until `at`: the words of a packet just taken, or of one that passes
    /// through.
    pub fn leave(&mut self, queue: usize, words: usize, at: Time) {
        if let Some(queue) = self.queue_mut(queue) {
            queue.leaving.push_back((at, words));
            queue.leaving_words += words;
        }
    }

    fn queue(&self, queue: usize) -> Option<&Queue<T>> {
        self.queues.get(queue)?.as_ref()
    }

    fn queue_mut(&mut self, queue: usize) -> Option<&mut Queue<T>> {
        self.queues.get_mut(queue)?.as_mut()
    }

    /// Base of the first free range of `words`.
    fn first_fit(&self, words: usize) -> Option<usize> {
        let mut taken: Vec<_> = self.queues.iter().flatten().map(|queue| (queue.base, queue.size)).collect();
        taken.sort_unstable();
        let mut base = 0;
        for (other, size) in taken {
            if other - base >= words {
                break;
            }
            base = other + size;
        }
        (base.checked_add(words)? <= self.ram.len()).then_some(base)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ps: u64) -> Time {
        Time::from_ps(ps)
    }

    #[test]
    fn closed_queues_make_their_words_available_again() {
        let mut ram = FifoRam::<()>::new(128);
        for queue in 0..QUEUES {
            assert_eq!(ram.open(queue, 16), Ok(()));
        }
        assert_eq!(ram.open(0, 16), Err(FifoError::BadQueue { queue: 0 }));
        assert_eq!(ram.open(8, 16), Err(FifoError::BadQueue { queue: 8 }));
        ram.close(3);
        assert_eq!(ram.open(3, 17), Err(FifoError::NoSpace { words: 17, ram_words: 128 }));
        ram.close(4);
        assert_eq!(ram.open(3, 32), Ok(()));
        assert_eq!(ram.open(4, 0), Err(FifoError::Empty));
        assert_eq!(ram.open(4, usize::MAX), Err(FifoError::NoSpace { words: usize::MAX, ram_words: 128 }));
    }

    #[test]
    fn room_comes_when_packets_have_left() {
        let mut ram = FifoRam::new(20);
        ram.open(0, 20).unwrap();
        assert!(ram.push(0, &[1; 10], at(1), ()));
        assert!(ram.push(0, &[2; 10], at(2), ()));
        assert!(!ram.accepts(0, 1));
        let mut out = [0; 10];
        ram.take(0, &mut out).unwrap();
        ram.leave(0, 10, at(100));
        ram.take(0, &mut out).unwrap();
        ram.leave(0, 10, at(200));
        assert_eq!(ram.room_at(0, 10, at(50)), at(100));
        assert!(ram.push(0, &[3; 10], at(110), ()));
        assert_eq!(ram.room_at(0, 2, at(110)), at(200));
        assert_eq!(ram.room_at(0, 2, at(300)), at(300));
    }

    proptest! {
        /// Compared with one plain list for each queue: no word is lost, reordered or changed, and sizes stay within
        /// bounds.
        #[test]
        fn queues_keep_order_and_content(
            steps in prop::collection::vec((0..QUEUES, prop::option::of(1..=10_usize)), 0..400),
            sizes in prop::collection::vec(10..=16_usize, QUEUES),
        ) {
            let mut ram = FifoRam::new(128);
            let mut lists: [VecDeque<Vec<u64>>; QUEUES] = Default::default();
            for (queue, &size) in sizes.iter().enumerate() {
                ram.open(queue, size).unwrap();
            }
            let mut next = 0;
            for (queue, push) in steps {
                if let Some(words) = push {
                    let packet: Vec<u64> = (next..next + words as u64).collect();
                    next += words as u64;
                    let used: usize = lists[queue].iter().map(Vec::len).sum();
                    let fits = used + words <= sizes[queue];
                    prop_assert_eq!(ram.push(queue, &packet, at(next), words), fits);
                    if fits {
                        lists[queue].push_back(packet);
                    }
                } else {
                    let mut out = [0; 10];
                    let taken = ram.take(queue, &mut out);
                    prop_assert_eq!(taken.map(|packet| packet.note), taken.map(|packet| packet.words));
                    let taken = taken.map(|packet| out[..packet.words].to_vec());
                    prop_assert_eq!(taken, lists[queue].pop_front());
                }
                prop_assert_eq!(ram.len(queue), lists[queue].len());
            }
        }
    }
}
