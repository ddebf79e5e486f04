//! The match unit and what feeds it ("An Architecture to Perform NIC Based MPI Matching", sections 3.2 and 4).
//!
//! * [`item`]: headers and list items, in the words in which they travel;
//! * [`reference`]: the matching rule, plainly, from the paper's Figure 1;
//! * [`unit`]: the microcoded engine, cycle by cycle;
//! * [`program`]: the Portals matching program;
//! * [`fifo`]: the two FIFOs between list manager and unit;
//! * [`list_manager`]: streams headers and items to the unit, and hears its verdicts.

pub mod fifo;
pub mod item;
pub mod list_manager;
pub mod program;
pub mod reference;
pub mod unit;
