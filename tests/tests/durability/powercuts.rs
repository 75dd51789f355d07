//! Power cuts at the file operations of the library itself, and of its recoveries; see `plait_tests::powercut`.

use plait_tests::actor::Actor;
use plait_tests::paths;
use plait_tests::planted::must_be_reported;
use plait_tests::powercut::explore::Explorer;
use plait_tests::powercut::lowered::End;
use plait_tests::powercut::pairs::Pairs;
use plait_tests::powercut::recording::{Operation, Recording};
use plait_tests::subject::{Subject, real_plait};

#[test]
fn a_group_over_two_generations_torn_at_any_sector_recovers_after_cuts_at_every_step() {
    let Some(subject) = real_plait("power cuts") else { return };
    let scratch = tempfile::tempdir().expect("a folder");
    let mut explorer = Explorer::new(&subject, scratch.path()).unwrap_or_else(|e| panic!("{e:#}"));
    explorer.torn_group().unwrap_or_else(|error| panic!("{error:#}"));
    println!("{:?}", explorer.tally);
    assert!(explorer.tally.opened > 20, "{:?}", explorer.tally);
}

#[test]
fn power_cuts_one_after_the_other_lose_nothing_that_was_acknowledged_or_seen() {
    let Some(subject) = real_plait("power cuts") else { return };
    let scratch = tempfile::tempdir().expect("a folder");
    let mut explorer = Explorer::new(&subject, scratch.path()).unwrap_or_else(|e| panic!("{e:#}"));
    for seed in 1..=25 {
        explorer.walk(seed).unwrap_or_else(|error| panic!("{error:#}"));
    }
    println!("{:?}", explorer.tally);
}

#[test]
fn a_process_that_has_opened_other_states_does_what_a_new_one_does() {
    let Some(subject) = real_plait("power cuts") else { return };
    let scratch = tempfile::tempdir().expect("a folder");
    let mut explorer = Explorer::new(&subject, scratch.path()).unwrap_or_else(|e| panic!("{e:#}"));
    let compared = explorer.as_in_new_processes().unwrap_or_else(|error| panic!("{error:#}"));
    assert!(compared > 20, "only {compared} states");
}

// holds PREP-4, SEVERAL-1
#[test]
fn two_files_agree_after_a_power_cut_at_every_step_of_commits_over_both() {
    let Some(subject) = real_plait("power cuts") else { return };
    for mode in ["concurrent", "delete"] {
        let scratch = tempfile::tempdir().expect("a folder");
        let mut pairs =
            Pairs::new(&subject, scratch.path(), mode, false).unwrap_or_else(|e| panic!("{e:#}"));
        if let Err(error) = pairs.each_cut(1) {
            panic!("{mode}: {error:#}; the files: {}", scratch.keep().display());
        }
        println!("{mode}: {:?}", pairs.tally);
        assert!(pairs.tally.1 > 30, "{mode}: {:?}", pairs.tally);
    }
}

// holds PREP-7, PAGES-1, SEVERAL-1
#[test]
fn two_files_agree_after_a_power_cut_at_every_step_of_commits_that_change_the_schema_of_one() {
    let Some(subject) = real_plait("power cuts") else { return };
    let scratch = tempfile::tempdir().expect("a folder");
    let pairs = Pairs::new(&subject, scratch.path(), "concurrent", true);
    let mut pairs = pairs.unwrap_or_else(|e| panic!("{e:#}"));
    if let Err(error) = pairs.each_cut(1) {
        panic!("{error:#}; the files: {}", scratch.keep().display());
    }
    println!("{:?}", pairs.tally);
    assert!(pairs.tally.1 > 30, "{:?}", pairs.tally);
}

// holds TICKET-1, TICKET-2
#[test]
fn what_a_ticket_was_said_to_have_on_disk_is_there_after_a_power_cut_at_every_step() {
    let Some(subject) = real_plait("power cuts") else { return };
    let scratch = tempfile::tempdir().expect("a folder");
    let explorer = Explorer::of_tickets(&subject, scratch.path());
    let mut explorer = explorer.unwrap_or_else(|e| panic!("{e:#}"));
    explorer.each_cut_of_workload().unwrap_or_else(|error| panic!("{error:#}"));
    println!("{:?}", explorer.tally);
    assert!(explorer.tally.opened > 20, "{:?}", explorer.tally);
}

// holds FENCE-2, FENCE-5, FENCE-7
#[test]
fn what_was_committed_behind_a_lowered_fence_is_there_after_a_power_cut_at_every_step() {
    let Some(subject) = real_plait("power cuts") else { return };
    for end in [End::Closed, End::Killed] {
        let scratch = tempfile::tempdir().expect("a folder");
        let explorer = Explorer::of_lowered_fences(&subject, scratch.path(), end);
        let mut explorer = explorer.unwrap_or_else(|e| panic!("{e:#}"));
        explorer.each_cut_of_workload().unwrap_or_else(|error| panic!("{error:#}"));
        for seed in 1..=25 {
            explorer.walk(seed).unwrap_or_else(|error| panic!("{error:#}"));
        }
        println!("{:?}", explorer.tally);
        assert!(explorer.tally.opened > 20, "{:?}", explorer.tally);
    }
}

// holds CHAIN-6, SHIP-2
#[test]
fn what_was_shipped_is_there_after_a_power_cut_at_every_step() {
    let Some(subject) = real_plait("power cuts") else { return };
    let programs = paths::shell().expect("a shell").with_file_name("plait-replicate");
    if !programs.exists() {
        eprintln!("skipped: there is no {}", programs.display());
        return;
    }
    let scratch = tempfile::tempdir().expect("a folder");
    let explorer = Explorer::of_shipped(&subject, &programs, scratch.path());
    let mut explorer = explorer.unwrap_or_else(|e| panic!("{e:#}"));
    explorer.each_cut_of_workload().unwrap_or_else(|error| panic!("{error:#}"));
    println!("{:?}", explorer.tally);
    assert!(explorer.tally.opened > 20, "{:?}", explorer.tally);
}

#[test]
fn a_fence_that_stays_lowered_in_the_file_is_caught() {
    let suite =
        "what_was_committed_behind_a_lowered_fence_is_there_after_a_power_cut_at_every_step";
    must_be_reported("fence.left_lowered", suite, &["the fence is down behind 4", "was replaced"]);
}

// holds PREP-4
#[test]
fn a_commit_over_two_files_is_there_after_a_power_cut_behind_it() {
    let Some(subject) = real_plait("power cuts") else { return };
    let scratch = tempfile::tempdir().expect("a folder");
    let pairs = Pairs::new(&subject, scratch.path(), "concurrent", false);
    let mut pairs = pairs.unwrap_or_else(|e| panic!("{e:#}"));
    // Behind the first ones space is made in the log, and what resolves them is synced with it.
    pairs.each_cut_behind(3, 3).unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn an_acknowledged_commit_that_is_not_synced_is_caught() {
    let suite = "what_a_ticket_was_said_to_have_on_disk_is_there_after_a_power_cut_at_every_step";
    must_be_reported("log.unsynced", suite, &["commits were acknowledged or seen"]);
}

#[test]
fn a_ticket_that_is_said_to_be_on_disk_too_early_is_caught() {
    let suite = "what_a_ticket_was_said_to_have_on_disk_is_there_after_a_power_cut_at_every_step";
    must_be_reported(
        "tickets.early",
        suite,
        &["commits were acknowledged or seen", "nobody has synced"],
    );
}

#[test]
fn a_recovery_that_cannot_be_repeated_is_caught() {
    let suite = "a_group_over_two_generations_torn_at_any_sector_recovers_after_cuts_at_every_step";
    must_be_reported("log.removed_early", suite, &["is missing: it holds commits"]);
}

#[test]
fn a_commit_over_two_files_that_a_recovery_takes_back_in_one_is_caught() {
    let suite = "a_commit_over_two_files_is_there_after_a_power_cut_behind_it";
    // Which of the two it is depends on whether the log of one file has been written further by itself.
    must_be_reported(
        "several.taken_back",
        suite,
        &["commits were acknowledged or seen", "the files differ"],
    );
}

/// A sync that failed in the process before may have left out the two bytes, and a later one says nothing of what is not written
/// again. The reader keeps a checkpoint from bringing them.
// holds FENCE-5
#[test]
fn the_fence_of_a_dead_author_is_written_again_before_it_is_synced() {
    if real_plait("a dead author of a fence").is_none() {
        return;
    }
    let subject = Subject::plait_with_crash_points();
    let scratch = tempfile::tempdir().expect("a folder");
    let (folder, database) = (scratch.path().join("db"), scratch.path().join("db/app.db"));
    std::fs::create_dir(&folder).expect("a folder");
    let made = subject.create(&database).expect("it is made");
    made.execute("CREATE TABLE t(a)").expect("a table");
    made.close().expect("it closes");
    let stock = Subject::stock().open(&database).expect("the file is at rest");
    stock.execute("INSERT INTO t VALUES(1); BEGIN; SELECT * FROM t").expect("a part of the WAL");
    let at = ("PLAIT_CRASH_AT", "fence.raised");
    let insert = "BEGIN CONCURRENT; INSERT INTO t VALUES(2); COMMIT";
    let mut author = Actor::start_with_environment("author", &subject, &database, at);
    author.send(insert);
    author.await_death();
    let recording = Recording::of(&folder);
    let mut heir = recording.actor("heir", &subject, None);
    heir.open(&database).expect("it opens");
    heir.ok(insert);
    let shapes: Vec<_> =
        recording.operations().expect("what it did").iter().map(Operation::shape).collect();
    let synced = shapes.iter().position(|shape| shape == "sync begins app.db").expect("a sync");
    assert!(shapes[..synced].contains(&"write app.db 18 2".to_owned()), "{shapes:#?}");
}
