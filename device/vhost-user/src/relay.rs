//! Passes the messages of a front end to the vhost-user library, except those that turn queue pairs on and off.
//!
//! QEMU's virtio-net enables its first queue pair when the device is created, before a guest's driver acknowledges
//! features. The library (`vhost` 0.18, `BackendReqHandler::check_feature`) takes that for a protocol error and hangs
//! up. So the relay keeps SET_VRING_ENABLE to itself and sets [`Switches`]. It also removes
//! VHOST_USER_F_PROTOCOL_FEATURES from SET_FEATURES, so that the library serves each queue as soon as it is started.
//! The daemon then sends frames to receive queues that are on, and serves all transmit queues: a guest may turn a pair
//! off while its last frames wait there.
//!
//! The relay passes all other messages unchanged, up to [`MAX_BODY_BYTES`]. If one end hangs up, the relay closes the
//! other end.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use vhost::vhost_user::message::{FrontendReq, VhostUserVirtioFeatures};

use crate::attention::Attention;
use crate::ethernet::steering::Switches;
use crate::ethernet::{QUEUES_PER_PAIR, receive_queue};

/// Bytes of a message's header: request, flags and length of the body, 32 bits each (vhost-user specification, "Message
/// format").
const HEADER_BYTES: usize = 12;

/// Flags of a message: version 1, a reply, and a request that wants a reply (vhost-user specification, "Message
/// format").
const VERSION: u32 = 1;
const FLAG_REPLY: u32 = 1 << 2;
const FLAG_NEED_REPLY: u32 = 1 << 3;

/// Longest body: the library's limit (`MAX_MSG_SIZE`).
const MAX_BODY_BYTES: usize = 0x1000;

/// Maximum descriptors of a message: the kernel's limit (`SCM_MAX_FD`). With room for fewer, the kernel drops
/// descriptors that it has opened. (The attack: a front end sends them until the daemon has no descriptor left.)
const MAX_DESCRIPTORS: usize = 253;

/// The two ends, and the threads that pass messages until either end hangs up or this value is dropped.
pub struct Relay {
    ends: Arc<[UnixStream; 2]>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Relays between a front end and the library, in this order, on two threads that are named after `node`. When
    /// switches change, the relay wakes the thread of the queues, because a stopped device may start.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        node: usize,
        ends: [UnixStream; 2],
        switches: &Arc<Switches>,
        attention: &Arc<Attention>,
    ) -> io::Result<Self> {
        let mut relay = Self { ends: Arc::new(ends), threads: Vec::new() };
        let (switches, attention) = (Arc::clone(switches), Arc::clone(attention));
        relay.spawn(format!("relay-{node}"), move |front, library| {
            pass_requests(front, library, &switches, &attention)
        })?;
        relay.spawn(format!("replies-{node}"), pass_replies)?;
        Ok(relay)
    }

    fn spawn(
        &mut self,
        name: String,
        pass: impl FnOnce(&UnixStream, &UnixStream) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let ends = Arc::clone(&self.ends);
        let thread = Builder::new().name(name).spawn(move || {
            let [front, library] = &*ends;
            // After any error both ends see that the connection is over.
            let _ = pass(front, library);
            hang_up(&ends);
        });
        self.threads.push(thread?);
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        hang_up(&self.ends);
        for thread in self.threads.drain(..) {
            // The thread ends by itself now. A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn hang_up(ends: &[UnixStream; 2]) {
    // Fails only if an end has hung up already.
    ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
}

/// Passes the front end's messages until it hangs up.
fn pass_requests(
    mut front: &UnixStream,
    library: &UnixStream,
    switches: &Switches,
    attention: &Attention,
) -> io::Result<()> {
    loop {
        let mut message = Message::receive(front)?;
        let before = switches.on();
        if message.switch(switches) {
            message.send(library)?;
        } else if message.flags() & FLAG_NEED_REPLY != 0 {
            front.write_all(&message.success())?;
        }
        if switches.on() != before {
            attention.wake();
        }
    }
}

/// Passes the library's replies until it hangs up. No reply of the Ethernet function has descriptors.
fn pass_replies(mut front: &UnixStream, mut library: &UnixStream) -> io::Result<()> {
    let mut buffer = [0; HEADER_BYTES + MAX_BODY_BYTES];
    loop {
        let bytes = library.read(&mut buffer)?;
        if bytes == 0 {
            return Ok(());
        }
        front.write_all(buffer.get(..bytes).unwrap_or_default())?;
    }
}

/// One message of a front end, with its descriptors.
struct Message {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Message {
    /// Receives the next message. Its descriptors come with its header.
    fn receive(mut front: &UnixStream) -> io::Result<Self> {
        let mut header = [0; HEADER_BYTES];
        let (bytes, descriptors) = receive_with_descriptors(front, &mut header)?;
        front.read_exact(header.get_mut(bytes..).unwrap_or_default())?;
        let [.., a, b, c, d] = header;
        let body_bytes = u32::from_ne_bytes([a, b, c, d]) as usize;
        if body_bytes > MAX_BODY_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
        }
        let mut bytes = header.to_vec();
        bytes.resize(HEADER_BYTES + body_bytes, 0);
        front.read_exact(bytes.get_mut(HEADER_BYTES..).unwrap_or_default())?;
        Ok(Self { bytes, descriptors })
    }

    /// A number of the header.
    fn header(&self, index: usize) -> u32 {
        let number = self.bytes.get(4 * index..).and_then(|bytes| bytes.first_chunk());
        number.map_or(0, |number| u32::from_ne_bytes(*number))
    }

    fn request(&self) -> u32 {
        self.header(0)
    }

    fn flags(&self) -> u32 {
        self.header(1)
    }

    /// The reply that reports success (VHOST_USER_PROTOCOL_F_REPLY_ACK, which the library offers).
    fn success(&self) -> Vec<u8> {
        let body = 0_u64.to_ne_bytes();
        let header = [self.request(), VERSION | FLAG_REPLY, body.len() as u32].map(u32::to_ne_bytes);
        [header.as_flattened(), &body].concat()
    }

    /// Sets the switches that this message names. True if the library gets the message. The library also gets
    /// malformed messages, and hangs up.
    fn switch(&mut self, switches: &Switches) -> bool {
        const PROTOCOL_FEATURES: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        let request = self.request();
        let body = self.bytes.get_mut(HEADER_BYTES..).unwrap_or_default();
        let Ok(body) = <&mut [u8; 8]>::try_from(body) else { return true };
        if request == FrontendReq::SET_FEATURES as u32 {
            let features = u64::from_ne_bytes(*body);
            if features & PROTOCOL_FEATURES == 0 {
                // The queues start enabled in this case (vhost-user specification, "Ring states").
                switches.set_all();
            }
            *body = (features & !PROTOCOL_FEATURES).to_ne_bytes();
        } else if request == FrontendReq::SET_VRING_ENABLE as u32 {
            let [a, b, c, d, is_on @ ..] = *body;
            let queue = u32::from_ne_bytes([a, b, c, d]) as usize;
            let pair = queue / QUEUES_PER_PAIR;
            let is_known = match u32::from_ne_bytes(is_on) {
                // The transmit queue has no switch.
                is_on @ (0 | 1) if queue == receive_queue(pair) => switches.set(pair, is_on == 1),
                0 | 1 => switches.has(pair),
                _ => false,
            };
            return !is_known;
        }
        true
    }

    fn send(&self, mut library: &UnixStream) -> io::Result<()> {
        let descriptors: Vec<RawFd> = self.descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let control = if descriptors.is_empty() { &[][..] } else { &rights[..] };
        let parts = [IoSlice::new(&self.bytes)];
        let sent = sendmsg::<()>(library.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None)?;
        library.write_all(self.bytes.get(sent..).unwrap_or_default())
    }
}

/// Receives the next bytes of `header`, at least one, and the descriptors that came with them.
fn receive_with_descriptors(front: &UnixStream, header: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = nix::cmsg_space!([RawFd; MAX_DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(header)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<()>(front.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    let mut descriptors = Vec::new();
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = message {
            // SAFETY: the kernel has just opened these descriptors for this process, and nothing else knows them.
            descriptors.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((received.bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::ethernet::steering::Pairs;

    fn relay(pairs: usize) -> (Relay, UnixStream, UnixStream, Arc<Switches>) {
        let (front, near) = UnixStream::pair().unwrap();
        let (far, library) = UnixStream::pair().unwrap();
        let switches = Arc::new(Switches::new(pairs));
        let attention = Arc::new(Attention::new().unwrap());
        (Relay::start(0, [near, far], &switches, &attention).unwrap(), front, library, switches)
    }

    fn message(request: FrontendReq, body: &[u8]) -> Vec<u8> {
        let header = [request as u32, 1, body.len() as u32].map(u32::to_ne_bytes);
        [header.as_flattened(), body].concat()
    }

    fn enable(queue: u32, is_on: u32) -> Vec<u8> {
        message(FrontendReq::SET_VRING_ENABLE, [queue, is_on].map(u32::to_ne_bytes).as_flattened())
    }

    fn features(features: u64) -> Vec<u8> {
        message(FrontendReq::SET_FEATURES, &features.to_ne_bytes())
    }

    /// Sends the messages `sent`, and checks that the library receives `expected`.
    fn passes(front: &mut UnixStream, library: &mut UnixStream, sent: &[Vec<u8>], expected: &[Vec<u8>]) {
        front.write_all(&sent.concat()).unwrap();
        let expected = expected.concat();
        let mut received = vec![0; expected.len()];
        library.read_exact(&mut received).unwrap();
        assert_eq!(received, expected);
    }

    #[test]
    fn relay_keeps_enabling_of_queues_to_itself() {
        let (_relay, mut front, mut library, switches) = relay(4);
        let owner = message(FrontendReq::SET_OWNER, &[]);
        let sent = [enable(0, 1), enable(1, 1), enable(4, 1), enable(5, 1), enable(7, 1), owner.clone()];
        passes(&mut front, &mut library, &sent, std::slice::from_ref(&owner));
        assert_eq!([0, 1, 2, 3].map(|pair| switches.on().contains(pair)), [true, false, true, false]);
        let sent = [enable(4, 0), features(1 << 30 | 5), owner.clone()];
        passes(&mut front, &mut library, &sent, &[features(5), owner.clone()]);
        assert_eq!(switches.on(), Pairs::first(1));
        library.write_all(b"an answer").unwrap();
        let mut answer = [0; 9];
        front.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"an answer");
        // The front end waits for the reply to this one.
        let mut wants_reply = enable(2, 1);
        wants_reply[4] |= FLAG_NEED_REPLY as u8;
        front.write_all(&wants_reply).unwrap();
        let mut reply = [0; 20];
        front.read_exact(&mut reply).unwrap();
        assert_eq!(reply, *[[18, 5, 8, 0, 0].map(u32::to_ne_bytes).as_flattened()].concat());
        assert_eq!(switches.on(), Pairs::first(2));
        // A front end that knows no protocol features enables nothing.
        passes(&mut front, &mut library, &[features(5), owner.clone()], &[features(5), owner]);
        assert_eq!(switches.on(), Pairs::first(4));
    }

    #[test]
    fn malformed_messages_pass_and_switch_nothing() {
        let (_relay, mut front, mut library, switches) = relay(4);
        let sent = [
            enable(8, 1),
            enable(9, 0),
            enable(u32::MAX, 1),
            enable(0, 2),
            message(FrontendReq::SET_VRING_ENABLE, &[0; 4]),
            message(FrontendReq::SET_FEATURES, &[0; 9]),
        ];
        passes(&mut front, &mut library, &sent, &sent);
        assert_eq!(switches.on(), Pairs::first(0));
    }

    #[test]
    fn descriptors_stay_with_their_message() {
        let (_relay, front, library, _) = relay(2);
        let plain = Message { bytes: message(FrontendReq::SET_OWNER, &[]), descriptors: Vec::new() };
        let file = tempfile::tempfile().unwrap();
        let descriptors = vec![file.as_fd().try_clone_to_owned().unwrap()];
        let kick = Message { bytes: message(FrontendReq::SET_VRING_KICK, &[3; 8]), descriptors };
        for sent in [&plain, &kick, &plain, &kick] {
            sent.send(&front).unwrap();
        }
        for sent in [&plain, &kick, &plain, &kick] {
            let received = Message::receive(&library).unwrap();
            assert_eq!((&received.bytes, received.descriptors.len()), (&sent.bytes, sent.descriptors.len()));
        }
    }

    #[test]
    fn relay_receives_all_descriptors_of_a_message() {
        let (front, near) = UnixStream::pair().unwrap();
        let bytes = message(FrontendReq::SET_MEM_TABLE, &[]);
        let descriptors = (0..MAX_DESCRIPTORS).map(|_| front.as_fd().try_clone_to_owned().unwrap()).collect();
        Message { bytes, descriptors }.send(&front).unwrap();
        assert_eq!(Message::receive(&near).unwrap().descriptors.len(), MAX_DESCRIPTORS);
    }

    #[test]
    fn end_that_hangs_up_takes_the_other_with_it() {
        for is_front in [true, false] {
            let (_relay, front, library, _) = relay(2);
            let (gone, mut other) = if is_front { (front, library) } else { (library, front) };
            drop(gone);
            assert_eq!(other.read(&mut [0; 8]).unwrap(), 0);
        }
        let (_relay, mut front, mut library, _) = relay(2);
        let mut long = message(FrontendReq::SET_OWNER, &[]);
        long[8..12].copy_from_slice(&(MAX_BODY_BYTES as u32 + 1).to_ne_bytes());
        front.write_all(&long).unwrap();
        assert_eq!(library.read(&mut [0; 8]).unwrap(), 0, "a message that is too long");
        let (relay, mut front, _library, _) = self::relay(2);
        drop(relay);
        assert_eq!(front.read(&mut [0; 8]).unwrap(), 0, "the relay has ended");
    }
}
