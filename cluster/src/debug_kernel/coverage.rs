//! `--coverage`: which lines of the nodes' drivers were carried out, as lcov.

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

/// How long a guest may take to give its counts.
const LIMIT: Duration = Duration::from_secs(60);

/// Prints a line `file PATH` for each file of counts of a module that niclab built, its bytes, and at last `end`, by
/// which is told that all of it came. A module that was unloaded left its counts behind.
const ASK: &str = r#"
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

/// Coverage cannot be had.
#[derive(Debug, Error)]
pub enum Uncovered {
    /// The kernel does not count.
    #[error(
        "--coverage needs guests whose kernel counts: --kernel debug, of a kernel that was built with gcov (`niclab kernel build`)"
    )]
    Kernel,
    /// What a guest said is not whole.
    #[error("{0} does not give the counts of its driver whole")]
    NotWhole(String),
    /// They cannot be read.
    #[error(transparent)]
    Read(#[from] CoverageError),
    /// No line of any driver is known.
    #[error("no guest has counted anything: no driver that niclab built was loaded")]
    Nothing,
}

/// Whether the guests' kernel counts.
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

/// Reads what all guests have counted since they came up, and writes it to `file`.
///
/// # Errors
/// [`Uncovered`]; when the cluster ends, or the file cannot be written.
pub fn write(running: &mut RunningCluster, file: OutputFile) -> Result<()> {
    check(running.plan())?;
    let limit = LIMIT * running.plan().timeout_factor;
    let texts = command::run_on_all(running, |rank, _| NodeCommand::shell(rank, ASK, &[]), limit)?;
    let found = read(running.plan(), &texts)?;
    let text = lcov(&found);
    let path = file.path().to_owned();
    file.write(text.as_bytes())?;
    let (hit, all) = found
        .values()
        .flat_map(|file| file.lines.values())
        .fold((0_u64, 0_u64), |(hit, all), count| (hit + u64::from(*count > 0), all + 1));
    eprintln!("niclab: {hit} of {all} lines of the drivers were carried out: {}", path.display());
    Ok(())
}

fn read(plan: &Plan, texts: &[Option<String>]) -> Result<BTreeMap<String, FileCoverage>, Uncovered> {
    let debug_kernel = plan.debug_kernel.as_ref().ok_or(Uncovered::Kernel)?;
    let mut found = BTreeMap::new();
    // A guest that has ended cannot say.
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

/// Reads what [`ASK`] prints; `None` if it is not whole.
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
    fn files_of_counts_are_read_and_a_part_of_them_is_not_believed() {
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
    fn a_tracefile_has_functions_lines_and_their_sums() {
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
