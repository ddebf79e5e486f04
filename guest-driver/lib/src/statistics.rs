//! Counters of a NIC, as the driver shows them in sysfs.

use std::path::Path;
use std::{fs, io};

pub use niclab_abi::control::Statistics;

use crate::Error;

/// Reads the counters in `directory`, the `statistics` folder of `device`.
pub(crate) fn read(device: &str, directory: &Path) -> Result<Statistics, Error> {
    let count = |name: &str| {
        let path = directory.join(name);
        read_count(&path).map_err(|source| Error::Refused {
            device: device.to_owned(),
            operation: format!("read {}", path.display()),
            source,
        })
    };
    Ok(Statistics {
        packets_sent: count("packets_sent")?,
        packets_received: count("packets_received")?,
        bytes_sent: count("bytes_sent")?,
        bytes_received: count("bytes_received")?,
        doorbells: count("doorbells")?,
        doorbells_spared: count("doorbells_spared")?,
        interrupts: count("interrupts")?,
        unauthorized: count("unauthorized")?,
        crc_errors: count("crc_errors")?,
        malformed: count("malformed")?,
        overruns: count("overruns")?,
        refused: count("refused")?,
        acknowledgements_sent: count("acknowledgements_sent")?,
        discarded_at_close: count("discarded_at_close")?,
        control_refused: count("control_refused")?,
        events_merged: count("events_merged")?,
    })
}

/// A file that holds one decimal number.
pub(crate) fn read_count(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{:?} is no count", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `statistics` folder whose files hold 1, 2, ... in the order of the layout.
    fn folder() -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("niclab-statistics-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let names = "packets_sent packets_received bytes_sent bytes_received doorbells doorbells_spared interrupts \
                     unauthorized crc_errors malformed overruns refused acknowledgements_sent discarded_at_close \
                     control_refused events_merged";
        for (index, name) in names.split_whitespace().enumerate() {
            fs::write(folder.join(name), format!("{}\n", index + 1)).expect("a counter");
        }
        folder
    }

    #[test]
    fn each_counter_comes_from_its_file_and_a_missing_one_is_named() {
        use niclab_abi::ToBytes as _;
        let folder = folder();
        let counters = read("niclab0", &folder).expect("all counters");
        let mut bytes = [0; 128];
        counters.to_bytes(&mut bytes).expect("128 bytes");
        let words: Vec<u8> = bytes.iter().copied().step_by(8).collect();
        assert_eq!(words, (1..=16).collect::<Vec<u8>>());

        fs::remove_file(folder.join("overruns")).expect("remove");
        let error = read("niclab0", &folder).expect_err("a counter is missing");
        fs::remove_dir_all(&folder).expect("clean up");
        assert!(error.to_string().contains("overruns"), "{error}");
    }
}
