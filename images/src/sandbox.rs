//! Running the programs of a package tree with that tree as their root folder.
//!
//! Debian's kernel headers and maintainer scripts expect absolute paths. As root a chroot does; as a user, an
//! unprivileged user namespace with a chroot in it. Both get a mount namespace, so that nothing they mount is
//! seen outside or stays behind.

use std::path::Path;
use std::process::Command;

use crate::command::{GUEST_PATH, host_command, stream};
use crate::error::ImageError;

/// How the root folder is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sandbox {
    /// We are root.
    Root,
    /// We are root in a user namespace that knows no other user.
    UserNamespace,
}

/// Shell lines that give `$1`, a root folder, the devices that compilers and scripts take for granted.
const DEVICES: &str = r#"
for device in null zero full random urandom tty; do
    if [ -e "/dev/$device" ]; then
        [ -e "$1/dev/$device" ] || : > "$1/dev/$device"
        mount --bind "/dev/$device" "$1/dev/$device"
    fi
done
"#;

impl Sandbox {
    /// The way that works here, tried with the package tree `root`.
    pub fn detect(root: &Path) -> Result<Self, ImageError> {
        let mut reasons = Vec::new();
        let is_root = nix::unistd::geteuid().is_root();
        let candidates: &[Self] =
            if is_root { &[Self::Root, Self::UserNamespace] } else { &[Self::UserNamespace] };
        for sandbox in candidates {
            let end = stream(&mut sandbox.enter(root, "", &[], &["true"]), |_| ())?;
            if end.success {
                return Ok(*sandbox);
            }
            reasons.push(end.tail);
        }
        Err(ImageError::NoSandbox { reason: reasons.join("; ") })
    }

    /// Runs `program` in `root`. `mounts` are shell lines run before the change of root: `$1` is the root folder,
    /// `$2` and so on are `paths`.
    pub fn enter(self, root: &Path, mounts: &str, paths: &[&Path], program: &[&str]) -> Command {
        let count = paths.len() + 1;
        let script = format!(
            "set -e\n{DEVICES}\n{mounts}\nroot=$1\nshift {count}\n\
             exec chroot \"$root\" /usr/bin/env -i PATH={GUEST_PATH} LC_ALL=C.UTF-8 HOME=/root \"$@\""
        );
        let mut command = host_command("unshare");
        if self == Self::UserNamespace {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "sh", "-c", &script, "sandbox"]).arg(root).args(paths).args(program);
        command
    }
}
