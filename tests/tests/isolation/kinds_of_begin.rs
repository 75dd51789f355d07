//! Every way of beginning a transaction keeps its promise: the rows of the table in the design, in threads and processes.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, BUSY_SNAPSHOT};
use plait_tests::subject::{Fixture, real_plait};
use std::time::{Duration, Instant};

const SCHEMA: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, note TEXT);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1000) INSERT INTO t SELECT i, 0, 'x' FROM n;
";

fn stage(place: Place, names: &[&str]) -> Option<(Fixture, Vec<Actor>)> {
    let fixture = Fixture::new(real_plait("ways of beginning")?, SCHEMA);
    let start = |name: &&str| Actor::start(place, name, &fixture.subject, &fixture.database());
    let actors = names.iter().map(start).collect();
    Some((fixture, actors))
}

macro_rules! actors {
    ($place:ident, $($name:ident),+) => {
        let Some((_fixture, actors)) = stage($place, &[$(stringify!($name)),+]) else { return };
        let mut actors = actors.into_iter();
        $( #[allow(unused_mut)] let mut $name = actors.next().expect("one actor for each name"); )+
    };
}

const SHORT: Duration = Duration::from_millis(400);

in_threads_and_processes! {
    fn a_deferred_upgrade_succeeds_when_what_was_read_has_not_changed(place) {
        actors!(place, first, second);
        first.ok("BEGIN; SELECT * FROM t WHERE id=1");
        second.ok("UPDATE t SET n=n+1 WHERE id=2; INSERT INTO t VALUES(5000, 0, 'new'); DELETE FROM t WHERE id=3");
        first.ok("UPDATE t SET n=n+10 WHERE id=1");
        assert_eq!(first.integer("SELECT n FROM t WHERE id=2"), 1, "it goes on from the newest state");
        first.ok("COMMIT");
        assert_eq!(second.integer("SELECT sum(n) FROM t"), 11);
    }

    fn a_wait_that_has_failed_takes_nothing_from_the_next_one(place) {
        actors!(place, holder, other);
        other.busy_timeout(Duration::from_millis(700));
        holder.ok("BEGIN IMMEDIATE; UPDATE t SET n=1 WHERE id=1");
        other.fails("BEGIN IMMEDIATE", BUSY);
        other.ok("BEGIN CONCURRENT");
        other.send("CREATE TABLE x(a)");
        assert!(other.still_waits_after(Duration::from_millis(200)), "it has a timeout of its own");
        holder.ok("COMMIT");
        let reply = other.finish();
        assert!(reply.error.is_none(), "{:?}", reply.error);
        other.ok("COMMIT");
    }

    fn a_deferred_upgrade_over_a_range_succeeds_when_others_change_rows_elsewhere(place) {
        actors!(place, first, second);
        first.ok("BEGIN; SELECT sum(n) FROM t WHERE id BETWEEN 100 AND 200");
        second.ok("UPDATE t SET n=1 WHERE id>500");
        first.ok("UPDATE t SET n=10 WHERE id=150; COMMIT");
        assert_eq!(second.integer("SELECT sum(n) FROM t"), 510);
    }

    fn a_deferred_upgrade_fails_when_what_was_read_has_changed(place) {
        actors!(place, first, second);
        first.ok("BEGIN");
        assert_eq!(first.integer("SELECT n FROM t WHERE id=1"), 0);
        second.ok("UPDATE t SET n=5 WHERE id=1");
        let reply = first.run("UPDATE t SET n=n+1 WHERE id=1");
        assert_eq!(reply.error.map(|error| error.extended), Some(BUSY_SNAPSHOT));
        assert!(reply.in_transaction, "the transaction stays open");
        assert_eq!(first.integer("SELECT n FROM t WHERE id=1"), 0, "and still reads its snapshot");
        first.ok("ROLLBACK");
        first.ok("BEGIN; SELECT * FROM t WHERE id=1; UPDATE t SET n=n+1 WHERE id=1; COMMIT");
        assert_eq!(second.integer("SELECT n FROM t WHERE id=1"), 6);
    }

    fn after_reading_the_file_by_pages_an_upgrade_succeeds_if_nobody_has_committed_since(place) {
        for read in ["PRAGMA integrity_check", "SELECT sum(pgsize) FROM dbstat", "SELECT count(*) FROM sqlite_dbpage"] {
            for change in [None, Some("UPDATE t SET n=1 WHERE id=500")] {
                actors!(place, first, second);
                first.ok("BEGIN");
                first.ok(read);
                first.ok("SELECT n FROM t WHERE id=1");
                if let Some(change) = change {
                    second.ok(change);
                    first.fails("UPDATE t SET n=n+10 WHERE id=1", BUSY_SNAPSHOT);
                    first.ok("ROLLBACK");
                    first.ok("BEGIN; UPDATE t SET n=n+10 WHERE id=1; COMMIT");
                } else {
                    first.ok("UPDATE t SET n=n+10 WHERE id=1; COMMIT");
                }
                assert_eq!(second.integer("SELECT n FROM t WHERE id=1"), 10, "{read}, {change:?}");
            }
        }
    }

    fn a_deferred_transaction_waits_for_the_writer_before_it(place) {
        actors!(place, first, second);
        first.ok("BEGIN; UPDATE t SET n=1 WHERE id=1");
        second.ok("BEGIN; SELECT * FROM t WHERE id=2");
        second.send("UPDATE t SET n=2 WHERE id=2");
        assert!(second.still_waits_after(SHORT), "one writer at a time holds the right");
        first.ok("COMMIT");
        assert_eq!(second.finish().error, None);
        second.ok("COMMIT");
        assert_eq!(first.integer("SELECT sum(n) FROM t"), 3);
    }

    // holds RIGHT-4
    fn immediate_waits_and_is_bounded_by_the_busy_timeout(place) {
        actors!(place, first, second);
        first.ok("BEGIN IMMEDIATE");
        second.busy_timeout(Duration::from_millis(300));
        let reply = second.run("BEGIN IMMEDIATE");
        assert_eq!(reply.error.map(|error| error.extended), Some(BUSY));
        assert!(reply.took >= Duration::from_millis(280), "only {:?}", reply.took);
        assert!(reply.took < Duration::from_secs(3), "{:?}", reply.took);
        second.busy_timeout(Duration::ZERO);
        let reply = second.run("BEGIN IMMEDIATE");
        assert_eq!(reply.error.map(|error| error.extended), Some(BUSY));
        assert!(reply.took < Duration::from_millis(200), "no timeout, no wait: {:?}", reply.took);
        second.busy_timeout(Duration::from_secs(20));
        second.send("BEGIN IMMEDIATE");
        assert!(second.still_waits_after(SHORT));
        first.ok("COMMIT");
        let reply = second.finish();
        assert_eq!(reply.error, None);
        assert!(reply.in_transaction);
    }

    fn immediate_once_granted_never_fails(place) {
        actors!(place, first, second, third);
        second.busy_timeout(Duration::from_millis(50));
        third.busy_timeout(Duration::from_millis(50));
        second.ok("BEGIN CONCURRENT; UPDATE t SET n=n+100 WHERE id=1");
        third.ok("BEGIN CONCURRENT; UPDATE t SET n=n+1000 WHERE id=7");
        first.ok("BEGIN IMMEDIATE");
        assert_eq!(first.integer("SELECT n FROM t WHERE id=1"), 0);
        second.fails("COMMIT", BUSY);
        third.fails("COMMIT", BUSY);
        second.fails("INSERT INTO t(id) VALUES(1)", plait_tests::sqlite::CONSTRAINT);
        first.ok("SELECT sum(n) FROM t; UPDATE t SET n=n+1 WHERE id=1; SAVEPOINT s; UPDATE t SET n=n+1 WHERE id=2; RELEASE s");
        first.ok("COMMIT");
        second.fails("COMMIT", BUSY_SNAPSHOT);
        second.ok("ROLLBACK");
        third.ok("COMMIT");
        assert_eq!(first.integer("SELECT sum(n) FROM t"), 1002);
    }

    // holds RIGHT-8
    fn immediate_is_granted_first_come_first_served(place) {
        actors!(place, holder, first, second, third);
        holder.ok("BEGIN IMMEDIATE");
        let join = |actor: &mut Actor, name: &str| {
            actor.send(&format!("BEGIN IMMEDIATE; UPDATE t SET n=n+1 WHERE id=1; UPDATE t SET note=note||'{name}' WHERE id=1; COMMIT"));
            std::thread::sleep(Duration::from_millis(150));
        };
        join(&mut first, "1");
        join(&mut second, "2");
        join(&mut third, "3");
        holder.ok("COMMIT");
        for actor in [&mut first, &mut second, &mut third] {
            assert_eq!(actor.finish().error, None);
        }
        assert_eq!(holder.ok("SELECT note FROM t WHERE id=1"), [vec!["x123".into()]]);
    }

    fn readers_go_on_beside_every_kind_of_writer(place) {
        actors!(place, writer, reader);
        reader.busy_timeout(Duration::ZERO);
        for begin in ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "BEGIN CONCURRENT", "BEGIN", "BEGIN IMMEDIATE; PRAGMA application_id=7"] {
            writer.ok(begin);
            writer.ok("UPDATE t SET n=7 WHERE id<10");
            let reply = reader.run("SELECT count(*) FROM t WHERE n=7");
            assert_eq!(reply.error, None, "{begin}");
            assert_eq!(reply.rows, [vec![0.into()]], "{begin}");
            writer.ok("ROLLBACK");
        }
    }

    fn autocommit_writes_wait_for_a_held_right_and_then_succeed(place) {
        actors!(place, holder, writer);
        holder.ok("BEGIN IMMEDIATE; UPDATE t SET n=1 WHERE id=1");
        writer.send("UPDATE t SET n=n+1 WHERE id=1");
        assert!(writer.still_waits_after(SHORT));
        holder.ok("COMMIT");
        assert_eq!(writer.finish().error, None);
        assert_eq!(holder.integer("SELECT n FROM t WHERE id=1"), 2);
        holder.ok("BEGIN IMMEDIATE");
        writer.busy_timeout(Duration::from_millis(100));
        writer.fails("UPDATE t SET n=n+1 WHERE id=1", BUSY);
        holder.ok("ROLLBACK");
    }

    fn concurrent_writers_of_different_rows_do_not_wait_for_each_other(place) {
        actors!(place, first, second);
        first.ok("BEGIN CONCURRENT; UPDATE t SET n=1 WHERE id=1");
        let start = Instant::now();
        second.ok("BEGIN CONCURRENT; UPDATE t SET n=2 WHERE id=2; COMMIT");
        assert!(start.elapsed() < Duration::from_secs(5));
        first.ok("UPDATE t SET n=n+10 WHERE id=3; COMMIT");
        first.fails("COMMIT", 1);
        assert_eq!(first.integer("SELECT sum(n) FROM t"), 13);
    }

    // holds EXCL-1
    fn exclusive_waits_for_writers_and_keeps_others_out(place) {
        actors!(place, exclusive, writer);
        writer.ok("BEGIN IMMEDIATE; UPDATE t SET n=1 WHERE id=1");
        exclusive.send("BEGIN EXCLUSIVE");
        assert!(exclusive.still_waits_after(SHORT));
        writer.ok("COMMIT");
        assert_eq!(exclusive.finish().error, None);
        assert_eq!(exclusive.integer("SELECT n FROM t WHERE id=1"), 1);
        writer.busy_timeout(Duration::from_millis(100));
        writer.fails("BEGIN IMMEDIATE", BUSY);
        writer.ok("BEGIN CONCURRENT; UPDATE t SET n=5 WHERE id=5");
        writer.fails("COMMIT", BUSY);
        exclusive.ok("UPDATE t SET n=2 WHERE id=2; COMMIT");
        writer.run("COMMIT");
        writer.run("ROLLBACK");
        assert_eq!(exclusive.integer("SELECT sum(n) FROM t WHERE id<5"), 3);
    }

    fn schema_changes_drain_writers_and_others_see_them(place) {
        actors!(place, first, second);
        first.ok("SELECT count(*) FROM t");
        second.ok("BEGIN IMMEDIATE; UPDATE t SET n=1 WHERE id=1");
        first.send("CREATE TABLE made(a); INSERT INTO made VALUES(1)");
        assert!(first.still_waits_after(SHORT));
        second.ok("COMMIT");
        assert_eq!(first.finish().error, None);
        assert_eq!(second.integer("SELECT a FROM made"), 1);
        second.ok("INSERT INTO made VALUES(2); ALTER TABLE made ADD COLUMN b DEFAULT 5");
        assert_eq!(first.integer("SELECT sum(a)*100+sum(b) FROM made"), 310);
    }

    fn a_schema_change_makes_an_optimistic_transaction_conflict_or_wait_but_never_lose(place) {
        actors!(place, first, second);
        first.ok("BEGIN CONCURRENT; SELECT * FROM t WHERE id=1; UPDATE t SET n=9 WHERE id=2");
        second.ok("CREATE INDEX made ON t(n)");
        let reply = first.run("COMMIT");
        let expected = match reply.error {
            None => 9,
            Some(error) => {
                assert_eq!(error.extended, BUSY_SNAPSHOT, "{error}");
                first.ok("ROLLBACK");
                0
            }
        };
        assert_eq!(second.integer("SELECT n FROM t WHERE id=2"), expected);
        assert_eq!(second.ok("PRAGMA integrity_check"), [vec!["ok".into()]]);
    }

    fn the_pragma_makes_plain_begin_concurrent(place) {
        actors!(place, first, second);
        first.ok("PRAGMA plait_begin=concurrent");
        first.ok("BEGIN; UPDATE t SET n=1 WHERE id=1");
        second.busy_timeout(Duration::ZERO);
        second.ok("BEGIN IMMEDIATE; UPDATE t SET n=2 WHERE id=2; COMMIT");
        first.ok("COMMIT");
        assert_eq!(second.integer("SELECT sum(n) FROM t"), 3);
    }

    fn a_rolled_back_writer_passes_the_right_on(place) {
        actors!(place, first, second);
        first.ok("BEGIN IMMEDIATE; UPDATE t SET n=1 WHERE id=1");
        second.send("BEGIN IMMEDIATE");
        assert!(second.still_waits_after(SHORT));
        first.ok("ROLLBACK");
        assert_eq!(second.finish().error, None);
        assert_eq!(second.integer("SELECT n FROM t WHERE id=1"), 0);
    }

    fn closing_a_connection_in_a_transaction_passes_the_right_on(place) {
        actors!(place, first, second);
        first.ok("BEGIN IMMEDIATE; UPDATE t SET n=1 WHERE id=1");
        second.send("BEGIN IMMEDIATE");
        assert!(second.still_waits_after(SHORT));
        first.close().expect("it closes");
        assert_eq!(second.finish().error, None);
        assert_eq!(second.integer("SELECT n FROM t WHERE id=1"), 0);
    }

    // holds TXN-5
    fn a_commit_with_an_open_select_works(place) {
        actors!(place, first, second);
        first.ok("BEGIN CONCURRENT; UPDATE t SET n=1 WHERE id=1");
        first.open_cursor("c", "SELECT id FROM t ORDER BY id");
        assert_eq!(first.step_cursor("c", 2).rows, [vec![1.into()], vec![2.into()]]);
        first.ok("COMMIT");
        second.ok("DELETE FROM t WHERE id=4");
        let rest = first.step_cursor("c", 2000).rows;
        assert_eq!(rest.first(), Some(&vec![3.into()]));
        assert!(rest.len() >= 997, "{} rows", rest.len());
        first.close_cursor("c");
        assert_eq!(second.integer("SELECT n FROM t WHERE id=1"), 1);
    }

    // holds RIGHT-4
    fn a_killed_holder_of_the_right_is_replaced(place) {
        if place == Place::Threads {
            return;
        }
        actors!(place, holder, waiter, reader);
        holder.ok("BEGIN IMMEDIATE; UPDATE t SET n=1 WHERE id=1");
        waiter.send("BEGIN IMMEDIATE");
        assert!(waiter.still_waits_after(SHORT));
        let start = Instant::now();
        holder.kill();
        assert_eq!(waiter.finish().error, None);
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        assert_eq!(reader.integer("SELECT n FROM t WHERE id=1"), 0, "an unfinished transaction never happened");
        waiter.ok("UPDATE t SET n=2 WHERE id=1; COMMIT");
        assert_eq!(reader.integer("SELECT n FROM t WHERE id=1"), 2);
    }

    fn a_stopped_holder_makes_others_busy_and_loses_nothing(place) {
        if place == Place::Threads {
            return;
        }
        actors!(place, holder, waiter);
        holder.ok("BEGIN IMMEDIATE; UPDATE t SET n=1 WHERE id=1");
        plait_tests::os::suspend(holder.pid()).expect("it can be stopped");
        waiter.busy_timeout(Duration::from_millis(500));
        waiter.fails("BEGIN IMMEDIATE", BUSY);
        plait_tests::os::resume(holder.pid()).expect("it can go on");
        holder.ok("COMMIT");
        assert_eq!(waiter.integer("SELECT n FROM t WHERE id=1"), 1);
    }
}
