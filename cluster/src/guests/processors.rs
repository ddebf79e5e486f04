//! The positions of a guest's processors, for users who want to know what a driver was doing.
//!
//! QMP has no command for registers, so QEMU's human monitor prints them. The values of a running guest belong to some
//! moment since the query. A guest to be stopped runs until QEMU receives the command. So all positions here are
//! approximate.

use std::fs;
use std::path::PathBuf;

use niclab_images::{Cache, LoadedModule};

use super::qmp::{Qmp, QmpError};
use crate::plan::NodePlan;

/// Bytes of a kernel's stack, which is aligned to its size (Linux, arch/x86/include/asm/page_64_types.h, `THREAD_SIZE`,
/// without KASAN).
const STACK_BYTES: u64 = 16 * 1024;
/// Maximum number of stack words that are read: QEMU prints them on one line of its protocol, which is bounded.
const MAX_STACK_WORDS: u64 = 512;
/// Maximum number of processors that are queried.
const MAX_PROCESSORS: u32 = 16;

/// The file with the addresses of a node's driver, which its guest reported after loading it.
#[must_use]
pub fn sections_file(node: &NodePlan) -> PathBuf {
    node.qmp_socket.with_extension("sections")
}

/// Parses the sections of a module and their addresses, one per line, from a guest's output. They become words of
/// commands, so all other text is dropped.
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

/// A node's own driver at the addresses where it was loaded when the node came up. A reloaded driver has other
/// addresses.
fn module_of(node: &NodePlan) -> Option<LoadedModule> {
    let said = fs::read_to_string(sections_file(node)).ok()?;
    LoadedModule::new(&Cache::locate().ok()?, &node.driver.as_ref()?.module, &sections(&said))
}

/// A processor's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Processor {
    instruction: u64,
    stack: u64,
    is_user: bool,
    is_halted: bool,
}

/// The positions of the processors of a node's guest that are not idle: function, file and line in its own driver, else
/// an address.
///
/// # Errors
/// [`QmpError`].
pub fn whereabouts(qemu: &mut Qmp, node: &NodePlan) -> Result<String, QmpError> {
    let module = module_of(node);
    let module = module.as_ref();
    let (mut found, mut idle) = (Vec::new(), 0);
    for number in 0..MAX_PROCESSORS {
        let said = match qemu.ask_of_processor(number, "info registers".to_owned()) {
            // No processor has this number.
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
        (true, 0) => "position unknown".to_owned(),
        (true, _) => "all processors idle by now".to_owned(),
        (false, _) => found.join("; "),
    })
}

/// The stack's words, from its top on.
fn stack(qemu: &mut Qmp, number: u32, processor: &Processor) -> Result<Vec<u64>, QmpError> {
    let words = (STACK_BYTES - processor.stack % STACK_BYTES) / 8;
    let line = format!("x /{}gx {:#x}", words.min(MAX_STACK_WORDS), processor.stack);
    Ok(read_words(&qemu.ask_of_processor(number, line)?))
}

fn text(processor: &Processor, stack: &[u64], module: Option<&LoadedModule>) -> String {
    let Processor { instruction, is_user, .. } = *processor;
    if is_user {
        return format!("in user space at {instruction:#x}");
    }
    let innermost = |address, is_return| {
        let places = module.map(|module| module.locations(address, is_return));
        places.and_then(|places| places.into_iter().next())
    };
    if let Some(place) = innermost(instruction, false) {
        return format!("near {place}");
    }
    // Without unwinding, the first word that is an address in the driver is most likely a return address.
    let caller = stack.iter().find(|word| module.is_some_and(|module| module.contains(**word)));
    match caller.and_then(|caller| innermost(*caller, true)) {
        Some(place) => format!("in the kernel at {instruction:#x}, called perhaps near {place}"),
        None => format!("in the kernel at {instruction:#x}, not in the driver"),
    }
}

/// Parses `NAME=VALUE` in registers as QEMU prints them (target/i386/cpu-dump.c).
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

/// Parses words of memory as QEMU prints them: `ADDRESS: WORD WORD`.
fn read_words(said: &str) -> Vec<u64> {
    let words = said.lines().filter_map(|line| Some(line.split_once(':')?.1)).flat_map(str::split_whitespace);
    words.filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of QEMU 11.1, shortened.
    const REGISTERS: &str = "\r\nCPU#0\r\n\
        RAX=0000000000000000 RBX=0000000000000000 RCX=0000000000000001 RDX=0000000000000000\r\n\
        RSI=ffffffff82b0c0a0 RDI=ffffffff82b6e9a8 RBP=0000000000000000 RSP=ffffc9000018bd60\r\n\
        RIP=ffffffffc030402c RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=0\r\n\
        ES =0000 0000000000000000 ffffffff 00c00000\r\n";

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
    fn only_valid_sections_are_read_from_a_guest() {
        let said =
            ".text 0xffffffffc0304000\n.bss 0xffffffffc0306000\n.x 0x1 -ex quit\n.y;! 0x1\n.z zero\nok 0x1";
        let expected =
            [(".text".to_owned(), 0xffff_ffff_c030_4000), (".bss".to_owned(), 0xffff_ffff_c030_6000)];
        assert_eq!(sections(said), expected);
    }

    #[test]
    fn addresses_outside_the_driver_are_named_as_such() {
        let mut processor = read(REGISTERS).unwrap();
        assert_eq!(text(&processor, &[1], None), "in the kernel at 0xffffffffc030402c, not in the driver");
        processor.is_user = true;
        assert_eq!(text(&processor, &[], None), "in user space at 0xffffffffc030402c");
    }
}
