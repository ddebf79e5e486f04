//! Windows: parts of the BAR after the information page, which a model's descriptor declares.
//!
//! Shells lay the BAR out by this declaration, and pass the layout to the driver ([`niclab_abi::bar::Window`]). Driver
//! and library read that table, so a new window needs no code in either.

use alloc::vec::Vec;

use niclab_abi::bar::{
    self, ACCESS_READ_ONLY, ACCESS_READ_WRITE, CACHING_UNCACHED, CACHING_WRITE_BACK, CACHING_WRITE_COMBINING,
    MAX_BAR_PAGES, MAX_WINDOWS, WINDOW_COMPLETER, WINDOW_OF_MODEL, WINDOW_REQUESTER,
};
use thiserror::Error;

/// A window of the BAR, as a model declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The name in sentences.
    pub name: &'static str,
    /// Its purpose, which programs see: a `WINDOW_` of [`niclab_abi::bar`], or a number from [`WINDOW_OF_MODEL`] on by
    /// which the model's own library finds it. Unique among the windows of a model.
    pub kind: u32,
    /// Pages of each owner.
    pub pages: u32,
    /// Who owns a copy of it.
    pub owner: Owner,
    /// How a host maps it.
    pub caching: Caching,
    /// What programs may do there.
    pub access: Access,
}

/// Who owns a copy of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Each port: only the program that opened the port can access it. The shell zeroes it when the port is opened.
    Port,
    /// The card: every program with a port can access it. The model defines its content.
    Card,
}

/// How a host maps a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// For registers: each store reaches the device alone.
    Uncached,
    /// For data written in bursts.
    WriteCombining,
    /// Ordinary memory.
    WriteBack,
}

/// What programs may do in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Programs read what the device writes.
    ReadOnly,
    /// Programs read and write.
    ReadWrite,
}

/// A port's requester page, which is write-combining.
pub const REQUESTER: Window = Window {
    name: "requester page",
    kind: WINDOW_REQUESTER,
    pages: 1,
    owner: Owner::Port,
    caching: Caching::WriteCombining,
    access: Access::ReadWrite,
};

/// A port's completer page.
pub const COMPLETER: Window = Window { name: "completer page", kind: WINDOW_COMPLETER, ..REQUESTER };

/// All windows of a card that hosts control by slots and registers alone.
pub const PAGES_OF_PORTS: &[Window] = &[REQUESTER, COMPLETER];

/// Why a BAR layout is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The information page has no room for the table.
    #[error(
        "the model declares {0} windows, but the information page has room for {MAX_WINDOWS}; declare fewer"
    )]
    Windows(usize),
    /// The BAR would be too large for any guest.
    #[error("the {0} does not fit into the {MAX_BAR_PAGES} pages of a BAR; declare fewer pages")]
    Pages(&'static str),
    /// The window has no pages.
    #[error("the {0} has no pages; declare at least one")]
    Empty(&'static str),
    /// Programs could not tell the windows apart.
    #[error("the {0} and the {1} have the same kind; give each its own kind")]
    Kind(&'static str, &'static str),
    /// The kind is neither a port's page nor free for models.
    #[error("the {0} has kind {1}, which is reserved; use {WINDOW_OF_MODEL} or higher")]
    ForeignKind(&'static str, u32),
    /// The host's half of a port needs this window.
    #[error("the model declares no usable {0}, which ports need; declare it as the library defines it")]
    Missing(&'static str),
}

/// The layout of a BAR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The table of the information page: one row for each window, in the order of declaration.
    pub table: Vec<bar::Window>,
    /// Pages of the BAR, a power of two.
    pub pages: u32,
}

/// Lays out the BAR of a card with `ports` ports: the information page, then one window after the other. The pages of
/// all ports in a window are contiguous, so that each window is one range with a single caching mode.
///
/// # Errors
/// [`LayoutError`] names the window.
pub fn lay_out(windows: &[Window], ports: u32) -> Result<Layout, LayoutError> {
    if windows.len() > MAX_WINDOWS as usize {
        return Err(LayoutError::Windows(windows.len()));
    }
    check_kinds(windows)?;
    let mut next_page = 1;
    let mut table = Vec::with_capacity(windows.len());
    for window in windows {
        let parts = match window.owner {
            Owner::Port => ports,
            Owner::Card => 1,
        };
        let Some(pages) = window.pages.checked_mul(parts) else {
            return Err(LayoutError::Pages(window.name));
        };
        if pages == 0 {
            return Err(LayoutError::Empty(window.name));
        }
        table.push(window.row(next_page));
        next_page = pages.saturating_add(next_page);
        if next_page > MAX_BAR_PAGES {
            return Err(LayoutError::Pages(window.name));
        }
    }
    Ok(Layout { table, pages: next_page.next_power_of_two() })
}

fn check_kinds(windows: &[Window]) -> Result<(), LayoutError> {
    for (window, before) in windows.iter().zip(0..) {
        if let Some(other) = windows.iter().take(before).find(|other| other.kind == window.kind) {
            return Err(LayoutError::Kind(other.name, window.name));
        }
        if window.kind < WINDOW_OF_MODEL && !PAGES_OF_PORTS.iter().any(|page| page.kind == window.kind) {
            return Err(LayoutError::ForeignKind(window.name, window.kind));
        }
    }
    // The model chooses name and caching of these windows.
    let is = |page: &Window, window: &Window| {
        Window { name: page.name, caching: page.caching, ..*window } == *page
    };
    match PAGES_OF_PORTS.iter().find(|page| !windows.iter().any(|window| is(page, window))) {
        Some(page) => Err(LayoutError::Missing(page.name)),
        None => Ok(()),
    }
}

impl Window {
    /// The window's row in the table that programs read.
    const fn row(&self, first_page: u32) -> bar::Window {
        bar::Window {
            kind: self.kind,
            caching: match self.caching {
                Caching::Uncached => CACHING_UNCACHED,
                Caching::WriteCombining => CACHING_WRITE_COMBINING,
                Caching::WriteBack => CACHING_WRITE_BACK,
            },
            access: match self.access {
                Access::ReadOnly => ACCESS_READ_ONLY,
                Access::ReadWrite => ACCESS_READ_WRITE,
            },
            first_page,
            pages: self.pages,
            stride: match self.owner {
                Owner::Port => self.pages,
                Owner::Card => 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    const PAYLOAD: Window = Window { name: "payload", kind: WINDOW_OF_MODEL, pages: 4, ..REQUESTER };

    #[test]
    fn the_usual_pages_are_all_requesters_then_all_completers() {
        let Layout { table, pages } = lay_out(PAGES_OF_PORTS, 8).unwrap();
        let places: Vec<_> =
            table.iter().map(|row| (row.kind, row.first_page, row.pages, row.stride)).collect();
        assert_eq!(places, [(WINDOW_REQUESTER, 1, 1, 1), (WINDOW_COMPLETER, 9, 1, 1)]);
        assert_eq!(pages, 32);
    }

    #[test]
    fn invalid_layouts_name_the_window_and_the_error() {
        let with = |window| lay_out(&[REQUESTER, COMPLETER, window], 8).map(drop);
        assert_eq!(with(PAYLOAD), Ok(()));
        assert_eq!(with(Window { pages: 0, ..PAYLOAD }), Err(LayoutError::Empty("payload")));
        assert_eq!(with(Window { pages: 512, ..PAYLOAD }), Err(LayoutError::Pages("payload")));
        assert_eq!(with(Window { pages: u32::MAX, ..PAYLOAD }), Err(LayoutError::Pages("payload")));
        let of_card = Window { pages: u32::MAX, owner: Owner::Card, ..PAYLOAD };
        assert_eq!(with(of_card), Err(LayoutError::Pages("payload")));
        let second = Window { kind: WINDOW_COMPLETER, ..PAYLOAD };
        assert_eq!(with(second), Err(LayoutError::Kind("completer page", "payload")));
        assert_eq!(with(Window { kind: 3, ..PAYLOAD }), Err(LayoutError::ForeignKind("payload", 3)));
        for wrong in [
            Window { pages: 2, ..REQUESTER },
            Window { owner: Owner::Card, ..REQUESTER },
            Window { access: Access::ReadOnly, ..REQUESTER },
            PAYLOAD,
        ] {
            assert!(lay_out(&[wrong, COMPLETER], 8).is_err(), "{wrong:?}");
        }
        assert_eq!(lay_out(&[REQUESTER], 8), Err(LayoutError::Missing("completer page")));
        let nine = (0..7).map(|kind| Window { kind: WINDOW_OF_MODEL + kind, ..PAYLOAD });
        let nine: Vec<_> = [REQUESTER, COMPLETER].into_iter().chain(nine).collect();
        assert_eq!(lay_out(&nine, 8), Err(LayoutError::Windows(9)));
    }

    fn some_window() -> impl Strategy<Value = Window> {
        let owner = prop_oneof![Just(Owner::Port), Just(Owner::Card)];
        (1..600_u32, owner).prop_map(|(pages, owner)| Window { pages, owner, ..PAYLOAD })
    }

    proptest! {
        /// Each page belongs to at most one window, none is the information page, and all are inside the BAR.
        #[test]
        fn every_page_has_one_owner(
            more in proptest::collection::vec(some_window(), 0..7),
            first in 0..6_usize,
            ports in 1..64_u32,
        ) {
            let numbered = (WINDOW_OF_MODEL..).zip(more).map(|(kind, window)| Window { kind, ..window });
            let mut windows: Vec<_> = numbered.collect();
            windows.insert(first.min(windows.len()), COMPLETER);
            windows.insert(first.min(windows.len()), REQUESTER);
            let parts = |window: &Window| if window.owner == Owner::Port { ports } else { 1 };
            let wanted: u32 = 1 + windows.iter().map(|window| window.pages * parts(window)).sum::<u32>();
            let layout = lay_out(&windows, ports);
            prop_assert_eq!(layout.is_ok(), windows.len() <= MAX_WINDOWS as usize && wanted <= MAX_BAR_PAGES);
            let Ok(Layout { table, pages }) = layout else { return Ok(()) };
            prop_assert!(pages.is_power_of_two() && (wanted..2 * wanted).contains(&pages));
            prop_assert_eq!(table.len(), windows.len());
            let mut is_taken = vec![false; pages as usize];
            is_taken[0] = true;
            for (row, window) in table.iter().zip(&windows) {
                prop_assert_eq!((row.kind, row.pages), (window.kind, window.pages));
                prop_assert_eq!(row.stride == 0, window.owner == Owner::Card);
                for port in 0..parts(window) {
                    for page in 0..row.pages {
                        let place = (row.first_page + row.stride * port + page) as usize;
                        prop_assert!(!core::mem::replace(&mut is_taken[place], true), "page {} twice", place);
                    }
                }
            }
        }
    }
}
