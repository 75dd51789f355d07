//! The plait command.

fn main() {}
