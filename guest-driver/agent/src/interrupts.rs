//! The counts of `/proc/interrupts`. The agent reads them in the guest; the host reads them in a guest's output.

/// The sum over all processors and all lines of `/proc/interrupts` on which `device` or one of its queues
/// (`virtio1-events`) is registered. `None` if its driver has no interrupt.
#[must_use]
pub fn interrupts_of(table: &str, device: &str) -> Option<u64> {
    let is_device =
        |word: &str| word.strip_prefix(device).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    let lines = table.lines().filter(|line| line.split([' ', ',']).any(is_device));
    let count = |line: &str| -> u64 {
        line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).sum()
    };
    lines.map(count).reduce(|sum, count| sum + count)
}
