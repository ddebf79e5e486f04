//! Clusters that are really booted. Each test reads as what a user does and what they then see.

mod collectives;
mod conform;
mod device_faults;
mod driver;
mod faults;
mod frames;
mod gamma;
mod grim;
mod identity;
mod inic;
mod lifetime;
mod links;
mod match_driver;
mod messages;
mod observe;
mod own_driver;
mod packages;
mod peripherals;
mod rules;
mod run;
mod shared_folder;
mod stops;
mod template;
mod template_attacks;
mod terminal;
mod unkind;
