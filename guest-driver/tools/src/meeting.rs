//! How both ends meet over the channel itself, and end the run without losing the last message.
//!
//! A greeting can be lost: the peer may not have opened its port yet. Each end sends Hello with a nonce repeatedly
//! until the other sends Welcome with that nonce. An end has met the peer once it was welcomed and has welcomed the
//! peer. The last Welcome cannot be lost: it answers a Hello, so the peer is there.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use niclab_user::slices::Flags;

use crate::Failure;
use crate::channel::{Channel, MessageKind, Tag, receive};

/// Time between two greetings.
const GREETING_INTERVAL: Duration = Duration::from_millis(10);
/// Pause between two polls for a greeting. Nothing is measured yet, and the peer may need this core to start.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// Meets the peer, which must run the same `plan`: a text with the benchmark and all options that concern both ends.
///
/// # Errors
///
/// After `timeout` [`Failure::PeerAbsent`], or [`Failure::OutOfStep`] if other messages than greetings arrived;
/// [`Failure::Mismatch`], or those of the channel.
pub fn meet(
    channel: &mut impl Channel,
    command: &'static str,
    plan: &str,
    timeout: Duration,
) -> Result<(), Failure> {
    let digest = digest(plan).to_le_bytes();
    let nonce = nonce();
    let began = Instant::now();
    let mut next_hello = began;
    let (mut welcomed, mut seen) = (false, false);
    let mut stray: Option<Tag> = None;
    while !(welcomed && seen) {
        let now = Instant::now();
        if now.duration_since(began) > timeout {
            if let Some(tag) = stray {
                tag.expect(greeting(MessageKind::Hello, nonce), channel.peer())?;
            }
            return Err(Failure::PeerAbsent { peer: channel.peer().into(), waited: timeout, command });
        }
        if now >= next_hello {
            // If the page is full of greetings that the peer has not taken yet, this one is skipped.
            channel.try_send(&digest, greeting(MessageKind::Hello, nonce), Flags::NONE)?;
            next_hello = now + GREETING_INTERVAL;
        }
        let mut theirs = [0; 8];
        let Some(tag) = channel.try_receive(&mut theirs)? else {
            thread::sleep(LOOK_INTERVAL);
            continue;
        };
        match tag.kind {
            MessageKind::Hello if theirs != digest => {
                return Err(Failure::Mismatch { peer: channel.peer().into() });
            }
            MessageKind::Hello => {
                channel.send(&digest, greeting(MessageKind::Welcome, tag.number), Flags::NONE)?;
                seen = true;
            }
            MessageKind::Welcome if tag.number == nonce => welcomed = true,
            // An answer to an earlier run of this program.
            MessageKind::Welcome => {}
            // Messages arrive in order, and a peer that sends data has welcomed this end before. So this message is
            // from an earlier program of the peer, and the card still had it when the port was opened. Or messages are
            // lost, and no Welcome will arrive.
            MessageKind::Data | MessageKind::Done | MessageKind::Bye => stray = stray.or(Some(tag)),
        }
    }
    Ok(())
}

/// Ends the run: exchanges 48 bytes, and returns the peer's bytes after this end's have left the node.
///
/// # Errors
///
/// [`Failure::OutOfStep`], or those of the channel.
pub fn part(channel: &mut impl Channel, step: u8, ours: [u64; 6]) -> Result<[u64; 6], Failure> {
    let mut payload = [0; 48];
    for (bytes, word) in payload.as_chunks_mut::<8>().0.iter_mut().zip(ours) {
        *bytes = word.to_le_bytes();
    }
    let bye = Tag { kind: MessageKind::Bye, step, bytes: 48, number: 0 };
    channel.send(&payload, bye, Flags::NOTIFY)?;
    channel.flush()?;
    receive(channel, &mut payload)?.expect(bye, channel.peer())?;
    let mut theirs = [0; 6];
    for (word, bytes) in theirs.iter_mut().zip(payload.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Ok(theirs)
}

/// Waits until both ends have reached this point.
///
/// # Errors
///
/// [`Failure::OutOfStep`], or those of the channel.
pub fn barrier(channel: &mut impl Channel, step: u8) -> Result<(), Failure> {
    let done = Tag { kind: MessageKind::Done, step, bytes: 0, number: 0 };
    channel.send(&[], done, Flags::NONE)?;
    receive(channel, &mut [])?.expect(done, channel.peer())
}

fn greeting(kind: MessageKind, number: u64) -> Tag {
    Tag { kind, step: 0, bytes: 8, number }
}

/// FNV-1a of the plan. It only detects differing options; it need not resist attacks.
fn digest(plan: &str) -> u64 {
    plan.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A number that no other run between these ends uses.
fn nonce() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64) ^ u64::from(std::process::id()).rotate_left(48)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A channel that loses its first messages, like a NIC whose peer has not opened its port.
    struct Lossy {
        to: Sender<(Vec<u8>, Tag)>,
        from: Receiver<(Vec<u8>, Tag)>,
        lose: usize,
    }

    fn pair(lose: [usize; 2]) -> [Lossy; 2] {
        let (to_b, from_a) = channel();
        let (to_a, from_b) = channel();
        [Lossy { to: to_b, from: from_b, lose: lose[0] }, Lossy { to: to_a, from: from_a, lose: lose[1] }]
    }

    impl Channel for Lossy {
        fn peer(&self) -> &str {
            "the other end"
        }

        fn try_send(&mut self, payload: &[u8], tag: Tag, _: Flags) -> Result<bool, Failure> {
            if self.lose > 0 {
                self.lose -= 1;
            } else {
                // The peer may have finished and exited; it needs no more greetings.
                let _ = self.to.send((payload.to_vec(), tag));
            }
            Ok(true)
        }

        fn send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure> {
            self.try_send(payload, tag, flags).map(drop)
        }

        fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
            Ok(self.from.try_recv().ok().map(|(payload, tag)| {
                // Truncates a longer payload, as the real channels do.
                let bytes = payload.len().min(buffer.len());
                buffer[..bytes].copy_from_slice(&payload[..bytes]);
                tag
            }))
        }

        fn receive(&mut self, buffer: &mut [u8]) -> Result<Tag, Failure> {
            // A time limit, because the other end may have failed.
            let (payload, tag) = self.from.recv_timeout(LONG).expect("a message");
            buffer[..payload.len()].copy_from_slice(&payload);
            Ok(tag)
        }

        fn flush(&mut self) -> Result<(), Failure> {
            Ok(())
        }
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn ends_meet_although_greetings_are_lost() {
        let [mut a, mut b] = pair([3, 0]);
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                meet(&mut b, "pingpong", "plan", LONG)?;
                part(&mut b, 1, [1; 6])
            });
            meet(&mut a, "pingpong", "plan", LONG).expect("met");
            assert_eq!(part(&mut a, 1, [2; 6]).expect("parted"), [1; 6]);
            assert_eq!(other.join().expect("no panic").expect("parted"), [2; 6]);
        });
    }

    #[test]
    fn another_plan_is_refused() {
        let [mut a, mut b] = pair([0, 0]);
        thread::scope(|scope| {
            scope.spawn(|| meet(&mut b, "stream", "size 16", Duration::from_millis(100)));
            let error = meet(&mut a, "stream", "size 8", LONG).expect_err("another plan");
            assert!(matches!(error, Failure::Mismatch { .. }), "{error}");
        });
    }

    fn data(number: u64) -> (Vec<u8>, Tag) {
        (number.to_le_bytes().to_vec(), Tag { kind: MessageKind::Data, step: 1, bytes: 8, number })
    }

    #[test]
    fn messages_of_an_earlier_program_are_skipped() {
        let [mut a, mut b] = pair([0, 0]);
        a.to.send(data(1)).expect("b is there");
        a.to.send((vec![0; 48], Tag { kind: MessageKind::Bye, step: 1, bytes: 48, number: 0 }))
            .expect("b is there");
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                meet(&mut b, "pingpong", "plan", LONG)?;
                receive(&mut b, &mut [0; 8])
            });
            meet(&mut a, "pingpong", "plan", LONG).expect("met");
            let (payload, due) = data(7);
            a.send(&payload, due, Flags::NONE).expect("b is there");
            assert_eq!(other.join().expect("no panic").expect("met"), due);
        });
    }

    #[test]
    fn peer_without_greeting_differs_from_absent_peer() {
        let [mut a, b] = pair([0, 0]);
        b.to.send(data(1)).expect("a is there");
        b.to.send(data(2)).expect("a is there");
        let error = meet(&mut a, "rate", "plan", Duration::from_millis(30)).expect_err("no greeting");
        let Failure::OutOfStep { found, .. } = &error else { panic!("{error}") };
        assert!(found.starts_with("Data number 1 "), "{error}");
    }

    #[test]
    fn an_absent_peer_is_named() {
        let [mut a, _b] = pair([0, 0]);
        let error = meet(&mut a, "rate", "plan", Duration::from_millis(30)).expect_err("no peer");
        let text = error.to_string();
        assert!(text.contains("the other end") && text.contains("niclab-perf rate"), "{text}");
    }
}
