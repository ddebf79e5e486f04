//! The cases of the conformance test, by name: what each does to a driver.

use niclab_spec::{DeviceFaults, renamed};
use serde::Serialize;

/// A device fault that is a case.
struct Fault {
    /// Its key.
    key: &'static str,
    /// Whether the manual lets programs continue as if nothing had happened (docs/use/FAULTS.md: faults that only cost
    /// time). With the other faults a program may notice a loss.
    is_only_late: bool,
    /// Sets the fault's rate, high enough that a command of one second meets it.
    set: fn(&mut DeviceFaults),
}

const FAULTS: [Fault; 7] = [
    Fault { key: "stale", is_only_late: false, set: |faults| faults.stale = 0.02 },
    Fault { key: "short", is_only_late: false, set: |faults| faults.short = 0.05 },
    Fault { key: "bad_status", is_only_late: false, set: |faults| faults.bad_status = 0.05 },
    Fault { key: "delay", is_only_late: true, set: |faults| faults.delay = 0.1 },
    Fault { key: "lost_interrupt", is_only_late: true, set: |faults| faults.lost_interrupt = 0.2 },
    Fault {
        key: "duplicated_interrupt",
        is_only_late: true,
        set: |faults| faults.duplicated_interrupt = 0.2,
    },
    Fault { key: "invalid_value", is_only_late: false, set: |faults| faults.invalid_value = 0.1 },
];

/// The index of the fault that flips a bit of what drivers read.
const BAD_STATUS: usize = 2;

/// The index of the fault that puts lengths, indices, handles and counts out of range.
const INVALID_VALUE: usize = 6;

/// Seeds in a default run of each case with random moments.
const RANDOM_SEEDS: u64 = 2;

/// Cases that run again with a debug kernel, which is slower: those that lead a driver to different code.
const ON_DEBUG_KERNEL: [CaseKind; 8] = [
    CaseKind::Plain,
    CaseKind::Rebind,
    CaseKind::Kill,
    CaseKind::Fault(BAD_STATUS),
    CaseKind::Fault(INVALID_VALUE),
    CaseKind::Adversarial,
    CaseKind::Reload,
    CaseKind::Combined,
];

/// What a case does to the driver while the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseKind {
    /// Nothing.
    Plain,
    /// The device behaves adversarially: as the manual allows, but real hardware seldom does.
    Adversarial,
    /// The driver's programs are killed, at random moments.
    Kill,
    /// The driver is unbound from its card and bound again, at random moments.
    Rebind,
    /// The module is unloaded and loaded again.
    Reload,
    /// One device fault, by its index in the table.
    Fault(usize),
    /// Several device faults at once, an adversarial device, killed programs and rebinding.
    Combined,
    /// A guest is reset, and reboots.
    Reboot,
}

impl CaseKind {
    /// All kinds, in the order of a run: those that find bugs soonest come first.
    pub fn all() -> impl Iterator<Item = Self> {
        let faults = (0..FAULTS.len()).map(Self::Fault);
        let first = [Self::Plain, Self::Adversarial, Self::Kill, Self::Rebind, Self::Reload];
        first.into_iter().chain(faults).chain([Self::Combined, Self::Reboot])
    }

    /// Its name on the command line and in tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Plain => "plain".to_owned(),
            Self::Adversarial => "adversarial".to_owned(),
            Self::Kill => "kill".to_owned(),
            Self::Rebind => "rebind".to_owned(),
            Self::Reload => "reload".to_owned(),
            Self::Fault(number) => FAULTS[number].key.replace('_', "-"),
            Self::Combined => "combined".to_owned(),
            Self::Reboot => "reboot".to_owned(),
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = renamed::new_name(&renamed::VALUES, name);
        Self::all().find(|kind| kind.name() == name)
    }

    /// Whether a finding in this case means that the driver trusted an invalid value of the device.
    #[must_use]
    pub const fn is_believed(self) -> bool {
        matches!(self, Self::Fault(INVALID_VALUE))
    }

    /// Whether the device is adversarial in this case.
    #[must_use]
    pub fn is_adversarial(self) -> bool {
        matches!(self, Self::Adversarial | Self::Combined)
    }

    /// The number of seeds in a run of all cases. `asked` applies to kinds whose events depend on the seed.
    fn seeds(self, asked: Option<u64>) -> u64 {
        match self {
            Self::Adversarial => asked.unwrap_or(DEFAULT_SEEDS),
            Self::Kill | Self::Rebind | Self::Combined => asked.unwrap_or(RANDOM_SEEDS),
            Self::Plain | Self::Reload | Self::Fault(_) | Self::Reboot => 1,
        }
    }
}

/// The faults of this case's NICs.
#[must_use]
pub fn faults(number: usize) -> DeviceFaults {
    let mut faults = DeviceFaults::default();
    (FAULTS[number].set)(&mut faults);
    faults
}

/// The fault's key in cluster files and reports.
#[must_use]
pub const fn fault_key(number: usize) -> &'static str {
    FAULTS[number].key
}

/// Whether programs continue as if nothing had happened.
#[must_use]
pub fn is_only_late(number: usize) -> bool {
    FAULTS[number].is_only_late
}

/// Several faults at once: the first, and those for which `is_included` returns true.
#[must_use]
pub fn several_faults(mut is_included: impl FnMut() -> bool) -> DeviceFaults {
    let mut faults = faults(0);
    FAULTS.iter().filter(|_| is_included()).for_each(|fault| (fault.set)(&mut faults));
    faults
}

/// One case: what it does, and its random seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What the case does.
    pub kind: CaseKind,
    /// The random seed.
    pub seed: u64,
    /// Whether the guests run the debug kernel, while the cluster's own kernel is another.
    pub on_debug_kernel: bool,
}

/// Selects the cases of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice {
    /// Only this kind.
    pub only: Option<CaseKind>,
    /// The first seed.
    pub from: u64,
    /// The number of seeds of each kind whose events depend on the seed, or of the only kind.
    pub seeds: Option<u64>,
    /// Whether some cases run a second time, with a debug kernel.
    pub with_debug_kernel: bool,
}

impl Choice {
    /// The cases: all kinds, or one, with seeds from `from` on.
    #[must_use]
    pub fn cases(self) -> Vec<Case> {
        let of = |kind: CaseKind, count: u64, on_debug_kernel: bool| {
            let seeds = self.from..self.from.saturating_add(count);
            seeds.map(move |seed| Case { kind, seed, on_debug_kernel })
        };
        if let Some(kind) = self.only {
            return of(kind, self.seeds.unwrap_or(1), false).collect();
        }
        let usual = CaseKind::all().flat_map(|kind| of(kind, kind.seeds(self.seeds), false));
        let watched =
            ON_DEBUG_KERNEL.into_iter().filter(|_| self.with_debug_kernel).flat_map(|kind| of(kind, 1, true));
        usual.chain(watched).collect()
    }
}

/// Seeds of adversarial devices in a default run.
pub const DEFAULT_SEEDS: u64 = 8;

impl Serialize for CaseKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_are_unique_and_find_their_case() {
        let names: Vec<String> = CaseKind::all().map(CaseKind::name).collect();
        for (number, name) in names.iter().enumerate() {
            assert!(!names[..number].contains(name), "{name}");
            assert_eq!(CaseKind::named(name).map(CaseKind::name).as_ref(), Some(name));
        }
        assert_eq!(CaseKind::named("no-such"), None);
    }

    #[test]
    fn every_device_fault_has_a_case_that_sets_only_it() {
        let keys: Vec<&str> = DeviceFaults::default().rates().iter().map(|rate| rate.key).collect();
        assert_eq!(keys.len(), FAULTS.len(), "{keys:?}");
        for (number, key) in keys.iter().enumerate() {
            let faults = faults(number);
            let set: Vec<&str> =
                faults.rates().iter().filter(|rate| rate.chance > 0.0).map(|rate| rate.key).collect();
            assert_eq!((set, FAULTS[number].key), (vec![*key], *key));
        }
        assert_eq!((FAULTS[BAD_STATUS].key, FAULTS[INVALID_VALUE].key), ("bad_status", "invalid_value"));
        let all = several_faults(|| true);
        assert!(all.rates().iter().all(|rate| rate.chance > 0.0));
        assert_eq!(several_faults(|| false), faults(0), "at least one");
    }

    #[test]
    fn default_run_has_all_kinds_and_one_kind_the_given_seeds() {
        let choice = Choice { from: 1, ..Choice::default() };
        let default = choice.cases();
        for kind in CaseKind::all() {
            assert!(default.contains(&Case { kind, seed: 1, on_debug_kernel: false }), "{kind:?}");
        }
        let adversarial = default.iter().filter(|case| case.kind == CaseKind::Adversarial).count();
        assert_eq!(adversarial as u64, DEFAULT_SEEDS);
        let watched = Choice { with_debug_kernel: true, ..choice }.cases();
        assert_eq!(watched[..default.len()], default);
        assert_eq!(
            watched[default.len()..].iter().map(|case| case.kind).collect::<Vec<_>>(),
            ON_DEBUG_KERNEL
        );
        assert!(watched[default.len()..].iter().all(|case| case.on_debug_kernel));
        let seeds = |only, seeds| {
            let cases = Choice { only: Some(only), from: 7, seeds, with_debug_kernel: true }.cases();
            cases.iter().map(|case| case.seed).collect::<Vec<_>>()
        };
        assert_eq!(
            (seeds(CaseKind::Reboot, None), seeds(CaseKind::Plain, Some(3))),
            (vec![7], vec![7, 8, 9])
        );
        let asked = Choice { seeds: Some(3), ..choice }.cases();
        let count = |kind| asked.iter().filter(|case| case.kind == kind).count();
        let sampled =
            [CaseKind::Adversarial, CaseKind::Kill, CaseKind::Rebind, CaseKind::Combined].map(count);
        assert_eq!(
            (sampled, [CaseKind::Plain, CaseKind::Reload, CaseKind::Reboot].map(count)),
            ([3; 4], [1; 3])
        );
    }
}
