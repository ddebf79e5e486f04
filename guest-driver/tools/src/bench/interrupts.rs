//! A ping-pong whose receiver sleeps until the interrupt of each k-th message: the number of interrupts must be exact.

use std::time::{Duration, Instant};

use niclab_user::Device;
use serde::Serialize;

use super::{Buffers, End, Step};
use crate::Failure;
use crate::channel::{Interrupting, Tag, receive};
use crate::counters::{Counters, InterruptLine};
use crate::meeting::barrier;

/// Interrupts of one run, as program, kernel and device counted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Account {
    /// By the formula: one for each k-th message received.
    pub expected: u64,
    /// By the program, with `poll` and `read` on the character device.
    pub program: u64,
    /// By the kernel: the NIC's line in `/proc/interrupts`.
    pub kernel: u64,
    /// By the device.
    pub device: u64,
}

impl Account {
    /// Fails unless all counts are as expected.
    ///
    /// # Errors
    ///
    /// [`Failure::Interrupts`].
    pub fn check(&self) -> Result<(), Failure> {
        let counts =
            [("the program", self.program), ("/proc/interrupts", self.kernel), ("the device", self.device)];
        match counts.into_iter().find(|&(_, count)| count != self.expected) {
            None => Ok(()),
            Some((who, count)) => {
                Err(Failure::Interrupts { expected: self.expected, what: format!("{who} counted {count}") })
            }
        }
    }
}

/// Runs the step and counts this node's interrupts. The port must spin: a sleeping receiver requests additional
/// interrupts.
///
/// # Errors
///
/// Those of the channel; [`Failure::NoInterruptLine`].
pub fn run(
    channel: &mut impl Interrupting,
    device: &Device,
    step: &Step,
    buffers: &mut Buffers,
    timeout: Duration,
) -> Result<Account, Failure> {
    let line = InterruptLine::of(device)?;
    // Reading the device's counters sends it requests, so it happens before and after the kernel's count is taken.
    let device_before = Counters::read(device)?;
    let kernel_before = line.count()?;
    // From here on the peer may send.
    barrier(channel, step.number)?;
    let mut sleeper = Sleeper { taken: 0, timeout };
    let (outgoing, incoming) = buffers.of(step);
    for number in 1..=step.iterations {
        if step.end == End::First {
            channel.send_pattern(outgoing, step.data(number), step.flags.flags(number))?;
        }
        let tag = sleeper.receive(channel, incoming, step.flags.interrupts(number))?;
        tag.expect(step.data(number), channel.peer())?;
        if step.end == End::Second {
            channel.send_pattern(outgoing, step.data(number), step.flags.flags(number))?;
        }
    }
    let kernel_after = line.count()?;
    let device_after = Counters::read(device)?;
    let interrupts = step.iterations.checked_div(step.flags.interrupt_every).unwrap_or(0);
    Ok(Account {
        expected: interrupts,
        program: sleeper.taken + channel.wait_interrupts(Duration::ZERO)?,
        kernel: kernel_after.wrapping_sub(kernel_before),
        device: device_after.interrupts.wrapping_sub(device_before.interrupts),
    })
}

/// Receives, and sleeps for the interrupt of a message that raises one.
struct Sleeper {
    /// Interrupts counted so far.
    taken: u64,
    timeout: Duration,
}

impl Sleeper {
    fn receive(
        &mut self,
        channel: &mut impl Interrupting,
        buffer: &mut [u8],
        interrupts: bool,
    ) -> Result<Tag, Failure> {
        let deadline = Instant::now() + self.timeout;
        let mut woken = !interrupts;
        while !woken {
            let left = deadline.saturating_duration_since(Instant::now());
            let count = channel.wait_interrupts(left)?;
            self.taken += count;
            // Without its interrupt the message is still received, after the timeout. The account then shows the
            // difference.
            woken = count > 0 || left.is_zero();
        }
        receive(channel, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_differing_interrupt_count_is_named() {
        let account = Account { expected: 10, program: 10, kernel: 10, device: 10 };
        account.check().expect("all equal");
        let text = Account { kernel: 11, ..account }.check().expect_err("one too many").to_string();
        assert!(text.contains("10 expected") && text.contains("/proc/interrupts counted 11"), "{text}");
    }
}
