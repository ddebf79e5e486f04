//! Consoles that outlive their cluster, so that the user can read the guests' output after a failure.
//!
//! They are in `.failed/CLUSTER` in the folder of all clusters; a cluster's name cannot contain a dot.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use super::ClusterFolder;

/// Their folder, in the folder of all clusters.
const FAILED: &str = ".failed";

/// Maximum number of clusters whose consoles are kept, the newest. The folder may be in memory.
const MAX_CLUSTERS: usize = 16;

/// Maximum number of bytes of a console: its end. A guest may write without end.
const MAX_CONSOLE_BYTES: u64 = 256 * 1024;

impl ClusterFolder {
    /// Saves the ends of these consoles, each under its node's name, and returns their folder. Removes the consoles of
    /// the oldest clusters beyond the limit.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn keep_consoles<'a>(
        &self,
        consoles: impl Iterator<Item = (&'a str, &'a Path)>,
    ) -> io::Result<PathBuf> {
        let all = self.root.path.join(FAILED);
        fs::create_dir_all(&all)?;
        let folder = new_folder(&all, self.name.as_str())?;
        for (node, console) in consoles {
            // A node whose QEMU never started has no console.
            let Ok(mut console) = File::open(console) else { continue };
            let length = console.metadata()?.len();
            console.seek(SeekFrom::Start(length.saturating_sub(MAX_CONSOLE_BYTES)))?;
            let mut kept = File::create(folder.join(format!("{node}.console")))?;
            io::copy(&mut console.take(MAX_CONSOLE_BYTES), &mut kept)?;
        }
        remove_oldest(&all)?;
        Ok(folder)
    }
}

/// Makes the folder of a cluster; its name gets a number if an earlier cluster had the same name.
fn new_folder(all: &Path, name: &str) -> io::Result<PathBuf> {
    for number in 1.. {
        let folder = all.join(if number == 1 { name.to_owned() } else { format!("{name}.{number}") });
        match fs::create_dir(&folder) {
            // The limit allows for the kept folders and for those that other commands make at the same time.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number <= 4 * MAX_CLUSTERS => {}
            made => return made.map(|()| folder),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Removes all but the newest folders.
fn remove_oldest(all: &Path) -> io::Result<()> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(all)? {
        let entry = entry?;
        folders.push((entry.metadata()?.modified()?, entry.path()));
    }
    folders.sort();
    let surplus = folders.len().saturating_sub(MAX_CLUSTERS);
    folders.iter().take(surplus).try_for_each(|(_, folder)| match fs::remove_dir_all(folder) {
        // Another niclab may have removed it first.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::RuntimeRoot, *};

    #[test]
    fn newest_consoles_outlive_their_clusters_within_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let root = RuntimeRoot::at(folder.path().join("r")).unwrap();
        let console = folder.path().join("console");
        let length = usize::try_from(MAX_CONSOLE_BYTES).unwrap() + 5;
        fs::write(&console, [vec![b'a'; 5], vec![b'b'; length - 5]].concat()).unwrap();
        let mut kept = Vec::new();
        for number in 0..=MAX_CLUSTERS {
            let cluster = root.claim(&format!("c{}", number / 2).parse().unwrap()).unwrap();
            let consoles = [("node0", console.as_path()), ("node1", Path::new("/no/such/console"))];
            kept.push(cluster.keep_consoles(consoles.into_iter()).unwrap());
            cluster.remove().unwrap();
            // File times have only the resolution of the kernel's tick.
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            File::open(kept.last().unwrap()).unwrap().set_modified(time).unwrap();
        }
        assert!(root.names().unwrap().is_empty(), "saved consoles are no cluster");
        let there: Vec<bool> = kept.iter().map(|folder| folder.is_dir()).collect();
        assert_eq!(there.iter().filter(|is_there| **is_there).count(), MAX_CLUSTERS, "{there:?}");
        let last = kept.last().unwrap();
        let text = fs::read(last.join("node0.console")).unwrap();
        assert!(text.len() == length - 5 && !text.contains(&b'a'), "the end is kept");
        assert!(!last.join("node1.console").exists());
    }
}
