//! Short time slices for the daemon's threads.
//!
//! A sleeping thread answers a doorbell. If guests keep all cores busy, Linux first lets the running thread finish a
//! slice of about 3 ms. With three threads in sequence (guest, daemon, guest) a request takes 9 ms without any other
//! work: measured on two cores, by `niclab-device hostile`. Linux schedules a thread with a shorter slice before one
//! with a longer slice, and lets it run for the requested time. Its total share of the processor stays the same.
//! Source: sched_setattr(2), `sched_runtime` of SCHED_OTHER, since Linux 6.12; older kernels ignore it.

use std::mem::size_of;

/// The requested slice: the minimum that Linux grants.
const SLICE_NS: u64 = 100_000;

/// While this value lives, the calling thread has short slices. Threads that it starts in this time keep short
/// slices.
#[derive(Debug)]
pub struct ShortSlice {
    before: Option<libc::sched_attr>,
}

impl ShortSlice {
    /// Requests short slices. If the kernel refuses, nothing changes.
    pub fn take() -> Self {
        let before = attributes().filter(|before| before.sched_policy == libc::SCHED_OTHER as u32);
        let taken = before.map(|before| set(&libc::sched_attr { sched_runtime: SLICE_NS, ..before }));
        if let Some(Err(error)) = taken {
            log::debug!("the kernel refuses short time slices for the daemon's threads: {error}");
        }
        Self { before }
    }
}

impl Drop for ShortSlice {
    fn drop(&mut self) {
        // The kernel refuses this only if it refused the request, and then nothing has changed.
        let _ = self.before.as_ref().map(set);
    }
}

/// Scheduling attributes of the calling thread.
fn attributes() -> Option<libc::sched_attr> {
    let bytes = size_of::<libc::sched_attr>();
    let mut attributes = libc::sched_attr {
        size: 0,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `bytes` bytes, which `attributes` has, and every bit pattern is valid for it.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, bytes, 0) };
    (got == 0).then_some(attributes)
}

/// Sets the scheduling attributes of the calling thread.
fn set(attributes: &libc::sched_attr) -> std::io::Result<()> {
    let attributes = libc::sched_attr { size: size_of::<libc::sched_attr>() as u32, ..*attributes };
    // SAFETY: the kernel reads `size` bytes, all of which `attributes` has.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice_ns() -> u64 {
        attributes().map_or(0, |attributes| attributes.sched_runtime)
    }

    #[test]
    fn child_threads_keep_the_short_slice() {
        std::thread::spawn(|| {
            let before = slice_ns();
            let short = ShortSlice::take();
            let granted = slice_ns();
            // Kernels before 6.12 report zero, and keep it.
            assert!([0, SLICE_NS].contains(&granted), "{granted}");
            let child = std::thread::spawn(slice_ns);
            assert_eq!(child.join().unwrap(), granted);
            drop(short);
            assert!(granted == 0 || slice_ns() == before, "{before} before, {} after", slice_ns());
        })
        .join()
        .unwrap();
    }
}
