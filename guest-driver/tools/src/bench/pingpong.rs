//! One message to the peer and one back, repeatedly: the round-trip time of each pair.

use std::time::{Duration, Instant};

use super::{Buffers, End, Latency, Outcome, Step, room_for};
use crate::Failure;
use crate::channel::{Channel, receive};

/// Runs the step; the first end gets the outcome.
///
/// # Errors
///
/// Those of the channel.
pub fn run(
    channel: &mut impl Channel,
    step: &Step,
    buffers: &mut Buffers,
) -> Result<Option<Outcome>, Failure> {
    match step.end {
        End::First => measure(channel, step, buffers).map(Some),
        End::Second => answer(channel, step, buffers).map(|()| None),
    }
}

fn measure(channel: &mut impl Channel, step: &Step, buffers: &mut Buffers) -> Result<Outcome, Failure> {
    let (outgoing, incoming) = buffers.of(step);
    // Allocated here, so that the loop does not allocate.
    let mut samples = room_for(step.iterations)?;
    channel.begin_exchange();
    let mut last = Instant::now();
    for number in 1..=step.warmup + step.iterations {
        channel.send_pattern(outgoing, step.data(number), step.flags.flags(number))?;
        receive(channel, incoming)?.expect(step.data(number), channel.peer())?;
        let now = Instant::now();
        if number > step.warmup {
            samples.push(now.duration_since(last).as_nanos() as u64);
        }
        last = now;
    }
    channel.end_batch();
    let elapsed = Duration::from_nanos(samples.iter().sum());
    Ok(Outcome {
        messages: 2 * step.iterations,
        elapsed,
        round_trip: Latency::of(&mut samples),
        ..Outcome::default()
    })
}

fn answer(channel: &mut impl Channel, step: &Step, buffers: &mut Buffers) -> Result<(), Failure> {
    let (outgoing, incoming) = buffers.of(step);
    channel.begin_exchange();
    for number in 1..=step.warmup + step.iterations {
        receive(channel, incoming)?.expect(step.data(number), channel.peer())?;
        channel.send_pattern(outgoing, step.data(number), step.flags.flags(number))?;
    }
    channel.end_batch();
    Ok(())
}
