//! What a template is made from, and where it lies in the cache.

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

/// Change it when what is saved of a guest changes.
const RECIPE: &str = "template 1";

/// The kind of artefact in the cache.
pub const KIND: &str = "template";

/// The file of a template that has what QEMU saved: everything but memory.
pub const STATE: &str = "state";

/// All that a template is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// Versions, files and arguments; a template is another one where any of these differs.
    pub inputs: Vec<String>,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// How many times as long as usual it may take for anything.
    #[serde(default = "default_timeout_factor")]
    pub timeout_factor: u32,
    /// Whether the guest has a place for a shared folder.
    pub has_share: bool,
    /// Its QEMU, without what is behind the devices.
    pub qemu: ProcessPlan,
}

impl Recipe {
    /// Of the template for a node.
    ///
    /// # Errors
    /// [`PlanError`] for a path that QEMU cannot be told.
    pub fn new(inputs: &Inputs<'_>, node: &Node, images: &Images) -> Result<Self, PlanError> {
        let has_share = inputs.share.is_some();
        let mut machine = Arguments::default();
        machine.kernel(node, images)?;
        machine.devices(node, images, inputs.accelerator, has_share)?;
        let mut qemu = super::qemu_process(images, PathBuf::new())?;
        let mut made_from = vec![images.qemu_version.clone(), images.kernel_release.clone()];
        // What niclab built has its content's hash in its path. The user's own files may change under their names.
        let files = [Some(&images.kernel), Some(&images.initramfs), images.root_disk.as_ref()];
        made_from.extend(files.into_iter().flatten().map(|file| identity(file)));
        made_from.extend(qemu.args.iter().chain(&machine.0).cloned());
        qemu.args.extend(machine.0);
        let timeout_factor = inputs.cluster.kernel.timeout_factor();
        Ok(Self { inputs: made_from, memory_mib: node.memory_mib, timeout_factor, has_share, qemu })
    }

    /// What it lies under in the cache.
    #[must_use]
    pub fn key(&self) -> Key {
        self.inputs.iter().fold(KeyBuilder::new(RECIPE), |key, input| key.text(input)).finish()
    }

    /// The folder that has the template, or will have it.
    #[must_use]
    pub fn folder(&self, cache: &Cache) -> PathBuf {
        cache.derived_path(KIND, &self.key())
    }

    /// QEMU's state in a template's folder.
    #[must_use]
    pub fn state(folder: &Path) -> PathBuf {
        folder.join(STATE)
    }
}

pub(super) const fn default_timeout_factor() -> u32 {
    1
}

/// What tells a file from another one at the same path, or from itself before it was changed.
fn identity(path: &Path) -> String {
    // One that cannot be looked at cannot be booted either.
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
    fn a_file_that_is_changed_or_replaced_is_another() {
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
