//! The debugging tools of a guest kernel, each with its part of the configuration.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A debugging tool that a guest kernel can be built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DebugTool {
    /// Use of memory out of bounds or after it was freed.
    Kasan,
    /// Data races: two threads access a word, and one of them writes.
    Kcsan,
    /// Lock orders that can deadlock, and sleeping in atomic context.
    Lockdep,
    /// Memory leaks.
    Kmemleak,
    /// Undefined behaviour of C: shifts, indices, values of enumerations.
    Ubsan,
    /// DMA mappings for the device.
    DmaDebug,
    /// Which code of a module a program reaches.
    Kcov,
    /// Executed lines of a module, with counts.
    Gcov,
    /// Lists, reference counts, object lifetimes, and the allocator's memory.
    Memory,
}

impl DebugTool {
    /// All tools.
    pub const ALL: [Self; 9] = [
        Self::Kasan,
        Self::Kcsan,
        Self::Lockdep,
        Self::Kmemleak,
        Self::Ubsan,
        Self::DmaDebug,
        Self::Kcov,
        Self::Gcov,
        Self::Memory,
    ];

    /// The default: all tools but KCSAN, which excludes KASAN.
    pub const USUAL: [Self; 8] = [
        Self::Kasan,
        Self::Lockdep,
        Self::Kmemleak,
        Self::Ubsan,
        Self::DmaDebug,
        Self::Kcov,
        Self::Gcov,
        Self::Memory,
    ];

    /// The name that users write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kasan => "kasan",
            Self::Kcsan => "kcsan",
            Self::Lockdep => "lockdep",
            Self::Kmemleak => "kmemleak",
            Self::Ubsan => "ubsan",
            Self::DmaDebug => "dma-debug",
            Self::Kcov => "kcov",
            Self::Gcov => "gcov",
            Self::Memory => "memory",
        }
    }

    /// The tool of this name.
    ///
    /// # Errors
    /// A message with all names, if there is none.
    pub fn named(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|tool| tool.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no tool `{name}`; the tools are {names}")
        })
    }

    /// The tool's part of the kernel configuration.
    pub(super) const fn config(self) -> &'static str {
        match self {
            Self::Kasan => include_str!("../../kernel/kasan.config"),
            Self::Kcsan => include_str!("../../kernel/kcsan.config"),
            Self::Lockdep => include_str!("../../kernel/lockdep.config"),
            Self::Kmemleak => include_str!("../../kernel/kmemleak.config"),
            Self::Ubsan => include_str!("../../kernel/ubsan.config"),
            Self::DmaDebug => include_str!("../../kernel/dma-debug.config"),
            Self::Kcov => include_str!("../../kernel/kcov.config"),
            Self::Gcov => include_str!("../../kernel/gcov.config"),
            Self::Memory => include_str!("../../kernel/memory.config"),
        }
    }
}

impl fmt::Display for DebugTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_has_its_own_name_and_configuration() {
        for tool in DebugTool::ALL {
            assert_eq!(DebugTool::named(tool.name()), Ok(tool));
            assert!(tool.config().contains("=y\n"), "{tool}");
            let json = serde_json::to_string(&tool).unwrap();
            assert_eq!(json, format!("\"{tool}\""), "the JSON form is the name");
        }
        assert!(DebugTool::named("kasn").unwrap_err().contains("kasan, kcsan"));
        let usual: Vec<DebugTool> =
            DebugTool::ALL.into_iter().filter(|one| *one != DebugTool::Kcsan).collect();
        assert_eq!(usual, DebugTool::USUAL);
    }
}
