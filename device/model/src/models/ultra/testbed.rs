//! The platform that the paper measured on (sections 3 and 4), in numbers.

use crate::platform::profile::{
    BusPrices, HostPrices, MachineCycles, Machines, NetworkPrices, NiPrices, Passing, Price, Profile,
};

impl Profile {
    /// The testbed of the paper: Virtex 4 at 200 MHz on an HTX slot.
    ///
    /// The cycles of the four machines are counted from the paper's text, as `profiles/htx-200mhz.toml` explains state
    /// by state. Nothing is fitted: each table access and each word is a state of one cycle. The machines cut through.
    pub fn ultra_200mhz_htx() -> Self {
        const fn states(before: u64, behind: u64) -> MachineCycles {
            MachineCycles {
                fixed_millicycles: 1_000 * before,
                per_word_millicycles: 1_000,
                closing_millicycles: 1_000 * behind,
            }
        }
        let fitted = Self::ultra_200mhz_htx_fitted();
        let machines = Machines::from_iter([
            // The page offset is decoded; Pointer Memory.
            ("load", states(1, 1)),
            // Look-up, routing frame, header; Pointer Memory.
            ("transmit", states(3, 1)),
            // Routing frame, header, authorization table; Pointer Memory and Size Memory.
            ("receive", states(3, 1)),
            // Pointer Memory and Size Memory; the status word.
            ("store", states(1, 1)),
        ]);
        Self { ni: NiPrices { machines, passing: Passing::CutThrough, ..fitted.ni }, ..fitted }
    }

    /// The same with machines that store and forward packets.
    ///
    /// Fitted: the cycles of the four machines. The paper gives only their sum and the slowest one. The sum is 23
    /// cycles at 2 words and 76 at 10 (115 ns, 380 ns: 9.75 + 6.625 n cycles). The slowest takes 9.85 cycles at 2 words
    /// (325 MB/s) and less than 22.8 at 10 ("exceeds 700 MByte/s"): 6.85 + 1.5 n, which gives 732 MB/s. The paper does
    /// not say which machine is the slowest. Assumed: it is TX, which also sends routing and header.
    pub fn ultra_200mhz_htx_fitted() -> Self {
        // Section 4: "latencies of 11 cycles when receiving and 7 cycles when sending data towards the host".
        const HT_CORE_IN_PS: u64 = 11 * 5_000;
        /// Section 4.
        const HT_CORE_OUT_PS: u64 = 7 * 5_000;
        // A 16-bit HyperTransport link at 400 MHz, double data rate, moves 1.6 GB/s (the paper's reference 20). A word
        // takes 5 ns, and each burst has one word of header. Sections 3.3 and 3.4: a message is one burst each way.
        const HT_WORD_PS: u64 = 5_000;
        /// Section 3.3.
        const ONE_BURST_BYTES: u64 = 128;
        const INWARD: Price = Price {
            latency_ps: HT_CORE_IN_PS,
            fixed_ps: HT_WORD_PS,
            per_word_ps: HT_WORD_PS,
            burst_bytes: ONE_BURST_BYTES,
        };
        const OUTWARD: Price = Price { latency_ps: HT_CORE_OUT_PS, ..INWARD };
        const ROUND_TRIP: Price = Price { latency_ps: HT_CORE_IN_PS + HT_CORE_OUT_PS, ..INWARD };
        // Section 4: 300 ns for the round trip "including the software layer". The part that the core does not explain
        // is halved.
        const SOFTWARE_PS: u64 = (300_000 - HT_CORE_IN_PS - HT_CORE_OUT_PS) / 2;

        const fn cycles(fixed_millicycles: u64, per_word_millicycles: u64) -> MachineCycles {
            MachineCycles { fixed_millicycles, per_word_millicycles, closing_millicycles: 0 }
        }
        Self {
            host: HostPrices {
                send_ps: SOFTWARE_PS,
                receive_ps: SOFTWARE_PS,
                // Assumed: 2 us. The paper rules interrupts out as "very time consuming".
                interrupt_ps: 2_000_000,
                // Assumed: one channel of DDR-400, 3.2 GB/s, read and written.
                copy_per_byte_ps: 625,
            },
            bus: BusPrices {
                full_duplex: true,
                pio_write: INWARD,
                pio_write_uncombined: INWARD.word_by_word(),
                pio_read: ROUND_TRIP,
                doorbell: INWARD,
                dma_write: OUTWARD,
                dma_read: ROUND_TRIP,
                descriptor_fetch: ROUND_TRIP,
                descriptor_write_back: OUTWARD,
                device_to_device: OUTWARD,
                interrupt_ps: HT_CORE_OUT_PS,
            },
            ni: NiPrices {
                clock_ps: 5_000,
                // Section 3: state machines do everything, and FIFO RAMs inside the FPGA buffer packets in flight.
                machines: Machines::from_iter([
                    ("load", cycles(1_000, 1_625)),
                    ("transmit", cycles(6_850, 1_500)),
                    ("receive", cycles(950, 1_750)),
                    ("store", cycles(950, 1_750)),
                ]),
                passing: Passing::StoreAndForward,
                local_bus: Price::FREE,
            },
            // Section 2: "the fall-through latency of an ATOLL switch is about 90ns".
            network: NetworkPrices { switch_fall_through_ps: 90_000 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::profile::WORD_BYTES;

    /// The machines in their order, for a packet of `words`.
    fn stages_ps(words: u64) -> [u64; 4] {
        let ni = Profile::ultra_200mhz_htx_fitted().ni;
        ["load", "transmit", "receive", "store"]
            .map(|machine| ni.span(ni.machines.get(machine), words).as_ps())
    }

    #[test]
    fn fitted_cycles_sum_to_the_papers_latencies() {
        assert_eq!(stages_ps(2).iter().sum::<u64>(), 115_000);
        assert_eq!(stages_ps(10).iter().sum::<u64>(), 380_000);
    }

    #[test]
    fn fitted_cycles_bound_the_papers_bandwidths() {
        let bytes_per_s = |words: u64| {
            let slowest_ps = *stages_ps(words).iter().max().unwrap();
            words * WORD_BYTES * 1_000_000_000_000 / slowest_ps
        };
        assert!(bytes_per_s(2).abs_diff(325_000_000) < 3_250_000);
        assert!(bytes_per_s(10) > 700_000_000);
    }
}
