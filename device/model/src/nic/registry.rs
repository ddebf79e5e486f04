//! The descriptor of each NIC model. Shared code reads it, and never asks which model a card is.
//!
//! Each model has one [`Model`], in a file `descriptor.rs` of its folder; [`crate::models::MODELS`] lists them. Cluster
//! files, their schema, the daemon, the simulator and its swarms all read from there.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use thiserror::Error;

use crate::fabric::Routing;
use crate::nic::Address;
use crate::nic::Nic;
use crate::nic::host_values::HostValues;
use crate::nic::windows::Window;
use crate::platform::profile::Profile;

/// Descriptor of a NIC model.
pub struct Model {
    /// The name in cluster files, on command lines and in reports.
    pub name: &'static str,
    /// The name in sentences.
    pub title: &'static str,
    /// The article before it.
    pub article: &'static str,
    /// The first byte after the Ethernet header of every frame of this model, and of no other model's.
    pub protocol: u8,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Where it was published.
    pub paper: &'static str,
    /// Ports of a card.
    pub ports: u32,
    /// The card's windows in the BAR.
    pub windows: &'static [Window],
    /// The keys of a card's table in a cluster file.
    pub parameters: &'static [Parameter],
    /// Problems of values that are valid one by one.
    pub check: fn(&Values) -> Vec<Problem>,
    /// What a card with these values can do.
    pub limits: fn(&Values) -> Limits,
    /// What a card with these values promises for each message.
    pub promises: fn(&Values) -> Promises,
    /// The profile of the platform that the paper measured on.
    pub default_profile: &'static str,
    /// The machines of a card that a profile must price, by their names in the profile.
    pub machines: &'static [&'static str],
    /// What drivers and libraries may ask of a card: bits of [`niclab_abi::config`].
    pub features: u64,
    /// The values that a card gives its host and that a driver must check before it uses them.
    pub host_values: HostValues,
    /// The program's message that begins in this frame. None if the frame continues a message, or is the cards' own.
    pub begun: fn(&[u8]) -> Option<Begun>,
    /// The node to which one of its frames is routed, if the frames have routing besides the Ethernet header.
    pub routing: Option<Routing>,
    /// Makes a card.
    pub build: fn(&Values, CardContext) -> Result<AnyNic, BuildError>,
    /// The firmware that cards can load while they run; none if cards take no firmware.
    pub programs: Option<Programs>,
    /// How a swarm of random runs selects and configures this model.
    pub swarm: Swarm,
}

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Model {}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Model {
    /// Whether a card has all of these features.
    pub const fn has(&self, features: u64) -> bool {
        self.features & features == features
    }

    /// A card of this model, in a sentence.
    pub fn a_card(&self) -> String {
        format!("{} {} card", self.article, self.title)
    }

    /// The parameter of this key.
    pub fn parameter(&self, key: &str) -> Option<&'static Parameter> {
        self.parameters.iter().find(|parameter| parameter.key == key)
    }

    /// Problems of these values: each alone, or all together.
    pub fn problems(&self, values: &Values) -> Vec<Problem> {
        let each = values.iter().filter_map(|(parameter, value)| parameter.problem(value));
        let problems: Vec<Problem> = each.collect();
        if problems.is_empty() { (self.check)(values) } else { problems }
    }
}

/// The start of a message, as its first frame states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The sending port.
    pub from: Address,
    /// The receiving port.
    pub to: Address,
    /// Whether it interrupts its receiver.
    pub interrupt: bool,
}

/// A card's node, cluster and prices.
pub struct CardContext {
    /// Its node's number.
    pub node: u16,
    /// Nodes of the cluster: at most 65,536, because node numbers have 16 bits.
    pub nodes: u32,
    /// Max bytes after the Ethernet header of a frame: the minimum over all links of the cluster.
    pub mtu_bytes: u32,
    /// Prices.
    pub profile: Arc<Profile>,
}

/// A card of any model.
pub type AnyNic = Box<dyn Nic + Send>;

/// Why a card cannot be built: names the parameter and the fix.
pub type BuildError = Box<dyn core::error::Error + Send + Sync>;

/// One key of a card's table in a cluster file.
#[derive(Debug)]
pub struct Parameter {
    /// Its key in the model's table.
    pub key: &'static str,
    /// What it means, with its unit, in the words of a manual.
    pub help: &'static str,
    /// Where its default is from.
    pub origin: Origin,
    /// Its type and range.
    pub kind: ParameterKind,
}

/// Source of a parameter's default. Sizes and capacities of a card decide what can be compared with papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A source gives it: a section of the model's paper, a manual.
    Source(&'static str),
    /// No source gives it; the text says why this value.
    Assumed(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(source) => write!(f, "{source}"),
            Self::Assumed(why) => write!(f, "assumed: {why}"),
        }
    }
}

/// Type and range of a parameter.
#[derive(Debug)]
pub enum ParameterKind {
    /// A number.
    Number {
        /// The value if the file has none.
        default: u64,
        /// Minimum.
        least: u64,
        /// Maximum.
        most: u64,
    },
    /// As many numbers as the default has.
    Numbers {
        /// The values if the file has none.
        default: &'static [u64],
        /// Maximum of each.
        most: u64,
    },
    /// One of several words.
    Choice {
        /// The choice if the file has none.
        default: &'static str,
        /// All of them.
        choices: &'static [Choice],
    },
}

/// A word that a parameter can be.
#[derive(Debug)]
pub struct Choice {
    /// The word.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
}

impl Parameter {
    /// The value if the file has none.
    pub fn default_value(&self) -> Value {
        match self.kind {
            ParameterKind::Number { default, .. } => Value::Number(default),
            ParameterKind::Numbers { default, .. } => Value::Numbers(default.to_vec()),
            ParameterKind::Choice { default, .. } => Value::Word(default.to_string()),
        }
    }

    /// The problem of the value, if any.
    pub fn problem(&self, value: &Value) -> Option<Problem> {
        let problem = |what, remedy| Some(Problem { key: self.key, what, remedy });
        let out_of_range = |number: &u64, least, most| {
            problem(format!("{number} is out of range"), format!("use {least} to {most}"))
        };
        match (&self.kind, value) {
            (ParameterKind::Number { least, most, .. }, Value::Number(number)) => {
                if (least..=most).contains(&number) { None } else { out_of_range(number, *least, *most) }
            }
            (ParameterKind::Numbers { default, .. }, Value::Numbers(numbers))
                if numbers.len() != default.len() =>
            {
                let what = format!("{} numbers instead of {}", numbers.len(), default.len());
                problem(what, format!("give {}", default.len()))
            }
            (ParameterKind::Numbers { most, .. }, Value::Numbers(numbers)) => {
                let wrong = numbers.iter().find(|number| *number > most)?;
                out_of_range(wrong, 0, *most)
            }
            (ParameterKind::Choice { choices, .. }, Value::Word(word)) => {
                if choices.iter().any(|choice| choice.name == word) {
                    return None;
                }
                let known: Vec<&str> = choices.iter().map(|choice| choice.name).collect();
                problem(
                    format!("`{word}` is not a choice of this key"),
                    format!("use one of {}", known.join(", ")),
                )
            }
            _ => problem("the value has the wrong type".to_string(), "see `niclab schema`".to_string()),
        }
    }
}

/// A value that no card can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The parameter.
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// How to fix it.
    pub remedy: String,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of [`ParameterKind::Number`].
    Number(u64),
    /// Of [`ParameterKind::Numbers`].
    Numbers(Vec<u64>),
    /// Of [`ParameterKind::Choice`].
    Word(String),
}

/// A model has no parameter of this key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no parameter `{0}`; `niclab schema` describes every key")]
pub struct UnknownKey(pub String);

/// A value for each parameter of a model.
#[derive(Clone, PartialEq, Eq)]
pub struct Values {
    model: &'static Model,
    /// In the order of [`Model::parameters`].
    values: Vec<Value>,
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(parameter, value)| (parameter.key, value))).finish()
    }
}

impl Values {
    /// The values of a cluster file that sets no key.
    pub fn defaults(model: &'static Model) -> Self {
        Self { model, values: model.parameters.iter().map(Parameter::default_value).collect() }
    }

    /// The model whose values they are.
    pub const fn model(&self) -> &'static Model {
        self.model
    }

    /// Each parameter with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Parameter, &Value)> {
        self.model.parameters.iter().zip(&self.values)
    }

    /// Sets one.
    ///
    /// # Errors
    /// [`UnknownKey`]. [`Model::problems`] finds values out of range.
    pub fn set(&mut self, key: &str, value: Value) -> Result<(), UnknownKey> {
        let place = self.model.parameters.iter().position(|parameter| parameter.key == key);
        let slot = place.and_then(|place| self.values.get_mut(place));
        *slot.ok_or_else(|| UnknownKey(key.to_string()))? = value;
        Ok(())
    }

    /// These values with one changed. A key that the model does not have changes nothing.
    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> Self {
        let is_set = self.set(key, value).is_ok();
        debug_assert!(is_set, "{} has no parameter `{key}`", self.model.name);
        self
    }

    fn value(&self, key: &str) -> Option<&Value> {
        let value = self.iter().find(|(parameter, _)| parameter.key == key).map(|(_, value)| value);
        debug_assert!(value.is_some(), "{} has no parameter `{key}`", self.model.name);
        value
    }

    /// The number of this key; zero if there is none.
    pub fn number(&self, key: &str) -> u64 {
        match self.value(key) {
            Some(Value::Number(number)) => *number,
            _ => 0,
        }
    }

    /// The same in 32 bits, enough for every number whose maximum has 32 bits.
    pub fn number_u32(&self, key: &str) -> u32 {
        u32::try_from(self.number(key)).unwrap_or(u32::MAX)
    }

    /// The numbers of this key; empty if there are none.
    pub fn numbers(&self, key: &str) -> &[u64] {
        match self.value(key) {
            Some(Value::Numbers(numbers)) => numbers,
            _ => &[],
        }
    }

    /// The word of this key; empty if there is none.
    pub fn word(&self, key: &str) -> &str {
        match self.value(key) {
            Some(Value::Word(word)) => word,
            _ => "",
        }
    }
}

/// What a card can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Numbers of the ports that can be opened.
    pub open_ports: Vec<u16>,
    /// Max slices, or events, of a port's queue.
    pub max_slices: u32,
    /// Max ports of other cards that may send to one port; none: unlimited.
    pub senders_per_port: Option<u32>,
    /// The parameter that raises this limit.
    pub senders_raised_by: Option<&'static str>,
    /// List entries that the card's memory holds; zero for a card without lists.
    pub entries: u32,
    /// Messages without a posted receive that the card remembers; zero for a card without lists.
    pub unexpected_messages: u32,
    /// Max bytes of a message.
    pub max_message_bytes: u64,
    /// The parameter that raises this limit.
    pub message_raised_by: Option<&'static str>,
    /// Message sizes are multiples of this, in bytes.
    pub message_unit_bytes: u32,
    /// Max payload that a program has pushed into a port's outbound queue and that has not left; zero for a card
    /// without such a queue.
    pub payload_bytes: u64,
    /// How programs push a payload: the first segment has this size, and each later segment doubles; zero: whole
    /// messages.
    pub first_segment_bytes: u64,
    /// Ports of peer devices on the node's bus, which no program opens. They return a message to its sender on
    /// request.
    pub peripheral_ports: Vec<u16>,
}

/// What a card promises of each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The message arrives.
    pub is_delivered: bool,
    /// The message arrives at most once.
    pub is_once: bool,
    /// The message arrives before later messages of the same port to the same port.
    pub is_in_order: bool,
}

impl Promise {
    /// Everything.
    pub const ALL: Self = Self { is_delivered: true, is_once: true, is_in_order: true };

    /// What both promise.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            is_delivered: self.is_delivered && other.is_delivered,
            is_once: self.is_once && other.is_once,
            is_in_order: self.is_in_order && other.is_in_order,
        }
    }
}

/// What a card promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// On a network that does not lose, duplicate, damage or reorder frames.
    pub sound: Promise,
    /// On a network that does any of this, without a permanent interruption.
    pub faulty: Promise,
}

impl Promises {
    /// What both promise.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { sound: self.sound.and(other.sound), faulty: self.faulty.and(other.faulty) }
    }

    /// What a card promises on a network with or without faults. A switch without deep queues drops frames.
    #[must_use]
    pub const fn on(self, is_faulty: bool, is_deep: bool) -> Promise {
        let lossy = if is_faulty || !is_deep { self.faulty } else { self.sound };
        // A switch does not duplicate or reorder frames, but a card's retransmissions of dropped frames may do both.
        let is_repeated = !is_deep && self.faulty.is_delivered;
        let shuffled = if is_faulty || is_repeated { self.faulty } else { self.sound };
        Promise {
            is_delivered: lossy.is_delivered,
            is_once: shuffled.is_once,
            is_in_order: shuffled.is_in_order,
        }
    }
}

/// Firmware that cards of a model load while they run ([`crate::nic::Nic::reload_firmware`]).
pub struct Programs {
    /// What a card with this firmware promises.
    ///
    /// # Errors
    /// Why the image is invalid.
    pub promises: fn(image: &[u8]) -> Result<Promises, String>,
    /// Generates a valid random image for a cluster of `nodes` nodes.
    pub draw: fn(&mut Draw<'_>, nodes: u32) -> Vec<u8>,
}

/// How a swarm of random runs selects and configures a model.
pub struct Swarm {
    /// One run in `one_in` of those whose messages the cluster function carries uses this model; the first model of
    /// the registry has the rest. Zero: only runs that name the model, so that a new model does not change the run of
    /// any seed.
    pub one_in: u32,
    /// Whether devices of random runs have faults.
    pub draws_device_faults: bool,
    /// Whether values are sampled from a random stream of this model alone. Then one more or less sample changes
    /// neither later choices, such as links and faults, nor any other model. The older models sample from the common
    /// stream.
    pub draws_apart: bool,
    /// Samples values, and adapts the workload where the model can do more or less than the usual. A seed's run
    /// depends on the samples and their order.
    pub draw: fn(&mut Draw<'_>, &mut DrawnWorkload) -> Values,
}

/// A random number below the one given.
pub type Draw<'a> = dyn FnMut(u32) -> u32 + 'a;

/// What a model may change of a random workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnWorkload {
    /// Nodes of the cluster; changes are ignored.
    pub nodes: u32,
    /// Max payload of a message.
    pub message_bytes: u32,
    /// Slices of each receive queue, or events.
    pub slices: u32,
    /// How programs receive: an index into the workloads' methods. Only for [`niclab_abi::config::FEATURE_LISTS`] and
    /// [`niclab_abi::config::FEATURE_CHANNELS`].
    pub receive: usize,
    /// Messages go to peer devices on the NIC's bus, which return them.
    pub echoes: bool,
    /// One datagram of ordinary networking over the same card follows every n-th message; zero: none.
    pub datagram_every: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shallow_queue_loses_frames_and_duplicates_retransmissions() {
        let promise = |is_delivered, is_once, is_in_order| Promise { is_delivered, is_once, is_in_order };
        let (again, never) = (promise(true, false, false), promise(false, false, false));
        let on = |faulty, is_faulty, is_deep| Promises { sound: Promise::ALL, faulty }.on(is_faulty, is_deep);
        for faulty in [again, never] {
            assert_eq!(on(faulty, false, true), Promise::ALL);
            assert_eq!([on(faulty, true, true), on(faulty, true, false)], [faulty; 2]);
        }
        assert_eq!(on(again, false, false), again);
        assert_eq!(on(never, false, false), promise(false, true, true), "a lost frame does not arrive twice");
    }
}
