//! Processes of a trial: the test program itself in another role, and the sidecar.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use plait_client::{BUSY, Connection, Library, SqlError};

const ROLE: &str = "PLAIT_TEST_ROLE";

/// A process that is killed when it is dropped.
pub struct Process(Child);

impl Process {
    /// One that was begun elsewhere.
    pub fn of(child: Child) -> Process {
        Process(child)
    }

    /// The test program as `role`, with words for it; with `at`, killed at that step of the
    /// engine's.
    pub fn in_role(role: &str, words: &[&str], at: Option<&str>) -> Process {
        let own = std::env::current_exe().expect("this program");
        let mut command = Command::new(own);
        command.args(["--exact", "processes::role", "--nocapture"]);
        command.env(ROLE, [&[role], words].concat().join("\n"));
        command.envs(at.map(|point| ("PLAIT_CRASH_AT", point)));
        Process(command.stdout(Stdio::null()).spawn().expect("a process"))
    }

    /// The same, stopped at a step of the engine's.
    #[cfg(feature = "crash-points")]
    pub fn in_role_stopped(role: &str, words: &[&str], at: &str) -> Process {
        let own = std::env::current_exe().expect("this program");
        let mut command = Command::new(own);
        command.args(["--exact", "processes::role", "--nocapture"]);
        command.env(ROLE, [&[role], words].concat().join("\n")).env("PLAIT_STOP_AT", at);
        Process(command.stdout(Stdio::null()).spawn().expect("a process"))
    }

    /// The sidecar; with `at`, killed at that step of the engine's.
    pub fn sidecar(url: &Path, database: &Path, more: &[&str], at: Option<&str>) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
        command.envs(at.map(|point| ("PLAIT_CRASH_AT", point)));
        command.arg("run").arg(url).arg(database).args(["--interval", "50ms"]).args(more);
        Process(command.stdout(Stdio::null()).spawn().expect("a process"))
    }

    /// A follower; with `at`, killed at that step of the engine's.
    pub fn follower(url: &Path, database: &Path, at: Option<&str>) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
        command.envs(at.map(|point| ("PLAIT_CRASH_AT", point)));
        command.arg("follow").arg(url).arg(database).args(["--interval", "20ms"]);
        Process(command.stdout(Stdio::null()).spawn().expect("a process"))
    }

    /// A follower that is stopped at a step of the engine's; what it says goes into a file.
    #[cfg(feature = "crash-points")]
    pub fn follower_stopped(url: &Path, database: &Path, at: &str, said: std::fs::File) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
        command.env("PLAIT_STOP_AT", at).stderr(said);
        command.arg("follow").arg(url).arg(database).args(["--interval", "20ms"]);
        Process(command.stdout(Stdio::null()).spawn().expect("a process"))
    }

    /// It stands still.
    #[cfg(feature = "crash-points")]
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()));
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
    }

    /// One of its threads waits in a function of the kernel's.
    pub fn waits_in(&self, function: &str) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id()));
        let mut tasks = tasks.into_iter().flatten().flatten();
        tasks.any(|task| {
            std::fs::read_to_string(task.path().join("wchan")).is_ok_and(|at| at == function)
        })
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(id, signal).expect("it is there");
    }

    pub fn kill(mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Its exit code, if it has ended by itself.
    pub fn code(&mut self) -> Option<i32> {
        self.0.try_wait().expect("a status").and_then(|status| status.code())
    }

    /// Waits for its end.
    pub fn ended(mut self) -> ExitStatus {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            if let Some(status) = self.0.try_wait().expect("a status") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("a process does not end");
    }

    /// Tells it to end, and waits; returns its exit code.
    pub fn terminated(self) -> i32 {
        self.signal(rustix::process::Signal::TERM);
        let status = self.ended();
        status.code().unwrap_or_else(|| -status.signal().expect("a code or a signal"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The other roles of this program; as a test it does nothing.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split('\n').collect();
    match words[..] {
        ["writer", database, name, commits, level] => {
            writer(Path::new(database), name.parse().expect("a name"), commits, level);
        }
        ["merger", database] => {
            let db = open(Path::new(database));
            db.execute("INSERT OR REPLACE INTO t VALUES(2, 'merged')").expect("a commit");
            db.query("PRAGMA wal_checkpoint").expect("a merge");
        }
        ["schema", database, table] => {
            let db = open(Path::new(database));
            db.execute(&format!("CREATE TABLE {table}(a)")).expect("a table");
        }
        ["keeper", database, seconds] => {
            let db = open(Path::new(database));
            db.text("PRAGMA locking_mode = exclusive").expect("a mode");
            db.query("SELECT count(*) FROM t").expect("it is read");
            std::thread::sleep(Duration::from_secs(seconds.parse().expect("a number")));
        }
        ["pairs", database, first] => pairs(Path::new(database), first.parse().expect("a number")),
        ["reader", database, seconds] => {
            reader(Path::new(database), Duration::from_secs(seconds.parse().expect("a number")));
        }
        _ => panic!("{role} is no role"),
    }
}

pub fn open(database: &Path) -> Connection {
    let db = Library::linked().open(database).expect("the database opens");
    db.busy_timeout(Duration::from_secs(30)).expect("a timeout");
    db
}

fn try_commit(db: &Connection, statements: &[String]) -> Result<(), SqlError> {
    db.execute("BEGIN CONCURRENT")?;
    statements.iter().try_for_each(|statement| db.execute(statement))?;
    db.execute("COMMIT")
}

/// Repeats a transaction until it is committed.
pub fn commit(db: &Connection, statements: &[String]) {
    loop {
        match try_commit(db, statements) {
            Ok(()) => return,
            Err(e) if e.code & 0xff == BUSY => _ = db.execute("ROLLBACK"),
            Err(e) => panic!("{}", e.said()),
        }
    }
}

/// Writes until it is killed, or so many commits: rows of its own, with deletions, and one that all
/// writers share.
fn writer(database: &Path, name: u64, commits: &str, level: &str) {
    let db = open(database);
    db.execute(&format!("PRAGMA synchronous = {level}")).expect("a level");
    let commits = commits.parse().unwrap_or(u64::MAX);
    for n in 0..commits {
        let id = name * 1_000_000 + n % 700;
        let v = format!("{name}.{n}.{}", "x".repeat((n * 37 % 300) as usize));
        let mut statements = vec![
            format!("INSERT OR REPLACE INTO t VALUES({id}, '{v}')"),
            format!("INSERT OR REPLACE INTO t VALUES({}, 'last {n}')", name * 1_000_000 + 999_999),
        ];
        if n % 3 == 0 {
            statements.push(format!("DELETE FROM t WHERE id = {}", name * 1_000_000 + n * 7 % 700));
        }
        if n % 50 == 0 {
            statements.push(format!("INSERT OR REPLACE INTO t VALUES(1, '{name}.{n}')"));
        }
        commit(&db, &statements);
    }
}

/// The two rows that a writer of pairs keeps equal.
const PAIR: [i64; 2] = [10, 11];

/// Counts in two rows at once, from `first` on, until it is killed; each number gets a row of its own, too.
fn pairs(database: &Path, first: i64) {
    let db = open(database);
    for n in first.. {
        let mut statements: Vec<_> =
            PAIR.iter().map(|id| format!("INSERT OR REPLACE INTO t VALUES({id}, {n})")).collect();
        statements.push(format!("INSERT INTO t VALUES({}, 'x')", 1_000_000_000 + n));
        commit(&db, &statements);
    }
}

/// Reads a replica again and again: each look has a whole transaction, and none that is older than one
/// before.
fn reader(database: &Path, time: Duration) {
    let begun = Instant::now();
    let (mut last, mut looks) = (0, 0);
    let mut db = open(database);
    while begun.elapsed() < time {
        looks += 1;
        if looks % 50 == 0 {
            db = open(database);
        }
        db.execute("BEGIN").expect("a transaction");
        let seen = db
            .query("SELECT (SELECT v FROM t WHERE id=10), (SELECT v FROM t WHERE id=11), (SELECT max(id) FROM t) - 1000000000")
            .expect("rows");
        db.execute("COMMIT").expect("its end");
        let number = |value: &plait_client::Value| match value {
            plait_client::Value::Integer(n) => *n,
            plait_client::Value::Text(text) => {
                String::from_utf8_lossy(text).parse().expect("a number")
            }
            other => panic!("{other:?}"),
        };
        let [a, b, own] = &seen[0][..] else { panic!("three columns") };
        let (a, b, own) = (number(a), number(b), number(own));
        assert!(a == b && b == own, "a part of a transaction: {a}, {b}, {own}");
        assert!(a >= last, "back from {last} to {a}");
        last = a;
    }
    assert!(looks > 20, "{looks}");
}
