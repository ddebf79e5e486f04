//! The time that a program spends on sending a message, measured in bursts that fit the send window. Two clock reads
//! surround a whole burst, because a clock read costs more than a message in an emulated guest. A burst is a batch,
//! whose doorbell is rung after the second clock read. If the transport rings before, the time includes an exit from
//! the virtual machine. Such bursts count only if there are no others.

use std::time::{Duration, Instant};

use niclab_user::slices::Flags;

use super::{Buffers, End, Injection, Latency, Outcome, Step, room_for};
use crate::Failure;
use crate::channel::{Channel, MessageKind, Tag, receive};

/// Messages in a burst: half the slots of a requester page.
const BURST: u64 = 8;
/// Clock reads for measuring the cost of one.
const LOOKS: usize = 1_001;

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
    let (outgoing, incoming) = buffers.of(step);
    let (warmup, bursts) = (step.warmup.div_ceil(BURST), step.iterations.div_ceil(BURST));
    // Allocated here, so that the loop does not allocate.
    let (mut silent, mut ringing) = (room_for(bursts)?, room_for(bursts)?);
    for burst in 0..warmup + bursts {
        let numbers = burst * BURST + 1..=(burst + 1) * BURST;
        // The peer confirms a burst, so the next one begins with an empty send window.
        let done = Tag { kind: MessageKind::Done, step: step.number, bytes: 0, number: burst };
        if step.end == End::Second {
            for number in numbers {
                receive(channel, incoming)?.expect(step.data(number), channel.peer())?;
            }
            channel.send(&[], done, Flags::NONE)?;
            continue;
        }
        let rung = channel.doorbells();
        channel.begin_batch();
        let began = Instant::now();
        for number in numbers {
            channel.send_pattern(outgoing, step.data(number), step.flags.flags(number))?;
        }
        let taken = began.elapsed().as_nanos() as u64;
        let samples = if channel.doorbells() == rung { &mut silent } else { &mut ringing };
        channel.end_batch();
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

/// Median cost of a clock read in nanoseconds. The time of each burst includes one.
fn clock() -> u64 {
    let mut samples = [0; LOOKS];
    for sample in &mut samples {
        *sample = Instant::now().elapsed().as_nanos() as u64;
    }
    samples.sort_unstable();
    samples[LOOKS / 2]
}
