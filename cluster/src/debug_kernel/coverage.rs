//! `--coverage`: which lines of the nodes' drivers were executed, as lcov.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use anyhow::Result;
use niclab_images::{Counted, CoverageError, DebugTool, FileCoverage};
use niclab_output::OutputFile;
use thiserror::Error;

use crate::{
    boot::{
        command::{self, NodeCommand},
        running::RunningCluster,
    },
    plan::Plan,
};

/// Time limit for a guest to print its counts.
const LIMIT: Duration = Duration::from_secs(60);

/// The guest's script. It prints a line `file PATH` for each file of counts of a module that niclab built, then the
/// bytes of the file. The last line, `end`, shows that the output is complete. An unloaded module leaves its counts.
const SCRIPT: &str = r#"
debug=/sys/kernel/debug
[ -d $debug/gcov ] || mount -t debugfs debugfs $debug
cd $debug/gcov || exit
find . -name '*.gcda' | while read -r file; do
    case $file in ./driver-build/* | ./build/*) ;; *) continue ;; esac
    echo "file ${file#.}"
    od -An -v -tx1 "$file"
done
echo end
"#;

/// There is no coverage.
#[derive(Debug, Error)]
pub enum Uncovered {
    /// The kernel does not count executed lines.
    #[error(
        "--coverage needs a guest kernel with gcov: use --kernel debug, with a kernel that `niclab kernel build` made \
         with gcov"
    )]
    Kernel,
    /// A guest's output is incomplete.
    #[error("{0} printed incomplete counts of its driver")]
    NotWhole(String),
    /// The counts cannot be read.
    #[error(transparent)]
    Read(#[from] CoverageError),
    /// There are no counts of any driver.
    #[error("no guest has coverage counts, because none loaded a driver that niclab built")]
    Nothing,
}

/// Whether the guests' kernel counts executed lines.
///
/// # Errors
/// [`Uncovered::Kernel`].
pub fn check(plan: &Plan) -> Result<(), Uncovered> {
    let counts = plan
        .debug_kernel
        .as_ref()
        .is_some_and(|debug_kernel| debug_kernel.kernel.tools.contains(&DebugTool::Gcov));
    if counts { Ok(()) } else { Err(Uncovered::Kernel) }
}

/// Reads the counts of all guests since they came up, and writes them to `file`.
///
/// # Errors
/// [`Uncovered`]; also if the cluster ends, or the file cannot be written.
pub fn write(running: &mut RunningCluster, file: OutputFile) -> Result<()> {
    check(running.plan())?;
    let limit = LIMIT * running.plan().timeout_factor;
    let texts = command::run_on_all(running, |rank, _| NodeCommand::shell(rank, SCRIPT, &[]), limit)?;
    let found = read(running.plan(), &texts)?;
    let text = lcov(&found);
    let path = file.path().to_owned();
    file.write(text.as_bytes())?;
    let (hit, all) = found
        .values()
        .flat_map(|file| file.lines.values())
        .fold((0_u64, 0_u64), |(hit, all), count| (hit + u64::from(*count > 0), all + 1));
    eprintln!("niclab: {hit} of {all} lines of the drivers were executed: {}", path.display());
    Ok(())
}

fn read(plan: &Plan, texts: &[Option<String>]) -> Result<BTreeMap<String, FileCoverage>, Uncovered> {
    let debug_kernel = plan.debug_kernel.as_ref().ok_or(Uncovered::Kernel)?;
    let mut found = BTreeMap::new();
    // A guest that has ended has no counts.
    let nodes = plan.nodes.iter().zip(texts);
    for (node, text) in nodes.filter_map(|(node, text)| Some((node, text.as_ref()?))) {
        let counts = counted(text).ok_or_else(|| Uncovered::NotWhole(node.name.clone()))?;
        let own = node.driver.as_ref().map(|own| &own.module);
        if let Some(module) = own.or(debug_kernel.driver.as_ref()) {
            niclab_images::coverage(&debug_kernel.kernel.folder, module, &counts, &mut found)?;
        }
    }
    if found.is_empty() { Err(Uncovered::Nothing) } else { Ok(found) }
}

/// Parses the output of [`SCRIPT`]; `None` if it is incomplete.
fn counted(text: &str) -> Option<Vec<Counted>> {
    let mut counts: Vec<Counted> = Vec::new();
    let text = text.trim_end().strip_suffix("end")?;
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("file ") {
            counts.push(Counted { path: path.to_owned(), bytes: Vec::new() });
            continue;
        }
        let bytes = &mut counts.last_mut()?.bytes;
        for word in line.split_whitespace() {
            bytes.push(u8::from_str_radix(word, 16).ok()?);
        }
    }
    Some(counts)
}

/// The format of lcov's tracefiles: geninfo(1).
fn lcov(files: &BTreeMap<String, FileCoverage>) -> String {
    let mut text = "TN:\n".to_owned();
    // Writing to a string cannot fail.
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    for (path, file) in files {
        line(format_args!("SF:{path}"));
        for (name, (begin, _)) in &file.functions {
            line(format_args!("FN:{begin},{name}"));
        }
        for (name, (_, count)) in &file.functions {
            line(format_args!("FNDA:{count},{name}"));
        }
        let called = file.functions.values().filter(|(_, count)| *count > 0).count();
        line(format_args!("FNF:{}\nFNH:{called}", file.functions.len()));
        for (number, count) in &file.lines {
            line(format_args!("DA:{number},{count}"));
        }
        let hit = file.lines.values().filter(|count| **count > 0).count();
        line(format_args!("LF:{}\nLH:{hit}\nend_of_record", file.lines.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_counts_are_read_and_incomplete_ones_rejected() {
        let text = "file /driver-build/a.gcda\n 61 64 63 67\n 34\nfile /build/b.gcda\nend\n";
        let counts = counted(text).unwrap();
        assert_eq!(counts[0], Counted { path: "/driver-build/a.gcda".into(), bytes: b"adcg4".to_vec() });
        assert_eq!((counts.len(), counts[1].bytes.len()), (2, 0));
        assert_eq!(counted("end\n"), Some(Vec::new()));
        for broken in ["", "file /a\n 61 64", "61 62\nend\n", "file /a\n 6x\nend\n"] {
            assert_eq!(counted(broken), None, "{broken}");
        }
    }

    #[test]
    fn tracefile_has_functions_lines_and_their_sums() {
        let file = FileCoverage {
            functions: [("f".to_owned(), (3, 2)), ("g".to_owned(), (9, 0))].into(),
            lines: [(4, 2), (10, 0), (5, 7)].into(),
        };
        let text = lcov(&[("/me/a.c".to_owned(), file)].into());
        assert_eq!(
            text,
            "TN:\nSF:/me/a.c\nFN:3,f\nFN:9,g\nFNDA:2,f\nFNDA:0,g\nFNF:2\nFNH:1\nDA:4,2\nDA:5,7\nDA:10,0\nLF:3\nLH:2\n\
             end_of_record\n"
        );
    }
}
