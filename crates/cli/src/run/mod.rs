//! `plait run`: starts a program on our library, and says so when that would be in vain.
//!
//! | module | concept |
//! |---|---|
//! | [`program`] | which file will run |
//! | [`elf`] | what that file says about itself |
//! | [`loaded`] | what the loader would take in for it |
//! | [`findings`] | why it would not use our library |
//! | [`environment`] | how it is made to |
//! | [`watch`] | what came of it |
//!
//! Deliberately absent: looking into modules that a program loads later (an extension of Python, a driver of Java).
//! `SELECT plait_version()` tells from inside, and the watcher when no database was opened.

pub mod elf;
mod environment;
pub mod findings;
mod loaded;
mod map;
mod program;
pub mod watch;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::Args;
use plait_sqlite::ffi::{report, wishes};

use crate::console;
use crate::failure::{Failure, Result};
use crate::installation;
use crate::sqlite::Library;
use elf::Image;
use findings::Finding;

/// Arguments of `plait run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM [ARGS]"
    )]
    command: Vec<OsString>,
    /// Do not warn about programs that will not use our library
    #[arg(long, short)]
    quiet: bool,
    /// Where the program asks for WAL it gets concurrent mode
    #[arg(long)]
    concurrent: bool,
}

/// The variable by which the library learns of `--concurrent`.
pub const JOURNAL_MODE: &str = wishes::JOURNAL_MODE.variable;
/// The variable that says where events go.
const EVENTS: &str = "PLAIT_EVENTS";

/// Becomes the program. Returns only when that fails.
pub fn run(args: &RunArgs) -> Result<u8> {
    let [name, arguments @ ..] = &args.command[..] else {
        return Err(Failure::usage("no program to run was given", "see `plait run --help`"));
    };
    refuse_unknown(args)?;
    let library = installation::our_library()?;
    if !elf::exports(&library, "plait_version").map_err(|e| Failure::io("read", &library, &e))? {
        return Err(Failure::new(
            format!("{} is not Plait's library: it has no plait_version", library.display()),
            "point PLAIT_LIB to the directory with our libsqlite3.so.0; `make dist` builds it in dist/lib",
        ));
    }
    let environment = environment::with_library(&library, |name| std::env::var_os(name))?;
    let program = program::find(name)?;
    if !args.quiet {
        for finding in examine(&program, &environment) {
            console::warn(&finding.what, &finding.advice);
        }
    }
    let mut command = Command::new(&program);
    command.arg0(name).args(arguments).envs(environment);
    if args.concurrent {
        command.env(JOURNAL_MODE, "concurrent");
    }
    // Without a watcher the program runs as well.
    let watched = if args.quiet { None } else { watch::start(&program).ok() };
    if let Some(report) = &watched {
        command.env(report::VARIABLE, report);
    }
    let error = command.exec();
    Err(program::refused(&program, &error))
}

/// The library takes a value that it does not know for none: the program would run, and not as its user expects.
fn refuse_unknown(args: &RunArgs) -> Result<()> {
    for wish in wishes::ALL.iter().filter(|wish| !args.concurrent || wish.variable != JOURNAL_MODE)
    {
        let said = std::env::var_os(wish.variable);
        wish.of(said.as_deref())
            .map_err(|why| Failure::usage(why, "mend it, or unset the variable"))?;
    }
    let Some(events) = std::env::var_os(EVENTS).filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let is_known = events == "stderr" || events == "journald" || events.as_bytes().contains(&b'/');
    if is_known {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "{EVENTS}={} is neither stderr nor journald nor a path, which has a /",
            events.to_string_lossy()
        ),
        "mend it, or unset the variable",
    ))
}

/// What is to be said before `program` starts.
fn examine(program: &Path, environment: &[(&str, OsString)]) -> Vec<Finding> {
    let chain = program::chain(program);
    chain.last().map(|started| examine_file(started, environment)).unwrap_or_default()
}

/// What is to be said about a file that the kernel starts.
fn examine_file(started: &Path, environment: &[(&str, OsString)]) -> Vec<Finding> {
    let Ok(Some(image)) = Image::read(started) else {
        // The kernel will say what is wrong with it.
        return Vec::new();
    };
    let mut findings = findings::about(started, &image, &Library::linked().source_id());
    if let (Some(interpreter), None) = (&image.interpreter, &image.sqlite_inside) {
        for library in loaded::libraries(interpreter, started, environment) {
            if let Ok(Some(image)) = Image::read(&library) {
                findings.extend(findings::about_library(started, &library, &image));
            }
        }
    }
    findings
}
