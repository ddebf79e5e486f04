//! The paper's numbers and statements, next to the model's. Its figures 2 and 3 are drawings, so the numbers are from
//! its text.

use super::{
    DRIVEN, DRIVEN_PAPER, GammaFigures, NODES, PAPER_BIT_ERRORS, PLATFORMS, SIZES, frame_errors, rate,
};
use crate::figures::compared::{Compared, Published};

const SOFTWARE: &str = "send_ps, receive_ps";
const COPY: &str = "copy_per_byte_ps";
const DRIVEN_SOFTWARE: &str = "send_ps, receive_ps of the 3C595's driver";

/// The paper's arithmetic for windows: of 1,024 buffers, each partner may fill [`WINDOW`].
const BUFFERS: u32 = 1_024;
const WINDOW: u32 = 8;

fn us(ps: u64) -> f64 {
    ps as f64 / 1e6
}

/// All rows.
pub(super) fn compared(figures: &GammaFigures) -> Vec<Compared> {
    let mut rows: Vec<Compared> = PLATFORMS.iter().map(|of| shortest(figures, of)).collect();
    for (profile, _) in PLATFORMS {
        rows.extend(windows(figures, profile));
    }
    rows.extend(driven(figures));
    rows.extend(reliability(figures));
    rows.extend(figures.tcp.compared());
    rows
}

fn shortest(figures: &GammaFigures, (profile, paper): &(&'static str, f64)) -> Compared {
    let ours = us(figures.one_way_ps(profile, 0, SIZES[0]));
    let what = format!("{profile}: shortest message");
    Compared::new("section 5", what, "us", Published::number(*paper)).ours(ours, 2).fitted(SOFTWARE)
}

/// Windows limit long messages by the round trip: the loss of throughput of the longest message for each window.
fn windows(figures: &GammaFigures, profile: &str) -> Vec<Compared> {
    let longest = SIZES[SIZES.len() - 1];
    let whole = rate(longest, figures.one_way_ps(profile, 0, longest)) as f64 / 1e6;
    let [four, eight, thirty_two] = [4, 8, 32].map(|window| figures.lost_permille(profile, window));
    let taken = |window, said, agrees, permille: u64| {
        let what = format!("{profile}: reduction by a window of {window}");
        Compared::new("section 5", what, "%", Published::words(said, agrees)).ours(permille as f64 / 10.0, 1)
    };
    vec![
        Compared::new(
            "section 5",
            format!("{profile}: 32 KiB without flow control"),
            "MB/s",
            Published::Below(DRIVEN_PAPER.1),
        )
        .ours(whole, 1)
        .assumed(COPY),
        taken(4, "substantial", four > eight, four),
        taken(8, "limited", eight > thirty_two, eight),
        taken(32, "hardly noticeable", thirty_two < 30, thirty_two),
    ]
}

/// The earlier card, whose transfers the processors drive.
fn driven(figures: &GammaFigures) -> Vec<Compared> {
    let (paper_us, paper_rate) = DRIVEN_PAPER;
    let [slow, quick] = DRIVEN.map(|profile| us(figures.one_way_ps(profile, 0, SIZES[0])));
    let [of_slow, of_quick] = [0, 1].map(|place| figures.of_driven_permille(place) as f64 / 10.0);
    let insensitive = Published::words("hardly less", figures.does_a_quick_processor_hardly_help());
    let shortest = |profile: &str| format!("{profile}: shortest message");
    let full = |of: &str| format!("throughput of a full frame, descriptors over CPU-driven: {of}");
    let mut rows = vec![
        Compared::new("section 1", shortest(DRIVEN[0]), "us", Published::number(paper_us))
            .ours(slow, 2)
            .fitted(DRIVEN_SOFTWARE),
        Compared::new("section 5", shortest(DRIVEN[1]), "us", insensitive)
            .ours(quick, 2)
            .follows(DRIVEN_SOFTWARE),
        Compared::new("section 5", full("Pentium 133"), "%", Published::words("less", of_slow < 100.0))
            .ours(of_slow, 1)
            .assumed(COPY),
        Compared::new(
            "section 5",
            full("Pentium II 350"),
            "%",
            Published::words("much nearer", of_slow < of_quick),
        )
        .ours(of_quick, 1)
        .assumed(COPY),
    ];
    rows.extend(DRIVEN.map(|profile| {
        Compared::new("section 1", format!("{profile}: 1 MiB"), "MB/s", Published::number(paper_rate))
            .ours(figures.long_rate(profile), 2)
    }));
    rows.push(
        Compared::new(
            "section 5",
            "the copy's share of a full frame, on the quicker processor",
            "",
            Published::words("less", figures.does_the_copy_diminish()),
        )
        .assumed(COPY),
    );
    rows
}

/// Section 3: no receive buffer overflows, so frames are lost only by bit errors.
fn reliability(figures: &GammaFigures) -> Vec<Compared> {
    let partners = NODES - 1;
    let left = BUFFERS - partners * WINDOW - partners;
    let missed: u64 =
        figures.crowds.iter().filter(|crowd| crowd.window > 0).map(|crowd| crowd.missed_frames).sum();
    let is_whole = figures.crowds.iter().filter(|crowd| crowd.window > 0).all(super::Crowd::is_whole);
    vec![
        Compared::new(
            "section 3",
            "buffers of 1,024 left for IP with 100 nodes and windows of 8",
            "",
            Published::number(133.0),
        )
        .ours(f64::from(left), 0)
        .given("the paper's arithmetic"),
        Compared::new(
            "section 6",
            "frames without a buffer, 100 nodes, windows of 8, with IP traffic",
            "",
            Published::words("none", is_whole),
        )
        .ours(missed as f64, 0),
        Compared::new(
            "section 6",
            "frames per frame with a wrong bit, at 1 in 10^10 bits",
            "",
            Published::within_percent(1e6, 20.0),
        )
        .ours((1.0 / frame_errors(PAPER_BIT_ERRORS)).round(), 0)
        .given("arithmetic of the frame's length"),
        Compared::new(
            "section 1",
            "damaged frames are reported exactly once",
            "",
            Published::words("detected and raised", figures.is_damage_raised()),
        )
        .ours(figures.damage.damaged as f64, 0),
    ]
}
