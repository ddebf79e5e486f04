//! The committed tables are what the simulations say.

use std::path::Path;

use niclab_processors::comparison::{self, CLAIMS, Ideal, Machines, Measured, match_unit_cycles};

#[test]
fn the_committed_tables_are_what_the_simulations_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/figures/processors.md");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let mend = "renew them: cargo run -p niclab-processors --example comparison >docs/figures/processors.md";
    assert!(committed == comparison::markdown().unwrap(), "{mend}");
}

#[test]
fn the_directions_of_the_paper_hold() {
    let measured = Measured::new(&Machines::as_described()).unwrap();
    let (embedded, [one, two, sixteen]) = (&measured.embedded, &measured.multithreaded);
    for slower in [embedded.first(), sixteen.first()] {
        assert!(
            slower > f64::from(match_unit_cycles(1)),
            "all pay more for the first item than the match unit"
        );
    }
    assert!(embedded.first() < sixteen.first(), "out of order wins when only a few items are traversed");
    assert!(one.full(300) > two.full(300) && two.full(300) > sixteen.full(300), "cores help on long lists");
    assert!(
        sixteen.full(300) < f64::from(Ideal::Stated.cycles(300)),
        "16 cores beat ideal hardware at 300 items"
    );
    assert!(
        embedded.full(300) > f64::from(match_unit_cycles(300)),
        "the match unit stays ahead of the embedded one"
    );
    let ratios: Vec<f64> = [1, 10, 30]
        .map(|items| f64::from(match_unit_cycles(items)) / f64::from(Ideal::Fitting.cycles(items)) - 1.0)
        .into();
    for (ratio, published) in ratios.iter().zip([0.19, 0.06, 0.023]) {
        assert!((ratio - published).abs() < 0.003, "{ratio} {published}");
    }
    assert!(CLAIMS.iter().all(|claim| (claim.of)(&measured).is_finite()));
}
