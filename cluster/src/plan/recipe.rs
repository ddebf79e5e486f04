//! The inputs of a template, and its key in the cache.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use niclab_images::{Cache, Images, Key, KeyBuilder};
use niclab_spec::Node;
use serde::{Deserialize, Serialize};

use super::{Inputs, PlanError, qemu::Arguments};
use crate::host::process::ProcessPlan;

/// The version of a template's contents: change it with them.
const RECIPE: &str = "template 1";

/// The kind of artefact in the cache.
pub const KIND: &str = "template";

/// The file of a template with QEMU's saved state: everything but memory.
pub const STATE: &str = "state";

/// All inputs of a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// Versions, files and arguments. Any difference makes a different template.
    pub inputs: Vec<String>,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// The factor on all time limits of its guest.
    #[serde(default = "default_timeout_factor")]
    pub timeout_factor: u32,
    /// Whether the guest has a device for a shared folder.
    pub has_share: bool,
    /// Its QEMU, without the devices' backends.
    pub qemu: ProcessPlan,
}

impl Recipe {
    /// The recipe for a node's template.
    ///
    /// # Errors
    /// [`PlanError`] for a path that cannot be passed to QEMU.
    pub fn new(inputs: &Inputs<'_>, node: &Node, images: &Images) -> Result<Self, PlanError> {
        let has_share = inputs.share.is_some();
        let mut machine = Arguments::default();
        machine.kernel(node, images)?;
        machine.devices(node, images, inputs.accelerator, has_share)?;
        let mut qemu = super::qemu_process(images, PathBuf::new())?;
        let mut made_from = vec![images.qemu_version.clone(), images.kernel_release.clone()];
        // The path of a file that niclab built contains the hash of its content. The user's own files may change.
        let files = [Some(&images.kernel), Some(&images.initramfs), images.root_disk.as_ref()];
        made_from.extend(files.into_iter().flatten().map(|file| identity(file)));
        made_from.extend(qemu.args.iter().chain(&machine.0).cloned());
        qemu.args.extend(machine.0);
        let timeout_factor = inputs.cluster.kernel.timeout_factor();
        Ok(Self { inputs: made_from, memory_mib: node.memory_mib, timeout_factor, has_share, qemu })
    }

    /// The template's key in the cache.
    #[must_use]
    pub fn key(&self) -> Key {
        self.inputs.iter().fold(KeyBuilder::new(RECIPE), |key, input| key.text(input)).finish()
    }

    /// The template's folder in the cache; it may not exist yet.
    #[must_use]
    pub fn folder(&self, cache: &Cache) -> PathBuf {
        cache.derived_path(KIND, &self.key())
    }

    /// The path of QEMU's state in a template's folder.
    #[must_use]
    pub fn state(folder: &Path) -> PathBuf {
        folder.join(STATE)
    }
}

pub(super) const fn default_timeout_factor() -> u32 {
    1
}

/// Distinguishes a file from another one at the same path, and from an earlier version of itself.
fn identity(path: &Path) -> String {
    // A file that cannot be read cannot be booted, either.
    fs::metadata(path).map_or_else(
        |_| "absent".to_owned(),
        |about| {
            format!(
                "{} bytes, inode {}, changed {}.{}",
                about.len(),
                about.ino(),
                about.mtime(),
                about.mtime_nsec()
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_or_replaced_file_has_another_identity() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        assert_eq!(identity(&path), "absent");
        fs::write(&path, "a").unwrap();
        let first = identity(&path);
        assert_eq!(identity(&path), first);
        fs::write(folder.path().join("g"), "a").unwrap();
        fs::rename(folder.path().join("g"), &path).unwrap();
        assert_ne!(identity(&path), first);
    }
}
