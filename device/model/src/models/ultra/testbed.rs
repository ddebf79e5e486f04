//! The profile of the platform on which the ULTRA paper measured (its sections 3 and 4).

use crate::platform::profile::{
    BusPrices, HostPrices, MachineCycles, Machines, NetworkPrices, NiPrices, Passing, Price, Profile,
};

impl Profile {
    /// The testbed of the paper: Virtex 4 at 200 MHz on an HTX slot.
    ///
    /// The cycles of the four state machines of the card are counted from the paper's text; `profiles/htx-200mhz.toml`
    /// has the source of each state. No cycle is fitted: each table access and each word is a state of one cycle. The
    /// machines are cut-through: each one passes a word on before the rest of the packet has arrived.
    pub fn ultra_200mhz_htx() -> Self {
        /// A machine with these numbers of states before a packet's first word and after its last one.
        const fn states(before: u64, after: u64) -> MachineCycles {
            MachineCycles {
                fixed_millicycles: 1_000 * before,
                per_word_millicycles: 1_000,
                closing_millicycles: 1_000 * after,
            }
        }
        let fitted = Self::ultra_200mhz_htx_fitted();
        let machines = Machines::from_iter([
            // Before: decode the page offset. After: update Pointer Memory.
            ("load", states(1, 1)),
            // Before: descriptor table look-up, routing frame, header. After: update Pointer Memory.
            ("transmit", states(3, 1)),
            // Before: routing frame, header, authorization table. After: update Pointer Memory and Size Memory.
            ("receive", states(3, 1)),
            // Before: read Pointer Memory and Size Memory. After: write the status word.
            ("store", states(1, 1)),
        ]);
        Self { ni: NiPrices { machines, passing: Passing::CutThrough, ..fitted.ni }, ..fitted }
    }

    /// The same testbed with store-and-forward machines: each machine processes a whole packet before the next begins.
    ///
    /// Fitted: the cycles of the four machines, for a packet of n words. The paper gives only the total latency and the
    /// bandwidth, which the slowest machine determines. The total is 23 cycles at 2 words and 76 at 10 (115 ns and
    /// 380 ns), which gives 9.75 + 6.625 n. The slowest machine takes 9.85 cycles at 2 words (325 MB/s) and less than
    /// 22.8 at 10 ("exceeds 700 MByte/s"). 6.85 + 1.5 n fits both, with 732 MB/s at 10 words. The paper does not say
    /// which machine is the slowest. Assumed: it is the transmit machine, which also sends routing frame and header.
    pub fn ultra_200mhz_htx_fitted() -> Self {
        // Section 4: "latencies of 11 cycles when receiving and 7 cycles when sending data towards the host".
        const HT_CORE_IN_PS: u64 = 11 * 5_000;
        /// Section 4, the sentence above.
        const HT_CORE_OUT_PS: u64 = 7 * 5_000;
        // A 16-bit HyperTransport link at 400 MHz, double data rate, moves 1.6 GB/s (the paper's reference 20). A word
        // takes 5 ns, and each burst has one word of header. Sections 3.3 and 3.4: a message is one burst each way.
        const HT_WORD_PS: u64 = 5_000;
        /// Section 3.3: a message is one burst.
        const ONE_BURST_BYTES: u64 = 128;
        // From the host to the card.
        const INWARD: Price = Price {
            latency_ps: HT_CORE_IN_PS,
            fixed_ps: HT_WORD_PS,
            per_word_ps: HT_WORD_PS,
            burst_bytes: ONE_BURST_BYTES,
        };
        // From the card to the host.
        const OUTWARD: Price = Price { latency_ps: HT_CORE_OUT_PS, ..INWARD };
        const ROUND_TRIP: Price = Price { latency_ps: HT_CORE_IN_PS + HT_CORE_OUT_PS, ..INWARD };
        // Section 4: 300 ns for the round trip "including the software layer". What the latencies of the HyperTransport
        // core do not explain is software, half of it for sending and half for receiving.
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
                // Assumed: one channel of DDR-400, 3.2 GB/s; a copy reads and writes each byte.
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
                // Section 3: state machines do all the work, and FIFO RAMs inside the FPGA buffer packets in flight.
                // So the card has no local bus to price.
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

    /// The time that each machine takes for a packet of `words`, in the order in which a packet passes them.
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
