//! Every fault of a source is found, at its line, with the fix.

use niclab_source::Rejected;
use niclab_stitcher::{open, read};

fn source(name: &str) -> &'static str {
    match name {
        "conf1" => include_str!("../../../assemblies/conf1.toml"),
        "conf3" => include_str!("../../../assemblies/conf3.toml"),
        "conf4" => include_str!("../../../assemblies/conf4.toml"),
        "selective_repeat" => include_str!("../../../assemblies/selective_repeat.toml"),
        _ => panic!("{name}"),
    }
}

/// A change of a bundled assembly: its name, the replacements (applied in order), the start of the reported line, and
/// parts of message and fix.
type Change<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, [&'a str; 2]);

fn changed(name: &str, replacements: &[(&str, &str)]) -> String {
    let mut text = source(name).to_owned();
    for (from, to) in replacements {
        assert!(text.contains(from), "{name} holds no {from}");
        text = text.replace(from, to);
    }
    text
}

fn hold(changes: &[Change<'_>]) {
    for (name, replacements, line, [message, fix]) in changes {
        let text = changed(name, replacements);
        let Err(Rejected { diagnostics, .. }) = read(&text) else { panic!("{replacements:?} is accepted") };
        let found = diagnostics.iter().any(|found| {
            let at = text.lines().nth(found.place.line - 1).unwrap_or_default();
            at.starts_with(line) && found.what.contains(message) && found.remedy.contains(fix)
        });
        assert!(found, "{replacements:?} at {line}: no {message}; {fix}: {diagnostics:#?}");
    }
}

#[test]
fn inconsistent_values_are_found() {
    let go_back_n_128 = [("limit = 32", "limit = 128"), ("seq24_node4", "seq8_node12")];
    hold(&[
        (
            "conf4",
            &[("wire_out = {}", "wire_out = {}\nsecond = { kind = \"wire_out\" }")],
            "second",
            ["2 components are of kind wire_out", "keep one"],
        ),
        (
            "conf4",
            &[("limit = 32", "limit = 15")],
            "genp",
            ["less than twice the threshold of `build_acks`, 8", "16 or more"],
        ),
        (
            "conf4",
            &[("threshold = 8", "threshold = 17")],
            "genp",
            ["outstanding_limit is 32, less than twice", "34 or more"],
        ),
        (
            "selective_repeat",
            &[("limit = 32", "limit = 33")],
            "genp",
            ["the mask of a header acknowledges 32", "go_back_n"],
        ),
        ("conf4", &go_back_n_128, "genp", ["not below half of the 256 numbers", "127"]),
        (
            "conf4",
            &[("xmit = { format = \"seq24_node4\" }", "xmit = { format = \"seq8_node12\" }")],
            "split_packet",
            ["`xmit` and `split_packet` have different formats", "same format"],
        ),
        (
            "conf1",
            &[("1408, placement = true", "1408")],
            "host_receive",
            ["`genp_unreliable` and `host_receive` differ in placement", "same placement"],
        ),
        ("conf1", &[("1408", "2040")], "genp_unreliable", ["2040 bytes and a placement word of 8", "2036"]),
        (
            "conf3",
            &[("placement = true", "placement = false")],
            "genp",
            ["packets can be missing or in any order", "placement = true"],
        ),
        (
            "conf3",
            &[("beyond = 32", "beyond = 30")],
            "dup_find",
            ["`dup_find` remembers 30 packets after a missing one, but `genp` sends 31", "beyond to 31"],
        ),
        (
            "conf4",
            &[("beyond = 0", "beyond = 1")],
            "dup_find",
            ["packets that `order_pkts` has dropped", "beyond = 0 for `dup_find`"],
        ),
    ]);
    // With go-back-N, only the range of packet numbers bounds the limit.
    assert!(
        read(&changed("conf4", &[("limit = 32", "limit = 127"), ("seq24_node4", "seq8_node12")])).is_ok()
    );
}

#[test]
fn invalid_connections_are_found() {
    hold(&[
        (
            "conf4",
            &[("genp.disable = \"timer.disable\"", "")],
            "timer",
            ["`timer.disable` is not connected", "genp.disable"],
        ),
        (
            "conf4",
            &[("order_pkts.headers = \"build_acks.headers\"", "")],
            "order_pkts",
            ["`order_pkts.headers` is not connected", "or close it by a stub"],
        ),
        (
            "conf4",
            &[("drop_pkt.data = \"host_receive.data\"", "drop_pkt.data = \"rcv_pkt.frames\"")],
            "drop_pkt.data",
            ["`drop_pkt.data` carries data, but `rcv_pkt.frames` takes packet", "carries packet"],
        ),
        (
            "conf4",
            &[("dup_find.headers = \"no_headers.port\"", "dup_find.headers = \"build_acks.headers\"")],
            "dup_find",
            [
                "`build_acks.headers` has two drivers: `order_pkts.headers` and `dup_find.headers`",
                "remove one of the connections",
            ],
        ),
        (
            "conf4",
            &[(
                "dup_find.verdicts = \"drop_pkt.verdicts\"",
                "dup_find.verdicts = [\"drop_pkt.verdicts\", \"drop_pkt.verdicts\"]",
            )],
            "dup_find",
            ["`dup_find.verdicts` and `dup_find.verdicts`", "remove one of the connections"],
        ),
        (
            "conf4",
            &[("dup_find.verdicts = \"drop_pkt.verdicts\"", "dup_find.verdicts = \"no_headers.port\"")],
            "dup_find",
            ["the stub `no_headers` closes more than one port", "one stub for each"],
        ),
        (
            "conf4",
            &[("timer.expiries = \"genp.expiries\"", "timer.expiries = \"no_headers.port\"")],
            "timer",
            ["`timer.expiries` is closed by a stub", "remove `timer`"],
        ),
        (
            "conf4",
            &[
                ("genp.disable = \"timer.disable\"", "genp.disable = { to = \"timer.disable\", depth = 0 }"),
                (
                    "timer.expiries = \"genp.expiries\"",
                    "timer.expiries = { to = \"genp.expiries\", depth = 0 }",
                ),
            ],
            "",
            ["a cycle without a FIFO: genp -> timer -> genp", "depth of 1"],
        ),
    ]);
    // With only one wire there is no such cycle.
    let wire = ("genp.disable = \"timer.disable\"", "genp.disable = { to = \"timer.disable\", depth = 0 }");
    assert!(read(&changed("conf4", &[wire])).is_ok());
}

#[test]
fn assemblies_that_would_not_deliver_are_found() {
    let no_order = [
        ("order_pkts.headers = \"build_acks.headers\"", ""),
        ("\"order_pkts.headers\", \"genp", "\"build_acks.headers\", \"order_pkts.headers\", \"genp"),
        ("no_headers = ", "no_order = { kind = \"stub\" }\nno_headers = "),
        ("dup_find.headers = ", "order_pkts.headers = \"no_order.port\"\ndup_find.headers = "),
    ];
    let order = "genp_unreliable = { packet_bytes = 1408, placement = true }\norder_pkts = {}\ndrop_pkt = {}";
    let unreliable = [
        ("genp_unreliable = { packet_bytes = 1408, placement = true }", order),
        (
            "\"no_headers.port\"",
            "\"order_pkts.headers\"\norder_pkts.headers = \"no_headers.port\"\n\
             order_pkts.verdicts = \"drop_pkt.verdicts\"\ndrop_pkt.data = \"host_receive.data\"",
        ),
        ("split_packet.data = \"host_receive.data\"", "split_packet.data = \"drop_pkt.data\""),
    ];
    hold(&[
        (
            "conf4",
            &[("policy = \"go_back_n\"", "policy = \"newer\"")],
            "order_pkts",
            ["drops packets older", "go_back_n"],
        ),
        (
            "conf4",
            &no_order,
            "build_acks",
            ["`build_acks` acknowledges packets that `order_pkts` drops", "through `order_pkts`"],
        ),
        ("conf1", &unreliable, "order_pkts", ["`order_pkts` needs a genp", "add a genp"]),
    ]);
    let mut duplicated = unreliable.to_vec();
    let dup_find = unreliable.map(|(_, to)| to.replace("order_pkts", "dup_find"));
    duplicated.iter_mut().zip(&dup_find).for_each(|(change, to)| change.1 = to);
    hold(&[("conf1", &duplicated, "dup_find", ["`dup_find` needs a genp", "remove `dup_find`"])]);
    let mut without = unreliable.to_vec();
    without[0].1 = "genp_unreliable = { packet_bytes = 1408, placement = true }\n\
                    order_pkts = { policy = \"newer\" }\ndrop_pkt = {}";
    assert!(read(&changed("conf1", &without)).is_ok());
}

#[test]
fn wrong_paths_are_found() {
    let loop_back = [
        ("xmit.packets = \"wire_out.packets\"", "xmit.packets = \"rcv_pkt.frames\""),
        ("wire_in.packets = \"rcv_pkt.frames\"", "wire_in.packets = \"wire_out.packets\""),
    ];
    let twice = [
        (
            "selective_repeat = { buffer_packets = 32 }",
            "selective_repeat = {}\ndup_find = {}\ndrop_pkt = {}\nno_headers = { kind = \"stub\" }",
        ),
        (
            "split_packet.headers = [",
            "dup_find.headers = \"no_headers.port\"\ndup_find.verdicts = \"drop_pkt.verdicts\"\n\
             split_packet.headers = [\"dup_find.headers\", ",
        ),
        ("split_packet.data = \"", "split_packet.data = \"drop_pkt.data\"\ndrop_pkt.data = \""),
    ];
    hold(&[
        (
            "conf1",
            &loop_back,
            "wire_out",
            ["`wire_out.packets` does not come from xmit", "connect the output of xmit"],
        ),
        (
            "conf1",
            &loop_back,
            "rcv_pkt",
            ["`rcv_pkt.frames` does not come from wire_in", "connect the output of wire_in"],
        ),
        (
            "selective_repeat",
            &twice,
            "selective_repeat",
            ["`selective_repeat` does not see the same packets", "split_packet"],
        ),
        (
            "conf4",
            &[
                ("\"order_pkts.headers\", \"genp.headers\"]", "\"order_pkts.headers\"]"),
                ("order_pkts.headers = \"b", "order_pkts.headers = [\"genp.headers\", \"b"),
                ("build_acks.headers\"\n", "build_acks.headers\"]\n"),
            ],
            "genp",
            ["`genp.headers` does not come from split_packet", "split_packet"],
        ),
        (
            "conf4",
            &[
                ("\"dup_find.headers\", ", ""),
                (
                    "order_pkts.headers = \"build_acks.headers\"",
                    "order_pkts.headers = [\"build_acks.headers\", \"dup_find.headers\"]",
                ),
            ],
            "drop_pkt",
            ["`dup_find` does not see the same packets", "at most through dup_find"],
        ),
    ]);
}

#[test]
fn unknown_names_are_found() {
    hold(&[
        ("conf4", &[("[components]", "[components")], "[components", ["", "docs/use/ASSEMBLIES.md"]),
        (
            "conf4",
            &[("[components]", "[component]")],
            "[component]",
            ["an assembly has no `component`", "did you mean `components`?"],
        ),
        (
            "conf4",
            &[("genp = {", "genpp = {")],
            "genpp",
            ["no kind of component `genpp`", "did you mean `genp`?"],
        ),
        (
            "conf4",
            &[("kind = \"stub\"", "kind = \"stubb\"")],
            "no_headers",
            ["no kind of component `stubb`", "`stub`"],
        ),
        (
            "conf4",
            &[("drop_pkt = {}", "drop_pkt = 3")],
            "drop_pkt",
            ["the component `drop_pkt` is not a table", "drop_pkt = {}"],
        ),
        (
            "conf4",
            &[("threshold = 8", "treshold = 8")],
            "build_acks",
            ["build_acks has no parameter `treshold`", "`threshold`"],
        ),
        (
            "conf4",
            &[("threshold = 8", "threshold = 0")],
            "build_acks",
            ["`build_acks`: threshold is 0", "1 to 512"],
        ),
        (
            "conf4",
            &[("packet_bytes = 1408", "packet_bytes = 1410")],
            "genp",
            ["packet_bytes is 1410", "4 to 2040, a multiple of 4"],
        ),
        (
            "conf4",
            &[("packet_bytes = 1408", "packet_bytes = -4")],
            "genp",
            ["packet_bytes is -4", "4 to 2040"],
        ),
        (
            "conf4",
            &[("\"go_back_n\"", "\"go_home\"")],
            "order_pkts",
            ["policy is \"go_home\"", "one of go_back_n, newer"],
        ),
        (
            "conf4",
            &[("drop_pkt = {}", "drop_pkt = { x = 1 }")],
            "drop_pkt",
            ["drop_pkt has no parameter `x`", "it has none"],
        ),
        (
            "conf4",
            &[("drop_pkt = {}", "Drop = { kind = \"drop_pkt\" }")],
            "Drop",
            ["`Drop` is not a valid name", "another name"],
        ),
    ]);
}

#[test]
fn connections_of_unknown_ports_are_found() {
    hold(&[
        (
            "conf4",
            &[("= \"genp.messages\"", "= \"gemp.messages\"")],
            "host_send.messages",
            ["no component `gemp`", "`genp`"],
        ),
        (
            "conf4",
            &[("= \"genp.messages\"", "= \"genp.message\"")],
            "host_send.messages",
            ["`genp` (genp) has no input `message`", "messages, headers, expiries"],
        ),
        (
            "conf4",
            &[("wire_in.packets", "wire_out.packets")],
            "wire_out.packets",
            ["has no output `packets`", "wire_out has no output"],
        ),
        (
            "conf4",
            &[("= \"genp.messages\"", "= \"genp\"")],
            "host_send.messages",
            ["`genp` is not the name of an input", "component.input"],
        ),
        (
            "conf4",
            &[("= \"genp.messages\"", "= 7")],
            "host_send.messages",
            ["this is not the name of an input", "component.input"],
        ),
        (
            "conf4",
            &[("= \"genp.messages\"", "= { to = \"genp.messages\", deep = 1 }")],
            "host_send.messages",
            ["a connection has no `deep`", "depth = 16"],
        ),
        (
            "conf4",
            &[("= \"genp.messages\"", "= { to = \"genp.messages\", depth = 1025 }")],
            "host_send.messages",
            ["depth of a connection is 1025", "0 (a wire) to 1024"],
        ),
        (
            "conf4",
            &[("host_send.messages =", "host_send =")],
            "host_send =",
            ["`host_send` is not an output", "component.output"],
        ),
    ]);
}

#[test]
fn output_for_a_source_with_many_faults_is_bounded() {
    let many: String = (0..5000).map(|number| format!("x{number} = 1\n")).collect();
    let rejected = read(&format!("[components]\n{many}")).unwrap_err();
    assert_eq!((rejected.errors, rejected.diagnostics.len()), (5000, niclab_source::MAX_DIAGNOSTICS));
    let many: String = (0..100).map(|number| format!("x{number} = {{ kind = \"stub\" }}\n")).collect();
    let rejected = read(&format!("[components]\n{many}")).unwrap_err();
    assert_eq!(rejected.errors, 36, "of one hundred, 64 fit");
    let empty = open("empty", b"").unwrap_err().to_string();
    assert!(empty.contains("empty:1:1: error: 0 components are of kind rcv_pkt"), "{empty}");
    assert!(empty.contains("fix: add `rcv_pkt = {}`"), "{empty}");
}
