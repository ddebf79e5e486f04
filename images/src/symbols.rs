//! Where in its source a driver was when the guest's kernel complained: file and line of each frame of a call trace that is of the
//! driver's module.

use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::cache::Cache;
use crate::command::{output, tree_command};
use crate::driver::{self, DriverModule};
use crate::module;
use crate::tree::Tree;

/// Frames that are looked up: a kernel prints no deeper trace of use.
const MOST_FRAMES: usize = 32;

/// A frame of a call trace, as the kernel prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    function: String,
    offset: u64,
    /// The processor was there. The others are where a call returns to, which may be the next line already.
    is_exact: bool,
}

/// A frame's place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Function and offset, as the kernel prints them.
    pub frame: String,
    /// The function that was being carried out, which the compiler may have put into that one.
    pub function: String,
    /// File and line, with the user's path.
    pub at: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} at {}", self.frame, self.function, self.at)
    }
}

/// The places of all frames in a kernel's words that are of this module, innermost first, each once. Empty where there are none, or
/// nothing is known of them: this only ever explains another message.
#[must_use]
pub fn places(cache: &Cache, module: &DriverModule, text: &str) -> Vec<Place> {
    let tree = cache.find(Tree::KIND, &Tree::key());
    let (Some(tree), Some(file)) = (tree, &module.with_debug) else { return Vec::new() };
    let frames = frames(text, &module.name);
    if frames.is_empty() {
        return Vec::new();
    }
    let run = |mut command: Command| {
        let said = output(&mut command, "looking a call trace up").unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    };
    let mut objdump = tree_command(&tree, "usr/bin/x86_64-linux-gnu-objdump");
    objdump.arg("-t").arg(file);
    let symbols = run(objdump);
    let mut places = Vec::new();
    for frame in &frames {
        let Some((section, begin)) = symbol(&symbols, &frame.function) else { continue };
        let offset = frame.offset.saturating_sub(u64::from(!frame.is_exact));
        let mut addr2line = tree_command(&tree, "usr/bin/x86_64-linux-gnu-addr2line");
        addr2line.args(["-i", "-f", "-j", section, "-e"]).arg(file).arg(format!("{:#x}", begin + offset));
        let users = module.source.as_deref();
        let name = format!("{}+{:#x}", frame.function, frame.offset);
        places.extend(lines(&run(addr2line), users).map(|(function, at)| Place {
            frame: name.clone(),
            function: function.to_owned(),
            at,
        }));
    }
    places
}

/// The frames of a module: `FUNCTION+0xOFFSET/0xSIZE [MODULE]`. Those with a question mark are leftovers on the stack, and none.
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
            if !is_known && frames.len() < MOST_FRAMES {
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

/// Section of a function, and where in it the function begins, as `objdump -t` lists them: `ADDRESS FLAGS F SECTION SIZE NAME`.
fn symbol<'a>(symbols: &'a str, function: &str) -> Option<(&'a str, u64)> {
    symbols.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, "F", section, _, name] = words.as_slice() else { return None };
        let begin = u64::from_str_radix(address, 16).ok()?;
        (*name == function).then_some((*section, begin))
    })
}

/// What `addr2line -f` prints: a line with a function, one with its file and line; more pairs for functions that were put into others.
fn lines<'a>(text: &'a str, users: Option<&'a Path>) -> impl Iterator<Item = (&'a str, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let pairs: Vec<(&str, &str)> = lines.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.into_iter().filter(|(_, at)| !at.starts_with("??")).map(move |(function, at)| {
        // It says of some that they share a line with others.
        let at = at.split(" (").next().unwrap_or(at);
        (function, users_path(at, users))
    })
}

/// A path of a driver's source as its user knows it: where it was built means nothing to anybody.
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
        Call Trace:\n <TASK>\n ? page_fault_oops+0x15c/0x2d0\n ? request+0x10/0x266 [example]\n example_write+0xb3/0x1f0 [example]\n \
        vfs_write+0xe5/0x450\n ring_if_wanted+0x1c/0x40 [example]\n</TASK>";

    #[test]
    fn the_modules_own_frames_are_found_and_no_leftovers() {
        let found = frames(OOPS, "example");
        let frame =
            |function: &str, offset, is_exact| Frame { function: function.to_owned(), offset, is_exact };
        assert_eq!(found, [frame("ring_if_wanted", 0x1c, true), frame("example_write", 0xb3, false)]);
        assert!(frames(OOPS, "other").is_empty());
    }

    #[test]
    fn what_the_tools_of_the_tree_print_is_read() {
        let symbols = "0000000000000010 l     F .init.text\t000000000000001c own_init\n0000000000000a90 g     F .text\t00e8 on_event\n\
                       0000000000000000 l    d  .text\t0000 .text\n";
        assert_eq!(symbol(symbols, "on_event"), Some((".text", 0xa90)));
        assert_eq!(symbol(symbols, "own_init"), Some((".init.text", 0x10)));
        assert_eq!(symbol(symbols, "nothing"), None);
        let text = "inner\n/driver-build/a.c:7 (discriminator 1)\nouter\n/driver-build/a.c:20\n??\n??:0\n";
        let found: Vec<(&str, String)> = lines(text, Some(Path::new("/home/me"))).collect();
        assert_eq!(found, [("inner", "/home/me/a.c:7".to_owned()), ("outer", "/home/me/a.c:20".to_owned())]);
    }
}
