//! What the device and the kernel counted: exact integers, read before and after a run.

use std::fs;
use std::path::{Path, PathBuf};

use niclab_user::Device;
use serde::Serialize;

use crate::Failure;

/// Counters of one node's NIC for a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Interrupts raised.
    pub interrupts: u64,
    /// Doorbells rung by the guest.
    pub doorbells: u64,
    /// Posts that the device found by polling, without a doorbell.
    pub doorbells_spared: u64,
}

impl Counters {
    /// Reads the device's current counters.
    ///
    /// # Errors
    ///
    /// [`Failure::Nic`], [`Failure::NoCounter`].
    pub fn read(device: &Device) -> Result<Self, Failure> {
        let all = device.statistics()?;
        let count = |name: &'static str| {
            all.get(name).ok_or_else(|| Failure::NoCounter { device: device.path().to_owned(), name })
        };
        Ok(Self {
            interrupts: count("interrupts")?,
            doorbells: count("doorbells")?,
            doorbells_spared: count("doorbells_spared")?,
        })
    }
}

/// Counts before and after a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Before it.
    pub before: Counters,
    /// After it.
    pub after: Counters,
}

impl Span {
    /// The counts of the run alone.
    pub fn difference(&self) -> Counters {
        Counters {
            interrupts: self.after.interrupts.wrapping_sub(self.before.interrupts),
            doorbells: self.after.doorbells.wrapping_sub(self.before.doorbells),
            doorbells_spared: self.after.doorbells_spared.wrapping_sub(self.before.doorbells_spared),
        }
    }

    /// As six words.
    pub fn to_words(self) -> [u64; 6] {
        let Self { before, after } = self;
        [
            before.interrupts,
            before.doorbells,
            before.doorbells_spared,
            after.interrupts,
            after.doorbells,
            after.doorbells_spared,
        ]
    }

    /// From six words.
    pub fn from_words(words: [u64; 6]) -> Self {
        let [b0, b1, b2, a0, a1, a2] = words;
        let counters =
            |interrupts, doorbells, doorbells_spared| Counters { interrupts, doorbells, doorbells_spared };
        Self { before: counters(b0, b1, b2), after: counters(a0, a1, a2) }
    }
}

/// The line of `/proc/interrupts` on which a NIC interrupts.
#[derive(Clone, Debug)]
pub struct InterruptLine {
    /// The virtio device's name, under which the kernel registered the handler.
    name: String,
}

/// Where the kernel counts interrupts.
const INTERRUPTS: &str = "/proc/interrupts";

impl InterruptLine {
    /// The line of `device`.
    ///
    /// # Errors
    ///
    /// [`Failure::Read`] if sysfs does not name its virtio device.
    pub fn of(device: &Device) -> Result<Self, Failure> {
        let path = device.sysfs().join("device");
        let target = fs::canonicalize(&path).map_err(|source| Failure::Read { path, source })?;
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name })
    }

    /// Interrupts on the line since the machine booted, summed over all processors.
    ///
    /// # Errors
    ///
    /// [`Failure::Read`], [`Failure::NoInterruptLine`].
    pub fn count(&self) -> Result<u64, Failure> {
        let path = Path::new(INTERRUPTS);
        let text = fs::read_to_string(path).map_err(|source| Failure::Read { path: path.into(), source })?;
        count_line(&text, &self.name).ok_or_else(|| Failure::NoInterruptLine {
            device: self.name.clone(),
            path: PathBuf::from(INTERRUPTS),
        })
    }
}

/// Sum of all lines of `/proc/interrupts` that `name` (or a queue of it, `name-...`) is registered on.
fn count_line(interrupts: &str, name: &str) -> Option<u64> {
    let of_device =
        |word: &str| word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    let lines = interrupts.lines().filter(|line| line.split([' ', ',']).any(of_device));
    let count = |line: &str| -> u64 {
        let counts = line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
        counts.sum()
    };
    lines.map(count).fold(None, |sum, count| Some(sum.unwrap_or(0) + count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "           CPU0       CPU1
  1:          9          0   IO-APIC   1-edge      i8042
 10:        100         23   IO-APIC  10-fasteoi   uhci_hcd:usb1, virtio1
 24:          0          7   PCI-MSIX-0000:00:03.0   0-edge      virtio10-config
 25:          5          0   PCI-MSIX-0000:00:03.0   1-edge      virtio10-input.0
NMI:          1          2   Non-maskable interrupts
";

    #[test]
    fn interrupt_line_is_summed_over_processors() {
        assert_eq!(count_line(SAMPLE, "virtio1"), Some(123));
        assert_eq!(count_line(SAMPLE, "virtio10"), Some(12));
        assert_eq!(count_line(SAMPLE, "virtio2"), None);
    }

    #[test]
    fn spans_round_trip_through_words() {
        let span = Span::from_words([1, 2, 3, 11, 22, 33]);
        assert_eq!(span.to_words(), [1, 2, 3, 11, 22, 33]);
        assert_eq!(span.difference(), Counters { interrupts: 10, doorbells: 20, doorbells_spared: 30 });
    }
}
