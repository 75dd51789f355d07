//! A process that stands still at a named step of the engine, stopped by a signal with all that it holds, and what that costs the others.
//!
//! Beside it *witnesses* that were there before go on, over and over, and *visitors* come that open the database, do one thing and
//! close it. Every call of theirs must end in time, with success or with an error that the documentation promises; what was acknowledged
//! is there afterwards, what was refused is not.

use crate::actor::Actor;
use crate::crash::points::crash_points;
use crate::sqlite::{BUSY, Connection, INTERRUPT, SqlError};
use crate::subject::{Fixture, Subject};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, Instant};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, who INTEGER, b BLOB);
    CREATE INDEX t_who ON t(who); INSERT INTO t VALUES(0, 0, NULL)";
/// The others' busy timeout.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// When a call that has not returned counts as one that hangs.
pub const BOUND: Duration = Duration::from_secs(15);
/// Rows of one author have ids from its number times this on.
const PER_AUTHOR: i64 = 1_000_000;
/// The process that is stopped, as an author.
const VICTIM: i64 = 1;

/// Behind the first commit, at a checkpoint that lowers the fence and at the next commit.
const LOWERED: [&str; 3] = ["fence.lowering", "fence.lowered", "fence.raised_again"];

/// How the others stand to the process when it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// They have written before and go on.
    Crowd,
    /// They have the database open, and it is the first to write.
    First,
    /// They have the database open, and it alone writes, much.
    Growth,
    /// They come when it is stopped in the last close.
    Close,
    /// They come when it is stopped in a recovery.
    Recovery,
    /// They come when it is stopped in leaving the mode.
    Conversion,
}

impl Scene {
    fn of(point: &str) -> Self {
        match (point.split('.').next().unwrap_or_default(), point) {
            (_, "log.create.written" | "log.create.renamed") | ("fence", _) => Self::First,
            (_, "log.grow.filled" | "commit.ring_grown" | "commit.memory_grown") => Self::Growth,
            ("close", _) => Self::Close,
            ("recovery" | "rest", _) => Self::Recovery,
            ("disable", _) => Self::Conversion,
            _ => Self::Crowd,
        }
    }

    fn has_witnesses(self) -> bool {
        matches!(self, Self::Crowd | Self::First | Self::Growth)
    }
}

/// What becomes of the stopped process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It goes on.
    Continued,
    /// It is killed.
    Killed,
}

/// What somebody does over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Commits under NORMAL.
    Normal,
    /// Commits under FULL.
    Full,
    /// Reads.
    Reader,
    /// Changes the schema.
    Schema,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Full, Self::Reader, Self::Schema];

    fn prepare(self) -> &'static str {
        match self {
            Self::Normal => "PRAGMA synchronous=NORMAL",
            _ => "PRAGMA synchronous=FULL",
        }
    }

    fn sql(self, id: i64) -> String {
        match self {
            Self::Normal | Self::Full => {
                format!("INSERT INTO t VALUES({id}, {}, NULL)", id / PER_AUTHOR)
            }
            Self::Reader => "SELECT max(id), count(*) FROM t".into(),
            Self::Schema => format!("CREATE TABLE z{id}(a); DROP TABLE z{id}"),
        }
    }

    fn inserts(self) -> bool {
        matches!(self, Self::Normal | Self::Full)
    }
}

/// What the calls of one author came to.
#[derive(Debug, Default)]
struct Account {
    acknowledged: BTreeSet<i64>,
    refused: BTreeSet<i64>,
    /// The longest call, and its error.
    longest: Duration,
    longest_error: Option<SqlError>,
    /// Calls that succeeded.
    successes: u64,
    /// What went wrong.
    complaints: Vec<String>,
}

impl Account {
    /// Makes a call, and says whether it succeeded.
    fn call(&mut self, what: &str, call: impl FnOnce() -> Result<(), SqlError>) -> bool {
        let begun = Instant::now();
        let outcome = call();
        let took = begun.elapsed();
        if took > self.longest {
            self.longest = took;
            self.longest_error = outcome.clone().err();
        }
        if took > BOUND {
            self.complaints.push(format!("{what} took {took:?}"));
        }
        match &outcome {
            Err(error) if !matches!(error.code, BUSY | INTERRUPT) => {
                self.complaints.push(format!("{what}: {error}"));
            }
            _ => {}
        }
        self.successes += u64::from(outcome.is_ok());
        outcome.is_ok()
    }

    fn insert(&mut self, id: i64, what: &str, call: impl FnOnce() -> Result<(), SqlError>) -> bool {
        let done = self.call(what, call);
        let place = if done { &mut self.acknowledged } else { &mut self.refused };
        place.insert(id);
        done
    }

    fn once(&mut self, role: Role, connection: &Connection, id: i64) -> bool {
        let sql = role.sql(id);
        let call = || connection.execute(&sql);
        if role.inserts() { self.insert(id, &sql, call) } else { self.call(&sql, call) }
    }
}

/// Goes on until `stop`, and ends with one call that must succeed.
fn witness(
    fixture: &Fixture,
    role: Role,
    author: i64,
    ready: &AtomicBool,
    stop: &AtomicBool,
) -> Account {
    let mut account = Account::default();
    let connection = fixture.open();
    connection.busy_timeout(BUSY_TIMEOUT).expect("a timeout");
    connection.execute(role.prepare()).expect("a setting");
    connection.execute("SELECT count(*) FROM t").expect("it joins");
    while !ready.load(Relaxed) {
        sleep(Duration::from_millis(1));
    }
    let mut id = author * PER_AUTHOR;
    while !stop.load(Relaxed) {
        id += 1;
        account.once(role, &connection, id);
        sleep(Duration::from_micros(if role == Role::Reader { 2000 } else { 200 }));
    }
    // Whatever happened, from now on it works.
    connection.busy_timeout(BOUND).expect("a timeout");
    let mut last = Account::default();
    if !last.once(role, &connection, id + 1) {
        last.complaints.push(format!("{role:?} fails afterwards: {:?}", last.longest_error));
    }
    account.acknowledged.append(&mut last.acknowledged);
    account.complaints.append(&mut last.complaints);
    account
}

/// What a visitor does between opening and closing.
type Visit = fn(&Connection, &mut Account, i64);

const VISITS: [(&str, Visit); 7] = [
    ("a reader", |connection, account, id| {
        account.once(Role::Reader, connection, id);
    }),
    ("an insert under NORMAL", |connection, account, id| {
        let _ = connection.execute(Role::Normal.prepare());
        account.once(Role::Normal, connection, id);
    }),
    ("an insert under FULL", |connection, account, id| {
        account.once(Role::Full, connection, id);
    }),
    ("BEGIN IMMEDIATE", |connection, account, id| {
        let in_steps = ["BEGIN IMMEDIATE", &Role::Full.sql(id), "COMMIT"];
        steps(connection, account, id, in_steps);
    }),
    ("BEGIN CONCURRENT", |connection, account, id| {
        let in_steps =
            ["BEGIN CONCURRENT; SELECT count(*) FROM t WHERE id<9", &Role::Full.sql(id), "COMMIT"];
        steps(connection, account, id, in_steps);
    }),
    ("an insert that is interrupted", |connection, account, id| {
        connection.busy_timeout(BOUND * 4).expect("a timeout");
        let interrupter = connection.clone();
        let ended = std::sync::Arc::new(AtomicBool::new(false));
        let over = ended.clone();
        let thread = std::thread::spawn(move || {
            sleep(Duration::from_millis(500));
            while !over.load(Relaxed) {
                interrupter.interrupt();
                sleep(Duration::from_millis(50));
            }
        });
        account.once(Role::Full, connection, id);
        ended.store(true, Relaxed);
        thread.join().expect("no panic");
    }),
    ("plait_status", |connection, account, _| {
        account.call("plait_status", || {
            connection.execute("SELECT * FROM plait_status; SELECT * FROM plait_transactions")
        });
    }),
];

/// A transaction that is rolled back where it fails, which must work.
fn steps(connection: &Connection, account: &mut Account, id: i64, sql: [&str; 3]) {
    for (i, step) in sql.into_iter().enumerate() {
        let call = || connection.execute(step);
        let done = if i == 2 { account.insert(id, step, call) } else { account.call(step, call) };
        if !done {
            account.refused.insert(id);
            if !connection.autocommit()
                && !account.call("ROLLBACK", || connection.execute("ROLLBACK"))
            {
                account.complaints.push(format!("ROLLBACK failed: {:?}", connection.errmsg()));
            }
            return;
        }
    }
}

/// All visits at once. A visitor that does not come back is a complaint.
fn visit(fixture: &Fixture) -> Account {
    let (answer, answers) = channel();
    for (i, (name, work)) in VISITS.into_iter().enumerate() {
        let (answer, subject, database) =
            (answer.clone(), fixture.subject.clone(), fixture.database());
        let id = (100 + i as i64) * PER_AUTHOR;
        std::thread::spawn(move || {
            let mut account = Account::default();
            let mut opened = None;
            account.call("opening", || {
                let connection = subject.open(&database)?;
                connection.busy_timeout(BUSY_TIMEOUT)?;
                opened = Some(connection);
                Ok(())
            });
            if let Some(connection) = opened {
                work(&connection, &mut account, id);
                account.call("closing", || connection.close());
            }
            let _ = answer.send((name, account));
        });
    }
    drop(answer);
    let mut all = Account::default();
    let mut missing: BTreeSet<_> = VISITS.iter().map(|(name, _)| *name).collect();
    let deadline = Instant::now() + BOUND * 2;
    while let Ok((name, account)) =
        answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        missing.remove(name);
        all.complaints.extend(account.complaints.iter().map(|what| format!("{name}: {what}")));
        all.acknowledged.extend(&account.acknowledged);
        all.refused.extend(&account.refused);
        all.longest = all.longest.max(account.longest);
    }
    all.complaints.extend(missing.into_iter().map(|name| format!("{name} hangs")));
    all
}

/// What the others saw.
#[derive(Debug)]
pub struct Report {
    /// Of each role that had a witness, the longest call and whether it failed.
    pub stalls: Vec<(Role, Duration, bool)>,
    /// The longest call of a visitor.
    pub visitors: Duration,
    /// What went wrong.
    pub complaints: Vec<String>,
}

/// All points, with the number of the passage at which a process is stopped there.
#[must_use]
pub fn points() -> Vec<(&'static str, u32)> {
    let passage = |point| if Scene::of(point) == Scene::Crowd { 3 } else { 1 };
    // Those of a hold on the log are passed by sidecars alone, and those of a follower by followers: crates/replicate/tests/living kills at them.
    // Those of gaps, of commits over several files, of restoring and of putting aside are not passed in these scenes:
    // rows_among_deleted_ones.rs, missing_log_killed.rs and put_aside.rs kill at them, several_files_killed.rs kills and stops. Who restores
    // or puts aside holds what a recovery holds.
    const ELSEWHERE: [&str; 6] = ["follower.", "hold.", "gaps.", "several.", "restore.", "aside."];
    let is_here = |point: &&str| !ELSEWHERE.iter().any(|own| point.starts_with(own));
    crash_points().into_iter().filter(is_here).map(|point| (point, passage(point))).collect()
}

/// Stops a process at a point, lets the others run beside it, and then lets it go on, or kills it.
///
/// # Panics
/// If it does not get there.
#[must_use]
pub fn stop_at(
    subject: &Subject,
    point: &str,
    passage: u32,
    roles: &[Role],
    ending: Ending,
) -> Report {
    let scene = Scene::of(point);
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    if scene == Scene::Recovery {
        leave_a_log(&fixture);
    }
    let (ready, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut report =
        Report { stalls: Vec::new(), visitors: Duration::ZERO, complaints: Vec::new() };
    let roles = if scene.has_witnesses() { roles } else { &[] };
    let mut accounts = Vec::new();
    std::thread::scope(|scope| {
        // Also when the process does not get there.
        let _end = EndsAll([&ready, &stop]);
        let threads: Vec<_> = (2..)
            .zip(roles)
            .map(|(author, &role)| {
                let (fixture, ready, stop) = (&fixture, &ready, &stop);
                scope.spawn(move || witness(fixture, role, author, ready, stop))
            })
            .collect();
        if scene == Scene::Crowd {
            ready.store(true, Relaxed);
        } else {
            // The witnesses have joined when it comes.
            sleep(Duration::from_millis(100));
        }
        let (victim, id) = bring_to(&fixture, point, passage, scene);
        ready.store(true, Relaxed);
        accounts.push(visit(&fixture));
        report.visitors = accounts[0].longest;
        accounts.push(let_go(victim, id, scene, ending));
        stop.store(true, Relaxed);
        for (role, thread) in roles.iter().zip(threads) {
            let account = thread.join().expect("no panic");
            report.stalls.push((*role, account.longest, account.longest_error.is_some()));
            accounts.push(account);
        }
    });
    report.complaints.extend(accounts.iter_mut().flat_map(|account| account.complaints.drain(..)));
    look_afterwards(&fixture, &accounts, &mut report.complaints);
    report
}

/// The end of the stopped process, or of its being stopped; `id` is that of a row that it can insert.
fn let_go(mut victim: Actor, id: i64, scene: Scene, ending: Ending) -> Account {
    let mut account = Account::default();
    if ending == Ending::Killed {
        victim.kill();
        return account;
    }
    crate::os::resume(victim.pid()).expect("it goes on");
    // It may have waited for what the others have.
    if let Some(error) = victim.finish().error.filter(|error| error.code != BUSY) {
        account.complaints.push(format!("the stopped one: {error}"));
    }
    if scene.has_witnesses() {
        // A transaction that it was in the middle of.
        let _ = victim.run("COMMIT");
        let sql = Role::Full.sql(id);
        let call = || victim.run(&sql).error.map_or(Ok(()), Err);
        if !account.insert(id, "afterwards", call) {
            account.complaints.push("the stopped one fails afterwards".into());
        }
    }
    account
}

/// Tells the witnesses that it is over when it is dropped.
struct EndsAll<'a>([&'a AtomicBool; 2]);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        for flag in self.0 {
            flag.store(true, Relaxed);
        }
    }
}

/// A process that stands still at the point, and the id of a row that it has not inserted.
fn bring_to(fixture: &Fixture, point: &str, passage: u32, scene: Scene) -> (Actor, i64) {
    let at = format!("{point}:{passage}");
    let mut victim =
        Actor::in_process_with("the stopped one", &fixture.subject, &[("PLAIT_STOP_AT", &at)]);
    victim.open(&fixture.database()).expect("opening looks at nothing yet");
    let mut id = VICTIM * PER_AUTHOR;
    let mut next = || {
        id += 1;
        id
    };
    let mut script = vec!["PRAGMA synchronous=FULL".to_owned()];
    match scene {
        Scene::Crowd | Scene::Growth => {}
        Scene::First => {
            script.push(Role::Full.sql(next()));
            if LOWERED.contains(&point) {
                script.extend(["PRAGMA wal_checkpoint(TRUNCATE)".into(), Role::Full.sql(next())]);
            }
        }
        Scene::Recovery => script.push("SELECT count(*) FROM t".into()),
        Scene::Close => script.push(Role::Full.sql(next())),
        Scene::Conversion => {
            script.extend([Role::Full.sql(next()), "PRAGMA journal_mode=delete".into()])
        }
    }
    // What it passes only beside others, such as a queue, is met by chance: late where the machine is busy.
    let deadline = Instant::now() + BOUND * 4;
    for round in (0..).take_while(|&round| round < 400 || Instant::now() < deadline) {
        for sql in script.drain(..) {
            victim.send(&sql);
            if stands(&mut victim) {
                return (victim, next());
            }
        }
        if scene == Scene::Close {
            victim.send_close();
            assert!(stands(&mut victim), "{point} is not passed by a last close");
            return (victim, next());
        }
        let grows = scene == Scene::Growth;
        assert!(scene == Scene::Crowd || grows, "{point} is not passed");
        let who = VICTIM;
        script.extend([
            "BEGIN IMMEDIATE".to_owned(),
            Role::Full.sql(next()),
            "COMMIT".into(),
            Role::Full.sql(next()),
        ]);
        if (round % 4 == 1 || grows) && round < 60 {
            // One that the ring's usual part is too small for, and one after it that is short again.
            script.push(format!("INSERT INTO t VALUES({}, {who}, randomblob(1500000))", next()));
            script.push(Role::Full.sql(next()));
        }
        if round % 4 == 2 && !grows {
            script
                .extend(["PRAGMA wal_checkpoint".into(), "CREATE TABLE y(a); DROP TABLE y".into()]);
        }
    }
    panic!("{point} is never passed");
}

/// Whether the process is stopped in what it was sent; false when it has answered.
fn stands(victim: &mut Actor) -> bool {
    let deadline = Instant::now() + BOUND * 4;
    loop {
        if victim.finish_within(Duration::from_millis(3)).is_some() {
            return false;
        }
        if crate::os::is_stopped(victim.pid()) {
            return true;
        }
        assert!(Instant::now() < deadline, "the one that is to be stopped hangs");
    }
}

/// A fenced database whose last commits are in its log alone, as after a restart of the machine.
fn leave_a_log(fixture: &Fixture) {
    let mut writer = Actor::start(
        crate::place::Place::Processes,
        "the lost one",
        &fixture.subject,
        &fixture.database(),
    );
    writer.ok("PRAGMA synchronous=FULL; INSERT INTO t VALUES(900000000, 900, NULL)");
    writer.kill();
    std::fs::remove_file(fixture.side_file("-plait-shm")).expect("shared memory is removed");
}

fn look_afterwards(fixture: &Fixture, accounts: &[Account], complaints: &mut Vec<String>) {
    let connection = match fixture.subject.open(&fixture.database()) {
        Ok(connection) => connection,
        Err(error) => return complaints.push(format!("opening afterwards: {error}")),
    };
    let rows = match connection.query("SELECT id FROM t NOT INDEXED") {
        Ok(rows) => rows,
        Err(error) => return complaints.push(format!("reading afterwards: {error}")),
    };
    let ids: BTreeSet<i64> = rows.iter().map(|row| row[0].as_i64().expect("an id")).collect();
    for account in accounts {
        let lost: Vec<_> = account.acknowledged.difference(&ids).collect();
        let undead: Vec<_> = account
            .refused
            .difference(&account.acknowledged)
            .filter(|id| ids.contains(id))
            .collect();
        if !lost.is_empty() || !undead.is_empty() {
            complaints
                .push(format!("acknowledged and lost: {lost:?}; refused and there: {undead:?}"));
        }
    }
    match connection.text("PRAGMA integrity_check") {
        Ok(text) if text == "ok" => {}
        other => complaints.push(format!("integrity_check: {other:?}")),
    }
    if let Err(error) =
        connection.execute("INSERT INTO t VALUES(-1, -1, NULL); CREATE TABLE last(a)")
    {
        complaints.push(format!("writing afterwards: {error}"));
    }
}
