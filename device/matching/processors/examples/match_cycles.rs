//! Runs the match unit on lists of one length, to have its instructions counted: `match_cycles ITEMS CYCLES`.

use niclab_model::models::matching::list_manager::Timing;
use niclab_processors::match_unit::{MatchUnitError, machine, pass};

fn main() -> Result<(), MatchUnitError> {
    let mut numbers = std::env::args().skip(1).filter_map(|number| number.parse().ok());
    let items: u32 = numbers.next().unwrap_or(300);
    let cycles = u64::from(numbers.next().unwrap_or(1_000_000));
    let mut manager = machine(items, Timing::default())?;
    while manager.cycle() < cycles {
        pass(&mut manager, items - 1)?;
    }
    println!("{items} items: {} cycles, {} by the automaton", manager.cycle(), manager.unit().automated());
    Ok(())
}
