//! The debugging tools of a guest kernel, each with its part of the configuration.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A debugging tool that a guest kernel can be built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DebugTool {
    /// Memory that is used out of bounds or after it was freed.
    Kasan,
    /// Two threads at one word, one of which writes.
    Kcsan,
    /// Locks taken in orders that can wait for one another, and sleep where none may be.
    Lockdep,
    /// Memory that nobody can free any more.
    Kmemleak,
    /// What C leaves undefined: shifts, indices, values of enumerations.
    Ubsan,
    /// Mappings for the device.
    DmaDebug,
    /// Which places of a module a program reaches.
    Kcov,
    /// Which lines of a module were carried out, and how often.
    Gcov,
    /// Lists, counted references, objects that live, and memory of the allocator.
    Memory,
}

impl DebugTool {
    /// All of them.
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

    /// Those of a kernel of which nothing else is said: all but KCSAN, which goes with no KASAN.
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

    /// What users call it.
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

    /// The one of this name.
    ///
    /// # Errors
    /// With all names, if there is none.
    pub fn named(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|tool| tool.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no tool is called `{name}`; there are {names}")
        })
    }

    /// Its part of the kernel's configuration.
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
    fn each_has_a_name_and_a_configuration_of_its_own() {
        for tool in DebugTool::ALL {
            assert_eq!(DebugTool::named(tool.name()), Ok(tool));
            assert!(tool.config().contains("=y\n"), "{tool}");
            let json = serde_json::to_string(&tool).unwrap();
            assert_eq!(json, format!("\"{tool}\""), "one name everywhere");
        }
        assert!(DebugTool::named("kasn").unwrap_err().contains("kasan, kcsan"));
        let usual: Vec<DebugTool> =
            DebugTool::ALL.into_iter().filter(|one| *one != DebugTool::Kcsan).collect();
        assert_eq!(usual, DebugTool::USUAL);
    }
}
