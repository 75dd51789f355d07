//! A database, a place for its replica, and the comparison of both.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use plait_client::Library;
use plait_replicate::restore::{Restored, Stop};

use crate::model::{Rows, restored, rows_of};
use crate::processes::{Process, open};

/// How long a replica may be behind on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A stage.
pub struct Stage {
    pub folder: tempfile::TempDir,
    pub database: PathBuf,
    pub url: PathBuf,
}

impl Stage {
    /// A database with the table `t`, in concurrent mode.
    pub fn new() -> Stage {
        Stage::in_folder(tempfile::tempdir().expect("a folder"))
    }

    /// The same, in this folder.
    pub fn in_folder(folder: tempfile::TempDir) -> Stage {
        let database = folder.path().join("app.db");
        let url = folder.path().join("replica");
        let db = Library::linked().open(&database).expect("a database");
        db.execute("PRAGMA journal_mode = concurrent").expect("the mode");
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)").expect("a table");
        Stage { folder, database, url }
    }

    pub fn writer(&self, name: u64, commits: Option<u64>, level: &str) -> Process {
        self.writer_killed_at(name, commits, level, None)
    }

    pub fn writer_killed_at(
        &self,
        name: u64,
        commits: Option<u64>,
        level: &str,
        at: Option<&str>,
    ) -> Process {
        let commits = commits.map_or_else(|| "for ever".to_owned(), |commits| commits.to_string());
        let database = self.database.to_str().expect("UTF-8");
        Process::in_role("writer", &[database, &name.to_string(), &commits, level], at)
    }

    pub fn sidecar(&self, more: &[&str]) -> Process {
        Process::sidecar(&self.url, &self.database, more, None)
    }

    /// A sidecar that is killed at a step of the engine's.
    #[cfg(feature = "crash-points")]
    pub fn sidecar_killed_at(&self, point: &str) -> Process {
        Process::sidecar(&self.url, &self.database, &[], Some(point))
    }

    /// Runs SQL on a connection of its own.
    pub fn execute(&self, sql: &str) {
        open(&self.database).execute(sql).unwrap_or_else(|e| panic!("{sql}: {}", e.said()));
    }

    pub fn rows(&self) -> Rows {
        rows_of(&self.database)
    }

    pub fn restored(&self) -> Result<(Rows, Restored), String> {
        restored(&self.url, self.folder.path(), Stop::Newest)
    }

    /// Waits until the replica has what the database has. Nobody writes.
    pub fn agrees(&self) -> Restored {
        self.has(&self.rows())
    }

    /// Waits until the replica has these rows.
    pub fn has(&self, expected: &Rows) -> Restored {
        let begun = Instant::now();
        loop {
            let found = self.restored();
            match &found {
                Ok((rows, restored)) if rows == expected => return restored.clone(),
                _ if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                Ok((rows, restored)) => {
                    let differ = |(id, v): &(&i64, &String)| rows.get(id) != Some(v);
                    let lacks: Vec<_> = expected.iter().filter(differ).take(5).collect();
                    let more = rows.keys().filter(|id| !expected.contains_key(id)).count();
                    panic!("{restored:?} lacks {lacks:?} and {more} are too many");
                }
                Err(why) => panic!("{why}"),
            }
        }
    }
}
