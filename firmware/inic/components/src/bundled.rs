//! The assemblies that cards are built with: `firmware/inic/assemblies` has their sources.

use crate::assembly::Assembly;

/// An image that is at hand.
#[derive(Clone, Copy, Debug)]
pub struct Bundled {
    /// Its name.
    pub name: &'static str,
    /// The image.
    pub image: &'static [u8],
}

impl Bundled {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        BUNDLED.iter().find(|bundled| bundled.name == name)
    }

    /// What it is an image of. A test holds that all are images, and that they make sense.
    #[must_use]
    pub fn assembly(&self) -> Assembly {
        Assembly::decode(self.image).unwrap_or_default()
    }
}

/// An image by its name, which is its file's.
macro_rules! bundled {
    ($name:literal) => {
        Bundled { name: $name, image: include_bytes!(concat!("../../assemblies/", $name, ".inic")) }
    };
}

/// All of them: the paper's four configurations (figure 5); what it measured with (section 5.2); and what it announces:
/// a buffer for packets that are early (section 4.7), and rate control (section 4.9).
pub static BUNDLED: [Bundled; 7] = [
    bundled!("conf1"),
    bundled!("conf2"),
    bundled!("conf3"),
    bundled!("conf4"),
    bundled!("unreliable_ordered"),
    bundled!("selective_repeat"),
    bundled!("rate_controlled"),
];
