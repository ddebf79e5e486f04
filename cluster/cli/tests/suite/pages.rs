//! Pages about runs, and limits on changes between two reports, from the command line.

use std::fs;

use niclab_harness::{Niclab, Outcome};

use crate::support::niclab;

/// Simulates a ping-pong with this interval of interrupts, and writes its report.
fn simulated(niclab: &Niclab, name: &str, interrupt_every: u32) -> Outcome {
    let workload = format!("kind = \"ping-pong\"\ncount = 100\ninterrupt_every = {interrupt_every}");
    let budget = "[[budget]]\nwhat = \"interrupts\"\nat_most = 20";
    let text = format!("[workload]\n{workload}\n\n{budget}\n");
    fs::write(niclab.folder().join(format!("{name}.toml")), text).unwrap();
    niclab.run([
        "sim",
        &format!("{name}.toml"),
        "--report-file",
        &format!("{name}.json"),
        "--html",
        &format!("{name}.html"),
    ])
}

/// A folder with the reports of a run and of one with more interrupts.
fn pair() -> Niclab {
    let niclab = niclab();
    simulated(&niclab, "base", 10).success();
    simulated(&niclab, "new", 8).success();
    niclab
}

fn read(niclab: &Niclab, name: &str) -> String {
    fs::read_to_string(niclab.folder().join(name)).unwrap()
}

#[test]
fn simulation_check_and_report_write_pages() {
    let niclab = pair();
    assert!(read(&niclab, "new.html").contains("nothing-lost"));
    let checked = niclab.run(["check", "base.toml", "new.toml", "--html", "check.html"]);
    assert_eq!(checked.code(), 1, "{checked}");
    let page = read(&niclab, "check.html");
    assert!(page.contains("<td>at most 20</td><td>24"), "{page}");
    assert!(page.contains("node1, page of port 0, cause message: 12"), "{page}");
    assert_eq!(page.matches("<section").count(), 2);
    niclab.run(["report", "base.json", "new.json", "--html", "pair.html"]).success();
    assert!(read(&niclab, "pair.html").contains("Difference to the baseline"));
    let three = niclab.run(["report", "base.json", "new.json", "new.json", "--html", "x.html"]);
    assert!(three.code() == 125 && three.stderr.contains("and 3 were given"), "{three}");
    assert!(!niclab.folder().join("x.html").exists());
}

#[test]
fn markdown_has_verdicts_and_changes() {
    let niclab = pair();
    let report = ["report", "base.json", "new.json", "--markdown", "--fail-if", "interrupts>+0%"];
    let printed = niclab.run(report);
    assert_eq!(printed.code(), 1, "{printed}");
    let text = &printed.stdout;
    assert!(text.starts_with("### new: new.json against base.json: 1 of "), "{text}");
    assert!(text.contains("| **BROKEN** | interrupts | at most 20 +0% | 24 (+4, +20.00%); node"), "{text}");
    assert!(text.contains("<details>"), "{text}");
}

#[test]
fn change_beyond_its_limit_fails_and_is_listed() {
    let niclab = pair();
    let judged = niclab.run(["report", "base.json", "new.json", "--fail-if", "interrupts>+0%"]);
    assert_eq!(judged.code(), 1, "{judged}");
    let text = &judged.stdout;
    assert!(text.contains("interrupts: BROKEN: expected at most 20 +0%, found 24 (+4, +20.00%)"), "{text}");
    assert!(text.contains("  node0, page of port 0, cause message: 12, was 10"), "{text}");
    assert!(text.contains("\nwhat has changed:\n") && text.contains("host_interrupt"), "{text}");
    let held = ["report", "base.json", "new.json", "--fail-if", "interrupts>+20%", "--json"];
    let held = niclab.run(held).success().json();
    assert_eq!(held["verdicts"][0]["outcome"], "held", "{held}");
    assert!(held["rows"].as_array().unwrap().len() > 10, "{held}");
}

#[test]
fn limits_that_cannot_be_judged_are_refused() {
    let niclab = pair();
    for (arguments, code, part) in [
        (&["base.json", "--fail-if", "interrupts>+0%"][..], 125, "compares two reports, and 1 were given"),
        (&["base.json", "new.json", "--fail-if", "wall_boot_ns>+9%"], 125, "add --allow-wall"),
        (&["base.json", "new.json", "--fail-if", "interupts>+0%"], 2, "did you mean `interrupts`?"),
        (&["base.json", "new.json", "--fail-if", "nod1:interrupts>+0%"], 125, "did you mean `node1`?"),
        (&["base.json", "new.json", "--allow-wall"], 2, "--fail-if"),
    ] {
        let refused = niclab.run([&["report"], arguments].concat());
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.stderr.contains(part), "{part}: {refused}");
    }
    let arguments = ["report", "base.json", "new.json", "--allow-wall", "--fail-if", "wall_boot_ns>+9%"];
    let judged = niclab.run(arguments);
    assert_eq!(judged.code(), 1, "{judged}");
    assert!(judged.stdout.contains("a report does not count this figure"), "{judged}");
}
