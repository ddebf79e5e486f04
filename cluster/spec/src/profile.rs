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
    ($(#[$doc:meta])* $name:ident {
        $($(#[$fact_doc:meta])* $fact:ident,)*
        $(@ $(#[$part_doc:meta])* $part:ident: $part_type:ident,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$fact_doc])* pub $fact: Fact,)*
            $($(#[$part_doc])* pub $part: $part_type,)*
        }

        impl $name {
            /// Adds the numbers of this section, each with its full key.
            fn collect<'a>(&'a self, path: &str, facts: &mut Vec<(String, &'a Fact)>) {
                $(facts.push((format!("{path}.{}", stringify!($fact)), &self.$fact));)*
                $(self.$part.collect(&format!("{path}.{}", stringify!($part)), facts);)*
            }
        }
    };
}

section! {
    /// What one crossing of a resource costs. `n` words in `b` bursts occupy it for `b * fixed_ps + n * per_word_ps`;
    /// the effect is seen `latency_ps` after that, and the latency keeps nobody else waiting.
    Price {
        /// Pipelined delay, once for each crossing.
        latency_ps,
        /// Arbitration, address phase or packet header, for each burst.
        fixed_ps,
        /// Data phase, for each word of 64 bits.
        per_word_ps,
        /// Most bytes of one burst; longer crossings are split. 0: no limit.
        burst_bytes,
    }
}

section! {
    /// The host's own overheads, in processor time.
    Host {
        /// Software before the first store or the doorbell of a message.
        send_ps,
        /// Software from the moment a message is visible in memory until the program has it.
        receive_ps,
        /// From the interrupt line to the handler's end.
        interrupt_ps,
        /// One copy in host memory, for each byte.
        copy_per_byte_ps,
    }
}

section! {
    /// The I/O bus between host and card.
    Bus {
        /// Resources that the two directions have: 1 (shared, as in PCI) or 2 (HyperTransport, PCI Express).
        directions,
        /// From the card's decision to the host's interrupt line.
        interrupt_ps,
        @ /// Programmed-I/O write. Its burst limit is what the processor's write combining gathers.
        pio_write: Price,
        @ /// Programmed-I/O read; the host waits for all of it.
        pio_read: Price,
        @ /// A store whose only purpose is to tell the card that there is work.
        doorbell: Price,
        @ /// DMA write, card to host memory.
        dma_write: Price,
        @ /// DMA read, card from host memory; the card waits for all of it.
        dma_read: Price,
        @ /// DMA read of descriptors.
        descriptor_fetch: Price,
        @ /// DMA write of descriptors.
        descriptor_write_back: Price,
    }
}

section! {
    /// One state machine of the card: a packet of `n` words of 64 bits (payload and tag) keeps it busy for
    /// `fixed_millicycles + n * per_word_millicycles`.
    Machine {
        /// Thousandths of a cycle for each packet.
        fixed_millicycles,
        /// Thousandths of a cycle for each word.
        per_word_millicycles,
    }
}

section! {
    /// The card's own logic.
    NetworkInterface {
        /// One cycle.
        clock_ps,
        @ /// From the bus interface into the FIFO RAM.
        load: Machine,
        @ /// From the FIFO RAM, behind header and routing, to the network port.
        transmit: Machine,
        @ /// From the network port through the checks into the FIFO RAM.
        receive: Machine,
        @ /// From the FIFO RAM to the bus interface.
        store: Machine,
    }
}

section! {
    /// The network. The two link numbers hold for links whose entry in the cluster file gives none.
    Network {
        /// From the first bit into a switch to the first bit out of it when the way is free.
        switch_fall_through_ps,
        /// Serialization rate of a link.
        link_bandwidth_bits_per_s,
        /// Propagation time of a link.
        link_latency_ns,
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
    /// The host processor.
    pub host: Host,
    /// The I/O bus.
    pub bus: Bus,
    /// The card's own logic.
    pub ni: NetworkInterface,
    /// The network.
    pub network: Network,
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

    /// Every number with its full key, as in `bus.doorbell.fixed_ps`.
    #[must_use]
    pub fn facts(&self) -> Vec<(String, &Fact)> {
        let mut facts = Vec::new();
        self.host.collect("host", &mut facts);
        self.bus.collect("bus", &mut facts);
        self.ni.collect("ni", &mut facts);
        self.network.collect("network", &mut facts);
        facts
    }
}

fn impossible(source: &Source, key: &str, fact: &Fact) -> Option<Problem> {
    if fact.source.trim().is_empty() {
        let mend = "say where it comes from, or what it was fitted to";
        return Some(source.problem(&format!("{key}.source"), "the number has no source", mend));
    }
    let (possible, mend) = match key.rsplit('.').next().unwrap_or(key) {
        "clock_ps" | "link_bandwidth_bits_per_s" => (fact.value > 0, "use at least 1"),
        "directions" => ((1..=2).contains(&fact.value), "use 1 (shared) or 2 (one each way)"),
        "link_latency_ns" => (fact.value <= 1_000_000_000, "use at most 1000000000 (one second)"),
        "burst_bytes" => {
            (fact.value == 0 || fact.value >= 8, "use 0 (no limit), or at least one word of 8 bytes")
        }
        "fixed_millicycles" | "per_word_millicycles" => {
            (fact.value <= 1_000_000_000, "use at most 1000000000 (a million cycles)")
        }
        _ => (fact.value <= MAX_PRICE_PS, "use at most 1000000000000 (one second)"),
    };
    (!possible)
        .then(|| source.problem(&format!("{key}.value"), format!("{} is impossible", fact.value), mend))
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
    fn the_ultra_profile_gives_the_papers_latencies_and_rates() {
        let ni = Profile::bundled("ultra-200mhz-htx").unwrap().ni;
        let machines = [&ni.load, &ni.transmit, &ni.receive, &ni.store];
        let spans_ps = |words: u64| {
            machines.map(|machine| {
                let millicycles =
                    machine.fixed_millicycles.value + words * machine.per_word_millicycles.value;
                millicycles * ni.clock_ps.value / 1000
            })
        };
        let latency_ps = |words| spans_ps(words).iter().sum::<u64>();
        assert_eq!((latency_ps(2), latency_ps(10)), (115_000, 380_000), "section 4, figure 7");
        let rate_mb_per_s = |words| words * 8 * 1_000_000 / spans_ps(words).iter().max().unwrap();
        assert!(rate_mb_per_s(2).abs_diff(325) <= 1, "section 4: 325 MB/s at two words");
        assert!(rate_mb_per_s(10) > 700, "section 4: over 700 MB/s at ten words");
    }

    #[test]
    fn a_number_needs_a_source_and_a_possible_value() {
        let text = include_str!("../../../profiles/ultra-200mhz-htx.toml");
        let broken = text.replacen("value = 55000", "value = 9999999999999", 1);
        assert_ne!(text, broken);
        for broken in [broken, text.replacen("source = \"", "source = \"\" #", 1)] {
            let error = Profile::from_source(&Source::from_text("p.toml", broken)).unwrap_err().to_string();
            assert!(error.starts_with("p.toml:") && error.contains("mend:"), "{error}");
        }
    }
}
