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
use niclab_model::ultra;
use niclab_spec::{DeviceFaultRate, FlowControl, Unauthorized};

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
