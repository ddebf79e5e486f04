//! Messages in bursts that have room: what sending one takes the program, until it can do something else.

use std::time::{Duration, Instant};

use niclab_user::slices::Flags;

use super::{Buffers, End, Latency, Outcome, Step};
use crate::Failure;
use crate::channel::{Channel, Kind, Tag, receive};

/// Messages of a burst, which are timed together: a look at the clock takes as long as some of them. A requester page has as many
/// slots twice.
const BURST: u64 = 8;

/// Runs the step; the first end gets the outcome.
///
/// # Errors
///
/// What the channel says.
pub fn run(
    channel: &mut impl Channel,
    step: &Step,
    buffers: &mut Buffers,
) -> Result<Option<Outcome>, Failure> {
    let (outgoing, incoming) = buffers.of(step);
    let (warmup, bursts) = (step.warmup.div_ceil(BURST), step.iterations.div_ceil(BURST));
    // Allocated before the loop: nothing in it allocates.
    let mut samples = Vec::with_capacity(usize::try_from(bursts).unwrap_or_default());
    for burst in 0..warmup + bursts {
        let numbers = burst * BURST + 1..=(burst + 1) * BURST;
        // The one before is received by then, and all of it has left the card.
        let done = Tag { kind: Kind::Done, step: step.number, bytes: 0, number: burst };
        if step.end == End::Second {
            for number in numbers {
                receive(channel, incoming)?.expect(step.data(number), channel.peer())?;
            }
            channel.send(&[], done, Flags::NONE)?;
            continue;
        }
        let began = Instant::now();
        for number in numbers {
            channel.send_pattern(outgoing, step.data(number), step.flags.flags(number))?;
        }
        let taken = began.elapsed();
        receive(channel, incoming)?.expect(done, channel.peer())?;
        if burst >= warmup {
            samples.push(taken.as_nanos() as u64 / BURST);
        }
    }
    let injection = Latency::of(&mut samples);
    let elapsed = Duration::from_nanos(samples.iter().sum::<u64>() * BURST);
    let outcome = Outcome { messages: bursts * BURST, elapsed, injection, ..Outcome::default() };
    Ok((step.end == End::First).then_some(outcome))
}
