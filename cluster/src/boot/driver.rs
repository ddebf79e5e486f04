//! Loads the user's own driver into a guest, and waits until the driver is bound to the card.

use std::{fs, io, path::PathBuf, sync::Arc};

use niclab_agent::{Exec, ExitStatus, ToGuest, ToHost, message::DATA_BYTES, message::WINDOW_BYTES};
use thiserror::Error;

use crate::host::deadline::Deadline;
use crate::{
    guests::{
        agent::{AgentClient, AgentError},
        processors::sections_file,
    },
    plan::{DriverPlan, NodePlan},
};

/// Maximum number of bytes of a guest's output that an error message about its driver shows.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;

/// The guest's script, which loads the module from standard input. `$1` is its name, `$2` the modules that it needs;
/// the other arguments are the module's parameters. The kernel's messages go to standard error.
///
/// The guest sees a hot-plugged card after a delay, and the kernel may probe a driver asynchronously. So the script
/// waits for both.
const LOAD: &str = r#"
name=$1 depends=$2
shift 2
file=/run/niclab/$name.ko
cat >"$file" || exit
card() {
    for device in /sys/bus/virtio/devices/*; do
        [ "$(cat "$device/device" 2>/dev/null)" = 0x0026 ] && echo "$device" && return
    done
    return 1
}
waits=0
until device=$(card); do
    waits=$((waits + 1))
    [ "$waits" -lt 300 ] || { echo "the card does not appear in the guest" >&2; exit 1; }
    sleep 0.1
done
said=$(dmesg | wc -l)
kernel() {
    dmesg | tail -n "+$((said + 1))" >&2
}
for module in $depends; do
    modprobe "$module" || exit
done
insmod "$file" "$@" || { kernel; exit 1; }
rm -f "$file"
waits=0
until [ -e "$device/driver" ]; do
    waits=$((waits + 1))
    [ "$waits" -lt 50 ] || {
        echo "the module is loaded but not bound to the card: probe failed, or id_table lacks virtio device 38" >&2
        kernel
        exit 1
    }
    sleep 0.1
done
cd "/sys/module/$name/sections" && for section in .[a-z]*; do
    echo "$section $(cat "$section")"
done
:
"#;

/// Why a driver is not bound to the card.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The module cannot be read.
    #[error("cannot read the module {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The agent failed.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The guest's kernel refuses the module, or the driver does not bind to the card.
    #[error("your driver {name} did not load or bind to the card ({how}):\n{said}")]
    Refused {
        /// Its name.
        name: String,
        /// How loading it ended.
        how: String,
        /// The messages of guest and kernel.
        said: String,
    },
}

/// Loads a node's driver into the guest of `agent`, and stores the load addresses of its sections on the host.
///
/// # Errors
/// [`LoadError`]; [`AgentError::Silent`] after `deadline`.
pub fn load(
    agent: &Arc<AgentClient>,
    node: &NodePlan,
    driver: &DriverPlan,
    deadline: Deadline,
) -> Result<(), LoadError> {
    let path = &driver.module.file;
    let module = fs::read(path).map_err(|error| LoadError::Read { path: path.clone(), error })?;
    let name = driver.module.name.clone();
    let fixed = ["sh", "-c", LOAD, "sh"].map(str::to_owned);
    let own = [name.clone(), driver.module.depends.join(" ")];
    let argv = fixed.into_iter().chain(own).chain(driver.args.iter().cloned()).collect();
    let command = agent.exec(Exec { argv, ..Exec::default() })?;
    let mut pieces = module.chunks(DATA_BYTES);
    let mut room = WINDOW_BYTES as usize;
    let (mut said, mut is_whole) = (Vec::new(), false);
    loop {
        while !is_whole && room >= DATA_BYTES {
            let Some(piece) = pieces.next() else {
                command.sender().send(ToGuest::StdinEnd)?;
                is_whole = true;
                break;
            };
            command.sender().send(ToGuest::Stdin(piece.to_vec()))?;
            room -= piece.len();
        }
        let refused = |how: String, said: &[u8]| LoadError::Refused {
            name: name.clone(),
            how,
            said: String::from_utf8_lossy(said).trim_end().to_owned(),
        };
        match command.next_until(deadline)? {
            ToHost::Credit(bytes) => room += bytes as usize,
            ToHost::Stdout(bytes) | ToHost::Stderr(bytes) => {
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let kept = bytes.len().min(MAX_OUTPUT_BYTES.saturating_sub(said.len()));
                said.extend_from_slice(&bytes[..kept]);
                command.sender().send(ToGuest::Credit(length))?;
            }
            ToHost::Exit(ExitStatus::Code(0)) => {
                let file = sections_file(node);
                if let Err(error) = fs::write(&file, &said) {
                    let (file, node) = (file.display(), &node.name);
                    log::warn!(
                        "cannot write {file}: {error}; niclab cannot name the lines of {node}'s driver"
                    );
                }
                return Ok(());
            }
            ToHost::Exit(status) => return Err(refused(status.to_string(), &said)),
            ToHost::Refused(refusal) => return Err(refused(refusal.message, &said)),
            _ => {}
        }
    }
}
