//! The mark of a replica, and whether its follower runs (docs/format.md, "The mark of a replica").

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use plait_engine::replica::{self, Mark};
use plait_engine::storage::names::follows_lock_path;
use plait_engine::storage::side;
use plait_engine::sync::clock::exact_unix_ms;
use serde_json::{Value as Json, json};

use crate::failure::{Failure, Result, quoted};
use crate::inspect::base::Header;
use crate::quantity::{age, count};

/// What is known of a replica from outside.
pub struct Replica {
    /// What the mark says, or why it says nothing.
    pub mark: Result<Mark, String>,
    /// Its file says that it is one, and no mark lies beside it.
    pub is_copy: bool,
    /// A follower has the lock.
    pub is_running: bool,
}

impl Replica {
    /// The replica at `path`, whose file begins with `header`; `None` if the database there is none.
    pub fn of(path: &Path, header: Header) -> Option<Replica> {
        let mark = match replica::is_marked(path) {
            true => replica::read(path).map_err(|e| e.to_string()).transpose(),
            false => None,
        };
        let Some(mark) = mark else {
            let why = "a copy of a replica, without the mark of its follower".to_owned();
            let copy = Replica { mark: Err(why), is_copy: true, is_running: false };
            return header.is_resting_replica().then_some(copy);
        };
        Some(Replica { mark, is_copy: false, is_running: is_running(path) })
    }

    /// The replica that is to be at `path`, where no database is yet, or none any more; `None` if nothing is to be there.
    pub fn awaited(path: &Path) -> Option<Replica> {
        let is_gone = path.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound);
        if !is_gone || replica::look(path) != Some(true) {
            return None;
        }
        let mark = replica::read(path).map_err(|e| e.to_string()).transpose();
        mark.map(|mark| Replica { mark, is_copy: false, is_running: is_running(path) })
    }

    /// What people are told of it where no database is.
    pub fn said_of_nothing(&self) -> String {
        match &self.mark {
            Ok(mark) if mark.record > 0 => {
                format!("follows {}: its database is not there any more", mark.place)
            }
            _ => self.said(),
        }
    }

    /// What people are told of it.
    pub fn said(&self) -> String {
        match &self.mark {
            Ok(mark) => format!("follows {}: {}", mark.place, reached(mark)),
            Err(why) => why.clone(),
        }
    }

    /// What is amiss with it, and what mends that.
    pub fn amiss(&self, shown: &Path) -> Option<(&'static str, String)> {
        let shown = quoted(shown);
        match &self.mark {
            Err(_) if self.is_copy => Some((
                "nobody can write it",
                format!("`plait promote {shown}`, which makes it a database of its own"),
            )),
            Err(_) => Some((
                "nobody can write it, or tell how far it is",
                format!(
                    "move it, its mark and the files beside it away, and follow anew; or `plait promote {shown}`"
                ),
            )),
            Ok(mark) if self.is_running && mark.trouble.is_empty() => None,
            Ok(mark) if self.is_running => Some((
                if mark.record == 0 { "its follower waits" } else { "its follower tries again" },
                format!("{}, for {}", mark.trouble, age(since_ms(mark.trouble_since_ms))),
            )),
            Ok(mark) => Some((
                "its follower does not run",
                match &*mark.trouble {
                    "" => format!("plait follow {} {shown}", quoted(Path::new(&mark.place))),
                    why => format!(
                        "plait follow {} {shown}; what was in its way: {why}",
                        quoted(Path::new(&mark.place))
                    ),
                },
            )),
        }
    }

    /// The same for programs.
    pub fn as_json(&self) -> Json {
        match &self.mark {
            Err(why) => json!({ "error": why, "running": self.is_running }),
            Ok(mark) => json!({
                "place": mark.place,
                "chain": mark.chain,
                "record": mark.record,
                "salt": mark.salt,
                "commit": mark.commit,
                "written_ms": mark.written_ms,
                "lag_ms": (mark.record > 0).then(|| lag_ms(mark)),
                "error": mark.trouble,
                "error_since_ms": mark.trouble_since_ms,
                "running": self.is_running,
            }),
        }
    }
}

/// The mark lies beside an empty file, as a program makes it that opens the name too early: the follower fills it.
pub fn is_empty_replica(path: &Path) -> bool {
    replica::is_marked(path) && std::fs::metadata(path).is_ok_and(|there| there.len() == 0)
}

/// How far a replica is.
pub fn reached(mark: &Mark) -> String {
    if mark.record == 0 {
        return "nothing is there yet".to_owned();
    }
    format!("through record {}, written {} ago", count(mark.record), age(lag_ms(mark)))
}

fn lag_ms(mark: &Mark) -> u64 {
    since_ms(mark.written_ms)
}

fn since_ms(then_ms: u64) -> u64 {
    exact_unix_ms().saturating_sub(then_ms)
}

/// Fails if the database at `path` is a replica: the command would write it.
pub fn refuse(path: &Path, header: Header, shown: &Path) -> Result<()> {
    let Some(replica) = Replica::of(path, header) else { return Ok(()) };
    let why = match replica.mark {
        Ok(mark) => format!("{} follows {}", shown.display(), mark.place),
        Err(why) if replica.is_copy => format!("{} is {why}", shown.display()),
        Err(why) => why,
    };
    Err(Failure::new(why, format!("write on the primary, or `plait promote {}`", quoted(shown))))
}

/// Fails if the follower of the database at `path` runs.
pub fn refuse_running(path: &Path, shown: &Path) -> Result<()> {
    if replica::is_marked(path) && is_running(path) { Err(runs(shown)) } else { Ok(()) }
}

fn is_running(path: &Path) -> bool {
    side::open(&follows_lock_path(path), false)
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Takes the lock of the follower of a replica, which must not run.
pub fn lock(path: &Path, shown: &Path) -> Result<File> {
    let lock = follows_lock_path(path);
    let opened = side::open(&lock, false).or_else(|e| match e.kind() {
        ErrorKind::NotFound => side::create(&lock, 0o600),
        _ => Err(e),
    });
    let file = opened.map_err(|e| Failure::io("open", &lock, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(runs(shown)),
        Err(TryLockError::Error(e)) => Err(Failure::io("lock", &lock, &e)),
    }
}

fn runs(shown: &Path) -> Failure {
    Failure::new(
        format!("the follower of {} runs", shown.display()),
        "end `plait follow` and run the command again",
    )
}
