//! The figures as tables, for docs/reference/figures/grim.txt.

use niclab_cluster::output::table;

use super::{
    BURSTS, CHANNEL_COUNTS, CHANNEL_PAYLOAD, CHANNELS, GrimFigures, LONGEST, MTU_BYTES, PROFILES, SIZES,
    claims,
};
use crate::figures::compared;

/// All tables.
pub(super) fn text(figures: &GrimFigures) -> String {
    let mut text = format!(
        "GRIM in the simulator; all times are model time. Links of 1.28 Gb/s (lanai4-pci) and 100 Gb/s (pcie4-100g),\n\
         frames of at most {MTU_BYTES} bytes, {CHANNELS} channels by default, header rings of 256 messages, 1 MB on\n\
         the card.\n\
         \n\
         Section 6 compared with profile lanai4-pci.\n\n"
    );
    text += &compared::text(&claims::compared(figures));
    bursts(&mut text, figures);
    channels(&mut text, figures);
    io_cards(&mut text, figures);
    sizes(&mut text, figures);
    assumed(&mut text, figures);
    text
}

fn heading(names: &[&str]) -> Vec<Vec<String>> {
    vec![names.iter().map(|name| (*name).to_owned()).collect()]
}

fn us(ps: u64) -> String {
    format!("{:.2}", ps as f64 / 1e6)
}

fn megabytes(bytes_per_s: u64) -> String {
    format!("{:.1}", bytes_per_s as f64 / 1e6)
}

fn bursts(text: &mut String, figures: &GrimFigures) {
    *text += "\nGap: average time from one post of a burst to the next, us. Up to the header ring's 256 messages only\n\
              the host counts; then the card's one processor counts, which sends, scans for the next message and\n\
              processes an acknowledgement for each message.\n\n";
    let mut rows = heading(&["messages", PROFILES[0], PROFILES[1]]);
    for messages in BURSTS {
        let mut row = vec![messages.to_string()];
        row.extend(PROFILES.map(|profile| us(figures.gap_ps(profile, messages))));
        rows.push(row);
    }
    *text += &table(&rows);
}

fn channels(text: &mut String, figures: &GrimFigures) {
    *text += &format!(
        "\nLatency of a short message over channels (figure 6), us: means over the processor's round, payload regions\n\
         of {CHANNEL_PAYLOAD} bytes, so that 64 channels fit. The paper has only a drawing; no source has the time of\n\
         a scan.\n\n"
    );
    let mut rows = heading(&["channels", PROFILES[0], PROFILES[1]]);
    for channels in CHANNEL_COUNTS {
        let mut row = vec![channels.to_string()];
        row.extend(PROFILES.map(|profile| us(figures.latency_ps(profile, channels))));
        rows.push(row);
    }
    *text += &table(&rows);
}

fn io_cards(text: &mut String, figures: &GrimFigures) {
    *text += "\nA host and the I/O card of another node (section 6.3), which sends each message back. From card to\n\
              card a message crosses the bus as payload and header, and no host is involved. The paper has only the\n\
              time to the card, and the profile assumes that the I/O card sends as slowly as it receives: the\n\
              other columns follow from that.\n\n";
    let mut rows = heading(&["", "there (us)", "back (us)", "48 KiB, round trips (MB/s)"]);
    for card in &figures.io_card {
        let (there, back) = (us(card.model_latency_ps), us(card.back_model_latency_ps));
        rows.push(vec![card.profile.to_owned(), there, back, megabytes(card.model_bytes_per_s)]);
    }
    *text += &table(&rows);
}

fn sizes(text: &mut String, figures: &GrimFigures) {
    *text += "\nBandwidth over size (figure 7), MB/s: payload over half of a round trip. Cut-through: a segment of 32\n\
              bytes, then twice as many each time; store-and-forward: the complete message is pushed first. There are\n\
              no published numbers for pcie4-100g.\n\n";
    let mut rows = heading(&["message bytes"]);
    for profile in PROFILES {
        rows[0].extend(["cut-through", "stored"].map(|what| format!("{profile}: {what}")));
    }
    for bytes in SIZES {
        let mut row = vec![bytes.to_string()];
        for profile in PROFILES {
            let size = figures.sizes.iter().find(|size| (size.profile, size.bytes) == (profile, bytes));
            row.extend(
                size.map_or([0; 2], |size| {
                    [size.cut_through_model_bytes_per_s, size.stored_model_bytes_per_s]
                })
                .map(megabytes),
            );
        }
        rows.push(row);
    }
    *text += &table(&rows);
}

fn assumed(text: &mut String, figures: &GrimFigures) {
    let assumed = &figures.assumed;
    let [cut_through, stored] = assumed.free_model_bytes_per_s;
    let [stream, stored_stream] = assumed.stream_model_bytes_per_s;
    *text += &format!(
        "\nAssumptions that would explain the paper's numbers on lanai4-pci. None of them is in the paper's text.\n\n\
         The gap of 20 us is longer than a message's latency, and three times the time of firmware with that latency\n\
         of 13 us:\n\
         * each frame waits for the acknowledgement of the previous one (window_frames = 1): {} us in a burst of\n\
         \x20 2,000;\n\
         * the receiving program takes 20 us per message, and the card has memory for 312 messages instead of 1 MB,\n\
         \x20 so frames are refused and retransmitted: {} us. This begins late, like the paper's gap, which grows\n\
         \x20 from 200 to 1,000: first both memories and the program's queue of 64 fill up.\n\n\
         Bandwidth of {LONGEST} bytes: the stores take 461 us at 106.7 MB/s. With cut-through, the last segment then\n\
         still needs the wire and the remote bus. It is a third of the message, and up to half of messages of other\n\
         lengths, which causes the dips. If stored completely, the whole message needs them:\n\
         * combined stores at 125 MB/s, DMA in bursts of a frame, firmware without delay: {} and {} MB/s. So no round\n\
         \x20 trip of single messages of this length reaches 74 MB/s if they are stored completely;\n\
         * overlapping messages, like fragments that are stored one by one, here a stream of 16 KiB: {} and {} MB/s.\n",
        us(assumed.one_frame_gap_ps),
        us(assumed.slow_receiver_gap_ps),
        megabytes(cut_through),
        megabytes(stored),
        megabytes(stream),
        megabytes(stored_stream),
    );
}
