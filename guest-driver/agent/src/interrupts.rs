//! What a guest's kernel counts in `/proc/interrupts`: read in the guest and, of what a guest prints, on the host.

/// Sum over all lines of `/proc/interrupts`, and all processors, on which `device` or a queue of it (`virtio1-events`)
/// is registered; none where its driver has no interrupt.
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
