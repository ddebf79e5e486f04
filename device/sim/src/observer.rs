//! What a simulation shows of itself on demand: a timeline of every stage, a capture of links.

use std::collections::BTreeMap;
use std::io::{self, Write};

use niclab_model::fabric::Delivery;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::platform::ledger::StageRecord;
use niclab_model::time::Time;
use niclab_observe::capture::arrivals;
use niclab_observe::timeline::Owner;
use niclab_observe::{Capture, Fate, Heading, Timeline};

/// Most stages between two looks at a ledger, that is in one event. What is more is counted as lost.
const MAX_STAGES: usize = 64 * 1024;

type Out<'a> = Box<dyn Write + 'a>;

/// A frame that is to be captured at its time.
struct Seen {
    node: u16,
    heading: Heading,
    frame: SharedFrame,
    fate: Fate,
}

/// Writes what happens. The first failure to write ends it, and [`Observer::finish`] tells of it.
pub struct Observer<'a> {
    timeline: Option<Timeline<Out<'a>>>,
    capture: Option<Capture<Out<'a>>>,
    /// Frames that are not captured yet, so that the capture is in the order of model time: the simulator goes on from
    /// node to node within a window of time.
    coming: BTreeMap<(Time, u64), Seen>,
    order: u64,
    failure: Option<io::Error>,
}

impl<'a> Observer<'a> {
    /// An observer of nodes with these names, who writes what has a place to be written to.
    ///
    /// # Errors
    /// What a writer says.
    pub fn new(names: &[String], timeline: Option<Out<'a>>, capture: Option<Out<'a>>) -> io::Result<Self> {
        Ok(Self {
            timeline: timeline.map(|out| Timeline::new(out, names)).transpose()?,
            capture: capture.map(|out| Capture::new(out, names)).transpose()?,
            coming: BTreeMap::new(),
            order: 0,
            failure: None,
        })
    }

    /// How many stages a ledger is to keep from one event to the next: none where no timeline is wanted.
    pub fn max_stages(&self) -> usize {
        if self.timeline.is_some() { MAX_STAGES } else { 0 }
    }

    /// Takes what a ledger has kept.
    pub fn on_stages(&mut self, owner: Owner, take: impl FnOnce() -> (Vec<StageRecord>, u64)) {
        let Some(timeline) = &mut self.timeline else { return };
        let (stages, lost) = take();
        timeline.add_lost(lost);
        let written = stages.iter().try_for_each(|stage| timeline.add(owner, stage));
        self.fail(written);
    }

    /// A node hands a frame to its link, which may drop it.
    pub fn on_sent(&mut self, at: Time, node: u16, frame: &SharedFrame, is_dropped: bool) {
        if self.capture.is_none() {
            return;
        }
        let fate = if is_dropped { Fate::Dropped } else { Fate::Passed };
        self.see(at, node, Heading::ToSwitch, frame.clone(), fate);
    }

    /// A frame leaves the switch at `at` for the link of `node`, from which it comes as `deliveries` say.
    pub fn on_forwarded(&mut self, at: Time, node: u16, frame: &SharedFrame, deliveries: &[Delivery]) {
        if self.capture.is_none() {
            return;
        }
        for (at, frame, fate) in arrivals(at, frame, deliveries) {
            self.see(at, node, Heading::ToNode, frame, fate);
        }
    }

    fn see(&mut self, at: Time, node: u16, heading: Heading, frame: SharedFrame, fate: Fate) {
        self.order += 1;
        self.coming.insert((at, self.order), Seen { node, heading, frame, fate });
    }

    /// Model time has come to `now`: nothing earlier follows.
    pub fn on_time(&mut self, now: Time) {
        while let Some(first) = self.coming.first_entry().filter(|first| first.key().0 < now) {
            let ((at, _), seen) = first.remove_entry();
            let Some(capture) = &mut self.capture else { return };
            let Seen { node, heading, frame, fate } = seen;
            let written = capture.frame(node.into(), heading, at, &frame, fate);
            self.fail(written);
        }
    }

    fn fail(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.failure.get_or_insert(error);
            (self.timeline, self.capture) = (None, None);
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The first failure of a writer.
    pub fn finish(mut self) -> io::Result<()> {
        self.on_time(Time::from_ps(u64::MAX));
        self.failure.map_or(Ok(()), Err)?;
        self.timeline.map(Timeline::finish).transpose()?;
        self.capture.map(Capture::finish).transpose()?;
        Ok(())
    }
}
