//! What components take of the FPGAs sums up to Table 1.

use niclab_components::kinds::{KINDS, Source};
use niclab_components::{Flow, Kind, Recipe, Resources};

fn taken(flow: Flow, finds_duplicates: bool) -> (u32, u32) {
    let recipe = Recipe { flow, finds_duplicates, controls_rate: false, mitigates: false };
    let Resources { flip_flops, luts } = recipe.assembly().unwrap().resources();
    (flip_flops, luts)
}

fn sum(kinds: &[Kind]) -> (i64, i64) {
    let rows = kinds.iter().map(|kind| kind.row().resources);
    rows.fold((0, 0), |sum, one| (sum.0 + i64::from(one.flip_flops), sum.1 + i64::from(one.luts)))
}

#[test]
fn the_four_configurations_take_what_table_1_says() {
    assert_eq!(taken(Flow::Unreliable, false), (1643, 1977), "CONF1");
    assert_eq!(taken(Flow::Reliable, false), (2165, 3380), "CONF2");
    assert_eq!(taken(Flow::Reliable, true), (2534, 3784), "CONF3");
    assert_eq!(taken(Flow::GoBackN, true), (2650, 3933), "CONF4");
}

#[test]
fn the_differences_of_table_1_are_what_is_exchanged() {
    let with = sum(&[Kind::Genp, Kind::BuildAcks, Kind::Timer]);
    let without = sum(&[Kind::GenpUnreliable]);
    assert_eq!((with.0 - without.0, with.1 - without.1), (522, 1403), "reliability");
    assert_eq!(sum(&[Kind::DupFind, Kind::DropPkt]), (369, 404), "duplicates");
    assert_eq!(sum(&[Kind::OrderPkts]), (116, 149), "order");
}

#[test]
fn only_a_difference_of_one_component_is_derived() {
    let of = |source| KINDS.iter().filter(move |row| row.source == source).map(|row| row.kind);
    assert_eq!(of(Source::Derived).collect::<Vec<_>>(), [Kind::OrderPkts]);
    let own: Vec<Kind> =
        of(Source::Own).filter(|kind| kind.row().resources != Resources::default()).collect();
    assert_eq!(
        own,
        [Kind::SelectiveRepeat, Kind::Mitigate, Kind::RateControl],
        "in no configuration of the paper"
    );
    for row in KINDS.iter().filter(|row| row.source == Source::Allotted) {
        assert!(row.resources.flip_flops > 0 && row.resources.luts > 0, "{}", row.name);
    }
}
