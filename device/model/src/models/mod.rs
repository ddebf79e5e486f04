//! The NIC models, one folder each, all with the same files. `descriptor` is a model's entry in the registry.

use crate::fabric::ethernet::{FrameClass, HEADER_BYTES};
use crate::nic::registry::{Begun, Model};

pub mod gamma;
pub mod grim;
pub mod inic;
pub mod mailbox;
pub mod matching;
pub mod ultra;

/// All models of this build. The first is the default for a cluster file that names no model.
pub static MODELS: &[&Model] = &[
    &ultra::descriptor::MODEL,
    &matching::descriptor::MODEL,
    &mailbox::descriptor::MODEL,
    &inic::descriptor::MODEL,
    &grim::descriptor::MODEL,
    &gamma::descriptor::MODEL,
];

/// The default model of a cluster file that names none.
pub fn default_model() -> &'static Model {
    &ultra::descriptor::MODEL
}

/// The model of this name.
pub fn named(name: &str) -> Option<&'static Model> {
    MODELS.iter().copied().find(|model| model.name == name)
}

/// The model whose frames begin with this byte.
pub fn of_protocol(protocol: u8) -> Option<&'static Model> {
    MODELS.iter().copied().find(|model| model.protocol == protocol)
}

/// The message whose first frame this is, as the frame's model decodes it. Ethernet frames of other protocols begin no
/// message.
pub fn begun_in(frame: &[u8]) -> Option<Begun> {
    if FrameClass::of(frame) != FrameClass::Card {
        return None;
    }
    let protocol = frame.get(HEADER_BYTES)?;
    (of_protocol(*protocol)?.begun)(frame)
}

/// The node to which a frame's routing leads; none if frames of its model have no routing.
pub fn routed_to(frame: &[u8]) -> Option<u16> {
    if FrameClass::of(frame) != FrameClass::Card {
        return None;
    }
    let protocol = frame.get(HEADER_BYTES)?;
    of_protocol(*protocol)?.routing.and_then(|routing| routing(frame))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::nic::ShellCounts;
    use crate::nic::registry::{CardContext, DrawnWorkload, Values};
    use crate::nic::windows::lay_out;
    use crate::platform::profile::Profile;

    #[test]
    fn each_model_is_found_by_what_it_says() {
        assert_eq!(MODELS.first().copied(), Some(default_model()));
        for model in MODELS.iter().copied() {
            assert_eq!(named(model.name), Some(model));
            assert_eq!(of_protocol(model.protocol), Some(model), "{} shares its protocol", model.name);
            let others = MODELS.iter().filter(|other| **other != model);
            for other in others {
                let bits = (model.protocol ^ other.protocol).count_ones();
                assert!(bits > 1, "one damaged bit makes a frame of {} one of {}", model.name, other.name);
            }
            assert!(model.protocol != 0, "{}: a frame of zeros is nobody's", model.name);
        }
        assert_eq!((named("nothing"), of_protocol(0)), (None, None));
    }

    #[test]
    fn default_and_drawn_cards_can_be_built() {
        for model in MODELS {
            let context =
                || CardContext { node: 0, nodes: 2, mtu_bytes: 1_500, profile: Profile::default().into() };
            let defaults = Values::defaults(model);
            assert_eq!(model.problems(&defaults), []);
            assert!((model.build)(&defaults, context()).is_ok(), "{}", model.name);
            let layout = lay_out(model.windows, model.ports);
            assert!(layout.is_ok(), "{}: {layout:?}", model.name);
            let limits = (model.limits)(&defaults);
            assert!((1..=model.ports as usize).contains(&limits.open_ports.len()), "{}", model.name);
            assert!((model.promises)(&defaults).sound.is_delivered, "{}", model.name);
            for draw in 0..1_000 {
                let mut workload = DrawnWorkload {
                    nodes: 2,
                    message_bytes: 8,
                    slices: 8,
                    receive: 0,
                    echoes: false,
                    datagram_every: 0,
                };
                let drawn = (model.swarm.draw)(&mut |bound| draw % bound.max(1), &mut workload);
                assert_eq!((drawn.model(), model.problems(&drawn)), (*model, Vec::new()));
                assert!((model.build)(&drawn, context()).is_ok(), "{}: {drawn:?}", model.name);
            }
        }
    }

    #[test]
    fn no_two_counters_of_a_card_have_one_name() {
        for model in MODELS {
            let context =
                CardContext { node: 0, nodes: 2, mtu_bytes: 1_500, profile: Profile::default().into() };
            let card = (model.build)(&Values::defaults(model), context).ok().unwrap();
            let common = card.statistics(&ShellCounts::default()).by_name();
            let mut names: Vec<_> = common.into_iter().chain(card.counters()).map(|(name, _)| name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{}: {names:?}", model.name);
            assert!(count <= niclab_abi::control::MAX_COUNTERS as usize, "{}", model.name);
        }
    }

    /// For every value that shared code and models declare, each invalid choice is out of range and changes no other
    /// bits.
    #[test]
    fn every_declared_host_value_can_be_put_out_of_its_range() {
        use crate::nic::host_values::{CardLimits, HostValue, OF_EVERY_CARD};
        const LIMITS: CardLimits = CardLimits { nodes: 2, ports: 8, max_message_bytes: 64 };
        for model in MODELS {
            let values = || model.host_values.iter().copied().flatten();
            assert!(values().all(|value| value.first_bit % 64 + value.bits <= 64), "{}", model.name);
            assert!(values().count() > OF_EVERY_CARD.len(), "{} declares none of its own", model.name);
            for value in values() {
                for choice in 0..HostValue::CHOICES {
                    let invalid = value.invalid(1, choice, &LIMITS);
                    let invalid = invalid.unwrap_or_else(|| panic!("{}: {}", model.name, value.name));
                    let word = value.write(u64::MAX / 3, invalid);
                    assert_eq!(value.read(word), invalid, "{}: {}", model.name, value.name);
                    assert_eq!(value.write(word, value.read(u64::MAX / 3)), u64::MAX / 3);
                }
            }
        }
    }

    #[test]
    fn values_that_cannot_be_are_named() {
        use crate::nic::registry::{ParameterKind, Value};
        for model in MODELS {
            for parameter in model.parameters {
                let defaults = Values::defaults(model);
                let wrong = match &parameter.kind {
                    ParameterKind::Number { most, .. } | ParameterKind::Numbers { most, .. } => {
                        Value::Number(most + 1)
                    }
                    ParameterKind::Choice { .. } => Value::Word("no such word".into()),
                };
                let problems = model.problems(&defaults.with(parameter.key, wrong));
                let found = problems.iter().find(|problem| problem.key == parameter.key);
                assert!(
                    found.is_some_and(|problem| !problem.remedy.is_empty()),
                    "{} {}",
                    model.name,
                    parameter.key
                );
            }
        }
    }
}
