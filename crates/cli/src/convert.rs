//! `plait enable` and `plait disable`: in and out of concurrent mode.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use plait_engine::session::aside;

use crate::console::{FAINT, GOOD, NOTICE, styled};
use crate::failure::{self, Failure, Result, quoted};
use crate::follows;
use crate::inspect::outlook::Outlook;
use crate::inspect::{self, Inspection, SIDE_FILES, base_beside, beside};
use crate::run::JOURNAL_MODE;
use crate::sqlite::{self, Library, OpenFlags, SqlError};

/// How long a conversion waits for programs that use the file.
const PATIENCE: Duration = Duration::from_secs(5);

/// Arguments of `plait enable`.
#[derive(Args, Debug)]
pub struct EnableArgs {
    /// The database
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Make a new database if there is no file
    #[arg(long)]
    create: bool,
}

/// Arguments of `plait disable`.
#[derive(Args, Debug)]
pub struct DisableArgs {
    /// The database
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Journal mode that the file gets
    #[arg(long, value_enum, default_value_t = Target::Wal, value_name = "MODE")]
    to: Target,
}

/// SQLite's own journal modes that persist in a file.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Target {
    /// Write-ahead log: one writer, many readers.
    Wal,
    /// Rollback journal, SQLite's default.
    Delete,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Target::Wal => "wal",
            Target::Delete => "delete",
        }
    }
}

/// Switches concurrent mode on.
pub fn enable(args: &EnableArgs) -> Result<u8> {
    if is_missing(&args.file) {
        if !args.create {
            let advice = format!(
                "check the path; `plait enable --create {}` makes a new database",
                args.file.display()
            );
            return Err(missing(&args.file, &advice));
        }
        return create(&args.file);
    }
    let before = Inspection::of(&args.file)?;
    if before.header.is_concurrent() {
        refuse_if_broken(&before, &args.file)?;
        anstream::println!("{} is in concurrent mode already", args.file.display());
        return Ok(failure::OK);
    }
    follows::refuse(&before.path, before.header, &args.file)?;
    if matches!(before.outlook(), Outlook::Mixes { .. }) {
        refuse_if_broken(&before, &args.file)?;
    }
    convert(&before.path, &args.file, &["concurrent"])?;
    anstream::println!(
        "{} is in concurrent mode now (it was in mode {})",
        styled(GOOD, args.file.display()),
        before.header.mode()
    );
    for log in aside::logs(&before.path).iter().filter(|log| !before.put_aside.contains(log)) {
        anstream::println!(
            "{}",
            styled(
                NOTICE,
                format_args!(
                    "the log beside it, with commits of another database file, has another name now: {}",
                    log.display()
                )
            )
        );
    }
    say_how_it_is_used();
    Ok(failure::OK)
}

fn say_how_it_is_used() {
    anstream::println!(
        "{}",
        styled(
            FAINT,
            "While a program has written to it and not closed it yet, only Plait can open it: start programs with\n\
             `plait run -- PROGRAM`. When all have closed it, it is a plain SQLite file again."
        )
    );
}

/// Makes a new database.
fn create(file: &Path) -> Result<u8> {
    let shown = file.display();
    if let Some(failure) = inspect::missing_beside_its_files(file) {
        return Err(failure);
    }
    if let Some(base) = base_beside(file) {
        return Err(Failure::usage(
            format!(
                "{shown} is the name of a file that belongs to the database {}",
                base.display()
            ),
            "give another name",
        ));
    }
    // By this process alone: what it has made it may remove.
    let made = File::options().write(true).create_new(true).open(file);
    made.map_err(|e| Failure::io("make", file, &e))?;
    let path = file.canonicalize().map_err(|e| Failure::io("open", file, &e))?;
    if let Err(e) = convert(&path, file, &["concurrent"]) {
        for suffix in [""].iter().chain(&SIDE_FILES) {
            let _ = std::fs::remove_file(beside(&path, suffix));
        }
        return Err(e);
    }
    anstream::println!("{} is a new database in concurrent mode", styled(GOOD, shown));
    say_how_it_is_used();
    Ok(failure::OK)
}

/// Switches concurrent mode off.
pub fn disable(args: &DisableArgs) -> Result<u8> {
    if is_missing(&args.file) {
        return Err(missing(&args.file, "check the path"));
    }
    let before = Inspection::of(&args.file)?;
    let (shown, to) = (args.file.display(), args.to.name());
    if !before.header.is_concurrent() {
        if before.header.mode() == to {
            anstream::println!("{shown} is in mode {to} already");
            return Ok(failure::OK);
        }
        return Err(Failure::new(
            format!("{shown} is not in concurrent mode but in mode {}", before.header.mode()),
            format!("to change it all the same, run `PRAGMA journal_mode={to}` in a sqlite3 shell"),
        ));
    }
    if to == "wal"
        && std::env::var_os(JOURNAL_MODE)
            .is_some_and(|mode| mode.eq_ignore_ascii_case("concurrent"))
    {
        return Err(Failure::usage(
            format!(
                "{JOURNAL_MODE}=concurrent is set: it turns every wish for WAL into concurrent mode"
            ),
            format!("unset {JOURNAL_MODE} and run the command again"),
        ));
    }
    follows::refuse(&before.path, before.header, &args.file)?;
    refuse_if_broken(&before, &args.file)?;
    if before.is_in_use() {
        return Err(Failure::new(
            format!("{shown} is open in {}", crate::status::people(before.alive())),
            "close these programs and run the command again",
        ));
    }
    // Only a rollback mode leads out: who asks a concurrent database for WAL has it.
    let way: &[&str] = if to == "wal" { &["delete", "wal"] } else { &[to] };
    convert(&before.path, &args.file, way)?;
    anstream::println!(
        "{} is in mode {to} now: a plain SQLite file for every program",
        styled(GOOD, shown)
    );
    Ok(failure::OK)
}

fn is_missing(file: &Path) -> bool {
    std::fs::symlink_metadata(file).is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

fn missing(file: &Path, advice: &str) -> Failure {
    inspect::missing_beside_its_files(file)
        .unwrap_or_else(|| Failure::new(format!("there is no file {}", file.display()), advice))
}

/// Fails if nothing opens it.
pub fn refuse_if_broken(state: &Inspection, shown: &Path) -> Result<()> {
    match state.outlook() {
        Outlook::Refuses { why, .. } => Err(Failure::new(
            format!("{} cannot be opened: {why}", shown.display()),
            format!("run `plait check {}`, which tells what to do", quoted(shown)),
        )),
        Outlook::Mixes { why } => Err(Failure::new(
            format!(
                "{} is next to a WAL that belongs to another database file, and opening it would mix the two: {why}",
                shown.display()
            ),
            format!("run `plait check {}`, which tells what to do", quoted(shown)),
        )),
        _ => Ok(()),
    }
}

/// Switches from mode to mode, to the last of `way`.
pub fn convert(path: &Path, shown: &Path, way: &[&str]) -> Result<()> {
    let goal = way.last().copied().unwrap_or_default();
    let about =
        |e: SqlError| sqlite::failure(&e, &format!("switch to journal mode {goal} for"), shown);
    let db = Library::linked().open_with(path, OpenFlags::ReadWrite).map_err(about)?;
    db.busy_timeout(PATIENCE).map_err(about)?;
    for mode in way {
        let answer = db.text(&format!("PRAGMA journal_mode={mode}")).map_err(about)?;
        // A mode that is not taken is answered with the one in force, not with an error.
        if answer != *mode {
            return Err(Failure::new(
                format!("{} stays in journal mode {answer}", shown.display()),
                "close the programs that have it open and run the command again",
            ));
        }
    }
    // Mode and content must be readable by whoever comes next.
    db.query("SELECT count(*) FROM sqlite_schema").map(drop).map_err(about)
}
