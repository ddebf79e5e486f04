//! What is done to a driver: the cases, by name.

use niclab_spec::DeviceFaults;
use serde::Serialize;

/// A device fault as a case has it.
struct Fault {
    /// Its key.
    key: &'static str,
    /// Whether the manual lets programs go on as if nothing were wrong (docs/FAULTS.md: what costs time alone). Of the others a
    /// program may see that something is lost.
    is_only_late: bool,
    /// Has it happen, so often that a command of a second meets it.
    set: fn(&mut DeviceFaults),
}

const FAULTS: [Fault; 6] = [
    Fault { key: "stale", is_only_late: false, set: |faults| faults.stale = 0.02 },
    Fault { key: "short", is_only_late: false, set: |faults| faults.short = 0.05 },
    Fault { key: "bad_status", is_only_late: false, set: |faults| faults.bad_status = 0.05 },
    Fault { key: "delay", is_only_late: true, set: |faults| faults.delay = 0.1 },
    Fault { key: "lost_interrupt", is_only_late: true, set: |faults| faults.lost_interrupt = 0.2 },
    Fault { key: "doubled_interrupt", is_only_late: true, set: |faults| faults.doubled_interrupt = 0.2 },
];

/// Cases in a default run whose moments are drawn anew for each seed.
const DRAWN: u64 = 2;

/// What is done to the driver while the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Plain,
    /// The device does all that the manual allows and kind hardware seldom does.
    Unkind,
    /// Its programs are killed, at drawn moments.
    Kill,
    /// The driver is unbound from its card and bound again, at drawn moments.
    Rebind,
    /// The module is unloaded and loaded again.
    Reload,
    /// One device fault, by its place in the table.
    Fault(usize),
    /// Several device faults at once, an unkind device, killed programs and rebinding.
    Combined,
    /// A guest is reset, and boots.
    Reboot,
}

impl Kind {
    /// All of them, in the order of a run: what is found soonest first.
    pub fn all() -> impl Iterator<Item = Self> {
        let faults = (0..FAULTS.len()).map(Self::Fault);
        let first = [Self::Plain, Self::Unkind, Self::Kill, Self::Rebind, Self::Reload];
        first.into_iter().chain(faults).chain([Self::Combined, Self::Reboot])
    }

    /// Its name on the command line and in tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Plain => "plain".to_owned(),
            Self::Unkind => "unkind".to_owned(),
            Self::Kill => "kill".to_owned(),
            Self::Rebind => "rebind".to_owned(),
            Self::Reload => "reload".to_owned(),
            Self::Fault(number) => FAULTS[number].key.replace('_', "-"),
            Self::Combined => "combined".to_owned(),
            Self::Reboot => "reboot".to_owned(),
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.name() == name)
    }

    /// Whether the device is unkind in this case.
    #[must_use]
    pub fn is_unkind(self) -> bool {
        matches!(self, Self::Unkind | Self::Combined)
    }

    /// How many seeds a default run has for it, where it has so many of unkind devices.
    fn seeds(self, unkind: u64) -> u64 {
        match self {
            Self::Unkind => unkind,
            Self::Kill | Self::Rebind | Self::Combined => DRAWN,
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

/// Whether programs go on as if nothing were wrong.
#[must_use]
pub fn is_only_late(number: usize) -> bool {
    FAULTS[number].is_only_late
}

/// Several faults at once: the first, and those for which `is_drawn` says so.
#[must_use]
pub fn several_faults(mut is_drawn: impl FnMut() -> bool) -> DeviceFaults {
    let mut faults = faults(0);
    FAULTS.iter().filter(|_| is_drawn()).for_each(|fault| (fault.set)(&mut faults));
    faults
}

/// One case: what is done, and the seed of all that is drawn for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is done.
    pub kind: Kind,
    /// What is drawn.
    pub seed: u64,
}

/// The cases of a run: all kinds, or one, with seeds from this one on. `seeds` are those of unkind devices, or of the one kind.
#[must_use]
pub fn cases(only: Option<Kind>, from: u64, seeds: Option<u64>) -> Vec<Case> {
    let of = |kind: Kind, count: u64| (from..from.saturating_add(count)).map(move |seed| Case { kind, seed });
    match only {
        Some(kind) => of(kind, seeds.unwrap_or(1)).collect(),
        None => Kind::all().flat_map(|kind| of(kind, kind.seeds(seeds.unwrap_or(DEFAULT_SEEDS)))).collect(),
    }
}

/// Seeds of unkind devices in a default run.
pub const DEFAULT_SEEDS: u64 = 8;

impl Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_and_is_found_by_it() {
        let names: Vec<String> = Kind::all().map(Kind::name).collect();
        for (number, name) in names.iter().enumerate() {
            assert!(!names[..number].contains(name), "{name}");
            assert_eq!(Kind::named(name).map(Kind::name).as_ref(), Some(name));
        }
        assert_eq!(Kind::named("no-such"), None);
    }

    #[test]
    fn every_fault_of_the_device_has_a_case_which_sets_it_alone() {
        let keys: Vec<&str> = DeviceFaults::default().rates().iter().map(|rate| rate.key).collect();
        assert_eq!(keys.len(), FAULTS.len(), "{keys:?}");
        for (number, key) in keys.iter().enumerate() {
            let faults = faults(number);
            let set: Vec<&str> =
                faults.rates().iter().filter(|rate| rate.chance > 0.0).map(|rate| rate.key).collect();
            assert_eq!((set, FAULTS[number].key), (vec![*key], *key));
        }
        let all = several_faults(|| true);
        assert!(all.rates().iter().all(|rate| rate.chance > 0.0));
        assert_eq!(several_faults(|| false), faults(0), "one at least");
    }

    #[test]
    fn a_default_run_has_all_kinds_and_one_kind_alone_has_the_seeds_that_are_asked_for() {
        let default = cases(None, 1, None);
        for kind in Kind::all() {
            assert!(default.contains(&Case { kind, seed: 1 }), "{kind:?}");
        }
        let unkind = default.iter().filter(|case| case.kind == Kind::Unkind).count();
        assert_eq!(unkind as u64, DEFAULT_SEEDS);
        let seeds = |case: &Case| case.seed;
        assert_eq!(cases(Some(Kind::Reboot), 7, None).iter().map(seeds).collect::<Vec<_>>(), [7]);
        assert_eq!(cases(Some(Kind::Plain), 7, Some(3)).iter().map(seeds).collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(cases(None, 5, Some(0)).iter().filter(|case| case.kind == Kind::Unkind).count(), 0);
    }
}
