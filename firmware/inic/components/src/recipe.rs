//! Recipes: a valid assembly for each combination of properties. Swarms use random recipes.

use alloc::format;

use crate::assembly::{Assembly, End, PartError};
use crate::kinds::{Direction, Kind, Parameter, Policy};

/// Handling of packets that are lost or out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Lost packets stay lost, and packets are delivered as they arrive.
    Unreliable,
    /// Lost packets stay lost, and packets older than the newest one are dropped.
    Newest,
    /// Lost packets are retransmitted, and packets are delivered as they arrive.
    Reliable,
    /// Lost packets are retransmitted with all packets after them.
    GoBackN,
    /// Lost packets are retransmitted, and packets after them wait.
    SelectiveRepeat,
}

impl Flow {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Unreliable, Self::Newest, Self::Reliable, Self::GoBackN, Self::SelectiveRepeat];

    /// Whether lost packets are retransmitted.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Unreliable | Self::Newest)
    }
}

/// Properties of an assembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Handling of packets that are lost or out of order.
    pub flow: Flow,
    /// Whether duplicates are dropped if packets are retransmitted; selective repeat always drops them.
    pub finds_duplicates: bool,
    /// Whether packets leave at a controlled rate.
    pub controls_rate: bool,
    /// Whether the assembly mitigates interrupts.
    pub mitigates: bool,
    /// Depth of every FIFO, from 1.
    pub depth: u16,
}

impl Recipe {
    /// The assembly. Parameters have their defaults, except where these are inconsistent. Components are named after
    /// their kinds, stubs after the ports that they close.
    ///
    /// # Errors
    /// [`PartError::Depth`]; all other values of a recipe are within an assembly's limits.
    pub fn assembly(self) -> Result<Assembly, PartError> {
        let mut builder = Builder { assembly: Assembly::default(), depth: self.depth };
        builder.send(self)?;
        builder.receive(self)?;
        builder.finish(self)
    }
}

/// An assembly under construction.
struct Builder {
    assembly: Assembly,
    depth: u16,
}

impl Builder {
    /// Connects an output of `from` to an input of `to`, and adds the components if necessary.
    fn join(&mut self, from: Kind, output: &str, to: Kind, input: &str) -> Result<(), PartError> {
        let from = self.end(from, output, Direction::Out)?;
        let to = self.end(to, input, Direction::In)?;
        self.assembly.connect(from, to, self.depth)
    }

    fn end(&mut self, kind: Kind, port: &str, direction: Direction) -> Result<End, PartError> {
        let row = kind.row();
        let component = match self.assembly.place_of(row.name) {
            Some(component) => component,
            None => self.assembly.add(row.name, kind)?,
        };
        let is_output = direction == Direction::Out;
        let none = PartError::Port { component, port: row.ports.len(), is_output };
        Ok(End { component, port: row.port(port, direction).ok_or(none)? })
    }

    /// The sending direction: blocks B and A.
    fn send(&mut self, recipe: Recipe) -> Result<(), PartError> {
        let is_reliable = recipe.flow.is_reliable();
        let generator = if is_reliable { Kind::Genp } else { Kind::GenpUnreliable };
        self.join(Kind::HostSend, "messages", generator, "messages")?;
        self.join(generator, "pinfo", Kind::Xmit, "pinfo")?;
        if is_reliable {
            self.join(Kind::Genp, "next", Kind::Timer, "next")?;
            self.join(Kind::Genp, "next", Kind::BuildAcks, "next")?;
            self.join(Kind::Genp, "disable", Kind::Timer, "disable")?;
            self.join(Kind::Timer, "expiries", Kind::Genp, "expiries")?;
            self.join(Kind::BuildAcks, "acks", Kind::Xmit, "acks")?;
        }
        let last = if recipe.controls_rate { Kind::RateControl } else { Kind::Xmit };
        if recipe.controls_rate {
            self.join(Kind::Xmit, "packets", last, "packets")?;
        }
        self.join(last, "packets", Kind::WireOut, "packets")
    }

    /// The receiving direction: blocks C and B.
    fn receive(&mut self, recipe: Recipe) -> Result<(), PartError> {
        self.join(Kind::WireIn, "packets", Kind::RcvPkt, "frames")?;
        self.join(Kind::RcvPkt, "packets", Kind::BadPktFilter, "packets")?;
        self.join(Kind::BadPktFilter, "packets", Kind::SplitPacket, "packets")?;
        let mut data = Kind::SplitPacket;
        // The component whose headers report arrived packets to build_acks.
        let mut headers = Kind::SplitPacket;
        if recipe.finds_duplicates && matches!(recipe.flow, Flow::Reliable | Flow::GoBackN) {
            self.judge(Kind::DupFind)?;
            (data, headers) = (Kind::DropPkt, Kind::DupFind);
        }
        match recipe.flow {
            Flow::Newest | Flow::GoBackN => {
                self.judge(Kind::OrderPkts)?;
                (data, headers) = (Kind::DropPkt, Kind::OrderPkts);
            }
            Flow::SelectiveRepeat => {
                (data, headers) = (Kind::SelectiveRepeat, Kind::SelectiveRepeat);
                self.join(Kind::SplitPacket, "headers", headers, "headers")?;
            }
            Flow::Unreliable | Flow::Reliable => {}
        }
        if recipe.flow.is_reliable() {
            self.join(headers, "headers", Kind::BuildAcks, "headers")?;
            self.join(Kind::SplitPacket, "headers", Kind::Genp, "headers")?;
        }
        if data != Kind::SplitPacket {
            self.join(Kind::SplitPacket, "data", data, "data")?;
        }
        if recipe.mitigates {
            self.join(data, "data", Kind::Mitigate, "data")?;
            data = Kind::Mitigate;
        }
        self.join(data, "data", Kind::HostReceive, "data")
    }

    /// Adds a component whose verdicts decide which packets are dropped.
    fn judge(&mut self, kind: Kind) -> Result<(), PartError> {
        self.join(Kind::SplitPacket, "headers", kind, "headers")?;
        self.join(kind, "verdicts", Kind::DropPkt, "verdicts")
    }

    /// Closes unused ports, and sets parameters that must be consistent.
    fn finish(mut self, recipe: Recipe) -> Result<Assembly, PartError> {
        for component in 0..self.assembly.components().len() {
            let ports = self.assembly.components()[component].kind().row().ports;
            for (port, what) in ports.iter().enumerate() {
                let end = End { component, port };
                if self.assembly.connections().iter().any(|joint| joint.from == end || joint.to == end) {
                    continue;
                }
                let of = self.assembly.components()[component].kind().row().name;
                let stub = self.assembly.add(&format!("no_{of}_{}", what.name), Kind::Stub)?;
                let stub = End { component: stub, port: 0 };
                let is_input = what.leads(Direction::In);
                let (from, to) = if is_input { (stub, end) } else { (end, stub) };
                self.assembly.connect(from, to, self.depth)?;
            }
        }
        if matches!(recipe.flow, Flow::Unreliable | Flow::Newest | Flow::Reliable) {
            for kind in [Kind::Genp, Kind::GenpUnreliable, Kind::HostReceive] {
                self.assembly.set(kind, Parameter::Placement, 1)?;
            }
        }
        if recipe.flow == Flow::GoBackN {
            self.assembly.set(Kind::DupFind, Parameter::Beyond, 0)?;
        }
        if recipe.controls_rate {
            // With rate control, a full window takes long to leave.
            self.assembly.set(Kind::Timer, Parameter::TimeoutUs, 10_000)?;
        }
        if recipe.flow == Flow::Newest {
            self.assembly.set(Kind::OrderPkts, Parameter::Policy, Policy::Newer as u32)?;
        }
        Ok(self.assembly)
    }
}
