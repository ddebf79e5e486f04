//! Lockstep grants and reports in the completer pages ([`crate::shell::lockstep`]).

use niclab_abi::bar::{
    COMPLETER_REPORT_OFFSET, COMPLETER_TURN_OFFSET, COMPLETER_TURN_TIME_OFFSET, COMPLETER_WAKE_OFFSET,
    REPORT_ACTED, REPORT_BITS, REPORT_IDLE, REPORT_READY, TURN_OVER,
};

use super::Pages;

/// What a program did with its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// It waits for its first grant.
    Began,
    /// One operation.
    Acted,
    /// It found nothing to do.
    Nothing,
}

/// A program's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The number of the grant.
    pub number: u64,
    /// What it did.
    pub did: Did,
    /// Model time, in picoseconds, before which it wants no grant, if it wants one even without an arrival.
    pub wake_ps: Option<u64>,
}

/// Whether the program of `port` stored a report since the last poll.
pub fn has_report(pages: &Pages, port: u32) -> bool {
    let report = pages.load(port, COMPLETER_REPORT_OFFSET);
    pages.ports.get(port as usize).is_some_and(|view| view.report != report)
}

/// The report of the program of `port`, if it stored one since the last poll.
pub fn take_report(pages: &mut Pages, port: u32) -> Option<Report> {
    let report = pages.load(port, COMPLETER_REPORT_OFFSET);
    let wake_ps = Some(pages.load(port, COMPLETER_WAKE_OFFSET)).filter(|wake_ps| *wake_ps != 0);
    let view = pages.ports.get_mut(port as usize).filter(|view| view.report != report)?;
    view.report = report;
    let did = match report & ((1 << REPORT_BITS) - 1) {
        REPORT_READY => Did::Began,
        REPORT_ACTED => Did::Acted,
        REPORT_IDLE => Did::Nothing,
        _ => return None,
    };
    Some(Report { number: report >> REPORT_BITS, did, wake_ps })
}

/// The number of grants through `port`.
pub fn count(pages: &Pages, port: u32) -> u64 {
    pages.ports.get(port as usize).map_or(0, |view| view.grants)
}

/// Gives the program of `port` the grant.
pub fn give(pages: &mut Pages, port: u32, number: u64, model_ps: u64) {
    pages.store(port, COMPLETER_TURN_TIME_OFFSET, model_ps);
    pages.store(port, COMPLETER_TURN_OFFSET, number);
    pages.ports.iter_mut().skip(port as usize).take(1).for_each(|view| view.grants = number);
}

/// Tells the program of `port` that there are no grants after this number.
pub fn end(pages: &Pages, port: u32, number: u64) {
    pages.store(port, COMPLETER_TURN_OFFSET, number | TURN_OVER);
}
