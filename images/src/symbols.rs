//! Finds a driver's source lines for a message of the guest's kernel or a stopped guest: file and line of each frame of
//! a call trace, or of an address, within the driver's module.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::command::{output, tree_command};
use crate::driver::{self, DriverModule};
use crate::module;
use crate::tree::Tree;

/// Maximum number of frames to look up; deeper traces are of no use.
const MAX_FRAMES: usize = 32;

/// A frame of a call trace, as the kernel prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    function: String,
    offset: u64,
    /// The processor was executing there. Other frames are return addresses, which may be on the next line.
    is_exact: bool,
}

/// A frame's position in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// Function and offset, as the kernel prints them.
    pub frame: String,
    /// The executed function, which the compiler may have inlined.
    pub function: String,
    /// File and line, with the user's path.
    pub at: String,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} at {}", self.frame, self.function, self.at)
    }
}

/// The positions of all frames of this module in a kernel's message, innermost first, without duplicates. Empty if
/// there are none, or without debugging information: this only adds details to another message.
#[must_use]
pub fn locations(cache: &Cache, module: &DriverModule, text: &str) -> Vec<SourceLocation> {
    let frames = frames(text, &module.name);
    let Some(debug) = Debug::of(cache, module).filter(|_| !frames.is_empty()) else { return Vec::new() };
    let symbols = debug.objdump("-t");
    let location = |frame: &Frame| {
        let (section, begin) = symbol(&symbols, &frame.function)?;
        let offset = frame.offset.saturating_sub(u64::from(!frame.is_exact));
        Some(debug.locations(section, begin + offset, &format!("{}+{:#x}", frame.function, frame.offset)))
    };
    frames.iter().filter_map(location).flatten().collect()
}

/// A module's debugging information, and the tools that read it.
#[derive(Debug)]
struct Debug {
    tree: PathBuf,
    file: PathBuf,
    users: Option<PathBuf>,
}

impl Debug {
    fn of(cache: &Cache, module: &DriverModule) -> Option<Self> {
        let tree = cache.find(Tree::KIND, &Tree::key())?;
        Some(Self { tree, file: module.with_debug.clone()?, users: module.source.clone() })
    }

    fn run(&self, tool: &str, arguments: &[&str], more: Option<u64>) -> String {
        let mut command = tree_command(&self.tree, &format!("usr/bin/x86_64-linux-gnu-{tool}"));
        command.args(arguments).arg(&self.file).args(more.map(|address| format!("{address:#x}")));
        let said = output(&mut command, "looking addresses of a driver up").unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }

    fn objdump(&self, what: &str) -> String {
        self.run("objdump", &[what], None)
    }

    /// The functions at this address, innermost first.
    fn locations(&self, section: &str, at: u64, frame: &str) -> Vec<SourceLocation> {
        let said = self.run("addr2line", &["-i", "-f", "-j", section, "-e"], Some(at));
        let location = |(function, at): (&str, String)| SourceLocation {
            frame: frame.to_owned(),
            function: function.to_owned(),
            at,
        };
        lines(&said, self.users.as_deref()).map(location).collect()
    }
}

/// A driver's module at its addresses in a running guest.
#[derive(Debug)]
pub struct LoadedModule {
    debug: Debug,
    code: Vec<Code>,
    symbols: String,
}

/// A section with code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Code {
    section: String,
    begin: u64,
    bytes: u64,
}

impl LoadedModule {
    /// The module with its sections at these addresses; `None` without debugging information.
    #[must_use]
    pub fn new(cache: &Cache, module: &DriverModule, sections: &[(String, u64)]) -> Option<Self> {
        let debug = Debug::of(cache, module)?;
        let code = code(&debug.objdump("-h"), sections);
        let symbols = debug.objdump("-t");
        (!code.is_empty()).then_some(Self { debug, code, symbols })
    }

    /// Whether the address is in the module's code.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        self.at(address).is_some()
    }

    fn at(&self, address: u64) -> Option<&Code> {
        self.code.iter().find(|code| (code.begin..code.begin.saturating_add(code.bytes)).contains(&address))
    }

    /// The functions at an address, innermost first. A return address may be on the next line.
    #[must_use]
    pub fn locations(&self, address: u64, is_return: bool) -> Vec<SourceLocation> {
        let Some(code) = self.at(address) else { return Vec::new() };
        let offset = address - code.begin;
        let frame = symbol_before(&self.symbols, &code.section, offset).map_or_else(
            || format!("{}+{offset:#x}", code.section),
            |(name, more)| format!("{name}+{more:#x}"),
        );
        self.debug.locations(&code.section, offset.saturating_sub(u64::from(is_return)), &frame)
    }
}

/// The sections with code, with their addresses in the guest. `objdump -h` lists `INDEX NAME SIZE ...`, with the flags
/// on the next line.
fn code(listed: &str, sections: &[(String, u64)]) -> Vec<Code> {
    let lines: Vec<&str> = listed.lines().collect();
    let pairs = lines.windows(2).filter(|pair| pair[1].contains("CODE"));
    pairs
        .filter_map(|pair| {
            let words: Vec<&str> = pair[0].split_whitespace().collect();
            let [_, section, bytes, ..] = words.as_slice() else { return None };
            let (_, begin) = sections.iter().find(|(name, _)| name == section)?;
            let bytes = u64::from_str_radix(bytes, 16).ok()?;
            Some(Code { section: (*section).to_owned(), begin: *begin, bytes })
        })
        .collect()
}

/// The last function of this section that begins at or before `offset`, and the distance from its beginning.
fn symbol_before<'a>(symbols: &'a str, section: &str, offset: u64) -> Option<(&'a str, u64)> {
    let functions = symbols.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, "F", of, _, name] = words.as_slice() else { return None };
        let begin = u64::from_str_radix(address, 16).ok()?;
        Some((*name, offset.checked_sub(begin)?)).filter(|_| *of == section)
    });
    functions.min_by_key(|(_, more)| *more)
}

/// The frames of a module: `FUNCTION+0xOFFSET/0xSIZE [MODULE]`. Frames with a question mark are leftovers on the stack
/// and are skipped.
fn frames(text: &str, module: &str) -> Vec<Frame> {
    let of_module = format!("[{module}]");
    let mut frames: Vec<Frame> = Vec::new();
    for line in text.lines().filter(|line| line.contains(&of_module)) {
        let words: Vec<&str> = line.split([' ', ':', '\t']).collect();
        for (at, word) in words.iter().enumerate() {
            let is_leftover = at > 0 && words.get(at - 1) == Some(&"?");
            let Some((function, offset)) = frame(word).filter(|_| !is_leftover) else { continue };
            let is_known =
                frames.iter().any(|frame| (frame.function.as_str(), frame.offset) == (function, offset));
            if !is_known && frames.len() < MAX_FRAMES {
                let is_exact = words.contains(&"RIP");
                frames.push(Frame { function: function.to_owned(), offset, is_exact });
            }
        }
    }
    frames
}

fn frame(word: &str) -> Option<(&str, u64)> {
    let (function, rest) = word.split_once("+0x")?;
    let (offset, _) = rest.split_once("/0x")?;
    Some((function, u64::from_str_radix(offset, 16).ok()?))
}

/// Section and offset of a function, as listed by `objdump -t`: `ADDRESS FLAGS F SECTION SIZE NAME`.
fn symbol<'a>(symbols: &'a str, function: &str) -> Option<(&'a str, u64)> {
    symbols.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, "F", section, _, name] = words.as_slice() else { return None };
        let begin = u64::from_str_radix(address, 16).ok()?;
        (*name == function).then_some((*section, begin))
    })
}

/// The output of `addr2line -f`: a line with a function, and a line with its file and line; inlined functions have more
/// such pairs.
fn lines<'a>(text: &'a str, users: Option<&'a Path>) -> impl Iterator<Item = (&'a str, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let pairs: Vec<(&str, &str)> = lines.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.into_iter().filter(|(_, at)| !at.starts_with("??")).map(move |(function, at)| {
        // Some lines have a discriminator in parentheses.
        let at = at.split(" (").next().unwrap_or(at);
        (function, users_path(at, users))
    })
}

/// A path of a driver's source with the user's folder instead of the build's.
pub(crate) fn users_path(path: &str, users: Option<&Path>) -> String {
    let within =
        [driver::BUILD, module::BUILD].iter().find_map(|built| path.strip_prefix('/')?.strip_prefix(*built));
    match (within.filter(|within| within.starts_with('/')), users) {
        (Some(within), Some(users)) => format!("{}{within}", users.display()),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OOPS: &str = "BUG: kernel NULL pointer dereference\nRIP: 0010:ring_if_wanted+0x1c/0x40 [example]\n\
        Call Trace:\n <TASK>\n ? page_fault_oops+0x15c/0x2d0\n ? request+0x10/0x266 [example]\n \
        example_write+0xb3/0x1f0 [example]\n \
        vfs_write+0xe5/0x450\n ring_if_wanted+0x1c/0x40 [example]\n</TASK>";

    #[test]
    fn only_the_modules_frames_are_found() {
        let found = frames(OOPS, "example");
        let frame =
            |function: &str, offset, is_exact| Frame { function: function.to_owned(), offset, is_exact };
        assert_eq!(found, [frame("ring_if_wanted", 0x1c, true), frame("example_write", 0xb3, false)]);
        assert!(frames(OOPS, "other").is_empty());
    }

    #[test]
    fn output_of_the_trees_tools_is_parsed() {
        let symbols = "0000000000000010 l     F .init.text\t000000000000001c own_init\n0000000000000a90 g     F \
                       .text\t00e8 on_event\n\
                       0000000000000000 l    d  .text\t0000 .text\n";
        assert_eq!(symbol(symbols, "on_event"), Some((".text", 0xa90)));
        assert_eq!(symbol(symbols, "own_init"), Some((".init.text", 0x10)));
        assert_eq!(symbol(symbols, "nothing"), None);
        assert_eq!(symbol_before(symbols, ".text", 0xa95), Some(("on_event", 5)));
        assert_eq!(symbol_before(symbols, ".text", 0xa8f), None, "before the first");
        let listed = "  0 .text         000016c3  0000  0000  00000040  2**4\n   CONTENTS, ALLOC, LOAD, RELOC, \
                      READONLY, CODE\n  \
                      1 .data         00000100  0000  0000  00000040  2**4\n   CONTENTS, ALLOC, LOAD, DATA\n  \
                      2 .exit.text    00000020  0000  0000  00001738  2**4\n   CONTENTS, ALLOC, LOAD, RELOC, \
                      READONLY, CODE\n";
        let sections =
            [(".text".to_owned(), 0xffff_ffff_c030_4000), (".data".to_owned(), 0xffff_ffff_c030_8000)];
        let found = code(listed, &sections);
        let text = Code { section: ".text".to_owned(), begin: 0xffff_ffff_c030_4000, bytes: 0x16c3 };
        assert_eq!(found, [text], "neither data nor sections that are not in the guest");
        let text = "inner\n/driver-build/a.c:7 (discriminator 1)\nouter\n/driver-build/a.c:20\n??\n??:0\n";
        let found: Vec<(&str, String)> = lines(text, Some(Path::new("/home/me"))).collect();
        assert_eq!(found, [("inner", "/home/me/a.c:7".to_owned()), ("outer", "/home/me/a.c:20".to_owned())]);
    }
}
