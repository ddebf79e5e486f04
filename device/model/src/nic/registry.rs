//! What a NIC model says of itself, so that shared code looks it up and never asks which model it is.
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

/// A NIC model, as one descriptor.
pub struct Model {
    /// The name in cluster files, on command lines and in reports.
    pub name: &'static str,
    /// The name in sentences.
    pub title: &'static str,
    /// The article before it.
    pub article: &'static str,
    /// The first byte behind the Ethernet header of every frame of this model: no other's.
    pub protocol: u8,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Where it was published.
    pub paper: &'static str,
    /// Ports of a card.
    pub ports: u32,
    /// What a card has in the BAR.
    pub windows: &'static [Window],
    /// What a cluster file can say of a card.
    pub parameters: &'static [Parameter],
    /// What is wrong with values that are possible one by one.
    pub check: fn(&Values) -> Vec<Problem>,
    /// What a card with these values can do.
    pub limits: fn(&Values) -> Limits,
    /// What a card with these values promises of messages.
    pub promises: fn(&Values) -> Promises,
    /// The platform that the paper measured on: the name of a profile.
    pub default_profile: &'static str,
    /// The machines of a card that a profile must price, by their names there.
    pub machines: &'static [&'static str],
    /// What drivers and libraries may ask of a card: bits of [`niclab_abi::config`].
    pub features: u64,
    /// The values that a card gives its host and that a driver must check before it uses them.
    pub host_values: HostValues,
    /// The message of a program's that begins in a frame, as the frame says. None where none does: it goes on in this
    /// frame, or the frame is the cards' own.
    pub begun: fn(&[u8]) -> Option<Begun>,
    /// Which node the routing of one of its frames leads to, where they have routing of their own beside the Ethernet
    /// header.
    pub routing: Option<Routing>,
    /// Makes a card.
    pub build: fn(&Values, Seat) -> Result<AnyNic, BuildError>,
    /// What cards can be programmed with while they run; none where they take no programs.
    pub programs: Option<Programs>,
    /// How a swarm of random runs comes to this model.
    pub swarm: Swarm,
}

/// Models are told apart by their names.
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

    /// What is wrong with these values: each by itself, or all together.
    pub fn problems(&self, values: &Values) -> Vec<Problem> {
        let each = values.iter().filter_map(|(parameter, value)| parameter.problem(value));
        let problems: Vec<Problem> = each.collect();
        if problems.is_empty() { (self.check)(values) } else { problems }
    }
}

/// A message that begins: who sends its data to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The sending port.
    pub from: Address,
    /// The receiving port.
    pub to: Address,
    /// Whether it interrupts its receiver.
    pub interrupt: bool,
}

/// Where a card stands, and under which prices.
pub struct Seat {
    /// Its node's number.
    pub node: u16,
    /// Nodes of the cluster: 65,536 at most, whose numbers have 16 bits.
    pub nodes: u32,
    /// Most bytes behind the Ethernet header of a frame: the least of all links' in the cluster.
    pub mtu_bytes: u32,
    /// Prices.
    pub profile: Arc<Profile>,
}

/// A card of any model.
pub type AnyNic = Box<dyn Nic + Send>;

/// Why there can be no such card: it names the parameter and the fix.
pub type BuildError = Box<dyn core::error::Error + Send + Sync>;

/// One thing that a cluster file can say of a card.
#[derive(Debug)]
pub struct Parameter {
    /// Its key in the model's table.
    pub key: &'static str,
    /// What it means, with its unit, in the words of a manual.
    pub help: &'static str,
    /// Where its default is from.
    pub origin: Origin,
    /// What it can be.
    pub kind: Kind,
}

/// Where the default of a parameter is from: what a card takes and holds decides what is compared with papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A source gives it: a section of the model's paper, a manual.
    Source(&'static str),
    /// No source gives it: why it is what it is.
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

/// What a parameter can be.
#[derive(Debug)]
pub enum Kind {
    /// A number.
    Number {
        /// What it is where the file says nothing.
        default: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// As many numbers as the default has.
    Numbers {
        /// What they are where the file says nothing.
        default: &'static [u64],
        /// The most that each can be.
        most: u64,
    },
    /// One of several words.
    Choice {
        /// Which one where the file says nothing.
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
    /// The value where the file says nothing.
    pub fn default_value(&self) -> Value {
        match self.kind {
            Kind::Number { default, .. } => Value::Number(default),
            Kind::Numbers { default, .. } => Value::Numbers(default.to_vec()),
            Kind::Choice { default, .. } => Value::Word(default.to_string()),
        }
    }

    /// What is wrong with the value, if anything is.
    pub fn problem(&self, value: &Value) -> Option<Problem> {
        let problem = |what, remedy| Some(Problem { key: self.key, what, remedy });
        let out_of_range = |number: &u64, least, most| {
            problem(format!("{number} is out of range"), format!("use {least} to {most}"))
        };
        match (&self.kind, value) {
            (Kind::Number { least, most, .. }, Value::Number(number)) => {
                if (least..=most).contains(&number) {
                    None
                } else {
                    out_of_range(number, *least, *most)
                }
            }
            (Kind::Numbers { default, .. }, Value::Numbers(numbers)) if numbers.len() != default.len() => {
                let what = format!("{} numbers where {} are due", numbers.len(), default.len());
                problem(what, format!("give {}", default.len()))
            }
            (Kind::Numbers { most, .. }, Value::Numbers(numbers)) => {
                let wrong = numbers.iter().find(|number| *number > most)?;
                out_of_range(wrong, 0, *most)
            }
            (Kind::Choice { choices, .. }, Value::Word(word)) => {
                if choices.iter().any(|choice| choice.name == word) {
                    return None;
                }
                let known: Vec<&str> = choices.iter().map(|choice| choice.name).collect();
                problem(format!("there is no `{word}`"), format!("use one of {}", known.join(", ")))
            }
            _ => problem("it is of another type".to_string(), "see `niclab schema`".to_string()),
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
    /// Of [`Kind::Number`].
    Number(u64),
    /// Of [`Kind::Numbers`].
    Numbers(Vec<u64>),
    /// Of [`Kind::Choice`].
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
    /// Those of a cluster file that says nothing.
    pub fn defaults(model: &'static Model) -> Self {
        Self { model, values: model.parameters.iter().map(Parameter::default_value).collect() }
    }

    /// Whose they are.
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
    /// [`UnknownKey`]. A value that cannot be is found by [`Model::problems`].
    pub fn set(&mut self, key: &str, value: Value) -> Result<(), UnknownKey> {
        let place = self.model.parameters.iter().position(|parameter| parameter.key == key);
        let slot = place.and_then(|place| self.values.get_mut(place));
        *slot.ok_or_else(|| UnknownKey(key.to_string()))? = value;
        Ok(())
    }

    /// These values, but for one. A key that the model does not have changes nothing.
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

    /// The number of this key; zero where there is none.
    pub fn number(&self, key: &str) -> u64 {
        match self.value(key) {
            Some(Value::Number(number)) => *number,
            _ => 0,
        }
    }

    /// The same in 32 bits, which every number with a limit of 32 bits fits.
    pub fn number_u32(&self, key: &str) -> u32 {
        u32::try_from(self.number(key)).unwrap_or(u32::MAX)
    }

    /// The numbers of this key; none where there are none.
    pub fn numbers(&self, key: &str) -> &[u64] {
        match self.value(key) {
            Some(Value::Numbers(numbers)) => numbers,
            _ => &[],
        }
    }

    /// The word of this key; empty where there is none.
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
    /// Most slices, or events, of a port's queue.
    pub max_slices: u32,
    /// Ports of other cards that may send to one port; none: any number.
    pub senders_per_port: Option<u32>,
    /// The parameter that raises this.
    pub senders_raised_by: Option<&'static str>,
    /// List entries that the card's memory holds; zero for a card without lists.
    pub entries: u32,
    /// Messages without a posted receive that it keeps in mind; zero for a card without lists.
    pub unexpected_messages: u32,
    /// The longest message, in bytes.
    pub max_message_bytes: u64,
    /// The parameter that raises this.
    pub message_raised_by: Option<&'static str>,
    /// A message is a multiple of this, in bytes.
    pub message_unit_bytes: u32,
    /// Payload that a program may have pushed into a port's outbound queue and that has not left; zero for a card that
    /// nothing is pushed into.
    pub payload_bytes: u64,
    /// How programs push: so much of a payload first, then segments that double; zero: whole messages.
    pub first_segment_bytes: u64,
    /// Ports that are no program's: cards beside the NIC, which send messages back to their sender when asked to.
    pub peripheral_ports: Vec<u16>,
}

/// What a card promises of each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// It arrives.
    pub is_delivered: bool,
    /// It arrives no more than once.
    pub is_once: bool,
    /// It arrives before those that were sent later, by the same port to the same one.
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
    /// On a network that neither loses, doubles, damages nor reorders frames.
    pub sound: Promise,
    /// On one that does any of this, and is not cut for ever.
    pub faulty: Promise,
}

impl Promises {
    /// What both promise.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { sound: self.sound.and(other.sound), faulty: self.faulty.and(other.faulty) }
    }

    /// What is promised on a network with faults or without, whose switch drops frames unless its queues are deep
    /// enough.
    #[must_use]
    pub const fn on(self, is_faulty: bool, is_deep: bool) -> Promise {
        let lossy = if is_faulty || !is_deep { self.faulty } else { self.sound };
        // A switch neither doubles frames nor lets one pass another: what cards send again that it dropped may do both.
        let is_repeated = !is_deep && self.faulty.is_delivered;
        let shuffled = if is_faulty || is_repeated { self.faulty } else { self.sound };
        Promise {
            is_delivered: lossy.is_delivered,
            is_once: shuffled.is_once,
            is_in_order: shuffled.is_in_order,
        }
    }
}

/// Programs that cards of a model take while they run ([`crate::nic::Nic::hand_over`]).
pub struct Programs {
    /// What a card promises that runs this one.
    ///
    /// # Errors
    /// Why it is none.
    pub promises: fn(image: &[u8]) -> Result<Promises, String>,
    /// Draws one that makes sense, for a cluster of so many nodes.
    pub draw: fn(&mut Draw<'_>, nodes: u32) -> Vec<u8>,
}

/// How a swarm of random runs comes to a model.
pub struct Swarm {
    /// Of the runs whose messages the cluster function carries, one in so many is of this model; the first model of the
    /// registry has the rest. Zero: only runs that are asked for by name, so that a model that comes later changes
    /// nothing of what a seed has stood for.
    pub one_in: u32,
    /// Whether devices of drawn runs have faults.
    pub draws_device_faults: bool,
    /// Whether values are drawn from a stream of the seed that is the model's alone. Then one more draw, or one less,
    /// changes neither what is drawn after it, such as links and faults, nor anything of another model. Models that
    /// came before it draw from the stream of all.
    pub draws_apart: bool,
    /// Draws values, and changes what the workload is where the model can do more or less than the usual. What a seed
    /// stands for follows from the draws and their order.
    pub draw: fn(&mut Draw<'_>, &mut DrawnWorkload) -> Values,
}

/// A random number below the one given.
pub type Draw<'a> = dyn FnMut(u32) -> u32 + 'a;

/// What a model may change of a drawn workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnWorkload {
    /// Nodes of the cluster. What is written here changes nothing.
    pub nodes: u32,
    /// Payload of a message, at most.
    pub message_bytes: u32,
    /// Slices of each receive queue, or events.
    pub slices: u32,
    /// How programs receive: the place among the ways that workloads know. Only for
    /// [`niclab_abi::config::FEATURE_LISTS`] and [`niclab_abi::config::FEATURE_CHANNELS`].
    pub receive: usize,
    /// Messages go to cards beside the NICs, which send them back.
    pub echoes: bool,
    /// Messages behind which there is a datagram of ordinary networking over the same card; zero: none.
    pub datagram_every: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shallow_queue_loses_frames_and_doubles_those_that_are_sent_again() {
        let promise = |is_delivered, is_once, is_in_order| Promise { is_delivered, is_once, is_in_order };
        let (again, never) = (promise(true, false, false), promise(false, false, false));
        let on = |faulty, is_faulty, is_deep| Promises { sound: Promise::ALL, faulty }.on(is_faulty, is_deep);
        for faulty in [again, never] {
            assert_eq!(on(faulty, false, true), Promise::ALL);
            assert_eq!([on(faulty, true, true), on(faulty, true, false)], [faulty; 2]);
        }
        assert_eq!(on(again, false, false), again);
        assert_eq!(on(never, false, false), promise(false, true, true), "what is lost does not come twice");
    }
}
