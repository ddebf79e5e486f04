//! Makes the report of a live run, and prints reports.
//!
//! * [`live`] makes a [`niclab_spec::Report`] of what a running cluster did between two instants;
//! * [`kernels`] reads the counters of the guests' kernels, [`perf`] the measurements of `niclab-perf` in the guests;
//! * [`text`] prints one report as tables;
//! * [`compare`] compares several.

pub mod compare;
pub mod kernels;
pub mod live;
pub mod perf;
pub mod text;

#[cfg(test)]
pub(crate) mod samples {
    use niclab_spec::{
        Report,
        report::{
            Accelerator, Checked, FabricFigures, GuestTime, Histogram, LedgerEntry, Mode, ModelFigures,
            NodeFigures, PeripheralFigures, PortFigures, REPORT_VERSION, WallFigures, WallLatency,
            WallResult,
        },
    };

    fn entry(
        transaction: &str,
        count: u64,
        bytes: u64,
        model_price_ps: u64,
        model_waited_ps: u64,
    ) -> LedgerEntry {
        LedgerEntry { transaction: transaction.into(), count, bytes, model_price_ps, model_waited_ps }
    }

    fn guest_time(node: &str) -> GuestTime {
        GuestTime {
            node: node.into(),
            user_ns: 1_230_000_000,
            system_ns: 40_000_000,
            interrupts_ns: 10_000_000,
            idle_ns: 700_000_000,
        }
    }

    fn peripheral() -> PeripheralFigures {
        PeripheralFigures { name: "io-card".into(), ledger: vec![entry("device_to_device", 1, 64, 2, 0)] }
    }

    /// A report with data in every part.
    pub fn sample() -> Report {
        let latency = Histogram {
            count: 5,
            min_ps: 500_000,
            p50_ps: 600_000,
            p90_ps: 700_000,
            p99_ps: 800_000,
            p999_ps: 800_000,
            max_ps: 800_000,
            sum_ps: 3_000_000,
        };
        let node = NodeFigures {
            error: Some("it hangs".into()),
            messages_sent: 5,
            messages_received: 5,
            doorbells: 11,
            interrupts: [("message".to_owned(), 2), ("armed".to_owned(), 0)].into(),
            guest_interrupts: Some([("cluster".to_owned(), 2)].into()),
            ports: vec![PortFigures { port: 3, launches: 5, interrupts: [("message".to_owned(), 2)].into() }],
            ledger: vec![entry("pio_write", 3, 24, 1_500_000, 7), entry("dma_write", 1, 8, 1, 0)],
            ethernet_ledger: vec![entry("dma_write", 2, 1500, 9, 0)],
            peripherals: vec![peripheral()],
            model_time_ps: 1_600_000,
            model_latency: latency,
            ..NodeFigures::new("node0")
        };
        let result = WallResult {
            node: "node0".into(),
            benchmark: "pingpong".into(),
            transport: "ultra".into(),
            payload_bytes: 16,
            messages: 2000,
            elapsed_ns: 50_000_000,
            messages_per_s: 40_000,
            payload_bytes_per_s: 640_000,
            round_trip: Some(WallLatency { p50_ns: 12_345, ..WallLatency::default() }),
            lost_datagrams: Some(13),
        };
        let mut report = Report {
            version: REPORT_VERSION,
            niclab_version: "0.0.1".into(),
            mode: Mode::Live,
            cluster: "c".into(),
            seed: 7,
            profile: "p".into(),
            nic: vec!["ultra".into()],
            accelerator: Some(Accelerator { name: "tcg".into(), reason: "no KVM".into() }),
            qemu_version: Some("11.1.3".into()),
            kernel_release: Some("6.12".into()),
            workload: None,
            exit_code: Some(0),
            wall: Some(WallFigures {
                boot_ns: 4_123_000_000,
                commands_ns: 2_000_000_000,
                results: vec![result],
                guests: vec![guest_time("node0")],
            }),
            model: ModelFigures {
                time_ps: 1_600_000,
                why_estimate: Some("races".into()),
                latency,
                ..ModelFigures::default()
            },
            nodes: vec![node],
            fabric: FabricFigures {
                ledger: vec![entry("serialization", 3, 99, 5, 0)],
                ..FabricFigures::default()
            },
            total: Vec::new(),
            checks: vec![Checked {
                name: "nothing-lost".into(),
                held: false,
                detail: "message 3 of node0".into(),
            }],
        };
        report.add_up();
        report
    }
}
