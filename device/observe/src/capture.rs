//! Captures in the pcapng format, which Wireshark and `tshark` open.
//!
//! Each link is an interface, seen from its node: frames from the node to the link are outbound, frames from the link
//! to the node are inbound. A frame that a fault affected has a comment that names the fault. The capture also contains
//! dropped frames, with a comment that they never arrived.
//!
//! The last blocks have the numbers of captured and lost frames of each link. Frames are lost if they come faster than
//! the file can be written.
//!
//! The format: draft-ietf-opsawg-pcapng, sections 4.1 to 4.3 and 4.6. Time stamps are in units of
//! 10^-12 s, as model time is. Crates that write pcapng support nanoseconds at best, so this file writes its four kinds
//! of block itself.

use std::io::{self, Write};

use niclab_model::fabric::Delivery;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::time::Time;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_DESCRIPTION: u16 = 3;
const OPTION_SECTION_APPLICATION: u16 = 4;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_FLAGS: u16 = 2;
const OPTION_RECEIVED: u16 = 4;
const OPTION_DROPPED: u16 = 5;

/// Unit of time stamps, as a negative power of ten: picoseconds.
const PICOSECONDS: u8 = 12;

/// Direction of a frame on the link of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heading {
    /// To the node.
    ToNode,
    /// To the switch.
    ToSwitch,
}

/// Outcome of a frame on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// No fault affected it.
    #[default]
    Passed,
    /// It never reached the end of this link.
    Dropped,
    /// One bit was flipped.
    Corrupted {
        /// Index of the bit, counted from the lowest bit of the first byte.
        bit: u32,
    },
    /// It arrived twice; both copies have this outcome.
    Duplicated,
}

impl Fate {
    fn comment(self) -> Option<String> {
        match self {
            Self::Passed => None,
            Self::Dropped => Some("niclab: dropped on this link, never arrived".to_owned()),
            Self::Corrupted { bit } => {
                Some(format!("niclab: corrupted, bit {} of byte {} flipped", bit % 8, bit / 8))
            }
            Self::Duplicated => Some("niclab: duplicated by a fault".to_owned()),
        }
    }
}

/// Arrivals of a frame at the end of a link: time, bytes and outcome of each delivery. If the link dropped the frame,
/// the only arrival is the dropped frame at `at`.
pub fn arrivals<'a>(
    at: Time,
    frame: &'a SharedFrame,
    deliveries: &'a [Delivery],
) -> impl Iterator<Item = (Time, SharedFrame, Fate)> + 'a {
    let whole = if deliveries.len() > 1 { Fate::Duplicated } else { Fate::Passed };
    let dropped = deliveries.is_empty().then(|| (at, frame.clone(), Fate::Dropped));
    dropped.into_iter().chain(deliveries.iter().map(move |delivery| {
        let mut copy = frame.clone();
        let flipped = delivery.corrupt.map(|bit| {
            copy.flip(bit);
            Fate::Corrupted { bit }
        });
        (delivery.at, copy, flipped.unwrap_or(whole))
    }))
}

/// Counts of one link's frames.
#[derive(Clone, Copy, Debug, Default)]
struct Interface {
    written: u64,
    lost: u64,
}

/// A capture that is being written.
pub struct Capture<W: Write> {
    out: W,
    interfaces: Vec<Interface>,
    latest: Time,
}

impl<W: Write> Capture<W> {
    /// Begins a capture of links. Each link has the name of its node.
    ///
    /// # Errors Errors of `out`.
    pub fn new(mut out: W, links: &[String]) -> io::Result<Self> {
        let mut body = Vec::new();
        body.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        body.extend(1_u16.to_le_bytes());
        body.extend(0_u16.to_le_bytes());
        // The section is streamed, so its length is unknown.
        body.extend(u64::MAX.to_le_bytes());
        let application = concat!("niclab ", env!("CARGO_PKG_VERSION"));
        option(&mut body, OPTION_SECTION_APPLICATION, application.as_bytes());
        let clock = b"times are model time since the cluster was made, not the wall clock's";
        option(&mut body, OPTION_COMMENT, clock);
        option(&mut body, OPTION_END, &[]);
        block(&mut out, SECTION_HEADER, &body)?;
        for name in links {
            let mut body = Vec::new();
            body.extend(LINKTYPE_ETHERNET.to_le_bytes());
            body.extend([0; 2]);
            // No limit on the captured length of a frame.
            body.extend(0_u32.to_le_bytes());
            option(&mut body, OPTION_NAME, name.as_bytes());
            let description = format!("link of {name}; out: to the switch, in: to the node; model time");
            option(&mut body, OPTION_DESCRIPTION, description.as_bytes());
            option(&mut body, OPTION_TIME_RESOLUTION, &[PICOSECONDS]);
            option(&mut body, OPTION_END, &[]);
            block(&mut out, INTERFACE_DESCRIPTION, &body)?;
        }
        Ok(Self { out, interfaces: vec![Interface::default(); links.len()], latest: Time::ZERO })
    }

    /// Counts frames on link `link` that came too fast to be written; the file has their number.
    pub fn add_lost(&mut self, link: u32, frames: u64) {
        if let Some(interface) = self.interfaces.get_mut(link as usize) {
            interface.lost = interface.lost.saturating_add(frames);
        }
    }

    /// Adds a frame on link `link`, an index of the names given to [`Self::new`]. Ignores frames of other links.
    ///
    /// # Errors Errors of the writer.
    pub fn frame(
        &mut self,
        link: u32,
        heading: Heading,
        at: Time,
        bytes: &[u8],
        fate: Fate,
    ) -> io::Result<()> {
        let Some(interface) = self.interfaces.get_mut(link as usize) else { return Ok(()) };
        let Ok(length) = u32::try_from(bytes.len()) else { return Ok(()) };
        interface.written += 1;
        self.latest = self.latest.max(at);
        let mut body = Vec::with_capacity(bytes.len() + 128);
        body.extend(link.to_le_bytes());
        time_stamp(&mut body, at);
        body.extend(length.to_le_bytes());
        body.extend(length.to_le_bytes());
        body.extend(bytes);
        pad(&mut body);
        let flags: u32 = match heading {
            Heading::ToNode => 1,
            Heading::ToSwitch => 2,
        };
        option(&mut body, OPTION_FLAGS, &flags.to_le_bytes());
        if let Some(comment) = fate.comment() {
            option(&mut body, OPTION_COMMENT, comment.as_bytes());
        }
        option(&mut body, OPTION_END, &[]);
        block(&mut self.out, ENHANCED_PACKET, &body)
    }

    /// Flushes the writer.
    ///
    /// # Errors Errors of the writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes the counts of each link, flushes the writer and returns it.
    ///
    /// # Errors Errors of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        for (link, interface) in (0_u32..).zip(&self.interfaces) {
            let mut body = Vec::new();
            body.extend(link.to_le_bytes());
            time_stamp(&mut body, self.latest);
            option(&mut body, OPTION_RECEIVED, &(interface.written + interface.lost).to_le_bytes());
            option(&mut body, OPTION_DROPPED, &interface.lost.to_le_bytes());
            option(&mut body, OPTION_END, &[]);
            block(&mut self.out, INTERFACE_STATISTICS, &body)?;
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Writes a block: type, length, body, and the length again.
fn block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let length = body.len() as u32 + 12;
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(body)?;
    out.write_all(&length.to_le_bytes())
}

/// Adds a time stamp, upper half first.
fn time_stamp(body: &mut Vec<u8>, at: Time) {
    let at_ps = at.as_ps();
    body.extend(((at_ps >> 32) as u32).to_le_bytes());
    body.extend((at_ps as u32).to_le_bytes());
}

/// Adds an option. Truncates a value that exceeds the maximum length of options.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = value.get(..u16::MAX.into()).unwrap_or(value);
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

/// Pads to a multiple of four bytes, as pcapng requires of all options and bodies.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks of a file: type and body.
    fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
        let mut found = Vec::new();
        while !file.is_empty() {
            let length = word(&file[4..]) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(&file[length - 4..]) as usize, length);
            found.push((word(file), &file[8..length - 4]));
            file = &file[length..];
        }
        found
    }

    #[test]
    fn frames_keep_bytes_times_directions_and_outcomes() {
        let links = ["node0".to_owned(), "node1".to_owned()];
        let mut capture = Capture::new(Vec::new(), &links).unwrap();
        let at = Time::from_ps(0x1_2345_6789_abcd);
        capture.frame(1, Heading::ToNode, at, &[7; 61], Fate::Corrupted { bit: 17 }).unwrap();
        capture.frame(0, Heading::ToSwitch, at, &[8; 64], Fate::Passed).unwrap();
        capture.frame(2, Heading::ToSwitch, at, &[8; 64], Fate::Passed).unwrap();
        capture.add_lost(1, 3);
        let file = capture.finish().unwrap();
        let blocks = blocks(&file);
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION_HEADER, 1, 1, ENHANCED_PACKET, ENHANCED_PACKET, 5, 5]);
        let statistics = blocks[6].1;
        assert_eq!(statistics[..12], *b"\x01\0\0\0\x45\x23\x01\0\xcd\xab\x89\x67");
        assert_eq!(statistics[12..36], *b"\x04\0\x08\0\x04\0\0\0\0\0\0\0\x05\0\x08\0\x03\0\0\0\0\0\0\0");
        assert!(blocks[2].1.windows(5).any(|name| name == b"node1"));
        assert!(blocks[2].1.windows(5).any(|option| option == [9, 0, 1, 0, PICOSECONDS]));
        let body = blocks[3].1;
        assert_eq!(body[..20], *b"\x01\0\0\0\x45\x23\x01\0\xcd\xab\x89\x67\x3d\0\0\0\x3d\0\0\0");
        assert_eq!(body[20..81], [7; 61]);
        assert_eq!(body[84..92], [2, 0, 4, 0, 1, 0, 0, 0]);
        assert!(body.windows(23).any(|text| text == b"bit 1 of byte 2 flipped"));
        assert_eq!(blocks[4].1[84..], [2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }
}
