//! `plait promote`: a replica becomes a database of its own.
//!
//! While this process has the lock of the follower, so that none begins meanwhile, it removes the mark, tells the session of those who have the
//! database open (REPLICA-3 in the engine's `replica.rs`), and then makes the file one that SQLite without Plait may write, too. Killed between, it leaves what a copy of a replica without its mark is: nobody writes that, and a second
//! `plait promote` ends the work (`csrc/follows.c`, FOLLOWS-5), or a session that refuses writes.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use plait_engine::database::Database;
use plait_engine::follower::promote;
use plait_engine::replica;
use plait_engine::ship::Shipper;
use plait_engine::storage::Storage as _;
use plait_engine::storage::making::remove_copies;
use plait_engine::storage::names::{follows_lock_path, follows_new_path, follows_path, unwritable};
use plait_engine::storage::os::OsStorage;
use plait_engine::sync::wait::Wait;

use crate::console::{GOOD, NOTICE, styled};
use crate::failure::{self, Failure, Result, quoted};
use crate::follows;
use crate::inspect::outlook::Outlook;
use crate::inspect::{Inspection, missing_beside_its_files};
use crate::sqlite::{self, Connection, Library, OpenFlags};

/// Longest wait for a lock of the database.
const PATIENCE: Duration = Duration::from_secs(20);

/// Arguments of `plait promote`.
#[derive(Args, Debug)]
pub struct PromoteArgs {
    /// The replica
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Removes the mark, and has the file say so.
pub fn run(args: &PromoteArgs) -> Result<u8> {
    let shown = args.file.display();
    let path = args.file.canonicalize().map_err(|e| {
        missing_beside_its_files(&args.file).unwrap_or_else(|| Failure::io("open", &args.file, &e))
    })?;
    let none = || {
        Failure::new(
            format!("{shown} follows no primary: it can be written as it is"),
            format!("`plait status {}` tells what it is", quoted(&args.file)),
        )
    };
    if !replica::is_marked(&path) && !is_copy(&path, &args.file)? && !is_followed(&path)? {
        return Err(none());
    }
    let lock = follows::lock(&path, &args.file)?;
    let was = match replica::read(&path) {
        Ok(None) if is_copy(&path, &args.file)? => "it was a copy of a replica".to_owned(),
        Ok(None) if is_followed(&path)? => {
            "it followed a primary, and its mark was removed before".to_owned()
        }
        Ok(None) => return Err(none()),
        Ok(Some(mark)) if mark.record == 0 && has_nothing(&path) => {
            return Err(Failure::new(
                format!("{shown} follows {}, and nothing has arrived yet", mark.place),
                format!(
                    "wait for its follower: `plait replicas {}` tells what is there; or, to use the empty file, remove its mark {}",
                    quoted(Path::new(&mark.place)),
                    quoted(&follows_path(&args.file))
                ),
            ));
        }
        Ok(Some(mark)) if mark.record == 0 => {
            format!("it followed {}, of which nothing had arrived", mark.place)
        }
        Ok(Some(mark)) => {
            format!("it followed {}, and was {}", mark.place, follows::reached(&mark))
        }
        Err(e) => format!("how far it was is not known: {e}"),
    };
    if let Some(file) = unwritable(&path) {
        return Err(Failure::new(
            format!("you may not write {}: {shown} stays a replica", file.display()),
            "run the command as the owner of the files, or give them the right".to_owned(),
        ));
    }
    // Where this is killed behind the mark, nobody looks for them again.
    remove_copies(&path);
    remove_mark(&path)?;
    let ended = end_following(&path);
    // A follower that runs without its lock makes it anew as long as the session lets it.
    remove_mark(&path)?;
    ended.and_then(|()| plait_sqlite::heed_mark(&path)).map_err(|why| {
        Failure::new(
            format!("{shown} follows nothing any more, and still cannot be written: {why}"),
            format!(
                "end a follower that still runs for it, which may be putting a copy into it, then run `plait promote {}` again",
                quoted(&args.file)
            ),
        )
    })?;
    // Nobody looks for it without the mark.
    let _ = std::fs::remove_file(follows_lock_path(&path));
    drop(lock);
    tell(&shown.to_string(), &was);
    Ok(failure::OK)
}

fn tell(shown: &str, was: &str) {
    anstream::println!("{} can be written from its next opening on: {was}", styled(GOOD, shown));
    anstream::println!(
        "{}",
        styled(
            NOTICE,
            "write the primary no more: the two would differ from here on; programs that have this one open can only read \
             until they open it again"
        )
    );
}

/// Tells the session of the database, if there is one, that it is no replica any more.
fn end_following(path: &Path) -> Result<(), String> {
    let joined = Joined::session(path).map_err(|e| e.what)?;
    let mut wait = Wait { timeout: PATIENCE, busy: None, interrupted: &mut || false };
    joined.map_or(Ok(()), |joined| promote(&joined.database, &mut wait).map_err(|e| e.to_string()))
}

/// Its session says that it is a replica, if there is one.
fn is_followed(path: &Path) -> Result<bool> {
    Ok(Joined::session(path)?.is_some_and(|joined| joined.database.is_followed()))
}

/// A session that this process has joined for a moment.
struct Joined {
    // Before the connection, which keeps the process a member.
    database: Arc<Database>,
    _connection: Connection,
}

impl Joined {
    /// Joins the session of the database at `path`, if one is there.
    fn session(path: &Path) -> Result<Option<Joined>> {
        match Inspection::as_it_moves(path)?.outlook() {
            Outlook::Joins(_) | Outlook::GoesOn | Outlook::Restores(_) => {}
            _ => return Ok(None),
        }
        let joined = || {
            let connection = Library::linked().open_with(path, OpenFlags::ReadWrite)?;
            connection.busy_timeout(PATIENCE)?;
            // Asked for what a member of the session alone can tell, it becomes one.
            connection.query("SELECT count(*) FROM plait_status")?;
            connection.query("SELECT count(*) FROM sqlite_schema")?;
            Ok(connection)
        };
        let connection = joined().map_err(|e| sqlite::failure(&e, "ask", path))?;
        let database = Shipper::joined(path);
        Ok(database.map(|database| Joined { database, _connection: connection }))
    }
}

/// The database is empty: it has no tables, nor anything else of a schema.
fn has_nothing(path: &Path) -> bool {
    let count = || {
        let connection = Library::linked().open_with(path, OpenFlags::ReadOnly)?;
        connection.busy_timeout(PATIENCE)?;
        connection.integer("SELECT count(*) FROM sqlite_schema")
    };
    count() == Ok(0)
}

/// The file says that it is a replica at rest.
fn is_copy(path: &Path, shown: &Path) -> Result<bool> {
    let state = Inspection::as_it_moves(shown)?;
    Ok(follows::Replica::of(path, state.header).is_some_and(|replica| replica.is_copy))
}

/// Durably, if there is one, with the room for the next one.
fn remove_mark(path: &Path) -> Result<()> {
    let mark = follows_path(path);
    match std::fs::remove_file(&mark) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(Failure::io("remove", &mark, &e)),
        _ => {}
    }
    // What else has that name is in nobody's way.
    let _ = std::fs::remove_file(follows_new_path(path));
    OsStorage.sync_dir_of(&mark).map_err(|e| Failure::io("sync the folder of", &mark, &e))
}
