//! Work that a card must complete: a reserved slot of a queue, a reply, a descriptor that it took.
//!
//! An obligation is a value that cannot be copied. Its owner passes it on, fulfils it, or voids it because its
//! beneficiary is gone. In a build with debug assertions, dropping it in any other way is a panic that names it. In
//! other builds nothing happens: a guest that makes the card forget an obligation harms only itself.

/// A promise of work that must be completed.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an obligation must be fulfilled or voided"]
pub struct Obligation {
    #[cfg(debug_assertions)]
    what: &'static str,
}

impl Obligation {
    /// Promises `what`, a noun phrase such as "an event that was promised".
    #[inline]
    pub const fn new(what: &'static str) -> Self {
        #[cfg(not(debug_assertions))]
        let _ = what;
        Self {
            #[cfg(debug_assertions)]
            what,
        }
    }

    /// The work is complete.
    #[inline]
    pub const fn fulfil(self) {
        core::mem::forget(self);
    }

    /// The beneficiary is gone.
    #[inline]
    pub const fn void(self) {
        core::mem::forget(self);
    }
}

#[cfg(debug_assertions)]
impl Drop for Obligation {
    fn drop(&mut self) {
        debug_assert!(false, "{} was forgotten: it must be fulfilled or voided", self.what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fulfilled_or_voided_obligation_may_be_dropped() {
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
