//! Platform profiles: what each crossing costs in model time.
//!
//! Each number is a [`Fact`]: the value, and where it comes from. A number without a source is marked as fitted, with
//! what it was fitted to. Units stand at the end of each key.

mod check;

use std::path::Path;

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use crate::{Source, SpecError, source::nearest};

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
        $(? $(#[$own_doc:meta])* $own:ident: $own_type:ident,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$fact_doc])* pub $fact: Fact,)*
            $($(#[$part_doc])* pub $part: $part_type,)*
            $($(#[$own_doc])* #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $own: Option<$own_type>,)*
        }

        impl $name {
            /// Adds the numbers of this section, each with its full key.
            fn collect<'a>(&'a self, path: &str, facts: &mut Vec<(String, &'a Fact)>) {
                $(facts.push((format!("{path}.{}", stringify!($fact)), &self.$fact));)*
                $(self.$part.collect(&format!("{path}.{}", stringify!($part)), facts);)*
                $(if let Some(own) = &self.$own {
                    own.collect(&format!("{path}.{}", stringify!($own)), facts);
                })*
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
        @ /// Programmed-I/O write. Its burst limit is what the processor's write combining gathers: 8 turns it off.
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
        ? /// Programmed-I/O write into a region where nothing is combined. Without it: `pio_write`, word by word.
        pio_write_uncombined: Price,
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
        ? /// Firmware on a processor of the card for a message that is sent. Without it: there is no processor.
        processor_send: Machine,
        ? /// Firmware on a processor of the card for a message that arrives. Without it: there is no processor.
        processor_receive: Machine,
        ? /// The card's own bus, which data may cross several times. Without it: it takes no time.
        local_bus: Price,
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

/// The JSON Schema of a profile.
#[must_use]
pub fn profile_schema() -> Schema {
    schema_for!(Profile)
}

macro_rules! bundled {
    ($($name:literal)*) => {
        /// The profiles that come with niclab: name and text.
        const BUNDLED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../profiles/", $name, ".toml")))),*];
    };
}

bundled! {
    "fast-ethernet-p133"
    "fast-ethernet-pii350"
    "htx-200mhz"
    "i960-32-33"
    "lanai4-pci"
    "match-500mhz"
    "pci-32-33"
    "pci-64-66"
    "pcie4-100g"
}

/// Earlier names of bundled profiles, which files of users may hold.
const ALIASES: &[(&str, &str)] = &[("ultra-200mhz-htx", "htx-200mhz")];

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
        let problems = check::problems(source, &profile);
        if problems.is_empty() { Ok(profile) } else { Err(SpecError::Invalid(problems)) }
    }

    /// The profile of this name that comes with niclab.
    #[must_use]
    pub fn bundled(name: &str) -> Option<Self> {
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, now)| now);
        let (_, text) = BUNDLED.iter().find(|(known, _)| *known == name)?;
        // A test reads every bundled profile, so this cannot hide an error.
        Self::from_source(&Source::from_text(name, *text)).ok()
    }

    /// The names of the profiles that come with niclab.
    pub fn bundled_names() -> impl Iterator<Item = &'static str> {
        BUNDLED.iter().map(|(name, _)| *name)
    }

    /// Whether a user means a file by this: its name ends in `.toml`, or has a folder in it.
    #[must_use]
    pub fn is_path(wanted: &str) -> bool {
        wanted.contains('/') || Path::new(wanted).extension().is_some_and(|extension| extension == "toml")
    }

    /// How to mend a name that no bundled profile has.
    #[must_use]
    pub fn mend_of_name(wanted: &str) -> String {
        let known: Vec<&str> = Self::bundled_names().collect();
        match nearest(wanted, &known) {
            Some(near) => format!("did you mean `{near}`? `niclab profile list` shows all"),
            None => format!("use one of {}, or the path of a .toml file", known.join(", ")),
        }
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
    fn an_earlier_name_is_the_same_profile() {
        for (alias, now) in ALIASES {
            assert_eq!(Profile::bundled(alias), Profile::bundled(now));
            let path = format!("{}/../../profiles/{alias}.toml", env!("CARGO_MANIFEST_DIR"));
            assert_eq!(Some(Profile::read(Path::new(&path)).unwrap()), Profile::bundled(now));
        }
    }

    #[test]
    fn the_ultra_profile_gives_the_papers_latencies_and_rates() {
        let ni = Profile::bundled("htx-200mhz").unwrap().ni;
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
}
