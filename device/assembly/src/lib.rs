//! Converts the values of a cluster file to parameters of `niclab-model`. The live shell and the simulator both use
//! this, so one file describes the same machine in both. [`figures`] converts the counters of models to reports.

pub mod figures;

use std::sync::Arc;

use niclab_model::fabric::link::LinkConfig;
use niclab_model::fabric::{Forwarding, Routing};
use niclab_model::nic::fault_injector::{Fault, Rate, Rates};
use niclab_model::nic::host_values::CardLimits;
use niclab_model::nic::registry::{AnyNic, BuildError, CardContext};
use niclab_model::platform::profile::{
    BusPrices, HostPrices, MachineCycles, NetworkPrices, NiPrices, Passing, Price, Profile,
};
use niclab_model::random::Chance;
use niclab_model::time::Span;
use niclab_spec::{DeviceFaultRate, Framing, NicConfig};

/// The card of node `number`, in a cluster of `nodes` nodes whose links all carry frames with a payload of `mtu_bytes`.
///
/// # Errors
/// When the values are not valid for such a card.
pub fn card(
    nic: &NicConfig,
    number: u16,
    nodes: u32,
    mtu_bytes: u32,
    profile: impl Into<Arc<Profile>>,
) -> Result<AnyNic, BuildError> {
    (nic.model.build)(nic.values(), CardContext { node: number, nodes, mtu_bytes, profile: profile.into() })
}

/// The smallest MTU of these links.
pub fn least_mtu_bytes<'a>(links: impl IntoIterator<Item = &'a niclab_spec::LinkConfig>) -> u32 {
    let mtus = links.into_iter().map(|link| link.mtu_bytes);
    mtus.min().unwrap_or(niclab_spec::LinkConfig::DEFAULT_MTU_BYTES)
}

/// A link of a network with this framing.
pub fn link(link: &niclab_spec::LinkConfig, framing: Framing) -> LinkConfig {
    let framed = match framing {
        Framing::Ethernet => LinkConfig::ethernet(link.bandwidth_bits_per_s),
        Framing::Native => LinkConfig::native(link.bandwidth_bits_per_s),
    };
    LinkConfig {
        latency: Span::from_ns(link.latency_ns),
        mtu_bytes: link.mtu_bytes,
        queue_frames: link.queue_frames,
        ..framed
    }
}

/// How the switch of a network with this framing routes frames, in addition to Ethernet addresses.
pub fn routing(framing: Framing) -> Option<Routing> {
    match framing {
        Framing::Ethernet => None,
        Framing::Native => Some(niclab_model::models::routed_to),
    }
}

/// How the switch forwards.
pub const fn forwarding(forwarding: niclab_spec::Forwarding) -> Forwarding {
    match forwarding {
        niclab_spec::Forwarding::CutThrough => Forwarding::CutThrough,
        niclab_spec::Forwarding::StoreAndForward => Forwarding::StoreAndForward,
        // A repeater forwards at once. The simulator decides which frames pass it, and when.
        niclab_spec::Forwarding::Repeater | niclab_spec::Forwarding::RepeaterWithoutCapture => {
            Forwarding::CutThrough
        }
    }
}

/// The limits of the values that a card reports to its host, in a cluster of `nodes` nodes.
pub fn card_limits(nic: &NicConfig, nodes: u32) -> CardLimits {
    CardLimits {
        nodes: nodes.into(),
        ports: nic.model.ports.into(),
        max_message_bytes: nic.limits().max_message_bytes,
    }
}

/// The rates of a device's faults.
pub fn device_faults(faults: &niclab_spec::DeviceFaults) -> Rates {
    let named = faults.rates();
    let rate =
        |rate: &DeviceFaultRate<'_>| Rate::new(Chance::from_probability(rate.chance), rate.at.to_vec());
    let of = |fault: Fault| named.iter().find(|rate| rate.key == fault.name()).map(rate);
    Rates { of: Fault::ALL.map(|fault| of(fault).unwrap_or_default()), delay: Span::from_ns(faults.delay_ns) }
}

/// Converts a price of a profile to a price of the model. A macro, because `niclab-spec` names no type for it.
macro_rules! price {
    ($place:expr) => {
        Price {
            latency_ps: $place.latency_ps.value,
            fixed_ps: $place.fixed_ps.value,
            per_word_ps: $place.per_word_ps.value,
            burst_bytes: $place.burst_bytes.value,
        }
    };
}

/// Converts the cycles of a machine, likewise.
macro_rules! machine {
    ($place:expr) => {
        MachineCycles {
            fixed_millicycles: $place.fixed_millicycles.value,
            per_word_millicycles: $place.per_word_millicycles.value,
            closing_millicycles: $place.closing_millicycles.as_ref().map_or(0, |closing| closing.value),
        }
    };
}

/// The prices of a platform.
pub fn profile(profile: &niclab_spec::Profile) -> Profile {
    let niclab_spec::Profile { host, bus, ni, network, passing, .. } = profile;
    Profile {
        host: HostPrices {
            send_ps: host.send_ps.value,
            receive_ps: host.receive_ps.value,
            interrupt_ps: host.interrupt_ps.value,
            copy_per_byte_ps: host.copy_per_byte_ps.value,
        },
        bus: BusPrices {
            full_duplex: bus.directions.value > 1,
            pio_write: price!(bus.pio_write),
            pio_write_uncombined: match &bus.pio_write_uncombined {
                Some(uncombined) => price!(uncombined),
                None => price!(bus.pio_write).word_by_word(),
            },
            pio_read: price!(bus.pio_read),
            doorbell: price!(bus.doorbell),
            dma_write: price!(bus.dma_write),
            dma_read: price!(bus.dma_read),
            descriptor_fetch: price!(bus.descriptor_fetch),
            descriptor_write_back: price!(bus.descriptor_write_back),
            device_to_device: price!(bus.device_to_device.as_ref().unwrap_or(&bus.dma_write)),
            interrupt_ps: bus.interrupt_ps.value,
        },
        ni: NiPrices {
            clock_ps: ni.clock_ps.value,
            machines: ni.all_machines().map(|(name, _, cycles)| (name, machine!(cycles))).collect(),
            passing: match passing {
                niclab_spec::Passing::StoreAndForward => Passing::StoreAndForward,
                niclab_spec::Passing::CutThrough => Passing::CutThrough,
            },
            local_bus: ni.local_bus.as_ref().map_or(Price::FREE, |local_bus| price!(local_bus)),
        },
        network: NetworkPrices { switch_fall_through_ps: network.switch_fall_through_ps.value },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_profiles_equal_the_models_own_prices() {
        for (name, own) in [
            ("ultra-200mhz-htx", Profile::ultra_200mhz_htx()),
            ("htx-200mhz-fitted", Profile::ultra_200mhz_htx_fitted()),
        ] {
            assert_eq!(profile(&niclab_spec::Profile::bundled(name).unwrap()), own, "{name}");
        }
    }

    #[test]
    fn least_mtu_is_the_smallest_of_all_links() {
        let link =
            niclab_spec::Source::default().resolve(&niclab_spec::ClusterFile::default()).unwrap().nodes[0]
                .link;
        let links = [9_000, 1_200, 1_500].map(|mtu_bytes| niclab_spec::LinkConfig { mtu_bytes, ..link });
        assert_eq!((least_mtu_bytes(&links), least_mtu_bytes([])), (1_200, 1_500));
    }

    #[test]
    fn error_names_the_invalid_value_of_a_card() {
        let mut nic = NicConfig::default();
        assert!(card(&nic, 0, 2, 1_500, Profile::default()).is_ok());
        let error = card(&nic, 2, 2, 1_500, Profile::default()).err().unwrap().to_string();
        assert!(error.contains("node 2"), "{error}");
        nic.set("fifo_words_per_port", niclab_spec::Value::Numbers(vec![1; 8])).unwrap();
        let error = card(&nic, 0, 2, 1_500, Profile::default()).err().unwrap().to_string();
        assert!(error.contains("FIFO"), "{error}");
    }

    #[test]
    fn every_device_fault_has_a_key_of_its_own() {
        let faults = niclab_spec::DeviceFaults {
            stale_at: vec![1],
            short_at: vec![2],
            bad_status_at: vec![3],
            delay_at: vec![4],
            delay_ns: 7,
            lost_interrupt_at: vec![5],
            duplicated_interrupt: 1.0,
            invalid_value_at: vec![6],
            ..niclab_spec::DeviceFaults::default()
        };
        let rates = device_faults(&faults);
        let at = |number| Rate::new(Chance::NEVER, vec![number]);
        let always = Rate::new(Chance::ALWAYS, Vec::new());
        assert_eq!(rates.of, [at(1), at(2), at(3), at(4), at(5), always, at(6)]);
        assert_eq!(rates.delay, Span::from_ns(7));
        assert_eq!(device_faults(&niclab_spec::DeviceFaults::default()).of, Rates::default().of);
    }

    #[test]
    fn optional_prices_default_to_related_prices() {
        let bundled = niclab_spec::Profile::bundled("htx-200mhz").unwrap();
        let mut own = bundled.clone();
        own.bus.pio_write_uncombined = Some(bundled.bus.doorbell.clone());
        own.bus.device_to_device = Some(bundled.bus.dma_read.clone());
        own.ni.local_bus = Some(bundled.bus.dma_read.clone());
        let store = bundled.ni.machines["store"].clone();
        own.ni.machines.insert("scan_channels".to_owned(), store);
        let (plain, own) = (profile(&bundled), profile(&own));
        assert_eq!(plain.bus.pio_write_uncombined.burst_bytes, 8);
        assert_eq!(own.bus.pio_write_uncombined, plain.bus.doorbell);
        assert_eq!(plain.bus.device_to_device, plain.bus.dma_write);
        assert_eq!(own.bus.device_to_device, plain.bus.dma_read);
        assert_eq!((own.ni.local_bus, plain.ni.local_bus), (plain.bus.dma_read, Price::FREE));
        assert_eq!(own.ni.machines.get("scan_channels"), plain.ni.machines.get("store"));
        assert!(!plain.ni.machines.has("scan_channels"));
    }
}
