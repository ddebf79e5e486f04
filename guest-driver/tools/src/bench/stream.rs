//! Messages in one direction, as fast as possible; the receiver confirms the last one.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use niclab_user::slices::Flags;

use super::{Buffers, End, Outcome, Step};
use crate::Failure;
use crate::channel::{Batches, Channel, MessageKind, Tag, receive};

/// Received messages whose releases share a doorbell, unless the step says otherwise.
const RELEASED: Option<NonZeroU64> = NonZeroU64::new(16);

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
    let mut batches = Batches::begin(channel, step.batch);
    for number in numbers {
        channel.send_pattern(outgoing, step.data(number), step.flags.flags(number))?;
        batches.count(channel);
    }
    channel.end_batch();
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
    // The sender waits for what is released, so batches are short.
    let mut batches = Batches::begin(channel, step.batch.or(RELEASED));
    for number in numbers {
        receive(channel, incoming)?.expect(step.data(number), channel.peer())?;
        batches.count(channel);
    }
    channel.end_batch();
    channel.send(&[], done(step, last), Flags::NONE)
}

fn done(step: &Step, last: u64) -> Tag {
    Tag { kind: MessageKind::Done, step: step.number, bytes: 0, number: last }
}
