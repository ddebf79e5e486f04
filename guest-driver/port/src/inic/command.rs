//! The commands of a port: they are built step by step and encoded as the contract requires.

use niclab_abi::inic::{
    BarrierCommand, MulticastCommand, POST_BARRIER, POST_DOUBLE, POST_INTERRUPT, POST_MAX,
    POST_MAX_COLLECTIVE_BYTES, POST_MAX_MESSAGE_BYTES, POST_MIN, POST_MULTICAST, POST_RECEIVE, POST_REDUCE,
    POST_SEND, POST_SIGNED_32, POST_SIGNED_64, POST_SUM, POST_TELL_SENT, POST_UNIT_BYTES, POST_UNSIGNED_32,
    POST_UNSIGNED_64, ReceiveCommand, ReduceCommand, SendCommand,
};

use crate::BadValue;
use crate::command::{Command, Encoded, Memory, Part};

/// Sends a message to a node. By default only a failure is reported.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug)]
pub struct Send<S> {
    node: u32,
    span: S,
    user: u64,
    flags: u32,
}

impl<S> Send<S> {
    /// Sends `span` to `node`; its length is a multiple of [`super::UNIT_BYTES`], and not empty.
    pub fn new(node: u32, span: S) -> Self {
        Self { node, span, user: 0, flags: 0 }
    }

    /// A word that the events of this command return.
    pub fn user(mut self, user: u64) -> Self {
        self.user = user;
        self
    }

    /// [`super::EventKind::Sent`] reports when the memory may be reused.
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

/// Posts memory for one message from any node: [`super::EventKind::Received`] reports when it is stored.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug)]
pub struct Receive<S> {
    span: S,
    user: u64,
    flags: u32,
}

impl<S> Receive<S> {
    /// Receives into `span`; its length is a multiple of [`super::UNIT_BYTES`], and not empty. Longer messages are
    /// truncated.
    pub fn new(span: S) -> Self {
        Self { span, user: 0, flags: 0 }
    }

    /// A word that the event of the message returns.
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

/// Waits for all members of a group: [`super::EventKind::Done`] reports that all have reached the barrier.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug)]
pub struct Barrier {
    group: u32,
    user: u64,
    flags: u32,
}

impl Barrier {
    /// A barrier of this group.
    pub fn new(group: u32) -> Self {
        Self { group, user: 0, flags: 0 }
    }

    /// A word that the event of this command returns.
    pub fn user(mut self, user: u64) -> Self {
        self.user = user;
        self
    }

    /// The NIC interrupts once the event is stored.
    pub fn interrupt(mut self) -> Self {
        self.flags |= POST_INTERRUPT;
        self
    }
}

impl<P: ?Sized, E: From<BadValue>> Command<P, E> for Barrier {
    const NAME: &'static str = "wait for a group";

    #[inline]
    fn encode(&self, _: &P) -> Result<Encoded, E> {
        let command = BarrierCommand { user: self.user, group: self.group, reserved: 0 };
        Ok(Encoded::new(&command, POST_BARRIER | self.flags))
    }
}

/// Sends a message to all other members of a group, which receive it like any other message. [`super::EventKind::Done`]
/// reports that it is stored at all of them.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug)]
pub struct Multicast<S> {
    group: u32,
    span: S,
    user: u64,
    flags: u32,
}

impl<S> Multicast<S> {
    /// Sends `span` to this group; its length is a multiple of [`super::UNIT_BYTES`], not empty, and at most
    /// [`super::MAX_COLLECTIVE_BYTES`].
    pub fn new(group: u32, span: S) -> Self {
        Self { group, span, user: 0, flags: 0 }
    }

    /// A word that the event of this command returns.
    pub fn user(mut self, user: u64) -> Self {
        self.user = user;
        self
    }

    /// The NIC interrupts once the event is stored.
    pub fn interrupt(mut self) -> Self {
        self.flags |= POST_INTERRUPT;
        self
    }
}

impl<P: ?Sized, E: From<BadValue>, S: Memory<P, E>> Command<P, E> for Multicast<S> {
    const NAME: &'static str = "send to a group";

    #[inline]
    fn encode(&self, port: &P) -> Result<Encoded, E> {
        let Part { region, offset, bytes } = self.span.part(port)?;
        let bytes = check_collective(check_bytes(bytes)?)?;
        let command = MulticastCommand { user: self.user, region, group: self.group, offset, bytes };
        Ok(Encoded::new(&command, POST_MULTICAST | self.flags))
    }
}

/// Operator of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operator {
    /// Sum. Integers wrap.
    Sum = POST_SUM,
    /// Minimum.
    Min = POST_MIN,
    /// Maximum.
    Max = POST_MAX,
}

/// Type of a reduction's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Element {
    /// `i32`.
    Signed32 = POST_SIGNED_32,
    /// `i64`.
    Signed64 = POST_SIGNED_64,
    /// `u32`.
    Unsigned32 = POST_UNSIGNED_32,
    /// `u64`.
    Unsigned64 = POST_UNSIGNED_64,
    /// `f64`.
    Double = POST_DOUBLE,
}

/// Combines the values of all members of a group, one by one. [`super::EventKind::Done`] reports that the result has
/// replaced them.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug)]
pub struct Reduce<S> {
    group: u32,
    span: S,
    operator: Operator,
    element: Element,
    user: u64,
    flags: u32,
}

impl<S> Reduce<S> {
    /// A reduction of the values in `span`, at least one and at most [`super::MAX_COLLECTIVE_BYTES`].
    pub fn new(group: u32, span: S, operator: Operator, element: Element) -> Self {
        Self { group, span, operator, element, user: 0, flags: 0 }
    }

    /// A word that the event of this command returns.
    pub fn user(mut self, user: u64) -> Self {
        self.user = user;
        self
    }

    /// The NIC interrupts once the event is stored.
    pub fn interrupt(mut self) -> Self {
        self.flags |= POST_INTERRUPT;
        self
    }
}

impl<P: ?Sized, E: From<BadValue>, S: Memory<P, E>> Command<P, E> for Reduce<S> {
    const NAME: &'static str = "reduce";

    #[inline]
    fn encode(&self, port: &P) -> Result<Encoded, E> {
        let Part { region, offset, bytes } = self.span.part(port)?;
        let bytes = check_collective(bytes)?;
        let &Self { group, operator, element, user, .. } = self;
        let (operator, element) = (operator as u32, element as u32);
        let command = ReduceCommand { user, region, group, offset, bytes, operator, element };
        Ok(Encoded::new(&command, POST_REDUCE | self.flags))
    }
}

/// Refuses a length that is too long for a multicast or a reduction. The card itself refuses incomplete values.
fn check_collective(bytes: u64) -> Result<u64, BadValue> {
    BadValue::check("the length of a multicast or a reduction in bytes", bytes, POST_MAX_COLLECTIVE_BYTES)
}

/// Refuses a length that no message can have. The card itself refuses empty messages.
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
        fn commands_are_encoded_as_the_contract_requires(
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
    fn group_commands_are_encoded_as_the_contract_requires() {
        let (user, group, part) = (7, 0xfeed, Part { region: 3, offset: 16, bytes: 24 });
        let barrier = encoded(&Barrier::new(group).user(user)).unwrap();
        assert_eq!(from_words(&barrier.words), Some(BarrierCommand { user, group, reserved: 0 }));
        assert_eq!(barrier.code, POST_BARRIER);
        assert_eq!(encoded(&Barrier::new(group).interrupt()).unwrap().code, POST_BARRIER | POST_INTERRUPT);
        let multicast = encoded(&Multicast::new(group, part).user(user).interrupt()).unwrap();
        let expected = MulticastCommand { user, region: 3, group, offset: 16, bytes: 24 };
        assert_eq!(from_words(&multicast.words), Some(expected));
        assert_eq!(multicast.code, POST_MULTICAST | POST_INTERRUPT);
        let reduce = Reduce::new(group, part, Operator::Max, Element::Double).user(user);
        let coded = encoded(&reduce).unwrap();
        let (operator, element) = (POST_MAX, POST_DOUBLE);
        let expected = ReduceCommand { user, region: 3, group, offset: 16, bytes: 24, operator, element };
        assert_eq!(from_words(&coded.words), Some(expected));
        assert_eq!(coded.code, POST_REDUCE);
        assert_eq!(encoded(&reduce.interrupt()).unwrap().code, POST_REDUCE | POST_INTERRUPT);
        let long = Part { bytes: POST_MAX_COLLECTIVE_BYTES + 8, ..part };
        assert!(encoded(&Multicast::new(group, long)).is_err());
        assert!(encoded(&Reduce::new(group, long, Operator::Sum, Element::Double)).is_err());
    }

    #[test]
    fn values_that_do_not_fit_into_a_command_are_refused() {
        let part = |bytes| Part { region: 0, offset: 0, bytes };
        assert!(encoded(&Send::new(1 << 16, part(4))).is_err());
        for bytes in [1, 6, POST_MAX_MESSAGE_BYTES + 4] {
            assert!(encoded(&Send::new(0, part(bytes))).is_err(), "{bytes}");
            assert!(encoded(&Receive::new(part(bytes))).is_err(), "{bytes}");
        }
    }
}
