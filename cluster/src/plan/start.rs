//! Whether nodes come out of a template or boot, and why.

use niclab_spec::{BootChoice, Cluster, GuestKernel};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::accelerator::{Accelerator, Kind};

/// Options of QEMU's that change nothing of what a guest sees, with whether a value follows. They are passed on to
/// restored guests too.
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

/// A template was asked for and cannot be had.
#[derive(Debug, Error)]
#[error("boot = \"template\" was asked for, and {0}; use boot = \"auto\" or \"cold\"")]
pub struct NoTemplate(pub String);

/// How nodes come up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartMode {
    /// They are copies of a template.
    Template,
    /// They boot.
    Cold,
}

impl StartMode {
    /// What is being done to nodes.
    #[must_use]
    pub const fn doing(self) -> &'static str {
        match self {
            Self::Template => "restoring",
            Self::Cold => "booting",
        }
    }
}

/// How nodes come up, and why they boot if they do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// How.
    pub way: StartMode,
    /// Why nodes boot though nobody asked for that.
    pub obstacle: Option<String>,
}

impl Start {
    /// They boot, though nobody asked for that.
    #[must_use]
    pub fn cold(obstacle: String) -> Self {
        Self { way: StartMode::Cold, obstacle: Some(obstacle) }
    }

    /// For a cluster on this accelerator.
    ///
    /// # Errors
    /// [`NoTemplate`] where one is insisted on.
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

/// Why there can be no template.
fn impossible(cluster: &Cluster) -> Option<String> {
    let mut args = cluster.qemu_args.iter();
    while let Some(arg) = args.next() {
        // QEMU takes two hyphens for one.
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

/// Why nobody knows whether a template works.
fn untried(cluster: &Cluster, accelerator: &Accelerator) -> Option<String> {
    if matches!(cluster.kernel, GuestKernel::Own(_)) {
        return Some(
            "a kernel of your own may not see a card that is plugged in; boot = \"template\" tries"
                .to_owned(),
        );
    }
    (accelerator.kind == Kind::Kvm)
        .then(|| "templates were never tried with KVM; boot = \"template\" tries".to_owned())
}

#[cfg(test)]
mod tests {
    use niclab_spec::Source;

    use super::*;

    fn choose(file: &str, kind: Kind) -> Result<Start, NoTemplate> {
        let source = Source::from_text("c.toml", file);
        let cluster = source.resolve(&source.cluster_file().unwrap()).unwrap();
        Start::choose(&cluster, &Accelerator { kind, reason: String::new() })
    }

    #[test]
    fn nodes_come_from_a_template_unless_something_is_in_the_way() {
        let way = |file| choose(file, Kind::Tcg).unwrap().way;
        assert_eq!(way(""), StartMode::Template);
        assert_eq!(way("qemu_args = [\"-action\", \"reboot=reset\", \"--s\"]"), StartMode::Template);
        assert_eq!(way("boot = \"cold\""), StartMode::Cold);
        let why = |file: &str, kind| choose(file, kind).unwrap().obstacle;
        assert_eq!(why("boot = \"cold\"", Kind::Kvm), None, "it was asked for");
        assert!(why("", Kind::Kvm).unwrap().contains("KVM"));
        assert_eq!(choose("boot = \"template\"", Kind::Kvm).unwrap().way, StartMode::Template);
        // A harmless option hides none behind it, and the value of one is no option.
        for args in
            ["\"-drive\", \"file=x\"", "\"-s\", \"-smp\", \"2\"", "\"-d\", \"int\", \"-device\", \"x\""]
        {
            let file = format!("qemu_args = [{args}]");
            assert!(why(&file, Kind::Tcg).unwrap().contains("qemu_args"), "{args}");
            let error = choose(&format!("boot = \"template\"\n{file}"), Kind::Tcg).unwrap_err().to_string();
            assert!(error.contains("boot = \"auto\""), "{error}");
        }
    }
}
