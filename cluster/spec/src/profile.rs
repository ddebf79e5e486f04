//! Platform profiles: what each crossing costs in model time.
//!
//! Each number is a [`Fact`]: the value, and where it comes from. A number without a source is marked as fitted, with
//! what it was fitted to. Units stand at the end of each key.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Problem, Source, SpecError};

/// One number of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// The number, in the unit at the end of its key.
    pub value: u64,
    /// Where it comes from: a paper's section, a data sheet, a measurement.
    pub source: String,
    /// For a number that no source gives: what it was fitted to, and how far off it leaves the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitted: Option<String>,
}

macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: Fact,)*
        }

        impl $name {
            /// The numbers of this section, each with its key.
            fn facts(&self) -> Vec<(&'static str, &Fact)> {
                vec![$((stringify!($field), &self.$field)),*]
            }
        }
    };
}

section! {
    /// The I/O bus between host and card.
    Bus {
        /// A burst of programmed-I/O writes, from the store to the card, without its words.
        pio_write_fixed_ps,
        /// Each word of 64 bits of such a burst.
        pio_write_per_word_ps,
        /// A programmed-I/O read, from the load to its result.
        pio_read_ps,
        /// A doorbell: one word written to a register of the card.
        doorbell_ps,
        /// A DMA write, from the card to where a polling host sees it, without its words.
        dma_write_fixed_ps,
        /// Each word of 64 bits of a DMA write.
        dma_write_per_word_ps,
        /// A DMA read, from the request to the last word, without its words.
        dma_read_fixed_ps,
        /// Each word of 64 bits of a DMA read.
        dma_read_per_word_ps,
        /// The longest burst; longer transfers are priced as several.
        burst_max_bytes,
    }
}

section! {
    /// Interrupts.
    Interrupt {
        /// From the card's line to the first instruction of the handler.
        delivery_ps,
    }
}

section! {
    /// The network interface: the card's own logic.
    NetworkInterface {
        /// One clock cycle.
        clock_ps,
        /// A packet through requester and completer together, without its words.
        latency_fixed_ps,
        /// Each word of 64 bits of payload and tag, through both.
        latency_per_word_ps,
        /// The share of the two above that is the requester's, in thousandths.
        requester_share_permille,
        /// How long a packet keeps either unit busy, without its words.
        occupancy_fixed_ps,
        /// How long each word keeps either unit busy.
        occupancy_per_word_ps,
    }
}

section! {
    /// Links and switch.
    Wire {
        /// Serialization rate.
        bandwidth_bits_per_s,
        /// Propagation of one link.
        latency_ps,
        /// Idle time between two frames, as bytes.
        gap_bytes,
        /// From the first bit into the switch to the first bit out.
        switch_fall_through_ps,
    }
}

section! {
    /// The host's own overheads.
    Host {
        /// Processor time to send one message, before its first store reaches the bus.
        send_ps,
        /// Processor time to take one received message, after its status word became visible.
        receive_ps,
        /// Processor time of an interrupt handler that wakes a waiting program.
        interrupt_ps,
        /// Processor time to copy one word of 64 bits.
        copy_per_word_ps,
    }
}

/// The prices of one platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "niclab platform profile")]
pub struct Profile {
    /// The profile's name.
    pub name: String,
    /// The platform, in one sentence.
    pub description: String,
    /// The I/O bus.
    pub bus: Bus,
    /// Interrupts.
    pub interrupt: Interrupt,
    /// The card's own logic.
    pub ni: NetworkInterface,
    /// Links and switch.
    pub wire: Wire,
    /// The host.
    pub host: Host,
}

/// The profiles that come with niclab: name and text.
const BUNDLED: &[(&str, &str)] =
    &[("ultra-200mhz-htx", include_str!("../../../profiles/ultra-200mhz-htx.toml"))];

/// No price may exceed a second, so that sums of billions stay far from the end of 64 bits.
const MAX_PRICE_PS: u64 = 1_000_000_000_000;

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// [`SpecError`] with the place of what is wrong.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        Self::from_source(&Source::read(path)?)
    }

    /// Reads a profile from a text.
    ///
    /// # Errors
    /// [`SpecError::Invalid`] with the place of what is wrong.
    pub fn from_source(source: &Source) -> Result<Self, SpecError> {
        let profile: Self = source.parse()?;
        let problems: Vec<Problem> =
            profile.facts().iter().filter_map(|(key, fact)| impossible(source, key, fact)).collect();
        if problems.is_empty() { Ok(profile) } else { Err(SpecError::Invalid(problems)) }
    }

    /// The profile of this name that comes with niclab.
    #[must_use]
    pub fn bundled(name: &str) -> Option<Self> {
        let (_, text) = BUNDLED.iter().find(|(known, _)| *known == name)?;
        // A test reads every bundled profile, so this cannot hide an error.
        Self::from_source(&Source::from_text(name, *text)).ok()
    }

    /// The names of the profiles that come with niclab.
    pub fn bundled_names() -> impl Iterator<Item = &'static str> {
        BUNDLED.iter().map(|(name, _)| *name)
    }

    /// Every number with its full key, as in `bus.doorbell_ps`.
    #[must_use]
    pub fn facts(&self) -> Vec<(String, &Fact)> {
        [
            ("bus", self.bus.facts()),
            ("interrupt", self.interrupt.facts()),
            ("ni", self.ni.facts()),
            ("wire", self.wire.facts()),
            ("host", self.host.facts()),
        ]
        .into_iter()
        .flat_map(|(section, facts)| {
            facts.into_iter().map(move |(key, fact)| (format!("{section}.{key}"), fact))
        })
        .collect()
    }

    /// The rate of a link whose entry in the cluster file gives none.
    #[must_use]
    pub fn link_bandwidth_bits_per_s(&self) -> u64 {
        self.wire.bandwidth_bits_per_s.value
    }

    /// The propagation time of a link whose entry in the cluster file gives none, rounded up to nanoseconds.
    #[must_use]
    pub fn link_latency_ns(&self) -> u64 {
        self.wire.latency_ps.value.div_ceil(1000)
    }
}

fn impossible(source: &Source, key: &str, fact: &Fact) -> Option<Problem> {
    if fact.source.trim().is_empty() {
        let what = "the number has no source";
        return Some(source.problem(
            &format!("{key}.source"),
            what,
            "say where it comes from, or what it was fitted to",
        ));
    }
    let (possible, mend) = if key.ends_with("_ps") && key != "ni.clock_ps" {
        (fact.value <= MAX_PRICE_PS, "use at most 1000000000000 (one second)")
    } else if key.ends_with("_permille") {
        (fact.value <= 1000, "use at most 1000")
    } else if key.ends_with("gap_bytes") {
        (fact.value <= 1 << 20, "use at most 1048576")
    } else {
        (fact.value > 0, "use at least 1")
    };
    let what = || format!("{} is impossible", fact.value);
    (!possible).then(|| source.problem(&format!("{key}.value"), what(), mend))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bundled_profile_is_valid_and_named_after_its_file() {
        for (name, text) in BUNDLED {
            let profile =
                Profile::from_source(&Source::from_text(name, *text)).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(&profile.name, name);
        }
    }

    #[test]
    fn the_ultra_profile_gives_the_papers_latencies() {
        let ni = Profile::bundled("ultra-200mhz-htx").unwrap().ni;
        let latency_ps = |words| ni.latency_fixed_ps.value + words * ni.latency_per_word_ps.value;
        assert_eq!((latency_ps(2), latency_ps(10)), (115_000, 380_000), "section 4, figure 7");
        let occupancy_ps = |words| ni.occupancy_fixed_ps.value + words * ni.occupancy_per_word_ps.value;
        let rate_mb_per_s = |words| words * 8 * 1_000_000 / occupancy_ps(words);
        assert_eq!(rate_mb_per_s(2), 325, "section 4: 325 MB/s at two words");
        assert!(rate_mb_per_s(10) >= 700, "section 4: over 700 MB/s at ten words");
    }

    #[test]
    fn a_number_needs_a_source_and_a_possible_value() {
        let text = include_str!("../../../profiles/ultra-200mhz-htx.toml");
        let broken = text.replacen("value = 300000", "value = 9999999999999", 1);
        assert_ne!(text, broken);
        for broken in [broken, text.replacen("source = \"", "source = \"\" #", 1)] {
            let error = Profile::from_source(&Source::from_text("p.toml", broken)).unwrap_err().to_string();
            assert!(error.starts_with("p.toml:") && error.contains("mend:"), "{error}");
        }
    }
}
