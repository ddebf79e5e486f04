//! Messages in bursts that have room: what sending one takes the program, until it can do something else. A burst is
//! timed as a whole, between two looks at the clock, which an emulated guest pays more for than for a message. Of those
//! in which the device wanted a doorbell the time is that of leaving the virtual machine, so that only the others
//! count, as far as there are any.

use std::time::{Duration, Instant};

use niclab_user::slices::Flags;

use super::{Buffers, End, Injection, Latency, Outcome, Step, room_for};
use crate::Failure;
use crate::channel::{Channel, Kind, Tag, receive};

/// Messages of a burst. A requester page has as many slots twice.
const BURST: u64 = 8;
/// Looks at the clock by which it is known what one takes.
const LOOKS: usize = 1_001;

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
    let (mut silent, mut ringing) = (room_for(bursts)?, room_for(bursts)?);
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
        let rung = channel.doorbells();
        let began = Instant::now();
        for number in numbers {
            channel.send_pattern(outgoing, step.data(number), step.flags.flags(number))?;
        }
        let taken = began.elapsed().as_nanos() as u64;
        let samples = if channel.doorbells() == rung { &mut silent } else { &mut ringing };
        if burst >= warmup {
            samples.push(taken / BURST);
        }
        receive(channel, incoming)?.expect(done, channel.peer())?;
    }
    let is_silent = !silent.is_empty();
    let mut samples = if is_silent { silent } else { ringing };
    let elapsed = Duration::from_nanos(BURST * samples.iter().sum::<u64>());
    let messages = BURST * samples.len() as u64;
    let injection =
        Latency::of(&mut samples).map(|each| Injection { each, is_silent, look_wall_ns: clock() });
    let outcome = Outcome { messages, elapsed, injection, ..Outcome::default() };
    Ok((step.end == End::First).then_some(outcome))
}

/// What a look at the clock takes, in nanoseconds: the median. One stands in the time of each burst.
fn clock() -> u64 {
    let mut samples = [0; LOOKS];
    for sample in &mut samples {
        *sample = Instant::now().elapsed().as_nanos() as u64;
    }
    samples.sort_unstable();
    samples[LOOKS / 2]
}
