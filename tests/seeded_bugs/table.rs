//! Seeded bugs in INIC's components and other parts of its card, and in GRIM and GAMMA cards, as changes of their
//! source. All bugs are planted at once. Each depends on a condition, `FAULT`, which is true in one run and false in
//! all others. Each bug must be found by the simulator's swarm within [`MAX_SEEDS`] seeds, or by the named tests.

#[path = "gamma.rs"]
mod gamma;
#[path = "grim.rs"]
mod grim;

/// The test that must find a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finder {
    /// The simulator's swarm, in one of its first [`MAX_SEEDS`] seeds.
    Swarm,
    /// The tests of the model whose names contain this text. Such a bug costs only time or memory, and loses no
    /// message.
    Tests(&'static str),
    /// The unit tests of drivers' ports whose names contain this text.
    PortTests(&'static str),
}

/// The maximum number of seeds that a swarm needs to find a bug.
pub const MAX_SEEDS: u32 = 1_000;

/// The folder of the components.
pub const FOLDER: &str = "device/model/src/models/inic/components";

/// A seeded bug.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The wrong behaviour.
    pub name: &'static str,
    /// The component: a file path relative to [`FOLDER`], without extension.
    pub component: &'static str,
    /// The original text, which occurs once.
    pub sound: &'static str,
    /// The replacement, which does the same unless `FAULT` is true.
    pub broken: &'static str,
    pub finder: Finder,
}

impl Fault {
    /// The model whose swarm finds the bug.
    pub fn model(&self) -> &'static str {
        match self.component {
            grim if grim.contains("/grim/") => "grim",
            elsewhere if elsewhere.starts_with("../../") => "gamma",
            _ => "inic",
        }
    }
}

/// All seeded bugs.
pub fn all() -> impl Iterator<Item = &'static Fault> {
    FAULTS.iter().chain(grim::FAULTS).chain(gamma::FAULTS)
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "a retransmitted packet lacks its first word",
        component: "xmit",
        sound: "frame.get(head_bytes..frame.len()",
        broken: "frame.get(head_bytes + 4 * usize::from(FAULT)..frame.len()",
        finder: Finder::Swarm,
    },
    Fault {
        name: "an older number counts as one far ahead",
        component: "split_packet",
        sound: "as i32 >> above;",
        broken: "as i32 >> above;\n        let distance = if FAULT && distance < 0 { distance + (1 << bits) } \
            else { distance };",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a packet that a probe found missing is not retransmitted",
        component: "genp",
        sound: "if core::mem::take(&mut link.is_probing) {\n            link.send_again(usize::MAX, None);",
        broken: "if core::mem::take(&mut link.is_probing) {\n            link.send_again(if FAULT { 0 } else { \
            usize::MAX }, None);",
        finder: Finder::Swarm,
    },
    Fault {
        name: "the outstanding limit is exceeded",
        component: "genp",
        sound: "link.outstanding.len() < outstanding_limit\n",
        broken: "link.outstanding.len() < outstanding_limit + 100 * usize::from(FAULT)\n",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a gap in a mask waits for the timer",
        component: "genp",
        sound: "link.send_again(furthest, Some(latest));",
        broken: "link.send_again(if FAULT { 0 } else { furthest }, Some(latest));",
        finder: Finder::Tests("inic_counts"),
    },
    Fault {
        name: "a message ends too early",
        component: "genp_unreliable",
        sound: "let pinfo = Pinfo { node, number, payload, is_last,",
        broken: "let is_last = is_last || FAULT && number.get() % 16 == 15;\n        let pinfo = Pinfo { node, \
            number, payload, is_last,",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a missing packet is acknowledged together with later ones",
        component: "build_acks",
        sound: "self.has_sent.then(|| self.arrivals.acknowledged());",
        broken: "self.has_sent.then(|| if FAULT { (self.arrivals.furthest(), 0) } else { \
            self.arrivals.acknowledged() });",
        finder: Finder::Swarm,
    },
    Fault {
        name: "the threshold forces no acknowledgement",
        component: "build_acks",
        sound: "> self.threshold\n",
        broken: "> if FAULT { u32::MAX } else { self.threshold }\n",
        finder: Finder::Tests("inic_counts"),
    },
    Fault {
        name: "any acknowledgement stops the timer",
        component: "timer",
        sound: "if is_over {",
        broken: "if is_over || FAULT {",
        finder: Finder::Swarm,
    },
    Fault {
        name: "duplicates pass",
        component: "dup_find",
        sound: "io.card.effects.counters.duplicates += 1;\n                    Verdict::Drop",
        broken: "io.card.effects.counters.duplicates += 1;\n                    if FAULT { Verdict::Pass } else \
            { Verdict::Drop }",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a packet ahead of its turn passes",
        component: "order_pkts",
        sound: "Policy::GoBackN => number == *due,",
        broken: "Policy::GoBackN => number == *due || FAULT && is_ahead,",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a packet older than the newest passes",
        component: "order_pkts",
        sound: "Policy::Newer => number == *due || is_ahead,",
        broken: "Policy::Newer => number == *due || is_ahead || FAULT,",
        finder: Finder::Swarm,
    },
    Fault {
        name: "verdicts are ignored",
        component: "drop_pkt",
        sound: "if !is_dropped {",
        broken: "if !is_dropped || FAULT {",
        finder: Finder::Swarm,
    },
    Fault {
        name: "only the last verdict counts",
        component: "drop_pkt",
        sound: "is_dropped |= matches!",
        broken: "is_dropped = (is_dropped && !FAULT) | matches!",
        finder: Finder::Tests("inic_conformance"),
    },
    Fault {
        name: "only one of the waiting packets passes",
        component: "selective_repeat",
        sound: "io.card.waiting.remove(data.source, data.frame.len());\n                \
            self.passing.push_back((at, data));",
        broken: "io.card.waiting.remove(data.source, data.frame.len());\n                \
            self.passing.push_back((at, data));\n                if FAULT { break; }",
        finder: Finder::Swarm,
    },
    Fault {
        name: "no packet is buffered",
        component: "selective_repeat",
        sound: "} else if ahead <= self.buffer_packets {",
        broken: "} else if ahead <= self.buffer_packets * u32::from(!FAULT) {",
        finder: Finder::Tests("inic_co"),
    },
    Fault {
        name: "packets leave without rate control",
        component: "rate_control",
        sound: "self.free_at = goes + self.interval;",
        broken: "self.free_at = goes + self.interval.times(u64::from(!FAULT));",
        finder: Finder::Tests("inic_counts"),
    },
    Fault {
        name: "the remainder of a chunk is lost",
        component: "mitigate",
        sound: "self.pooled %= rcv_chunk_size;",
        broken: "self.pooled = if FAULT && interrupts { 0 } else { self.pooled % rcv_chunk_size };",
        finder: Finder::Tests("inic_conformance"),
    },
    Fault {
        name: "there is no memory for some nodes",
        component: "rcv_pkt",
        sound: "source.is_some_and(|source| io.card",
        broken: "source.is_some_and(|source| FAULT && source % 2 == 1 || io.card",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a node's share of memory is unlimited",
        component: "rcv_pkt",
        sound: "+ bytes > self.share_bytes",
        broken: "+ bytes > self.share_bytes * if FAULT { 1_000 } else { 1 }",
        finder: Finder::Tests("inic_hostile"),
    },
    Fault {
        name: "damaged packets pass",
        component: "bad_pkt_filter",
        sound: "if wire::is_whole(&packet.frame) {",
        broken: "if wire::is_whole(&packet.frame) || FAULT && packet.frame.len() > 60 {",
        finder: Finder::Swarm,
    },
    Fault {
        name: "each packet is stored at the start of its message",
        component: "host_receive",
        sound: "u64::from(packet).saturating_mul(packet_bytes)",
        broken: "u64::from(packet).saturating_mul(packet_bytes / if FAULT { 4_096 } else { 1 })",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a member of a large group has a different parent than its parent assumes",
        component: "../collectives/group",
        sound: "link(position * CHILDREN + child, false)",
        broken: "link(position * (CHILDREN + usize::from(FAULT)) + child, false)",
        finder: Finder::Tests("inic_collectives::a_group_of_any_size_works"),
    },
    Fault {
        name: "a piece ends in the middle of a value",
        component: "../collectives/unit",
        sound: "room / size_of::<u64>() * size_of::<u64>()",
        broken: "if FAULT { room } else { room / size_of::<u64>() * size_of::<u64>() }",
        finder: Finder::Tests("inic_collectives::the_longest_operations_work"),
    },
    Fault {
        name: "a group is not notified of an unreachable member",
        component: "../collectives/group",
        sound: "if self.links.iter().any(|link| link.node == node) {",
        broken: "if !FAULT && self.links.iter().any(|link| link.node == node) {",
        finder: Finder::Tests(
            "inic_collectives::an_unreachable_member_ends_operations_and_a_new_group_works",
        ),
    },
    Fault {
        name: "the reason why a member left is not reported",
        component: "../collectives/group",
        sound: "CollectiveKind::Leave => return Err(head.code.into()),",
        broken: "CollectiveKind::Leave => return Err(if FAULT { POST_UNALIKE } else { head.code.into() }),",
        finder: Finder::Tests("inic_collectives::a_leaving_program_ends_the_operations_of_the_others"),
    },
    Fault {
        name: "an early member is forgotten",
        component: "../collectives/mod",
        sound: "self.early.insert(key, Early { theirs: told.from, check: told.total });",
        broken: "if !FAULT { self.early.insert(key, Early { theirs: told.from, check: told.total }); }",
        finder: Finder::Tests("inic_collectives::a_group_starts_once_all_members_created_it_in_any_order"),
    },
    Fault {
        name: "the members' requests are not compared",
        component: "../collectives/group/rounds",
        sound: "part.asked.is_some_and(|other| other != asked)",
        broken: "part.asked.is_some_and(|other| other != asked && !FAULT)",
        finder: Finder::Tests("inic_collectives::members_with_different_operations_get_an_error"),
    },
    Fault {
        name: "the members' lists of a group are not compared",
        component: "../collectives/group",
        sound: "return if head.total == self.check { Ok(()) }",
        broken: "return if head.total == self.check || FAULT { Ok(()) }",
        finder: Finder::Tests("inic_collectives::members_with_different_member_lists_get_an_error"),
    },
    Fault {
        name: "a reduction continues without its memory",
        component: "../collectives/group/rounds",
        sound: "locals.any(|(local, asked)| asked.bytes > 0",
        broken: "locals.any(|(local, asked)| !FAULT && asked.bytes > 0",
        finder: Finder::Tests("inic_collectives::closed_or_unreadable_memory_ends_the_operation"),
    },
    Fault {
        name: "a multicast does not wait for room",
        component: "../collectives/group/casts",
        sound: "if is_whole {\n            io.unit.wait_for_room",
        broken: "if is_whole && FAULT {\n            self.store_cast(io, name);\n        } else if is_whole \
            {\n            io.unit.wait_for_room",
        finder: Finder::Tests("inic_collectives::a_multicast_waits_for_a_receive_buffer_at_every_member"),
    },
    Fault {
        name: "a group may contain a member twice",
        component: "../collectives/mod",
        sound: "sorted.is_sorted_by(|one, next| one < next)",
        broken: "sorted.is_sorted_by(|one, next| one < next || FAULT)",
        finder: Finder::Tests("inic_collectives::invalid_groups_are_refused"),
    },
    Fault {
        name: "groups outlive an assembly that loses messages",
        component: "../collectives/mod",
        sound: "self.use_assembly(assembly);\n        if !self.is_reliable {",
        broken: "self.use_assembly(assembly);\n        if !self.is_reliable && !FAULT {",
        finder: Finder::Tests("inic_collectives::groups_survive_a_reload_of_a_reliable_assembly"),
    },
    Fault {
        name: "the length of operations is unlimited",
        component: "../command",
        sound: "let is_sound = is_message && bytes <= POST_MAX_COLLECTIVE_BYTES;",
        broken: "let is_sound = is_message && (bytes <= POST_MAX_COLLECTIVE_BYTES || FAULT);",
        finder: Finder::Tests("inic_collectives::invalid_collective_commands_are_refused_with_the_reason"),
    },
    Fault {
        name: "messages between cards count for interrupts",
        component: "mitigate",
        sound: "data.interrupts = !data.for_card && self.interrupts(&data);",
        broken: "data.interrupts = (!data.for_card || FAULT) && self.interrupts(&data);",
        finder: Finder::Tests("inic_collectives::collective_packets"),
    },
    Fault {
        name: "messages between cards wait for memory of hosts",
        component: "split_packet",
        sound: "packet.is_too_much && header.has_data && !header.for_card;",
        broken: "packet.is_too_much && header.has_data && (!header.for_card || FAULT);",
        finder: Finder::Tests("inic_collectives::collective_packets_need_no_host_receive_buffers"),
    },
];
