//! Queries that only a guest can answer at the end of a run: whether its debug tools are on, and what kmemleak finds.

use niclab_images::DebugTool;
use niclab_spec::report::KernelFinding;

/// Maximum number of bytes that are read of kmemleak's list.
const MAX_LEAKS_BYTES: usize = 256 * 1024;

/// The guest's script for the tools `$@`. It prints a line `NAME on`, or `NAME` and why not, for each tool, then
/// kmemleak's list. kmemleak ignores objects younger than 5 s, and reports objects that two scans found unchanged.
pub const ASK: &str = r#"
debug=/sys/kernel/debug
[ -d $debug/bdi ] || [ -d $debug/x86 ] || mount -t debugfs debugfs $debug 2>/dev/null
config() {
    zcat /proc/config.gz 2>/dev/null | grep -q "^CONFIG_$1=y$" && echo on || echo "the kernel is built without it"
}
says() {
    grep -q "$2" "$1" 2>/dev/null && echo on || echo "it switched itself off"
}
there() {
    [ -e "$1" ] && echo on || echo "the kernel has no $1"
}
has_kmemleak=
for tool; do
    case $tool in
    kasan) state=$(config KASAN) ;;
    kcsan) state=$(says $debug/kcsan 'enabled: *1') ;;
    ubsan) state=$(config UBSAN_SHIFT) ;;
    lockdep) state=$(says /proc/lockdep_stats 'debug_locks: *1') ;;
    dma-debug) state=$(says $debug/dma-api/disabled N) ;;
    kcov) state=$(there $debug/kcov) ;;
    gcov) state=$(there $debug/gcov/reset) ;;
    memory) state=$(config DEBUG_OBJECTS) ;;
    kmemleak)
        state="it switched itself off"
        if echo scan >$debug/kmemleak 2>/dev/null; then
            has_kmemleak=1
            state=on
        fi ;;
    *) state="this niclab does not know it" ;;
    esac
    echo "$tool $state"
done
echo
if [ "$has_kmemleak" ]; then
    sleep 6
    echo scan >$debug/kmemleak
    echo scan >$debug/kmemleak
    head -c 262144 $debug/kmemleak
fi
"#;

/// A guest's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The tools that are on.
    pub on: Vec<DebugTool>,
    /// The tools that are off, and why.
    pub off: Vec<(DebugTool, String)>,
    /// The leaks that kmemleak found.
    pub leaks: Vec<KernelFinding>,
}

/// Parses the output of [`ASK`] for these tools.
pub fn answer(wanted: &[DebugTool], text: &str) -> Answer {
    let (states, leaks) = text.split_once("\n\n").unwrap_or((text, ""));
    let state = |tool: DebugTool| {
        states
            .lines()
            .find_map(|line| line.strip_prefix(tool.name())?.strip_prefix(' '))
            .unwrap_or("the guest did not report it")
    };
    let (on, off): (Vec<DebugTool>, Vec<DebugTool>) = wanted.iter().partition(|tool| state(**tool) == "on");
    let off = off.into_iter().map(|tool| (tool, state(tool).to_owned())).collect();
    Answer { on, off, leaks: leaks_in(leaks) }
}

/// kmemleak's blocks: `unreferenced object 0x... (size N):`, then indented lines. Blocks without a frame of a module
/// belong to the kernel itself: everything but the drivers is built in.
fn leaks_in(text: &str) -> Vec<KernelFinding> {
    let mut found: Vec<KernelFinding> = Vec::new();
    let end =
        text.char_indices().map(|(at, _)| at).take_while(|at| *at < MAX_LEAKS_BYTES).last().unwrap_or(0);
    let blocks = text.get(..end).unwrap_or_default().split("unreferenced object ").skip(1);
    for block in blocks {
        let size = block
            .split_once("(size ")
            .and_then(|(_, rest)| rest.split_once(')'))
            .map_or("?", |(size, _)| size);
        if !block.lines().any(|line| line.trim_end().ends_with(']') && line.contains("+0x")) {
            continue;
        }
        found.push(KernelFinding {
            kind: DebugTool::Kmemleak.name().to_owned(),
            title: format!("{size} bytes leaked: no pointer to them remains"),
            count: 1,
            text: format!("unreferenced object {block}"),
            ..KernelFinding::default()
        });
        if found.len() == super::console::MAX_FINDINGS {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "kasan on\nlockdep it switched itself off\nkmemleak on\n\n\
        unreferenced object 0xffff888005a3c400 (size 64):\n  comm \"sh\", pid 81, jiffies 4294900000\n  \
        hex dump (first 32 bytes):\n    \
        6b 6b 6b 6b  kkkk\n  backtrace (crc 0):\n    [<00000000a1b2c3d4>] __kmalloc_cache_noprof+0x1a0/0x2b0\n    \
        [<00000000a1b2c3d5>] planted_write+0x30/0x90 [planted]\n\
        unreferenced object 0xffff888005a3c500 (size 8):\n  backtrace (crc 0):\n    \
        [<00000000a1b2c3d4>] acpi_init+0x1/0x2\n";

    #[test]
    fn tools_off_or_missing_are_named_but_not_kernel_leaks() {
        let wanted = [DebugTool::Kasan, DebugTool::Lockdep, DebugTool::Kmemleak, DebugTool::DmaDebug];
        let answer = answer(&wanted, OUTPUT);
        assert_eq!(answer.on, [DebugTool::Kasan, DebugTool::Kmemleak]);
        let off: Vec<&str> = answer.off.iter().map(|(tool, _)| tool.name()).collect();
        assert_eq!(off, ["lockdep", "dma-debug"]);
        assert_eq!(answer.off[1].1, "the guest did not report it");
        assert_eq!(answer.leaks.len(), 1, "{:?}", answer.leaks);
        assert!(
            answer.leaks[0].title.starts_with("64 bytes") && answer.leaks[0].text.contains("planted_write")
        );
    }

    #[test]
    fn guest_without_output_has_no_tool_on() {
        let answer = answer(&DebugTool::USUAL, "");
        assert_eq!((answer.on.len(), answer.off.len()), (0, DebugTool::USUAL.len()));
    }

    #[test]
    fn script_and_parser_have_the_same_bound() {
        assert!(ASK.contains(&format!("head -c {MAX_LEAKS_BYTES} ")));
    }
}
