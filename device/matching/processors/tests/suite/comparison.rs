//! What the paper says in words of these machines holds in the simulations.

use niclab_processors::Pass;
use niclab_processors::benchmark::List;
use niclab_processors::comparison::{Machines, Measured, processors};
use niclab_processors::match_unit::MatchUnit;

/// Cycles of one match at the end of a list.
fn full(lists: &[List], items: u32) -> f64 {
    lists.iter().find(|list| list.items == items).unwrap().passes.last().unwrap().cycles_per_match()
}

/// Cycles of one match at the first item of the shortest list.
fn first(lists: &[List]) -> f64 {
    lists[0].passes.iter().find(|pass| pass.percent == Some(0)).map(Pass::cycles_per_match).unwrap()
}

#[test]
fn the_directions_of_the_paper_hold() {
    let measured: Vec<Measured> = processors(&Machines::as_described()).unwrap();
    let [embedded, one, two, sixteen] =
        <[Vec<List>; 4]>::try_from(measured.into_iter().map(|machine| machine.lists).collect::<Vec<_>>())
            .unwrap();
    let unit = MatchUnit::new().unwrap().lists;
    for slower in [&embedded, &sixteen] {
        assert!(first(slower) > first(&unit), "all pay more for the first item than the match unit");
    }
    assert!(first(&embedded) < first(&sixteen), "out of order wins when only a few items are traversed");
    assert!(
        full(&one, 300) > full(&two, 300) && full(&two, 300) > full(&sixteen, 300),
        "cores help on long lists"
    );
    assert!(full(&sixteen, 300) < 8.0 + 8.0 * 300.0, "16 cores beat ideal hardware at 300 items");
    assert!(full(&embedded, 300) > full(&unit, 300), "the match unit stays ahead of the embedded one");
}
