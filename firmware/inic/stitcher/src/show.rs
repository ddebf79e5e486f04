//! The drawing of an assembly: its blocks with their components, connections, resources and promises.

use std::fmt::Write as _;

use niclab_components::kinds::{CARD_RESOURCES, Source, TABLE_1};
use niclab_components::{Assembly, Block, Checked, Component, Connection, End, Kind, PortType};

/// Columns between the boxes of blocks A and C.
const GAP: usize = 3;

/// The assembly as text.
#[must_use]
pub fn show(assembly: &Checked) -> String {
    let mut text = blocks(assembly);
    let _ = writeln!(
        text,
        "\nff and lut: flip-flops and look-up tables; d derived from the paper's Table 1, a allotted, o our estimate"
    );
    let _ = writeln!(text, "\nconnections: =16=> is a FIFO of 16 places, ----> a wire");
    text.push_str(&connections(assembly));
    let _ = writeln!(text, "\npromises: {}", promises(assembly));
    text.push_str(&resources(assembly));
    let _ = writeln!(text, "identity: {:#06x}", assembly.id());
    text
}

/// Promises and resources of the assembly, on one line.
#[must_use]
pub fn summary(assembly: &Checked) -> String {
    let taken = assembly.resources();
    let [flip_flops, luts] = [taken.flip_flops, taken.luts];
    format!("{}; {flip_flops} flip-flops, {luts} look-up tables", promises(assembly))
}

/// A component's name, kind and values, without its resources.
fn component(of: &Component) -> String {
    let row = of.kind().row();
    let mut text = of.name().to_owned();
    if of.name() != row.name {
        let _ = write!(text, " ({})", row.name);
    }
    let settings = row.parameters.iter().zip(of.values());
    let values = settings
        .map(|(setting, value)| format!("{} {}", setting.parameter.name(), setting.values.text(*value)));
    let values: Vec<String> = values.collect();
    if !values.is_empty() {
        let _ = write!(text, ": {}", values.join(", "));
    }
    text
}

/// The lines of a block's box, all of one width, which is at least `least`.
fn boxed(assembly: &Assembly, block: Block, title: &str, least: usize) -> Vec<String> {
    let members = assembly.components().iter().filter(|of| of.kind().row().block == block);
    let members: Vec<(String, String)> = members.map(|of| (component(of), costs(of))).collect();
    let widest = members.iter().map(|(name, costs)| name.len() + costs.len() + 6).max().unwrap_or_default();
    let width = widest.max(least).max(title.len() + 8);
    let mut lines = vec![format!("+-- {title} {}+", "-".repeat(width - title.len() - 6))];
    let within = width - 4;
    let line =
        |(name, costs): &(String, String)| format!("| {name}{costs:>room$} |", room = within - name.len());
    lines.extend(members.iter().map(line));
    lines.push(format!("+{}+", "-".repeat(width - 2)));
    lines
}

/// A component's resources, and their source.
fn costs(of: &Component) -> String {
    let row = of.kind().row();
    let mark = match row.source {
        Source::Derived => 'd',
        Source::Allotted => 'a',
        Source::Own => 'o',
    };
    format!("{:>4} ff {:>4} lut {mark}", row.resources.flip_flops, row.resources.luts)
}

/// Block B below the host; below it A and C, above the network.
fn blocks(assembly: &Assembly) -> String {
    let least = |lines: &[String]| lines.first().map_or(0, String::len);
    let a = boxed(assembly, Block::A, "A: forming packets", 0);
    let c = boxed(assembly, Block::C, "C: receiving packets", 0);
    let b = boxed(assembly, Block::B, "B: flow control", least(&a) + GAP + least(&c));
    let (down, up) = (least(&a) / 2, least(&a) + GAP + least(&c) / 2);
    let edge = |kind: Kind| assembly.components().iter().find(|of| of.kind() == kind).map(component);
    let edges = |send: Kind, receive: Kind| {
        let (send, receive) = (edge(send).unwrap_or_default(), edge(receive).unwrap_or_default());
        let indent = down.saturating_sub(send.len() / 2);
        let between = up.saturating_sub(receive.len() / 2).saturating_sub(indent + send.len()).max(1);
        format!("{:indent$}{send}{:between$}{receive}", "", "")
    };
    let arrows = format!("{:down$}v{:between$}^", "", "", between = up - down - 1);
    let mut lines = vec![edges(Kind::HostSend, Kind::HostReceive), arrows.clone()];
    lines.extend(b);
    lines.push(arrows.clone());
    let width = least(&a);
    for row in 0..a.len().max(c.len()) {
        let [left, right] = [&a, &c].map(|block| block.get(row).map_or("", String::as_str));
        // The arrow of the shorter box extends to the end of the other box.
        let left = if left.is_empty() { format!("{:down$}v", "") } else { left.to_owned() };
        let right = if right.is_empty() {
            format!("{:between$}^", "", between = up - width - GAP)
        } else {
            right.to_owned()
        };
        lines.push(format!("{left:width$}{:GAP$}{right}", ""));
    }
    lines.push(arrows);
    lines.push(edges(Kind::WireOut, Kind::WireIn));
    lines.iter().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

/// Every connection on one line; an output with several inputs is named once.
fn connections(assembly: &Assembly) -> String {
    let name = |end: End| {
        assembly.port(end).map(|(of, port)| format!("{}.{}", of.name(), port.name)).unwrap_or_default()
    };
    let carried = |joint: &Connection| {
        let types = [joint.from, joint.to].map(|end| assembly.port(end).map(|(_, port)| port.carries));
        types.into_iter().flatten().find(|carries| *carries != PortType::Any).map_or("", PortType::name)
    };
    let width = assembly.connections().iter().map(|joint| name(joint.from).len()).max().unwrap_or_default();
    let far = assembly.connections().iter().map(|joint| name(joint.to).len()).max().unwrap_or_default();
    let (mut text, mut before) = (String::new(), None);
    for joint in assembly.connections() {
        let from = if before == Some(joint.from) { String::new() } else { name(joint.from) };
        before = Some(joint.from);
        let fifo = match joint.depth {
            0 => "---->".to_owned(),
            depth => format!("={depth}=>"),
        };
        let _ = writeln!(text, "  {from:width$} {fifo:>8} {:far$}  {}", name(joint.to), carried(joint));
    }
    text
}

fn promises(assembly: &Checked) -> String {
    let promises = assembly.promises();
    let all = [
        (promises.delivered, "every message arrives", "messages can be lost"),
        (promises.once, "none twice", "they can come twice"),
        (promises.in_order, "in order", "in any order"),
    ];
    all.map(|(holds, yes, no)| if holds { yes } else { no }).join(", ")
}

fn percent(hundredths: u32) -> String {
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

fn resources(assembly: &Checked) -> String {
    let taken = assembly.resources();
    let [flip_flops, luts] = taken.shares().map(percent);
    let mut text = format!(
        "resources: {} flip-flops ({flip_flops}) and {} look-up tables ({luts}) of {CARD_RESOURCES} each\n",
        taken.flip_flops, taken.luts
    );
    if let Some(row) = TABLE_1.iter().find(|row| row.resources == taken) {
        let [flip_flops, luts] = row.printed.map(percent);
        let _ =
            writeln!(text, "           as the paper's {}, which prints {flip_flops} and {luts}", row.name);
    }
    text
}
