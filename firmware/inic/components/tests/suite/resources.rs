//! The components' FPGA resources sum up to Table 1.

use niclab_components::kinds::{KINDS, Source, TABLE_1};
use niclab_components::{Flow, Kind, Recipe, Resources};

fn taken(flow: Flow, finds_duplicates: bool) -> Resources {
    let recipe = Recipe { flow, finds_duplicates, controls_rate: false, mitigates: false, depth: 16 };
    recipe.assembly().unwrap().resources()
}

fn sum(kinds: &[Kind]) -> (i64, i64) {
    let rows = kinds.iter().map(|kind| kind.row().resources);
    rows.fold((0, 0), |sum, one| (sum.0 + i64::from(one.flip_flops), sum.1 + i64::from(one.luts)))
}

#[test]
fn four_configurations_match_table_1() {
    let recipes =
        [(Flow::Unreliable, false), (Flow::Reliable, false), (Flow::Reliable, true), (Flow::GoBackN, true)];
    for (row, (flow, finds_duplicates)) in TABLE_1.iter().zip(recipes) {
        assert_eq!(taken(flow, finds_duplicates), row.resources, "{}", row.name);
    }
    let numbers = TABLE_1.map(|row| (row.resources.flip_flops, row.resources.luts));
    assert_eq!(numbers, [(1643, 1977), (2165, 3380), (2534, 3784), (2650, 3933)]);
}

#[test]
fn two_printed_shares_differ_from_the_papers_numbers() {
    let shares = TABLE_1.map(|row| row.resources.shares());
    assert_eq!(shares, [[1310, 1576], [1726, 2695], [2020, 3017], [2113, 3135]]);
    let differ = TABLE_1.map(|row| row.printed != row.resources.shares());
    assert_eq!(differ, [false, false, true, true]);
}

#[test]
fn differences_of_table_1_are_the_exchanged_components() {
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
