//! What models are made of. A model composes them and adds what its paper adds.

pub mod profile;
