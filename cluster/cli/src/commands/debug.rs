//! `niclab debug`: gdb on a node's guest.

use std::{
    env,
    ffi::OsString,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{folder_of, plan_of};
use crate::arguments::DebugArgs;
use anyhow::{Context, Result, bail};
use niclab_agent::{Exec, ExitStatus, ToHost};
use niclab_cluster::{
    guests::{processors, qmp::Qmp},
    host::{process::die_with_owner, signals},
    plan::{DriverPlan, NodePlan},
    supervisor::control::{ControlError, RemoteCommand},
};

/// Shell script for the guest: prints each section of module `$1` with its address.
const SECTIONS: &str =
    r#"cd "/sys/module/$1/sections" && for file in .[a-z]*; do echo "$file $(cat "$file")"; done"#;

/// Maximum length of the script's output: more than the sections of any module need.
const MAX_SECTIONS_BYTES: usize = 64 * 1024;

/// Runs gdb and returns its code.
///
/// # Errors
/// When there is no such cluster, node or debugger, or QEMU cannot serve a debugger.
pub fn run(args: &DebugArgs) -> Result<u8> {
    let gdb = debugger(args.gdb.as_deref())?;
    let folder = folder_of(&args.name.name)?;
    let plan = plan_of(&args.name.name)?;
    let node = plan.node(&args.node).with_context(|| format!("there is no node `{}`", args.node))?;
    // gdb asks no questions until the set-up is complete.
    let quiet = ["-q", "-ex", "set pagination off", "-ex", "set confirm off"];
    let mut options: Vec<OsString> = quiet.map(OsString::from).to_vec();
    if let Some(vmlinux) = &args.vmlinux {
        options.push(vmlinux.into());
    }
    let mut symbols = Vec::new();
    if let Some(own) = &node.driver {
        // Before gdb stops the guest, which could not answer then.
        symbols.extend(add_symbols(own, &sections(&folder, node, own)?));
        let source = own.module.source.as_deref().and_then(quoted);
        symbols
            .extend(source.map(|source| format!("set substitute-path {} {source}", niclab_images::BUILT_AT)));
    }
    let served = Served::begin(node, &folder)?;
    let target = format!("target remote {}", served.socket.display());
    for command in symbols.into_iter().chain([target, "set confirm on".to_owned()]) {
        options.extend(["-ex".into(), command.into()]);
    }
    let mut gdb = Command::new(gdb);
    gdb.args(options).args(&args.arguments);
    die_with_owner(&mut gdb);
    let mut gdb = gdb.spawn().context("cannot start the debugger")?;
    // Ctrl-C belongs to gdb, which interrupts the guest. Any other signal ends gdb; then this function cleans up and
    // returns.
    let process = Pid::from_child(&gdb);
    signals::tell(move |signal| {
        if signal != Signal::INT.as_raw() {
            // gdb may have ended already.
            let _ = kill_process(process, Signal::TERM);
        }
    });
    let ended = gdb.wait();
    drop(served);
    signals::release();
    let ended = ended?;
    Ok(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn debugger(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join("gdb")).find(|file| file.is_file());
    found.context("there is no gdb in PATH; install the package gdb, or name a debugger with --gdb")
}

/// QEMU serves a debugger while this exists.
struct Served<'a> {
    node: &'a NodePlan,
    socket: PathBuf,
}

impl<'a> Served<'a> {
    fn begin(node: &'a NodePlan, folder: &Path) -> Result<Self> {
        let served = Self { node, socket: folder.join(format!("{}.gdb", node.rank)) };
        // Opened for this command only, so that other clients can use QMP while gdb runs.
        Qmp::connect(&node.qmp_socket)?.serve_debugger(Some(&served.socket))?;
        Ok(served)
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        // The guest's QEMU may have ended. If gdb ended while the guest was stopped, the guest must resume.
        let ended = Qmp::connect(&self.node.qmp_socket).and_then(|mut qemu| {
            qemu.serve_debugger(None)?;
            qemu.go_on()
        });
        if let Err(error) = ended {
            log::warn!("{}: QEMU may still listen for a debugger: {error}", self.node.name);
        }
        let _ = fs::remove_file(&self.socket);
    }
}

/// Sections of a node's driver, and their addresses in its guest. The running guest is asked. If the guest is stopped
/// by a broken rule, or if `niclab run` owns it, the addresses that the guest reported when it loaded the driver are
/// used.
fn sections(folder: &Path, node: &NodePlan, own: &DriverPlan) -> Result<Vec<(String, u64)>> {
    if !Qmp::connect(&node.qmp_socket)?.is_running()? {
        return kept_sections(node, own);
    }
    let fixed = ["sh", "-c", SECTIONS, "sh"].map(str::to_owned);
    let argv = fixed.into_iter().chain([own.module.name.clone()]).collect();
    let mut command = match RemoteCommand::start(folder, &node.name, Exec { argv, ..Exec::default() }) {
        Err(ControlError::Io(error)) if error.kind() == ErrorKind::NotFound => {
            return kept_sections(node, own);
        }
        command => command?,
    };
    let mut said = Vec::new();
    loop {
        match command.receive()? {
            ToHost::Stdout(bytes) | ToHost::Stderr(bytes) => {
                said.extend_from_slice(&bytes);
                if said.len() > MAX_SECTIONS_BYTES {
                    bail!(
                        "{} sent more than {MAX_SECTIONS_BYTES} bytes for the section addresses of its driver",
                        node.name
                    );
                }
            }
            ToHost::Exit(ExitStatus::Code(0)) => break,
            ToHost::Exit(_) | ToHost::Refused(_) => {
                let said = String::from_utf8_lossy(&said).trim().to_owned();
                bail!(
                    "{} cannot read the section addresses of its driver {}: {said}",
                    node.name,
                    own.module.name
                );
            }
            _ => {}
        }
    }
    Ok(processors::sections(&String::from_utf8_lossy(&said)))
}

fn kept_sections(node: &NodePlan, own: &DriverPlan) -> Result<Vec<(String, u64)>> {
    let file = processors::sections_file(node);
    let said = fs::read_to_string(&file).with_context(|| {
        let (name, driver, file) = (&node.name, &own.module.name, file.display());
        format!("{name} is stopped or unreachable, and the section addresses of its driver {driver} are not in {file}")
    })?;
    Ok(processors::sections(&said))
}

/// gdb's command that loads the module's symbols at their addresses. Sections that the kernel frees after the start are
/// omitted.
fn add_symbols(own: &DriverPlan, sections: &[(String, u64)]) -> Option<String> {
    let file = quoted(own.module.with_debug.as_ref()?)?;
    let address = |name: &str| sections.iter().find(|(found, _)| found == name).map(|(_, address)| address);
    let mut command = format!("add-symbol-file {file} {:#x}", address(".text")?);
    for name in [".text.unlikely", ".exit.text", ".data", ".bss", ".rodata"] {
        if let Some(address) = address(name) {
            command += &format!(" -s {name} {address:#x}");
        }
    }
    Some(command)
}

/// A path as one word of a gdb command; `None` if a control character could end the command's line.
fn quoted(path: &Path) -> Option<String> {
    let path = path.to_str().filter(|path| !path.contains(char::is_control))?;
    Some(format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use niclab_images::DriverModule;

    use super::*;

    #[test]
    fn sections_go_to_gdb() {
        let sections = processors::sections(".text 0xffffffffc0304000\n.bss 0xffffffffc0306000\n");
        let module = DriverModule {
            name: "own".into(),
            file: "/c/module.ko".into(),
            with_debug: Some("/c/a b/module.ko.debug".into()),
            source: None,
            depends: Vec::new(),
        };
        let own = DriverPlan { module, args: Vec::new() };
        let command = add_symbols(&own, &sections).unwrap();
        assert_eq!(
            command,
            "add-symbol-file \"/c/a b/module.ko.debug\" 0xffffffffc0304000 -s .bss 0xffffffffc0306000"
        );
        assert_eq!(add_symbols(&own, &[]), None);
        assert_eq!(quoted(Path::new("/a\"b\\c")).unwrap(), "\"/a\\\"b\\\\c\"");
        assert_eq!(quoted(Path::new("/a\nquit")), None);
    }
}
