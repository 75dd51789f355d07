//! `plait bench`: hands over to `plait-bench`, the evaluation suite.
//!
//! A program of its own, because each of its trials is a process in which only the measured library may be loaded: this
//! one has ours inside.

use std::ffi::OsString;

use crate::companion;
use crate::failure::Result;

/// The command line of `plait bench`.
#[derive(clap::Args, Debug)]
pub struct BenchArgs {
    /// A study or other command of the suite, with its arguments; `plait bench --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    arguments: Vec<OsString>,
}

/// Becomes the suite's program. Returns only when that fails.
pub fn run(args: &BenchArgs) -> Result<u8> {
    companion::become_it("plait-bench", "the evaluation suite", &args.arguments)
}
