//! What each NIC model adds: the figures of its paper, and its measurements for `niclab bench`.

mod gamma;
mod grim;
mod inic;
mod matching;
mod ultra;

use std::sync::LazyLock;

use clap::{ValueEnum, builder::PossibleValue};

use crate::{device::Row, figures::PaperFigures, instructions::Work, section::BenchSection, sim::Load};

/// The benchmarks of one model.
struct Benches {
    figures: &'static [PaperFigures],
    sections: &'static [BenchSection],
    /// Rows of the device's own benchmark.
    device: &'static [Row],
    /// Loads for the simulator's benchmark.
    simulated: &'static [Load],
    /// Works whose instructions are counted.
    counted: &'static [Work],
}

impl Benches {
    /// For a model without any.
    const NONE: Self = Self { figures: &[], sections: &[], device: &[], simulated: &[], counted: &[] };
}

/// All models with benchmarks.
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

/// The models' rows of the device's own benchmark.
pub(crate) fn device_rows() -> impl Iterator<Item = &'static Row> {
    MODELS.iter().flat_map(|model| model.device)
}

/// The models' loads for the simulator's benchmark.
pub(crate) fn loads() -> impl Iterator<Item = &'static Load> {
    MODELS.iter().flat_map(|model| model.simulated)
}

/// The models' works whose instructions are counted.
pub(crate) fn works() -> impl Iterator<Item = &'static Work> {
    MODELS.iter().flat_map(|model| model.counted)
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
