//! The host's folder that all guests share: the others read at once what one guest writes, and the writer gets the
//! error of a full disk.

use std::fs::{self, File};
use std::io::Write;
use std::thread;
use std::time::Duration;

use niclab_harness::{Niclab, Started, eventually, in_mount_namespace};

/// The number of lines of each writer.
const LINES: usize = 20;

/// Both nodes append to `log`, which each keeps open. The second one follows `grown`, to which the first one appends.
/// The first one then fills a small file system. Each wait is bounded, so that lost lines make the test fail rather
/// than hang.
const SCRIPT: &str = r#"
await() { n=0; until "$@" || [ $n -gt 600 ]; do n=$((n + 1)); sleep 0.1; done; }
if [ "$NICLAB_RANK" = 1 ]; then
    tail -f grown > /tmp/followed & tail=$!
    : > following
fi
await [ -e following ]
i=0
while [ $i -lt 20 ]; do
    i=$((i + 1)); echo "node $NICLAB_RANK line $i"
    [ "$NICLAB_RANK" = 1 ] || echo "number $i" >> grown
    sleep 0.05
done >> log
await grep -q '^host line 20$' log
if [ "$NICLAB_RANK" = 1 ]; then
    await grep -q '^number 20$' /tmp/followed
    kill $tail; sed 's/^/followed /' /tmp/followed
else
    dd if=/dev/zero of=small/filler bs=4k count=100 2> /dev/null
    echo hello > small/f
    echo "full disk: code $?"
fi
"#;

#[test]
fn shared_folder_loses_no_line_and_reports_a_full_disk() {
    let niclab = Niclab::new();
    for file in ["log", "grown"] {
        fs::write(niclab.folder().join(file), "").expect("a file");
    }
    let small = niclab.folder().join("small");
    fs::create_dir(&small).expect("a folder");
    let mount = r#"mount -t tmpfs -o size=64k,mode=700 none "$1" || exit 99; shift; exec "$@""#;
    let run = niclab.command(["run", "--", "sh", "-c", SCRIPT]);
    let run = Started::new(in_mount_namespace(mount, &small, &run));

    let path = niclab.folder().join("log");
    let mut log = File::options().append(true).open(&path).expect("the log");
    let is_written = eventually(|| fs::metadata(&path).is_ok_and(|about| about.len() > 0));
    for line in 1..=LINES {
        writeln!(log, "host line {line}").expect("a line");
        // Interleaves the lines with those of the guests.
        thread::sleep(Duration::from_millis(20));
    }
    let outcome = run.finish().success();
    assert!(is_written, "{outcome}");

    let writers = ["node 0", "node 1", "host"];
    let mut expected: Vec<String> = writers
        .iter()
        .flat_map(|writer| (1..=LINES).map(move |line| format!("{writer} line {line}")))
        .collect();
    let text = fs::read_to_string(&path).expect("the log");
    let mut found: Vec<&str> = text.lines().collect();
    expected.sort();
    found.sort_unstable();
    assert_eq!(found, expected, "{outcome}");
    for number in 1..=LINES {
        assert!(outcome.stdout.contains(&format!("node1 | followed number {number}\n")), "{outcome}");
    }
    assert!(outcome.stdout.contains("node0 | full disk: code 1\n"), "{outcome}");
    assert!(outcome.stderr.contains("No space left on device"), "{outcome}");
}
