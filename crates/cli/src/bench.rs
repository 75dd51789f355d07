//! `plait bench`: hands over to `plait-bench`, the evaluation suite.
//!
//! A program of its own, because each of its trials is a process in which only the measured library may be loaded: this
//! one has ours inside.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, Result};

/// The program's name.
const PROGRAM: &str = "plait-bench";

/// The command line of `plait bench`.
#[derive(clap::Args, Debug)]
pub struct BenchArgs {
    /// A study or other command of the suite, with its arguments; `plait bench --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    arguments: Vec<OsString>,
}

/// Becomes the suite's program. Returns only when that fails.
pub fn run(args: &BenchArgs) -> Result<u8> {
    let own = std::env::current_exe().map_err(|e| {
        Failure::new(
            format!("cannot tell where this program is: {e}"),
            format!("start {PROGRAM} itself"),
        )
    })?;
    let program = beside(&own);
    if !program.is_file() {
        return Err(Failure::new(
            format!("the evaluation suite is not there: {}", program.display()),
            "`make dist` builds it into dist/bin, where `plait` looks for it beside itself",
        ));
    }
    let error = Command::new(&program).args(&args.arguments).exec();
    Err(Failure::io("run", &program, &error))
}

fn beside(own: &Path) -> PathBuf {
    own.with_file_name(PROGRAM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_lies_beside_the_command() {
        assert_eq!(
            beside(Path::new("/opt/plait/bin/plait")),
            Path::new("/opt/plait/bin/plait-bench")
        );
    }
}
