//! A node's NIC model and its parameters. The models' registry has all models and parameters.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::LazyLock;

use niclab_model::models::{self, MODELS};
use niclab_model::nic::registry::{
    Limits, Model, Parameter, ParameterKind, Problem, Promises, Value, Values,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

/// A NIC model of this build.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NicModel(&'static Model);

impl NicModel {
    /// All models, for messages and completions.
    pub fn all() -> impl Iterator<Item = Self> {
        MODELS.iter().copied().map(Self)
    }

    /// The model of this name, as the cluster file and the command line use it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        models::named(name).map(Self)
    }

    /// All names.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        MODELS.iter().map(|model| model.name).collect()
    }

    /// Its registry entry.
    #[must_use]
    pub const fn descriptor(self) -> &'static Model {
        self.0
    }
}

impl Deref for NicModel {
    type Target = Model;
    fn deref(&self) -> &Model {
        self.0
    }
}

impl Default for NicModel {
    fn default() -> Self {
        Self(models::default_model())
    }
}

impl fmt::Debug for NicModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl From<&'static Model> for NicModel {
    fn from(model: &'static Model) -> Self {
        Self(model)
    }
}

impl Serialize for NicModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for NicModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        static NAMES: LazyLock<Vec<&str>> = LazyLock::new(NicModel::names);
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| Error::unknown_variant(&name, &NAMES))
    }
}

impl JsonSchema for NicModel {
    fn schema_name() -> Cow<'static, str> {
        "NicModel".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let name = |model: NicModel| {
            let text = format!("{}: {}.", model.title, model.summary);
            json!({"const": model.name, "description": text, "type": "string"})
        };
        let names: Vec<_> = Self::all().map(name).collect();
        json_schema!({ "description": "The NIC models that this build knows.", "oneOf": names })
    }
}

fn upper(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// How the daemon waits for work. This affects only wall time, not model time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WaitPolicy {
    /// Block on the doorbell. After activity, poll for `poll_for_us` and suppress the guests' doorbells during that
    /// time.
    #[default]
    Adaptive,
    /// Always poll. Needs a core of its own, and one for each vCPU that polls.
    Poll,
    /// Always block on the doorbell.
    Block,
}

/// A node's NIC.
#[derive(Clone, PartialEq, Eq)]
pub struct NicConfig {
    /// The model.
    pub model: NicModel,
    /// How the daemon waits for this NIC's work.
    pub wait: WaitPolicy,
    /// How long the adaptive policy polls after the last activity, in microseconds of wall time.
    pub poll_for_us: u32,
    /// Parameters of each model, in the registry's order. A file may also have parameters of models that the node does
    /// not use.
    tables: Vec<Values>,
}

/// Maximum time for which a daemon polls, in microseconds.
const MAX_POLL_FOR_US: u32 = 1_000_000;

impl Default for NicConfig {
    fn default() -> Self {
        Self::of(NicModel::default())
    }
}

impl fmt::Debug for NicConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:?} {}", self.model.name, self.values(), self.wait, self.poll_for_us)
    }
}

impl NicConfig {
    /// A card of this model, with all parameters at their defaults.
    #[must_use]
    pub fn of(model: impl Into<NicModel>) -> Self {
        Self {
            model: model.into(),
            wait: WaitPolicy::default(),
            poll_for_us: 50,
            tables: MODELS.iter().map(|model| Values::defaults(model)).collect(),
        }
    }

    /// A card with these parameters.
    #[must_use]
    pub fn with_values(values: Values) -> Self {
        let mut config = Self::of(values.model());
        config.set_values(values);
        config
    }

    /// Parameters of the node's model.
    #[must_use]
    pub fn values(&self) -> &Values {
        let own = self.tables.iter().find(|values| values.model() == self.model.descriptor());
        // `tables` has an entry for each model of the registry, and all models are in the registry.
        own.unwrap_or_else(|| &self.tables[0])
    }

    /// Sets the parameters of the model that `values` is for.
    pub fn set_values(&mut self, values: Values) {
        let own = self.tables.iter_mut().find(|table| table.model() == values.model());
        own.into_iter().for_each(|own| *own = values.clone());
    }

    /// Sets a parameter of the node's model.
    ///
    /// # Errors
    /// If the model has no parameter of this key.
    pub fn set(&mut self, key: &str, value: Value) -> Result<(), niclab_model::nic::registry::UnknownKey> {
        let mut values = self.values().clone();
        values.set(key, value)?;
        self.set_values(values);
        Ok(())
    }

    /// The limits of a card with these values.
    #[must_use]
    pub fn limits(&self) -> Limits {
        (self.model.limits)(self.values())
    }

    /// What a card with these values promises about messages.
    #[must_use]
    pub fn promises(&self) -> Promises {
        (self.model.promises)(self.values())
    }

    /// The invalid values: key within this table, problem and fix.
    pub(crate) fn problems(&self) -> Vec<(String, String, String)> {
        let mut problems = Vec::new();
        if self.poll_for_us > MAX_POLL_FOR_US {
            let what = format!("polling for {} us after each message would never block", self.poll_for_us);
            let remedy = format!("use at most {MAX_POLL_FOR_US}, or wait = \"poll\"");
            problems.push(("poll_for_us".to_owned(), what, remedy));
        }
        for values in &self.tables {
            let model = values.model();
            let of_model = model.problems(values).into_iter();
            problems.extend(
                of_model.map(|Problem { key, what, remedy }| (format!("{}.{key}", model.name), what, remedy)),
            );
        }
        problems
    }
}

const MODEL: &str = "model";
const WAIT: &str = "wait";
const POLL_FOR_US: &str = "poll_for_us";

impl Serialize for NicConfig {
    /// Parameters of other models are omitted if they have their default values.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let says = |values: &&Values| {
            values.model() == self.model.descriptor() || **values != Values::defaults(values.model())
        };
        let tables: Vec<&Values> = self.tables.iter().filter(says).collect();
        let mut map = serializer.serialize_map(Some(3 + tables.len()))?;
        map.serialize_entry(MODEL, &self.model)?;
        map.serialize_entry(WAIT, &self.wait)?;
        map.serialize_entry(POLL_FOR_US, &self.poll_for_us)?;
        for values in tables {
            map.serialize_entry(values.model().name, &Table(values))?;
        }
        map.end()
    }
}

struct Table<'a>(&'a Values);

impl Serialize for Table<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (parameter, value) in self.0.iter() {
            match value {
                Value::Number(number) => map.serialize_entry(parameter.key, number)?,
                Value::Numbers(numbers) => map.serialize_entry(parameter.key, numbers)?,
                Value::Word(word) => map.serialize_entry(parameter.key, word)?,
            }
        }
        map.end()
    }
}

/// One of the keys of a table; the error for an unknown key has the key's location.
struct Key<'a>(&'a [&'static str]);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = &'static str;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<&'static str, E> {
        self.0.iter().copied().find(|known| *known == key).ok_or_else(|| {
            // serde's wording for keys that are known at compile time.
            let known: Vec<String> = self.0.iter().map(|known| format!("`{known}`")).collect();
            E::custom(format_args!("unknown field `{key}`, expected one of {}", known.join(", ")))
        })
    }
}

impl<'de> Deserialize<'de> for NicConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Nic;
        impl<'de> Visitor<'de> for Nic {
            type Value = NicConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = NicModel::default().name;
                write!(f, "a table, such as `nic = {{ {MODEL} = \"{name}\" }}`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NicConfig, A::Error> {
                let mut config = NicConfig::default();
                let keys: Vec<&str> =
                    [MODEL, WAIT, POLL_FOR_US].into_iter().chain(NicModel::names()).collect();
                let mut seen = Vec::new();
                while let Some(key) = map.next_key_seed(Key(&keys))? {
                    if seen.contains(&key) {
                        return Err(Error::duplicate_field(key));
                    }
                    seen.push(key);
                    match key {
                        MODEL => config.model = map.next_value()?,
                        WAIT => config.wait = map.next_value()?,
                        POLL_FOR_US => config.poll_for_us = map.next_value()?,
                        name => {
                            if let Some(values) =
                                config.tables.iter_mut().find(|table| table.model().name == name)
                            {
                                map.next_value_seed(TableSeed(values))?;
                            }
                        }
                    }
                }
                Ok(config)
            }
        }
        deserializer.deserialize_map(Nic)
    }
}

/// Reads the values of a model's table and replaces its defaults.
struct TableSeed<'a>(&'a mut Values);

impl<'de> DeserializeSeed<'de> for TableSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TableSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the parameters of {}", self.0.model().a_card())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let model = self.0.model();
        let keys: Vec<&str> = model.parameters.iter().map(|parameter| parameter.key).collect();
        let mut seen = Vec::new();
        while let Some(key) = map.next_key_seed(Key(&keys))? {
            if seen.contains(&key) {
                return Err(Error::duplicate_field(key));
            }
            seen.push(key);
            if let Some(parameter) = model.parameter(key) {
                let value = map.next_value_seed(ValueSeed(parameter))?;
                self.0.set(key, value).map_err(Error::custom)?;
            }
        }
        Ok(())
    }
}

/// Reads the value of one parameter. Ranges are checked later, together with the rest of the file.
struct ValueSeed(&'static Parameter);

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match &self.0.kind {
            ParameterKind::Number { .. } => u64::deserialize(deserializer).map(Value::Number),
            ParameterKind::Numbers { .. } => deserializer.deserialize_seq(self),
            ParameterKind::Choice { choices, .. } => {
                let word = String::deserialize(deserializer)?;
                if choices.iter().any(|choice| choice.name == word) {
                    return Ok(Value::Word(word));
                }
                let known: Vec<String> = choices.iter().map(|choice| format!("`{}`", choice.name)).collect();
                Err(Error::custom(format_args!(
                    "unknown variant `{word}`, expected one of {}",
                    known.join(", ")
                )))
            }
        }
    }
}

impl<'de> Visitor<'de> for ValueSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind {
            ParameterKind::Numbers { default, .. } => write!(f, "an array of length {}", default.len()),
            _ => f.write_str("a list"),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let due = match self.0.kind {
            ParameterKind::Numbers { default, .. } => default.len(),
            _ => 0,
        };
        let mut numbers = Vec::with_capacity(due);
        while let Some(number) = list.next_element()? {
            numbers.push(number);
            if numbers.len() > due {
                return Err(Error::invalid_length(numbers.len(), &self));
            }
        }
        if numbers.len() < due {
            return Err(Error::invalid_length(numbers.len(), &self));
        }
        Ok(Value::Numbers(numbers))
    }
}

impl JsonSchema for NicConfig {
    fn schema_name() -> Cow<'static, str> {
        "NicConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut model = generator.subschema_for::<NicModel>();
        describe(&mut model, "The model.", &json!(NicModel::default().name));
        let mut wait = generator.subschema_for::<WaitPolicy>();
        describe(&mut wait, "How the daemon waits for this NIC's work.", &json!("adaptive"));
        let poll = json!({
            "description": "How long the adaptive policy polls after the last activity, in microseconds of wall time.",
            "type": "integer", "format": "uint32", "minimum": 0, "maximum": MAX_POLL_FOR_US,
            "default": Self::default().poll_for_us,
        });
        let mut properties = serde_json::Map::new();
        properties.insert(MODEL.to_owned(), model.to_value());
        properties.insert(WAIT.to_owned(), wait.to_value());
        properties.insert(POLL_FOR_US.to_owned(), poll);
        for model in NicModel::all() {
            let definition = format!("{}Parameters", upper(model.name));
            let reference = format!("#/$defs/{definition}");
            generator.definitions_mut().insert(definition, parameters_schema(model));
            let text = format!("Parameters of the {} model.", model.title);
            properties.insert(model.name.to_owned(), json!({"$ref": reference, "description": text}));
        }
        json_schema!({
            "description": "A node's NIC.",
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}

fn describe(schema: &mut Schema, text: &str, default: &serde_json::Value) {
    schema.insert("description".to_owned(), json!(text));
    schema.insert("default".to_owned(), default.clone());
}

fn parameter_schema(parameter: &Parameter) -> serde_json::Value {
    let description = format!("{} The default is from: {}.", parameter.help, parameter.origin);
    match &parameter.kind {
        ParameterKind::Number { default, least, most } => json!({
            "description": description, "type": "integer", "format": "uint64",
            "minimum": least, "maximum": most, "default": default,
        }),
        ParameterKind::Numbers { default, most } => json!({
            "description": description, "type": "array",
            "items": {"type": "integer", "format": "uint64", "minimum": 0, "maximum": most},
            "minItems": default.len(), "maxItems": default.len(), "default": default,
        }),
        ParameterKind::Choice { default, choices } => {
            let words: Vec<_> = choices
                .iter()
                .map(|choice| json!({"const": choice.name, "description": choice.help, "type": "string"}))
                .collect();
            json!({"description": description, "type": "string", "oneOf": words, "default": default})
        }
    }
}

fn parameters_schema(model: NicModel) -> serde_json::Value {
    let properties: serde_json::Map<_, _> = model
        .parameters
        .iter()
        .map(|parameter| (parameter.key.to_owned(), parameter_schema(parameter)))
        .collect();
    json!({
        "description": format!("Parameters of the {} model.", model.title),
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn read(text: &str) -> Result<NicConfig, String> {
        Source::from_text("n.toml", text).parse().map_err(|error| error.to_string())
    }

    #[test]
    fn table_overrides_the_defaults() {
        let nic = read("model = \"match\"\nwait = \"poll\"\n[match]\nwindow_frames = 7\n").unwrap();
        assert_eq!((nic.model.name, nic.wait, nic.poll_for_us), ("match", WaitPolicy::Poll, 50));
        assert_eq!((nic.values().number("window_frames"), nic.values().number("match_entries")), (7, 1_024));
        assert_eq!(read("").unwrap(), NicConfig::default());
    }

    #[test]
    fn every_models_table_round_trips() {
        for model in NicModel::all() {
            let config = NicConfig { model, ..NicConfig::default() };
            let text = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<NicConfig>(&text).unwrap(), config, "{text}");
            assert_eq!(read(&toml::to_string(&config).unwrap()).unwrap(), config);
        }
        let mut config = read("[match]\nwindow_frames = 7\n").unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert!(text.contains("window_frames"), "the table of another model is kept: {text}");
        config.poll_for_us = 1;
        let text = serde_json::to_string(&NicConfig::default()).unwrap();
        assert!(!text.contains("window_frames"), "{text}");
    }

    #[test]
    fn invalid_nic_table_is_refused_at_its_line() {
        for (text, place, part) in [
            ("\nmodle = \"ultra\"", "n.toml:2:1: `modle`", "did you mean `model`?"),
            ("model = \"ultar\"", "n.toml:1:9: `model`", "did you mean `ultra`?"),
            ("[ultra]\nfifo_words_per_prt = 1", "n.toml:2:1: `ultra.fifo_words_per_prt`", "did you mean"),
            ("[ultra]\nfifo_words_per_port = [1, 2]", "n.toml:2:", "an array of length 8"),
            (
                "[ultra]\nfifo_words_per_port = [1, 2, 3, 4, 5, 6, 7, 8, 9]",
                "n.toml:2:",
                "an array of length 8",
            ),
            ("[ultra]\nunauthorized = \"drop\"", "n.toml:2:16: `ultra.unauthorized`", "`discard`"),
            ("[match]\nwindow_frames = \"two\"", "n.toml:2:17: `match.window_frames`", "invalid type"),
            ("[match]\nwindow_frames = -1", "n.toml:2:17: `match.window_frames`", "invalid value"),
            ("ultra = 3", "n.toml:1:9: `ultra`", "the parameters of an ULTRA card"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(place) && error.contains(part), "{text}: {error}");
        }
    }
}
