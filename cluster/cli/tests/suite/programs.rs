//! How a program ends on the nodes of a cluster of fake guests: each end that is not success names node and cause.

use std::time::Duration;

use niclab_agent::Exec;
use niclab_cluster::{
    boot::running::RunningCluster,
    host::runtime::RuntimeRoot,
    user_program::{self, Program, ProgramEnds, StdoutUse, TimeLimit},
};

use crate::support::{GOOD_DAEMON, TIMEOUT, name, plan};

/// Runs this command on two nodes, with a time limit.
fn run(command: &str, limit: Duration) -> ProgramEnds {
    let folder = tempfile::tempdir().unwrap();
    let root = RuntimeRoot::at(folder.path().join("r")).unwrap();
    let plan = plan(root.path(), "c", GOOD_DAEMON, &["good", "good"]);
    let mut cluster =
        RunningCluster::boot(plan, root.claim(&name("c")).unwrap(), TIMEOUT, &mut |_| {}).unwrap();
    let program = Program {
        exec: Exec { argv: vec![command.to_owned()], ..Exec::default() },
        stdout: StdoutUse::Stderr,
        limit: Some(TimeLimit { limit, set_by: "--timeout" }),
    };
    let ends = user_program::run(&mut cluster, &program).unwrap();
    cluster.shut_down(false);
    ends
}

#[test]
fn hanging_program_is_killed_and_its_nodes_are_named() {
    let ends = run("hang", Duration::from_secs(3));
    let text = "the command had not ended after 3 s (--timeout) on node1";
    assert_eq!((ends.timed_out.as_deref(), ends.exit_code), (Some(text), 125));
    let [good, late] = ends.outcomes.as_slice() else { panic!("{ends:?}") };
    assert_eq!((good.exit_code, good.error.as_deref()), (Some(0), None));
    assert_eq!((late.exit_code, late.error.as_deref()), (None, Some("had not ended after 3 s (--timeout)")));
}

#[test]
fn failed_program_has_exit_code_and_last_output() {
    let ends = run("3", TIMEOUT);
    assert_eq!((ends.timed_out, ends.exit_code), (None, 3));
    for (rank, outcome) in ends.outcomes.iter().enumerate() {
        assert_eq!((outcome.exit_code, outcome.error.as_deref()), (Some(3), Some("exit code 3")));
        assert_eq!(outcome.output, [format!("{rank} of 2"), "oops".to_owned()]);
    }
    let ends = run("0", TIMEOUT);
    assert!(
        ends.exit_code == 0 && ends.outcomes.iter().all(|one| one.error.is_none() && one.output.is_empty())
    );
}

#[test]
fn program_that_is_not_started_has_the_reason() {
    let ends = run("missing", TIMEOUT);
    assert_eq!(ends.exit_code, 127);
    assert_eq!(ends.outcomes[1].error.as_deref(), Some("not started: no such program"));
}
