//! Messages in both directions at the same time, as fast as possible: the message rate.

use std::time::Instant;

use super::{Buffers, End, Outcome, Step};
use crate::Failure;
use crate::channel::{Batches, Channel, receive, try_receive};
use crate::meeting::barrier;

/// Polls without progress before an end waits instead of polling.
const IDLE_LOOKS: u32 = 4096;

/// Runs the step: an exchange to warm up, then the measured one; the first end gets the outcome.
///
/// # Errors
///
/// Those of the channel.
pub fn run(
    channel: &mut impl Channel,
    step: &Step,
    buffers: &mut Buffers,
) -> Result<Option<Outcome>, Failure> {
    exchange(channel, step, 0, step.warmup, buffers)?;
    barrier(channel, step.number)?;
    let began = Instant::now();
    exchange(channel, step, step.warmup, step.iterations, buffers)?;
    barrier(channel, step.number)?;
    let elapsed = began.elapsed();
    let outcome = Outcome { messages: 2 * step.iterations, elapsed, ..Outcome::default() };
    Ok((step.end == End::First).then_some(outcome))
}

/// Sends and receives `count` messages, numbered from `after + 1`, interleaved in any order.
fn exchange(
    channel: &mut impl Channel,
    step: &Step,
    after: u64,
    count: u64,
    buffers: &mut Buffers,
) -> Result<(), Failure> {
    let (outgoing, incoming) = buffers.of(step);
    let (mut sent, mut received, mut idle) = (0, 0, 0);
    let mut batches = Batches::begin(channel, step.batch);
    while sent < count || received < count {
        let before = sent + received;
        let number = after + sent + 1;
        if sent < count && channel.try_send_pattern(outgoing, step.data(number), step.flags.flags(number))? {
            sent += 1;
            batches.count(channel);
        }
        let due = step.data(after + received + 1);
        if received < count
            && let Some(tag) = try_receive(channel, incoming)?
        {
            tag.expect(due, channel.peer())?;
            received += 1;
        }
        if sent + received != before {
            idle = 0;
            continue;
        }
        if idle == 0 {
            // Nothing more is ready.
            batches.next(channel);
        }
        idle += 1;
        std::hint::spin_loop();
        if idle < IDLE_LOOKS {
            continue;
        }
        // A wait has a time limit and notices a dead device. While messages are due, this end can be blocked only
        // because the peer does not receive; the peer does so at the latest when it sends. Afterwards this end waits
        // only for room.
        idle = 0;
        if received < count {
            receive(channel, incoming)?.expect(due, channel.peer())?;
            received += 1;
        } else {
            channel.send_pattern(outgoing, step.data(number), step.flags.flags(number))?;
            sent += 1;
        }
    }
    channel.end_batch();
    Ok(())
}
