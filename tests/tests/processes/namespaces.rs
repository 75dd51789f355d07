//! Processes in pid namespaces of their own, as containers on one volume are: their ids are equal and say nothing.

use plait_tests::job::{Ending, Job, Running, Work};
use plait_tests::jobs::pairs::{Acknowledged, Pairs, SCHEMA, verify};
use plait_tests::os::can_have_own_pid_namespace;
use plait_tests::paths;
use plait_tests::planted::must_be_reported;
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

fn start(fixture: &Fixture, pairs: Pairs) -> Running {
    let (subject, database) = (fixture.subject.clone(), fixture.database());
    Job { subject, database, work: Work::Pairs(pairs) }.start_in_own_pid_namespace()
}

/// Notes what a worker reported; true if it ended by itself.
fn collect(running: Running, acknowledged: &mut BTreeMap<i64, i64>) -> bool {
    let (lines, ending) = running.wait::<Acknowledged>(PATIENCE).expect("nobody hangs");
    for line in lines {
        let last = acknowledged.entry(line.worker).or_default();
        *last = (*last).max(line.seq);
    }
    match ending {
        Ending::Done(_) => true,
        Ending::Died(_) => false,
        Ending::Failed(message) => panic!("a worker failed: {message}"),
    }
}

fn check(fixture: &Fixture, acknowledged: &BTreeMap<i64, i64>) {
    let connection = fixture.open();
    verify(&connection, acknowledged).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(connection.text("PRAGMA integrity_check"), Ok("ok".to_owned()));
}

#[test]
fn two_processes_with_the_same_id_share_a_database() {
    let Some(subject) = real_plait("namespaces") else { return };
    if !can_have_own_pid_namespace() {
        return;
    }
    let fixture = Fixture::new(subject, SCHEMA);
    let jobs: Vec<Running> = (1..=2)
        .map(|worker| start(&fixture, Pairs { worker, commits: Some(400), ..Default::default() }))
        .collect();
    let mut acknowledged = BTreeMap::new();
    for job in jobs {
        assert!(collect(job, &mut acknowledged), "it died");
    }
    assert_eq!(acknowledged, BTreeMap::from([(1, 400), (2, 400)]));
    check(&fixture, &acknowledged);
}

/// As a container gets it that mounts the database alone: what stands beside it there goes with the container.
#[test]
fn a_file_that_is_mounted_without_its_folder_is_left_in_the_mode_that_it_has() {
    const NO_MOUNTS: i32 = 77;
    let Some(subject) = real_plait("namespaces") else { return };
    let Some(command) = subject.command() else { return };
    let fixture = Fixture::new(Subject::plait_in_wal_mode(), SCHEMA);
    let inside = fixture.path("inside");
    std::fs::create_dir(&inside).expect("the container's folder");
    std::fs::write(inside.join("app.db"), "").expect("what is mounted over");
    let script = format!(
        "mount --bind \"$1\" \"$2\" || exit {NO_MOUNTS}; ! \"$3\" enable \"$2\" && \
         \"$3\" run --concurrent -- \"$4\" \"$2\" 'PRAGMA journal_mode=wal'"
    );
    let shell = Path::new(command.get_program()).with_file_name("sqlite3");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script, "sh"])
        .args([&fixture.database(), &inside.join("app.db")])
        .args([command.get_program(), shell.as_os_str()])
        .output();
    let Ok(output) = output else { return };
    let [said, why] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    if output.status.code() == Some(NO_MOUNTS) || why.contains("unshare") {
        eprintln!("skipped: {why}");
        return;
    }
    assert!(output.status.success(), "{said}{why}");
    assert!(why.contains("is mounted by itself") && why.contains("mount the folder"), "{why}");
    assert_eq!(said.trim(), "wal", "{why}");
    let db = fixture.open();
    assert_eq!(db.text("PRAGMA journal_mode").as_deref(), Ok("wal"));
}

#[test]
fn the_death_of_a_process_shows_in_other_namespaces() {
    let Some(subject) = real_plait("namespaces") else { return };
    if !can_have_own_pid_namespace() {
        return;
    }
    let fixture = Fixture::new(subject, SCHEMA);
    let mut acknowledged = BTreeMap::new();
    let mut fresh = 0;
    let mut next = || {
        fresh += 1;
        start(&fixture, Pairs { worker: fresh, ..Default::default() })
    };
    let mut jobs: Vec<Running> = (0..3).map(|_| next()).collect();
    for round in 0..12 {
        std::thread::sleep(Duration::from_millis(50 + round * 17 % 90));
        let mut victim = jobs.remove(0);
        victim.kill();
        assert!(!collect(victim, &mut acknowledged), "it was killed");
        jobs.push(next());
        // The others go on: each commits again.
        for job in &mut jobs {
            let line: Acknowledged = job.next_line(PATIENCE).expect("a commit after the death");
            let last = acknowledged.entry(line.worker).or_default();
            *last = (*last).max(line.seq);
        }
    }
    for mut job in jobs {
        job.stop();
        assert!(collect(job, &mut acknowledged), "it died");
    }
    check(&fixture, &acknowledged);
}

#[test]
fn an_id_of_another_namespace_is_marked() {
    let Some(subject) = real_plait("namespaces") else { return };
    if !can_have_own_pid_namespace() {
        return;
    }
    let fixture = Fixture::new(subject, SCHEMA);
    let connection = fixture.open();
    let mut far = start(&fixture, Pairs { worker: 1, ..Default::default() });
    let asked = "SELECT pid, pid_namespace FROM plait_transactions WHERE pid_namespace IS NOT NULL";
    let begin = Instant::now();
    loop {
        connection.execute("BEGIN; SELECT count(*) FROM pair_a").expect("a read");
        let rows = connection.query(asked).expect("an answer");
        let own = "SELECT count(*) FROM plait_transactions WHERE pid_namespace IS NULL AND pid=";
        let mine = connection.integer(&format!("{own}{}", std::process::id()));
        connection.execute("COMMIT").expect("its end");
        assert_eq!(mine, Ok(1));
        if let Some(row) = rows.first() {
            assert_eq!(row[0].as_i64(), Some(1));
            assert!(row[1].as_i64().is_some_and(|number| number > 0));
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "the other never shows");
    }
    far.stop();
    assert!(collect(far, &mut BTreeMap::new()));
}

#[test]
fn where_proc_is_not_mounted_a_connection_that_is_alone_works_and_one_that_joins_is_told_why() {
    let Some(subject) = real_plait("no /proc") else { return };
    if !can_have_own_pid_namespace() {
        return;
    }
    let fixture = Fixture::new(subject, "CREATE TABLE t(id INTEGER PRIMARY KEY)");
    // The loader finds what lies beside a program by /proc.
    let library = paths::plait_library().expect("the library");
    let run = |sql: &str| {
        let script =
            r#"mount --make-rprivate / && mount -t tmpfs none /proc && exec "$0" -bail "$@""#;
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(paths::shell().expect("the shell"))
            .arg(fixture.database())
            .arg(sql)
            .env("PLAIT_JOIN", "when needed")
            .env("LD_LIBRARY_PATH", library.parent().expect("its folder"))
            .output();
        let output = output.expect("unshare can be started");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        (said(&output.stdout), said(&output.stderr))
    };
    let (rows, error) = run("INSERT INTO t VALUES(1); SELECT count(*) FROM t");
    assert_eq!((rows.as_str(), error.as_str()), ("1", ""));
    // After so many it would be worth it to join.
    let long = "INSERT INTO t VALUES(NULL); SELECT id FROM t WHERE id<0;".repeat(600);
    let (rows, error) = run(&format!("{long} SELECT count(*) FROM t"));
    assert_eq!((rows.as_str(), error.as_str()), ("601", ""));
    let (_, error) = run("BEGIN CONCURRENT; INSERT INTO t VALUES(NULL); COMMIT");
    assert!(error.contains("/proc is not mounted here"), "{error}");
    assert_eq!(fixture.open().integer("SELECT count(*) FROM t"), Ok(601));
    fixture
        .open()
        .execute("PRAGMA journal_mode=wal; PRAGMA journal_mode=delete")
        .expect("it leaves");
    let (_, error) = run("PRAGMA journal_mode=concurrent");
    assert!(error.contains("/proc is not mounted here"), "{error}");
    assert_eq!(fixture.open().text("PRAGMA journal_mode").as_deref(), Ok("delete"));
}

#[test]
fn processes_that_are_told_apart_by_their_ids_are_caught() {
    if can_have_own_pid_namespace() {
        let suite = "two_processes_with_the_same_id_share_a_database";
        must_be_reported("processes.known_by_id", suite, &["a worker failed", "it died"]);
    }
}
