//! What a port can be asked to do: commands, built step by step and encoded as the contract says.

use niclab_abi::posts::{
    POST_INTERRUPT, POST_MAX_MESSAGE_BYTES, POST_RECEIVE, POST_SEND, POST_TELL_SENT, POST_UNIT_BYTES,
    ReceiveCommand, SendCommand,
};

use crate::BadValue;
use crate::command::{Command, Encoded, Memory, Part};

/// Sends a message to a node. Without more nothing tells what became of it, unless it fails.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug)]
pub struct Send<S> {
    node: u32,
    span: S,
    user: u64,
    flags: u32,
}

impl<S> Send<S> {
    /// To `node`, out of `span`: a multiple of [`super::UNIT_BYTES`], and not empty.
    pub fn new(node: u32, span: S) -> Self {
        Self { node, span, user: 0, flags: 0 }
    }

    /// A word that comes back with the events of this command.
    pub fn user(mut self, user: u64) -> Self {
        self.user = user;
        self
    }

    /// [`super::Kind::Sent`] tells when the memory may be used again.
    pub fn tell_sent(mut self) -> Self {
        self.flags |= POST_TELL_SENT;
        self
    }
}

impl<P: ?Sized, E: From<BadValue>, S: Memory<P, E>> Command<P, E> for Send<S> {
    const NAME: &'static str = "send";

    #[inline]
    fn encode(&self, port: &P) -> Result<Encoded, E> {
        let Part { region, offset, bytes } = self.span.part(port)?;
        let node = BadValue::check("the target node", self.node.into(), u64::from(u16::MAX))? as u16;
        let bytes = check_bytes(bytes)?;
        let command = SendCommand { user: self.user, region, node, reserved: 0, offset, bytes };
        Ok(Encoded::new(&command, POST_SEND | self.flags))
    }
}

/// Room for one message, from whichever node: [`super::Kind::Received`] tells when it is there.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug)]
pub struct Receive<S> {
    span: S,
    user: u64,
    flags: u32,
}

impl<S> Receive<S> {
    /// Into `span`: a multiple of [`super::UNIT_BYTES`], and not empty. A longer message is cut.
    pub fn new(span: S) -> Self {
        Self { span, user: 0, flags: 0 }
    }

    /// A word that comes back with the event of the message.
    pub fn user(mut self, user: u64) -> Self {
        self.user = user;
        self
    }

    /// The NIC interrupts once the event of the message is stored.
    pub fn interrupt(mut self) -> Self {
        self.flags |= POST_INTERRUPT;
        self
    }
}

impl<P: ?Sized, E: From<BadValue>, S: Memory<P, E>> Command<P, E> for Receive<S> {
    const NAME: &'static str = "post a receive";

    #[inline]
    fn encode(&self, port: &P) -> Result<Encoded, E> {
        let Part { region, offset, bytes } = self.span.part(port)?;
        let bytes = check_bytes(bytes)?;
        let command = ReceiveCommand { user: self.user, region, reserved: 0, offset, bytes };
        Ok(Encoded::new(&command, POST_RECEIVE | self.flags))
    }
}

/// Refuses a length that no message has. An empty one is left to the card to refuse.
fn check_bytes(bytes: u64) -> Result<u64, BadValue> {
    BadValue::check("the length beyond a multiple of four bytes", bytes % POST_UNIT_BYTES, 0)?;
    BadValue::check("the length of a message in bytes", bytes, POST_MAX_MESSAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use niclab_abi::from_words;
    use proptest::prelude::*;

    use super::*;

    fn encoded(command: &impl Command<(), BadValue>) -> Result<Encoded, BadValue> {
        command.encode(&())
    }

    proptest! {
        #[test]
        fn commands_are_coded_as_the_contract_wants_them(
            (region, node, user, offset) in (any::<u32>(), any::<u16>(), any::<u64>(), any::<u64>()),
            units in 1..=POST_MAX_MESSAGE_BYTES / POST_UNIT_BYTES,
            is_flagged in any::<bool>(),
        ) {
            let bytes = units * POST_UNIT_BYTES;
            let part = Part { region, offset, bytes };
            let (mut send, mut receive) = (Send::new(node.into(), part).user(user), Receive::new(part).user(user));
            if is_flagged {
                (send, receive) = (send.tell_sent(), receive.interrupt());
            }
            let flag = |bit| if is_flagged { bit } else { 0 };
            let send = encoded(&send).unwrap();
            let expected = SendCommand { user, region, node, reserved: 0, offset, bytes };
            prop_assert_eq!(from_words(&send.words), Some(expected));
            prop_assert_eq!(send.code, POST_SEND | flag(POST_TELL_SENT));
            let receive = encoded(&receive).unwrap();
            let expected = ReceiveCommand { user, region, reserved: 0, offset, bytes };
            prop_assert_eq!(from_words(&receive.words), Some(expected));
            prop_assert_eq!(receive.code, POST_RECEIVE | flag(POST_INTERRUPT));
        }
    }

    #[test]
    fn what_has_no_room_in_a_command_is_refused() {
        let part = |bytes| Part { region: 0, offset: 0, bytes };
        assert!(encoded(&Send::new(1 << 16, part(4))).is_err());
        for bytes in [1, 6, POST_MAX_MESSAGE_BYTES + 4] {
            assert!(encoded(&Send::new(0, part(bytes))).is_err(), "{bytes}");
            assert!(encoded(&Receive::new(part(bytes))).is_err(), "{bytes}");
        }
    }
}
