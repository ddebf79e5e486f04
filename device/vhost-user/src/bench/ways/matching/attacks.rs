//! Attacks of a guest whose card has lists.

use std::sync::Arc;

use niclab_abi::PAGE_BYTES;
use niclab_abi::config::FEATURE_LISTS;
use niclab_abi::region::Extent;
use niclab_port::Address;
use niclab_port::matching::{Append, Part, Put, Target};

use crate::bench::BenchError;
use crate::bench::hostile::{Attack, Scene};
use crate::frontend::matching::ListPort;
use crate::frontend::{ClusterGuest, FrontendError};

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "entries appended and the port closed",
        features: FEATURE_LISTS,
        parameters: &[],
        run: closed_lists,
    },
    Attack {
        name: "a long list searched by empty puts",
        features: FEATURE_LISTS,
        parameters: &[],
        run: searched_lists,
    },
    Attack { name: "puts of 16 MiB without end", features: FEATURE_LISTS, parameters: &[], run: long_puts },
    Attack {
        name: "puts out of short extents",
        features: FEATURE_LISTS,
        parameters: &[],
        run: short_extents,
    },
    Attack { name: "regions registered without end", features: FEATURE_LISTS, parameters: &[], run: regions },
];

/// Entries of a long list: more than the maximum of a card.
const MANY_ENTRIES: u32 = 1 << 18;

/// A guest of a card with lists, with an open port, and a region of its memory.
fn match_port(
    scene: &Scene<'_>,
    node: usize,
    bytes: u64,
) -> Result<(Arc<ClusterGuest>, ListPort, u32), BenchError> {
    let guest = Arc::new(ClusterGuest::connect(scene.lab.cluster_socket(node)?, bytes + (4 << 20))?);
    let port = ListPort::open(&guest, 256)?;
    let address = guest.memory().allocate(bytes, PAGE_BYTES)?;
    let region = port.register(address, bytes)?;
    Ok((guest, port, region))
}

/// The target of puts to this port of node 1.
const fn first_portal(port: &ListPort) -> Target {
    Target { port: Address { node: 1, port: port.port().number() }, portal: 0 }
}

/// Appends `entries` entries, and calls `on_appended` after each.
fn append(
    scene: &Scene<'_>,
    port: &mut ListPort,
    entry: &Append<Part>,
    entries: u32,
    on_appended: impl Fn(),
) {
    let mut appended = 0;
    while scene.goes_on() && appended < entries {
        match port.try_launch(entry) {
            Some(_) => {
                appended += 1;
                on_appended();
            }
            None => port.announce(),
        }
        while port.try_event().is_some() {}
    }
    port.announce();
}

fn closed_lists(scene: &Scene<'_>) -> Result<(), BenchError> {
    while scene.goes_on() {
        let (_guest, mut port, region) = match_port(scene, 0, PAGE_BYTES)?;
        let entry = Append::put(0, Part { region, offset: 0, bytes: 64 }).persistent();
        append(scene, &mut port, &entry, MANY_ENTRIES / 8, || scene.count(1));
        port.close()?;
    }
    Ok(())
}

fn searched_lists(scene: &Scene<'_>) -> Result<(), BenchError> {
    let (_target_guest, mut target, region) = match_port(scene, 1, PAGE_BYTES)?;
    let (_guest, mut from, own) = match_port(scene, 0, PAGE_BYTES)?;
    // No put has these match bits.
    let entry = Append::put(0, Part { region, offset: 0, bytes: 64 }).persistent().match_bits(7, 0);
    append(scene, &mut target, &entry, MANY_ENTRIES, || scene.count(1));
    let put = Put::new(first_portal(&target), Part { region: own, offset: 0, bytes: 0 });
    while scene.goes_on() {
        match from.try_launch(&put) {
            Some(_) => scene.count(1),
            None => from.announce(),
        }
        while from.try_event().is_some() {}
    }
    Ok(())
}

/// Puts of `bytes` from a region of node 0 to an entry of node 1 that takes all of them.
fn puts(
    scene: &Scene<'_>,
    region: impl Fn(&ListPort, u64) -> Result<u32, FrontendError>,
    bytes: u64,
) -> Result<(), BenchError> {
    let (_target_guest, mut target, target_region) = match_port(scene, 1, bytes)?;
    let memory = Part { region: target_region, offset: 0, bytes };
    append(scene, &mut target, &Append::put(0, memory).persistent().remote_offset(), 1, || ());
    let guest = Arc::new(ClusterGuest::connect(scene.lab.cluster_socket(0)?, bytes + (4 << 20))?);
    let mut from = ListPort::open(&guest, 256)?;
    let address = guest.memory().allocate(bytes, PAGE_BYTES)?;
    let region = match region(&from, address) {
        Ok(region) => region,
        // The card refuses the region, as it should. So the attack only repeats the request.
        Err(FrontendError::Refused { .. }) => return ask_again(scene, || region(&from, address)),
        Err(error) => return Err(error.into()),
    };
    let put = Put::new(first_portal(&target), Part { region, offset: 0, bytes });
    while scene.goes_on() {
        match from.try_launch(&put) {
            Some(_) => scene.count(1),
            None => from.announce(),
        }
        while from.try_event().is_some() || target.try_event().is_some() {}
    }
    Ok(())
}

fn ask_again(scene: &Scene<'_>, ask: impl Fn() -> Result<u32, FrontendError>) -> Result<(), BenchError> {
    while scene.goes_on() {
        match ask() {
            Ok(_) | Err(FrontendError::Refused { .. }) => scene.count(1),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn long_puts(scene: &Scene<'_>) -> Result<(), BenchError> {
    const BYTES: u64 = 16 << 20;
    puts(scene, |port, address| port.register(address, BYTES), BYTES)
}

fn short_extents(scene: &Scene<'_>) -> Result<(), BenchError> {
    const BYTES: u64 = 64 << 10;
    // Overlapping extents of one byte, which the card cannot merge.
    let extents =
        |address: u64| (0..BYTES).map(|n| Extent { address: address + n / 2, bytes: 1 }).collect::<Vec<_>>();
    puts(scene, |port, address| port.register_extents(&extents(address)), BYTES)
}

fn regions(scene: &Scene<'_>) -> Result<(), BenchError> {
    let (guest, port, _) = match_port(scene, 0, PAGE_BYTES)?;
    let address = guest.memory().allocate(PAGE_BYTES, PAGE_BYTES)?;
    ask_again(scene, || port.register(address, PAGE_BYTES))
}
