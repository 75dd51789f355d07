//! Readers are never BUSY and see one snapshot, whatever goes on beside them.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::job::{Job, Running, Work};
use plait_tests::jobs::pairs;
use plait_tests::jobs::reader::Reader;
use plait_tests::jobs::script::{Script, Step};
use plait_tests::place::Place;
use plait_tests::sqlite::BUSY_SNAPSHOT;
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(2);

/// Every transaction keeps the sum at a thousand.
const ACCOUNTS: &str = "
    CREATE TABLE account(id INTEGER PRIMARY KEY, money INTEGER);
    CREATE INDEX account_money ON account(money);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100) INSERT INTO account SELECT i, 10 FROM n;
";

const TABLES: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT);
    CREATE INDEX t_val ON t(val);
    CREATE TABLE w(k TEXT PRIMARY KEY, n UNIQUE) WITHOUT ROWID;
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100) INSERT INTO t SELECT i, 'v'||i FROM n;
    INSERT INTO w SELECT 'k'||id, -id FROM t;
";

fn start_reader(fixture: &Fixture, place: Place, sql: &str, reopen: bool) -> Running {
    let work = Work::Reader(Reader {
        sql: sql.to_owned(),
        expected: Some(1000),
        time: TIME,
        reopen,
        busy_timeout: Duration::ZERO,
    });
    Job { subject: fixture.subject.clone(), database: fixture.database(), work }.start(place)
}

fn start_script(fixture: &Fixture, place: Place, steps: Vec<Step>) -> Running {
    let work = Work::Script(Script { steps, keep_going: true, rounds: u32::MAX });
    Job { subject: fixture.subject.clone(), database: fixture.database(), work }.start(place)
}

/// Runs readers beside a script that repeats until they are done.
fn beside(place: Place, steps: Vec<Step>) {
    let Some(subject) = real_plait("readers") else { return };
    let fixture = Fixture::new(subject, ACCOUNTS);
    // Kept until the end, so that no connection is ever the last to close: who opens while the last one closes may
    // see BUSY, as in WAL mode of stock SQLite, and readers here have no busy timeout.
    let kept = fixture.open();
    kept.integer("SELECT count(*) FROM account").expect("the rows can be counted");
    let writers: Vec<Running> =
        (0..2).map(|_| start_script(&fixture, place, steps.clone())).collect();
    let sums = [
        "SELECT sum(money) FROM account",
        "SELECT sum(money) FROM account INDEXED BY account_money WHERE money>-99999",
    ];
    let readers: Vec<Running> = [false, true]
        .into_iter()
        .flat_map(|reopen| sums.map(|sql| start_reader(&fixture, place, sql, reopen)))
        .collect();
    for reader in readers {
        let result: serde_json::Value = reader.result(TIME + Duration::from_secs(30));
        assert!(result["reads"].as_u64() > Some(0), "{result}");
    }
    for mut writer in writers {
        writer.stop();
        drop(writer);
    }
    let sum = kept.integer("SELECT sum(money) FROM account").expect("the sum can be read");
    assert_eq!(sum, 1000);
}

fn run(sql: &str) -> Step {
    Step::Run(0, sql.to_owned())
}

const TRANSFER: &str = "BEGIN CONCURRENT;
    UPDATE account SET money=money-1 WHERE id=abs(random())%100+1;
    UPDATE account SET money=money+1 WHERE id=abs(random())%100+1;
    UPDATE account SET money=money+1000-(SELECT sum(money) FROM account) WHERE id=1;
    COMMIT";

in_threads_and_processes! {
    fn readers_are_never_busy_beside_writers(place) {
        beside(place, vec![Step::Open(0), run(TRANSFER), run("ROLLBACK"), Step::Close(0)]);
    }

    fn readers_are_never_busy_beside_merges(place) {
        beside(place, vec![Step::Open(0), run(TRANSFER), run("ROLLBACK"), run("PRAGMA wal_checkpoint"), Step::Close(0)]);
    }

    fn readers_are_never_busy_beside_schema_changes(place) {
        let change = "CREATE TABLE IF NOT EXISTS scratch(a, b); CREATE INDEX IF NOT EXISTS scratch_a ON scratch(a);
                      INSERT INTO scratch VALUES(1, 2); DROP TABLE scratch;";
        beside(place, vec![Step::Open(0), run(TRANSFER), run("ROLLBACK"), run(change), Step::Close(0)]);
    }

    fn readers_are_never_busy_beside_vacuum(place) {
        beside(place, vec![Step::Open(0), run(TRANSFER), run("ROLLBACK"), run("VACUUM"), Step::Close(0)]);
    }

    // holds SNAP-1, SNAP-3, GEN-4
    fn a_long_reader_sees_one_snapshot_across_many_merges(place) {
        let Some(subject) = real_plait("a long reader") else { return };
        let fixture = Fixture::new(subject, ACCOUNTS);
        let mut reader = Actor::start(place, "reader", &fixture.subject, &fixture.database());
        let mut writer = Actor::start(place, "writer", &fixture.subject, &fixture.database());
        reader.ok("BEGIN");
        let before = reader.ok("SELECT * FROM account");
        reader.open_cursor("scan", "SELECT id, money FROM account ORDER BY money, id");
        let mut scanned = reader.step_cursor("scan", 10).rows;
        for round in 0..30 {
            writer.ok(&format!("UPDATE account SET money={round}; INSERT INTO account VALUES(1000+{round}, 5); DELETE FROM account WHERE id={}", round + 1));
            writer.run("PRAGMA wal_checkpoint");
            if round % 5 == 0 {
                assert_eq!(reader.ok("SELECT * FROM account"), before, "round {round}");
            }
        }
        scanned.extend(reader.step_cursor("scan", 1000).rows);
        assert_eq!(scanned, before, "an open scan too");
        reader.close_cursor("scan");
        reader.ok("COMMIT");
        assert_eq!(reader.integer("SELECT count(*) FROM account"), 100);
        writer.ok("PRAGMA wal_checkpoint");
        assert_eq!(reader.ok("PRAGMA integrity_check"), [vec!["ok".into()]]);
    }

    // holds SNAP-5
    fn deleted_rows_stay_deleted_after_every_merge(place) {
        let Some(subject) = real_plait("tombstones") else { return };
        let fixture = Fixture::new(subject, ACCOUNTS);
        let mut writer = Actor::start(place, "writer", &fixture.subject, &fixture.database());
        let mut reader = Actor::start(place, "reader", &fixture.subject, &fixture.database());
        for id in 1..=40 {
            writer.ok(&format!("DELETE FROM account WHERE id={id}"));
            if id % 4 == 0 {
                reader.ok("BEGIN; SELECT count(*) FROM account");
            }
            if id % 3 == 0 {
                reader.run("PRAGMA wal_checkpoint");
            }
            if id % 4 == 2 {
                reader.run("COMMIT");
            }
            writer.run("PRAGMA wal_checkpoint");
            writer.ok(&format!("INSERT INTO account VALUES({id}, 1); DELETE FROM account WHERE id={id}"));
            assert_eq!(writer.integer("SELECT count(*) FROM account"), 100 - id);
            assert_eq!(writer.integer(&format!("SELECT count(*) FROM account WHERE id<={id}")), 0);
        }
    }

    fn page_caches_and_statements_survive_merges(place) {
        let Some(subject) = real_plait("page caches") else { return };
        let fixture = Fixture::new(subject, ACCOUNTS);
        let mut writer = Actor::start(place, "writer", &fixture.subject, &fixture.database());
        let mut reader = Actor::start(place, "reader", &fixture.subject, &fixture.database());
        for round in 0..30 {
            reader.ok("SELECT sum(money) FROM account");
            writer.ok(&format!("UPDATE account SET money={round}"));
            writer.ok("PRAGMA wal_checkpoint");
            assert_eq!(reader.integer("SELECT sum(money) FROM account"), round * 100);
            assert_eq!(reader.integer("SELECT count(*) FROM account WHERE money=(SELECT max(money) FROM account)"), 100);
        }
    }

    fn looking_at_pages_in_a_transaction_that_has_read_never_fails_beside_writers(place) {
        let Some(subject) = real_plait("pages") else { return };
        for begin in ["BEGIN", "BEGIN CONCURRENT"] {
            for read_first in [true, false] {
                let fixture = Fixture::new(subject.clone(), TABLES);
                let start = |name| Actor::start(place, name, &fixture.subject, &fixture.database());
                let (mut reader, mut writer) = (start("reader"), start("writer"));
                let mut onlooker = start("onlooker");
                reader.busy_timeout(Duration::ZERO);
                onlooker.busy_timeout(Duration::ZERO);
                writer.ok("PRAGMA wal_checkpoint; INSERT INTO t VALUES(1000, 'above'); DELETE FROM w WHERE k='k3'");
                reader.ok(begin);
                if read_first {
                    assert_eq!(reader.integer("SELECT count(*) FROM t"), 101);
                }
                for round in 0..3 {
                    writer.ok(&format!("DELETE FROM t WHERE id={}; INSERT INTO w VALUES('new{round}', {round})", round + 1));
                    if round == 1 {
                        // Now nothing can be merged.
                        writer.ok("BEGIN IMMEDIATE; PRAGMA application_id=7; DELETE FROM t WHERE id>50");
                    }
                    for check in ["PRAGMA integrity_check", "PRAGMA quick_check", "PRAGMA integrity_check(w)"] {
                        assert_eq!(reader.ok(check), [vec!["ok".into()]], "{begin}, {round}: {check}");
                        assert_eq!(onlooker.ok(check), [vec!["ok".into()]], "outside of a transaction, {round}: {check}");
                    }
                    for count in ["PRAGMA page_count", "SELECT sum(pgsize) FROM dbstat", "SELECT count(*) FROM sqlite_dbpage"] {
                        assert!(reader.integer(count) > 3, "{begin}, {round}: {count}");
                        assert!(onlooker.integer(count) > 3, "outside of a transaction, {round}: {count}");
                    }
                    let rows = reader.integer("SELECT count(*) FROM t");
                    assert_eq!(rows, if read_first { 101 } else { 100 }, "one snapshot");
                    if round == 1 {
                        assert_eq!(writer.ok("PRAGMA integrity_check"), [vec!["ok".into()]]);
                        writer.ok("ROLLBACK");
                    }
                }
                reader.ok("COMMIT");
                assert_eq!(reader.ok("PRAGMA integrity_check"), [vec!["ok".into()]]);
            }
        }
    }

    fn looking_at_pages_counts_as_reading_everything(place) {
        let Some(subject) = real_plait("pages") else { return };
        for look in ["PRAGMA integrity_check", "SELECT sum(pgsize) FROM dbstat", "SELECT count(*) FROM sqlite_dbpage"] {
            for begin in ["BEGIN", "BEGIN CONCURRENT"] {
                for change in [None, Some("INSERT INTO w VALUES('new', 1)")] {
                    let fixture = Fixture::new(subject.clone(), TABLES);
                    let start = |name| Actor::start(place, name, &fixture.subject, &fixture.database());
                    let (mut reader, mut writer) = (start("reader"), start("writer"));
                    writer.ok("PRAGMA wal_checkpoint; INSERT INTO t VALUES(1000, 'above')");
                    reader.ok(&format!("{begin}; SELECT * FROM t WHERE id=1; {look}"));
                    let upgrade = "UPDATE t SET val='mine' WHERE id=1; COMMIT";
                    match change {
                        None => drop(reader.ok(upgrade)),
                        Some(change) => {
                            writer.ok(change);
                            reader.fails(upgrade, BUSY_SNAPSHOT);
                            reader.ok("ROLLBACK");
                        }
                    }
                    let mine = writer.integer("SELECT count(*) FROM t WHERE val='mine'");
                    assert_eq!(mine, i64::from(change.is_none()), "{look}, {begin}");
                }
            }
        }
    }

    fn dropped_and_created_tables_may_reuse_root_pages(place) {
        let Some(subject) = real_plait("root pages") else { return };
        let fixture = Fixture::new(subject, ACCOUNTS);
        let mut first = Actor::start(place, "first", &fixture.subject, &fixture.database());
        let mut second = Actor::start(place, "second", &fixture.subject, &fixture.database());
        for round in 0..15 {
            first.ok(&format!("CREATE TABLE x{round}(a INTEGER PRIMARY KEY, b)"));
            first.ok(&format!("INSERT INTO x{round} VALUES(1, {round}), (2, {round})"));
            assert_eq!(second.integer(&format!("SELECT sum(b) FROM x{round}")), 2 * round);
            second.ok(&format!("DROP TABLE x{round}"));
            second.ok(&format!("CREATE TABLE y{round}(a TEXT PRIMARY KEY, b) WITHOUT ROWID; INSERT INTO y{round} VALUES('k', 5)"));
            assert_eq!(first.ok(&format!("SELECT * FROM y{round}")), [vec![Value::from("k"), Value::from(5)]]);
            if round % 2 == 0 {
                first.ok("PRAGMA wal_checkpoint");
            }
            first.ok(&format!("DROP TABLE y{round}"));
        }
        assert_eq!(first.ok("PRAGMA integrity_check"), [vec!["ok".into()]]);
    }
}

#[test]
fn readers_are_never_busy_while_processes_come_and_go() {
    let subject = Subject::plait();
    if !subject.is_concurrent() {
        eprintln!("skipped: stock readers can be BUSY during recovery");
        return;
    }
    let fixture = Fixture::new(subject, &format!("{ACCOUNTS}{}", pairs::SCHEMA));
    let reader = start_reader(&fixture, Place::Processes, "SELECT sum(money) FROM account", true);
    let end = std::time::Instant::now() + TIME;
    let mut worker = 0;
    while std::time::Instant::now() < end {
        worker += 1;
        let work = Work::Pairs(pairs::Pairs { worker, reopen_every: 3, ..Default::default() });
        let job = Job { subject: fixture.subject.clone(), database: fixture.database(), work };
        let mut running = job.start(Place::Processes);
        let _: Option<pairs::Acknowledged> = running.next_line(Duration::from_secs(20));
        running.kill();
    }
    let _: serde_json::Value = reader.result(TIME + Duration::from_secs(30));
}
