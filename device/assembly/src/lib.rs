//! From plain data to models: the one place where a cluster file's values become parameters of `niclab-model`. The live
//! shell and the simulator both build from here, so that one file means one machine. [`figures`] is the way back, from
//! models to reports.

pub mod figures;

use std::sync::Arc;

use niclab_model::fabric::faults::{Chance, Faults};
use niclab_model::fabric::link::LinkConfig;
use niclab_model::parts::mischief::{Fault, Rate, Rates};
use niclab_model::parts::profile::{
    BusPrices, HostPrices, MachineCycles, NetworkPrices, NiPrices, Price, Profile,
};
use niclab_model::time::Span;
use niclab_model::{matching, ultra};
use niclab_spec::{DeviceFaultRate, FlowControl, Unauthorized};
use thiserror::Error;

/// The parameters of node `number`'s ULTRA card, in a cluster of `nodes` nodes.
pub fn ultra(
    parameters: &niclab_spec::UltraParameters,
    number: u16,
    nodes: u16,
    profile: impl Into<Arc<Profile>>,
) -> ultra::Config {
    ultra::Config {
        requester_fifo_words: parameters.fifo_words_per_port,
        completer_fifo_words: parameters.completer_fifo_words_per_port,
        authorizations: parameters.authorized_partners_per_port,
        unauthorized: match parameters.unauthorized {
            Unauthorized::Discard => ultra::config::Unauthorized::Discard,
            Unauthorized::Interrupt => ultra::config::Unauthorized::Interrupt,
        },
        flow_control: match parameters.flow_control {
            FlowControl::Credit => ultra::config::FlowControl::Credit,
            FlowControl::None => ultra::config::FlowControl::None,
        },
        ..ultra::Config::new(number, nodes.into(), profile)
    }
}

/// The parameters of node `number`'s Match card, in a cluster of `nodes` nodes whose links all carry frames with a payload
/// of `mtu_bytes`.
pub fn matching(
    parameters: &niclab_spec::MatchParameters,
    number: u16,
    nodes: u16,
    mtu_bytes: u32,
    profile: impl Into<Arc<Profile>>,
) -> matching::Config {
    let config = matching::Config::new(number, nodes.into(), profile);
    let first = Span::from_ns(u64::from(parameters.retransmit_us) * 1_000);
    matching::Config {
        mtu_bytes,
        match_entries: parameters.match_entries,
        max_message_bytes: parameters.max_message_bytes,
        window_frames: parameters.window_frames,
        unexpected_messages: parameters.unexpected_messages,
        retransmit_first: first,
        // A wait that is long at first may still double a few times.
        retransmit_most: config.retransmit_most.max(first.times(8)),
        ..config
    }
}

/// The largest payload that every link of these carries.
pub fn least_mtu_bytes<'a>(links: impl IntoIterator<Item = &'a niclab_spec::LinkConfig>) -> u32 {
    let mtus = links.into_iter().map(|link| link.mtu_bytes);
    mtus.min().unwrap_or(niclab_spec::LinkConfig::DEFAULT_MTU_BYTES)
}

/// A card's parameters are those of no card that there can be.
#[derive(Debug, Error)]
pub enum CardError {
    /// ULTRA.
    #[error(transparent)]
    Ultra(#[from] ultra::config::ConfigError),
    /// Match.
    #[error(transparent)]
    Match(#[from] matching::config::ConfigError),
}

/// A link.
pub fn link(link: &niclab_spec::LinkConfig) -> LinkConfig {
    LinkConfig {
        latency: Span::from_ns(link.latency_ns),
        mtu_bytes: link.mtu_bytes,
        queue_frames: link.queue_frames,
        ..LinkConfig::ethernet(link.bandwidth_bits_per_s)
    }
}

/// The faults of a link.
pub fn faults(faults: &niclab_spec::Faults) -> Faults {
    Faults {
        loss: Chance::from_probability(faults.loss),
        duplicate: Chance::from_probability(faults.duplicate),
        corrupt: Chance::from_probability(faults.corrupt),
        reorder: Chance::from_probability(faults.reorder),
        delay: Span::from_ns(faults.delay_ns),
        partition: faults.partition,
        ..Faults::NONE
    }
}

/// What goes wrong in a device.
pub fn device_faults(faults: &niclab_spec::DeviceFaults) -> Rates {
    let named = faults.rates();
    let rate =
        |rate: &DeviceFaultRate<'_>| Rate::new(Chance::from_probability(rate.chance), rate.at.to_vec());
    let of = |fault: Fault| named.iter().find(|rate| rate.key == fault.name()).map(rate);
    Rates { of: Fault::ALL.map(|fault| of(fault).unwrap_or_default()), delay: Span::from_ns(faults.delay_ns) }
}

/// A price of the model from the same price of a profile; a macro, because the specification names no type for it.
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

/// The cycles of a machine, likewise.
macro_rules! machine {
    ($place:expr) => {
        MachineCycles {
            fixed_millicycles: $place.fixed_millicycles.value,
            per_word_millicycles: $place.per_word_millicycles.value,
        }
    };
}

/// The prices of a platform.
pub fn profile(profile: &niclab_spec::Profile) -> Profile {
    let niclab_spec::Profile { host, bus, ni, network, .. } = profile;
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
            interrupt_ps: bus.interrupt_ps.value,
        },
        ni: NiPrices {
            clock_ps: ni.clock_ps.value,
            load: machine!(ni.load),
            transmit: machine!(ni.transmit),
            receive: machine!(ni.receive),
            store: machine!(ni.store),
            processor_send: ni.processor_send.as_ref().map_or(MachineCycles::NONE, |send| machine!(send)),
            processor_receive: ni
                .processor_receive
                .as_ref()
                .map_or(MachineCycles::NONE, |receive| machine!(receive)),
            local_bus: ni.local_bus.as_ref().map_or(Price::FREE, |local_bus| price!(local_bus)),
        },
        network: NetworkPrices { switch_fall_through_ps: network.switch_fall_through_ps.value },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_profile_is_the_models_own() {
        let bundled = niclab_spec::Profile::bundled("ultra-200mhz-htx").unwrap();
        assert_eq!(profile(&bundled), Profile::ultra_200mhz_htx());
    }

    fn link_of_spec() -> niclab_spec::LinkConfig {
        niclab_spec::Source::default().resolve(&niclab_spec::ClusterFile::default()).unwrap().nodes[0].link
    }

    #[test]
    fn a_match_card_is_as_the_cluster_file_says() {
        let links =
            [9_000, 1_200, 1_500].map(|mtu_bytes| niclab_spec::LinkConfig { mtu_bytes, ..link_of_spec() });
        let own = niclab_spec::MatchParameters {
            match_entries: 16,
            max_message_bytes: 17,
            window_frames: 18,
            unexpected_messages: 19,
            retransmit_us: 20_000,
        };
        let config = matching(&own, 1, 3, least_mtu_bytes(&links), Profile::default());
        assert_eq!((config.node, config.nodes, config.mtu_bytes), (1, 3, 1_200));
        assert_eq!((config.match_entries, config.max_message_bytes, config.window_frames), (16, 17, 18));
        assert_eq!((config.unexpected_messages, config.retransmit_first), (19, Span::from_ns(20_000_000)));
        assert_eq!(config.retransmit_most, Span::from_ns(160_000_000));
        assert_eq!(matching::Match::new(config).err(), None);
        let plain = niclab_spec::MatchParameters::default();
        let default = matching(&plain, 0, 2, least_mtu_bytes([]), Profile::default());
        assert_eq!(default, matching::Config::new(0, 2, Profile::default()), "as the model's own");
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
            doubled_interrupt: 1.0,
            ..niclab_spec::DeviceFaults::default()
        };
        let rates = device_faults(&faults);
        let at = |number| Rate::new(Chance::NEVER, vec![number]);
        let always = Rate::new(Chance::ALWAYS, Vec::new());
        assert_eq!(rates.of, [at(1), at(2), at(3), at(4), at(5), always]);
        assert_eq!(rates.delay, Span::from_ns(7));
        assert_eq!(device_faults(&niclab_spec::DeviceFaults::default()).of, Rates::default().of);
    }

    #[test]
    fn what_only_some_platforms_have_comes_from_the_profile_that_names_it() {
        let bundled = niclab_spec::Profile::bundled("htx-200mhz").unwrap();
        let mut own = bundled.clone();
        own.bus.pio_write_uncombined = Some(bundled.bus.doorbell.clone());
        own.ni.local_bus = Some(bundled.bus.dma_read.clone());
        own.ni.processor_send = Some(bundled.ni.load.clone());
        own.ni.processor_receive = Some(bundled.ni.store.clone());
        let (plain, own) = (profile(&bundled), profile(&own));
        assert_eq!(plain.bus.pio_write_uncombined.burst_bytes, 8);
        assert_eq!(own.bus.pio_write_uncombined, plain.bus.doorbell);
        assert_eq!((own.ni.local_bus, plain.ni.local_bus), (plain.bus.dma_read, Price::FREE));
        assert_eq!((own.ni.processor_send, own.ni.processor_receive), (plain.ni.load, plain.ni.store));
    }
}
