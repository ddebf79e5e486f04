//! The assemblies that cards are built with; their sources are in `firmware/inic/assemblies`.

use crate::assembly::Assembly;

/// An image that is part of the build.
#[derive(Clone, Copy, Debug)]
pub struct Bundled {
    /// Its name.
    pub name: &'static str,
    /// The image.
    pub image: &'static [u8],
}

impl Bundled {
    /// The image with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        BUNDLED.iter().find(|bundled| bundled.name == name)
    }

    /// Its assembly. A test checks that all images are valid.
    #[must_use]
    pub fn assembly(&self) -> Assembly {
        Assembly::decode(self.image).unwrap_or_default()
    }
}

/// An image, by the name of its file.
macro_rules! bundled {
    ($name:literal) => {
        Bundled { name: $name, image: include_bytes!(concat!("../../assemblies/", $name, ".inic")) }
    };
}

/// All bundled images: the paper's four configurations (figure 5); the one that it measured (section 5.2); and two
/// that it announces: a buffer for early packets (section 4.7), and rate control (section 4.9).
pub static BUNDLED: [Bundled; 7] = [
    bundled!("conf1"),
    bundled!("conf2"),
    bundled!("conf3"),
    bundled!("conf4"),
    bundled!("unreliable_ordered"),
    bundled!("selective_repeat"),
    bundled!("rate_controlled"),
];
