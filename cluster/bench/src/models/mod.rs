//! What each NIC model brings of its own: the figures of its paper, and what `niclab bench` measures of it.

mod gamma;
mod grim;
mod inic;
mod matching;
mod ultra;

use std::sync::LazyLock;

use clap::{ValueEnum, builder::PossibleValue};

use crate::{
    device::Row, figures::PaperFigures, instructions::Work, round_trip::RoundTrip, section::BenchSection,
    sim::Load,
};

/// What one model brings.
struct Benches {
    figures: &'static [PaperFigures],
    sections: &'static [BenchSection],
    /// What the device's own benchmark reports of it.
    device: &'static [Row],
    /// What the simulator is measured with.
    simulated: &'static [Load],
    /// What instructions are counted of.
    counted: &'static [Work],
    /// Round trips between guests that are taken apart.
    round_trips: &'static [RoundTrip],
}

impl Benches {
    /// Of a model that brings nothing.
    const NONE: Self =
        Self { figures: &[], sections: &[], device: &[], simulated: &[], counted: &[], round_trips: &[] };
}

/// All models that bring something.
const MODELS: &[Benches] = &[ultra::BENCHES, matching::BENCHES, inic::BENCHES, grim::BENCHES, gamma::BENCHES];

static FIGURES: LazyLock<Vec<PaperFigures>> =
    LazyLock::new(|| MODELS.iter().flat_map(|model| model.figures).copied().collect());

static SECTIONS: LazyLock<Vec<BenchSection>> = LazyLock::new(|| {
    let of_models = MODELS.iter().flat_map(|model| model.sections);
    crate::SECTIONS.iter().chain(of_models).copied().collect()
});

/// All figures.
pub(crate) fn figures() -> &'static [PaperFigures] {
    &FIGURES
}

/// What the device's own benchmark reports of models.
pub(crate) fn device_rows() -> impl Iterator<Item = &'static Row> {
    MODELS.iter().flat_map(|model| model.device)
}

/// What the simulator is measured with.
pub(crate) fn loads() -> impl Iterator<Item = &'static Load> {
    MODELS.iter().flat_map(|model| model.simulated)
}

/// What instructions are counted of.
pub(crate) fn works() -> impl Iterator<Item = &'static Work> {
    MODELS.iter().flat_map(|model| model.counted)
}

/// Round trips between guests that are taken apart, one model's behind one another.
pub(crate) fn round_trips() -> impl Iterator<Item = &'static RoundTrip> {
    MODELS.iter().flat_map(|model| model.round_trips)
}

impl ValueEnum for PaperFigures {
    fn value_variants<'a>() -> &'a [Self] {
        figures()
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name).help(self.help))
    }
}

impl ValueEnum for BenchSection {
    fn value_variants<'a>() -> &'a [Self] {
        &SECTIONS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name).help(self.help))
    }
}
