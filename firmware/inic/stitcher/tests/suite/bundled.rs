//! The assemblies of `firmware/inic/assemblies`, and their images, which cards are built with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use niclab_components::{
    Assembly, BUNDLED, Block, Bundled, Checked, Flow, Format, Kind, Parameter, Promises, Recipe,
};
use niclab_stitcher::{read, show};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../assemblies")
}

fn source(name: &str) -> String {
    std::fs::read_to_string(folder().join(name).with_extension("toml")).expect("its source")
}

fn checked(name: &str, source: &str) -> Checked {
    read(source).unwrap_or_else(|rejected| {
        panic!("{}", niclab_source::render(&rejected.diagnostics, rejected.more, name, source))
    })
}

#[test]
fn each_image_equals_its_built_source() {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder()).expect("the folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let bundled = Bundled::named(&name).unwrap_or_else(|| panic!("{name} is not bundled"));
        let assembly = checked(&name, &source(&name));
        let is_golden = assembly.encode() == bundled.image;
        assert!(
            is_golden,
            "{name} has changed: build it with `niclab inic build`, and look at the difference"
        );
        assert_eq!(bundled.assembly(), *assembly, "{name}");
        names.insert(name);
    }
    assert_eq!(names, BUNDLED.iter().map(|bundled| bundled.name.to_owned()).collect());
    let identities: BTreeSet<u16> = BUNDLED.iter().map(|bundled| bundled.assembly().id()).collect();
    assert_eq!(identities.len(), BUNDLED.len(), "identifiers in frames are distinct");
}

#[test]
fn each_matches_the_promises_and_resources_of_its_recipe() {
    for (name, flow, finds_duplicates, controls_rate) in [
        ("conf1", Flow::Unreliable, false, false),
        ("conf2", Flow::Reliable, false, false),
        ("conf3", Flow::Reliable, true, false),
        ("conf4", Flow::GoBackN, true, false),
        ("unreliable_ordered", Flow::Newest, false, false),
        ("selective_repeat", Flow::SelectiveRepeat, false, false),
        ("rate_controlled", Flow::GoBackN, true, true),
    ] {
        let mitigates = flow == Flow::Newest;
        let recipe = Recipe { flow, finds_duplicates, controls_rate, mitigates, depth: 16 };
        let mut drawn = recipe.assembly().unwrap();
        assert_eq!(drawn.set(Kind::Mitigate, Parameter::AtEnd, 1), Ok(mitigates.into()));
        let (bundled, drawn) = (checked(name, &source(name)), drawn.check().unwrap());
        assert_eq!(joints(&bundled), joints(&drawn), "{name}");
        assert_eq!(values(&bundled), values(&drawn), "{name}");
        assert_eq!(bundled.promises(), drawn.promises(), "{name}");
    }
    let all = Promises { delivered: true, once: true, in_order: true };
    assert_eq!(checked("conf4", &source("conf4")).promises(), all);
    assert_eq!(checked("conf1", &source("conf1")).promises(), Promises::default());
}

/// Connections without stubs.
fn joints(assembly: &Assembly) -> BTreeSet<[String; 2]> {
    let name = |end| {
        let (of, port) = assembly.port(end).unwrap();
        (of.kind() != Kind::Stub).then(|| format!("{}.{}", of.name(), port.name))
    };
    let all = assembly.connections().iter();
    all.filter_map(|joint| Some([name(joint.from)?, name(joint.to)?])).collect()
}

/// Components without stubs, with their values.
fn values(assembly: &Assembly) -> BTreeMap<&str, (Kind, &[u32])> {
    let of_use = assembly.components().iter().filter(|of| of.kind() != Kind::Stub);
    of_use.map(|of| (of.name(), (of.kind(), of.values()))).collect()
}

/// The blocks in which two assemblies differ: in components, values, connections, or ports with connections to other
/// blocks.
fn touched(one: &Assembly, other: &Assembly) -> BTreeSet<Block> {
    let all = [Block::A, Block::B, Block::C, Block::None];
    all.into_iter().filter(|block| part(one, *block) != part(other, *block)).collect()
}

/// A block: its components, the connections within it, and its ports with connections to other blocks.
fn part(assembly: &Assembly, block: Block) -> BTreeSet<String> {
    let is_inside = |end| {
        let kind = assembly.port(end).unwrap().0.kind();
        kind != Kind::Stub && kind.row().block == block
    };
    let name = |end| {
        let (of, port) = assembly.port(end).unwrap();
        format!("{}.{} ({:?})", of.name(), port.name, port.direction)
    };
    let values = values(assembly).into_iter().filter(|(_, (kind, _))| kind.row().block == block);
    let components = values.map(|component| format!("{component:?}"));
    let joints =
        assembly.connections().iter().flat_map(|joint| match [joint.from, joint.to].map(is_inside) {
            [true, true] => Some(format!("{} -> {}, {}", name(joint.from), name(joint.to), joint.depth)),
            [true, false] => Some(name(joint.from)),
            [false, true] => Some(name(joint.to)),
            [false, false] => None,
        });
    components.chain(joints).collect()
}

#[test]
fn another_format_changes_only_blocks_a_and_c() {
    let conf4 = source("conf4");
    let other = checked("conf4", &conf4.replace("seq24_node4", "seq8_node12"));
    let format = |kind: Kind| {
        let component = other.components().iter().find(|of| of.kind() == kind);
        component.and_then(|of| of.value(Parameter::Format)).map(Format::of)
    };
    assert_eq!(format(Kind::Xmit), Some(Format::Seq8Node12));
    assert_eq!(format(Kind::SplitPacket), Some(Format::Seq8Node12));
    assert_eq!(touched(&checked("conf4", &conf4), &other), [Block::A, Block::C].into());
}

#[test]
fn another_flow_control_replaces_only_block_b() {
    let [go_back_n, selective_repeat, newest] =
        ["conf4", "selective_repeat", "unreliable_ordered"].map(|name| checked(name, &source(name)));
    assert_eq!(touched(&go_back_n, &selective_repeat), [Block::B].into());
    // The host's edge also has the parameter for placement.
    assert_eq!(touched(&go_back_n, &newest), [Block::B, Block::None].into());
    let conf3 = checked("conf3", &source("conf3"));
    assert_eq!(touched(&go_back_n, &conf3), [Block::B, Block::None].into());
    let rate_controlled = source("rate_controlled").replace("timeout_us = 10_000", "timeout_us = 1000");
    let rate_controlled = checked("rate_controlled", &rate_controlled);
    assert_eq!(touched(&go_back_n, &rate_controlled), [Block::A].into());
}

#[test]
fn drawing_shows_blocks_values_connections_and_shares() {
    let text = show(&checked("conf4", &source("conf4")));
    for part in [
        "B: flow control",
        "A: forming packets",
        "C: receiving packets",
        "| genp: packet_bytes 1408, outstanding_limit 32, placement false",
        "| order_pkts: policy \"go_back_n\"",
        "116 ff  149 lut d |",
        "=16=> order_pkts.headers      header",
        "promises: every message arrives, none twice, in order",
        "2650 flip-flops (21.13 %) and 3933 look-up tables (31.35 %) of 12544 each",
        "as the paper's CONF4, which prints 21.13 % and 31.14 %",
    ] {
        assert!(text.contains(part), "no {part}:\n{text}");
    }
    let boxes = text.lines().take_while(|line| !line.is_empty());
    assert!(boxes.clone().count() > 10 && boxes.clone().all(|line| line.len() < 120), "{text}");
    let wire = source("conf4")
        .replace("genp.pinfo = \"xmit.pinfo\"", "genp.pinfo = { to = \"xmit.pinfo\", depth = 0 }");
    assert!(show(&checked("conf4", &wire)).contains("genp.pinfo                ----> xmit.pinfo"));
}
