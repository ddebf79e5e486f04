//! Giving free memory back before a guest is saved: pages that nobody uses are filled with zeros, which a saved guest
//! need not hold.

use std::{fs, io, path::Path, ptr};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

const MIB: u64 = 1024 * 1024;

/// The most that is taken before looking again how much is free.
const PIECE_BYTES: u64 = 32 * MIB;

/// Less is not worth a look.
const LEAST_BYTES: u64 = MIB;

/// What the kernel keeps free for itself, in KiB. With transparent huge pages that is up to a twentieth of the memory
/// (Linux, `mm/khugepaged.c`, `set_recommended_min_free_kbytes`), and it kills processes before it gives that away.
const MIN_FREE: &str = "/proc/sys/vm/min_free_kbytes";

/// How far that may rise for a while after memory was fragmented, in ten-thousandths.
const BOOST: &str = "/proc/sys/vm/watermark_boost_factor";

/// What the kernel needs to keep free while nothing else runs.
const FEW_KIB: u64 = 1024;

/// Writes everything back, drops the caches, and fills nearly all free memory with zeros. Gives the bytes filled. They
/// are this process's until it ends.
pub fn release() -> io::Result<u64> {
    // Should memory run out all the same, it is this process that goes.
    fs::write("/proc/self/oom_score_adj", "1000")?;
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    let _least = Setting::lower(Path::new(MIN_FREE), FEW_KIB)?;
    let _no_boost = Setting::lower(Path::new(BOOST), 0)?;
    let kept = number(Path::new(MIN_FREE))?.saturating_mul(1024);
    fill(kept, || free_bytes(Path::new("/proc/meminfo")), zeros)
}

/// A number among the kernel's settings that is lower until this value is dropped.
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
        // It could be written before.
        let _ = fs::write(self.path, self.former.to_string());
    }
}

fn number(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?
        .trim()
        .parse()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Takes pieces as long as enough is free, at most as much as was free at first. The kernel keeps `kept` bytes for
/// itself.
fn fill(
    kept: u64,
    free: impl Fn() -> io::Result<(u64, u64)>,
    take: impl Fn(u64) -> io::Result<()>,
) -> io::Result<u64> {
    let (first, _) = free()?;
    let mut filled = 0;
    loop {
        let (free, total) = free()?;
        // What others may want meanwhile, above twice what the kernel keeps: it begins to look for victims below that.
        let margin = 8 * MIB + total / 32 + 2 * kept;
        let piece = free.saturating_sub(margin).min(first.saturating_sub(filled)).min(PIECE_BYTES);
        if piece < LEAST_BYTES {
            return Ok(filled);
        }
        take(piece)?;
        filled += piece;
    }
}

/// Bytes that are free, and all there are, from `/proc/meminfo`.
fn free_bytes(meminfo: &Path) -> io::Result<(u64, u64)> {
    let text = fs::read_to_string(meminfo)?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok())
    };
    let both = kib("MemFree").zip(kib("MemTotal"));
    let (free, total) =
        both.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no MemFree in meminfo"))?;
    Ok((free.saturating_mul(1024), total.saturating_mul(1024)))
}

/// Takes so many bytes and never gives them back. The kernel fills pages with zeros before it hands them out.
fn zeros(bytes: u64) -> io::Result<()> {
    let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
    // SAFETY: the kernel chooses the place, so nothing that is mapped is touched; and nothing refers to what is mapped
    // here.
    unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags)? };
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// What is left free of so much, where all is free at first and the kernel keeps so much.
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
    fn nearly_all_is_filled_and_a_margin_left() {
        assert_eq!(left_of(256 * MIB, 0), 16 * MIB);
        assert_eq!(left_of(256 * MIB, MIB), 18 * MIB);
        // Linux 6.12 with transparent huge pages keeps a twentieth: the process that fills would be killed below that.
        let (total, kept) = (1024 * MIB, 1024 * MIB / 20);
        assert!(left_of(total, kept) > 2 * kept);
        assert_eq!(left_of(8 * MIB, 0), 8 * MIB);
        assert_eq!(left_of(0, 0), 0);
    }

    #[test]
    fn it_ends_where_others_free_what_it_takes() {
        let filled = fill(0, || Ok((100 * MIB, 100 * MIB)), |_| Ok(())).unwrap();
        assert_eq!(filled, 100 * MIB);
    }

    #[test]
    fn setting_is_lower_for_a_while_and_never_higher() {
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
    fn free_memory_is_read_as_the_kernel_writes_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "MemTotal:         221760 kB\nMemFree:          130048 kB\nMemAvailable: 1 kB\n")
            .unwrap();
        assert_eq!(free_bytes(file.path()).unwrap(), (130_048 * 1024, 221_760 * 1024));
        fs::write(&file, "MemTotal: 1 kB\n").unwrap();
        assert!(free_bytes(file.path()).is_err());
        assert!(free_bytes(Path::new("/proc/meminfo")).unwrap().0 > 0);
    }

    #[test]
    fn what_is_taken_is_resident() {
        let resident = || {
            let pages = fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        let before = resident();
        zeros(64 * MIB).unwrap();
        assert!(resident() >= before + 48 * MIB, "{} of {before}", resident());
    }
}
