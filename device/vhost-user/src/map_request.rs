//! The request that has the BAR mapped, over the channel that the front end gave for requests of the device: sent and
//! forgotten, so that a front end which does not answer keeps nobody waiting.
//!
//! The `vhost` crate's own end of that channel waits for the answer without bound, holding its descriptor where nobody can
//! get at it. This one is looked at when it is readable.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recv, recvmsg, sendmsg};
use thiserror::Error;
use vhost::vhost_user::message::{BackendReq, FrontendReq, VhostUserHeaderFlag, VhostUserMMap};
use vm_memory::ByteValued;

/// Request, flags, length: three words of 32 bits (vhost-user specification, "Message Specification").
const HEADER_BYTES: usize = 12;

/// An answer is a header and one word of 64 bits.
const ANSWER_BYTES: usize = HEADER_BYTES + 8;

/// Version 1 of the protocol, in a header's flags.
const VERSION: u32 = 1;

/// Why the BAR does not get mapped.
#[derive(Debug, Error)]
pub enum MapError {
    /// The channel is gone, or full.
    #[error("the channel for requests of the device failed: {0}")]
    Channel(#[from] io::Error),
    /// Something else than an answer came.
    #[error("what came over the channel for requests of the device is no answer to a mapping request")]
    Answer,
    /// The front end answered with an error.
    #[error("it answered with error {0}")]
    Refused(u64),
}

impl From<Errno> for MapError {
    fn from(errno: Errno) -> Self {
        Self::Channel(errno.into())
    }
}

/// The channel, and the answers that are due on it.
#[derive(Debug)]
pub struct MapChannel {
    stream: UnixStream,
    /// Whether the front end answers requests at all.
    is_answered: bool,
    due: u32,
    answer: [u8; ANSWER_BYTES],
    answer_bytes: usize,
}

impl MapChannel {
    /// Requests over `stream`, which are answered if both sides agreed on `REPLY_ACK`.
    pub const fn new(stream: UnixStream, is_answered: bool) -> Self {
        Self { stream, is_answered, due: 0, answer: [0; ANSWER_BYTES], answer_bytes: 0 }
    }

    /// Asks for `file` to be mapped. True when an answer is due, false when none will come.
    ///
    /// # Errors
    /// [`MapError::Channel`].
    pub fn ask(&mut self, request: &VhostUserMMap, file: &File) -> Result<bool, MapError> {
        let wants_answer = if self.is_answered { VhostUserHeaderFlag::NEED_REPLY.bits() } else { 0 };
        let header: [u32; 3] =
            [BackendReq::SHMEM_MAP as u32, VERSION | wants_answer, size_of::<VhostUserMMap>() as u32];
        let header: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let parts = [IoSlice::new(&header), IoSlice::new(request.as_slice())];
        let descriptors = [file.as_raw_fd()];
        let passed = [ControlMessage::ScmRights(&descriptors)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let sent = sendmsg::<()>(self.stream.as_raw_fd(), &parts, &passed, flags, None)?;
        if sent != HEADER_BYTES + size_of::<VhostUserMMap>() {
            // A request cut in two would be finished by whatever is sent next.
            return Err(io::Error::from(io::ErrorKind::WriteZero).into());
        }
        self.due += u32::from(self.is_answered);
        Ok(self.is_answered)
    }

    /// Takes what has come. True when the answer to the latest request was among it, and no error.
    ///
    /// # Errors
    /// [`MapError`]. After [`MapError::Refused`] the channel is sound.
    pub fn take_answer(&mut self) -> Result<bool, MapError> {
        while self.due > 0 {
            let Some(room) = self.answer.get_mut(self.answer_bytes..) else { return Err(MapError::Answer) };
            match recv(self.stream.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(bytes) => self.answer_bytes += bytes,
                Err(Errno::EAGAIN) => return Ok(false),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            if self.answer_bytes == ANSWER_BYTES {
                self.answer_bytes = 0;
                self.due -= 1;
                let refusal = self.refusal().ok_or(MapError::Answer)?;
                if self.due == 0 && refusal != 0 {
                    return Err(MapError::Refused(refusal));
                }
                if self.due == 0 {
                    return Ok(true);
                }
            }
        }
        // Nothing is due: what comes now was never asked for, or the channel is closed.
        Ok(false)
    }

    /// Whether an answer is due.
    pub const fn is_due(&self) -> bool {
        self.due > 0
    }

    /// The number in a whole answer: zero is success.
    fn refusal(&self) -> Option<u64> {
        let word = |at: usize| self.answer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let flags = word(4)?;
        let is_answer = word(0)? == BackendReq::SHMEM_MAP as u32
            && flags & 3 == VERSION
            && flags & VhostUserHeaderFlag::REPLY.bits() != 0
            && word(8)? == 8;
        let value = self.answer.get(HEADER_BYTES..)?.try_into().ok().map(u64::from_ne_bytes)?;
        is_answer.then_some(value)
    }
}

impl AsFd for MapChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Waits for the front end's next message, and if that brings a channel for requests of the device, takes a descriptor of
/// it: the `vhost` crate gives it to nobody. The message stays where it is, for the crate to read.
///
/// # Errors
/// When the connection is gone.
pub fn peek_channel(connection: &UnixStream) -> io::Result<Option<UnixStream>> {
    let mut header = [0; HEADER_BYTES];
    loop {
        match recv(connection.as_raw_fd(), &mut header, MsgFlags::MSG_PEEK) {
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let [a, b, c, d, ..] = header;
    if u32::from_ne_bytes([a, b, c, d]) != FrontendReq::SET_BACKEND_REQ_FD as u32 {
        return Ok(None);
    }
    let mut room = nix::cmsg_space!([RawFd; vhost::vhost_user::message::MAX_ATTACHED_FD_ENTRIES]);
    let mut into = [io::IoSliceMut::new(&mut header)];
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(connection.as_raw_fd(), &mut into, Some(&mut room), flags)?;
    let mut descriptors = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            // SAFETY: the kernel has made these descriptors for this process just now, and nobody else knows them.
            descriptors.extend(raw.into_iter().map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }));
        }
    }
    // More than one, or one that is no socket, is what the crate refuses.
    let only = <[OwnedFd; 1]>::try_from(descriptors).ok();
    Ok(only.map(|[descriptor]| UnixStream::from(descriptor)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn request() -> VhostUserMMap {
        VhostUserMMap { len: 4096, flags: 1, ..VhostUserMMap::default() }
    }

    fn answer(value: u64) -> Vec<u8> {
        let header = [9_u32, VERSION | 4, 8].map(u32::to_ne_bytes).concat();
        [header, value.to_ne_bytes().to_vec()].concat()
    }

    fn channel() -> (MapChannel, UnixStream, File) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (MapChannel::new(ours, true), theirs, tempfile::tempfile().unwrap())
    }

    #[test]
    fn an_answer_may_come_late_and_in_pieces() {
        let (mut channel, mut theirs, file) = channel();
        assert!(channel.ask(&request(), &file).unwrap());
        assert!(!channel.take_answer().unwrap());
        let mut sent = [0; HEADER_BYTES + size_of::<VhostUserMMap>()];
        theirs.read_exact(&mut sent).unwrap();
        assert_eq!(sent[..12], [9_u32, 1 | 8, 40].map(u32::to_ne_bytes).concat());
        let bytes = answer(0);
        theirs.write_all(&bytes[..7]).unwrap();
        assert!(!channel.take_answer().unwrap());
        theirs.write_all(&bytes[7..]).unwrap();
        assert!(channel.take_answer().unwrap());
    }

    #[test]
    fn only_the_answer_to_the_latest_request_counts() {
        let (mut channel, mut theirs, file) = channel();
        channel.ask(&request(), &file).unwrap();
        channel.ask(&request(), &file).unwrap();
        theirs.write_all(&answer(17)).unwrap();
        assert!(!channel.take_answer().unwrap());
        theirs.write_all(&answer(0)).unwrap();
        assert!(channel.take_answer().unwrap());
        channel.ask(&request(), &file).unwrap();
        theirs.write_all(&answer(17)).unwrap();
        assert!(matches!(channel.take_answer(), Err(MapError::Refused(17))));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let (mut channel, mut theirs, file) = channel();
        channel.ask(&request(), &file).unwrap();
        theirs.write_all(&[0xff; ANSWER_BYTES]).unwrap();
        assert!(matches!(channel.take_answer(), Err(MapError::Answer)));
        drop(theirs);
        assert!(matches!(channel.ask(&request(), &file), Err(MapError::Channel(_))));
    }
}
