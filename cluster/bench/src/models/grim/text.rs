//! The figures as tables, for docs/reference/figures/grim.txt.

use niclab_cluster::output::table;

use super::{
    BURSTS, CHANNEL_COUNTS, CHANNEL_PAYLOAD, CHANNELS, GrimFigures, LONGEST, MTU_BYTES, PROFILES, SIZES,
    claims,
};
use crate::figures::compared;

/// All of it.
pub(super) fn text(figures: &GrimFigures) -> String {
    let mut text = format!(
        "GRIM in the simulator; all times are model time. Links of 1.28 Gb/s (lanai4-pci) and 100 Gb/s (pcie4-100g), frames of at\n\
         most {MTU_BYTES} bytes, {CHANNELS} channels where nothing else is said, header rings of 256 messages, 1 MB on the card.\n\
         \n\
         Section 6 beside profile lanai4-pci.\n\n"
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
    *text += "\nGap: time from one launch of a burst to the next, on average, us. Up to the header ring's 256 messages the host alone\n\
         counts; then the card, whose one processor sends, looks for the next and takes an acknowledgement for each message.\n\n";
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
        "\nLatency of a short message over channels (figure 6), us: means over the processor's round, payload regions of\n\
         {CHANNEL_PAYLOAD} bytes, so that 64 channels fit. The paper has a drawing alone; what a look takes is in no source.\n\n"
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
    *text += "\nA host and the I/O card of another node (section 6.3), which sends each message back. From card to card a message crosses\n\
         the bus as payload and header; no host does anything there. The paper has the way there alone, and the profile takes the\n\
         I/O card to be as slow sending as receiving: the other columns follow from that.\n\n";
    let mut rows = heading(&["", "there (us)", "back (us)", "48 KiB, round trips (MB/s)"]);
    for card in &figures.io_card {
        let (there, back) = (us(card.model_latency_ps), us(card.back_model_latency_ps));
        rows.push(vec![card.profile.to_owned(), there, back, megabytes(card.model_bytes_per_s)]);
    }
    *text += &table(&rows);
}

fn sizes(text: &mut String, figures: &GrimFigures) {
    *text += "\nBandwidth over size (figure 7), MB/s: payload over half of a round trip. Cut-through: a segment of 32 bytes, then twice\n\
         as many each time; store-and-forward: the whole message is pushed first. Of pcie4-100g nobody has published numbers.\n\n";
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
        "\nWhat else would have to act on lanai4-pci. None of it is in the paper's text.\n\n\
         The gap of 20 us is more than the way of a message, and three times what firmware that takes 13 us for that way needs:\n\
         * a frame that waits for the acknowledgement of the one before (window_frames = 1): {} us in a burst of 2,000;\n\
         * a receiving program that takes 20 us for a message, and card memory for 312 where it has 1 MB, so that frames are\n\
         \x20 refused and go again: {} us. That sets in late, as the paper's gap does, which grows from 200 to 1,000: first both\n\
         \x20 memories and the program's queue of 64 fill.\n\n\
         Bandwidth of {LONGEST} bytes: 461 us are stores at 106.7 MB/s. Cut-through then waits for the last segment, a third of the\n\
         message (of other lengths up to half of it, hence the dips), on wire and remote bus; stored whole, all of it waits:\n\
         * combined stores at 125 MB/s, DMA in bursts of a frame, firmware that takes no time: {} and {} MB/s. So no round trip\n\
         \x20 of single messages of this length has 74 MB/s if it is stored whole;\n\
         * messages that overlap, as fragments would that are stored one by one, here a stream of 16 KiB: {} and {} MB/s.\n",
        us(assumed.one_frame_gap_ps),
        us(assumed.slow_receiver_gap_ps),
        megabytes(cut_through),
        megabytes(stored),
        megabytes(stream),
        megabytes(stored_stream),
    );
}
