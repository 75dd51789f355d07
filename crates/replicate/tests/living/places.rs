//! Folders as places, and databases under their names: not there yet, moved away, behind links, and named otherwise.

use std::path::{Path, PathBuf};
use std::time::Instant;

use plait_replicate::ids::RecordNumber;

use crate::disks::trouble;
use crate::following::{
    LOCK, PATIENCE, agrees, begun, beside, follower, is_told, is_told_nothing, mark, nap, replica,
    says,
};
use crate::processes::{Process, open};
use crate::stage::Stage;

// holds TRAIL-4
#[test]
fn a_follower_waits_for_its_place_under_its_lock_and_ends_when_it_is_told() {
    let stage = Stage::new();
    let first = follower(&stage);
    while !beside(&stage, LOCK).exists() {
        nap(1);
    }
    assert_eq!(first.terminated(), 0, "at once");
    // It may have come so far as to say what it waits for: the second one is to say it.
    let _ = std::fs::remove_file(beside(&stage, "-plait-follows"));
    let second = follower(&stage);
    is_told(&stage, "there is no folder ");
    assert_eq!(follower(&stage).ended().code(), Some(2), "one is there");
    assert!(!stage.url.exists(), "it makes no place");
    stage.execute("INSERT INTO t VALUES(1, 'first')");
    let sidecar = stage.sidecar(&[]);
    agrees(&stage);
    is_told_nothing(&stage);
    assert_eq!(second.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn what_waits_for_a_folder_that_does_not_answer_ends_when_it_is_told() {
    let (stage, sidecar) = begun();
    let follows = follower(&stage);
    agrees(&stage);
    assert_eq!(sidecar.terminated(), 0);
    agrees(&stage);
    nap(200);
    assert_eq!(follows.terminated(), 0);
    // Who opens the next record waits for its writer, as for the server of a network file system.
    let tip = stage.restored().expect("it is restored").1.record;
    let next = stage.url.join(plait_replicate::names::record(tip.next()));
    let made = std::process::Command::new("mkfifo").arg(&next).status();
    assert!(made.is_ok_and(|status| status.success()));
    let (sidecar, follower) = (stage.sidecar(&[]), follower(&stage));
    for process in [&sidecar, &follower] {
        // Where the kernel does not say so it has had the time.
        let begun = Instant::now();
        while !process.waits_in("wait_for_partner") && begun.elapsed().as_secs() < 5 {
            nap(20);
        }
        process.signal(rustix::process::Signal::TERM);
    }
    let begun = Instant::now();
    assert_eq!(sidecar.ended().code(), Some(1), "it has shipped nothing");
    assert_eq!(follower.ended().code(), Some(0));
    assert!(begun.elapsed().as_secs() < 20, "each waits for ten seconds");
}

// holds FOLDER-1
#[test]
fn a_folder_that_is_moved_away_is_missed_and_not_made_anew() {
    let (stage, sidecar) = begun();
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    let first = stage.agrees().snapshot;
    let away = stage.folder.path().join("away");
    std::fs::rename(&stage.url, &away).expect("it goes");
    keeper.execute("INSERT INTO t VALUES(3, 'meanwhile')").expect("it commits");
    let begun = Instant::now();
    let missed = format!("the store is not there: there is no folder {}", stage.url.display());
    let said = trouble(&stage);
    assert!(
        said.starts_with(&missed) && said.ends_with("tried again, after 10 seconds at most"),
        "{said}"
    );
    assert!(begun.elapsed().as_secs() < 8, "before it would have looked for its place");
    // Nor by a new start in this session.
    sidecar.kill();
    let sidecar = stage.sidecar(&[]);
    assert!(trouble(&stage).contains("there is no folder"));
    nap(1500);
    assert!(!stage.url.exists(), "an empty one would look like a replica");
    std::fs::rename(&away, &stage.url).expect("it comes back");
    assert_eq!(stage.agrees().snapshot, first, "the log still had it");
    assert_eq!(sidecar.terminated(), 0);
}

// holds FOLDER-1
#[test]
fn a_long_name_of_a_place_is_known_again() {
    let stage = Stage::new();
    let url = stage.folder.path().join("µ".repeat(120)).join("replica");
    let stage = Stage { url, ..stage };
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    keeper.execute("INSERT INTO t VALUES(3, 'a session that stays')").expect("it commits");
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    sidecar.kill();
    let away = stage.folder.path().join("away");
    std::fs::rename(&stage.url, &away).expect("it goes");
    let sidecar = stage.sidecar(&[]);
    assert!(trouble(&stage).contains("there is no folder"));
    assert!(!stage.url.exists());
    std::fs::rename(&away, &stage.url).expect("it comes back");
    keeper.execute("INSERT INTO t VALUES(4, 'behind it')").expect("it commits");
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_probe_leaves_no_folder_where_none_was() {
    let stage = Stage::new();
    let probe = || says(&[Path::new("probe"), &stage.url], 0);
    probe();
    assert!(!stage.url.exists());
    let nested = stage.url.join("a/b");
    says(&[Path::new("probe"), &nested], 0);
    assert!(!stage.url.exists(), "nor one above it");
    std::fs::create_dir(&stage.url).expect("a folder");
    says(&[Path::new("probe"), &nested], 0);
    probe();
    assert!(stage.url.exists());
}

// holds FOLDER-2
#[test]
fn nothing_is_shipped_into_another_folder_of_the_name() {
    let (stage, sidecar) = begun();
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    stage.agrees();
    let away = stage.folder.path().join("away");
    let names = |place: &Path| std::fs::read_dir(place).expect("a folder").count();
    // Between two looks for the own place.
    std::fs::rename(&stage.url, &away).expect("it goes");
    std::fs::create_dir_all(stage.url.join("something")).expect("another");
    keeper.execute("INSERT INTO t VALUES(3, 'meanwhile')").expect("it commits");
    let begun = Instant::now();
    assert_eq!(sidecar.ended().code(), Some(1));
    assert!(begun.elapsed().as_secs() < 8, "at its next write");
    assert_eq!(names(&stage.url), 1);
}

// holds FOLDER-3
#[test]
fn a_place_below_which_an_empty_folder_comes_to_light_is_waited_for() {
    let (stage, sidecar) = begun();
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    let first = stage.agrees().snapshot;
    let away = stage.folder.path().join("away");
    let is_empty = || std::fs::read_dir(&stage.url).expect("a folder").next().is_none();
    // As where the place is a mount point, and the disk is unmounted.
    std::fs::rename(&stage.url, &away).expect("it goes");
    std::fs::create_dir(&stage.url).expect("what is below it");
    keeper.execute("INSERT INTO t VALUES(3, 'meanwhile')").expect("it commits");
    let missed =
        format!("{} is empty, and the database was shipped there before", stage.url.display());
    let said = trouble(&stage);
    assert!(said.contains(&missed) && said.contains("--take-over") && is_empty(), "{said}");
    // Nor is it raced, and written into, by a new start in this session.
    sidecar.kill();
    let sidecar = stage.sidecar(&[]);
    nap(1500);
    let said = trouble(&stage);
    assert!(said.contains(&missed) && is_empty(), "{said}");
    std::fs::remove_dir(&stage.url).expect("it is empty");
    std::fs::rename(&away, &stage.url).expect("it comes back");
    assert_eq!(stage.agrees().snapshot, first, "the log still had it");
    assert_eq!(sidecar.terminated(), 0);
    // Who has emptied it on purpose begins anew there.
    std::fs::remove_dir_all(&stage.url).expect("it goes");
    std::fs::create_dir(&stage.url).expect("an empty one");
    let sidecar = stage.sidecar(&["--take-over"]);
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

// holds FOLDER-2
#[test]
fn nothing_is_shipped_into_what_was_emptied_under_the_sidecar() {
    let (stage, sidecar) = begun();
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    stage.agrees();
    // On some file systems a folder that is made anew has the number of the one that was removed.
    let chain = stage.url.join("chain");
    std::fs::rename(&chain, stage.folder.path().join("away")).expect("it goes");
    keeper.execute("INSERT INTO t VALUES(3, 'meanwhile')").expect("it commits");
    let begun = Instant::now();
    assert_eq!(sidecar.ended().code(), Some(1));
    assert!(begun.elapsed().as_secs() < 8, "at its next write");
    assert!(!chain.exists(), "nothing was made");
    // A start at a place that has lost its beginning names that, and no other sidecar.
    std::fs::rename(stage.folder.path().join("away"), &chain).expect("it comes back");
    let first = stage.url.join(plait_replicate::names::record(RecordNumber::FIRST));
    std::fs::remove_file(first).expect("it is there");
    let said = says(&[Path::new("run"), &stage.url, &stage.database], 2);
    assert!(said.contains("was shipped to this place before"), "{said}");
    let sidecar = stage.sidecar(&["--take-over"]);
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

// holds FOLDER-2
#[test]
fn a_place_that_is_put_back_ends_the_sidecar_and_the_next_goes_on_behind_it() {
    let (stage, sidecar) = begun();
    stage.agrees();
    let earlier = stage.folder.path().join("earlier");
    let copied = std::process::Command::new("cp").arg("-a").arg(&stage.url).arg(&earlier).status();
    assert!(copied.is_ok_and(|status| status.success()));
    stage.execute("INSERT INTO t VALUES(3, 'behind the copy')");
    stage.agrees();
    std::fs::rename(&stage.url, stage.folder.path().join("later")).expect("it goes");
    std::fs::rename(&earlier, &stage.url).expect("it comes back");
    stage.execute("INSERT INTO t VALUES(4, 'behind the loss')");
    assert_eq!(sidecar.ended().code(), Some(1), "a new start mends it");
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

// holds FOLDER-2
#[test]
fn a_place_that_is_put_back_to_before_a_sidecars_start_needs_no_take_over() {
    let (stage, first) = begun();
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    stage.agrees();
    assert_eq!(first.terminated(), 0);
    let earlier = stage.folder.path().join("earlier");
    let copied = std::process::Command::new("cp").arg("-a").arg(&stage.url).arg(&earlier).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let second = stage.sidecar(&[]);
    keeper.execute("INSERT INTO t VALUES(3, 'behind the copy')").expect("it commits");
    stage.agrees();
    std::fs::rename(&stage.url, stage.folder.path().join("later")).expect("it goes");
    std::fs::rename(&earlier, &stage.url).expect("it comes back");
    keeper.execute("INSERT INTO t VALUES(4, 'behind the loss')").expect("it commits");
    assert_eq!(second.ended().code(), Some(1), "a new start mends it");
    let said = trouble(&stage);
    assert!(said.contains("a new start goes on") && !said.contains("--take-over"), "{said}");
    let third = stage.sidecar(&[]);
    stage.agrees();
    assert_eq!(third.terminated(), 0);
}

#[test]
fn a_follower_of_a_place_that_was_begun_anew_says_what_to_do() {
    let (stage, first) = begun();
    let follows = follower(&stage);
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    std::fs::remove_dir_all(&stage.url).expect("it goes");
    let second = stage.sidecar(&["--take-over"]);
    stage.agrees();
    assert_eq!(follows.terminated(), 0);
    let said = says(&[Path::new("follow"), &stage.url, &replica(&stage)], 2);
    assert!(said.contains("begun anew") && said.contains("a database of another name"), "{said}");
    assert_eq!(second.terminated(), 0);
}

#[test]
fn a_database_that_is_overwritten_in_its_place_ends_the_sidecar() {
    let (stage, sidecar) = begun();
    stage.agrees();
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    let other = stage.folder.path().join("other.db");
    open(&other).execute("CREATE TABLE other(a)").expect("a table");
    let bytes = std::fs::read(&other).expect("a file");
    std::fs::write(&stage.database, bytes).expect("it is written over");
    assert_eq!(sidecar.ended().code(), Some(1), "nobody else reads it");
    let said = says(&[Path::new("run"), &stage.url, &stage.database], 1);
    assert!(said.contains("was replaced or overwritten"), "{said}");
    drop(keeper);
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()));
}

#[test]
fn a_newer_backup_that_is_copied_over_a_running_sidecar_ends_it() {
    let (stage, sidecar) = begun();
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    let backup = |name| stage.folder.path().join(name);
    copy(&stage.url, &backup("older"));
    let sidecar = stage.sidecar(&[]);
    stage.writer(2, Some(5), "FULL").ended();
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    copy(&stage.url, &backup("newer"));
    std::fs::remove_dir_all(&stage.url).expect("it goes");
    copy(&backup("older"), &stage.url);
    let sidecar = stage.sidecar(&[]);
    // More than the other history has.
    for number in 0..6 {
        stage.execute(&format!("INSERT INTO t VALUES({}, 'here')", 1_000 + number));
        stage.agrees();
    }
    copy(&backup("newer").join("."), &stage.url);
    assert_eq!(sidecar.ended().code(), Some(2), "its OPEN is the other history's record");
    let said = says(&[Path::new("run"), &stage.url, &stage.database], 2);
    assert!(said.contains("two histories"), "{said}");
}

#[test]
fn something_else_under_the_name_of_the_next_record_is_told() {
    let (stage, sidecar) = begun();
    stage.agrees();
    sidecar.signal(rustix::process::Signal::STOP);
    let newest = std::fs::read_dir(stage.url.join("chain/000000000000")).expect("records");
    let newest = newest.map(|of| of.expect("a name").file_name().into_string().expect("a number"));
    let newest: u64 = newest.max().and_then(|name| name.parse().ok()).expect("a record");
    let name = plait_replicate::names::record(RecordNumber(newest + 1));
    let next = stage.url.join(&name);
    std::fs::create_dir(&next).expect("a folder in its place");
    sidecar.signal(rustix::process::Signal::CONT);
    stage.execute("INSERT INTO t VALUES(3, 'behind it')");
    let begun = Instant::now();
    while !trouble(&stage)
        .contains(&format!("create {name}: the store failed: it says that the object exists"))
    {
        assert!(begun.elapsed() < PATIENCE, "{}", trouble(&stage));
        nap(50);
    }
    std::fs::remove_dir(&next).expect("it goes");
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_database_that_is_overwritten_with_anything_ends_the_sidecar_within_ten_seconds() {
    let ways = [
        ": > app.db",
        "head -c 8192 /dev/urandom > app.db",
        "head -c 10 app.db > cut; cat cut > app.db",
        "cat older > app.db",
    ];
    // The second lowers the fence, and leaves no page 1 in the WAL.
    let checkpoints = ["PRAGMA wal_checkpoint", "PRAGMA wal_checkpoint(TRUNCATE)"];
    let begin = |way, checkpoint| {
        let (stage, sidecar) = begun();
        stage.agrees();
        // In a shell: what is closed in this process takes the locks of its connections along.
        let shell = |line: &str| {
            let mut shell = std::process::Command::new("sh");
            let status = shell.args(["-c", line]).current_dir(stage.folder.path()).status();
            assert!(status.is_ok_and(|status| status.success()), "{line}");
        };
        shell("cp app.db older");
        let keeper = open(&stage.database);
        keeper.execute("INSERT INTO t VALUES(3, 'later')").expect("it commits");
        keeper.query(checkpoint).expect("it is merged");
        stage.agrees();
        shell(way);
        (way, checkpoint, sidecar, keeper, stage)
    };
    let both = |way| checkpoints.map(|checkpoint| begin(way, checkpoint));
    let left_alone = both("true");
    let overwritten = ways.map(both);
    let begun = Instant::now();
    for (way, checkpoint, sidecar, ..) in overwritten.into_iter().flatten() {
        assert_eq!(sidecar.ended().code(), Some(1), "{way} behind {checkpoint}");
        assert!(begun.elapsed().as_secs() < 20, "{way} behind {checkpoint}");
    }
    nap(10_000u64.saturating_sub(begun.elapsed().as_millis() as u64));
    for (_, checkpoint, sidecar, _keeper, _stage) in left_alone {
        assert_eq!(sidecar.terminated(), 0, "{checkpoint}");
    }
}

// holds FOLDER-2
#[test]
fn a_disk_that_comes_back_under_another_number_is_the_same_place() {
    let (stage, sidecar) = begun();
    let first = stage.agrees().snapshot;
    sidecar.signal(rustix::process::Signal::STOP);
    let away = stage.folder.path().join("away");
    std::fs::rename(&stage.url, &away).expect("it goes");
    copy(&away, &stage.url);
    sidecar.signal(rustix::process::Signal::CONT);
    stage.execute("INSERT INTO t VALUES(3, 'meanwhile')");
    assert_eq!(stage.agrees().snapshot, first);
    assert_eq!(sidecar.terminated(), 0);
}

/// Names of the place of a stage.
fn names(stage: &Stage) -> Vec<String> {
    let (place, folder) = (stage.url.display(), stage.folder.path());
    std::os::unix::fs::symlink(folder, folder.join("link")).expect("a link");
    let folder = folder.display();
    vec![
        format!("{place}/"),
        format!("{folder}/./replica"),
        format!("{folder}/link/replica"),
        format!("{place}/../replica"),
        format!("file://{place}"),
    ]
}

#[test]
fn a_folder_is_one_place_under_all_of_its_names() {
    let (stage, sidecar) = begun();
    stage.agrees();
    for (n, name) in names(&stage).into_iter().enumerate() {
        let named = Process::follower(Path::new(&name), &replica(&stage), None);
        stage.execute(&format!("INSERT INTO t VALUES({n}, 'under another name')"));
        agrees(&stage);
        assert_eq!(named.terminated(), 0, "{name}");
        let told = mark(&stage).place;
        assert!(!told.contains("file:") && !told.ends_with('/'), "{told}: for people");
        // And a replica is not shipped to the place that it follows.
        let itself = [Path::new("run"), Path::new(&name), &replica(&stage)];
        let said = says(&itself, 2);
        assert!(said.contains("follows this place"), "{name}: {said}");
        let inside = [Path::new("follow"), Path::new(&name), &stage.url.join("inside.db")];
        assert!(says(&inside, 2).contains("choose another folder"), "{name}");
    }
    assert_eq!(sidecar.terminated(), 0);
    // A place that was shipped to is the same one for its sidecar.
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    keeper.execute("INSERT INTO t VALUES(50, 'a session that stays')").expect("it commits");
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    std::fs::remove_dir_all(&stage.url).expect("it goes");
    // An empty one is waited for.
    std::fs::create_dir_all(stage.url.join("something")).expect("another one");
    for name in [format!("{}/", stage.url.display()), format!("file://{}", stage.url.display())] {
        let said = says(&[Path::new("run"), Path::new(&name), &stage.database], 2);
        assert!(said.contains("was shipped here before"), "{name}: {said}");
    }
}

#[test]
fn a_line_break_in_a_name_breaks_no_mark() {
    let stage = Stage::new();
    let place = stage.folder.path().join("a\nplace");
    for command in ["follow", "run"] {
        let said = says(&[Path::new(command), &place, &replica(&stage)], 2);
        assert!(said.contains("a newline or another control character"), "{said}");
    }
    assert!(!beside(&stage, "-plait-follows").exists() && !place.exists());
    stage.execute("INSERT INTO t VALUES(1, 'first')");
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    let named: PathBuf = stage.folder.path().join("a\nseeding 1\u{1b}[2J.db");
    let follower = Process::follower(&stage.url, &named, None);
    let begun = Instant::now();
    let mark = || plait_replicate::following::mark::Mark::read(&named);
    while mark().expect("it is whole").is_none_or(|mark| mark.seeding.is_some()) {
        assert!(begun.elapsed() < PATIENCE, "nothing comes");
        nap(20);
    }
    // A trouble that names the database.
    let keeper = open(&named);
    keeper.query("SELECT count(*) FROM t").expect("it is read");
    std::fs::remove_file(named.with_extension("db-plait-follows")).expect("it is there");
    while mark().expect("it is whole").is_none() {
        assert!(begun.elapsed() < PATIENCE, "it is not made anew");
        nap(20);
    }
    assert_eq!(follower.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_link_is_followed_to_the_database() {
    let (stage, sidecar) = begun();
    let (link, there) = (replica(&stage), stage.folder.path().join("disk"));
    std::fs::create_dir(&there).expect("a folder");
    let follows = follower(&stage);
    agrees(&stage);
    assert_eq!(follows.terminated(), 0);
    for end in ["", "-plait-follows"] {
        let name = format!("elsewhere.db{end}");
        std::fs::rename(stage.folder.path().join(&name), there.join(&name)).expect("it moves");
    }
    std::os::unix::fs::symlink(there.join("elsewhere.db"), &link).expect("a link");
    let follows = follower(&stage);
    stage.execute("INSERT INTO t VALUES(2, 'behind the link')");
    agrees(&stage);
    let refused = open(&link).execute("INSERT INTO t VALUES(3, 'own')");
    assert!(refused.is_err(), "it is a replica");
    assert_eq!(follows.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn what_can_be_no_replica_is_refused_with_what_to_do() {
    let stage = Stage::new();
    std::fs::create_dir_all(&stage.url).expect("a folder");
    let inside = stage.url.join("replica.db");
    let said = says(&[Path::new("follow"), &stage.url, &inside], 2);
    assert!(said.contains("choose another folder"), "{said}");
    let link = stage.folder.path().join("link.db");
    std::os::unix::fs::symlink("nowhere.db", &link).expect("a link");
    let said = says(&[Path::new("follow"), &stage.url, &link], 2);
    assert!(said.contains("a symbolic link to what is not there"), "{said}");
    let said = says(&[Path::new("replicas"), &stage.folder.path().join("nope")], 1);
    assert!(said.contains("there is no folder ") && said.contains("check its name"), "{said}");
    assert!(said.contains("that its disk is mounted"), "{said}");
    let empty = stage.folder.path().join("empty");
    std::fs::create_dir(&empty).expect("a folder");
    let said = says(&[Path::new("replicas"), &empty], 1);
    assert!(
        said.contains("there is no replica at this place") && said.contains("is mounted"),
        "{said}"
    );
    // Nothing is at the place yet: that is said at once, and waited for.
    let waits = follower(&stage);
    is_told(&stage, "no replica at this place: check the URL");
    stage.execute("INSERT INTO t VALUES(5, 'first')");
    let sidecar = stage.sidecar(&[]);
    agrees(&stage);
    is_told_nothing(&stage);
    assert_eq!(waits.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn parts_that_were_removed_are_listed_as_missing_and_made_up_for_by_the_next_start() {
    let (stage, sidecar) = begun();
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    let first = stage.agrees().snapshot;
    assert_eq!(sidecar.terminated(), 0);
    let list = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
        let output = command.arg("replicas").arg(&stage.url).output().expect("it runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let said = list();
    assert!(said.contains(" to the newest\n") && !said.contains("missing"), "{said}");
    std::fs::remove_dir_all(stage.url.join("part")).expect("it is there");
    let said = list();
    for part in
        ["nothing can be restored: ", "; parts missing: 1 of 1", "bring back what was removed"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let second =
        starts(&stage, first, &format!("parts of the snapshot in record {first} were removed"));
    let said = list();
    assert!(said.contains(" to the newest\n") && !said.contains("missing"), "{said}");
    // A record behind it.
    let sidecar = stage.sidecar(&[]);
    keeper.execute("INSERT INTO t VALUES(4, 'behind it')").expect("it commits");
    let gone = stage.agrees().record;
    keeper.execute("INSERT INTO t VALUES(5, 'behind that')").expect("it commits");
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    std::fs::remove_file(stage.url.join(plait_replicate::names::record(gone)))
        .expect("it is there");
    starts(&stage, second, &format!("record {gone} ("));
}

/// Starts a sidecar, until another snapshot has taken the place of this one; it says what was lost. Returns the new one.
fn starts(stage: &Stage, snapshot: RecordNumber, lost: &str) -> RecordNumber {
    let path = stage.folder.path().join("said");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
    command.arg("run").arg(&stage.url).arg(&stage.database).args(["--interval", "50ms"]);
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::fs::File::create(&path).expect("a file"));
    let sidecar = Process::of(command.spawn().expect("it runs"));
    let newest = stage.agrees().snapshot;
    assert!(newest > snapshot, "from another one");
    assert_eq!(sidecar.terminated(), 0);
    let said = std::fs::read_to_string(&path).expect("it is read");
    assert!(
        said.contains(lost) && said.contains("restored before a snapshot is complete"),
        "{said}"
    );
    newest
}
