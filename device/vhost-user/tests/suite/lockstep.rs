//! Programs in lockstep, and programs that do not keep to their grants.

use std::sync::atomic::AtomicU64;

use niclab_abi::bar::{
    COMPLETER_REPORT_OFFSET, COMPLETER_TURN_OFFSET, REPORT_ACTED, REPORT_BITS, REPORT_READY,
};
use niclab_device::frontend::GuestPort;
use niclab_device::lab::Lab;
use niclab_port::atomic::{load, store};
use niclab_port::{Turn, Turns};

use crate::common::endpoint_card::EndpointCard;
use crate::common::{TIMEOUT, frame, lab, lab_with, pair, stats, stream, until};

fn in_lockstep(nodes: u16) -> Lab {
    lab_with(nodes, |config| config.lockstep = true)
}

fn completer(port: &GuestPort) -> &[AtomicU64] {
    port.memory((0, 0)).records.completer
}

/// A program with its lockstep grants.
struct Player {
    port: GuestPort,
    turns: Turns,
}

impl Player {
    fn new(port: GuestPort) -> Self {
        Self { port, turns: Turns::default() }
    }

    fn begin(&mut self) {
        self.turns.begin(completer(&self.port));
        self.port.announce();
    }

    fn wait(&mut self) -> Turn {
        let mut turn = None;
        until("a turn", || {
            turn = self.turns.poll(completer(&self.port));
            turn.is_some()
        });
        turn.unwrap()
    }

    fn end(&mut self, acted: bool) {
        self.turns.end(completer(&self.port), acted, None);
        self.port.announce();
    }

    /// Does nothing in its grants until there are no more.
    fn idle(&mut self) {
        while self.wait() != Turn::Over {
            self.end(false);
        }
    }
}

fn players(lab: &Lab) -> [Player; 2] {
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    pair([&guests[0], &guests[1]]).map(Player::new)
}

#[test]
fn message_is_received_in_the_grant_in_which_it_is_visible() {
    let lab = in_lockstep(2);
    let [mut a, mut b] = players(&lab);
    a.begin();
    b.begin();
    let Turn::Now { model_ps: begin_ps } = a.wait() else { panic!("the program has no first grant") };
    assert!(a.port.try_launch(&[1], [2, 3], 0));
    a.end(true);
    // Both began at the same time, and this program receives before any message can have arrived.
    assert_eq!(b.wait(), Turn::Now { model_ps: begin_ps });
    assert!(b.port.try_receive().is_none());
    b.end(false);
    let Turn::Now { model_ps } = a.wait() else { panic!("the program has no second grant") };
    assert!(model_ps > begin_ps, "a post takes model time");
    // The program may take any wall time: no other program runs in the meantime.
    std::thread::yield_now();
    assert!(b.port.try_receive().is_none());
    a.end(false);
    let Turn::Now { model_ps: there_ps } = b.wait() else {
        panic!("the receiver has no grant for the message")
    };
    assert!(there_ps > model_ps);
    assert_eq!(b.port.try_receive().unwrap().tag(), [2, 3]);
    b.end(true);
    b.idle();
    a.idle();
    assert_eq!(stats(&lab, 1).messages_received, 1);
}

#[test]
fn lockstep_does_not_wait_for_a_program_without_a_port() {
    for is_gone in [false, true] {
        let lab = in_lockstep(2);
        let [mut a, mut b] = players(&lab);
        a.begin();
        b.begin();
        assert!(matches!(a.wait(), Turn::Now { .. }));
        if is_gone {
            // The guest disappears with its port.
            drop(a);
        } else {
            a.port.close().unwrap();
        }
        b.idle();
    }
}

#[test]
fn reports_that_belong_to_no_grant_are_ignored() {
    let lab = in_lockstep(2);
    let [mut a, mut b] = players(&lab);
    let lie = |player: &Player, report: u64| {
        store(&completer(&player.port)[COMPLETER_REPORT_OFFSET as usize / 8], report);
        player.port.announce();
    };
    a.begin();
    b.begin();
    assert!(matches!(a.wait(), Turn::Now { .. }));
    let before = load(&completer(&b.port)[COMPLETER_TURN_OFFSET as usize / 8]);
    // Reports for another program's grant, for future grants, for future begins, and of no kind.
    for number in [0, 1, 2, 7, u64::MAX >> REPORT_BITS] {
        lie(&b, number << REPORT_BITS | REPORT_ACTED);
        lie(&b, number << REPORT_BITS | REPORT_READY);
        lie(&b, number << REPORT_BITS);
    }
    assert_eq!(
        load(&completer(&b.port)[COMPLETER_TURN_OFFSET as usize / 8]),
        before,
        "the false reports gave a grant"
    );
    a.end(false);
    b.idle();
    a.idle();
}

#[test]
fn cluster_without_lockstep_grants_nothing() {
    let lab = lab(2);
    let [mut a, mut b] = players(&lab);
    a.begin();
    b.begin();
    stream(&mut a.port, &mut b.port, 100);
    assert_eq!(a.turns.poll(completer(&a.port)), None);
}

#[test]
fn many_operations_in_one_grant_take_effect_in_order() {
    let lab = in_lockstep(2);
    let [mut a, mut b] = players(&lab);
    a.begin();
    b.begin();
    assert!(matches!(a.wait(), Turn::Now { .. }));
    let count = (0..1_000).take_while(|number| a.port.try_launch(&[*number], [*number, 0], 0)).count() as u64;
    assert!(count > 1);
    a.end(true);
    let begin = std::time::Instant::now();
    let mut received = 0;
    while received < count {
        assert!(begin.elapsed() < TIMEOUT);
        if let Some(Turn::Now { .. }) = b.turns.poll(completer(&b.port)) {
            let message = b.port.try_receive();
            assert!(message.as_ref().is_none_or(|message| message.tag()[0] == received));
            received += u64::from(message.is_some());
            b.end(message.is_some());
        }
        if let Some(Turn::Now { .. }) = a.turns.poll(completer(&a.port)) {
            a.end(false);
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| a.idle());
        b.idle();
    });
}

#[test]
fn ordinary_frames_arrive_in_a_grant_and_answers_after_it() {
    let lab = in_lockstep(2);
    let [mut a, mut b] = players(&lab);
    let wire = EndpointCard::put(&lab, 1);
    wire.lock().answers = true;
    let mut guest = lab.ethernet(0, 0).unwrap();
    a.begin();
    b.begin();
    assert!(matches!(a.wait(), Turn::Now { .. }));
    assert!(guest.send(&frame(lab.mac(0), EndpointCard::mac(1), 60)).unwrap());
    until("the frame", || wire.lock().heard.len() == 1);
    assert!(guest.try_receive().unwrap().is_none());
    a.end(false);
    b.idle();
    a.idle();
    assert_eq!(guest.receive(TIMEOUT).unwrap().1[..12], [lab.mac(0), EndpointCard::mac(1)].concat());
    // An answer to all nodes, which also reaches the Ethernet function of the endpoint's node.
    let mut other = lab.ethernet(1, 0).unwrap();
    a.begin();
    b.begin();
    assert!(matches!(a.wait(), Turn::Now { .. }));
    assert!(guest.send(&frame([0xff; 6], EndpointCard::mac(1), 62)).unwrap());
    until("the next frame", || wire.lock().heard.len() == 2);
    a.end(false);
    b.idle();
    a.idle();
    for guest in [&mut guest, &mut other] {
        assert_eq!(guest.receive(TIMEOUT).unwrap().1[..12], [[0xff; 6], EndpointCard::mac(1)].concat());
    }
    // The number of frames that wait for the end of a grant is bounded, even for a long grant.
    a.begin();
    b.begin();
    assert!(matches!(a.wait(), Turn::Now { .. }));
    for _ in 0..17 * 1024 {
        until("room to send", || guest.send(&frame(lab.mac(0), EndpointCard::mac(1), 60)).unwrap());
    }
    until("frames that are dropped", || stats(&lab, 1).cluster.dropped_frames > 0);
    a.end(false);
    b.idle();
    a.idle();
}
