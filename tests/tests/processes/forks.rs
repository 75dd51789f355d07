//! Children made by `fork()`: what they have inherited is refused, and stays their parents'.

use plait_tests::job::{Job, Work};
use plait_tests::jobs::inherited::{Deed, Inherited, State};
use plait_tests::jobs::process_rules::{
    CHILD_REFUSED, Fork, ForkWithoutLocks, ForksBesideMerges, ForksBesideOpenings,
};
use plait_tests::os::can_have_own_pid_namespace;
use plait_tests::place::Place;
use plait_tests::subject::{Fixture, real_plait};
use std::time::Duration;

// holds CHILD-1
#[test]
fn a_connection_carried_over_fork_is_refused_in_the_child() {
    let Some(subject) = real_plait("fork") else { return };
    for sql in ["INSERT INTO forked VALUES(100)", "SELECT * FROM forked", "BEGIN IMMEDIATE"] {
        let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(a)");
        let work = Work::Fork(Fork { sql: sql.to_owned() });
        let job = Job { subject: subject.clone(), database: fixture.database(), work };
        let result: serde_json::Value = job.start(Place::Processes).result(Duration::from_secs(30));
        assert_eq!(result["child"], CHILD_REFUSED, "{sql}");
        assert_eq!(result["rows"], 2, "{sql}");
        let rows = fixture.open().integer("SELECT count(*) FROM forked").expect("a count");
        assert_eq!(rows, 2);
    }
}

// holds DEADMAN-4
#[test]
fn the_child_of_a_parent_without_locks_leaves_it_its_files() {
    let Some(subject) = real_plait("forks without locks") else { return };
    for alone in [false, true] {
        let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(a)");
        let work = Work::ForkWithoutLocks(ForkWithoutLocks { alone });
        let job = Job { subject: subject.clone(), database: fixture.database(), work };
        let result: serde_json::Value = job.start(Place::Processes).result(Duration::from_secs(60));
        assert_eq!(result["child"], 0, "{result}");
        assert_eq!(result["kept"], true, "alone {alone}: {result}");
        assert_eq!(result["rows"], 3, "alone {alone}: {result}");
        let rest = fixture.open();
        assert_eq!(rest.integer("SELECT count(*) FROM t"), Ok(3));
        assert_eq!(rest.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}

// holds WORKER-3
#[test]
fn a_child_forked_beside_a_merge_can_use_the_library() {
    let Some(subject) = real_plait("forks beside merges") else { return };
    let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(a)");
    let work = Work::ForksBesideMerges(ForksBesideMerges { forks: 60 });
    let job = Job { subject, database: fixture.database(), work };
    let result: serde_json::Value = job.start(Place::Processes).result(Duration::from_secs(150));
    assert_eq!(result["forks"], 60, "{result}");
    assert_eq!(result["written"], result["found"], "{result}");
}

/// What its parent has half done in that moment are notes and mutexes of SQLite's, of a file that may be about to be found concurrent.
fn children_beside_openings(join: &str) {
    let Some(subject) = real_plait("forks beside openings") else { return };
    for threads in [1, 2] {
        let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(a)");
        let work = Work::ForksBesideOpenings(ForksBesideOpenings { forks: 250, threads });
        let job = Job { subject: subject.clone(), database: fixture.database(), work };
        let running = job.start_with_environment(Place::Processes, &[("PLAIT_JOIN", join)]);
        let result: serde_json::Value = running.result(Duration::from_secs(120));
        assert_eq!(result["written"], result["found"], "{result}");
        let check = fixture.open().text("PRAGMA integrity_check").expect("a check");
        assert_eq!(check, "ok");
    }
}

// holds REGISTRY-4
#[test]
fn children_forked_while_threads_open_and_close_can_use_the_database() {
    children_beside_openings("always");
}

#[test]
fn children_forked_while_threads_open_and_close_alone_can_use_the_database() {
    children_beside_openings("when needed");
}

/// What a child does to the connections of a parent in each state; alone, or as a member of a session.
fn meddles(alone: bool) {
    let Some(subject) = real_plait("what children inherit") else { return };
    for state in State::ALL {
        // BEGIN CONCURRENT is for members.
        if alone && state == State::WritesBeside {
            continue;
        }
        for deed in Deed::ALL {
            let what = format!("{state:?}, {deed:?}, alone {alone}");
            let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(a)");
            let work = Work::Inherited(Inherited { state, deed, alone, same_id: false });
            let job = Job { subject: subject.clone(), database: fixture.database(), work };
            let running = job.start(Place::Processes);
            let result: serde_json::Value = running.result(Duration::from_secs(60));

            assert_eq!(result["child"], 0, "{what}: {result}");
            assert_eq!(result["check"], "ok", "{what}: {result}");
            let before = result["before"].as_i64().expect("a count");
            let of_children = if state.keeps_others_out() { 0 } else { 2 };
            if state == State::Reads {
                assert_eq!(result["within"], before, "{what}: {result}");
            } else {
                assert_eq!(result["within"], before + 1, "{what}: {result}");
            }
            let own = match state {
                State::Reads => 0,
                // Its rows come behind those of the child, which took their places.
                State::WritesBeside => 0,
                _ => 2,
            };
            assert_eq!(result["rows"], before + own + of_children, "{what}: {result}");
            let rows = fixture.open().integer("SELECT count(*) FROM forked").expect("a count");
            assert_eq!(result["rows"], rows, "{what}");
        }
    }
}

/// Ids are used again, and are equal in namespaces.
#[test]
fn a_child_that_has_its_parents_id_is_its_child_all_the_same() {
    let Some(subject) = real_plait("children in namespaces") else { return };
    if !can_have_own_pid_namespace() {
        return;
    }
    for (alone, state) in [(false, State::Writes), (true, State::Writes), (true, State::Spills)] {
        for deed in [Deed::Close, Deed::Commit, Deed::Read] {
            let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(a)");
            let work = Work::Inherited(Inherited { state, deed, alone, same_id: true });
            let job = Job { subject: subject.clone(), database: fixture.database(), work };
            let running = job.start_in_own_pid_namespace();
            let result: serde_json::Value = running.result(Duration::from_secs(60));
            assert_eq!(result["child"], 0, "{state:?}, {deed:?}, alone {alone}: {result}");
            assert_eq!(result["check"], "ok", "{result}");
        }
    }
}

// holds CHILD-2
#[test]
fn what_a_child_does_to_an_inherited_connection_of_a_member_changes_nothing() {
    meddles(false);
}

// holds CHILD-2
#[test]
fn what_a_child_does_to_an_inherited_connection_that_was_alone_changes_nothing() {
    meddles(true);
}
