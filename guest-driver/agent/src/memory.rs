//! Releases free memory before a guest is saved: the agent fills unused pages with zeros, which a saved guest omits.

use std::{fs, io, path::Path, ptr};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

const MIB: u64 = 1024 * 1024;

/// The maximum that the agent takes before it reads again how much is free.
const PIECE_BYTES: u64 = 32 * MIB;

/// The agent stops when less than this can be taken.
const MIN_BYTES: u64 = MIB;

/// The memory that the kernel reserves for itself, in KiB. With transparent huge pages it is up to a twentieth of all
/// memory (Linux, `mm/khugepaged.c`, `set_recommended_min_free_kbytes`). The kernel kills processes before it uses this
/// reserve.
const MIN_FREE: &str = "/proc/sys/vm/min_free_kbytes";

/// How far the reserve may rise for a time after memory was fragmented, in ten-thousandths.
const BOOST: &str = "/proc/sys/vm/watermark_boost_factor";

/// The reserve that suffices while nothing else runs.
const FEW_KIB: u64 = 1024;

/// Writes all dirty data back, drops the caches, and fills nearly all free memory with zeros. Returns the number of
/// bytes filled. They belong to this process until it ends.
pub fn release() -> io::Result<u64> {
    // If memory runs out, the kernel kills this process first.
    fs::write("/proc/self/oom_score_adj", "1000")?;
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    let _reserve = Setting::lower(Path::new(MIN_FREE), FEW_KIB)?;
    let _no_boost = Setting::lower(Path::new(BOOST), 0)?;
    let kept = number(Path::new(MIN_FREE))?.saturating_mul(1024);
    fill(kept, || free_bytes(Path::new("/proc/meminfo")), zeros)
}

/// A kernel setting that is lowered until this value is dropped.
struct Setting<'a> {
    path: &'a Path,
    former: u64,
}

impl<'a> Setting<'a> {
    fn lower(path: &'a Path, to: u64) -> io::Result<Self> {
        let former = number(path)?;
        if former > to {
            fs::write(path, to.to_string())?;
        }
        Ok(Self { path, former })
    }
}

impl Drop for Setting<'_> {
    fn drop(&mut self) {
        // Cannot fail: the setting was writable before.
        let _ = fs::write(self.path, self.former.to_string());
    }
}

fn number(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?
        .trim()
        .parse()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Takes pieces while enough memory is free, at most as much as was free at first. The kernel reserves `kept` bytes.
fn fill(
    kept: u64,
    free: impl Fn() -> io::Result<(u64, u64)>,
    take: impl Fn(u64) -> io::Result<()>,
) -> io::Result<u64> {
    let (first, _) = free()?;
    let mut filled = 0;
    loop {
        let (free, total) = free()?;
        // Room for other processes, above twice the kernel's reserve: below that the kernel starts to reclaim memory.
        let margin = 8 * MIB + total / 32 + 2 * kept;
        let piece = free.saturating_sub(margin).min(first.saturating_sub(filled)).min(PIECE_BYTES);
        if piece < MIN_BYTES {
            return Ok(filled);
        }
        take(piece)?;
        filled += piece;
    }
}

/// The free bytes and the total bytes of memory, from `/proc/meminfo`.
fn free_bytes(meminfo: &Path) -> io::Result<(u64, u64)> {
    let text = fs::read_to_string(meminfo)?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok())
    };
    let both = kib("MemFree").zip(kib("MemTotal"));
    let (free, total) = both.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo has no MemFree or MemTotal")
    })?;
    Ok((free.saturating_mul(1024), total.saturating_mul(1024)))
}

/// Maps `bytes` for the life of the process. The kernel fills pages with zeros when it allocates them.
fn zeros(bytes: u64) -> io::Result<()> {
    let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
    // SAFETY: the kernel chooses the address, so the mapping replaces no other; and nothing refers to this mapping.
    unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags)? };
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The free memory that is left of `total`, if all is free at first and the kernel reserves `kept`.
    fn left_of(total: u64, kept: u64) -> u64 {
        let free = Cell::new(total);
        let take = |bytes| {
            assert!(bytes <= PIECE_BYTES);
            free.set(free.get() - bytes);
            Ok(())
        };
        assert_eq!(fill(kept, || Ok((free.get(), total)), take).unwrap(), total - free.get());
        free.get()
    }

    #[test]
    fn fill_leaves_only_the_margin_free() {
        assert_eq!(left_of(256 * MIB, 0), 16 * MIB);
        assert_eq!(left_of(256 * MIB, MIB), 18 * MIB);
        // Linux 6.12 with transparent huge pages reserves a twentieth, and would kill the filling process below that.
        let (total, kept) = (1024 * MIB, 1024 * MIB / 20);
        assert!(left_of(total, kept) > 2 * kept);
        assert_eq!(left_of(8 * MIB, 0), 8 * MIB);
        assert_eq!(left_of(0, 0), 0);
    }

    #[test]
    fn fill_ends_even_if_free_memory_does_not_shrink() {
        let filled = fill(0, || Ok((100 * MIB, 100 * MIB)), |_| Ok(())).unwrap();
        assert_eq!(filled, 100 * MIB);
    }

    #[test]
    fn setting_is_lowered_until_drop_and_never_raised() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "45056\n").unwrap();
        let lowered = Setting::lower(file.path(), FEW_KIB).unwrap();
        assert_eq!(number(file.path()).unwrap(), FEW_KIB);
        drop(lowered);
        assert_eq!(number(file.path()).unwrap(), 45_056);
        drop(Setting::lower(file.path(), 50_000).unwrap());
        assert_eq!(number(file.path()).unwrap(), 45_056);
        assert!(number(Path::new(MIN_FREE)).unwrap() > 0);
    }

    #[test]
    fn free_memory_is_read_from_meminfo() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "MemTotal:         221760 kB\nMemFree:          130048 kB\nMemAvailable: 1 kB\n")
            .unwrap();
        assert_eq!(free_bytes(file.path()).unwrap(), (130_048 * 1024, 221_760 * 1024));
        fs::write(&file, "MemTotal: 1 kB\n").unwrap();
        assert!(free_bytes(file.path()).is_err());
        assert!(free_bytes(Path::new("/proc/meminfo")).unwrap().0 > 0);
    }

    #[test]
    fn filled_memory_is_resident() {
        let resident = || {
            let pages = fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        let before = resident();
        zeros(64 * MIB).unwrap();
        assert!(resident() >= before + 48 * MIB, "{} of {before}", resident());
    }
}
