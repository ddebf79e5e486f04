//! What a card owes and may not forget: a place of a queue that was promised, a reply, a descriptor that was taken.
//!
//! An obligation is a value that cannot be copied. Whoever has it hands it on, fulfils it, or says that it is void
//! because the one to whom it was owed is gone. In a build with debug assertions one that is dropped otherwise is a
//! panic that names it. In others nothing happens then: a guest that finds a way to make the card forget harms itself
//! alone.

/// That something is owed.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what is owed is fulfilled or void, and never forgotten"]
pub struct Obligation {
    #[cfg(debug_assertions)]
    what: &'static str,
}

impl Obligation {
    /// Owes `what`, in the words of a sentence: "an event that was promised".
    #[inline]
    pub const fn new(what: &'static str) -> Self {
        #[cfg(not(debug_assertions))]
        let _ = what;
        Self {
            #[cfg(debug_assertions)]
            what,
        }
    }

    /// What was owed is done.
    #[inline]
    pub const fn fulfil(self) {
        core::mem::forget(self);
    }

    /// Nobody is left to whom it is owed.
    #[inline]
    pub const fn void(self) {
        core::mem::forget(self);
    }
}

#[cfg(debug_assertions)]
impl Drop for Obligation {
    fn drop(&mut self) {
        debug_assert!(false, "{} was forgotten: it must be fulfilled, or void", self.what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fulfilled_or_void_is_over() {
        Obligation::new("a thing").fulfil();
        Obligation::new("a thing").void();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a thing was forgotten")]
    fn what_is_forgotten_is_seen_where_assertions_are_on() {
        drop(Obligation::new("a thing"));
    }
}
