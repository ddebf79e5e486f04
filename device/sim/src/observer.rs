//! Output of a simulation on demand: a timeline of every stage, and a capture of all links.

use std::collections::BTreeMap;
use std::io::{self, Write};

use niclab_model::fabric::Delivery;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::platform::ledger::StageRecord;
use niclab_model::time::Time;
use niclab_observe::capture::arrivals;
use niclab_observe::timeline::Owner;
use niclab_observe::{Capture, Fate, Heading, Timeline};

/// Maximum number of stages that a ledger keeps in one event. Further ones are counted as lost.
const MAX_STAGES: usize = 64 * 1024;

type Out<'a> = Box<dyn Write + 'a>;

/// A frame to be captured at its time.
struct Seen {
    node: u16,
    heading: Heading,
    frame: SharedFrame,
    fate: Fate,
}

/// Writes the output. The first write error ends it, and [`Observer::finish`] returns the error.
pub struct Observer<'a> {
    timeline: Option<Timeline<Out<'a>>>,
    capture: Option<Capture<Out<'a>>>,
    /// Frames that are not captured yet. They bring the capture into the order of model time, because the simulator
    /// goes from node to node within a window of time.
    coming: BTreeMap<(Time, u64), Seen>,
    order: u64,
    failure: Option<io::Error>,
}

impl<'a> Observer<'a> {
    /// An observer of nodes with these names. It writes only the outputs that are given.
    ///
    /// # Errors
    /// The error of a writer.
    pub fn new(names: &[String], timeline: Option<Out<'a>>, capture: Option<Out<'a>>) -> io::Result<Self> {
        Ok(Self {
            timeline: timeline.map(|out| Timeline::new(out, names)).transpose()?,
            capture: capture.map(|out| Capture::new(out, names)).transpose()?,
            coming: BTreeMap::new(),
            order: 0,
            failure: None,
        })
    }

    /// Number of stages that a ledger must keep from one event to the next: 0 without a timeline.
    pub fn max_stages(&self) -> usize {
        if self.timeline.is_some() { MAX_STAGES } else { 0 }
    }

    /// Writes the stages that a ledger has kept.
    pub fn on_stages(&mut self, owner: Owner, take: impl FnOnce() -> (Vec<StageRecord>, u64)) {
        let Some(timeline) = &mut self.timeline else { return };
        let (stages, lost) = take();
        timeline.add_lost(lost);
        let written = stages.iter().try_for_each(|stage| timeline.add(owner, stage));
        self.fail(written);
    }

    /// A node sends a frame on its link, which may drop it.
    pub fn on_sent(&mut self, at: Time, node: u16, frame: &SharedFrame, is_dropped: bool) {
        if self.capture.is_none() {
            return;
        }
        let fate = if is_dropped { Fate::Dropped } else { Fate::Passed };
        self.see(at, node, Heading::ToSwitch, frame.clone(), fate);
    }

    /// A frame leaves the switch at `at` on the link of `node`. `deliveries` are its arrivals.
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

    /// Model time has reached `now`. No earlier frame follows.
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

    /// Writes the remaining output.
    ///
    /// # Errors
    /// The first error of a writer.
    pub fn finish(mut self) -> io::Result<()> {
        self.on_time(Time::from_ps(u64::MAX));
        self.failure.map_or(Ok(()), Err)?;
        self.timeline.map(Timeline::finish).transpose()?;
        self.capture.map(Capture::finish).transpose()?;
        Ok(())
    }
}
