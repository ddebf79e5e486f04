//! `niclab compare` from the command line, in the simulator.

use niclab_spec::NicModel;

use crate::support::niclab;

#[test]
fn compare_runs_every_model_and_is_reproducible() {
    for workload in ["ping-pong", "stream"] {
        let arguments = ["compare", workload, "--count", "50", "--json"];
        let compared = niclab().run(arguments).success();
        assert_eq!(niclab().run(arguments).stdout, compared.stdout);
        let found = compared.json();
        let carriers: Vec<&str> =
            found["rows"].as_array().unwrap().iter().map(|row| row["carrier"].as_str().unwrap()).collect();
        assert_eq!(carriers, [NicModel::names().as_slice(), &["ethernet"]].concat());
        for row in found["rows"].as_array().unwrap() {
            let figures = &row["figures"];
            let of = |name: &str| figures[name].as_f64().unwrap();
            assert!(of("model_latency_p50_ps") > 0.0 && of("model_bytes_per_s") > 0.0, "{row}");
            assert!(of("dma_operations") >= 1.0 && of("bus_bytes") >= 16.0, "{row}");
            assert!(figures["wall_guest_ns"].is_null(), "a simulation has no wall time: {row}");
        }
    }
}

#[test]
fn card_that_cannot_carry_the_messages_is_named() {
    let compared = niclab().run(["compare", "--bytes", "1024", "--count", "20", "--interrupt-every", "4"]);
    let table = &compared.stdout;
    assert_eq!(compared.code(), 1, "{compared}");
    assert!(table.contains("cannot send a message of 1024 bytes"), "{table}");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let of = |carrier: &str| rows.iter().find(|row| row.first() == Some(&carrier)).unwrap();
    let interrupts = |carrier: &str| of(carrier)[6];
    assert_eq!(interrupts("inic"), "0.25", "{table}");
    assert_eq!(interrupts("ethernet"), "1.00", "{table}");
}
