//! Files of a killed session removed, emptied, or put back as they were at an earlier moment of it, in every combination of two. What
//! comes of it is everything that was acknowledged, or a refusal; an earlier state of the whole only where the record of what came after
//! it is gone; and never a mixture.

use plait_tests::actor::Actor;
use plait_tests::place::Place;
use plait_tests::sqlite::{CANTOPEN, CORRUPT, Connection, SqlError};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Commit `n` adds row `n` and says so in another table: any prefix of the commits can be told from a mixture.
const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, pad); CREATE INDEX t_v ON t(v);
    CREATE TABLE s(n INTEGER, v INTEGER); INSERT INTO t VALUES(1, 1, zeroblob(3000)); INSERT INTO s VALUES(1, 1);";
const LOOK: &str = "SELECT (SELECT n FROM s), (SELECT v FROM s), (SELECT count(*) FROM t), (SELECT max(id) FROM t),
    (SELECT sum(v) FROM t NOT INDEXED), (SELECT count(*) FROM t INDEXED BY t_v WHERE v>=0), (SELECT sum(v) FROM t INDEXED BY t_v WHERE v>=0)";
const BLOCK: usize = 4096;
const NAMES: [&str; 4] = ["", "-wal", "-plait", "-plait-shm"];
const BASE: usize = 0;
const WAL: usize = 1;
const LOG: usize = 2;
const MEMORY: usize = 3;

/// What a session does from one moment to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A row for the log.
    Row,
    /// A change of the schema, which goes to the WAL, with a row.
    Schema,
    /// A merge, and all of the WAL is brought into the file.
    Merge,
    /// The same while a reader keeps the WAL from being brought in whole.
    MergeBesideReader,
}

use Step::{Merge, MergeBesideReader, Row, Schema};

/// Every kind of end, over a WAL that holds something and over one that has started over.
const SESSIONS: [&[Step]; 5] = [
    &[Row, Schema, Row],
    &[Row, Schema],
    &[Row, Row, Merge, Row, Schema, Row, Row],
    &[Schema, Row, MergeBesideReader, Row, MergeBesideReader, Row],
    &[Row, MergeBesideReader, Schema, MergeBesideReader, Merge, Row, Merge],
];

/// A file's length, and those of its blocks that are not zero.
#[derive(Clone, PartialEq, Eq)]
struct Content {
    bytes: u64,
    blocks: Vec<(u64, Vec<u8>)>,
}

impl Content {
    fn of(path: &Path) -> Option<Content> {
        let all = std::fs::read(path).ok()?;
        let blocks = all.chunks(BLOCK).enumerate().filter(|(_, b)| b.iter().any(|b| *b != 0));
        let blocks = blocks.map(|(i, b)| ((i * BLOCK) as u64, b.to_vec())).collect();
        Some(Content { bytes: all.len() as u64, blocks })
    }

    fn put(&self, file: &File) {
        file.set_len(0).and_then(|()| file.set_len(self.bytes)).expect("as long as it was");
        for (at, block) in &self.blocks {
            file.write_all_at(block, *at).expect("as it was");
        }
    }
}

type Moment = [Option<Content>; 4];

/// What is done to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Harm {
    Missing,
    Emptied,
    /// As it was at an earlier moment, written into it.
    Older,
    /// The same, in a file that is moved over it.
    OlderMoved,
}

/// A session that was killed, with its files at each of its moments.
struct Session {
    fixture: Fixture,
    /// Commits acknowledged at each moment.
    commits: Vec<i64>,
    moments: Vec<Moment>,
}

fn actor(name: &str, subject: &Subject, database: &Path) -> Actor {
    Actor::start(Place::Processes, name, subject, database)
}

fn next_commit(writer: &mut Actor, n: i64, before: &str) {
    let pad = if n % 2 == 0 { 20 } else { 3000 };
    writer.ok(&format!(
        "BEGIN IMMEDIATE; {before} INSERT INTO t VALUES({n}, {n}, zeroblob({pad})); UPDATE t SET v=v+7 WHERE id={}; \
         UPDATE s SET n={n}, v=v+{n}+7; COMMIT",
        n / 2 + 1
    ));
}

impl Session {
    fn live_and_die(subject: &Subject, steps: &[Step]) -> Session {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let database = fixture.database();
        let mut writer = actor("writer", subject, &database);
        let mut reader = actor("reader", subject, &database);
        reader.ok("SELECT count(*) FROM t");
        let (mut n, mut commits, mut moments) = (1, Vec::new(), Vec::new());
        for (i, step) in steps.iter().enumerate() {
            match step {
                Row | Schema => {
                    n += 1;
                    let before = if *step == Schema {
                        format!("CREATE TABLE u{n}(a);")
                    } else {
                        String::new()
                    };
                    next_commit(&mut writer, n, &before);
                }
                Merge => drop(writer.ok("PRAGMA wal_checkpoint(TRUNCATE)")),
                MergeBesideReader => {
                    reader.ok("BEGIN; SELECT count(*) FROM t");
                    next_commit(&mut writer, n + 1, "");
                    n += 1;
                    writer.ok("PRAGMA wal_checkpoint");
                    next_commit(&mut writer, n + 1, "");
                    n += 1;
                    writer.ok("PRAGMA wal_checkpoint");
                    if i + 1 < steps.len() {
                        reader.ok("COMMIT");
                    }
                }
            }
            commits.push(n);
            moments.push(NAMES.map(|name| Content::of(&fixture.side_file(name))));
        }
        writer.kill();
        reader.kill();
        // Whichever are made anew meanwhile: memory goes by the numbers of these two files.
        for name in [NAMES[BASE], NAMES[LOG]] {
            std::fs::hard_link(fixture.side_file(name), kept(&fixture, name)).expect("kept");
        }
        *moments.last_mut().expect("a moment") =
            NAMES.map(|name| Content::of(&fixture.side_file(name)));
        Session { fixture, commits, moments }
    }

    fn acknowledged(&self) -> i64 {
        *self.commits.last().expect("a moment")
    }

    /// Puts everything there as the session left it, but for what is done to some files; `None` if that changes nothing.
    fn put(&self, moment: usize, harms: &[(usize, Harm)]) -> Option<()> {
        let left = self.moments.last().expect("a moment");
        for (file, harm) in harms {
            let older = &self.moments[moment][*file];
            let is_older = matches!(harm, Harm::Older | Harm::OlderMoved);
            if (is_older && (older.is_none() || *older == left[*file]))
                || left[*file].as_ref()?.bytes == 0
            {
                return None;
            }
        }
        let _ = std::fs::remove_file(self.fixture.side_file("-shm"));
        for (i, name) in NAMES.iter().enumerate() {
            let path = self.fixture.side_file(name);
            let _ = std::fs::remove_file(&path);
            let harm = harms.iter().find(|(file, _)| *file == i).map(|(_, harm)| *harm);
            if harm == Some(Harm::Missing) {
                continue;
            }
            let is_another = harm == Some(Harm::OlderMoved) || [WAL, MEMORY].contains(&i);
            if is_another {
                File::create(&path).expect("another file");
            } else {
                std::fs::hard_link(kept(&self.fixture, name), &path).expect("the file that it was");
            }
            let file = File::options().write(true).open(&path).expect("it opens");
            match harm {
                None => left[i].as_ref()?.put(&file),
                Some(Harm::Emptied) => file.set_len(0).expect("emptied"),
                Some(_) => self.moments[moment][i].as_ref()?.put(&file),
            }
        }
        Some(())
    }
}

fn kept(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.path(&format!("kept{name}"))
}

/// The commits that are there.
fn look(subject: &Subject, database: &Path) -> Result<i64, SqlError> {
    let connection = subject.open(database)?;
    let found = commits(&connection);
    let closed = connection.close();
    found.and_then(|n| closed.map(|()| n))
}

fn commits(connection: &Connection) -> Result<i64, SqlError> {
    let found = connection.query(LOOK)?.remove(0);
    let [n, v, ..] = &found[..] else { panic!("{found:?}") };
    assert_eq!(found, [n, v, n, n, v, n, v].map(Value::clone), "a mixture");
    assert_eq!(connection.text("PRAGMA integrity_check")?, "ok", "a mixture");
    connection.integer("SELECT n FROM s")
}

/// Tries it, and says what came of it in one word.
fn outcome(
    subject: &Subject,
    session: &Session,
    harms: &[(usize, Harm)],
    what: &str,
) -> &'static str {
    let database = session.fixture.database();
    // Memory counts beside the very file that it was made beside.
    let is_another =
        harms.iter().any(|h| [(BASE, Harm::Missing), (BASE, Harm::OlderMoved)].contains(h));
    let harmed = |file: usize| {
        harms.iter().any(|(harmed, _)| *harmed == file) || (file == MEMORY && is_another)
    };
    let is_there = |file: usize| {
        !harms.iter().any(|h| [(file, Harm::Missing), (file, Harm::Emptied)].contains(h))
    };
    let checked = subject.command().map(|mut command| {
        let check = command.args(["check", "--quick"]).arg(&database).output().expect("it runs");
        (check.status.success(), String::from_utf8_lossy(&check.stdout).into_owned())
    });
    let found = std::panic::catch_unwind(|| look(subject, &database));
    let found = found.unwrap_or_else(|_| panic!("{what}: a mixture"));
    let refusal = found.as_ref().err().map(|error| error.message.clone());
    let outcome = match found {
        Ok(n) if n == session.acknowledged() => "whole",
        Ok(n) => {
            assert!(n < session.acknowledged(), "{what}: {n}");
            let is_recorded = [LOG, MEMORY].iter().any(|file| !harmed(*file));
            assert!(!is_recorded, "{what}: {n} of {} commits", session.acknowledged());
            "earlier"
        }
        Err(error) if !is_there(BASE) => {
            // SQLite makes a new one, of which nothing is known.
            assert!(
                error.code == CANTOPEN || error.message.contains("no such table"),
                "{what}: {error}"
            );
            return "no database";
        }
        Err(error) => {
            assert!(error.code == CANTOPEN || error.code == CORRUPT, "{what}: {error}");
            let needs_help = harmed(BASE) || harmed(WAL) || (harmed(LOG) && harmed(MEMORY));
            assert!(needs_help, "{what}: {error}");
            "refused"
        }
    };
    if let Some((is_fine, text)) = checked {
        assert!(
            is_fine || refusal.is_some() || text.contains("plait recover"),
            "{what}: {outcome}, yet {text}"
        );
        assert!(!is_fine || refusal.is_none(), "{what}: {refusal:?}, yet {text}");
    }
    outcome
}

/// A child that another test starts has for a moment the locks of this process, which `plait check` takes for use.
static ONE_BY_ONE: Mutex<()> = Mutex::new(());

fn each_combination(steps: &[Step]) {
    let Some(subject) = real_plait("older copies") else { return };
    let _one = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let session = Session::live_and_die(&subject, steps);
    let mut tally = std::collections::BTreeMap::new();
    let mut tried = HashSet::new();
    let harms = |file| {
        let moved = (file == BASE).then_some(Harm::OlderMoved);
        [Harm::Missing, Harm::Emptied, Harm::Older]
            .into_iter()
            .chain(moved)
            .map(move |harm| (file, harm))
    };
    let one: Vec<_> = (0..NAMES.len()).flat_map(harms).map(|harm| vec![harm]).collect();
    let two = one.iter().flat_map(|first| {
        let file = first[0].0;
        (file + 1..NAMES.len()).flat_map(harms).map(|second| vec![first[0], second])
    });
    let mut all: Vec<_> = one.iter().cloned().chain(two).collect();
    // Three of one moment, beside a fourth that is newer.
    for newer in 0..NAMES.len() {
        all.push(
            (0..NAMES.len())
                .filter(|file| *file != newer)
                .map(|file| (file, Harm::Older))
                .collect(),
        );
    }
    for moment in 0..steps.len() - 1 {
        for harms in &all {
            let depends =
                harms.iter().any(|(_, harm)| matches!(harm, Harm::Older | Harm::OlderMoved));
            if !tried.insert((depends.then_some(moment), harms.clone()))
                || session.put(moment, harms).is_none()
            {
                continue;
            }
            let named: Vec<_> = harms
                .iter()
                .map(|(file, harm)| format!("app.db{}: {harm:?}", NAMES[*file]))
                .collect();
            let what = format!("{steps:?}, moment {moment}, {named:?}");
            let came = outcome(&subject, &session, harms, &what);
            *tally.entry(came).or_insert(0) += 1;
        }
    }
    println!("{steps:?}: {tally:?}");
    for came in ["whole", "refused"] {
        assert!(tally.contains_key(came), "{tally:?}");
    }
    // Whatever was tried: with the newest files everything is there.
    session.put(0, &[]).expect("all of them");
    assert_eq!(look(&subject, &session.fixture.database()), Ok(session.acknowledged()));
}

#[test]
fn older_copies_of_a_session_that_ends_with_a_row_behind_a_change_of_the_schema() {
    each_combination(SESSIONS[0]);
}

#[test]
fn older_copies_of_a_session_that_ends_with_a_change_of_the_schema() {
    each_combination(SESSIONS[1]);
}

#[test]
fn older_copies_of_a_session_whose_wal_has_started_over() {
    each_combination(SESSIONS[2]);
}

#[test]
fn older_copies_of_a_session_whose_wal_is_in_the_file_in_part() {
    each_combination(SESSIONS[3]);
}

// holds FILE-4
#[test]
fn older_copies_of_a_session_that_ends_with_a_merge() {
    each_combination(SESSIONS[4]);
}
