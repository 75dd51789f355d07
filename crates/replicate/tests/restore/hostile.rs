//! Chains, disks and processes that fail: never a wrong file, and nothing left under a name of ours.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use plait_replicate::ids::{CommitTs, Generation, Hash, RecordNumber};
use plait_replicate::names;
use plait_replicate::pack::{self, Packed};
use plait_replicate::record::{Body, Item, Merge, PageSet, Record};

use super::primary::Primary;
use super::{Site, life, said};

fn objects(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root).expect("a folder").flatten() {
        match entry.file_type().expect("a kind").is_dir() {
            true => found.extend(objects(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

/// Puts records into a pack, and those that are no OPEN out of `chain/`.
fn pack(root: &Path, first: u64, last: u64) {
    let mut records = Vec::new();
    let mut chain = None;
    for number in (first..=last).map(RecordNumber) {
        let path = root.join(names::record(number));
        let bytes = Bytes::from(std::fs::read(&path).expect("a record"));
        let record = Record::decode(&bytes).expect("it is sound");
        let is_open = record.open().is_some();
        let hash = Hash::of(&bytes);
        records.push(Packed::new(&bytes, hash, record.header.written_ms, is_open, 64 << 10));
        chain = Some(record.header.chain);
        if !is_open && bytes.len() < 64 << 10 {
            std::fs::remove_file(path).expect("it is removed");
        }
    }
    let bytes = pack::encode(chain.expect("a record"), RecordNumber(first), &records);
    let path = root.join(names::pack(RecordNumber(first), RecordNumber(last)));
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
    std::fs::write(path, bytes).expect("a pack");
}

/// Appends the pages of an exclusive transaction that has changed none.
fn append_pages(primary: &mut Primary) -> RecordNumber {
    let before = primary.chain.position().base;
    let set = PageSet {
        before,
        through: Generation(before.0 + 1),
        page_bytes: primary.page_bytes,
        page_count: 3,
        body: Body::Inline(Bytes::new()),
    };
    primary.chain.append(vec![Item::Pages(set)])
}

/// Changes the last byte of a record.
fn spoil(path: &Path) {
    let mut bytes = std::fs::read(path).expect("a record");
    *bytes.last_mut().expect("a record has bytes") ^= 1;
    std::fs::write(path, bytes).expect("it is written");
}

/// The record through which was restored.
fn restored_through(said: &str) -> RecordNumber {
    let number = said.split("through record ").nth(1).and_then(|rest| rest.split(' ').next());
    RecordNumber(number.and_then(|number| number.parse().ok()).expect("it says so"))
}

// holds CHAIN-10
#[test]
fn whatever_object_is_damaged_missing_or_another_the_rows_are_right_or_it_is_named() {
    let site = Site::new();
    let (mut primary, moments) = life(&site, 5, 40);
    primary.end();
    let moments: BTreeMap<_, _> = moments.into_iter().collect();
    let root = site.path("replica");
    let newest = moments.keys().next_back().expect("a record").0;
    pack(&root, 1, newest / 3);
    pack(&root, newest / 3 + 1, newest / 2);
    let all = objects(&root);
    let kept: Vec<Vec<u8>> =
        all.iter().map(|path| std::fs::read(path).expect("an object")).collect();
    let mut refused = 0;
    for (at, path) in all.iter().enumerate() {
        let name = path.strip_prefix(&root).expect("below it").to_string_lossy().into_owned();
        let own = &kept[at];
        let mut flipped = own.clone();
        flipped[own.len() / 2] ^= 4;
        let same_kind = |other: &&PathBuf| *other != path && other.parent() == path.parent();
        let other = all.iter().find(same_kind).map(|path| std::fs::read(path).expect("an object"));
        let short = own[..own.len() / 2].to_vec();
        let all_ways = [flipped, short].into_iter().chain(other).map(Some).chain([None]);
        for damaged in all_ways {
            match &damaged {
                Some(bytes) => std::fs::write(path, bytes).expect("it is written"),
                None => std::fs::remove_file(path).expect("it is removed"),
            }
            let output = site.restore(&["--verify"]);
            let said = said(&output);
            if output.status.success() {
                let through = restored_through(&said);
                // Without the newest record the one before it is the newest.
                let is_newest = through.0 == newest || damaged.is_none() && through.0 == newest - 1;
                assert!(is_newest, "{name}: {said}");
                let rows = site.take_rows();
                if let Some(expected) = moments.get(&through) {
                    assert!(rows == *expected, "{name}: other rows: {said}");
                }
            } else {
                refused += 1;
                let number = name.rsplit('/').next().unwrap_or_default();
                let plain = number.trim_start_matches('0');
                let is_named = said.contains(number) || said.contains(&format!("record {plain}"));
                let is_pack = name.starts_with("pack/") && said.contains("record ");
                assert!(is_named || is_pack, "{name} is not named: {said}");
            }
            assert!(site.left().is_empty(), "{name}: {:?}", site.left());
        }
        std::fs::write(path, own).expect("it is put back");
    }
    assert!(refused > 20, "{refused} of {} objects", all.len());
    let output = site.restore(&["--verify"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(site.take_rows() == moments[&RecordNumber(newest)], "other rows");
}

/// A database with rows that are shipped, and some that wait.
fn small(site: &Site, library: Option<&str>) -> super::Primary {
    let mut primary = match library {
        None => site.primary(""),
        Some(library) => {
            let (path, store) = (site.path("app.db"), site.path("replica"));
            super::Primary::begin(&path, &store, "", library)
        }
    };
    primary.exclusive("CREATE TABLE t(a INTEGER PRIMARY KEY, b)");
    primary.run("INSERT INTO t VALUES(1, 'one'), (2, 'two')");
    primary.merge();
    primary.run("INSERT INTO t VALUES(3, 'three')");
    primary
}

// holds REPLAY-1
#[test]
fn frames_that_are_not_the_sessions_are_refused_though_their_record_is_sound() {
    for change in 0..4 {
        let site = Site::new();
        let mut primary = small(&site, None);
        let salt = primary.chain.position().salt.0;
        let Some(Item::Frames(mut frames)) = primary.unshipped().pop() else { panic!("frames") };
        let mut bytes = frames.bytes.to_vec();
        match change {
            0 => bytes[60] ^= 1,
            1 => frames.from.0 += 8,
            // The frame that it names before it, under a right checksum.
            2 => {
                bytes[44] ^= 1;
                seal(&mut bytes, salt);
            }
            // Of another session.
            _ => seal(&mut bytes, salt ^ 1),
        }
        frames.bytes = bytes.into();
        let number = if change == 1 {
            // A place where the stream may not go on is refused before.
            primary.chain.append_anyhow(vec![Item::Frames(frames)])
        } else {
            primary.chain.append(vec![Item::Frames(frames)])
        };
        let output = site.restore(&[]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("record {number}")), "{said}");
        assert!(site.left().is_empty());
        primary.end();
    }
}

/// A frame as a commit over several files writes it first: with a mark before its rows.
fn prepared(frame: &[u8], salt: u32) -> Vec<u8> {
    let name = b"app.db-mj00000001";
    let mut mark = [0_u32, name.len() as u32, 0, 2].map(u32::to_le_bytes).concat();
    mark.extend_from_slice(name);
    mark.resize(mark.len().next_multiple_of(8), 0);
    let mut bytes = [&frame[..48], &mark, &frame[48..frame.len() - 8]].concat();
    let length = (bytes.len() as u32 + 8).to_le_bytes();
    bytes[4..8].copy_from_slice(&length);
    let ops = u32::from_le_bytes(bytes[36..40].try_into().expect("four bytes")) + 1;
    bytes[36..40].copy_from_slice(&ops.to_le_bytes());
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&[0; 4]);
    seal(&mut bytes, salt);
    bytes
}

/// Gives a frame its checksum.
fn seal(frame: &mut [u8], salt: u32) {
    let (bytes, crc) = frame.split_at_mut(frame.len() - 4);
    let sum = crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), bytes);
    crc.copy_from_slice(&sum.to_le_bytes());
}

// holds REPLAY-3
#[test]
fn a_commit_over_several_files_that_is_not_decided_is_left_out_and_told() {
    let site = Site::new();
    let mut primary = small(&site, None);
    let Some(Item::Frames(mut frames)) = primary.unshipped().pop() else { panic!("frames") };
    let salt = primary.chain.position().salt;
    frames.bytes = prepared(&frames.bytes, salt.0).into();
    primary.chain.append(vec![Item::Frames(frames)]);
    let output = site.restore(&["--verify"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("over several files"), "{}", said(&output));
    let rows = site.take_rows();
    assert!(rows.contains("two") && !rows.contains("three"), "{rows}");
    primary.end();
}

fn last_merge(primary: &mut super::Primary, sum: u32) -> RecordNumber {
    primary.ship();
    let Generation(before) = primary.chain.position().base;
    let merge =
        Merge { before: Generation(before), through: Generation(before + 1), page_count: 3, sum };
    primary.chain.append(vec![Item::Merge(merge)])
}

// holds NEWFILE-2
#[test]
fn a_merge_with_another_result_ends_the_restore_unless_the_library_is_another() {
    let site = Site::new();
    let mut primary = small(&site, None);
    let number = last_merge(&mut primary, 7);
    let refused = site.restore(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains(&format!("the merge in record {number}")),
        "{}",
        said(&refused)
    );
    assert!(site.left().is_empty());
    primary.end();

    let site = Site::new();
    let mut primary = small(&site, Some("Plait 9.9.9, SQLite 9"));
    let rows = primary.rows();
    last_merge(&mut primary, 7);
    let accepted = site.restore(&[]);
    assert!(accepted.status.success(), "{}", said(&accepted));
    let told = String::from_utf8_lossy(&accepted.stdout);
    let last = told.lines().last().unwrap_or_default();
    assert!(last.ends_with(" --take-over"), "what to do next: {last}");
    assert!(said(&accepted).contains(" ago\n"), "{}", said(&accepted));
    assert!(
        said(&accepted).contains("\nchecking (PRAGMA integrity_check)\n"),
        "{}",
        said(&accepted)
    );
    assert!(said(&accepted).contains("could not be compared"), "{}", said(&accepted));
    assert!(said(&accepted).contains(", checked"), "{}", said(&accepted));
    assert!(site.take_rows() == rows, "other rows");
    // Pages over a base that differs would mix two databases.
    append_pages(&mut primary);
    let impure = site.restore(&[]);
    assert_eq!(impure.status.code(), Some(1));
    assert!(said(&impure).contains("Plait 9.9.9"), "{}", said(&impure));
    assert!(site.left().is_empty());
    primary.end();
}

// holds NEWFILE-2
#[test]
fn a_merge_is_compared_though_nobody_can_tell_the_library() {
    for is_missing in [false, true] {
        let site = Site::new();
        let mut primary = small(&site, None);
        // The snapshot that leads there is behind the OPEN.
        primary.merge();
        primary.snapshot(false);
        let number = last_merge(&mut primary, 7);
        let open = site.path("replica").join(names::record(RecordNumber::FIRST));
        if is_missing {
            std::fs::remove_file(&open).expect("it is removed");
        } else {
            spoil(&open);
        }
        let refused = site.restore(&[]);
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        let told = said(&refused);
        assert!(told.contains(&format!("the merge in record {number}")), "{told}");
        assert!(site.left().is_empty());
        primary.end();
    }
}

// holds NEWFILE-3
#[test]
fn pages_over_a_base_that_lacks_frames_are_refused() {
    let site = Site::new();
    let mut primary = small(&site, None);
    primary.ship();
    let number = append_pages(&mut primary);
    let output = site.restore(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains(&format!("record {number}")), "{}", said(&output));
    assert!(site.left().is_empty());
    primary.end();
}

#[test]
fn a_commit_is_restored_without_what_follows_it_and_what_is_none_is_refused() {
    let site = Site::new();
    let mut primary = small(&site, None);
    primary.ship();
    let CommitTs(third) = primary.chain.position().commit;
    let rows = primary.rows();
    // In one record: more commits, then a change of the schema.
    primary.run("INSERT INTO t VALUES(4, 'four')");
    primary.run("INSERT INTO t VALUES(5, 'five')");
    primary.exclusive("CREATE INDEX i ON t(b)");
    let CommitTs(fifth) = primary.chain.position().commit;
    let through = |commit: u64| site.restored_rows(&["--commit", &commit.to_string()]);
    assert!(through(third) == rows, "other rows");
    let fifths = through(fifth);
    assert!(fifths.contains("five") && !fifths.contains("INDEX"), "{fifths}");
    let refused = site.restore(&["--commit", &(fifth + 1).to_string()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains(&fifth.to_string()), "{}", said(&refused));
    assert!(site.restored_rows(&[]).contains("five"));
    assert!(site.left().is_empty());
    primary.end();
}

#[test]
fn the_commit_with_which_the_oldest_snapshot_ends_is_restored() {
    let site = Site::new();
    let mut primary = small(&site, None);
    primary.merge();
    let CommitTs(merged) = primary.chain.position().commit;
    primary.snapshot(false);
    let rows = primary.rows();
    primary.run("INSERT INTO t VALUES(4, 'four')");
    primary.ship();
    // Retention has removed the one before.
    let first = objects(&site.path("replica/part")).remove(0);
    std::fs::remove_file(first).expect("it goes");
    assert!(site.restored_rows(&["--commit", &merged.to_string()]) == rows, "other rows");
    let later = site.restored_rows(&["--commit", &(merged + 1).to_string()]);
    assert!(later.contains("four"), "{later}");
    let earlier = site.restore(&["--commit", &(merged - 1).to_string()]);
    assert_eq!(earlier.status.code(), Some(1), "{}", said(&earlier));
    primary.end();
}

#[test]
fn a_snapshot_with_pages_behind_its_end_is_passed_over() {
    let site = Site::new();
    let mut primary = small(&site, None);
    primary.merge();
    let file = std::fs::read(site.path("app.db")).expect("a file");
    let pages = file.len() as u32 / primary.page_bytes;
    primary.chain.snapshot_said_to_have(pages - 1, &file, primary.page_bytes, None);
    // As one whose part is damaged.
    let output = site.restore(&[]);
    assert!(said(&output).contains("from the snapshot in record 2;"), "{}", said(&output));
    assert!(site.take_rows() == primary.rows(), "other rows");
    primary.end();
}

#[test]
fn a_time_is_the_last_record_before_it_or_says_what_can_be_had() {
    let site = Site::new();
    let mut primary = small(&site, None);
    primary.ship();
    let number = primary.chain.number().0;
    let before = site.restored_rows(&["--record", &(number - 1).to_string()]);
    assert!(before.contains("two") && !before.contains("three"), "{before}");
    let at = |second: u64| {
        let text = plait_replicate::dates::utc(super::chain::BEGUN_MS + second * 1000);
        text.trim_end_matches(" UTC").to_owned()
    };
    assert!(site.restored_rows(&["--at", &at(number - 1)]) == before, "other rows");
    assert!(site.restored_rows(&["--at", &at(number)]).contains("three"));
    assert!(site.restored_rows(&["--at", &at(number + 1)]).contains("three"));
    for (time, code, word) in [
        ("2026-11-28 11:00", 1, "the earliest moment that is kept is record 1"),
        ("2099-01-01", 1, "is not over yet"),
        ("yesterday", 2, "is no time"),
    ] {
        let refused = site.restore(&["--at", time]);
        assert_eq!(refused.status.code(), Some(code), "{time}: {}", said(&refused));
        assert!(said(&refused).contains(word), "{time}: {}", said(&refused));
    }
    let both = site.restore(&["--at", "2026-11-28", "--record", "1"]);
    assert_eq!(both.status.code(), Some(2));
    let late = site.restore(&["--record", "999"]);
    assert!(said(&late).contains("there is no record 999"), "{}", said(&late));
    primary.end();
}

#[test]
fn a_time_before_a_snapshot_that_is_damaged_or_foreign_is_reached_from_the_one_before() {
    for is_foreign in [false, true] {
        let site = Site::new();
        let mut primary = small(&site, None);
        primary.ship();
        let (rows, asked) = (primary.rows(), primary.chain.number());
        primary.merge();
        primary.snapshot(false);
        let spoiled = primary.chain.number();
        primary.run("INSERT INTO t(b) VALUES('four')");
        primary.ship();
        let path = site.path("replica").join(names::record(spoiled));
        if is_foreign {
            let bytes = std::fs::read(&path).expect("a record");
            let mut record = Record::decode(&bytes.into()).expect("a record");
            record.header.chain.0[0] ^= 1;
            std::fs::write(&path, record.encode()).expect("it is written");
        } else {
            spoil(&path);
        }
        let at = plait_replicate::dates::utc(super::chain::BEGUN_MS + asked.0 * 1000);
        assert!(site.restored_rows(&["--at", &at]) == rows, "other rows");
        let newest = site.restore(&[]);
        assert_eq!(newest.status.code(), Some(1), "{}", said(&newest));
        assert!(said(&newest).contains(&format!("record {spoiled}")), "{}", said(&newest));
        primary.end();
    }
}

#[test]
fn a_newest_record_that_is_damaged_is_in_nobodys_way_who_asks_for_an_earlier_time() {
    let site = Site::new();
    let mut primary = small(&site, None);
    primary.ship();
    let rows = primary.rows();
    let asked = primary.chain.number();
    for value in ["four", "five"] {
        primary.run(&format!("INSERT INTO t(b) VALUES('{value}')"));
        primary.ship();
    }
    let newest = primary.chain.number();
    let path = site.path("replica").join(names::record(newest));
    spoil(&path);
    let at = |number: RecordNumber| {
        let text = plait_replicate::dates::utc(super::chain::BEGUN_MS + number.0 * 1000);
        text.trim_end_matches(" UTC").to_owned()
    };
    assert!(site.restored_rows(&["--at", &at(asked)]) == rows, "other rows");
    assert!(site.restored_rows(&["--record", &asked.to_string()]) == rows, "other rows");
    // Its header is sound, and says that it was written later than this.
    assert!(site.restored_rows(&["--at", &at(newest.before())]).contains("four"));
    for arguments in [&[][..], &["--at", &at(newest)]] {
        let refused = site.restore(arguments);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {}", said(&refused));
        assert!(said(&refused).contains(&format!("record {newest}")), "{}", said(&refused));
    }
    primary.end();
}

#[test]
fn what_stands_under_the_name_stays() {
    let site = Site::new();
    let mut primary = small(&site, None);
    primary.ship();
    for name in ["new.db", "new.db-wal", "new.db-plait"] {
        std::fs::write(site.path(name), b"somebody's").expect("a file");
        let refused = site.restore(&[]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(&refused).contains("is there"), "{}", said(&refused));
        assert_eq!(std::fs::read(site.path(name)).expect("a file"), b"somebody's");
        assert_eq!(site.left(), [name]);
        std::fs::remove_file(site.path(name)).expect("it is removed");
    }
    primary.end();
}

#[test]
fn with_force_plait_restore_gets_the_whole_file_which_is_kept_if_that_fails() {
    let site = Site::new();
    let mut primary = small(&site, None);
    primary.ship();
    let folder = site.path("bin");
    std::fs::create_dir(&folder).expect("a folder");
    let program = folder.join("plait-replicate");
    std::fs::copy(env!("CARGO_BIN_EXE_plait-replicate"), &program).expect("a program");
    let own = site.command(&["--force"]);
    let forced = || {
        let mut command = std::process::Command::new(&program);
        command.args(own.get_args()).output().expect("it runs")
    };
    std::fs::write(site.path("new.db"), b"somebody's").expect("a file");
    let alone = forced();
    assert_eq!(alone.status.code(), Some(1));
    assert!(said(&alone).contains("bin/plait, which --force needs"), "{}", said(&alone));
    let acts = |script: &str| {
        let plait = folder.join("plait");
        std::fs::write(&plait, format!("#!/bin/sh\n{script}\n")).expect("a script");
        let rights = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&plait, rights).expect("it may run");
    };
    // Somebody uses the file: that is told before anything is restored.
    acts(
        "[ \"$1\" = look-before-restore ] && [ \"$2\" = \"${2%/*}/new.db\" ] && exit 1; touch \"$3-tried\"",
    );
    let early = forced();
    assert_eq!(early.status.code(), Some(1));
    assert!(said(&early).contains("nothing was restored"), "{}", said(&early));
    assert_eq!(site.left(), ["new.db"]);
    for (code, outcome) in [(0, "success"), (1, "failure")] {
        acts(&format!("[ \"$1\" = restore ] || exit 0; cp \"$2\" \"$3\"; exit {code}"));
        let output = forced();
        assert_eq!(output.status.code(), Some(code), "{outcome}: {}", said(&output));
        let mut left = site.left();
        left.retain(|name| name != "new.db");
        assert_eq!(left.len(), usize::from(code != 0), "{outcome}: {left:?}");
        for kept in left {
            assert_eq!(kept, "new.db.restored");
            assert!(said(&output).contains(&format!("{kept}' '")), "{}", said(&output));
            // The next one leaves it alone.
            let bytes = std::fs::read(site.path(&kept)).expect("it is kept");
            let next = forced();
            assert_eq!(next.status.code(), Some(1));
            assert!(said(&next).contains("an earlier restore has kept"), "{}", said(&next));
            assert_eq!(std::fs::read(site.path(&kept)).expect("it is there"), bytes);
            std::fs::remove_file(site.path(&kept)).expect("it goes");
        }
    }
    assert!(site.take_rows() == primary.rows(), "other rows");
    primary.end();
}

/// A shell sets the limit; a write past it fails in place of ending the program.
#[test]
fn a_disk_that_is_full_leaves_nothing() {
    let site = Site::new();
    let mut primary = small(&site, None);
    primary.run(
        "WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i+1 FROM n WHERE i<40)
         INSERT INTO t SELECT i, hex(zeroblob(2000)) FROM n",
    );
    primary.merge();
    primary.ship();
    for blocks in [0, 4, 16, 40, 80, 120] {
        let own = site.command(&[]);
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"")).arg("sh");
        command.arg(own.get_program()).args(own.get_args());
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{blocks}: {}", said(&output));
        assert!(site.left().is_empty(), "{blocks}: {:?}", site.left());
    }
    assert!(site.restored_rows(&["--verify"]) == primary.rows(), "other rows");
    primary.end();
}

// holds PLACE-1, PLACE-2
#[test]
fn a_restore_that_is_killed_leaves_nothing_under_the_name_and_the_next_one_removes_the_rest() {
    let site = Site::new();
    let (mut primary, moments) = life(&site, 6, 40);
    primary.end();
    let (_, rows) = moments.last().expect("a record");
    let (mut killed, mut pause) = (0, Duration::ZERO);
    loop {
        let mut child =
            site.command(&[]).stdout(std::process::Stdio::null()).spawn().expect("it runs");
        std::thread::sleep(pause);
        let _ = child.kill();
        let status = child.wait().expect("it ends");
        if site.left().iter().any(|name| name == "new.db") {
            // It may have come that far before it was killed.
            assert!(site.take_rows() == *rows, "other rows");
        }
        if status.signal().is_none() {
            assert!(status.success());
            break;
        }
        killed += 1;
        pause += Duration::from_millis(2);
    }
    assert!(killed > 2, "{killed}");
    assert!(site.restored_rows(&["--verify"]) == *rows, "other rows");
    assert!(site.left().is_empty(), "{:?}", site.left());
}

// holds PLACE-1, PLACE-2
#[cfg(feature = "crash-points")]
#[test]
fn a_restore_that_is_killed_at_any_named_step_leaves_nothing_or_all_of_it() {
    let site = Site::new();
    let (mut primary, _) = life(&site, 6, 40);
    for table in ["k", "l"] {
        primary.exclusive(&format!("CREATE TABLE {table}(a)"));
        primary.run(&format!("INSERT INTO {table} VALUES(1)"));
        primary.merge();
    }
    let rows = primary.rows();
    primary.end();
    let points = plait_engine::crash_point::REPLICA_POINTS.iter();
    for point in points.filter(|point| point.starts_with("replica.")) {
        for passage in [1, 2] {
            let mut command = site.command(&["--verify"]);
            command.env("PLAIT_CRASH_AT", format!("{point}:{passage}"));
            let output = command.output().expect("it runs");
            let is_there = site.left().contains(&"new.db".to_owned());
            if output.status.signal() == Some(9) {
                assert_eq!(is_there, *point == "replica.named", "{point}: {:?}", site.left());
            } else {
                // It is passed once.
                assert!(passage > 1 && output.status.success(), "{point}: {}", said(&output));
            }
            if is_there {
                assert!(site.take_rows() == rows, "{point}: other rows");
            }
            assert!(site.restored_rows(&["--verify"]) == rows, "{point}: other rows");
            assert!(site.left().is_empty(), "{point}: {:?}", site.left());
        }
    }
}
