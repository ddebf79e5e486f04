//! Reads an assembly from TOML, and remembers the place of each part.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use niclab_components::assembly::{DEFAULT_DEPTH, MAX_DEPTH};
use niclab_components::check::Place as Part;
use niclab_components::kinds::{ANY_NODE, Direction, KINDS, Row, Setting, Values};
use niclab_components::{Assembly, Checked, End, Fault, Kind};
use niclab_source::{Diagnostic, Rejected, Report, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::text;

/// A range in a source.
type Span = Range<usize>;

type Value<'a> = Spanned<DeValue<'a>>;

/// The assembly that a source describes.
///
/// # Errors
/// [`Rejected`] with all faults, each with place and fix. The assembly is checked as a whole only if every part was
/// read.
pub fn read(source: &str) -> Result<Checked, Rejected> {
    let mut reader = Reader { source, ..Reader::default() };
    match DeTable::parse(source) {
        Ok(table) => reader.document(table.get_ref()),
        Err(error) => reader.report.push(text::syntax(source, &error)),
    }
    if reader.report.is_empty() {
        match std::mem::take(&mut reader.assembly).check() {
            Ok(checked) => return Ok(checked),
            Err(faults) => faults.iter().for_each(|fault| reader.fault(fault)),
        }
    }
    Err(reader.report.reject())
}

/// A source that is being read.
#[derive(Default)]
struct Reader<'a> {
    source: &'a str,
    report: Report,
    assembly: Assembly,
    /// Places of the assembly's components, values and connections.
    components: Vec<Span>,
    values: BTreeMap<(usize, &'static str), Span>,
    connections: Vec<Span>,
}

impl Reader<'_> {
    fn error(&mut self, span: &Span, what: impl Into<String>, remedy: impl Into<String>) {
        self.report.push(Diagnostic::error(text::place(self.source, span), what, remedy));
    }

    /// Adds a fault of the assembly, at the place of the part concerned.
    fn fault(&mut self, fault: &Fault) {
        let span = match fault.place {
            Part::Whole => None,
            Part::Component(place) => self.components.get(place),
            Part::Parameter(place, parameter) => {
                self.values.get(&(place, parameter.name())).or_else(|| self.components.get(place))
            }
            Part::Connection(place) => self.connections.get(place),
        };
        let span = span.cloned().unwrap_or(0..0);
        self.error(&span, fault.to_string(), fault.problem.fix());
    }

    fn document(&mut self, document: &DeTable<'_>) {
        const KEYS: [&str; 2] = ["components", "connections"];
        for (key, value) in sorted(document) {
            let name = key.get_ref().as_ref();
            match value.get_ref() {
                DeValue::Table(_) if KEYS.contains(&name) => {}
                _ if KEYS.contains(&name) => {
                    self.error(&key.span(), format!("`{name}` is not a table"), format!("write [{name}]"));
                }
                _ => {
                    let remedy = meant(name, KEYS.into_iter());
                    self.error(&key.span(), format!("an assembly has no `{name}`"), remedy);
                }
            }
        }
        let [components, connections] = KEYS.map(|key| match document.get(key).map(Spanned::get_ref) {
            Some(DeValue::Table(table)) => Some(table),
            _ => None,
        });
        for (key, value) in components.into_iter().flat_map(sorted) {
            self.component(key.get_ref(), &key.span(), value);
        }
        // In the order of the source, by the targets of connections: TOML sorts dotted keys by name.
        let mut found = Vec::new();
        for (component, ports) in connections.into_iter().flat_map(sorted) {
            let DeValue::Table(ports) = ports.get_ref() else {
                let what = format!("`{}` is not an output", component.get_ref());
                self.error(&component.span(), what, "write component.output = \"component.input\"");
                continue;
            };
            found.extend(sorted(ports).into_iter().map(|(port, to)| (component, port, to)));
        }
        found.sort_by_key(|(_, port, _)| port.span().start);
        for (component, port, to) in found {
            let from = self.end(
                component.get_ref(),
                &component.span(),
                port.get_ref(),
                &port.span(),
                Direction::Out,
            );
            self.targets(from, to);
        }
    }

    fn component(&mut self, name: &str, span: &Span, value: &Value<'_>) {
        let DeValue::Table(table) = value.get_ref() else {
            let remedy = format!("write {name} = {{}}, with parameters within the braces");
            return self.error(&value.span(), format!("the component `{name}` is not a table"), remedy);
        };
        let said = table.get("kind");
        let (kind, kind_span) = match said.map(|value| (value.get_ref(), value.span())) {
            Some((DeValue::String(kind), span)) => (kind.as_ref(), span),
            Some((_, span)) => return self.error(&span, "kind is not a string", "write kind = \"NAME\""),
            None => (name, span.clone()),
        };
        let Some(kind) = Kind::named(kind) else {
            let names = KINDS.iter().map(|row| row.name);
            let mut remedy = meant(kind, names);
            if said.is_none() {
                remedy.push_str("; a component with another name needs kind = \"KIND\"");
            }
            return self.error(&kind_span, format!("there is no kind of component `{kind}`"), remedy);
        };
        let place = match self.assembly.add(name, kind) {
            Ok(place) => place,
            Err(error) => {
                return self.error(span, error.to_string(), "choose another name, or fewer of them");
            }
        };
        self.components.push(span.clone());
        for (key, value) in sorted(table).into_iter().filter(|(key, _)| key.get_ref() != "kind") {
            self.parameter(place, kind.row(), key, value);
        }
    }

    fn parameter(&mut self, place: usize, row: &'static Row, key: &Spanned<Cow<'_, str>>, value: &Value<'_>) {
        let name = key.get_ref().as_ref();
        let known = row.parameters.iter().find(|setting| setting.parameter.name() == name);
        let Some(setting) = known else {
            let names = row.parameters.iter().map(|setting| setting.parameter.name());
            let what = format!("{} has no parameter `{name}`", row.name);
            let remedy =
                if row.parameters.is_empty() { "it has none".to_owned() } else { meant(name, names) };
            return self.error(&key.span(), what, remedy);
        };
        let Some(number) = number(setting, value.get_ref()) else {
            let component = self.assembly.components().get(place).map_or("", |component| component.name());
            let said = self.source.get(value.span()).unwrap_or_default();
            let what = format!("`{component}`: {name} is {said}");
            return self.error(&value.span(), what, format!("say {}", setting.values.in_words()));
        };
        self.values.insert((place, setting.parameter.name()), key.span().start..value.span().end);
        if let Err(error) = self.assembly.set_at(place, setting.parameter, number) {
            self.error(&key.span(), error.to_string(), "remove it");
        }
    }

    /// One or several inputs to which an output leads.
    fn targets(&mut self, from: Option<End>, value: &Value<'_>) {
        match value.get_ref() {
            DeValue::Array(targets) => targets.iter().for_each(|target| self.target(from, target)),
            _ => self.target(from, value),
        }
    }

    fn target(&mut self, from: Option<End>, value: &Value<'_>) {
        let (to, depth) = match value.get_ref() {
            DeValue::String(to) => (Some((to.as_ref(), value.span())), None),
            DeValue::Table(table) => {
                for (key, _) in
                    table.iter().filter(|(key, _)| !["to", "depth"].contains(&key.get_ref().as_ref()))
                {
                    let what = format!("a connection has no `{}`", key.get_ref());
                    self.error(&key.span(), what, "write { to = \"component.input\", depth = 16 }");
                }
                let to = table.get("to").and_then(|to| Some((to.get_ref().as_str()?, to.span())));
                (to, table.get("depth"))
            }
            _ => (None, None),
        };
        let Some((to, span)) = to else {
            const REMEDY: &str = "write \"component.input\", or { to = \"component.input\", depth = 16 }";
            return self.error(&value.span(), "this is not the name of an input", REMEDY);
        };
        let Some((component, port)) = to.split_once('.') else {
            return self.error(
                &span,
                format!("`{to}` is not the name of an input"),
                "write \"component.input\"",
            );
        };
        let to = self.end(component, &span, port, &span, Direction::In);
        let depth = depth.map_or(Some(DEFAULT_DEPTH), |depth| self.depth(depth));
        let (Some(from), Some(to), Some(depth)) = (from, to, depth) else { return };
        match self.assembly.connect(from, to, depth) {
            Ok(()) => self.connections.push(span),
            Err(error) => self.error(&span, error.to_string(), "remove some"),
        }
    }

    fn depth(&mut self, value: &Value<'_>) -> Option<u16> {
        let depth = integer(value.get_ref()).and_then(|depth| u16::try_from(depth).ok());
        let depth = depth.filter(|depth| *depth <= MAX_DEPTH);
        if depth.is_none() {
            let said = self.source.get(value.span()).unwrap_or_default();
            let remedy = format!("use 0 (a wire) to {MAX_DEPTH}");
            self.error(&value.span(), format!("the depth of a connection is {said}"), remedy);
        }
        depth
    }

    /// The port with these names.
    fn end(
        &mut self,
        component: &str,
        component_span: &Span,
        port: &str,
        port_span: &Span,
        direction: Direction,
    ) -> Option<End> {
        let Some(place) = self.assembly.place_of(component) else {
            let names: Vec<String> =
                self.assembly.components().iter().map(|component| component.name().to_owned()).collect();
            let remedy = match nearest(component, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "add it to [components]".to_owned(),
            };
            self.error(component_span, format!("there is no component `{component}`"), remedy);
            return None;
        };
        let row = self.assembly.components().get(place)?.kind().row();
        if let Some(port) = row.port(port, direction) {
            return Some(End { component: place, port });
        }
        let what = if direction == Direction::Out { "output" } else { "input" };
        let ports = row.ports.iter().filter(|port| port.leads(direction));
        let names: Vec<&str> = ports.map(|port| port.name).collect();
        let remedy = match names.is_empty() {
            true => format!("{} has no {what}", row.name),
            false => format!("its {what}s are: {}", names.join(", ")),
        };
        self.error(port_span, format!("`{component}` ({}) has no {what} `{port}`", row.name), remedy);
        None
    }
}

/// The number of a value, if it is valid for the parameter.
fn number(setting: &Setting, value: &DeValue<'_>) -> Option<u32> {
    let number = match (setting.values, value) {
        (Values::Flag, DeValue::Boolean(flag)) => u32::from(*flag),
        (Values::Choice(words), DeValue::String(said)) => {
            u32::try_from(words.iter().position(|word| word == said)?).ok()?
        }
        (Values::Node, DeValue::String(said)) if said == "any" => ANY_NODE,
        (Values::Number { .. } | Values::Node, value) => u32::try_from(integer(value)?).ok()?,
        _ => return None,
    };
    setting.values.contain(number).then_some(number)
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// A table's entries in the order of the source.
fn sorted<'t, 'a>(table: &'t DeTable<'a>) -> Vec<(&'t Spanned<Cow<'a, str>>, &'t Value<'a>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// A suggestion for a wrong name.
fn meant<'n>(wrong: &str, known: impl Iterator<Item = &'n str> + Clone) -> String {
    match nearest(wrong, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are: {}", known.collect::<Vec<_>>().join(", ")),
    }
}
