//! Shared by the tests of this crate: control requests, host memory, and the stores of a program that uses an ULTRA
//! card.

pub mod grim;
pub mod inic;
pub mod matching;
pub mod simulation;

use std::collections::BTreeMap;

use niclab_abi::bar::{CODE_ACKNOWLEDGE, CODE_INTERRUPT, CODE_NOTIFY};
use niclab_abi::config::name_in;
use niclab_abi::control::{
    Authorize, COUNTERS_PER_REPLY, Counter, CountersFrom, CountersHead, OP_AUTHORIZE, OP_COUNTERS,
    OP_PORT_OPEN, OP_ROUTE, PORT_ANY, PortOpen, PortOpened, Reply, Request, Route, STATUS_OK,
};
use niclab_abi::receive::{SLICE_BYTES, SLICE_STATUS_WORD, SLICE_WORDS, SliceStatus};
use niclab_abi::{FromBytes, ToBytes};
use niclab_model::models::ultra::Ultra;
use niclab_model::nic::alone::Alone;
use niclab_model::nic::{Input, Nic, Output, PageStore};
use niclab_model::parts::launch_code::Code;
use niclab_model::time::Time;

/// A request with its body, as a driver writes it.
pub fn request(operation: u32, body: &impl ToBytes) -> Vec<u8> {
    fn bytes_of<T: ToBytes>(value: &T) -> Vec<u8> {
        let mut bytes = vec![0; T::BYTES];
        value.to_bytes(&mut bytes).unwrap();
        bytes
    }
    let body = bytes_of(body);
    let mut bytes = bytes_of(&Request { operation, body_bytes: body.len() as u32 });
    bytes.extend(body);
    bytes
}

/// A request without a body.
pub fn bare_request(operation: u32) -> Vec<u8> {
    let mut bytes = vec![0; Request::BYTES];
    Request { operation, body_bytes: 0 }.to_bytes(&mut bytes).unwrap();
    bytes
}

pub fn open_request(slices: u32, base: u64, fifo_words: u32) -> Vec<u8> {
    let open = PortOpen {
        port: PORT_ANY,
        slices,
        slices_address: base + 64,
        status_address: base,
        fifo_words,
        flags: 0,
    };
    request(OP_PORT_OPEN, &open)
}

pub fn route_request(port: u32, node: u32, node_port: u32) -> Vec<u8> {
    request(OP_ROUTE, &Route { port, node, node_port, reserved: 0 })
}

pub fn authorize_request(port: u32, node: u32, node_port: u32, credits: u32) -> Vec<u8> {
    request(OP_AUTHORIZE, &Authorize { port, node, node_port, credits })
}

/// Gives the card a control request, which it must answer at once. Returns status, body and the other outputs.
pub fn control(nic: &mut Alone<Ultra>, now: Time, request: &[u8]) -> (u32, Vec<u8>, Vec<Output>) {
    nic.handle(now, Input::Control { token: 77, request });
    let mut reply = None;
    let mut others = Vec::new();
    while let Some(output) = nic.poll_output() {
        match output {
            Output::Reply { token, bytes, .. } => {
                assert_eq!(token, 77);
                assert!(reply.replace(bytes).is_none(), "answered twice");
            }
            other => others.push(other),
        }
    }
    let reply = reply.expect("every request is answered");
    let head = Reply::from_bytes(&reply).unwrap();
    assert_eq!(reply.len(), Reply::BYTES + head.body_bytes as usize);
    (head.status, reply[Reply::BYTES..].to_vec(), others)
}

/// All counters of a card by name. `control` has the card answer a request.
pub fn counters(mut control: impl FnMut(&[u8]) -> (u32, Vec<u8>)) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let mut number = 0;
    loop {
        let (status, body) = control(&request(OP_COUNTERS, &CountersFrom { first: number, reserved: 0 }));
        assert_eq!(status, STATUS_OK);
        let head = CountersHead::from_bytes(&body).unwrap();
        let counters = body[CountersHead::BYTES..].chunks_exact(Counter::BYTES);
        assert_eq!(counters.len(), COUNTERS_PER_REPLY as usize);
        for counter in counters.take(head.count as usize).filter_map(Counter::from_bytes) {
            let name = counter.name_bytes();
            let name = name_in(&name).expect("a plain name").to_owned();
            assert_eq!(all.insert(name, counter.value), None, "no name twice");
        }
        number += head.count;
        if number == head.total {
            return all;
        }
        assert!(head.count > 0, "a short answer before the end");
    }
}

/// Opens any port with its memory at `base`.
pub fn open_port(nic: &mut Alone<Ultra>, slices: u32, base: u64, fifo_words: u32) -> u32 {
    let (status, body, _) = control(nic, Time::ZERO, &open_request(slices, base, fifo_words));
    assert_eq!(status, 0);
    PortOpened::from_bytes(&body).unwrap().port
}

/// A burst with these payload words and tag.
pub fn store(port: u32, payload: &[u64], tag: [u64; 2], flags: u16) -> PageStore {
    let is_set = |flag: u16| flags & flag != 0;
    let code = Code {
        payload_words: payload.len(),
        notify: is_set(CODE_NOTIFY),
        interrupt: is_set(CODE_INTERRUPT),
        acknowledge: is_set(CODE_ACKNOWLEDGE),
    };
    let mut words = [0xdead_beef; 10];
    words[8 - payload.len()..8].copy_from_slice(payload);
    words[8..].copy_from_slice(&tag);
    PageStore { port, code: code.encode().unwrap().into(), words }
}

/// Host memory: words by address.
#[derive(Default, Debug)]
pub struct HostMemory(BTreeMap<u64, u64>);

impl HostMemory {
    pub fn write(&mut self, address: u64, words: &[u64]) {
        for (place, word) in words.iter().enumerate() {
            self.0.insert(address + 8 * place as u64, *word);
        }
    }

    pub fn read(&self, address: u64) -> u64 {
        self.0.get(&address).copied().unwrap_or(0)
    }

    /// Status, payload and tag of slice `place` of a queue whose first slice is at `slices_address`. None before the
    /// first write.
    pub fn slice(&self, slices_address: u64, place: u64) -> Option<(SliceStatus, Vec<u64>, [u64; 2])> {
        let word = |i: usize| self.read(slices_address + place * SLICE_BYTES + 8 * i as u64);
        let status = SliceStatus::decode(word(SLICE_STATUS_WORD))?;
        let payload = (8 - usize::from(status.words)..8).map(word).collect();
        assert_eq!(SLICE_WORDS, 11);
        Some((status, payload, [word(8), word(9)]))
    }

    pub fn status_line(&self, address: u64) -> [u64; 6] {
        core::array::from_fn(|i| self.read(address + 8 * i as u64))
    }
}
