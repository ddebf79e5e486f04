//! Runs programs of a package tree with that tree as their root folder.
//!
//! Debian's kernel headers and maintainer scripts expect absolute paths. Root uses a chroot; other users use an
//! unprivileged user namespace with a chroot in it. If possible, a mount namespace hides all mounts from outside and
//! removes them at the end.

use std::path::Path;
use std::process::Command;

use crate::command::{GUEST_PATH, host_command, stream};
use crate::error::ImageError;

/// The method to change the root folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sandbox {
    /// For root.
    Root,
    /// Root in a user namespace without other users.
    UserNamespace,
    /// Root in a container that may not mount.
    Container,
}

/// Shell lines that add the devices and `/proc` that compilers and maintainer scripts expect to the root folder `$1`.
const WITH_MOUNTS: &str = r#"
for device in null zero full random urandom tty; do
    [ -e "$1/dev/$device" ] || : > "$1/dev/$device"
    mount --bind "/dev/$device" "$1/dev/$device"
done
mount --rbind /proc "$1/proc"
"#;

/// The same without mounts. Then there is no `/proc`, which few scripts need.
const WITHOUT_MOUNTS: &str = r#"
for device in null zero full random urandom tty; do
    cp -a --remove-destination "/dev/$device" "$1/dev/$device"
done
"#;

/// Runs the remaining arguments in the root folder, with the same environment everywhere.
const ENTER: &str = r#"
root=$1
shift
exec chroot "$root" /usr/bin/env -i PATH="$guest_path" LC_ALL=C.UTF-8 HOME=/root "$@"
"#;

impl Sandbox {
    /// The method that works on this host, tested with the package tree `root`.
    pub fn detect(root: &Path) -> Result<Self, ImageError> {
        let mut reasons = Vec::new();
        for sandbox in Self::candidates(nix::unistd::geteuid().is_root()) {
            let end = stream(&mut sandbox.enter(root, &["true"]), |_| ())?;
            if end.success {
                return Ok(*sandbox);
            }
            reasons.push(end.tail);
        }
        Err(ImageError::NoSandbox { reason: reasons.join("; ") })
    }

    fn candidates(is_root: bool) -> &'static [Self] {
        if is_root { &[Self::Root, Self::UserNamespace, Self::Container] } else { &[Self::UserNamespace] }
    }

    /// Whether files can belong to any user. If not, `fakeroot` must remember their owners.
    pub fn has_all_users(self) -> bool {
        self != Self::UserNamespace
    }

    /// A command that runs `program` with `root` as its root folder; `root` must have `dev` and `proc`.
    pub fn enter(self, root: &Path, program: &[&str]) -> Command {
        // The PID namespace ends all processes with its first, however deeply dpkg has forked.
        let namespaces: &[&str] = match self {
            Self::Root => &["unshare", "--mount", "--pid", "--fork", "--kill-child"],
            Self::UserNamespace => {
                &["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
            }
            Self::Container => &["env"],
        };
        let prepare = if self == Self::Container { WITHOUT_MOUNTS } else { WITH_MOUNTS };
        let script = format!("set -e\nguest_path={GUEST_PATH}\n{prepare}{ENTER}");
        let mut command = host_command(namespaces.first().copied().unwrap_or_default());
        command.args(namespaces.iter().skip(1));
        command.args(["sh", "-c", &script, "sandbox"]).arg(root).args(program);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_never_get_a_method_that_needs_root() {
        assert_eq!(Sandbox::candidates(false), [Sandbox::UserNamespace]);
    }

    #[test]
    fn a_root_folder_without_programs_gives_the_reason_and_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["dev", "proc"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let message = Sandbox::detect(dir.path()).unwrap_err().to_string();
        assert!(message.contains("/usr/bin/env") || message.contains("unshare"), "{message}");
        assert!(message.contains("kernel.unprivileged_userns_clone=1"), "{message}");
    }
}
