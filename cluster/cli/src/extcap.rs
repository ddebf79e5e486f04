//! The arguments of `niclab extcap`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `extcap`: those of Wireshark's extcap protocol.
#[derive(Debug, Args)]
pub struct ExtcapArgs {
    /// List the interfaces.
    #[arg(long)]
    pub extcap_interfaces: bool,
    /// The version of the calling Wireshark.
    #[arg(long, value_name = "VERSION")]
    pub extcap_version: Option<String>,
    /// The interface for the other options.
    #[arg(long, value_name = "INTERFACE")]
    pub extcap_interface: Option<String>,
    /// List its link types.
    #[arg(long)]
    pub extcap_dlts: bool,
    /// List its options.
    #[arg(long)]
    pub extcap_config: bool,
    /// A capture filter. None is supported.
    #[arg(long, value_name = "FILTER")]
    pub extcap_capture_filter: Option<String>,
    /// Capture until the FIFO is closed or a signal arrives.
    #[arg(long)]
    pub capture: bool,
    /// The FIFO to write the capture to.
    #[arg(long, value_name = "FIFO")]
    pub fifo: Option<PathBuf>,
    /// The link to capture; `*`: all.
    #[arg(long, value_name = "LINK", default_value = "*")]
    pub link: String,
}
