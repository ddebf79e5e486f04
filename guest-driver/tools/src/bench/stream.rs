//! Messages in one direction, as fast as possible; the receiver confirms the last one.

use std::time::{Duration, Instant};

use niclab_user::slices::Flags;

use super::{Buffers, End, Outcome, Step};
use crate::Failure;
use crate::channel::{Channel, MessageKind, Tag, receive};

/// Runs the step: a warm-up stream, if there is one, then the measured stream. The first end sends and gets the
/// outcome.
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
        End::First => {
            if step.warmup > 0 {
                send(channel, step, 1..=step.warmup, buffers)?;
            }
            let elapsed = send(channel, step, step.warmup + 1..=step.warmup + step.iterations, buffers)?;
            Ok(Some(Outcome { messages: step.iterations, elapsed, ..Outcome::default() }))
        }
        End::Second => {
            if step.warmup > 0 {
                consume(channel, step, 1..=step.warmup, buffers)?;
            }
            consume(channel, step, step.warmup + 1..=step.warmup + step.iterations, buffers)?;
            Ok(None)
        }
    }
}

type Numbers = std::ops::RangeInclusive<u64>;

/// Sends the messages with `numbers`. Returns the time until the last one is confirmed.
fn send(
    channel: &mut impl Channel,
    step: &Step,
    numbers: Numbers,
    buffers: &mut Buffers,
) -> Result<Duration, Failure> {
    let (outgoing, incoming) = buffers.of(step);
    let began = Instant::now();
    let last = *numbers.end();
    for number in numbers {
        channel.send_pattern(outgoing, step.data(number), step.flags.flags(number))?;
    }
    receive(channel, incoming)?.expect(done(step, last), channel.peer())?;
    Ok(began.elapsed())
}

fn consume(
    channel: &mut impl Channel,
    step: &Step,
    numbers: Numbers,
    buffers: &mut Buffers,
) -> Result<(), Failure> {
    let (_, incoming) = buffers.of(step);
    let last = *numbers.end();
    for number in numbers {
        receive(channel, incoming)?.expect(step.data(number), channel.peer())?;
    }
    channel.send(&[], done(step, last), Flags::NONE)
}

fn done(step: &Step, last: u64) -> Tag {
    Tag { kind: MessageKind::Done, step: step.number, bytes: 0, number: last }
}
