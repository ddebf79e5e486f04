//! Where a guest's processors are: for somebody who wants to know what a driver was doing.
//!
//! QEMU says it in its monitor for people; QMP itself has no command for registers. What it says of a guest that runs
//! is of some moment since it was asked, and one that is to be stopped goes on until QEMU hears of it: so nothing here
//! is more than near.

use std::fs;
use std::path::PathBuf;

use niclab_images::{Cache, LoadedModule};

use super::qmp::{Qmp, QmpError};
use crate::plan::NodePlan;

/// Bytes of a kernel's stack, which is aligned to as many (Linux, arch/x86/include/asm/page_64_types.h, `THREAD_SIZE`,
/// without KASAN).
const STACK_BYTES: u64 = 16 * 1024;
/// Most words of a stack that are looked at: what QEMU says of them is a line of its protocol, which is bounded.
const MOST_STACK_WORDS: u64 = 512;
/// Most processors that are looked at.
const MOST_PROCESSORS: u32 = 16;

/// Where the addresses of a node's driver are kept, as its guest said them when it had loaded it.
#[must_use]
pub fn sections_file(node: &NodePlan) -> PathBuf {
    node.qmp_socket.with_extension("sections")
}

/// Sections of a module and their addresses, as a guest says them, one on a line. They become words of commands:
/// nothing else passes.
#[must_use]
pub fn sections(said: &str) -> Vec<(String, u64)> {
    let section = |line: &str| {
        let (name, address) = line.split_once(' ')?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let digits = address.strip_prefix("0x")?;
        let is_section = name.starts_with('.') && name.bytes().all(is_name);
        let address = digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(digits)?;
        is_section.then_some((name.to_owned(), u64::from_str_radix(address, 16).ok()?))
    };
    said.lines().filter_map(section).collect()
}

/// A node's own driver where it was loaded when the node came up. One that is loaded anew lies elsewhere.
fn module_of(node: &NodePlan) -> Option<LoadedModule> {
    let said = fs::read_to_string(sections_file(node)).ok()?;
    LoadedModule::new(&Cache::locate().ok()?, &node.driver.as_ref()?.module, &sections(&said))
}

/// A processor, as QEMU prints its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Processor {
    instruction: u64,
    stack: u64,
    is_user: bool,
    is_halted: bool,
}

/// Where the processors of a node's guest are, those that do anything: in its own driver by function, file and line,
/// else whatever is known.
///
/// # Errors
/// [`QmpError`].
pub fn whereabouts(qemu: &mut Qmp, node: &NodePlan) -> Result<String, QmpError> {
    let module = module_of(node);
    let module = module.as_ref();
    let (mut found, mut idle) = (Vec::new(), 0);
    for number in 0..MOST_PROCESSORS {
        let said = match qemu.ask_of_processor(number, "info registers".to_owned()) {
            // There are no more.
            Err(QmpError::Refused(_)) => break,
            said => said?,
        };
        let Some(processor) = read(&said) else { break };
        if processor.is_halted {
            idle += 1;
            continue;
        }
        let stack = if processor.is_user { Vec::new() } else { stack(qemu, number, &processor)? };
        found.push(format!("processor {number} {}", text(&processor, &stack, module)));
    }
    Ok(match (found.is_empty(), idle) {
        (true, 0) => "nobody knows where".to_owned(),
        (true, _) => "all processors idle again".to_owned(),
        (false, _) => found.join("; "),
    })
}

/// What the stack holds, from its top on.
fn stack(qemu: &mut Qmp, number: u32, processor: &Processor) -> Result<Vec<u64>, QmpError> {
    let words = (STACK_BYTES - processor.stack % STACK_BYTES) / 8;
    let line = format!("x /{}gx {:#x}", words.min(MOST_STACK_WORDS), processor.stack);
    Ok(read_words(&qemu.ask_of_processor(number, line)?))
}

fn text(processor: &Processor, stack: &[u64], module: Option<&LoadedModule>) -> String {
    let Processor { instruction, is_user, .. } = *processor;
    if is_user {
        return format!("in user space at {instruction:#x}");
    }
    let innermost = |address, is_return| {
        let places = module.map(|module| module.places(address, is_return));
        places.and_then(|places| places.into_iter().next())
    };
    if let Some(place) = innermost(instruction, false) {
        return format!("near {place}");
    }
    // Unwinding takes more than this has: the first word that is an address in the driver is most often where a call
    // returns to.
    let caller = stack.iter().find(|word| module.is_some_and(|module| module.contains(**word)));
    match caller.and_then(|caller| innermost(*caller, true)) {
        Some(place) => format!("in the kernel at {instruction:#x}, called perhaps near {place}"),
        None => format!("in the kernel at {instruction:#x}, not in the driver"),
    }
}

/// Reads `NAME=VALUE` out of registers as QEMU prints them (target/i386/cpu-dump.c).
fn read(said: &str) -> Option<Processor> {
    let value = |name: &str| {
        let word = said.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
        u64::from_str_radix(word, 16).ok()
    };
    Some(Processor {
        instruction: value("RIP").or_else(|| value("EIP"))?,
        stack: value("RSP").or_else(|| value("ESP"))?,
        is_user: value("CPL")? == 3,
        is_halted: value("HLT")? == 1,
    })
}

/// Words of memory, as QEMU prints them: `ADDRESS: WORD WORD`.
fn read_words(said: &str) -> Vec<u64> {
    let words = said.lines().filter_map(|line| Some(line.split_once(':')?.1)).flat_map(str::split_whitespace);
    words.filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As QEMU 11.1 prints it, shortened.
    const REGISTERS: &str = "\r\nCPU#0\r\nRAX=0000000000000000 RBX=0000000000000000 RCX=0000000000000001 RDX=0000000000000000\r\n\
        RSI=ffffffff82b0c0a0 RDI=ffffffff82b6e9a8 RBP=0000000000000000 RSP=ffffc9000018bd60\r\n\
        RIP=ffffffffc030402c RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=0\r\nES =0000 0000000000000000 ffffffff 00c00000\r\n";

    #[test]
    fn registers_and_memory_are_read_as_qemu_prints_them() {
        let processor = read(REGISTERS).unwrap();
        let expected = Processor {
            instruction: 0xffff_ffff_c030_402c,
            stack: 0xffff_c900_0018_bd60,
            is_user: false,
            is_halted: false,
        };
        assert_eq!(processor, expected);
        let user = read(&REGISTERS.replace("CPL=0", "CPL=3").replace("HLT=0", "HLT=1")).unwrap();
        assert!(user.is_user && user.is_halted);
        assert_eq!(read("No CPU available\r\n"), None);
        let words =
            read_words("ffffc9000018bd60: 0x0000000000000007 0xffffffffc0304031\r\nCannot access memory\r\n");
        assert_eq!(words, [7, 0xffff_ffff_c030_4031]);
    }

    #[test]
    fn sections_are_what_a_guest_says_and_nothing_that_it_made_up() {
        let said =
            ".text 0xffffffffc0304000\n.bss 0xffffffffc0306000\n.x 0x1 -ex quit\n.y;! 0x1\n.z zero\nok 0x1";
        let expected =
            [(".text".to_owned(), 0xffff_ffff_c030_4000), (".bss".to_owned(), 0xffff_ffff_c030_6000)];
        assert_eq!(sections(said), expected);
    }

    #[test]
    fn what_is_not_the_drivers_is_said_to_be_elsewhere() {
        let mut processor = read(REGISTERS).unwrap();
        assert_eq!(text(&processor, &[1], None), "in the kernel at 0xffffffffc030402c, not in the driver");
        processor.is_user = true;
        assert_eq!(text(&processor, &[], None), "in user space at 0xffffffffc030402c");
    }
}
