//! The reference for the walk: the list manager without automata, with which each walk is compared.

use alloc::vec::Vec;

use super::{DONE, FAILED, ListManager, Said, Walks, Went, reference};

impl ListManager {
    /// The reference, in the present state. It has the lists only during the comparison.
    pub(super) fn beside(&mut self) -> Self {
        let lists = core::mem::take(&mut self.lists);
        let beside = Self {
            unit: self.unit.beside(),
            walks: Walks::default(),
            lists: Vec::new(),
            fifos: self.fifos.clone(),
            cache: self.cache.clone(),
            changes: self.changes.clone(),
            headers: self.headers.clone(),
            job: self.job.clone(),
            outcomes: self.outcomes.clone(),
            ..*self
        };
        self.lists = lists;
        beside
    }

    /// Compares this list manager with the reference. A header that is over was not removed yet.
    pub(super) fn check_beside(&mut self, mut beside: Self, ends: u64, went: &Option<Went>) {
        if self.cycle == beside.cycle {
            return;
        }
        let is_over = matches!(went, Some(Went::Over(_)));
        core::mem::swap(&mut self.lists, &mut beside.lists);
        let most = self.cycle;
        while beside.cycle < most && (is_over || beside.sent() != self.sent()) {
            assert_eq!(beside.advance(ends - beside.cycle), Ok(()), "beside the walk");
        }
        let phase = beside.phase();
        core::mem::swap(&mut self.lists, &mut beside.lists);
        if is_over {
            self.hear_beside(&mut beside);
        } else {
            assert_eq!(phase, self.phase(), "where the walk ended");
        }
        assert_eq!((beside.cycle, beside.sent()), (self.cycle, self.sent()), "the walk's cycles");
        assert!(beside.fifos.input().eq(self.fifos.input()), "the walk's input");
        assert!(beside.fifos.output().eq(self.fifos.output()), "the walk's output");
        self.unit.check_unit_beside(beside.unit);
    }

    /// Has the reference receive the last word, and compares the ends of the header.
    fn hear_beside(&self, beside: &mut Self) {
        let heard = beside.fifos.take_output(beside.cycle);
        let (Some(other), Some(job)) = (&mut beside.job, &self.job) else { panic!("the header is over") };
        let is_match = job.said != Said::Nothing;
        assert_eq!(heard, Some(if is_match { DONE } else { FAILED }), "the walk's last word");
        other.verdicts += usize::from(!is_match);
        if is_match {
            assert_eq!((other.said, other.result_at), (job.said, job.result_at), "the walk's result");
        }
        let (now, index) = reference(self.cycle, job);
        assert_eq!((now, index), reference(beside.cycle, other), "what the walk did to the cache");
        assert_eq!(beside.cache.phase(now, index), self.cache.phase(now, index), "the walk's cache");
    }

    /// The progress of a header.
    fn sent(&self) -> Option<(usize, usize, u64)> {
        self.job.as_ref().map(|job| (job.sent, job.verdicts, job.began))
    }
}
