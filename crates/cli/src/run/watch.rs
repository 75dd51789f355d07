//! After the program: what became of our library in it and in the programs that it started.
//!
//! `plait run` becomes the program, so that pid, signals and exit code are the program's own. Before that it starts a
//! watcher, by way of a process that ends at once: so the watcher is no child of the program, which may wait for all of its own. The
//! watcher sleeps until the program has ended, reads the file in which our library has noted where it was loaded, whether it
//! opened a database, and which it wrote in another mode (`plait_sqlite::ffi::report`), and removes it.
//!
//! Deliberately absent: statically linked programs that the program starts, which load nothing that could note them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use plait_sqlite::ffi::report;
use tempfile::TempPath;

use super::program;
use crate::inspect::base::BaseFile;
use crate::{console, os};

/// Name of the hidden command that watches.
pub const COMMAND: &str = "run-watch";
/// More programs than this are not looked into.
const PROGRAMS_MAX: usize = 64;

/// Arguments of the hidden command.
#[derive(Args, Debug)]
pub struct WatchArgs {
    /// The process to await
    pid: u32,
    /// The file that the library writes to
    report: PathBuf,
    /// What the process runs
    program: PathBuf,
    /// Watch; else start who does
    #[arg(long)]
    stay: bool,
}

/// Starts the watcher of this process, which is about to become `program`. Dropping the path calls it off.
pub fn start(program: &Path) -> io::Result<TempPath> {
    let file = tempfile::Builder::new().prefix("plait-run-").tempfile()?.into_temp_path();
    let pid = std::process::id().to_string();
    let arguments = [OsStr::new(&pid), file.as_os_str(), program.as_os_str()];
    command(&arguments)?.process_group(0).status()?;
    Ok(file)
}

fn command(arguments: &[&OsStr]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(COMMAND).args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

/// The hidden command.
pub fn run(args: &WatchArgs) -> io::Result<()> {
    if !args.stay {
        let pid = args.pid.to_string();
        let stay = OsStr::new("--stay");
        let arguments = [stay, OsStr::new(&pid), args.report.as_os_str(), args.program.as_os_str()];
        return command(&arguments)?.spawn().map(drop);
    }
    let has_ended = os::wait_for_end(args.pid);
    let said = std::fs::read(&args.report);
    let _ = std::fs::remove_file(&args.report);
    // No file: the program was not started. No end: the kernel cannot tell of it.
    let (Ok(said), true) = (said, has_ended) else { return Ok(()) };
    let noted = Noted::parse(&said);
    // Told of before it was started. Reports have the file itself, whatever links lead to it.
    let started = program::chain(&args.program).pop().and_then(|file| file.canonicalize().ok());
    let others = noted.programs.iter().filter(|&program| Some(program) != started.as_ref());
    for program in others.take(PROGRAMS_MAX) {
        for finding in super::examine_file(program, &environment()) {
            console::warn(&finding.what, &finding.advice);
        }
    }
    if !noted.has_opened {
        console::warn(
            &format!(
                "{} has ended, and no database was opened through Plait's library",
                args.program.display()
            ),
            unheard(os::effective_ids().0),
        );
    }
    if let Some(advice) = never_enabled(&noted) {
        console::note(&advice);
    }
    Ok(())
}

/// Why a program that was started by this user may have opened none.
fn unheard(user: u32) -> &'static str {
    match user {
        0 => {
            "if it used SQLite, then one of its own, or in processes that have another user since, which are not heard of: \
             `SELECT plait_version()` fails where Plait is not in use"
        }
        _ => "if it used SQLite, then one of its own: `SELECT plait_version()` fails there",
    }
}

/// What to say to who has started a program on the library and has no database in concurrent mode: the first that was written, if it is still
/// there.
fn never_enabled(noted: &Noted) -> Option<String> {
    let header = |path: &PathBuf| BaseFile::read(path).ok().and_then(|base| base.header);
    let written: Vec<_> =
        noted.written.iter().filter_map(|path| Some((path, header(path)?))).collect();
    // A program that has one is one of somebody who knows.
    if noted.has_concurrent || written.iter().any(|(_, header)| header.is_concurrent()) {
        return None;
    }
    let (path, header) = written.first()?;
    let more = match written.len() {
        1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    Some(format!(
        "{}{more} was written in journal mode {}, where one writes at a time; for many writers: plait enable {}",
        path.display(),
        header.mode(),
        path.display()
    ))
}

fn environment() -> Vec<(&'static str, OsString)> {
    let library = crate::installation::our_library();
    let found = library.and_then(|l| super::environment::with_library(&l, |n| std::env::var_os(n)));
    found.map(Vec::from).unwrap_or_default()
}

/// What the library has noted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Noted {
    programs: BTreeSet<PathBuf>,
    has_opened: bool,
    has_concurrent: bool,
    written: BTreeSet<PathBuf>,
}

impl Noted {
    fn parse(said: &[u8]) -> Noted {
        let mut noted = Noted::default();
        for record in said.split(|byte| *byte == 0) {
            if let Some(program) = record.strip_prefix(report::LOADED) {
                noted.programs.insert(PathBuf::from(OsStr::from_bytes(program)));
            }
            if let Some(database) = record.strip_prefix(report::WRITTEN) {
                noted.written.insert(PathBuf::from(OsStr::from_bytes(database)));
            }
            noted.has_opened |= record == report::OPENED;
            noted.has_concurrent |= record == report::CONCURRENT;
        }
        noted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_told_apart_whatever_a_path_holds() {
        let noted = Noted::parse(b"loaded /bin/a\nopened\0loaded /bin/b\0loaded /bin/b\0");
        let programs = ["/bin/a\nopened", "/bin/b"].map(PathBuf::from);
        assert_eq!(noted, Noted { programs: programs.into(), ..Noted::default() });
        assert!(Noted::parse(b"loaded /bin/a\0opened\0").has_opened);
        let noted = Noted::parse(b"written /a b\0concurrent\0written /a b\0");
        assert!(noted.has_concurrent && !noted.has_opened);
        assert_eq!(noted.written, [PathBuf::from("/a b")].into());
        assert_eq!(Noted::parse(b""), Noted::default());
    }
}
