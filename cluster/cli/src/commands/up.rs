//! `niclab up`: boots a cluster and leaves it up, kept by a supervisor.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use niclab_cluster::{
    boot::{prepare, running::Failure},
    host::{
        runtime::{RuntimeError, RuntimeRoot},
        signals,
    },
    supervisor::{HandedOver, Order, Progress, control},
};
use niclab_spec::ClusterName;
use rustix::process::{Pid, Signal};

use crate::arguments::UpArgs;

enum UpEvent {
    Progress(Progress),
    End,
    Signal(i32),
}

/// Boots it.
///
/// # Errors
/// When the cluster does not get healthy; nothing is then left.
pub fn run(args: &UpArgs) -> Result<u8> {
    let root = RuntimeRoot::locate()?;
    root.sweep();
    let cluster = prepare::cluster(&args.cluster)?;
    let name = cluster.name.clone().unwrap_or_default();
    if root.is_alive(&name) {
        // Known before anything is built.
        return Err(RuntimeError::Taken(name).into());
    }
    let mut plan = prepare::plan(&args.cluster, &cluster, &name, &root, args.cluster.offline)?;
    plan.on_node_exit = args.node_exit.over(cluster.on_node_exit);
    let (count, accelerator) = (plan.nodes.len(), plan.accelerator.clone());
    let boot_timeout = args.cluster.boot_timeout(count, plan.timeout_factor);
    let starting = plan.start.way.doing();
    eprintln!("niclab: {starting} {count} nodes ({}: {})", accelerator.name(), accelerator.reason);
    let begin = Instant::now();
    let order = Order { root: root.path().to_owned(), plan, boot_timeout };
    let (supervisor, stdin) = start_supervisor(&order)?;
    wait_until_up(supervisor, stdin)?;
    order.plan.drivers_in_use().iter().for_each(|line| eprintln!("niclab: {line}"));
    let option = if name == ClusterName::default() { String::new() } else { format!(" --name {name}") };
    eprintln!(
        "niclab: {name} is up, {count} nodes healthy in {:.1} s; next: niclab inspect{option}, niclab shell{option} {}, \
         niclab down{option}",
        begin.elapsed().as_secs_f64(),
        order.plan.nodes.first().map_or("node0", |node| &node.name),
    );
    Ok(0)
}

/// The supervisor, and the pipe by whose end it knows that this process is gone.
fn start_supervisor(order: &Order) -> Result<(Child, ChildStdin)> {
    let own = env::current_exe().context("cannot find niclab's own program")?;
    let mut supervisor = Command::new(own)
        .arg(control::SUPERVISE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Whoever reads our own standard error would wait for the supervisor's end.
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()
        .context("cannot start the supervisor")?;
    let mut stdin = supervisor.stdin.take().context("the supervisor has no standard input")?;
    control::write_line(&mut stdin, order).context("cannot tell the supervisor what to do")?;
    Ok((supervisor, stdin))
}

fn wait_until_up(mut supervisor: Child, mut stdin: ChildStdin) -> Result<()> {
    let (sender, heard) = mpsc::channel();
    let stdout = supervisor.stdout.take().context("the supervisor has no standard output")?;
    let signals = sender.clone();
    signals::tell(move |signal| drop(signals.send(UpEvent::Signal(signal))));
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Ok(progress) = serde_json::from_str(&line) {
                let _ = sender.send(UpEvent::Progress(progress));
            }
        }
        let _ = sender.send(UpEvent::End);
    });
    loop {
        match heard.recv()? {
            UpEvent::Progress(Progress::Healthy { node }) => log::info!("{node} is healthy"),
            UpEvent::Progress(Progress::Up) => {
                return control::write_line(&mut stdin, &HandedOver {}).context("the supervisor is gone");
            }
            UpEvent::Progress(Progress::Failed { message }) => {
                supervisor.wait()?;
                bail!("{message}");
            }
            UpEvent::End => bail!("the supervisor ended without a word ({})", supervisor.wait()?),
            UpEvent::Signal(signal) => {
                // The supervisor takes everything down; it has a session of its own and got no signal yet.
                let pid = Pid::from_child(&supervisor);
                rustix::process::kill_process(pid, Signal::TERM).context("cannot end the supervisor")?;
                supervisor.wait()?;
                return Err(Failure::Signal(signal).into());
            }
        }
    }
}
