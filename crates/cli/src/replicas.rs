//! `plait replicate`, `plait follow`, `plait replicas` and `plait probe`: hand over to `plait-replicate`.
//!
//! A program of its own, because of what it has inside to reach object stores: a client for HTTP with TLS.

use std::ffi::OsString;

use crate::companion;
use crate::failure::Result;

/// The command line of a command that `plait-replicate` has too.
#[derive(clap::Args, Debug)]
pub struct ReplicaArgs {
    /// A folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX, and options, which --help lists
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "URL")]
    arguments: Vec<OsString>,
}

/// Becomes the program, for one of its commands. Returns only when that fails.
pub fn run(command: &str, args: &ReplicaArgs) -> Result<u8> {
    let words = std::iter::once(OsString::from(command)).chain(args.arguments.iter().cloned());
    companion::become_it("plait-replicate", "the program for replicas", words)
}
