//! Checks a profile: first each number by itself, then numbers that contradict each other. Each error has its location.

use std::collections::BTreeSet;

use super::{Fact, Machine, Price, Profile};
use crate::{Problem, Source};

/// Bytes of a word, as in [`Price`].
const WORD_BYTES: u64 = 8;
/// The longest transfer whose time must fit 64 bits of picoseconds.
const LARGEST_TRANSFER_BYTES: u64 = 64 * 1024;
/// No price may exceed a second, so that sums of billions stay far from the end of 64 bits.
const MAX_PRICE_PS: u64 = 1_000_000_000_000;
/// A million cycles.
const MAX_MILLICYCLES: u64 = 1_000_000_000;

/// All errors of the profile.
pub(super) fn problems(source: &Source, profile: &Profile) -> Vec<Problem> {
    let mut check = Check { source, problems: Vec::new() };
    for (key, text) in [("name", &profile.name), ("description", &profile.description)] {
        if text.trim().is_empty() {
            check.refuse(key, "it is empty", "say which platform this is");
        }
    }
    for (key, fact) in profile.facts() {
        check.number(&key, fact);
    }
    // These checks assume that each number is valid by itself.
    if check.problems.is_empty() {
        check.prices(profile);
        check.machines(profile);
    }
    check.problems
}

struct Check<'a> {
    source: &'a Source,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn refuse(&mut self, key: &str, what: impl Into<String>, remedy: &str) {
        self.problems.push(self.source.problem(key, what, remedy));
    }

    fn refuse_value(&mut self, key: &str, fact: &Fact, what: &str, remedy: &str) {
        self.refuse(&format!("{key}.value"), format!("{} is invalid: {what}", fact.value), remedy);
    }

    /// Checks a number by itself.
    fn number(&mut self, key: &str, fact: &Fact) {
        if fact.source.trim().is_empty() {
            let remedy = "say where it comes from: a paper's section, a data sheet, a measurement";
            self.refuse(&format!("{key}.source"), "the number has no source", remedy);
        }
        if fact.fitted.as_ref().is_some_and(|fitted| fitted.trim().is_empty()) {
            let remedy = "say what it was fitted to and how far off that leaves the rest, or omit `fitted`";
            self.refuse(&format!("{key}.fitted"), "fitted to nothing", remedy);
        }
        if fact.assumed.as_ref().is_some_and(|assumed| assumed.trim().is_empty()) {
            let remedy = "say why it has this value and what depends on it, or omit `assumed`";
            self.refuse(&format!("{key}.assumed"), "assumed for no reason", remedy);
        }
        if fact.fitted.is_some() && fact.assumed.is_some() {
            let remedy = "say `fitted` if it was chosen for a published number, else `assumed`";
            self.refuse(key, "both fitted and assumed", remedy);
        }
        let value = fact.value;
        match key.rsplit('.').next().unwrap_or(key) {
            "link_bandwidth_bits_per_s" if value == 0 => {
                self.refuse_value(key, fact, "no frame would ever arrive", "use at least 1");
            }
            "clock_ps" if value == 0 => {
                let remedy = "use the cycle in picoseconds: 5000 for 200 MHz";
                self.refuse_value(key, fact, "a clock whose cycles take no time", remedy);
            }
            "directions" if !(1..=2).contains(&value) => {
                let remedy = "use 1 (shared, as in PCI) or 2 (one each way)";
                self.refuse_value(key, fact, "a bus has one direction at a time or two", remedy);
            }
            "link_latency_ns" if value > MAX_PRICE_PS / 1_000 => {
                self.refuse_value(key, fact, "more than a second", "use at most 1000000000 (one second)");
            }
            "burst_bytes" if !value.is_multiple_of(WORD_BYTES) => {
                let remedy = "use a multiple of 8, or 0 for no limit";
                self.refuse_value(key, fact, "a burst holds whole words of 8 bytes", remedy);
            }
            "fixed_millicycles" | "per_word_millicycles" | "closing_millicycles"
                if value > MAX_MILLICYCLES =>
            {
                let remedy = "use at most 1000000000; the unit is a thousandth of a cycle";
                self.refuse_value(key, fact, "more than a million cycles", remedy);
            }
            unit if unit.ends_with("_ps") && value > MAX_PRICE_PS => {
                let remedy = "use at most 1000000000000; the unit is a picosecond";
                self.refuse_value(key, fact, "more than a second", remedy);
            }
            _ => {}
        }
    }

    /// A read crosses the bus twice, so it takes at least the time of a write.
    fn prices(&mut self, profile: &Profile) {
        let bus = &profile.bus;
        let pairs = [
            ("bus.pio_read", &bus.pio_read, "bus.pio_write", &bus.pio_write),
            ("bus.dma_read", &bus.dma_read, "bus.dma_write", &bus.dma_write),
            ("bus.descriptor_fetch", &bus.descriptor_fetch, "bus.dma_write", &bus.dma_write),
        ];
        for (read_key, read, write_key, write) in pairs {
            let (read_ps, write_ps) = (one_word_ps(read), one_word_ps(write));
            if read_ps < write_ps {
                let what = format!(
                    "a read of one word takes {read_ps} ps and a write, `{write_key}`, {write_ps} ps, but a read's \
                     address travels as a write does and its data comes back"
                );
                self.refuse(
                    &format!("{read_key}.latency_ps.value"),
                    what,
                    "include both directions in the read's price",
                );
            }
        }
    }

    /// Checks that the time of the largest transfer fits 64 bits.
    fn machines(&mut self, profile: &Profile) {
        let ni = &profile.ni;
        let mut names = BTreeSet::new();
        for (name, key, machine) in ni.all_machines() {
            if !names.insert(name) {
                let fix = format!("keep `[ni.machines.{name}]` and remove `[ni.{name}]`, its earlier place");
                self.refuse(&format!("ni.{key}"), format!("`{name}` is priced twice"), &fix);
            }
            if u64::try_from(largest_span_ps(machine, ni.clock_ps.value)).is_err() {
                let what = format!(
                    "at this many cycles of {} ps, {LARGEST_TRANSFER_BYTES} bytes take longer than 64 bits of \
                     picoseconds hold",
                    ni.clock_ps.value
                );
                let key = format!("ni.{key}.per_word_millicycles.value");
                self.refuse(&key, what, "use a shorter cycle (`ni.clock_ps`) or fewer cycles a word");
            }
        }
    }
}

/// Cannot overflow, because each price is at most a second.
const fn one_word_ps(price: &Price) -> u64 {
    price.latency_ps.value + price.fixed_ps.value + price.per_word_ps.value
}

fn largest_span_ps(machine: &Machine, clock_ps: u64) -> u128 {
    let words = u128::from(LARGEST_TRANSFER_BYTES / WORD_BYTES);
    let closing = machine.closing_millicycles.as_ref().map_or(0, |closing| closing.value);
    let millicycles = u128::from(machine.fixed_millicycles.value)
        + words * u128::from(machine.per_word_millicycles.value)
        + u128::from(closing);
    millicycles * u128::from(clock_ps) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../../../../profiles/htx-200mhz.toml");

    /// The line and text of the error if the line of `key` in `section` is replaced by `line`.
    fn problem(section: &str, key: &str, line: &str) -> (usize, String) {
        let mut lines: Vec<&str> = TEXT.lines().collect();
        let head = lines.iter().position(|text| *text == format!("[{section}]")).map_or(0, |at| at + 1);
        let start = format!("{key} =");
        let place = head + lines[head..].iter().position(|text| text.starts_with(&start)).unwrap();
        lines[place] = line;
        let source = Source::from_text("p.toml", lines.join("\n"));
        let error = Profile::from_source(&source).unwrap_err().to_string();
        let stated = error.strip_prefix("p.toml:").and_then(|rest| rest.split(':').next());
        assert_eq!(stated, Some((place + 1).to_string().as_str()), "{error}");
        assert!(error.contains("fix: "), "{error}");
        (place + 1, error)
    }

    #[test]
    fn each_impossible_number_is_refused_at_its_line_with_a_fix() {
        for (section, key, value, part) in [
            ("host", "send_ps", "-105000", "-105000"),
            ("host", "send_ps", "1.5", "floating point"),
            ("host", "send_ps", "\"fast\"", "string"),
            ("host", "send_ps", "99999999999999999999", "99999999999999999999"),
            ("host", "copy_per_byte_ps", "1000000000001", "more than a second"),
            ("bus", "directions", "3", "directions"),
            ("bus.pio_write", "burst_bytes", "4", "whole words of 8 bytes"),
            ("bus.dma_write", "burst_bytes", "12", "whole words of 8 bytes"),
            ("bus.pio_read", "latency_ps", "10000", "a read of one word"),
            ("bus.descriptor_fetch", "latency_ps", "0", "a read of one word"),
            ("bus.dma_read", "latency_ps", "34999", "a read of one word"),
            ("ni", "clock_ps", "0", "cycles take no time"),
            ("ni.machines.load", "per_word_millicycles", "1000000001", "a million cycles"),
            ("ni.machines.store", "closing_millicycles", "1000000001", "a million cycles"),
            ("network", "link_bandwidth_bits_per_s", "0", "no frame would ever arrive"),
            ("network", "link_latency_ns", "1000000001", "more than a second"),
        ] {
            let (_, error) = problem(section, key, &format!("{key} = {{ value = {value}, source = \"s\" }}"));
            assert!(error.contains(part), "{section}.{key} = {value}: {error}");
        }
    }

    #[test]
    fn number_without_source_or_fit_is_refused() {
        for (line, part) in [
            ("send_ps = { value = 1, source = \" \" }", "no source"),
            ("send_ps = { value = 1 }", "missing field `source`"),
            ("send_ps = { source = \"s\" }", "missing field `value`"),
            ("send_ps = { value = 1, source = \"s\", fitted = \"\" }", "fitted to nothing"),
            ("send_ps = { value = 1, source = \"s\", fit = \"x\" }", "did you mean `fitted`?"),
            ("send_ps = { value = 1, source = \"s\", assumed = \" \" }", "assumed for no reason"),
            (
                "send_ps = { value = 1, source = \"s\", fitted = \"x\", assumed = \"y\" }",
                "both fitted and assumed",
            ),
            ("send_us = { value = 1, source = \"s\" }", "did you mean `send_ps`?"),
        ] {
            assert!(problem("host", "send_ps", line).1.contains(part), "{line}");
        }
        assert!(problem("", "name", "name = \"\"").1.contains("empty"));
    }

    #[test]
    fn overflowing_span_of_valid_numbers_is_refused() {
        let text =
            TEXT.replacen("clock_ps = { value = 5000", "clock_ps = { value = 1000000000000", 1).replacen(
                "per_word_millicycles = { value = 1000",
                "per_word_millicycles = { value = 1000000000",
                1,
            );
        let error = Profile::from_source(&Source::from_text("p.toml", text)).unwrap_err().to_string();
        assert!(
            error.contains("`ni.machines.load.per_word_millicycles.value`: at this many cycles"),
            "{error}"
        );
        assert!(error.contains("65536 bytes") && error.contains("fix: "), "{error}");
        assert_eq!(error.matches("fix: ").count(), 1, "the other machines are fast enough");
    }
}
