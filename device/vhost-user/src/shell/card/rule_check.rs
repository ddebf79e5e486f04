//! The rules of a card's driver, while they are checked, and what it broke before.

use crate::shell::pages::Pages;
use crate::shell::rules::Rules;
use crate::shell::rules::book::Book;

/// Checks a driver and its programs against the manual's rules, or does not.
#[derive(Default)]
pub struct RuleCheck {
    /// The check, while it is on.
    pub rules: Option<Box<Rules>>,
    /// What was broken when the check was turned off.
    ended: Option<Book>,
}

impl RuleCheck {
    /// Turns the check on with an empty book, or off. What was broken before is kept. `open` says which ports are open,
    /// and `features` are those of the configuration space.
    pub fn set(&mut self, new: Option<Book>, pages: &Pages, open: &[bool], is_running: bool, features: u64) {
        if new.is_some() == self.rules.is_some() {
            return;
        }
        match (new, self.rules.take()) {
            (Some(new), _) => {
                let book = self.ended.take().unwrap_or(new);
                self.rules = Some(Box::new(Rules::begin(book, pages, open, is_running, features)));
            }
            (None, rules) => self.ended = rules.map(|rules| rules.book),
        }
    }

    /// The broken rules, if the check is or was on.
    pub fn book(&self) -> Option<&Book> {
        self.rules.as_ref().map(|rules| &rules.book).or(self.ended.as_ref())
    }

    /// Records where the guest was when it broke a rule.
    pub fn place(&mut self, number: u64, guest_at: &str) {
        let book = self.rules.as_mut().map(|rules| &mut rules.book).or(self.ended.as_mut());
        if let Some(book) = book {
            book.place(number, guest_at);
        }
    }
}
