//! The bundled assemblies by name, with help texts in the words of the manual.

use crate::nic::registry::Choice;

/// The names of [`niclab_components::BUNDLED`].
pub(super) const CHOICES: &[Choice] = &[
    Choice {
        name: "conf1",
        help: "unreliable: packets are lost, duplicated and reordered as the network has it",
    },
    Choice { name: "conf2", help: "reliable and unordered; duplicates are kept" },
    Choice { name: "conf3", help: "reliable and unordered, without duplicates" },
    Choice { name: "conf4", help: "reliable and ordered, by go-back-N" },
    Choice {
        name: "unreliable_ordered",
        help: "late packets are lost: the protocol that the paper measured",
    },
    Choice { name: "selective_repeat", help: "reliable and ordered; only lost packets are retransmitted" },
    Choice { name: "rate_controlled", help: "conf4, one packet in each interval" },
];

#[cfg(test)]
mod tests {
    use niclab_components::{BUNDLED, Bundled};

    use super::*;

    #[test]
    fn every_bundled_assembly_has_a_name_and_is_valid() {
        assert!(CHOICES.iter().map(|choice| choice.name).eq(BUNDLED.iter().map(|bundled| bundled.name)));
        for choice in CHOICES {
            let assembly = Bundled::named(choice.name).unwrap().assembly();
            assert!(assembly.check().is_ok(), "{}", choice.name);
        }
    }
}
