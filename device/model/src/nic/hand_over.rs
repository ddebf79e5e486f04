//! A card takes another program while its guests run: what is under way ends first, by the program that began it.
//!
//! Where several cards take one together, each [begins](HandOver::Begin), and whoever drives them waits until every
//! card [is drained](Progress::Drained) and no frame of theirs is on the network; then all [switch](HandOver::Switch).

use alloc::string::String;

use thiserror::Error;

/// What a card is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver<'a> {
    /// Take this program, once what is under way has ended: from now on the card begins nothing new. It switches when
    /// it is told to, or once it is drained by itself.
    Begin {
        /// The program, as the model's own tools write it. Empty: the one that the card was made with.
        image: &'a [u8],
        /// When it switches.
        switch: Switch,
    },
    /// Switch: all others are drained, too. A card that does not wait for this word does nothing.
    Switch,
    /// Go on with the program before: another card does not take this one. A card that does not wait for word does
    /// nothing.
    Cancel,
}

/// When a card that is drained switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// At once: it is the only one.
    Drained,
    /// When it is told to. Cards that take a program together have one epoch, greater than any of theirs before.
    Told {
        /// The epoch.
        epoch: u16,
    },
}

/// How far a card has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// It takes no other program.
    #[default]
    Runs,
    /// It has something under way that the program before began.
    Drains,
    /// It has not, and waits for the word.
    Drained,
    /// It is being programmed.
    Switches,
}

/// A card does not take a program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HandOverError {
    /// No card of this model takes any.
    #[error("cards of this model take no other program while they run")]
    Fixed,
    /// It is taking one already.
    #[error("the card is taking another program already; wait until it runs")]
    Busy,
    /// These bytes are none, or none for this card.
    #[error("{0}")]
    Image(String),
}
