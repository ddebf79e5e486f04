//! Assemblies by what they are to do: from a recipe, which can be drawn, comes one that makes sense.

use alloc::format;

use crate::assembly::{Assembly, End, PartError};
use crate::kinds::{Direction, Kind, Parameter, Policy};

/// What becomes of packets that are lost or out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Nothing: they are lost, and arrive as they come.
    Unreliable,
    /// They are lost, and what is older than the newest as well.
    Newest,
    /// They are sent again, and arrive as they come.
    Reliable,
    /// They are sent again, and all behind them as well.
    GoBackN,
    /// They are sent again, and those behind them wait.
    SelectiveRepeat,
}

impl Flow {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Unreliable, Self::Newest, Self::Reliable, Self::GoBackN, Self::SelectiveRepeat];

    /// Whether lost packets are sent again.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Unreliable | Self::Newest)
    }
}

/// What an assembly is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// What becomes of packets that are lost or out of order.
    pub flow: Flow,
    /// Whether duplicates are found, where packets are sent again; selective repeat drops them itself.
    pub finds_duplicates: bool,
    /// Whether packets leave at a controlled rate.
    pub controls_rate: bool,
    /// Whether the assembly says of which messages the host is interrupted.
    pub mitigates: bool,
    /// Places of every FIFO, from 1 on.
    pub depth: u16,
}

impl Recipe {
    /// The assembly, whose parameters have their defaults but where these do not go together. Components are named as
    /// their kinds, stubs by what they close.
    ///
    /// # Errors
    /// [`PartError::Depth`]; all else of a recipe fits an assembly's limits.
    pub fn assembly(self) -> Result<Assembly, PartError> {
        let mut shop = Shop { assembly: Assembly::default(), depth: self.depth };
        shop.send(self)?;
        shop.receive(self)?;
        shop.finish(self)
    }
}

/// An assembly that is being made.
struct Shop {
    assembly: Assembly,
    depth: u16,
}

impl Shop {
    /// Joins `from` and the input of that name of `to`; components that are not there yet are added.
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

    /// The way out: blocks B and A.
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

    /// The way in: blocks C and B.
    fn receive(&mut self, recipe: Recipe) -> Result<(), PartError> {
        self.join(Kind::WireIn, "packets", Kind::RcvPkt, "frames")?;
        self.join(Kind::RcvPkt, "packets", Kind::BadPktFilter, "packets")?;
        self.join(Kind::BadPktFilter, "packets", Kind::SplitPacket, "packets")?;
        let mut data = Kind::SplitPacket;
        // What tells build_acks which packets have arrived.
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

    /// A component whose verdicts say what is dropped.
    fn judge(&mut self, kind: Kind) -> Result<(), PartError> {
        self.join(Kind::SplitPacket, "headers", kind, "headers")?;
        self.join(kind, "verdicts", Kind::DropPkt, "verdicts")
    }

    /// What is not used is closed, and parameters are set that must go together.
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
            // A full window takes its time to leave.
            self.assembly.set(Kind::Timer, Parameter::TimeoutUs, 10_000)?;
        }
        if recipe.flow == Flow::Newest {
            self.assembly.set(Kind::OrderPkts, Parameter::Policy, Policy::Newer as u32)?;
        }
        Ok(self.assembly)
    }
}
