//! Both ends find each other through the channel itself, and part without losing the last message.
//!
//! A greeting can be lost: the peer may not have opened its port yet. It is repeated until both ends know of each
//! other. Each end says Hello with a nonce until the other says Welcome with that nonce; it is done when it was
//! welcomed and has welcomed the other. The Welcome that ends the meeting cannot be lost, because it answers a Hello:
//! the peer is there.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use niclab_user::slices::Flags;

use crate::Failure;
use crate::channel::{Channel, Kind, Tag, receive};

/// Time between two greetings.
const GREETING_INTERVAL: Duration = Duration::from_millis(10);
/// Pause between two looks for one. Nothing is measured yet, and the peer may need this core to come up.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// Meets the peer, which must run the same `plan`: a text that names the benchmark and all options that matter to both.
///
/// # Errors
///
/// After `timeout` [`Failure::PeerAbsent`], or [`Failure::OutOfStep`] where something else than greetings came;
/// [`Failure::Mismatch`], or what the channel says.
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
                tag.expect(greeting(Kind::Hello, nonce), channel.peer())?;
            }
            return Err(Failure::PeerAbsent { peer: channel.peer().into(), waited: timeout, command });
        }
        if now >= next_hello {
            // A page full of greetings that nobody took yet is no reason to wait.
            channel.try_send(&digest, greeting(Kind::Hello, nonce), Flags::NONE)?;
            next_hello = now + GREETING_INTERVAL;
        }
        let mut theirs = [0; 8];
        let Some(tag) = channel.try_receive(&mut theirs)? else {
            thread::sleep(LOOK_INTERVAL);
            continue;
        };
        match tag.kind {
            Kind::Hello if theirs != digest => return Err(Failure::Mismatch { peer: channel.peer().into() }),
            Kind::Hello => {
                channel.send(&digest, greeting(Kind::Welcome, tag.number), Flags::NONE)?;
                seen = true;
            }
            Kind::Welcome if tag.number == nonce => welcomed = true,
            // An answer to an earlier run of this program.
            Kind::Welcome => {}
            // In order: who sends data has met us, and has welcomed us before. So this is of the program before, whose
            // card still had it when the port was opened anew; or messages are lost, and then nobody welcomes us any
            // more.
            Kind::Data | Kind::Done | Kind::Bye => stray = stray.or(Some(tag)),
        }
    }
    Ok(())
}

/// Parts from the peer: exchanges 48 bytes, and returns the peer's once ours left this node.
///
/// # Errors
///
/// [`Failure::OutOfStep`], or what the channel says.
pub fn part(channel: &mut impl Channel, step: u8, ours: [u64; 6]) -> Result<[u64; 6], Failure> {
    let mut payload = [0; 48];
    for (bytes, word) in payload.as_chunks_mut::<8>().0.iter_mut().zip(ours) {
        *bytes = word.to_le_bytes();
    }
    let bye = Tag { kind: Kind::Bye, step, bytes: 48, number: 0 };
    channel.send(&payload, bye, Flags::NOTIFY)?;
    channel.flush()?;
    receive(channel, &mut payload)?.expect(bye, channel.peer())?;
    let mut theirs = [0; 6];
    for (word, bytes) in theirs.iter_mut().zip(payload.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Ok(theirs)
}

/// Waits until both ends are here.
///
/// # Errors
///
/// [`Failure::OutOfStep`], or what the channel says.
pub fn barrier(channel: &mut impl Channel, step: u8) -> Result<(), Failure> {
    let done = Tag { kind: Kind::Done, step, bytes: 0, number: 0 };
    channel.send(&[], done, Flags::NONE)?;
    receive(channel, &mut [])?.expect(done, channel.peer())
}

fn greeting(kind: Kind, number: u64) -> Tag {
    Tag { kind, step: 0, bytes: 8, number }
}

/// FNV-1a of the plan: both ends must agree, nobody attacks it.
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

    /// A channel that loses its first messages, as a NIC does whose peer has not opened its port.
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
                // The peer may have finished and left: it needs no more greetings.
                let _ = self.to.send((payload.to_vec(), tag));
            }
            Ok(true)
        }

        fn send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure> {
            self.try_send(payload, tag, flags).map(drop)
        }

        fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
            Ok(self.from.try_recv().ok().map(|(payload, tag)| {
                // Of what is longer the front, as the others do.
                let bytes = payload.len().min(buffer.len());
                buffer[..bytes].copy_from_slice(&payload[..bytes]);
                tag
            }))
        }

        fn receive(&mut self, buffer: &mut [u8]) -> Result<Tag, Failure> {
            // The other end may have failed, and sends nothing more.
            let (payload, tag) = self.from.recv_timeout(LONG).expect("it comes");
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
        (number.to_le_bytes().to_vec(), Tag { kind: Kind::Data, step: 1, bytes: 8, number })
    }

    #[test]
    fn what_the_program_before_had_sent_is_passed_over() {
        let [mut a, mut b] = pair([0, 0]);
        a.to.send(data(1)).expect("b is there");
        a.to.send((vec![0; 48], Tag { kind: Kind::Bye, step: 1, bytes: 48, number: 0 })).expect("b is there");
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
        let error = meet(&mut a, "rate", "plan", Duration::from_millis(30)).expect_err("nobody greets");
        let Failure::OutOfStep { found, .. } = &error else { panic!("{error}") };
        assert!(found.starts_with("Data number 1 "), "{error}");
    }

    #[test]
    fn an_absent_peer_is_named() {
        let [mut a, _b] = pair([0, 0]);
        let error = meet(&mut a, "rate", "plan", Duration::from_millis(30)).expect_err("nobody there");
        let text = error.to_string();
        assert!(text.contains("the other end") && text.contains("niclab-perf rate"), "{text}");
    }
}
