//! The assemblies that the card can be asked for by name.

use niclab_components::{Assembly, Flow, Kind, Parameter, PartError, Recipe};

use crate::nic::registry::Choice;

const fn recipe(flow: Flow, finds_duplicates: bool) -> Recipe {
    Recipe { flow, finds_duplicates, controls_rate: false, mitigates: false }
}

/// Their names.
pub(super) const BUNDLED: &[Choice] = &[
    Choice {
        name: "conf1",
        help: "unreliable: packets are lost, doubled and reordered as the network has it",
    },
    Choice { name: "conf2", help: "reliable and unordered; duplicates are kept" },
    Choice { name: "conf3", help: "reliable and unordered, without duplicates" },
    Choice { name: "conf4", help: "reliable and ordered, by go-back-N" },
    Choice { name: "unreliable_ordered", help: "what is late is lost: the protocol that the paper measured" },
    Choice { name: "selective_repeat", help: "reliable and ordered; only what was lost goes again" },
    Choice { name: "rate_controlled", help: "conf4, one packet in each interval" },
];

/// The assembly of this name.
pub(super) fn bundled(name: &str) -> Option<Result<Assembly, PartError>> {
    let recipe = match name {
        "conf1" => recipe(Flow::Unreliable, false),
        "conf2" => recipe(Flow::Reliable, false),
        "conf3" => recipe(Flow::Reliable, true),
        "conf4" => recipe(Flow::GoBackN, true),
        "unreliable_ordered" => recipe(Flow::Newest, false),
        "selective_repeat" => recipe(Flow::SelectiveRepeat, false),
        "rate_controlled" => Recipe { controls_rate: true, ..recipe(Flow::GoBackN, true) },
        _ => return None,
    };
    let mut assembly = recipe.assembly();
    if let Ok(assembly) = &mut assembly
        && name == "rate_controlled"
    {
        let _ = assembly.set(Kind::Timer, Parameter::TimeoutUs, 10_000);
    }
    Some(assembly)
}
