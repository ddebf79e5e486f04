//! Counters of a NIC, from sysfs: the driver has a file for each, with its name.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use crate::Error;

/// Counters of a NIC since its start, by name. docs/driver/DEVICE.md lists the counters of every card; each model has
/// more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics(BTreeMap<String, u64>);

impl Statistics {
    /// The counter with this name; `None` if this NIC does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// All counters, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}

/// Reads the counters in `directory`, the `statistics` folder of `device`.
pub(crate) fn read(device: &str, directory: &Path) -> Result<Statistics, Error> {
    let refused = |path: &Path, source| Error::Refused {
        device: device.to_owned(),
        operation: format!("read {}", path.display()),
        source,
    };
    let mut counters = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(|source| refused(directory, source))? {
        let path = entry.map_err(|source| refused(directory, source))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        counters.insert(name, read_count(&path).map_err(|source| refused(&path, source))?);
    }
    Ok(Statistics(counters))
}

/// A file that holds one decimal number.
pub(crate) fn read_count(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{:?} is not a decimal number", text.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_comes_from_its_file_and_a_bad_one_is_named() {
        let folder = std::env::temp_dir().join(format!("niclab-statistics-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("doorbells"), "18446744073709551615\n").expect("a counter");
        fs::write(folder.join("own_of_a_model"), "2\n").expect("a counter");
        let counters = read("niclab0", &folder).expect("all counters");
        assert_eq!(counters.iter().collect::<Vec<_>>(), [("doorbells", u64::MAX), ("own_of_a_model", 2)]);
        assert_eq!((counters.get("own_of_a_model"), counters.get("overruns")), (Some(2), None));

        fs::write(folder.join("overruns"), "many\n").expect("no counter");
        let error = read("niclab0", &folder).expect_err("no number");
        fs::remove_dir_all(&folder).expect("clean up");
        assert!(error.to_string().contains("overruns"), "{error}");
        let error = read("niclab0", &folder).expect_err("no folder");
        assert!(error.to_string().contains("niclab-statistics"), "{error}");
    }
}
