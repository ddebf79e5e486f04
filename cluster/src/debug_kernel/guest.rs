//! What only a guest can say at the end of a run: whether its tools are on, and what kmemleak finds.

use niclab_images::DebugTool;
use niclab_spec::report::KernelFinding;

/// As much is read of what kmemleak lists.
const MOST_LEAKS_BYTES: usize = 256 * 1024;

/// Asks for the tools `$@`: a line `NAME on` or `NAME` and why not for each, then kmemleak's list. kmemleak passes
/// over what is younger than 5 s, and reports what two scans found alike.
pub const ASK: &str = r#"
debug=/sys/kernel/debug
[ -d $debug/bdi ] || [ -d $debug/x86 ] || mount -t debugfs debugfs $debug 2>/dev/null
config() {
    zcat /proc/config.gz 2>/dev/null | grep -q "^CONFIG_$1=y$" && echo on || echo "the kernel is built without it"
}
says() {
    grep -q "$2" "$1" 2>/dev/null && echo on || echo "it has switched itself off"
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
        state="it has switched itself off"
        if echo scan >$debug/kmemleak 2>/dev/null; then
            has_kmemleak=1
            state=on
        fi ;;
    *) state="nobody knows it" ;;
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

/// What a guest answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The tools that are on.
    pub on: Vec<DebugTool>,
    /// Those that are not, and why.
    pub off: Vec<(DebugTool, String)>,
    /// What kmemleak found.
    pub leaks: Vec<KernelFinding>,
}

/// Reads what [`ASK`] prints, asked for these.
pub fn answer(wanted: &[DebugTool], text: &str) -> Answer {
    let (states, leaks) = text.split_once("\n\n").unwrap_or((text, ""));
    let state = |tool: DebugTool| {
        states
            .lines()
            .find_map(|line| line.strip_prefix(tool.name())?.strip_prefix(' '))
            .unwrap_or("it does not say")
    };
    let (on, off): (Vec<DebugTool>, Vec<DebugTool>) = wanted.iter().partition(|tool| state(**tool) == "on");
    let off = off.into_iter().map(|tool| (tool, state(tool).to_owned())).collect();
    Answer { on, off, leaks: leaks_in(leaks) }
}

/// kmemleak's blocks: `unreferenced object 0x... (size N):`, then lines that are set in. Those without a frame of a
/// module are the kernel's own: it has all else built in, and the drivers alone are modules.
fn leaks_in(text: &str) -> Vec<KernelFinding> {
    let mut found: Vec<KernelFinding> = Vec::new();
    let end =
        text.char_indices().map(|(at, _)| at).take_while(|at| *at < MOST_LEAKS_BYTES).last().unwrap_or(0);
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
            title: format!("{size} bytes that nobody can free any more"),
            count: 1,
            text: format!("unreferenced object {block}"),
            ..KernelFinding::default()
        });
        if found.len() == super::console::MOST_FINDINGS {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "kasan on\nlockdep it has switched itself off\nkmemleak on\n\n\
        unreferenced object 0xffff888005a3c400 (size 64):\n  comm \"sh\", pid 81, jiffies 4294900000\n  hex dump (first 32 bytes):\n    \
        6b 6b 6b 6b  kkkk\n  backtrace (crc 0):\n    [<00000000a1b2c3d4>] __kmalloc_cache_noprof+0x1a0/0x2b0\n    \
        [<00000000a1b2c3d5>] planted_write+0x30/0x90 [planted]\n\
        unreferenced object 0xffff888005a3c500 (size 8):\n  backtrace (crc 0):\n    [<00000000a1b2c3d4>] acpi_init+0x1/0x2\n";

    #[test]
    fn tools_that_are_off_or_not_told_of_are_named_and_the_kernels_own_leaks_are_not() {
        let wanted = [DebugTool::Kasan, DebugTool::Lockdep, DebugTool::Kmemleak, DebugTool::DmaDebug];
        let answer = answer(&wanted, SAID);
        assert_eq!(answer.on, [DebugTool::Kasan, DebugTool::Kmemleak]);
        let off: Vec<&str> = answer.off.iter().map(|(tool, _)| tool.name()).collect();
        assert_eq!(off, ["lockdep", "dma-debug"]);
        assert_eq!(answer.off[1].1, "it does not say");
        assert_eq!(answer.leaks.len(), 1, "{:?}", answer.leaks);
        assert!(
            answer.leaks[0].title.starts_with("64 bytes") && answer.leaks[0].text.contains("planted_write")
        );
    }

    #[test]
    fn a_guest_that_says_nothing_has_nothing_on() {
        let answer = answer(&DebugTool::USUAL, "");
        assert_eq!((answer.on.len(), answer.off.len()), (0, DebugTool::USUAL.len()));
    }

    #[test]
    fn the_bound_of_the_list_is_the_scripts() {
        assert!(ASK.contains(&format!("head -c {MOST_LEAKS_BYTES} ")));
    }
}
