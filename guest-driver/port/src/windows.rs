//! The windows of a BAR, from the table in its information page.

use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::AtomicU64;

use niclab_abi::bar::{
    ACCESS_READ_ONLY, ACCESS_READ_WRITE, CACHING_UNCACHED, CACHING_WRITE_BACK, INFO_WINDOWS_OFFSET, InfoPage,
    MAX_BAR_PAGES, MAX_WINDOWS, Window,
};
use niclab_abi::{FromBytes, from_words};
use thiserror::Error;

use crate::atomic::load;

const WORD_BYTES: usize = size_of::<u64>();

/// The table of windows is invalid, or lacks a window. Errors name windows by their number in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WindowError {
    /// The page ends before the table does.
    #[error("the information page is too short: build device and program from the same source")]
    Short,
    /// More pages than a BAR can have.
    #[error("the BAR has {0} pages, more than the maximum of {MAX_BAR_PAGES}")]
    Pages(u32),
    /// More rows than the table has room for.
    #[error("the BAR has {0} windows, more than the maximum of {MAX_WINDOWS}")]
    Count(u32),
    /// It is empty, on the information page, beyond the BAR, or its ports' parts overlap.
    #[error("window {0} is not inside the BAR")]
    Bounds(u32),
    /// Two windows share a page, or have the same kind.
    #[error("windows {0} and {1} overlap or have the same kind")]
    Same(u32, u32),
    /// An unknown `CACHING_` or `ACCESS_` value.
    #[error("window {0} has an unknown caching or access attribute")]
    Unknown(u32),
    /// There is no window of this kind, or none for this port.
    #[error("no window of kind {kind} for port {port}")]
    Missing {
        /// The requested kind.
        kind: u32,
        /// The port.
        port: u32,
    },
}

/// The location of a window, or of a port's part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowLocation {
    /// The window's number in the table.
    pub number: u32,
    /// Pages of the BAR.
    pub pages: Range<u32>,
    /// Whether programs may write there.
    pub is_writable: bool,
}

/// The windows of a BAR, validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    rows: Vec<Window>,
    ports: u32,
}

impl Windows {
    /// Reads the table of an information page whose magic word is present. Reads it once: the device may change it at
    /// any time.
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn read(page: &[AtomicU64]) -> Result<Self, WindowError> {
        let info: InfoPage = read(page, 0).ok_or(WindowError::Short)?;
        if info.pages > MAX_BAR_PAGES {
            return Err(WindowError::Pages(info.pages));
        }
        if info.windows > MAX_WINDOWS {
            return Err(WindowError::Count(info.windows));
        }
        let first = INFO_WINDOWS_OFFSET as usize;
        let row = |number: u32| read(page, first + number as usize * Window::BYTES);
        let rows: Option<Vec<Window>> = (0..info.windows).map(row).collect();
        let rows = rows.ok_or(WindowError::Short)?;
        check(&rows, &info)?;
        Ok(Self { rows, ports: info.ports })
    }

    /// The location of the window of this kind, or of this port's part of it.
    ///
    /// # Errors
    /// [`WindowError::Missing`].
    pub fn location(&self, kind: u32, port: u32) -> Result<WindowLocation, WindowError> {
        let found = (0..).zip(&self.rows).find(|(_, row)| row.kind == kind && port < self.ports);
        let (number, row) = found.ok_or(WindowError::Missing { kind, port })?;
        // Inside the BAR, as `check` has verified.
        let first = row.first_page + row.stride * port;
        let is_writable = row.access == ACCESS_READ_WRITE;
        Ok(WindowLocation { number, pages: first..first + row.pages, is_writable })
    }
}

/// Reads a structure at this byte of the page.
fn read<T: FromBytes>(page: &[AtomicU64], offset: usize) -> Option<T> {
    let mut words = [0; InfoPage::BYTES / WORD_BYTES];
    let places = page.get(offset / WORD_BYTES..)?.get(..T::BYTES / WORD_BYTES)?;
    words.iter_mut().zip(places).for_each(|(word, place)| *word = load(place));
    from_words(&words)
}

fn check(rows: &[Window], info: &InfoPage) -> Result<(), WindowError> {
    let mut before: Vec<(u32, u32, Range<u64>)> = Vec::new();
    for (number, row) in (0..).zip(rows) {
        let pages = span(row, info).ok_or(WindowError::Bounds(number))?;
        let is_known = (CACHING_UNCACHED..=CACHING_WRITE_BACK).contains(&row.caching)
            && (ACCESS_READ_ONLY..=ACCESS_READ_WRITE).contains(&row.access);
        if !is_known {
            return Err(WindowError::Unknown(number));
        }
        let clashes = |(_, kind, other): &&(u32, u32, Range<u64>)| {
            *kind == row.kind || (pages.start < other.end && other.start < pages.end)
        };
        if let Some((other, ..)) = before.iter().find(clashes) {
            return Err(WindowError::Same(*other, number));
        }
        before.push((number, row.kind, pages));
    }
    Ok(())
}

/// All pages of a window, from its first part to its last. `None` unless they are in the BAR after its first page.
fn span(row: &Window, info: &InfoPage) -> Option<Range<u64>> {
    let [first, pages, stride] = [row.first_page, row.pages, row.stride].map(u64::from);
    // Below 2^64: a product of two 32-bit numbers plus two 32-bit numbers.
    let end = first + stride * u64::from(info.ports.saturating_sub(1)) + pages;
    let is_sound = first > 0 && pages > 0 && (stride == 0 || stride >= pages) && end <= info.pages.into();
    is_sound.then_some(first..end)
}

#[cfg(test)]
mod tests {
    use niclab_abi::bar::{CACHING_WRITE_COMBINING, WINDOW_COMPLETER, WINDOW_OF_MODEL, WINDOW_REQUESTER};
    use niclab_abi::to_words;
    use proptest::prelude::*;
    use std::vec;

    use super::*;

    const PAYLOAD: u32 = WINDOW_OF_MODEL;
    const COMMON: u32 = WINDOW_OF_MODEL + 1;

    fn info() -> InfoPage {
        InfoPage { pages: 64, ports: 8, windows: 4, ..InfoPage::default() }
    }

    /// Two pages of each port, a window of four pages for each, and a window of the card.
    fn rows() -> [Window; 4] {
        let row = |kind, first_page, pages, stride| {
            let (caching, access) = (CACHING_WRITE_COMBINING, ACCESS_READ_WRITE);
            Window { kind, caching, access, first_page, pages, stride }
        };
        [
            row(WINDOW_REQUESTER, 1, 1, 1),
            row(WINDOW_COMPLETER, 9, 1, 1),
            row(PAYLOAD, 17, 4, 4),
            Window { access: ACCESS_READ_ONLY, ..row(COMMON, 60, 3, 0) },
        ]
    }

    fn page(info: &InfoPage, rows: &[Window]) -> Vec<AtomicU64> {
        let mut words = vec![0; 512];
        let put = |words: &mut [u64], from: &[u64]| words[..from.len()].copy_from_slice(from);
        put(&mut words, &to_words::<9>(info));
        for (number, row) in rows.iter().enumerate() {
            put(&mut words[16 + 3 * number..], &to_words::<3>(row));
        }
        words.into_iter().map(|word| AtomicU64::new(word.to_le())).collect()
    }

    fn read_with(change: impl FnOnce(&mut InfoPage, &mut [Window; 4])) -> Result<Windows, WindowError> {
        let (mut info, mut rows) = (info(), rows());
        change(&mut info, &mut rows);
        Windows::read(&page(&info, &rows))
    }

    #[test]
    fn each_port_has_its_own_part() {
        let windows = read_with(|_, _| {}).unwrap();
        let location = |kind, port| {
            windows
                .location(kind, port)
                .map(|location| (location.number, location.pages, location.is_writable))
        };
        assert_eq!(location(WINDOW_REQUESTER, 0), Ok((0, 1..2, true)));
        assert_eq!(location(WINDOW_COMPLETER, 7), Ok((1, 16..17, true)));
        assert_eq!(location(PAYLOAD, 3), Ok((2, 29..33, true)));
        assert_eq!(
            (location(COMMON, 0), location(COMMON, 7)),
            (Ok((3, 60..63, false)), Ok((3, 60..63, false)))
        );
        assert_eq!(location(PAYLOAD, 8), Err(WindowError::Missing { kind: PAYLOAD, port: 8 }));
        assert_eq!(location(99, 0), Err(WindowError::Missing { kind: 99, port: 0 }));
    }

    #[test]
    fn a_hostile_table_is_refused() {
        type Change = fn(&mut InfoPage, &mut [Window; 4]);
        let cases: [(Change, WindowError); 15] = [
            (|info, _| info.pages = MAX_BAR_PAGES + 1, WindowError::Pages(MAX_BAR_PAGES + 1)),
            (|info, _| info.windows = 9, WindowError::Count(9)),
            (|info, _| info.windows = u32::MAX, WindowError::Count(u32::MAX)),
            (|info, _| info.ports = u32::MAX, WindowError::Bounds(0)),
            (|_, rows| rows[0].first_page = 0, WindowError::Bounds(0)),
            (|_, rows| rows[1].pages = 0, WindowError::Bounds(1)),
            (|_, rows| rows[2].stride = 3, WindowError::Bounds(2)),
            (|_, rows| rows[2].stride = u32::MAX, WindowError::Bounds(2)),
            (|_, rows| rows[3].first_page = 62, WindowError::Bounds(3)),
            (|_, rows| rows[3].pages = u32::MAX, WindowError::Bounds(3)),
            (|_, rows| rows[3].first_page = 48, WindowError::Same(2, 3)),
            (|_, rows| rows[1].first_page = 8, WindowError::Same(0, 1)),
            (|_, rows| rows[3].kind = PAYLOAD, WindowError::Same(2, 3)),
            (|_, rows| rows[2].caching = 4, WindowError::Unknown(2)),
            (|_, rows| rows[2].access = 0, WindowError::Unknown(2)),
        ];
        for (change, expected) in cases {
            assert_eq!(read_with(change), Err(expected));
        }
        let page = page(&info(), &rows());
        for words in [0, 8, 9, 16, 27] {
            assert_eq!(Windows::read(&page[..words]), Err(WindowError::Short));
        }
        assert!(Windows::read(&page[..28]).is_ok());
    }

    fn some_row() -> impl Strategy<Value = Window> {
        (0..30_u32, 1..6_u32, 0..6_u32, 0..99_u32).prop_map(|(first_page, pages, stride, kind)| Window {
            first_page,
            pages,
            stride,
            kind,
            ..rows()[0]
        })
    }

    proptest! {
        /// For any table: every accepted window is inside the BAR, and the ports' parts do not overlap.
        #[test]
        fn accepted_windows_are_in_the_bar_and_disjoint(
            rows in proptest::collection::vec(some_row(), 0..4),
            ports in 1..4_u32,
        ) {
            let info = InfoPage { pages: 32, ports, windows: rows.len() as u32, ..InfoPage::default() };
            let Ok(windows) = Windows::read(&page(&info, &rows)) else { return Ok(()) };
            let mut taken = std::collections::BTreeMap::from([(0, (u32::MAX, 0))]);
            for row in &rows {
                for port in 0..ports {
                    let location = windows.location(row.kind, port).unwrap();
                    let owner = (location.number, if row.stride == 0 { 0 } else { port });
                    for page in location.pages {
                        prop_assert!(page < 32);
                        prop_assert_eq!(*taken.entry(page).or_insert(owner), owner);
                    }
                }
            }
        }
    }
}
