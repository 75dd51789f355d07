//! The crate as programs use it: one test program, since each is linked with all of SQLite.

mod bad_input;
mod borrowed;
mod examples;
mod futures;
mod model;
mod operations;
mod refused_by_the_compiler;
mod threads;
mod transactions;

use plait::{Connection, Database, Options, Synchronous};
use tempfile::TempDir;

/// A database in concurrent mode that does not wait for the disk, in a folder of its own.
struct Place {
    /// The open database.
    database: Database,
    /// Its folder; the file is `app.db`.
    folder: TempDir,
}

impl Place {
    /// Opens one.
    fn new() -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options::new().synchronous(Synchronous::Normal);
        let database = options.open(folder.path().join("app.db")).expect("it opens");
        Place { database, folder }
    }

    /// Another connection.
    fn connect(&self) -> Connection {
        self.database.connect().expect("it opens")
    }
}
