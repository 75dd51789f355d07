//! `plait recover`: brings a database to rest that programs left in the middle of their work.

use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use plait_engine::storage::os::OsStorage;
use plait_engine::storage::{Storage as _, side};

use crate::check::state::what_to_do;
use crate::console::{GOOD, NOTICE, styled};
use crate::failure::{self, Failure, Result, quoted};
use crate::follows;
use crate::inspect::log::Log;
use crate::inspect::outlook::{Advice, Instead, Outlook};
use crate::inspect::pairing::Pairing;
use crate::inspect::{Inspection, beside, users};
use crate::os::{self, FileSystem};
use crate::quantity::{bytes, count, of};
use crate::sqlite::{self, Library, OpenFlags};

/// How often it is opened to bring it to rest.
const ROUNDS_MAX: u32 = 3;
/// With less free space than this the disk counts as full.
const MARGIN_BYTES: u64 = 1 << 20;
/// Names that are tried for what is kept.
const NAMES_MAX: u32 = 1000;

/// Arguments of `plait recover`.
#[derive(Args, Debug)]
pub struct RecoverArgs {
    /// The database
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Give up what is only in the log and in shared memory, and accept the database file as it is
    #[arg(long)]
    accept_base: bool,
    /// Do not ask before giving something up
    #[arg(long, requires = "accept_base")]
    yes: bool,
    /// Give up also what opening the database would save from shared memory
    #[arg(long, requires = "accept_base")]
    force: bool,
}

/// Recovers as opening would, or gives up what the log holds.
pub fn run(args: &RecoverArgs) -> Result<u8> {
    let state = Inspection::of(&args.file)?;
    let shown = args.file.display();
    if state.is_in_use()
        && let Outlook::Refuses { why, .. } = state.outlook()
    {
        return Err(Failure::new(
            format!("{shown} cannot be recovered now: {why}"),
            format!("close {} first", crate::status::people(state.alive())),
        ));
    }
    if state.lost_by_opening().is_some() {
        return Err(empty(args));
    }
    match (state.outlook(), &state.pairing) {
        (Outlook::Mixes { why }, _) => return accept_file(args, &state, &why),
        // Who knows better takes the file.
        (Outlook::Ordinary | Outlook::Starts { .. }, Pairing::Suspect(why)) if args.accept_base => {
            return accept_file(args, &state, why);
        }
        (Outlook::Starts { .. }, _) if args.accept_base => {
            users::refuse_any(&state.path)?;
            anstream::println!(
                "{}: nothing was wrong with it, and nothing was given up",
                styled(GOOD, shown)
            );
            return Ok(failure::OK);
        }
        _ => {}
    }
    if !state.header.is_concurrent() && state.header.read_version < 3 {
        anstream::println!(
            "{shown} is in mode {}: SQLite recovers such files by itself when they are opened",
            state.header.mode()
        );
        return Ok(failure::OK);
    }
    if state.is_in_use() {
        return Err(Failure::new(
            format!(
                "{shown} is open in {}: it works and needs no recovery",
                crate::status::people(state.alive())
            ),
            "close these programs first if you want to give up what they have committed",
        ));
    }
    if matches!(state.log, Log::InUse) {
        return Err(Failure::new(
            format!(
                "{shown} is in use, but the shared memory of its users was removed or replaced under them"
            ),
            "close the programs that use it and run the command again",
        ));
    }
    if args.accept_base {
        return accept_base(args, &state);
    }
    let openers = crate::status::openers_of(&state.path);
    if state.wal_commits() > 0 && (state.lone.is_open || !openers.is_empty()) {
        return Err(Failure::new(
            format!(
                "{shown} is open in {}, which has {} in the WAL: it works and needs no recovery",
                crate::status::people(&openers),
                of(state.wal_commits(), "commit", "commits")
            ),
            format!(
                "close these programs, and the last brings them into the file; a copy meanwhile: `plait backup {} DEST`",
                quoted(&args.file)
            ),
        ));
    }
    recover(args, &state)
}

/// Everything has been brought into the file, and then opening failed over what stands under the log's name.
fn in_the_way(args: &RecoverArgs, why: &str) -> Option<Failure> {
    let is_restored = Inspection::of(&args.file).is_ok_and(|state| !state.header.is_fenced());
    let shown = args.file.display();
    is_restored.then(|| {
        Failure::new(
            format!("everything that was committed is in {shown} now, but nothing opens it: {why}"),
            "put that file away: the database does not need it",
        )
    })
}

fn recover(args: &RecoverArgs, state: &Inspection) -> Result<u8> {
    let shown = args.file.display();
    let told = match state.outlook() {
        Outlook::Refuses { why, advice: Advice::RecoverOrGiveUp } => {
            return Err(Failure::new(
                format!("{shown} cannot be recovered by this version: {why}"),
                what_to_do(state, Advice::RecoverOrGiveUp),
            ));
        }
        Outlook::Refuses { why, .. } => {
            return Err(Failure::new(
                format!("{shown} cannot be recovered: {why}"),
                format!(
                    "put back the missing or newer file; if it is gone for good, `plait recover {shown} --accept-base` \
                     accepts the database as it is (it asks; --yes answers)"
                ),
            ));
        }
        Outlook::Recovers { frames } => {
            format!("{} merged from the log", of(frames, "commit", "commits"))
        }
        Outlook::Restores(Instead::Failed) => {
            "everything in shared memory brought into the file, without the log, of which a write or sync had failed"
                .to_owned()
        }
        Outlook::Restores(_) => {
            "everything in shared memory brought into the file, without the log that was lost"
                .to_owned()
        }
        Outlook::GoesOn => "everything in shared memory and log merged".to_owned(),
        Outlook::SetsAside { .. } => {
            "a log that does not belong to the file was put aside, and is kept".to_owned()
        }
        _ if let commits @ 1.. = state.wal_commits() => {
            format!("{} brought into the file from its WAL", of(commits, "commit", "commits"))
        }
        _ => "there was nothing to recover".to_owned(),
    };
    let after = at_rest(&state.path, &args.file).map_err(|e| match state.outlook() {
        Outlook::Restores(Instead::InTheWay(why)) => in_the_way(args, &why).unwrap_or(e),
        _ => e,
    })?;
    let good = styled(GOOD, &shown);
    // Another program has opened it since.
    if after.is_in_use() && !matches!(after.outlook(), Outlook::Refuses { .. }) {
        let people = crate::status::people(after.alive());
        anstream::println!("{good}: {told}; it is open in {people} by now, and works");
        return Ok(failure::OK);
    }
    if after.header.is_fenced() {
        let what = format!("{shown} was recovered but is not at rest");
        return Err(match has_room(&after.path) {
            true => Failure::new(
                what,
                format!("run the command again; `plait check {shown}` tells more"),
            ),
            false => Failure::new(
                format!("{what}: the disk is full"),
                "free some space on that disk, or copy all files of the database to a larger one, and run the command again",
            ),
        });
    }
    if after.wal_commits() > 0 {
        return Err(still_in_wal(args, &after));
    }
    anstream::println!("{good}: {told}; it is a plain SQLite file at rest");
    Ok(failure::OK)
}

/// Its disk is not full, as far as is known.
fn has_room(path: &Path) -> bool {
    !FileSystem::of(path).is_ok_and(|fs| fs.free_bytes <= MARGIN_BYTES)
}

/// It was opened and closed, and commits are in the WAL all the same: SQLite leaves them there without a word when it cannot bring them into the file.
fn still_in_wal(args: &RecoverArgs, after: &Inspection) -> Failure {
    let (shown, wal) = (args.file.display(), beside(&after.path, "-wal"));
    let openers = crate::status::openers_of(&after.path);
    let folder = after.path.parent().unwrap_or(Path::new("/"));
    let (why, advice) = if after.lone.is_open || !openers.is_empty() {
        let who = match openers.len() {
            0 => "a program that is not seen from here".to_owned(),
            _ => crate::status::people(&openers),
        };
        (format!("it is open in {who}"), "close it, and run the command again".to_owned())
    } else if let Some(path) =
        [&*after.path, folder, &*wal].into_iter().find(|path| !os::is_writable(path))
    {
        let advice = "run the command again as the owner of the database, or where its file system can be written".to_owned();
        (format!("you may not write {}", path.display()), advice)
    } else if !has_room(&after.path) {
        (
            "the disk is full".to_owned(),
            "free some space on that disk and run the command again".to_owned(),
        )
    } else {
        let advice =
            format!("run the command again; `plait doctor {}` tells more", quoted(&args.file));
        ("SQLite did not bring them into the file".to_owned(), advice)
    };
    Failure::new(
        format!(
            "{shown} is not recovered: {} in {}, which the file alone lacks: {why}",
            of(after.wal_commits(), "commit is", "commits are"),
            wal.display()
        ),
        format!("{advice}; until then copy both files, never one of them"),
    )
}

/// Opens and closes it until it is at rest, as far as that helps: other programs may open it meanwhile and be killed.
fn at_rest(path: &Path, shown: &Path) -> Result<Inspection> {
    for _ in 1..ROUNDS_MAX {
        open_and_close(path, shown)?;
        let after = Inspection::of(shown)?;
        if after.is_in_use()
            || !matches!(after.outlook(), Outlook::GoesOn | Outlook::Recovers { .. })
        {
            return Ok(after);
        }
    }
    open_and_close(path, shown)?;
    Inspection::of(shown)
}

fn open_and_close(path: &Path, shown: &Path) -> Result<()> {
    Library::linked()
        .open_with(path, OpenFlags::ReadWrite)
        // The first makes it join, whatever state the files are in.
        .and_then(|db| db.query("SELECT count(*) FROM plait_status").map(|_| db))
        .and_then(|db| db.query("SELECT count(*) FROM sqlite_schema").map(drop))
        .map_err(|e| sqlite::failure(&e, "recover", shown))
}

fn accept_base(args: &RecoverArgs, state: &Inspection) -> Result<u8> {
    let shown = args.file.display();
    let log = beside(&state.path, "-plait");
    if state.base.is_empty() {
        return Err(empty(args));
    }
    follows::refuse(&state.path, state.header, &args.file)?;
    users::refuse_any(&state.path)?;
    let is_saved_by_opening = matches!(state.outlook(), Outlook::GoesOn | Outlook::Restores(_))
        && state.memory.as_ref().is_some_and(|m| m.has_unmerged(state.header.generation));
    if is_saved_by_opening && !args.force {
        return Err(Failure::new(
            format!("{shown}: shared memory holds commits that the database file lacks"),
            format!(
                "`plait recover {shown}`, or just opening it, brings them into the file and loses nothing; --force gives them up"
            ),
        ));
    }
    let lost = what_is_lost(state);
    if !args.yes {
        confirm(&format!("{shown}: {lost}"))?;
    }
    let mut kept = Vec::new();
    // The WAL of a replaced file goes with another than this one, which is used without it.
    let wal = state.is_replaced.then(|| beside(&state.path, "-wal"));
    // What its last transaction over several files would bring, where that is not decided or the file is not what it goes to.
    let pages = Some(plait_engine::pages::pages_path(&state.path));
    for given_up in [Some(log), wal, pages].into_iter().flatten() {
        kept.extend(keep(&given_up)?.map(|copy| (given_up, copy)));
    }
    if let Err(e) = sqlite::accept_base(&state.path) {
        for (original, copy) in &kept {
            // Nothing of it was given up: the copy would only puzzle.
            if size(original).is_some_and(|bytes| size(copy) == Some(bytes)) {
                let _ = std::fs::remove_file(copy);
            }
        }
        return Err(sqlite::failure(&e, "accept the base of", &args.file));
    }
    anstream::println!("{} is accepted as it is: a plain SQLite file at rest", styled(GOOD, shown));
    for (original, kept) in kept {
        if original == plait_engine::pages::pages_path(&state.path) {
            // Given up whatever it holds, now that there is a copy. What is not removed says so when it is in the way.
            let _ = side::open(&original, false).and_then(|file| side::remove(&file, &original));
        }
        anstream::println!(
            "what it did without was kept as {}; remove it when you are sure",
            kept.display()
        );
    }
    Ok(failure::OK)
}

/// The file is used alone: a WAL stands beside it that is of another one.
fn accept_file(args: &RecoverArgs, state: &Inspection, why: &str) -> Result<u8> {
    let (shown, wal) = (args.file.display(), beside(&state.path, "-wal"));
    if !args.accept_base {
        return Err(Failure::new(
            format!("{shown} is next to a WAL that belongs to another database file: {why}"),
            format!(
                "put the right one of them back; or use the file alone: `plait recover {} --accept-base` (it asks; --yes answers)",
                quoted(&args.file)
            ),
        ));
    }
    follows::refuse(&state.path, state.header, &args.file)?;
    users::refuse_any(&state.path)?;
    if !args.yes {
        confirm(&format!(
            "{shown}: the file is used alone, and the WAL beside it is set aside: {why}"
        ))?;
    }
    let said = |e: &std::io::Error| Failure::io("give another name to", &wal, e);
    let is_free = |to: &PathBuf| std::fs::symlink_metadata(to).is_err();
    let names = (1..NAMES_MAX).map(|n| beside(&wal, &format!("-given-up-{n}")));
    let Some(kept) = names.into_iter().find(is_free) else {
        return Err(said(&std::io::ErrorKind::AlreadyExists.into()));
    };
    std::fs::rename(&wal, &kept)
        .and_then(|()| OsStorage.sync_dir_of(&wal))
        .map_err(|e| said(&e))?;
    anstream::println!("{} is used as it stands", styled(GOOD, shown));
    anstream::println!(
        "the WAL that stood beside it was kept as {}; remove it when you are sure",
        kept.display()
    );
    Ok(failure::OK)
}

/// Opening an empty file, SQLite removes the WAL beside it, in which its content may be.
fn empty(args: &RecoverArgs) -> Failure {
    let shown = args.file.display();
    Failure::new(
        format!("{shown} is empty: there is nothing in it to recover or accept"),
        format!(
            "put the database file back; to begin with an empty database, move {shown}-wal and {shown}-plait away"
        ),
    )
}

/// What the user is about to give up, as far as it can be told.
fn what_is_lost(state: &Inspection) -> String {
    let memory =
        state.memory.as_ref().filter(|m| m.is_trusted() && m.has_unmerged(state.header.generation));
    let in_memory = match memory {
        Some(m) if m.unwritten_bytes > 0 => {
            format!(
                ", and {} in shared memory that are not in the log yet",
                bytes(m.unwritten_bytes)
            )
        }
        _ => String::new(),
    };
    if state.is_replaced {
        return format!(
            "the file is used alone: the WAL and the log beside it belong to another, and are set aside{in_memory}"
        );
    }
    match &state.log {
        Log::Sound(summary) if summary.frames > 0 => format!(
            "{} in the log ({}) will be given up{in_memory}",
            of(summary.frames, "commit", "commits"),
            bytes(summary.bytes)
        ),
        Log::Sound(_) => {
            format!("the log holds no commit that is not in the database file{in_memory}")
        }
        Log::Absent => format!(
            "the log is missing: what it held is given up{in_memory}; the database file holds everything through \
             generation {}",
            count(u64::from(state.header.generation))
        ),
        Log::Foreign { text, .. } => {
            format!("the log is of another database and is set aside ({text})")
        }
        Log::Ahead(text) => {
            format!(
                "all of the log is given up, and what the database file with its WAL lacks is lost ({text}){in_memory}"
            )
        }
        Log::Damaged(text) => {
            format!("what can still be read of the log is given up as well ({text})")
        }
        Log::InUse => "the log is in use".to_owned(),
    }
}

fn confirm(question: &str) -> Result<()> {
    let declined = || Failure::new("nothing was changed", "answer `yes`, or give --yes, to go on");
    anstream::eprintln!("{}", styled(NOTICE, question));
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "there is no terminal to ask on, and nothing was changed",
            "give --yes to go on without being asked",
        ));
    }
    anstream::eprint!("Type yes to go on: ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|_| declined())?;
    if answer.trim() == "yes" { Ok(()) } else { Err(declined()) }
}

fn size(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().map(|meta| meta.len())
}

/// Copies the log, so that nothing is beyond recall. Not by a second name: the file goes on to be used should giving up fail.
fn keep(log: &Path) -> Result<Option<PathBuf>> {
    let say = |e: &std::io::Error| Failure::io("keep a copy of", log, e);
    let mut source = match side::open(log, false) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| say(&e))?,
    };
    let mode = source.metadata().map_err(|e| say(&e))?.mode() & 0o777;
    for n in 1.. {
        let kept = beside(log, &format!("-given-up-{n}"));
        let mut target = match side::create(&kept, mode) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
            other => other.map_err(|e| say(&e))?,
        };
        if let Err(e) = std::io::copy(&mut source, &mut target).and_then(|_| target.sync_all()) {
            let _ = std::fs::remove_file(&kept);
            return Err(say(&e));
        }
        return Ok(Some(kept));
    }
    unreachable!("the loop returns")
}
