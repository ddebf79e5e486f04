//! `niclab up`: boots a cluster. A supervisor process keeps it up.

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

/// Boots the cluster.
///
/// # Errors
/// When a node does not become healthy; nothing of the cluster remains then.
pub fn run(args: &UpArgs) -> Result<u8> {
    let root = RuntimeRoot::locate()?;
    root.sweep();
    let cluster = prepare::cluster(&args.cluster)?;
    let name = cluster.name.clone().unwrap_or_default();
    if root.is_alive(&name) {
        // Before anything is built.
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
        "niclab: {name} is up, {count} nodes healthy in {:.1} s; next: niclab inspect{option}, niclab shell{option} \
         {}, niclab down{option}",
        begin.elapsed().as_secs_f64(),
        order.plan.nodes.first().map_or("node0", |node| &node.name),
    );
    Ok(0)
}

/// Starts the supervisor. The pipe's end tells the supervisor that this process is gone.
fn start_supervisor(order: &Order) -> Result<(Child, ChildStdin)> {
    let own = env::current_exe().context("cannot find niclab's own program")?;
    let mut supervisor = Command::new(own)
        .arg(control::SUPERVISE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // A reader of this process's standard error would otherwise wait for the supervisor's end.
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()
        .context("cannot start the supervisor")?;
    let mut stdin = supervisor.stdin.take().context("the supervisor has no standard input")?;
    control::write_line(&mut stdin, order).context("cannot send the plan to the supervisor")?;
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
            UpEvent::End => bail!("the supervisor ended without an error message ({})", supervisor.wait()?),
            UpEvent::Signal(signal) => {
                // The supervisor has a session of its own, so it did not get the signal. It shuts the cluster down.
                let pid = Pid::from_child(&supervisor);
                rustix::process::kill_process(pid, Signal::TERM).context("cannot end the supervisor")?;
                supervisor.wait()?;
                return Err(Failure::Signal(signal).into());
            }
        }
    }
}
