//! AUTOINCREMENT under concurrency: transactions raise and make rows of `sqlite_sequence` together, and no number comes twice. And
//! automatic rowids of a transaction that is alone, which are SQLite's.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::BUSY_SNAPSHOT;
use plait_tests::subject::{Fixture, Subject, real_plait};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

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
    // holds TXN-3, MAX-1
    fn of_two_first_inserts_into_a_table_one_is_refused_and_none_after_them(place) {
        let Some((mut one, mut two, _fixture)) = begun(place, "") else { return };
        for _ in 0..2 {
            one.ok("INSERT INTO e(v) VALUES('one')");
            two.ok("INSERT INTO e(v) VALUES('two'), ('two')");
        }
        one.ok("COMMIT");
        let refused = two.fails("COMMIT", 5);
        assert_eq!(refused.extended, BUSY_SNAPSHOT, "{refused}");
        two.ok("ROLLBACK");
        for actor in [&mut one, &mut two] {
            actor.ok("BEGIN CONCURRENT; SELECT * FROM plain");
        }
        for _ in 0..2 {
            one.ok("INSERT INTO e(v) VALUES('one')");
            two.ok("INSERT INTO e(v) VALUES('two'), ('two')");
        }
        one.ok("COMMIT");
        two.ok("COMMIT");
        assert_eq!(one.integer("SELECT count(*) FROM e"), 8);
        sequences_are_sound(&mut one, 1);
        one.ok("INSERT INTO e(v) VALUES('behind them')");
        assert_eq!(one.integer("SELECT max(id)=(SELECT id FROM e WHERE v='behind them') FROM e"), 1);
    }

    fn first_inserts_that_wait_in_turn_are_not_refused(place) {
        let Some((mut one, mut two, _fixture)) = begun(place, "") else { return };
        one.ok("INSERT INTO e(v) VALUES('one'); INSERT INTO f(v) VALUES('one')");
        two.ok("ROLLBACK; INSERT INTO e(v) VALUES('two')");
        two.ok("BEGIN; SELECT * FROM plain; INSERT INTO f(v) VALUES('two'); COMMIT");
        sequences_are_sound(&mut two, 2);
        assert_eq!(one.fails("COMMIT", 5).extended, BUSY_SNAPSHOT);
        one.ok("ROLLBACK; DELETE FROM sqlite_sequence; PRAGMA wal_checkpoint");
        one.ok("BEGIN CONCURRENT; SELECT * FROM plain; INSERT INTO e(v) VALUES('one')");
        two.ok("BEGIN IMMEDIATE; INSERT INTO f(v) VALUES('two'); INSERT INTO e(v) VALUES('two'); COMMIT");
        sequences_are_sound(&mut two, 2);
    }

    fn a_first_insert_does_not_conflict_with_inserts_into_other_tables(place) {
        let Some((mut one, mut two, _fixture)) = begun(place, "INSERT INTO f(v) VALUES('x')") else { return };
        one.ok("INSERT INTO e(v) VALUES('one')");
        two.ok("INSERT INTO f(v) VALUES('two')");
        two.ok("COMMIT");
        one.ok("COMMIT");
        sequences_are_sound(&mut two, 2);
    }

    fn of_first_inserts_into_two_tables_one_is_refused_and_done_again(place) {
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
            let refused = match one.run(ones).error {
                Some(in_a_statement) => in_a_statement,
                None => one.fails("COMMIT", 5),
            };
            assert_eq!(refused.extended, BUSY_SNAPSHOT, "{ones}: {refused}");
            one.ok(&format!("ROLLBACK; BEGIN CONCURRENT; {ones}; COMMIT"));
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
            // Not where the new row goes.
            ("INSERT INTO f(v) VALUES('x')", "INSERT INTO sqlite_sequence(rowid, name, seq) VALUES(-7, 'e', 50)"),
            ("INSERT INTO f(v) VALUES('x')", "UPDATE sqlite_sequence SET name='e' WHERE name='f'"),
            // As AUTOINCREMENT itself would write it.
            ("INSERT INTO f(v) VALUES('x')", "UPDATE sqlite_sequence SET name='e', seq=1<<50 WHERE name='f'"),
            ("INSERT INTO f(v) VALUES('x')", "DELETE FROM sqlite_sequence; INSERT INTO e(v) VALUES('two')"),
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

    fn what_was_deleted_by_hand_stays_so_beside_others_first_inserts(place) {
        let some = "CREATE TABLE g(id INTEGER PRIMARY KEY AUTOINCREMENT, v); CREATE TABLE other(a)";
        for by_hand in [
            "DELETE FROM sqlite_sequence WHERE rowid=1; INSERT INTO f(v) VALUES('one')",
            "UPDATE sqlite_sequence SET name='zz' WHERE rowid=1; INSERT INTO e(v) VALUES('one')",
            "INSERT INTO f(v) VALUES('one'); UPDATE sqlite_sequence SET seq=70 WHERE rowid=2",
            "INSERT INTO sqlite_sequence VALUES('f', 70); INSERT INTO f(v) VALUES('one')",
            "INSERT INTO f(v) VALUES('one'); DELETE FROM sqlite_sequence WHERE rowid=2; INSERT INTO f(v) VALUES('two')",
        ] {
            for meanwhile in [
                "SELECT 1",
                "INSERT INTO other VALUES(1)",
                "INSERT INTO e(v) VALUES('two')",
                "INSERT INTO f(v) VALUES('two')",
                "INSERT INTO g(v) VALUES('two')",
            ] {
                let Some((mut one, mut two, _fixture)) = begun(place, some) else { return };
                // Committed, and not merged.
                one.ok("ROLLBACK; INSERT INTO e(v) VALUES('x'), ('y'), ('z')");
                two.ok("ROLLBACK");
                for actor in [&mut one, &mut two] {
                    actor.ok("BEGIN CONCURRENT; SELECT * FROM plain");
                }
                one.ok(by_hand);
                let rows = "SELECT name, seq FROM sqlite_sequence ORDER BY name, seq";
                let seen = one.ok(rows);
                two.ok(meanwhile);
                two.ok("COMMIT");
                let outcome = one.run("COMMIT");
                let what = format!("{by_hand}; others {meanwhile}");
                match outcome.error {
                    // Who was first has changed nothing that it has seen.
                    None if !meanwhile.contains("(v)") => assert_eq!(one.ok(rows), seen, "{what}"),
                    None => {
                        let names = "SELECT count(*)-count(DISTINCT name) FROM sqlite_sequence";
                        assert_eq!(one.integer(names), 0, "{what}: {:?}", one.ok(rows));
                    }
                    Some(error) => {
                        assert_eq!(error.extended, BUSY_SNAPSHOT, "{what}: {error}");
                        assert!(meanwhile.contains("(v)"), "{what}: {error}");
                    }
                }
            }
        }
    }

    fn a_statement_that_leaves_the_concurrent_path_writes_no_sequence_that_it_has_read_before_others_wrote_it(place) {
        let first = "INSERT INTO e(v) VALUES('a'), ('b'), ('c')";
        let raised = "INSERT INTO f(id, v) VALUES(50, 'gone'); DELETE FROM f WHERE id=50";
        for (meanwhile, statement, is_refused) in [
            (first, "INSERT INTO e(v) VALUES(zeroblob(9000000))", true),
            (raised, "INSERT INTO f(id, v) VALUES(7, zeroblob(9000000))", true),
            // The statement before it has read it, which is another thing.
            (raised, "INSERT INTO f(v) VALUES('x'); INSERT INTO plain VALUES(zeroblob(9000000))", false),
            ("INSERT INTO plain VALUES('x')", "INSERT INTO e(v) VALUES(zeroblob(9000000))", false),
        ] {
            let Some((mut one, mut two, _fixture)) = begun(place, "INSERT INTO f(v) VALUES('x')") else { return };
            // Of a session that has written before.
            one.ok("ROLLBACK; INSERT INTO plain VALUES(1); BEGIN CONCURRENT; SELECT * FROM plain LIMIT 0");
            two.ok(&format!("ROLLBACK; {meanwhile}"));
            match one.run(statement).error {
                Some(error) => {
                    assert!(is_refused && error.extended == BUSY_SNAPSHOT, "{statement}: {error}");
                    one.ok(&format!("ROLLBACK; BEGIN CONCURRENT; {statement}"));
                }
                None => assert!(!is_refused, "{statement}"),
            }
            one.ok("COMMIT");
            let names = one.integer("SELECT count(DISTINCT name) FROM sqlite_sequence");
            sequences_are_sound(&mut one, names);
            if meanwhile == raised {
                assert!(one.integer("SELECT seq FROM sqlite_sequence WHERE name='f'") >= 50, "{statement}");
            }
        }
    }

    fn a_transaction_that_leaves_the_concurrent_path_lowers_no_sequence(place) {
        let Some((mut one, mut two, _fixture)) = begun(place, "INSERT INTO e(v) VALUES('x')") else { return };
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

/// A step of a transaction that uses AUTOINCREMENT, or writes `sqlite_sequence` by hand.
fn sequence_step(random: &mut StdRng) -> String {
    let name = ["e", "f", "zz"][random.random_range(0..3)];
    let table = ["e", "f"][random.random_range(0..2)];
    let (rowid, seq) = (random.random_range(1..5), random.random_range(-2..40));
    let seq = if random.random_bool(0.1) { 1_i64 << 50 } else { seq };
    match random.random_range(0..16) {
        0..5 => format!("INSERT INTO {table}(v) VALUES(1)"),
        5 => format!("INSERT OR REPLACE INTO {table}(id, v) VALUES({}, 2)", seq % 40),
        6 => format!("DELETE FROM {table}"),
        7 => format!("DELETE FROM sqlite_sequence WHERE name='{name}'"),
        8 => format!("DELETE FROM sqlite_sequence WHERE rowid={rowid}"),
        9 => "DELETE FROM sqlite_sequence".to_owned(),
        10 => format!("UPDATE sqlite_sequence SET name='{name}' WHERE rowid={rowid}"),
        11 => format!("UPDATE sqlite_sequence SET seq={seq} WHERE name='{name}'"),
        12 => format!(
            "INSERT OR REPLACE INTO sqlite_sequence(rowid, name, seq) VALUES({rowid}, '{name}', {seq})"
        ),
        13 => "SAVEPOINT s".to_owned(),
        14 => "ROLLBACK TO s".to_owned(),
        _ => "RELEASE s".to_owned(),
    }
}

// holds MAX-3
#[test]
fn sequences_that_are_written_by_hand_too_are_those_of_sqlite_before_commit_and_after_it() {
    let Some(subject) = real_plait("sequences") else { return };
    let rows = "SELECT rowid, name, seq, (SELECT group_concat(id) FROM e), (SELECT group_concat(id) FROM f) FROM sqlite_sequence";
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let fixtures =
            [subject.clone(), Subject::stock()].map(|subject| Fixture::new(subject, SCHEMA));
        let connections = fixtures.each_ref().map(Fixture::open);
        let _others = fixtures.each_ref().map(|fixture| {
            let other = fixture.open();
            other.execute("INSERT INTO plain VALUES(0)").expect("somebody is there");
            other
        });
        for _ in 0..12 {
            let merged = random.random_bool(0.2);
            let begin = if random.random_bool(0.8) { "BEGIN CONCURRENT" } else { "BEGIN" };
            let end = if random.random_bool(0.8) { "COMMIT" } else { "ROLLBACK" };
            let count = random.random_range(1..8);
            let steps: Vec<_> = (0..count).map(|_| sequence_step(&mut random)).collect();
            for (at, connection) in connections.iter().enumerate() {
                if merged {
                    connection.execute("PRAGMA wal_checkpoint").expect("a merge");
                }
                connection.execute(if at == 0 { begin } else { "BEGIN" }).expect("it begins");
            }
            for sql in steps.iter().map(String::as_str).chain([end]) {
                let outcomes = connections.each_ref().map(|c| {
                    let done = c.execute(sql).map_err(|error| error.code);
                    (done, c.query(rows))
                });
                assert_eq!(
                    outcomes[0], outcomes[1],
                    "after {sql} of {begin} {steps:?} (seed {seed})"
                );
            }
        }
    }
}

/// A step of a transaction that may change which rowid comes next.
fn step(random: &mut StdRng) -> String {
    let id = random.random_range(-3..90);
    match random.random_range(0..16) {
        0..5 => "INSERT INTO plain VALUES(1)".to_owned(),
        5 => format!("INSERT INTO plain(rowid, a) VALUES({id}, 2)"),
        6 => format!("REPLACE INTO plain(rowid, a) VALUES({id}, 3)"),
        7 => "DELETE FROM plain WHERE rowid=(SELECT max(rowid) FROM plain)".to_owned(),
        8 => format!("DELETE FROM plain WHERE rowid>{id}"),
        9 => format!("UPDATE OR REPLACE plain SET rowid=rowid+40 WHERE rowid={id}"),
        10 => "SAVEPOINT s".to_owned(),
        11 => "ROLLBACK TO s".to_owned(),
        12 => "RELEASE s".to_owned(),
        // The third row is refused, and the two before it with it.
        13 => {
            "INSERT INTO plain VALUES(4), (5), (abs(-9223372036854775807-(random() IS NOT NULL)))"
                .to_owned()
        }
        14 => "INSERT INTO e(v) VALUES(6); INSERT INTO plain SELECT v FROM e".to_owned(),
        _ => "INSERT INTO plain SELECT a FROM plain LIMIT 3".to_owned(),
    }
}

// holds ROWID-1, ROWID-2
#[test]
fn automatic_rowids_are_those_of_sqlite_where_nobody_else_writes_whatever_the_transaction_has_done()
{
    let Some(subject) = real_plait("sequences") else { return };
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<30) INSERT INTO plain SELECT i FROM n";
    for seed in 0..12 {
        let mut random = StdRng::seed_from_u64(seed);
        let fixtures = [subject.clone(), Subject::stock()]
            .map(|subject| Fixture::new(subject, &format!("{SCHEMA} {rows}")));
        let connections = fixtures.each_ref().map(Fixture::open);
        // Beside somebody who is there, and writes nothing from now on.
        let _others = fixtures.each_ref().map(|fixture| {
            let other = fixture.open();
            other.execute("INSERT INTO plain VALUES(0); PRAGMA wal_checkpoint").expect("a row");
            other
        });
        for _ in 0..12 {
            let begin = if random.random_bool(0.5) { "BEGIN" } else { "BEGIN IMMEDIATE" };
            let end = if random.random_bool(0.7) { "COMMIT" } else { "ROLLBACK" };
            let steps: Vec<_> = (0..20).map(|_| step(&mut random)).collect();
            for sql in std::iter::once(begin).chain(steps.iter().map(String::as_str)).chain([end]) {
                let outcomes = connections.each_ref().map(|c| {
                    let done = c.execute(sql).is_ok();
                    (
                        done,
                        c.query(
                            "SELECT rowid, a, last_insert_rowid() FROM plain ORDER BY a, rowid",
                        ),
                    )
                });
                assert_eq!(outcomes[0], outcomes[1], "after {sql} (seed {seed})");
            }
        }
    }
}

#[test]
fn the_rowid_after_the_smallest_is_that_of_sqlite() {
    let Some(subject) = real_plait("sequences") else { return };
    let [ours, theirs] = [subject, Subject::stock()].map(|subject| {
        let fixture = Fixture::new(subject, SCHEMA);
        let (one, other) = (fixture.open(), fixture.open());
        other.execute("INSERT INTO f(v) VALUES('somebody is there')").expect("a row");
        let least = "INSERT INTO plain(rowid, a) VALUES(-9223372036854775808, 0)";
        let mut found = Vec::new();
        for sql in [
            least,
            "INSERT INTO plain VALUES(1)",
            "DELETE FROM plain WHERE a=1",
            // In one transaction, which remembers the greatest.
            "BEGIN; SELECT * FROM plain",
            "INSERT INTO plain VALUES(2), (3)",
            "DELETE FROM plain WHERE a>0",
            "SAVEPOINT s; INSERT INTO plain VALUES(4); ROLLBACK TO s",
            "INSERT INTO plain VALUES(5)",
            "ROLLBACK",
            "BEGIN; DELETE FROM plain",
            "INSERT INTO plain VALUES(6)",
            "DELETE FROM plain",
            least,
            "INSERT INTO plain SELECT a+7 FROM plain",
            "COMMIT",
            // On the exclusive path.
            "BEGIN IMMEDIATE; PRAGMA application_id=7; DELETE FROM plain WHERE a>0",
            "INSERT INTO plain VALUES(8)",
            "COMMIT",
            "INSERT INTO e(id, v) VALUES(-9223372036854775808, 9)",
            "INSERT INTO e(v) VALUES(10)",
        ] {
            one.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
            let rows =
                "SELECT rowid, a, last_insert_rowid() FROM plain UNION ALL SELECT id, v, 0 FROM e";
            found.push((sql, one.query(rows).expect("rows")));
        }
        found
    });
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
}
