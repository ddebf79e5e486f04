//! Platform profiles: the price of each transaction in model time.
//!
//! Each number is a [`Fact`]: the value and its source. If no source gives the number, the fact says whether it was
//! fitted to a published number or assumed. Each key ends in its unit.

mod check;

use std::collections::BTreeMap;
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
    /// For a number that no source gives and that was chosen to reproduce a published number: which one, and the
    /// remaining deviation of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitted: Option<String>,
    /// For a number that no source gives and that was not chosen for a published number: the reason for the value, and
    /// what depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed: Option<String>,
}

impl Fact {
    /// Adds this number under its full key.
    fn collect<'a>(&'a self, key: &str, facts: &mut Vec<(String, &'a Self)>) {
        facts.push((key.to_owned(), self));
    }
}

macro_rules! section {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$fact_doc:meta])* $fact:ident,)*
        $(@ $(#[$part_doc:meta])* $part:ident: $part_type:ident,)*
        $(? $(#[$own_doc:meta])* $own:ident: $own_type:ident,)*
        $(% $(#[$table_doc:meta])* $table:ident: $row_type:ident,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$fact_doc])* pub $fact: Fact,)*
            $($(#[$part_doc])* pub $part: $part_type,)*
            $($(#[$own_doc])* #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $own: Option<$own_type>,)*
            $($(#[$table_doc])* #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            pub $table: BTreeMap<String, $row_type>,)*
        }

        impl $name {
            /// Adds the numbers of this section, each with its full key.
            fn collect<'a>(&'a self, path: &str, facts: &mut Vec<(String, &'a Fact)>) {
                $(facts.push((format!("{path}.{}", stringify!($fact)), &self.$fact));)*
                $(self.$part.collect(&format!("{path}.{}", stringify!($part)), facts);)*
                $(if let Some(own) = &self.$own {
                    own.collect(&format!("{path}.{}", stringify!($own)), facts);
                })*
                $(for (name, row) in &self.$table {
                    row.collect(&format!("{path}.{}.{name}", stringify!($table)), facts);
                })*
            }
        }
    };
}

section! {
    /// The price of a transaction on a resource. `n` words in `b` bursts occupy the resource for
    /// `b * fixed_ps + n * per_word_ps`. The effect is visible `latency_ps` later; the resource is free during this
    /// latency.
    Price {
        /// Pipelined delay, once per transaction.
        latency_ps,
        /// Arbitration, address phase or packet header, for each burst.
        fixed_ps,
        /// Data phase, for each word of 64 bits.
        per_word_ps,
        /// Maximum bytes of a burst; longer transactions are split. 0: no limit.
        burst_bytes,
    }
}

section! {
    /// The processor time of a TCP/IP stack, without copies and interrupts.
    Stack {
        /// A system call of the program, entry and exit.
        system_call_ps,
        /// TCP, IP and driver for each sent segment, including acknowledgements.
        segment_send_ps,
        /// Driver, IP and TCP for each received segment.
        segment_receive_ps,
        /// From the end of `segment_receive_ps` until a waiting program continues.
        wake_up_ps,
        /// Checksum of received data, for each byte. The checksum of sent data is computed during the copy.
        checksum_per_byte_ps,
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
        ? /// The TCP/IP stack. Without it the platform has no stack, and no workload can use TCP.
        stack: Stack,
    }
}

section! {
    /// The I/O bus between host and card.
    Bus {
        /// Number of resources for the two directions: 1 (shared, as in PCI) or 2 (HyperTransport, PCI Express).
        directions,
        /// From the card's decision to the host's interrupt line.
        interrupt_ps,
        @ /// Programmed-I/O write. Its burst limit is the size of the processor's write-combining buffer; 8 turns
        /// combining off.
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
        ? /// From one card on the bus into the memory of another. Without it: as a DMA write.
        device_to_device: Price,
    }
}

section! {
    /// One state machine of the card: a packet of `n` words of 64 bits (payload and tag) keeps it busy for
    /// `fixed_millicycles + n * per_word_millicycles + closing_millicycles`.
    Machine {
        /// Thousandths of a cycle for each packet, before its first word.
        fixed_millicycles,
        /// Thousandths of a cycle for each word.
        per_word_millicycles,
        ? /// Thousandths of a cycle for each packet, after its last word. With cut-through machines no word waits for
        /// them. Default: none.
        closing_millicycles: Fact,
    }
}

section! {
    /// The card's own logic.
    NetworkInterface {
        /// One cycle.
        clock_ps,
        ? /// The card's own bus, which data may cross several times. Without it, the bus takes no time.
        local_bus: Price,
        ? /// Earlier place of `machines.load`.
        load: Machine,
        ? /// Earlier place of `machines.transmit`.
        transmit: Machine,
        ? /// Earlier place of `machines.receive`.
        receive: Machine,
        ? /// Earlier place of `machines.store`.
        store: Machine,
        ? /// Earlier place of `machines.processor_send`.
        processor_send: Machine,
        ? /// Earlier place of `machines.processor_receive`.
        processor_receive: Machine,
        % /// Each machine of the card by its name in the model, and the firmware of the card's processor. A missing
        /// machine takes no time; some models require certain machines.
        machines: Machine,
    }
}

impl NetworkInterface {
    /// Every machine: its name, its key below `ni`, and its cycles.
    pub fn all_machines(&self) -> impl Iterator<Item = (&str, String, &Machine)> {
        let earlier = [
            ("load", &self.load),
            ("transmit", &self.transmit),
            ("receive", &self.receive),
            ("store", &self.store),
            ("processor_send", &self.processor_send),
            ("processor_receive", &self.processor_receive),
        ];
        let earlier =
            earlier.into_iter().filter_map(|(name, cycles)| Some((name, name.to_owned(), cycles.as_ref()?)));
        let table = self.machines.iter().map(|(name, cycles)| (&**name, format!("machines.{name}"), cycles));
        earlier.chain(table)
    }
}

section! {
    /// The network. The two link numbers are for links whose entry in the cluster file has none.
    Network {
        /// From the first bit into a switch to the first bit out of it, if the output is free.
        switch_fall_through_ps,
        /// Serialization rate of a link.
        link_bandwidth_bits_per_s,
        /// Propagation time of a link.
        link_latency_ns,
    }
}

/// How a switch forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// As soon as the first bits have arrived, as ATOLL's switch does.
    #[default]
    CutThrough,
    /// Once the complete frame has arrived.
    StoreAndForward,
    /// There is no switch: all nodes share one wire, half duplex, as on an Ethernet repeater. Frames that begin at the
    /// same time collide (IEEE 802.3, clause 4). Only in the simulator.
    Repeater,
    /// As `repeater`, with cards that do not capture the wire: a card that has just sent backs off so that another card
    /// sends first (Ramakrishnan and Yang, *The Ethernet capture effect: analysis and solution*, 1994; Digital's patent
    /// EP 0 632 620).
    RepeaterWithoutCapture,
}

impl Forwarding {
    /// Whether all nodes share one wire.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Repeater | Self::RepeaterWithoutCapture)
    }
}

/// Framing on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// Ethernet framing: header, preamble, check sequence, gap, and a minimum frame length. The switch uses the
    /// header's addresses.
    #[default]
    Ethernet,
    /// No framing. A frame with routing of its own omits its Ethernet header, and the switch uses that routing. Any
    /// other frame keeps its header, and the switch uses the header.
    Native,
}

/// When a machine of a card passes a packet to the next machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Passing {
    /// When the machine has processed the whole packet.
    #[default]
    StoreAndForward,
    /// Word by word.
    CutThrough,
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
    /// Earlier names of the profile, which users' files may contain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formerly: Vec<String>,
    /// How the network's switch forwards, unless the cluster file says otherwise.
    #[serde(default)]
    pub forwarding: Forwarding,
    /// Framing on the network's links, unless the cluster file says otherwise.
    #[serde(default)]
    pub framing: Framing,
    /// When a machine of a card passes a packet to the next machine, if the model supports both and the cluster file
    /// does not say.
    #[serde(default)]
    pub passing: Passing,
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
            /// The profiles that niclab includes: name and text.
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
    "fast-ethernet-3c595-p133"
    "fast-ethernet-3c595-pii350"
    "fast-ethernet-3c905-pii300"
    "htx-200mhz-fitted"
    "htx-asic-600mhz"
    "htx-asic-1ghz"
    "match-150mhz"
    "match-750mhz"
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// [`SpecError`] with the location.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        Self::from_source(&Source::read(path)?)
    }

    /// Reads a profile from a text.
    ///
    /// # Errors
    /// [`SpecError::Invalid`] with the location.
    pub fn from_source(source: &Source) -> Result<Self, SpecError> {
        let profile: Self = source.parse()?;
        let problems = check::problems(source, &profile);
        if problems.is_empty() { Ok(profile) } else { Err(SpecError::Invalid(problems)) }
    }

    /// The profile of this name, if niclab includes one.
    #[must_use]
    pub fn bundled(name: &str) -> Option<Self> {
        // A test reads every bundled profile, so this hides no error.
        let read = |(name, text): &(&str, &str)| Self::from_source(&Source::from_text(name, *text)).ok();
        match BUNDLED.iter().find(|(known, _)| *known == name) {
            Some(known) => read(known),
            None => {
                BUNDLED.iter().filter_map(read).find(|known| known.formerly.iter().any(|old| old == name))
            }
        }
    }

    /// The names of the profiles that niclab includes.
    pub fn bundled_names() -> impl Iterator<Item = &'static str> {
        BUNDLED.iter().map(|(name, _)| *name)
    }

    /// Whether the user means a file: the name ends in `.toml`, or contains a slash.
    #[must_use]
    pub fn is_path(wanted: &str) -> bool {
        wanted.contains('/') || Path::new(wanted).extension().is_some_and(|extension| extension == "toml")
    }

    /// The fix for a name that no bundled profile has.
    #[must_use]
    pub fn remedy_of_name(wanted: &str) -> String {
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
    fn earlier_name_selects_the_same_profile() {
        let (earlier, now) = ("ultra-200mhz-htx", Profile::bundled("htx-200mhz"));
        assert_eq!(Profile::bundled(earlier), now);
        let path = format!("{}/../../profiles/{earlier}.toml", env!("CARGO_MANIFEST_DIR"));
        assert_eq!(Some(Profile::read(Path::new(&path)).unwrap()), now);
        assert_eq!(Profile::bundled("no-such-profile"), None);
    }

    #[test]
    fn machines_at_their_earlier_place_are_read() {
        let (_, text) = BUNDLED.iter().find(|(name, _)| *name == "lanai4-pci").unwrap();
        let read = |text: String| Profile::from_source(&Source::from_text("p.toml", text));
        // The later machines never had another place.
        let later = ["scan", "processor_acknowledge", "io_card_receive", "io_card_send", "function_card"];
        let moved = later.iter().fold(text.replace("[ni.machines.", "[ni."), |text, name| {
            text.replace(&format!("[ni.{name}]"), &format!("[ni.machines.{name}]"))
        });
        let earlier = read(moved).unwrap();
        let now = read((*text).to_owned()).unwrap();
        let names = |profile: &Profile| {
            let all = profile.ni.all_machines().map(|(name, _, cycles)| (name.to_owned(), cycles.clone()));
            all.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(names(&earlier), names(&now));
        assert_eq!(names(&now).len(), 6 + later.len());
        assert_eq!(earlier.facts().len(), now.facts().len());
        let twice = text.replacen("[ni.machines.load]", "[ni.load]", 1)
            + &text[text.find("[ni.machines.load]").unwrap()..];
        let twice = twice.rsplit_once("[ni.machines.transmit]").unwrap().0.to_owned();
        let error = read(twice).unwrap_err().to_string();
        assert!(error.contains("`load` is priced twice"), "{error}");
    }

    #[test]
    fn fitted_profile_reproduces_its_published_numbers() {
        let ni = Profile::bundled("htx-200mhz-fitted").unwrap().ni;
        let machines = ["load", "transmit", "receive", "store"].map(|name| &ni.machines[name]);
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
