//! The paper's figures 7 and 8 in guests: the time of 100 MB, at both ends, over UDP, TCP, Debian's MPI and INIC cards,
//! alternately in one boot.
//!
//! All times are wall time of guests, which TCG emulates if there is no KVM; compare only values within a column. A
//! polling program spends all its time as user time, including waits. A sleeping program waits for its card's
//! interrupt. The interrupts of the polling program are those that its receiver requested, exactly one per message.
//! UDP, TCP and MPI use the Ethernet function.

use anyhow::{Context, Result, bail};
use niclab_cluster::{check::live::LiveCluster, output::table};
use niclab_spec::{
    ClusterFile, NicConfig, NicModel, Report, Scenario, ScenarioMode, Source, Value, Workload, WorkloadKind,
    report::{GuestTime, NodeFigures},
};
use serde::Serialize;

use super::TRANSFER_BYTES;

/// The version of [`LiveFigures`].
pub const LIVE_FIGURES_VERSION: u32 = 2;

const MESSAGE_BYTES: u32 = 64 << 10;
/// Size of the paper's packets.
const DATAGRAM_BYTES: u32 = 1408;
const TAG_BYTES: u32 = 16;
/// Packages for MPI in a guest: MPICH, ssh from one node to the other, and the smallest compiler, for the program that
/// uses MPI.
const MPI_PACKAGES: [&str; 4] = ["mpich", "openssh-server", "tcc", "libc6-dev"];
/// The program, and the script that runs it on each node.
const MPI_PROGRAM: &str = include_str!("mpi.c");
const MPI_SCRIPT: &str = include_str!("mpi.sh");
/// Number of messages before the measurement.
const WARMUP: u32 = 100;
/// Rounds of each transport; the figures are medians.
const ROUNDS: usize = 3;

/// The transport of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransportKind {
    Udp,
    Tcp,
    Mpi,
    Polling,
    Sleeping,
}

impl TransportKind {
    const ALL: [Self; 5] = [Self::Udp, Self::Tcp, Self::Mpi, Self::Polling, Self::Sleeping];

    const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Mpi => "mpi",
            Self::Polling => "inic, polling, an interrupt per message",
            Self::Sleeping => "inic, sleeping",
        }
    }

    /// Bytes of a message, including its tag.
    const fn message_bytes(self) -> u32 {
        if matches!(self, Self::Udp) { DATAGRAM_BYTES } else { MESSAGE_BYTES }
    }

    const fn messages(self) -> u32 {
        TRANSFER_BYTES.div_ceil(self.message_bytes())
    }

    const fn is_ethernet(self) -> bool {
        matches!(self, Self::Udp | Self::Tcp | Self::Mpi)
    }

    fn run(self, cluster: &mut LiveCluster) -> Result<Report> {
        match self {
            Self::Udp => {
                let [size, messages, warmup] = self.numbers(TAG_BYTES);
                let fixed = ["niclab-perf", "stream", "--json", "--coordinated", "--transport", "udp"];
                let numbers = ["--size", &size, "--iterations", &messages, "--warmup", &warmup];
                cluster
                    .perform(&fixed.iter().chain(&numbers).map(|word| (*word).to_owned()).collect::<Vec<_>>())
            }
            Self::Mpi => {
                let [size, messages, warmup] = self.numbers(0);
                cluster.perform(
                    &["sh", "-c", MPI_SCRIPT, "mpi", &size, &messages, &warmup, MPI_PROGRAM]
                        .map(str::to_owned),
                )
            }
            Self::Tcp => cluster.benchmark(&["--transport", "tcp"]),
            Self::Polling => cluster.measure(),
            Self::Sleeping => cluster.benchmark(&["--poll", "block"]),
        }
    }

    /// Payload bytes of a message without a tag of `tag_bytes`, the number of messages, and the number of warm-up
    /// messages.
    fn numbers(self, tag_bytes: u32) -> [String; 3] {
        [self.message_bytes() - tag_bytes, self.messages(), WARMUP].map(|number| number.to_string())
    }
}

/// All figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveFigures {
    /// [`LIVE_FIGURES_VERSION`].
    pub version: u32,
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// Number of rounds of each measurement.
    pub rounds: usize,
    /// The hosts of each transport, the sender first.
    pub hosts: Vec<LiveHost>,
}

/// One end of one transport: medians.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveHost {
    /// The transport.
    pub way: &'static str,
    /// Whether this end receives.
    pub is_receiver: bool,
    /// Messages, writes or datagrams.
    pub messages: u32,
    /// Their size in bytes, including tags.
    pub message_bytes: u32,
    /// Over UDP: number of datagrams that were lost.
    pub lost_datagrams: Option<u64>,
    /// From the first message to the confirmation of the last.
    pub wall_real_ns: u64,
    /// In programs.
    pub wall_user_ns: u64,
    /// In the kernel.
    pub wall_system_ns: u64,
    /// In interrupts.
    pub wall_interrupts_ns: u64,
    /// Interrupts that the device raised.
    pub interrupts: u64,
    /// Interrupts that the guest counted.
    pub guest_interrupts: u64,
    /// Interrupts that the device must have raised, if a formula gives the number.
    pub expected_interrupts: Option<u64>,
}

impl LiveFigures {
    /// Boots two guests and measures, with the transports alternating in each round.
    ///
    /// # Errors
    /// When the cluster cannot be booted, or a run fails.
    pub fn measure(offline: bool) -> Result<Self> {
        let scenario = scenario()?;
        let mut cluster = LiveCluster::boot(&scenario, offline)?;
        let measured = rounds(&mut |transport| transport.run(&mut cluster));
        cluster.shut_down();
        let reports = measured?;
        let accelerator = reports.iter().flatten().find_map(|report| report.accelerator.clone());
        let mut hosts = Vec::new();
        for (transport, reports) in TransportKind::ALL.into_iter().zip(&reports) {
            for rank in [0, 1] {
                let samples = reports.iter().map(|report| LiveHost::of(transport, rank, report));
                hosts.push(LiveHost::median(&samples.collect::<Result<Vec<_>>>()?)?);
            }
        }
        Ok(Self {
            version: LIVE_FIGURES_VERSION,
            accelerator: accelerator.map_or_else(String::new, |accelerator| accelerator.name),
            rounds: ROUNDS,
            hosts,
        })
    }

    /// Whether the device raised the expected interrupts, and no guest counted more than were raised.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.hosts.iter().all(|host| {
            host.expected_interrupts.is_none_or(|expected| expected == host.interrupts)
                && host.guest_interrupts <= host.interrupts
        })
    }

    /// The figures as a table.
    #[must_use]
    pub fn text(&self) -> String {
        let heading = [
            "",
            "messages",
            "of bytes",
            "lost",
            "real s",
            "user s",
            "system s",
            "interrupts s",
            "device's interrupts",
            "guest's",
            "expected",
        ];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        let seconds = |ns: u64| format!("{:.2}", ns as f64 / 1e9);
        let optional = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        rows.extend(self.hosts.iter().map(|host| {
            vec![
                format!("{}: {}", host.way, if host.is_receiver { "receiver" } else { "sender" }),
                host.messages.to_string(),
                host.message_bytes.to_string(),
                optional(host.lost_datagrams),
                seconds(host.wall_real_ns),
                seconds(host.wall_user_ns),
                seconds(host.wall_system_ns),
                seconds(host.wall_interrupts_ns),
                host.interrupts.to_string(),
                host.guest_interrupts.to_string(),
                optional(host.expected_interrupts),
            ]
        }));
        format!(
            "UDP, TCP, MPI (Debian's MPICH) and INIC (CONF4) in guests ({}): 100 MB in messages, writes or\n\
             datagrams, tags included; wall time, medians of {} rounds in turns; time of all processors of a\n\
             guest, in steps of 10 ms. INIC: cluster function; the others: Ethernet function.\n\n\
             {}",
            self.accelerator,
            self.rounds,
            table(&rows)
        )
    }
}

/// All transports in each round, each round beginning with another one.
fn rounds(
    run: &mut dyn FnMut(TransportKind) -> Result<Report>,
) -> Result<[Vec<Report>; TransportKind::ALL.len()]> {
    let mut reports = [const { Vec::new() }; TransportKind::ALL.len()];
    for round in 0..ROUNDS {
        for turn in 0..TransportKind::ALL.len() {
            let place = (round + turn) % TransportKind::ALL.len();
            reports[place].push(run(TransportKind::ALL[place])?);
        }
    }
    Ok(reports)
}

/// Two nodes.
fn scenario() -> Result<Scenario> {
    let mut nic = NicConfig::of(NicModel::named("inic").context("there is no model `inic`")?);
    nic.set("assembly", Value::Word("conf4".to_owned()))?;
    // Room for the tag, in whole cache lines.
    nic.set("max_message_bytes", Value::Number((2 * MESSAGE_BYTES).into()))?;
    let packages = MPI_PACKAGES.map(str::to_owned).to_vec();
    let file = ClusterFile { nodes: Some(2), nic, packages, ..ClusterFile::default() };
    let cluster = Source::default().resolve_booted(&file)?;
    let workload = Workload {
        message_bytes: MESSAGE_BYTES - TAG_BYTES,
        count: TransportKind::Polling.messages().into(),
        warmup: WARMUP.into(),
        interrupt_every: 1,
        ..Workload::new(WorkloadKind::Stream)
    };
    let (budgets, ratios) = (Vec::new(), Vec::new());
    Ok(Scenario { mode: ScenarioMode::Live, repeat: 1, cluster, workload, budgets, ratios })
}

impl LiveHost {
    fn of(transport: TransportKind, rank: usize, report: &Report) -> Result<Self> {
        let wall = report.wall.as_ref().context("a live report has wall times")?;
        let result = wall.results.first().context("niclab-perf measured nothing; see its messages above")?;
        let node = report.nodes.get(rank).context("the report lacks a node")?;
        if let Some(code) = node.exit_code.filter(|code| *code != 0) {
            bail!("{}: niclab-perf ended with code {code}; see its messages above", node.name);
        }
        let guest = wall.guests.iter().find(|guest| guest.node == node.name);
        let guest = guest.context("a guest did not report its processor time")?;
        let &GuestTime { user_ns, system_ns, interrupts_ns, .. } = guest;
        let (interrupts, guest_interrupts) = counted(node, transport.is_ethernet());
        let is_receiver = rank == 1;
        // At its end, a stream's receiver confirms with a message to the sender.
        let expected = if is_receiver { transport.messages().into() } else { 1 };
        Ok(Self {
            way: transport.name(),
            is_receiver,
            messages: transport.messages(),
            message_bytes: transport.message_bytes(),
            lost_datagrams: result.lost_datagrams,
            wall_real_ns: result.elapsed_ns,
            wall_user_ns: user_ns,
            wall_system_ns: system_ns,
            wall_interrupts_ns: interrupts_ns,
            interrupts,
            guest_interrupts,
            expected_interrupts: (transport == TransportKind::Polling).then_some(expected),
        })
    }

    fn median(samples: &[Self]) -> Result<Self> {
        let first = samples.first().context("at least one round is needed")?;
        let of = |value: fn(&Self) -> u64| {
            let mut values: Vec<u64> = samples.iter().map(value).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        Ok(Self {
            lost_datagrams: first.lost_datagrams.map(|_| of(|host| host.lost_datagrams.unwrap_or_default())),
            wall_real_ns: of(|host| host.wall_real_ns),
            wall_user_ns: of(|host| host.wall_user_ns),
            wall_system_ns: of(|host| host.wall_system_ns),
            wall_interrupts_ns: of(|host| host.wall_interrupts_ns),
            interrupts: of(|host| host.interrupts),
            guest_interrupts: of(|host| host.guest_interrupts),
            ..first.clone()
        })
    }
}

/// Interrupts of a function, by the device and by the guest.
fn counted(node: &NodeFigures, is_ethernet: bool) -> (u64, u64) {
    let of_function =
        node.interrupts.iter().filter(|(cause, _)| cause.starts_with("ethernet_") == is_ethernet);
    let name = if is_ethernet { "ethernet" } else { "cluster" };
    let guest = node.guest_interrupts.as_ref().and_then(|counts| counts.get(name));
    (of_function.map(|(_, count)| count).sum(), guest.copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        path::Path,
        process::{Child, Command, Stdio},
    };

    use niclab_spec::report::{WallFigures, WallResult};

    use super::*;

    fn report(interrupts: u64, guest: u64) -> Report {
        let node = |name: &str, interrupts| NodeFigures {
            interrupts: [("message".to_owned(), interrupts), ("ethernet_receive".to_owned(), 9)].into(),
            guest_interrupts: Some([("cluster".to_owned(), guest), ("ethernet".to_owned(), 8)].into()),
            ..NodeFigures::new(name)
        };
        let guest = |node: &str| GuestTime {
            node: node.to_owned(),
            user_ns: 3,
            system_ns: 2,
            ..GuestTime::default()
        };
        Report {
            nodes: vec![node("node0", 1), node("node1", interrupts)],
            wall: Some(WallFigures {
                results: vec![WallResult { elapsed_ns: 7, ..WallResult::default() }],
                guests: vec![guest("node0"), guest("node1")],
                ..WallFigures::default()
            }),
            ..Report::default()
        }
    }

    fn figures(interrupts: u64, guest: u64) -> LiveFigures {
        let host = |transport, rank| LiveHost::of(transport, rank, &report(interrupts, guest)).unwrap();
        LiveFigures {
            version: LIVE_FIGURES_VERSION,
            accelerator: "tcg".to_owned(),
            rounds: ROUNDS,
            hosts: vec![host(TransportKind::Tcp, 1), host(TransportKind::Polling, 1)],
        }
    }

    #[test]
    fn figures_hold_only_with_the_expected_interrupts() {
        assert!(figures(1526, 1526).hold() && figures(1526, 12).hold());
        assert!(!figures(1525, 12).hold(), "not the expected number");
        assert!(!figures(1526, 1527).hold(), "more than the device raised");
        let [tcp, polling] = <[LiveHost; 2]>::try_from(figures(1526, 12).hosts).unwrap();
        assert_eq!((tcp.interrupts, tcp.guest_interrupts, tcp.expected_interrupts), (9, 8, None));
        assert_eq!((polling.wall_real_ns, polling.wall_user_ns, polling.wall_system_ns), (7, 3, 2));
        assert!(figures(1526, 12).text().contains("inic, polling, an interrupt per message: receiver"));
    }

    #[test]
    fn rounds_rotate_the_transports_and_medians_are_per_value() {
        let mut order = Vec::new();
        let reports = rounds(&mut |transport| {
            order.push(transport);
            Ok(report(order.len() as u64, 0))
        })
        .unwrap();
        assert_eq!([order[0], order[5], order[10]], TransportKind::ALL[..3]);
        for transport in TransportKind::ALL {
            assert_eq!(order.iter().filter(|ran| **ran == transport).count(), ROUNDS);
        }
        let samples: Vec<LiveHost> =
            reports[0].iter().map(|report| LiveHost::of(TransportKind::Tcp, 1, report).unwrap()).collect();
        assert_eq!(LiveHost::median(&samples).unwrap().interrupts, 9);
        let lossy = |lost| LiveHost { lost_datagrams: Some(lost), ..samples[0].clone() };
        let lost = LiveHost::median(&[lossy(5), lossy(1), lossy(2)]).unwrap().lost_datagrams;
        assert_eq!((lost, samples[0].lost_datagrams), (Some(2), None));
        assert!(LiveHost::median(&[]).is_err());
    }

    #[test]
    fn workload_is_valid_and_has_the_papers_bytes() {
        let Scenario { cluster, workload, .. } = scenario().unwrap();
        let config = niclab_spec::SimConfig::new(&cluster, "c", &workload);
        assert_eq!(workload.problems(&config.workload_nodes()), Vec::new());
        for transport in TransportKind::ALL {
            assert!(
                u64::from(transport.messages()) * u64::from(transport.message_bytes())
                    >= TRANSFER_BYTES.into()
            );
        }
        assert_eq!(TransportKind::Udp.messages(), 71_023, "the paper's packets");
    }

    /// A fake MPI of two ranks over two pipes, with all functions that the program uses.
    const PIPES_FOR_MPI: &str = r#"
        #include <fcntl.h>
        #include <stdlib.h>
        #include <unistd.h>
        static int pipes[2];
        int MPI_Init(int *count, char ***arguments) {
            pipes[0] = open(getenv("PIPE_0"), O_RDWR);
            pipes[1] = open(getenv("PIPE_1"), O_RDWR);
            return 0;
        }
        int MPI_Comm_rank(int world, int *rank) { *rank = atoi(getenv("NICLAB_RANK")); return 0; }
        int MPI_Send(const char *data, int count, int type, int to, int tag, int world) {
            return write(pipes[to], count ? data : "x", count ? count : 1) < 0;
        }
        int MPI_Recv(char *data, int count, int type, int from, int tag, int world, void *status) {
            for (int read_bytes = 0; read_bytes < (count ? count : 1);)
                read_bytes += read(pipes[!from], data + read_bytes, (count ? count : 1) - read_bytes);
            return 0;
        }
        int MPI_Finalize(void) { return 0; }
    "#;

    /// Fakes of the packages' programs; each node has a folder of its own.
    const PROGRAMS_FOR_MPI: [(&str, &str); 2] = [
        ("tcc", "exec cc -o \"$2\" \"$3\" \"$FOLDER/mpi.c\""),
        (
            "mpiexec",
            "while [ \"$1\" != ./stream ]; do shift; done\n(cd \"$FOLDER/1/niclab-mpi\" && NICLAB_RANK=1 exec \"$@\") \
             & \"$@\"",
        ),
    ];

    /// Starts the script as it runs on a node of this rank.
    fn mpi_node(folder: &Path, rank: &str) -> Child {
        let own = folder.join(rank);
        std::fs::create_dir(&own).unwrap();
        let path = std::env::var("PATH").unwrap();
        Command::new("sh")
            .args(["-c", MPI_SCRIPT, "mpi", "4096", "50", "5", MPI_PROGRAM])
            .envs([("NICLAB_RANK", rank), ("NICLAB_ADDRESSES", "10.0.0.1,10.0.0.2")])
            .envs([("PIPE_0", folder.join("0.pipe")), ("PIPE_1", folder.join("1.pipe"))])
            .envs([("TMPDIR", own.as_path()), ("FOLDER", folder)])
            .env("PATH", format!("{}:{path}", folder.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    #[test]
    fn mpi_program_stops_at_each_barrier_and_reports() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mpi.c"), PIPES_FOR_MPI).unwrap();
        for (name, script) in PROGRAMS_FOR_MPI {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            assert!(Command::new("chmod").arg("755").arg(path).status().unwrap().success());
        }
        for pipe in ["0.pipe", "1.pipe"] {
            assert!(Command::new("mkfifo").arg(folder.path().join(pipe)).status().unwrap().success());
        }
        let mut nodes = ["0", "1"].map(|rank| mpi_node(folder.path(), rank));
        let mut ends = nodes
            .each_mut()
            .map(|node| (BufReader::new(node.stderr.take().unwrap()).lines(), node.stdin.take().unwrap()));
        for cue in ["built", "connected", "warm", "measured"] {
            for (lines, _) in &mut ends {
                assert_eq!(lines.next().unwrap().unwrap(), format!("niclab-perf: cue {cue}"));
            }
            ends.iter_mut().for_each(|(_, answers)| answers.write_all(b"go\n").unwrap());
        }
        let [sender, receiver] = nodes.map(|node| node.wait_with_output().unwrap());
        assert!(sender.status.success() && receiver.status.success() && receiver.stdout.is_empty());
        let report: serde_json::Value = serde_json::from_slice(&sender.stdout).unwrap();
        let row = &report["sections"][0]["rows"][0];
        assert_eq!((&report["transport"], &row["payload_bytes"]), (&"mpi".into(), &4096.into()), "{report}");
        assert_eq!(row["iterations"], 50, "{report}");
        assert!(row["elapsed_wall_ns"].as_f64() > Some(0.0), "{report}");
    }
}
