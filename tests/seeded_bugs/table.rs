//! Faults of INIC's components, of what stands beside them, and of GRIM and GAMMA cards, as changes of their source.
//! All are planted at once, each behind a condition, `FAULT`, that is true in one run and false in all others. Each
//! must be found within so many runs of the simulator's swarm, or by the tests of the model that count.

#[path = "gamma.rs"]
mod gamma;
#[path = "grim.rs"]
mod grim;

/// Who has to find a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finder {
    /// The simulator's swarm, in one of its first [`MOST_SEEDS`] seeds.
    Swarm,
    /// The tests of the model whose names contain this: nothing is lost by it but time or memory.
    Tests(&'static str),
    /// The unit tests of drivers' ports whose names contain this.
    PortTests(&'static str),
}

/// Seeds within which a swarm must find a fault.
pub const MOST_SEEDS: u32 = 1_000;

/// Where the components are.
pub const FOLDER: &str = "device/model/src/models/inic/components";

/// A fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// What goes wrong.
    pub name: &'static str,
    /// The component: a file in [`FOLDER`], or beside it.
    pub component: &'static str,
    /// What stands there once.
    pub sound: &'static str,
    /// What is put in its place: the same, as long as not `FAULT`.
    pub broken: &'static str,
    pub finder: Finder,
}

impl Fault {
    /// Whose swarm finds it.
    pub fn model(&self) -> &'static str {
        match self.component {
            grim if grim.contains("/grim/") => "grim",
            elsewhere if elsewhere.starts_with("../../") => "gamma",
            _ => "inic",
        }
    }
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Fault> {
    FAULTS.iter().chain(grim::FAULTS).chain(gamma::FAULTS)
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "what goes again has lost its first word",
        component: "xmit",
        sound: "frame.get(head_bytes..frame.len()",
        broken: "frame.get(head_bytes + 4 * usize::from(FAULT)..frame.len()",
        finder: Finder::Swarm,
    },
    Fault {
        name: "an older number is taken for one far ahead",
        component: "split_packet",
        sound: "as i32 >> above;",
        broken: "as i32 >> above;\n        let distance = if FAULT && distance < 0 { distance + (1 << bits) } else { distance };",
        finder: Finder::Swarm,
    },
    Fault {
        name: "what a probe found missing does not go again",
        component: "genp",
        sound: "if core::mem::take(&mut link.is_probing) {\n            link.send_again(usize::MAX, None);",
        broken: "if core::mem::take(&mut link.is_probing) {\n            link.send_again(if FAULT { 0 } else { usize::MAX }, None);",
        finder: Finder::Swarm,
    },
    Fault {
        name: "the outstanding limit is not kept",
        component: "genp",
        sound: "link.outstanding.len() < outstanding_limit\n",
        broken: "link.outstanding.len() < outstanding_limit + 100 * usize::from(FAULT)\n",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a hole in a mask waits for the timer",
        component: "genp",
        sound: "link.send_again(furthest, Some(latest));",
        broken: "link.send_again(if FAULT { 0 } else { furthest }, Some(latest));",
        finder: Finder::Tests("inic_counts"),
    },
    Fault {
        name: "a message ends before its time",
        component: "genp_unreliable",
        sound: "let pinfo = Pinfo { node, number, payload, is_last,",
        broken: "let is_last = is_last || FAULT && number.get() % 16 == 15;\n        let pinfo = Pinfo { node, number, payload, is_last,",
        finder: Finder::Swarm,
    },
    Fault {
        name: "what is missing is acknowledged with what came behind it",
        component: "build_acks",
        sound: "self.has_sent.then(|| self.arrivals.acknowledged());",
        broken: "self.has_sent.then(|| if FAULT { (self.arrivals.furthest(), 0) } else { self.arrivals.acknowledged() });",
        finder: Finder::Swarm,
    },
    Fault {
        name: "no acknowledgement is forced by the threshold",
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
        broken: "io.card.effects.counters.duplicates += 1;\n                    if FAULT { Verdict::Pass } else { Verdict::Drop }",
        finder: Finder::Swarm,
    },
    Fault {
        name: "what is ahead passes",
        component: "order_pkts",
        sound: "Policy::GoBackN => number == *due,",
        broken: "Policy::GoBackN => number == *due || FAULT && is_ahead,",
        finder: Finder::Swarm,
    },
    Fault {
        name: "what is older than the newest passes",
        component: "order_pkts",
        sound: "Policy::Newer => number == *due || is_ahead,",
        broken: "Policy::Newer => number == *due || is_ahead || FAULT,",
        finder: Finder::Swarm,
    },
    Fault {
        name: "verdicts are not heeded",
        component: "drop_pkt",
        sound: "if !is_dropped {",
        broken: "if !is_dropped || FAULT {",
        finder: Finder::Swarm,
    },
    Fault {
        name: "the last judge alone is heeded",
        component: "drop_pkt",
        sound: "is_dropped |= matches!",
        broken: "is_dropped = (is_dropped && !FAULT) | matches!",
        finder: Finder::Tests("inic_conformance"),
    },
    Fault {
        name: "of those that waited one passes",
        component: "selective_repeat",
        sound: "io.card.waiting.remove(data.source, data.frame.len());\n                self.passing.push_back((at, data));",
        broken: "io.card.waiting.remove(data.source, data.frame.len());\n                self.passing.push_back((at, data));\n                if FAULT { break; }",
        finder: Finder::Swarm,
    },
    Fault {
        name: "nothing is kept",
        component: "selective_repeat",
        sound: "} else if ahead <= self.buffer_packets {",
        broken: "} else if ahead <= self.buffer_packets * u32::from(!FAULT) {",
        finder: Finder::Tests("inic_co"),
    },
    Fault {
        name: "packets leave as they come",
        component: "rate_control",
        sound: "self.free_at = goes + self.interval;",
        broken: "self.free_at = goes + self.interval.times(u64::from(!FAULT));",
        finder: Finder::Tests("inic_counts"),
    },
    Fault {
        name: "the remainder of a chunk is forgotten",
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
        name: "there is memory without end",
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
        name: "each packet is stored at the begin of its message",
        component: "host_receive",
        sound: "u64::from(packet).saturating_mul(packet_bytes)",
        broken: "u64::from(packet).saturating_mul(packet_bytes / if FAULT { 4_096 } else { 1 })",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a member of a large group has another parent than its parent thinks",
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
        name: "a group does not hear that a member does not answer",
        component: "../collectives/group",
        sound: "if self.links.iter().any(|link| link.node == node) {",
        broken: "if !FAULT && self.links.iter().any(|link| link.node == node) {",
        finder: Finder::Tests(
            "inic_collectives::an_unreachable_member_ends_operations_and_a_new_group_works",
        ),
    },
    Fault {
        name: "why a member has left is not told",
        component: "../collectives/group",
        sound: "Kind::Leave => return Err(head.code.into()),",
        broken: "Kind::Leave => return Err(if FAULT { POST_UNALIKE } else { head.code.into() }),",
        finder: Finder::Tests("inic_collectives::a_leaving_program_ends_the_operations_of_the_others"),
    },
    Fault {
        name: "who was too early is not remembered",
        component: "../collectives/mod",
        sound: "self.early.insert(key, Early { theirs: told.from, check: told.total });",
        broken: "if !FAULT { self.early.insert(key, Early { theirs: told.from, check: told.total }); }",
        finder: Finder::Tests("inic_collectives::a_group_starts_once_all_members_created_it_in_any_order"),
    },
    Fault {
        name: "what members ask for is not compared",
        component: "../collectives/group/rounds",
        sound: "part.asked.is_some_and(|other| other != asked)",
        broken: "part.asked.is_some_and(|other| other != asked && !FAULT)",
        finder: Finder::Tests("inic_collectives::members_with_different_operations_get_an_error"),
    },
    Fault {
        name: "members of a group are not compared",
        component: "../collectives/group",
        sound: "return if head.total == self.check { Ok(()) }",
        broken: "return if head.total == self.check || FAULT { Ok(()) }",
        finder: Finder::Tests("inic_collectives::members_with_different_member_lists_get_an_error"),
    },
    Fault {
        name: "a reduction goes on without its memory",
        component: "../collectives/group/rounds",
        sound: "locals.any(|(local, asked)| asked.bytes > 0",
        broken: "locals.any(|(local, asked)| !FAULT && asked.bytes > 0",
        finder: Finder::Tests("inic_collectives::closed_or_unreadable_memory_ends_the_operation"),
    },
    Fault {
        name: "a multicast does not wait for room",
        component: "../collectives/group/casts",
        sound: "if is_whole {\n            io.unit.wait_for_room",
        broken: "if is_whole && FAULT {\n            self.store_cast(io, name);\n        } else if is_whole {\n            io.unit.wait_for_room",
        finder: Finder::Tests("inic_collectives::a_multicast_waits_for_a_receive_buffer_at_every_member"),
    },
    Fault {
        name: "groups are made of a member twice",
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
        name: "operations are as long as one likes",
        component: "../command",
        sound: "let is_sound = is_message && bytes <= POST_MAX_COLLECTIVE_BYTES;",
        broken: "let is_sound = is_message && (bytes <= POST_MAX_COLLECTIVE_BYTES || FAULT);",
        finder: Finder::Tests("inic_collectives::invalid_collective_commands_are_refused_with_the_reason"),
    },
    Fault {
        name: "what cards say counts for interrupts",
        component: "mitigate",
        sound: "data.interrupts = !data.for_card && self.interrupts(&data);",
        broken: "data.interrupts = (!data.for_card || FAULT) && self.interrupts(&data);",
        finder: Finder::Tests("inic_collectives::collective_packets"),
    },
    Fault {
        name: "what cards say waits for memory of hosts",
        component: "split_packet",
        sound: "packet.is_too_much && header.has_data && !header.for_card;",
        broken: "packet.is_too_much && header.has_data && (!header.for_card || FAULT);",
        finder: Finder::Tests("inic_collectives::collective_packets_need_no_host_receive_buffers"),
    },
];
