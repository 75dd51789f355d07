//! AUTOINCREMENT under concurrency: transactions raise and make rows of `sqlite_sequence` together, and no number comes twice.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::BUSY_SNAPSHOT;
use plait_tests::subject::{Fixture, Subject, real_plait};

const SCHEMA: &str = "CREATE TABLE e(id INTEGER PRIMARY KEY AUTOINCREMENT, v);
    CREATE TABLE f(id INTEGER PRIMARY KEY AUTOINCREMENT, v);
    CREATE TABLE plain(a);";

/// Two optimistic transactions that have begun.
fn begun(place: Place, extra: &str) -> Option<(Actor, Actor, Fixture)> {
    let subject: Subject = real_plait("sequences")?;
    let fixture = Fixture::new(subject, &format!("{SCHEMA} {extra}"));
    let mut pair =
        ["one", "two"].map(|name| Actor::start(place, name, &fixture.subject, &fixture.database()));
    for actor in &mut pair {
        actor.ok("BEGIN CONCURRENT");
        // The snapshot is taken here, and knows nothing of the other's transaction.
        actor.ok("SELECT * FROM plain");
    }
    let [one, two] = pair;
    Some((one, two, fixture))
}

/// Each table has one row in `sqlite_sequence`, which no id exceeds.
#[track_caller]
fn sequences_are_sound(actor: &mut Actor, names: i64) {
    let rows = "SELECT count(*) FROM sqlite_sequence";
    assert_eq!(actor.integer(rows), names, "{:?}", actor.ok("SELECT * FROM sqlite_sequence"));
    assert_eq!(actor.integer("SELECT count(DISTINCT name) FROM sqlite_sequence"), names);
    for table in ["e", "f"] {
        let short = format!(
            "SELECT coalesce((SELECT max(id) FROM {table}), 0) > coalesce((SELECT seq FROM sqlite_sequence WHERE name='{table}'), 0)"
        );
        assert_eq!(actor.integer(&short), 0, "the sequence of {table} covers its ids");
    }
    assert_eq!(actor.ok("PRAGMA integrity_check"), [vec!["ok".into()]]);
}

in_threads_and_processes! {
    fn the_first_inserts_into_a_table_do_not_conflict(place) {
        let Some((mut one, mut two, _fixture)) = begun(place, "") else { return };
        for _ in 0..2 {
            one.ok("INSERT INTO e(v) VALUES('one')");
            two.ok("INSERT INTO e(v) VALUES('two'), ('two')");
        }
        one.ok("COMMIT");
        two.ok("COMMIT");
        assert_eq!(one.integer("SELECT count(*) FROM e"), 6);
        sequences_are_sound(&mut one, 1);
        one.ok("INSERT INTO e(v) VALUES('behind them')");
        assert_eq!(one.integer("SELECT max(id)=(SELECT id FROM e WHERE v='behind them') FROM e"), 1);
    }

    fn a_first_insert_does_not_conflict_with_inserts_into_other_tables(place) {
        let Some((mut one, mut two, _fixture)) = begun(place, "INSERT INTO f(v) VALUES('x')") else { return };
        one.ok("INSERT INTO e(v) VALUES('one')");
        two.ok("INSERT INTO f(v) VALUES('two')");
        two.ok("COMMIT");
        one.ok("COMMIT");
        sequences_are_sound(&mut two, 2);
    }

    fn first_inserts_into_two_tables_do_not_conflict(place) {
        for (ones, twos) in [
            ("INSERT INTO e(v) VALUES('one')", "INSERT INTO f(v) VALUES('two')"),
            ("INSERT INTO e(v) VALUES('one'); INSERT INTO f(v) VALUES('one')", "INSERT INTO f(v) VALUES('two')"),
            ("INSERT INTO e(v) VALUES('one'); INSERT INTO f(v) VALUES('one')",
             "INSERT INTO f(v) VALUES('two'); INSERT INTO e(v) VALUES('two'), ('two')"),
            ("SAVEPOINT s; INSERT INTO f(v) VALUES('gone'); ROLLBACK TO s; INSERT INTO e(v) VALUES('one')",
             "INSERT INTO f(v) VALUES('two')"),
            ("INSERT INTO e(v) VALUES('one'); SAVEPOINT s; INSERT INTO e(v) VALUES('gone'); INSERT INTO plain VALUES(zeroblob(9000000));
              ROLLBACK TO s", "INSERT INTO f(v) VALUES('two'); INSERT INTO e(v) VALUES('two')"),
        ] {
            let Some((mut one, mut two, _fixture)) = begun(place, "") else { return };
            two.ok(twos);
            two.ok("COMMIT");
            one.ok(ones);
            one.ok("COMMIT");
            sequences_are_sound(&mut two, 2);
            one.ok("INSERT INTO e(v) VALUES('behind'); INSERT INTO f(v) VALUES('behind')");
            for table in ["e", "f"] {
                let last = format!("SELECT v='behind' FROM {table} ORDER BY id DESC LIMIT 1");
                assert_eq!(one.integer(&last), 1, "{ones}: {table}");
            }
            sequences_are_sound(&mut one, 2);
            two.ok("PRAGMA wal_checkpoint");
            sequences_are_sound(&mut two, 2);
        }
    }

    fn a_row_that_was_written_by_hand_meanwhile_is_a_conflict(place) {
        for (extra, meanwhile) in [
            ("", "INSERT INTO sqlite_sequence VALUES('e', 50)"),
            ("", "INSERT INTO sqlite_sequence(rowid, name, seq) VALUES(7, 'e', 50)"),
            ("INSERT INTO f(v) VALUES('x')", "INSERT INTO sqlite_sequence(rowid, name, seq) VALUES(2, 'f', 50)"),
        ] {
            let Some((mut one, mut two, _fixture)) = begun(place, extra) else { return };
            one.ok("INSERT INTO e(v) VALUES('one')");
            two.ok(meanwhile);
            two.ok("COMMIT");
            let refused = one.fails("COMMIT", 5);
            assert_eq!(refused.extended, BUSY_SNAPSHOT, "{meanwhile}: {refused}");
            one.ok("ROLLBACK; BEGIN CONCURRENT; INSERT INTO e(v) VALUES('again'); COMMIT");
            assert_eq!(one.integer("SELECT count(*) FROM sqlite_sequence WHERE name='e'"), 1, "{meanwhile}");
        }
    }

    fn a_transaction_that_leaves_the_concurrent_path_lowers_no_sequence(place) {
        for extra in ["", "INSERT INTO e(v) VALUES('x')"] {
            let Some((mut one, mut two, _fixture)) = begun(place, extra) else { return };
            one.ok("INSERT INTO e(v) VALUES('one'); SAVEPOINT s; INSERT INTO e(v) VALUES('one')");
            two.ok("INSERT INTO e(v) VALUES('a'), ('b'), ('c'), ('d'), ('e')");
            two.ok("COMMIT");
            one.ok("INSERT INTO plain VALUES(zeroblob(9000000)); ROLLBACK TO s");
            let state = one.ok("SELECT state FROM plait_transactions WHERE state='exclusive'");
            assert_eq!(state.len(), 1, "it has left the concurrent path");
            one.ok("COMMIT");
            two.ok("DELETE FROM e");
            let highest = two.integer("SELECT seq FROM sqlite_sequence WHERE name='e'");
            assert!(highest >= 6, "{highest}");
            two.ok("INSERT INTO e(v) VALUES('new')");
            assert!(two.integer("SELECT id FROM e") > highest);
        }
    }
}
