//! The choice of QEMU's accelerator, and the reason.

use std::{fs, fs::OpenOptions, path::Path};

use niclab_spec::AcceleratorChoice;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The user requires KVM, but it is not available.
#[derive(Debug, Error)]
#[error("KVM is not available, because {0}; use accelerator = \"auto\" or \"tcg\"")]
pub struct NoKvm(String);

/// An accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcceleratorKind {
    /// The processor runs the guest directly.
    Kvm,
    /// QEMU translates the guest's code.
    Tcg,
}

/// The chosen accelerator, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerator {
    /// Which.
    pub kind: AcceleratorKind,
    /// The reason, in words.
    pub reason: String,
}

impl Accelerator {
    /// The accelerator for this host.
    ///
    /// # Errors
    /// [`NoKvm`] if the user requires KVM.
    pub fn choose(choice: AcceleratorChoice) -> Result<Self, NoKvm> {
        Self::choose_from(
            choice,
            Path::new("/dev/kvm"),
            &fs::read_to_string("/proc/cpuinfo").unwrap_or_default(),
        )
    }

    fn choose_from(choice: AcceleratorChoice, device: &Path, cpuinfo: &str) -> Result<Self, NoKvm> {
        if choice == AcceleratorChoice::Tcg {
            return Ok(Self { kind: AcceleratorKind::Tcg, reason: "chosen by the user".to_owned() });
        }
        match (kvm_obstacle(device, cpuinfo), choice) {
            (None, _) => Ok(Self {
                kind: AcceleratorKind::Kvm,
                reason: format!("{} can be opened, and the processor has vmx or svm", device.display()),
            }),
            (Some(obstacle), AcceleratorChoice::Kvm) => Err(NoKvm(obstacle)),
            (Some(obstacle), _) => {
                Ok(Self { kind: AcceleratorKind::Tcg, reason: format!("no KVM: {obstacle}") })
            }
        }
    }

    /// Its name in QEMU's options.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.kind {
            AcceleratorKind::Kvm => "kvm",
            AcceleratorKind::Tcg => "tcg",
        }
    }
}

/// `/dev/kvm` alone does not suffice: in some sandboxes it opens but guests hang.
fn kvm_obstacle(device: &Path, cpuinfo: &str) -> Option<String> {
    if let Err(error) = OpenOptions::new().read(true).write(true).open(device) {
        return Some(format!("{} cannot be opened ({error})", device.display()));
    }
    let has_flag = cpuinfo
        .lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| line.split_whitespace().any(|flag| matches!(flag, "vmx" | "svm")));
    (!has_flag).then(|| "the processor shows neither vmx nor svm in /proc/cpuinfo".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = "processor : 0\nflags\t\t: fpu vmxish sse\n";
    const VMX: &str = "processor : 0\nflags\t\t: fpu vmx sse\n";

    fn choose(
        choice: AcceleratorChoice,
        device: &str,
        cpuinfo: &str,
    ) -> Result<(AcceleratorKind, String), String> {
        Accelerator::choose_from(choice, Path::new(device), cpuinfo)
            .map(|a| (a.kind, a.reason))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn kvm_needs_both_the_device_and_the_flag() {
        let kind = |device, cpuinfo| choose(AcceleratorChoice::Auto, device, cpuinfo).unwrap().0;
        assert_eq!(kind("/dev/null", VMX), AcceleratorKind::Kvm);
        assert_eq!(kind("/dev/null", BARE), AcceleratorKind::Tcg);
        assert_eq!(kind("/dev/no-such", VMX), AcceleratorKind::Tcg);
    }

    #[test]
    fn reason_of_the_choice_is_named() {
        assert!(choose(AcceleratorChoice::Auto, "/dev/null", BARE).unwrap().1.contains("vmx"));
        assert!(choose(AcceleratorChoice::Auto, "/dev/no-such", VMX).unwrap().1.contains("/dev/no-such"));
        assert!(choose(AcceleratorChoice::Kvm, "/dev/null", BARE).unwrap_err().contains("accelerator ="));
        assert_eq!(choose(AcceleratorChoice::Tcg, "/dev/null", VMX).unwrap().0, AcceleratorKind::Tcg);
    }
}
