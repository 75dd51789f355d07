//! What conflicts and what does not, case by case: every way in which one transaction can read what another changes.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY_SNAPSHOT, CONSTRAINT};
use plait_tests::subject::{Fixture, real_plait};
use std::time::{Duration, Instant};

/// Far more than what waits for nobody takes.
const PROMPT: Duration = Duration::from_secs(5);

const ROWS: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, grp INTEGER, val TEXT);
    CREATE INDEX t_grp ON t(grp);
    CREATE TABLE w(k TEXT, n INTEGER, val TEXT, PRIMARY KEY(k, n)) WITHOUT ROWID;
    CREATE TABLE own(id INTEGER PRIMARY KEY, val TEXT);
    CREATE TABLE empty(id INTEGER PRIMARY KEY, n INTEGER);
    CREATE INDEX empty_n ON empty(n);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100)
    INSERT INTO t SELECT i*10, i, 'v'||i FROM n;
    INSERT INTO w SELECT 'k'||(id/100), id, val FROM t;
    INSERT INTO own VALUES(1, 'a');
";

/// A reader that also writes something of its own, so that it has something to commit, and another that changes rows.
struct Pair {
    _fixture: Fixture,
    reader: Actor,
    other: Actor,
}

/// `merged` puts all rows into the base first, so that what is read there has no overlay.
fn pair(place: Place, schema: &str, merged: bool) -> Option<Pair> {
    let fixture = Fixture::new(real_plait("conflicts")?, schema);
    let start = |name| Actor::start(place, name, &fixture.subject, &fixture.database());
    let (reader, mut other) = (start("reader"), start("other"));
    if merged {
        other.ok("PRAGMA wal_checkpoint");
    }
    Some(Pair { _fixture: fixture, reader, other })
}

/// Whether a transaction that runs `read` conflicts with `change` by another, committed before it commits.
fn conflicts(place: Place, read: &str, change: &str, merged: bool) -> Option<bool> {
    let Pair { mut reader, mut other, _fixture } = pair(place, ROWS, merged)?;
    reader.ok("BEGIN CONCURRENT");
    reader.ok(read);
    reader.ok("UPDATE own SET val='b' WHERE id=1");
    other.ok(change);
    let reply = reader.run("COMMIT");
    let kept = match &reply.error {
        None => {
            assert!(!reply.in_transaction);
            "b"
        }
        Some(error) => {
            assert_eq!(error.extended, BUSY_SNAPSHOT, "{read} against {change}: {error}");
            assert!(reply.in_transaction, "a conflict leaves the transaction open");
            reader.ok("ROLLBACK");
            "a"
        }
    };
    let own = reader.ok("SELECT val FROM own");
    assert_eq!(own, [vec![kept.into()]], "{read} against {change}");
    Some(reply.error.is_some())
}

#[track_caller]
fn all_conflict(place: Place, cases: &[(&str, &str)]) {
    for (read, change) in cases {
        for merged in [false, true] {
            match conflicts(place, read, change, merged) {
                Some(conflict) => {
                    assert!(conflict, "no conflict: {read} against {change}, merged {merged}")
                }
                None => return,
            }
        }
    }
}

#[track_caller]
fn none_conflicts(place: Place, cases: &[(&str, &str)]) {
    for (read, change) in cases {
        for merged in [false, true] {
            match conflicts(place, read, change, merged) {
                Some(conflict) => {
                    assert!(!conflict, "a conflict: {read} against {change}, merged {merged}")
                }
                None => return,
            }
        }
    }
}

in_threads_and_processes! {
    // holds READSET-1
    fn a_changed_point_conflicts(place) {
        all_conflict(place, &[
            ("SELECT val FROM t WHERE id=50", "UPDATE t SET val='x' WHERE id=50"),
            ("SELECT val FROM t WHERE id=50", "DELETE FROM t WHERE id=50"),
            ("SELECT val FROM t WHERE id=55", "INSERT INTO t VALUES(55, 0, 'new')"),
            ("SELECT val FROM w WHERE k='k3' AND n=310", "UPDATE w SET val='x' WHERE k='k3' AND n=310"),
            ("SELECT val FROM w WHERE k='zz' AND n=1", "INSERT INTO w VALUES('zz', 1, 'new')"),
            ("SELECT grp FROM t WHERE grp=7", "UPDATE t SET grp=1000 WHERE id=70"),
            ("SELECT grp FROM t WHERE grp=1000", "UPDATE t SET grp=1000 WHERE id=70"),
        ]);
    }

    fn a_changed_range_conflicts(place) {
        all_conflict(place, &[
            ("SELECT * FROM t WHERE id BETWEEN 100 AND 200", "INSERT INTO t VALUES(155, 0, 'new')"),
            ("SELECT * FROM t WHERE id BETWEEN 100 AND 200", "DELETE FROM t WHERE id=150"),
            ("SELECT * FROM t WHERE id BETWEEN 100 AND 200 ORDER BY id DESC", "INSERT INTO t VALUES(155, 0, 'new')"),
            ("SELECT * FROM t WHERE id BETWEEN 105 AND 195", "INSERT INTO t VALUES(106, 0, 'new')"),
            ("SELECT * FROM t WHERE id > 900", "INSERT INTO t VALUES(2000, 0, 'new')"),
            ("SELECT * FROM t WHERE id < 50 ORDER BY id DESC", "INSERT INTO t VALUES(-5, 0, 'new')"),
            ("SELECT * FROM t", "INSERT INTO t VALUES(5000, 0, 'new')"),
            ("SELECT * FROM t WHERE val='nothing'", "UPDATE t SET val='nothing' WHERE id=10"),
            ("SELECT * FROM w WHERE k='k3'", "INSERT INTO w VALUES('k3', -1, 'new')"),
            ("SELECT * FROM w WHERE k='k3' ORDER BY n DESC", "INSERT INTO w VALUES('k3', 9999, 'new')"),
        ]);
    }

    fn a_changed_index_range_conflicts(place) {
        all_conflict(place, &[
            ("SELECT id FROM t INDEXED BY t_grp WHERE grp BETWEEN 20 AND 30", "UPDATE t SET grp=25 WHERE id=990"),
            ("SELECT id FROM t INDEXED BY t_grp WHERE grp BETWEEN 20 AND 30", "UPDATE t SET grp=500 WHERE id=250"),
            ("SELECT id FROM t INDEXED BY t_grp WHERE grp BETWEEN 20 AND 30 ORDER BY grp DESC", "INSERT INTO t VALUES(7, 25, 'new')"),
            ("SELECT id FROM t INDEXED BY t_grp WHERE grp > 95 ORDER BY grp DESC", "INSERT INTO t VALUES(7, 9999, 'new')"),
            ("SELECT id FROM t INDEXED BY t_grp WHERE grp IN (3, 5, 1000)", "INSERT INTO t VALUES(7, 1000, 'new')"),
        ]);
    }

    // holds READSET-2
    fn a_changed_boundary_conflicts(place) {
        all_conflict(place, &[
            ("SELECT max(id) FROM t", "INSERT INTO t VALUES(2000, 0, 'new')"),
            ("SELECT max(id) FROM t", "DELETE FROM t WHERE id=1000"),
            ("SELECT min(id) FROM t", "INSERT INTO t VALUES(1, 0, 'new')"),
            ("SELECT max(grp) FROM t", "UPDATE t SET grp=777 WHERE id=10"),
            ("SELECT min(grp) FROM t", "UPDATE t SET grp=-1 WHERE id=500"),
            ("SELECT id FROM t WHERE id>=55 ORDER BY id LIMIT 1", "INSERT INTO t VALUES(57, 0, 'new')"),
            ("SELECT id FROM t WHERE id<=55 ORDER BY id DESC LIMIT 1", "INSERT INTO t VALUES(53, 0, 'new')"),
            ("SELECT id FROM t WHERE id>=55 ORDER BY id LIMIT 1", "DELETE FROM t WHERE id=60"),
            ("SELECT * FROM t ORDER BY id LIMIT 3", "INSERT INTO t VALUES(25, 0, 'new')"),
        ]);
    }

    fn a_changed_count_conflicts(place) {
        all_conflict(place, &[
            ("SELECT count(*) FROM t", "INSERT INTO t VALUES(2000, 0, 'new')"),
            ("SELECT count(*) FROM t", "DELETE FROM t WHERE id=500"),
            ("SELECT count(*) FROM t WHERE grp>50", "INSERT INTO t VALUES(2000, 51, 'new')"),
            ("SELECT count(*) FROM w", "INSERT INTO w VALUES('a', 1, 'new')"),
        ]);
    }

    // holds READSET-1, READSET-2
    fn what_was_found_not_to_be_there_conflicts(place) {
        all_conflict(place, &[
            ("SELECT * FROM t WHERE id BETWEEN 101 AND 109", "INSERT INTO t VALUES(105, 0, 'new')"),
            ("SELECT * FROM t WHERE id BETWEEN 101 AND 109 ORDER BY id DESC", "INSERT INTO t VALUES(105, 0, 'new')"),
            ("SELECT * FROM t WHERE id>5000", "INSERT INTO t VALUES(6000, 0, 'new')"),
            ("SELECT * FROM t WHERE id<5 ORDER BY id DESC", "INSERT INTO t VALUES(1, 0, 'new')"),
            ("SELECT grp FROM t INDEXED BY t_grp WHERE grp BETWEEN 2000 AND 3000", "INSERT INTO t VALUES(7, 2500, 'new')"),
            ("SELECT grp FROM t INDEXED BY t_grp WHERE grp<1 ORDER BY grp DESC", "UPDATE t SET grp=0 WHERE id=500"),
            ("SELECT count(*) FROM t INDEXED BY t_grp WHERE grp>100", "UPDATE t SET grp=101 WHERE id=500"),
            ("SELECT EXISTS(SELECT 1 FROM t WHERE grp=1000)", "UPDATE t SET grp=1000 WHERE id=500"),
            ("SELECT t.id, w.n FROM t LEFT JOIN w ON w.k='zz' AND w.n=t.id WHERE t.id=50", "INSERT INTO w VALUES('zz', 50, 'new')"),
            ("SELECT t.id, w.n FROM t LEFT JOIN w ON w.k='k3' AND w.n>t.id WHERE t.id=900", "INSERT INTO w VALUES('k3', 901, 'new')"),
            ("SELECT * FROM empty", "INSERT INTO empty VALUES(1, 1)"),
            ("SELECT max(id) FROM empty", "INSERT INTO empty VALUES(1, 1)"),
            ("SELECT * FROM empty WHERE n=5", "INSERT INTO empty VALUES(1, 5)"),
            ("SELECT count(*) FROM empty", "INSERT INTO empty VALUES(1, 1)"),
        ]);
    }

    // holds TXN-2
    fn an_open_scan_has_read_what_it_has_passed(place) {
        let scans = [
            ("SELECT * FROM t ORDER BY id", "UPDATE t SET val='x' WHERE id=20", "UPDATE t SET val='x' WHERE id=900"),
            ("SELECT * FROM t WHERE id>=25", "INSERT INTO t VALUES(27, 0, 'new')", "INSERT INTO t VALUES(901, 0, 'new')"),
            ("SELECT * FROM t ORDER BY id DESC", "DELETE FROM t WHERE id=970", "DELETE FROM t WHERE id=100"),
            ("SELECT grp FROM t INDEXED BY t_grp WHERE grp>=5", "INSERT INTO t VALUES(7, 6, 'new')", "INSERT INTO t VALUES(7, 90, 'new')"),
            ("SELECT grp FROM t INDEXED BY t_grp WHERE grp>=5 ORDER BY grp DESC", "INSERT INTO t VALUES(7, 99, 'new')", "INSERT INTO t VALUES(7, 50, 'new')"),
            ("SELECT * FROM w ORDER BY k, n", "UPDATE w SET val='x' WHERE k='k0' AND n=20", "UPDATE w SET val='x' WHERE k='k8'"),
        ];
        for merged in [false, true] {
            for write_between in [false, true] {
                for (scan, passed, ahead) in scans {
                    for (change, conflict) in [(passed, true), (ahead, false)] {
                        let Some(Pair { mut reader, mut other, _fixture }) = pair(place, ROWS, merged) else { return };
                        reader.ok("BEGIN CONCURRENT");
                        reader.open_cursor("scan", scan);
                        reader.step_cursor("scan", if write_between { 1 } else { 5 });
                        reader.ok("UPDATE own SET val='b' WHERE id=1");
                        if write_between {
                            reader.step_cursor("scan", 4);
                        }
                        other.ok(change);
                        reader.close_cursor("scan");
                        let error = reader.run("COMMIT").error.map(|error| error.extended);
                        assert_eq!(error, conflict.then_some(BUSY_SNAPSHOT), "{scan} against {change}, merged {merged}, {write_between}");
                    }
                }
            }
        }
    }

    fn a_scan_that_began_before_the_transaction_counts(place) {
        for merged in [false, true] {
            let Some(Pair { mut reader, mut other, _fixture }) = pair(place, ROWS, merged) else { return };
            reader.open_cursor("scan", "SELECT * FROM t ORDER BY id");
            reader.step_cursor("scan", 3);
            reader.ok("BEGIN CONCURRENT");
            reader.step_cursor("scan", 3);
            reader.ok("UPDATE own SET val='b' WHERE id=1");
            reader.step_cursor("scan", 3);
            other.ok("UPDATE t SET val='x' WHERE id=80");
            reader.close_cursor("scan");
            reader.fails("COMMIT", BUSY_SNAPSHOT);
        }
    }

    fn a_scan_that_a_write_overtakes_goes_on_being_recorded(place) {
        for merged in [false, true] {
            for (change, conflict) in [
                ("UPDATE t SET val='x' WHERE id=20", true),
                ("UPDATE t SET val='x' WHERE id=80", true),
                ("INSERT INTO t VALUES(85, 0, 'new')", true),
                ("UPDATE t SET val='x' WHERE id=900", false),
            ] {
                let Some(Pair { mut reader, mut other, _fixture }) = pair(place, ROWS, merged) else { return };
                reader.ok("BEGIN CONCURRENT; SAVEPOINT s");
                reader.open_cursor("scan", "SELECT * FROM t ORDER BY id");
                reader.step_cursor("scan", 3);
                reader.ok("INSERT INTO t VALUES(65, 0, 'own')");
                reader.step_cursor("scan", 3);
                reader.ok("ROLLBACK TO s");
                reader.step_cursor("scan", 4);
                reader.close_cursor("scan");
                reader.ok("UPDATE own SET val='b' WHERE id=1");
                other.ok(change);
                let error = reader.run("COMMIT").error.map(|error| error.extended);
                assert_eq!(error, conflict.then_some(BUSY_SNAPSHOT), "{change}, merged {merged}");
            }
        }
    }

    // holds TXN-2
    fn what_was_not_read_does_not_conflict(place) {
        none_conflicts(place, &[
            ("SELECT val FROM t WHERE id=50", "UPDATE t SET val='x' WHERE id=60"),
            ("SELECT val FROM t WHERE id=50", "INSERT INTO t VALUES(51, 0, 'new')"),
            ("SELECT val FROM t WHERE id=55", "INSERT INTO t VALUES(56, 0, 'new')"),
            ("SELECT * FROM t WHERE id BETWEEN 100 AND 200", "UPDATE t SET val='x' WHERE id=300"),
            ("SELECT * FROM w WHERE k='k3' AND n=310", "INSERT INTO w VALUES('k3', 311, 'new')"),
            ("SELECT * FROM w WHERE k='k3'", "INSERT INTO w VALUES('k5', 1, 'new')"),
            ("SELECT id FROM t WHERE id=10", "INSERT INTO t VALUES(2000, 0, 'new')"),
            ("SELECT 1", "DELETE FROM t WHERE id<500"),
        ]);
    }

    // holds TXN-2
    fn a_scan_that_stops_early_has_read_only_so_far(place) {
        none_conflicts(place, &[
            ("SELECT * FROM t ORDER BY id LIMIT 3", "UPDATE t SET val='x' WHERE id=900"),
            ("SELECT * FROM t ORDER BY id DESC LIMIT 3", "UPDATE t SET val='x' WHERE id=100"),
            ("SELECT max(id) FROM t", "UPDATE t SET val='x' WHERE id=100"),
        ]);
    }

    fn write_skew_is_refused(place) {
        let Some(Pair { mut reader, mut other, _fixture }) = pair(place, ROWS, true) else { return };
        for actor in [&mut reader, &mut other] {
            actor.ok("BEGIN CONCURRENT");
            actor.ok("SELECT sum(grp) FROM t WHERE id IN (10, 20)");
        }
        reader.ok("UPDATE t SET grp=grp-5 WHERE id=10");
        other.ok("UPDATE t SET grp=grp-5 WHERE id=20");
        reader.ok("COMMIT");
        other.fails("COMMIT", BUSY_SNAPSHOT);
        other.ok("ROLLBACK");
        assert_eq!(reader.integer("SELECT sum(grp) FROM t WHERE id IN (10, 20)"), 1 + 2 - 5);
    }

    // holds CONN-3
    fn after_a_conflict_nothing_succeeds_until_rollback(place) {
        let Some(Pair { mut reader, mut other, _fixture }) = pair(place, ROWS, false) else { return };
        reader.ok("BEGIN CONCURRENT");
        reader.ok("SELECT * FROM t WHERE id=10");
        reader.ok("UPDATE own SET val='lost' WHERE id=1");
        other.ok("UPDATE t SET val='x' WHERE id=10");
        reader.fails("COMMIT", BUSY_SNAPSHOT);
        reader.fails("COMMIT", BUSY_SNAPSHOT);
        let reply = reader.run("UPDATE own SET val='lost again' WHERE id=1");
        assert!(reply.in_transaction);
        reader.fails("COMMIT", BUSY_SNAPSHOT);
        reader.ok("ROLLBACK");
        assert_eq!(other.ok("SELECT val FROM own"), [vec!["a".into()]]);
        reader.ok("BEGIN CONCURRENT; UPDATE own SET val='kept' WHERE id=1; COMMIT");
        assert_eq!(other.ok("SELECT val FROM own"), [vec!["kept".into()]]);
    }

    fn a_conflict_names_table_key_and_winner(place) {
        let Some(Pair { mut reader, mut other, _fixture }) = pair(place, ROWS, false) else { return };
        reader.ok("BEGIN CONCURRENT");
        reader.ok("SELECT * FROM t WHERE id=10; UPDATE own SET val='b'");
        other.ok("UPDATE t SET val='x' WHERE id=10");
        let error = reader.fails("COMMIT", BUSY_SNAPSHOT);
        let winner = match place {
            Place::Threads => std::process::id(),
            Place::Processes => other.pid(),
        };
        for part in [" t", "10", &winner.to_string()] {
            assert!(error.message.contains(part), "{part:?} is not in: {}", error.message);
        }
        reader.ok("ROLLBACK");
        let rows = other.ok("SELECT * FROM plait_conflicts");
        assert!(!rows.is_empty(), "plait_conflicts tells of it");
    }

    // holds CONN-1, TXN-4
    fn reads_of_a_rolled_back_savepoint_count(place) {
        let Some(Pair { mut reader, mut other, _fixture }) = pair(place, ROWS, true) else { return };
        reader.ok("BEGIN CONCURRENT; SAVEPOINT s");
        reader.ok("SELECT * FROM t WHERE id=10");
        reader.ok("ROLLBACK TO s; RELEASE s; UPDATE own SET val='b'");
        other.ok("UPDATE t SET val='x' WHERE id=10");
        reader.fails("COMMIT", BUSY_SNAPSHOT);
    }

    fn writes_of_a_rolled_back_savepoint_are_undone_and_their_probes_count(place) {
        let Some(Pair { mut reader, mut other, _fixture }) = pair(place, ROWS, true) else { return };
        reader.ok("BEGIN CONCURRENT; SAVEPOINT s; INSERT INTO t VALUES(15, 0, 'undone')");
        reader.ok("ROLLBACK TO s; RELEASE s; UPDATE own SET val='b'");
        other.ok("INSERT INTO t VALUES(15, 0, 'other')");
        reader.fails("COMMIT", BUSY_SNAPSHOT);
        reader.ok("ROLLBACK");
        assert_eq!(reader.ok("SELECT val FROM t WHERE id=15"), [vec!["other".into()]]);
    }

    fn overflow_pages_count_as_read(place) {
        let schema = "CREATE TABLE big(id INTEGER PRIMARY KEY, data TEXT); CREATE TABLE own(id INTEGER PRIMARY KEY, val TEXT);
                      INSERT INTO big VALUES(1, printf('%.*c', 50000, 'x')); INSERT INTO own VALUES(1, 'a');";
        for merged in [false, true] {
            let Some(Pair { mut reader, mut other, _fixture }) = pair(place, schema, merged) else { return };
            reader.ok("BEGIN CONCURRENT; SELECT substr(data, 40000, 1) FROM big WHERE id=1; UPDATE own SET val='b'");
            other.ok("UPDATE big SET data = data || 'y' WHERE id=1");
            reader.fails("COMMIT", BUSY_SNAPSHOT);
        }
    }

    fn one_unique_value_under_two_rowids_conflicts(place) {
        let schema = "CREATE TABLE u(id INTEGER PRIMARY KEY, k TEXT UNIQUE, n INTEGER); INSERT INTO u VALUES(1, 'a', 1);";
        let Some(Pair { mut reader, mut other, _fixture }) = pair(place, schema, false) else { return };
        reader.ok("BEGIN CONCURRENT; INSERT INTO u VALUES(10, 'k', 1)");
        other.ok("BEGIN CONCURRENT; INSERT INTO u VALUES(20, 'k', 1)");
        other.ok("COMMIT");
        reader.fails("COMMIT", BUSY_SNAPSHOT);
        reader.ok("ROLLBACK");
        reader.fails("INSERT INTO u VALUES(10, 'k', 1)", CONSTRAINT);
        assert_eq!(reader.integer("SELECT count(*) FROM u WHERE k='k'"), 1);
    }

    fn nulls_in_unique_columns_do_not_conflict(place) {
        let schema = "CREATE TABLE u(id INTEGER PRIMARY KEY, k TEXT UNIQUE, a, b, UNIQUE(a, b));";
        let Some(Pair { mut reader, mut other, _fixture }) = pair(place, schema, false) else { return };
        reader.ok("BEGIN CONCURRENT; INSERT INTO u VALUES(10, NULL, 1, NULL)");
        other.ok("BEGIN CONCURRENT; INSERT INTO u VALUES(20, NULL, 1, NULL); COMMIT");
        reader.ok("COMMIT");
        assert_eq!(reader.integer("SELECT count(*) FROM u"), 2);
    }

    fn deleting_a_parent_conflicts_with_inserting_its_child(place) {
        let schema = "CREATE TABLE parent(id INTEGER PRIMARY KEY); CREATE TABLE child(id INTEGER PRIMARY KEY, p REFERENCES parent(id));
                      CREATE INDEX child_p ON child(p); INSERT INTO parent VALUES(1),(2);";
        for child_first in [true, false] {
            let Some(Pair { mut reader, mut other, _fixture }) = pair(place, schema, child_first) else { return };
            reader.ok("PRAGMA foreign_keys=1; BEGIN CONCURRENT; INSERT INTO child VALUES(1, 1)");
            other.ok("PRAGMA foreign_keys=1; BEGIN CONCURRENT; DELETE FROM parent WHERE id=1");
            let (first, second) = if child_first { (&mut reader, &mut other) } else { (&mut other, &mut reader) };
            first.ok("COMMIT");
            second.fails("COMMIT", BUSY_SNAPSHOT);
            second.ok("ROLLBACK");
            assert_eq!(first.ok("PRAGMA foreign_key_check"), Vec::<Vec<_>>::new());
        }
    }

    fn what_a_trigger_reads_counts(place) {
        let schema = "CREATE TABLE limits(id INTEGER PRIMARY KEY, n); INSERT INTO limits VALUES(1, 10);
                      CREATE TABLE own(id INTEGER PRIMARY KEY, val); INSERT INTO own VALUES(1, 'a');
                      CREATE TABLE log(id INTEGER PRIMARY KEY, n);
                      CREATE TRIGGER g AFTER UPDATE ON own BEGIN INSERT INTO log(n) SELECT n FROM limits WHERE id=1; END;";
        let Some(Pair { mut reader, mut other, _fixture }) = pair(place, schema, true) else { return };
        reader.ok("BEGIN CONCURRENT; UPDATE own SET val='b' WHERE id=1");
        other.ok("UPDATE limits SET n=20 WHERE id=1");
        reader.fails("COMMIT", BUSY_SNAPSHOT);
    }

    fn two_writes_of_one_row_conflict_wherever_it_lies(place) {
        let changes = ["UPDATE t SET val='x' WHERE id=10", "DELETE FROM t WHERE id=10", "REPLACE INTO t VALUES(10, 5, 'r')"];
        for merged in [false, true] {
            for first in changes {
                for second in changes {
                    let Some(Pair { mut reader, mut other, _fixture }) = pair(place, ROWS, merged) else { return };
                    reader.ok(&format!("BEGIN CONCURRENT; {first}"));
                    other.ok(&format!("BEGIN CONCURRENT; {second}"));
                    other.ok("COMMIT");
                    reader.fails("COMMIT", BUSY_SNAPSHOT);
                    reader.ok("ROLLBACK");
                }
            }
        }
    }

    fn a_whole_delete_conflicts_with_an_insert(place) {
        for insert_first in [true, false] {
            let Some(Pair { mut reader, mut other, _fixture }) = pair(place, ROWS, insert_first) else { return };
            reader.ok("BEGIN CONCURRENT; DELETE FROM t");
            other.ok("BEGIN CONCURRENT; INSERT INTO t VALUES(12345, 1, 'new')");
            if insert_first {
                other.ok("COMMIT");
                reader.fails("COMMIT", BUSY_SNAPSHOT);
                reader.ok("ROLLBACK");
                assert_eq!(reader.integer("SELECT count(*) FROM t"), 101);
            } else {
                reader.ok("COMMIT");
                other.run("COMMIT");
                other.run("ROLLBACK");
                assert!(other.integer("SELECT count(*) FROM t") <= 1, "the delete was first or alone");
            }
        }
    }

    // holds TXN-3
    fn appends_with_automatic_rowids_do_not_conflict(place) {
        let schema = "CREATE TABLE a(id INTEGER PRIMARY KEY, v); CREATE INDEX a_v ON a(v);
                      CREATE TABLE b(id INTEGER PRIMARY KEY AUTOINCREMENT, v); CREATE TABLE c(v);
                      INSERT INTO a VALUES(5, 'x'); INSERT INTO b VALUES(5, 'x'); INSERT INTO c VALUES('x');";
        for merged in [false, true] {
            let Some(Pair { mut reader, mut other, _fixture }) = pair(place, schema, merged) else { return };
            for actor in [&mut reader, &mut other] {
                actor.ok("BEGIN CONCURRENT");
            }
            for actor in [&mut reader, &mut other, ] {
                actor.ok("INSERT INTO a(v) VALUES('n'); INSERT INTO b(v) VALUES('n'); INSERT INTO c VALUES('n');");
            }
            reader.ok("INSERT INTO a(v) VALUES('m')");
            other.ok("COMMIT");
            reader.ok("COMMIT");
            assert_eq!(reader.integer("SELECT count(*) FROM a"), 4);
            assert_eq!(reader.integer("SELECT count(*) FROM b"), 3);
            assert_eq!(reader.integer("SELECT count(DISTINCT rowid) FROM c"), 3);
            assert_eq!(reader.integer("SELECT min(id) FROM a"), 5);
            let sequence = reader.integer("SELECT seq FROM sqlite_sequence WHERE name='b'");
            assert!(sequence >= reader.integer("SELECT max(id) FROM b"), "the sequence covers every id");
        }
    }

    fn an_append_under_an_older_snapshot_never_takes_a_rowid_that_is_taken(place) {
        let schema = "CREATE TABLE a(id INTEGER PRIMARY KEY, v); CREATE INDEX a_v ON a(v); INSERT INTO a VALUES(10, 'x');
                      CREATE TABLE other(id INTEGER PRIMARY KEY); INSERT INTO other VALUES(1);";
        for merged in [false, true] {
            let Some(Pair { mut reader, mut other, _fixture }) = pair(place, schema, merged) else { return };
            reader.ok("BEGIN CONCURRENT; SELECT * FROM other");
            other.ok("INSERT INTO a(v) VALUES('theirs')");
            reader.ok("INSERT INTO a(v) VALUES('ours')");
            let reply = reader.run("COMMIT");
            let expected = match reply.error {
                None => 3,
                Some(error) => {
                    assert_eq!(error.extended, BUSY_SNAPSHOT, "{error}");
                    reader.ok("ROLLBACK");
                    2
                }
            };
            assert_eq!(other.integer("SELECT count(*) FROM a NOT INDEXED"), expected);
            assert_eq!(other.integer("SELECT count(*) FROM a WHERE v='theirs'"), 1);
            assert_eq!(other.ok("PRAGMA integrity_check"), [vec!["ok".into()]]);
        }
    }

    fn a_read_only_transaction_never_conflicts(place) {
        let Some(Pair { mut reader, mut other, _fixture }) = pair(place, ROWS, false) else { return };
        for begin in ["BEGIN CONCURRENT", "BEGIN"] {
            reader.ok(begin);
            let before = reader.ok("SELECT * FROM t");
            other.ok("UPDATE t SET val=val||'!' WHERE id<=500");
            assert_eq!(reader.ok("SELECT * FROM t"), before, "one snapshot");
            reader.ok("COMMIT");
            assert_ne!(reader.ok("SELECT * FROM t"), before, "then the present");
        }
    }
}

/// Those that have lost begin one after the other (txn/begin.rs). Nobody is kept up by that: here all are of one thread.
#[test]
fn transactions_that_keep_losing_keep_nobody_from_anything() {
    let Some(subject) = real_plait("turns") else { return };
    let fixture = Fixture::new(
        subject,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, n); INSERT INTO t VALUES(1, 0), (2, 0)",
    );
    let [winner, loser, other] = [(); 3].map(|()| fixture.open());
    let change = "BEGIN CONCURRENT; UPDATE t SET n=n+1 WHERE id=1";
    for connection in [&loser, &other] {
        for _ in 0..3 {
            connection.execute(change).expect("an update");
            winner.execute("UPDATE t SET n=n+1 WHERE id=1").expect("it is not optimistic");
            let error = connection.execute("COMMIT").expect_err("it has lost");
            assert_eq!(error.extended, BUSY_SNAPSHOT, "{error}");
            connection.execute("ROLLBACK").expect("it ends");
        }
    }
    let begun = Instant::now();
    for _ in 0..3 {
        // It has the turn and sits on it.
        loser.execute(change).expect("an update");
        other.execute(change).expect("an update, after a moment");
        other.execute("COMMIT").expect("it is the first");
        winner.execute("UPDATE t SET n=n+1 WHERE id=2").expect("it waits for nobody");
        let error = loser.execute("COMMIT").expect_err("it has lost");
        assert_eq!(error.extended, BUSY_SNAPSHOT, "{error}");
        loser.execute("ROLLBACK").expect("it ends");
    }
    // Closed with a turn, and with one that was given back by a rollback.
    loser.execute(change).expect("an update");
    loser.close().expect("it closes");
    other.execute(&format!("{change}; ROLLBACK; {change}; COMMIT")).expect("it is alone");
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    assert_eq!(winner.integer("SELECT sum(n) FROM t"), Ok(6 + 3 * 2 + 1));
}

/// However they take turns: nothing is lost, nothing is done twice, and all come through.
#[test]
fn many_on_one_row_all_come_through() {
    const EACH: i64 = 200;
    let Some(subject) = real_plait("turns") else { return };
    let fixture = Fixture::new(
        subject,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, n); INSERT INTO t VALUES(1, 0)",
    );
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let connection = fixture.open();
                connection.execute("PRAGMA synchronous=NORMAL").expect("a pragma");
                let mut done = 0;
                while done < EACH {
                    let change = "BEGIN CONCURRENT; UPDATE t SET n=n+1 WHERE id=1; COMMIT";
                    match connection.execute(change) {
                        Ok(()) => done += 1,
                        Err(error) => {
                            assert_eq!(error.extended, BUSY_SNAPSHOT, "{error}");
                            connection.execute("ROLLBACK").expect("it ends");
                        }
                    }
                }
            });
        }
    });
    assert_eq!(fixture.open().integer("SELECT n FROM t"), Ok(8 * EACH));
}

#[test]
fn a_conflict_says_what_was_read_and_what_to_do() {
    let Some(subject) = real_plait("texts") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let (one, other) = (fixture.open(), fixture.open());
    let change = || other.execute("UPDATE t SET val=val||'x' WHERE id=900").expect("a commit");
    let refused = |what: &str, words: [&str; 2]| {
        change();
        let error = one.execute("UPDATE t SET val='mine' WHERE id=20").expect_err(what);
        assert_eq!(error.extended, BUSY_SNAPSHOT, "{what}: {error}");
        for words in words {
            assert!(error.message.contains(words), "{what}: {error}");
        }
    };
    let range = "table \"t\", rowid 900: row was changed by process";
    one.execute("BEGIN; SELECT * FROM t WHERE id>=10").expect("a range");
    refused("in BEGIN", [range, "a range with it; ROLLBACK and retry"]);
    one.execute("ROLLBACK; BEGIN; SELECT * FROM t WHERE id=900").expect("one row");
    refused("one row", [range, "after this transaction read it; ROLLBACK and retry"]);
    one.execute("ROLLBACK").expect("it ends");
    let mut open = one.prepare("SELECT * FROM t").expect("it compiles");
    open.step().expect("its first row");
    refused("beside an open SELECT", [range, "finish the statements that are open, and retry"]);
    drop(open);
    change();
    one.execute("UPDATE t SET val='mine' WHERE id=20").expect("nothing is open");
}

/// Keys are told by the values that the application knows.
#[test]
fn a_conflict_names_the_values_of_a_key() {
    let Some(subject) = real_plait("texts") else { return };
    let fixture = Fixture::new(subject, ROWS);
    let (one, other) = (fixture.open(), fixture.open());
    for (read, change, key) in [
        (
            "SELECT val FROM w WHERE k='k1' AND n=150",
            "UPDATE w SET val='x' WHERE k='k1' AND n=150",
            "table \"w\", key ('k1', 150): row was changed",
        ),
        (
            "SELECT id FROM t WHERE grp=70",
            "INSERT INTO t VALUES(5001, 70, 'new')",
            "index \"t_grp\" of table \"t\", key (70, 5001): row was changed",
        ),
    ] {
        one.execute("BEGIN CONCURRENT").expect("it begins");
        one.execute(read).expect("it reads");
        one.execute("UPDATE own SET val='b'").expect("it writes");
        other.execute(change).expect("a commit");
        let error = one.execute("COMMIT").expect_err("a conflict");
        assert!(error.message.contains(key), "{read}: {error}");
        one.execute("ROLLBACK").expect("it ends");
    }
}

const BY_THE_APPLICATIONS_ORDER: &str = "
    CREATE TABLE account(k TEXT COLLATE reversed PRIMARY KEY, v) WITHOUT ROWID;
    CREATE TABLE one(id INTEGER PRIMARY KEY, k TEXT COLLATE reversed UNIQUE, v);
    CREATE TABLE two(id INTEGER PRIMARY KEY, n INTEGER, k TEXT COLLATE reversed, UNIQUE(n, k));
    CREATE TABLE vacant(k TEXT COLLATE reversed PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE parent(k TEXT COLLATE reversed PRIMARY KEY);
    CREATE TABLE child(k TEXT COLLATE reversed REFERENCES parent);
    CREATE TABLE u(n INTEGER);
    INSERT INTO account VALUES('a', 100), ('m', 1);
    INSERT INTO one VALUES(1, 'b', 1);
    INSERT INTO two VALUES(1, 1, 'b');
    INSERT INTO parent VALUES('a');
    INSERT INTO t VALUES(0);
    INSERT INTO u VALUES(0);";

/// What is read, what somebody else changes then, and whether they conflict.
const IN_THAT_ORDER: [(&str, &str, bool); 16] = [
    ("SELECT v FROM account WHERE k='a'", "UPDATE account SET v=v+50 WHERE k='a'", true),
    ("SELECT v FROM account WHERE k='q'", "INSERT INTO account VALUES('q', 1)", true),
    ("SELECT v FROM account WHERE k<'p' AND k>'c'", "INSERT INTO account VALUES('d', 1)", true),
    ("SELECT max(k) FROM account", "INSERT INTO account VALUES('0', 1)", true),
    ("SELECT min(k) FROM account", "INSERT INTO account VALUES('z', 1)", true),
    ("SELECT k FROM account ORDER BY k DESC LIMIT 1", "DELETE FROM account WHERE k='a'", true),
    ("SELECT count(*) FROM account", "INSERT INTO account VALUES('z', 1)", true),
    ("SELECT 1 FROM vacant WHERE k='x'", "INSERT INTO vacant VALUES('x')", true),
    ("SELECT max(k) FROM vacant", "INSERT INTO vacant VALUES('x')", true),
    ("SELECT k FROM one WHERE k='b'", "UPDATE one SET k='c' WHERE id=1", true),
    ("SELECT k FROM one WHERE k='zz'", "INSERT INTO one VALUES(2, 'zz', 1)", true),
    ("SELECT k FROM two WHERE n=1 AND k='x'", "INSERT INTO two VALUES(2, 1, 'x')", true),
    ("SELECT k FROM two WHERE n=2", "INSERT INTO two VALUES(2, 2, 'x')", true),
    ("INSERT INTO child VALUES('a')", "DELETE FROM parent WHERE k='a'", true),
    ("SELECT v FROM account WHERE k='a'", "UPDATE u SET n=n+1", false),
    ("SELECT n FROM u", "UPDATE account SET v=v+1", false),
];

// holds READSET-6
#[test]
fn what_is_read_in_an_order_of_the_applications_conflicts() {
    let Some(subject) = real_plait("collations of the application") else { return };
    for begin in ["BEGIN", "BEGIN CONCURRENT"] {
        for (read, change, conflicts) in IN_THAT_ORDER {
            let what = format!("{begin}; {read}; {change}");
            if begin == "BEGIN" && read.starts_with("INSERT") {
                // It keeps everybody else from writing.
                continue;
            }
            let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(n INTEGER)");
            let open = || {
                let connection = subject.open(&fixture.database()).expect("it opens");
                connection.create_reversed_collation().expect("a collation");
                connection.execute("PRAGMA foreign_keys=ON").expect("a setting");
                connection
            };
            let (reader, writer) = (open(), open());
            writer.execute(BY_THE_APPLICATIONS_ORDER).expect("tables");
            reader.execute(begin).and_then(|()| reader.execute(read)).expect("a read");
            writer.execute(change).unwrap_or_else(|error| panic!("{what}: {error}"));
            match reader.execute("UPDATE t SET n=n+1; COMMIT") {
                Ok(()) => assert!(!conflicts, "{what}"),
                Err(error) => assert!(conflicts && error.is_conflict(), "{what}: {error}"),
            }
            let _ = reader.execute("ROLLBACK");
            let orphans = writer.query("PRAGMA foreign_key_check").expect("a check");
            assert!(orphans.is_empty(), "{what}: {orphans:?}");
        }
    }
}
