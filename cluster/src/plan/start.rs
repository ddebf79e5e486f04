//! Decides whether nodes are restored from a template or boot, and why.

use niclab_spec::{BootChoice, Cluster, GuestKernel};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::accelerator::{Accelerator, AcceleratorKind};

/// QEMU options that do not change the guest's machine, and whether a value follows. Restored guests get them, too.
const HARMLESS: [(&str, bool); 9] = [
    ("-action", true),
    ("-d", true),
    ("-D", true),
    ("-dfilter", true),
    ("-gdb", true),
    ("-msg", true),
    ("-pidfile", true),
    ("-s", false),
    ("-trace", true),
];

/// The user requires a template, but none is possible.
#[derive(Debug, Error)]
#[error("boot = \"template\" is not possible, because {0}; use boot = \"auto\" or \"cold\"")]
pub struct NoTemplate(pub String);

/// How nodes start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartMode {
    /// Nodes are restored from a template.
    Template,
    /// Nodes boot.
    Cold,
}

impl StartMode {
    /// The verb for progress messages.
    #[must_use]
    pub const fn doing(self) -> &'static str {
        match self {
            Self::Template => "restoring",
            Self::Cold => "booting",
        }
    }
}

/// How nodes start, and why they boot if they do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The way in which nodes start.
    pub way: StartMode,
    /// Why nodes boot, if the user did not choose that.
    pub obstacle: Option<String>,
}

impl Start {
    /// Nodes boot for this reason, although the user did not choose that.
    #[must_use]
    pub fn cold(obstacle: String) -> Self {
        Self { way: StartMode::Cold, obstacle: Some(obstacle) }
    }

    /// The choice for a cluster with this accelerator.
    ///
    /// # Errors
    /// [`NoTemplate`] if the user requires a template.
    pub fn choose(cluster: &Cluster, accelerator: &Accelerator) -> Result<Self, NoTemplate> {
        let template = Self { way: StartMode::Template, obstacle: None };
        match (cluster.boot, impossible(cluster), untried(cluster, accelerator)) {
            (BootChoice::Cold, ..) => Ok(Self { way: StartMode::Cold, obstacle: None }),
            (BootChoice::Template, Some(why), _) => Err(NoTemplate(why)),
            (BootChoice::Auto, Some(why), _) | (BootChoice::Auto, None, Some(why)) => Ok(Self::cold(why)),
            (BootChoice::Template, None, _) | (BootChoice::Auto, None, None) => Ok(template),
        }
    }
}

/// Why a template is not possible.
fn impossible(cluster: &Cluster) -> Option<String> {
    let mut args = cluster.qemu_args.iter();
    while let Some(arg) = args.next() {
        // QEMU treats two hyphens as one.
        let option = arg.strip_prefix('-').filter(|rest| rest.starts_with('-')).unwrap_or(arg);
        match HARMLESS.iter().find(|(name, _)| *name == option) {
            Some((_, has_value)) => drop(has_value.then(|| args.next())),
            None => {
                return Some(format!("qemu_args has `{arg}`, which may change what a saved guest relies on"));
            }
        }
    }
    None
}

/// Why templates are not tested with this kernel or accelerator.
fn untried(cluster: &Cluster, accelerator: &Accelerator) -> Option<String> {
    if matches!(cluster.kernel, GuestKernel::Own(_)) {
        return Some(
            "a kernel of your own may not support hot-plugging the card; boot = \"template\" tries it"
                .to_owned(),
        );
    }
    (accelerator.kind == AcceleratorKind::Kvm)
        .then(|| "templates were never tested with KVM; boot = \"template\" tries it".to_owned())
}

#[cfg(test)]
mod tests {
    use niclab_spec::Source;

    use super::*;

    fn choose(file: &str, kind: AcceleratorKind) -> Result<Start, NoTemplate> {
        let source = Source::from_text("c.toml", file);
        let cluster = source.resolve(&source.cluster_file().unwrap()).unwrap();
        Start::choose(&cluster, &Accelerator { kind, reason: String::new() })
    }

    #[test]
    fn nodes_are_restored_unless_an_obstacle_exists() {
        let way = |file| choose(file, AcceleratorKind::Tcg).unwrap().way;
        assert_eq!(way(""), StartMode::Template);
        assert_eq!(way("qemu_args = [\"-action\", \"reboot=reset\", \"--s\"]"), StartMode::Template);
        assert_eq!(way("boot = \"cold\""), StartMode::Cold);
        let why = |file: &str, kind| choose(file, kind).unwrap().obstacle;
        assert_eq!(why("boot = \"cold\"", AcceleratorKind::Kvm), None, "the user chose it");
        assert!(why("", AcceleratorKind::Kvm).unwrap().contains("KVM"));
        assert_eq!(choose("boot = \"template\"", AcceleratorKind::Kvm).unwrap().way, StartMode::Template);
        // A harmless option does not hide a later one, and its value does not count as an option.
        for args in
            ["\"-drive\", \"file=x\"", "\"-s\", \"-smp\", \"2\"", "\"-d\", \"int\", \"-device\", \"x\""]
        {
            let file = format!("qemu_args = [{args}]");
            assert!(why(&file, AcceleratorKind::Tcg).unwrap().contains("qemu_args"), "{args}");
            let error = choose(&format!("boot = \"template\"\n{file}"), AcceleratorKind::Tcg)
                .unwrap_err()
                .to_string();
            assert!(error.contains("boot = \"auto\""), "{error}");
        }
    }
}
