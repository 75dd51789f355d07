//! The mark of a replica, read in every state of it, and waits for a ticket.

use super::*;

const WHOLE: &str = "plait replica 1\nplace /mnt/a b/app\nchain 00ff\nrecord 12\nsalt 305419896\nfirst 7\ncommit 98\nwritten 1764380000000\n";

fn beside(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let base = dir.path().join("replica.db");
    std::fs::write(follows_path(&base), with_sum(text)).expect("it is written");
    (dir, base)
}

fn wait_now(base: &Path, ticket: u64) -> Result<bool> {
    wait(base, ticket, Some(Duration::ZERO), &mut || false)
}

#[test]
fn the_lines_are_read_and_unknown_ones_are_left() {
    let mark =
        parse(with_sum(&format!("{WHOLE}later thing\nalone\n")).as_bytes()).expect("it is whole");
    let expected = Mark {
        place: "/mnt/a b/app".into(),
        chain: "00ff".into(),
        record: 12,
        salt: 305_419_896,
        first: 7,
        commit: 98,
        written_ms: 1_764_380_000_000,
        ..Mark::default()
    };
    assert_eq!(mark, expected);
    let whole = with_sum(WHOLE);
    for cut in 0..whole.len() {
        assert!(parse(&whole.as_bytes()[..cut]).is_err(), "{cut}");
    }
    let without = with_sum(&WHOLE.replace("first 7\n", ""));
    assert_eq!(parse(without.as_bytes()), Ok(Mark { first: 0, ..expected }));
}

// holds REPLICA-1, REPLICA-4
#[test]
fn what_is_no_mark_is_an_error_and_not_a_missing_one() {
    for (text, why) in [
        ("plait replica 2\nplace x\nrecord 1\n", "another version of Plait"),
        ("something else\n", "it is damaged"),
        ("plait replica 1\nrecord 1\n", "it is damaged"),
        ("plait replica 1\nplace x\n", "it is damaged"),
        ("plait replica 1\nplace x\nrecord one\n", "it is damaged"),
        ("plait replica 1\nplace x\nrecord 1\nsalt 4294967296\n", "it is damaged"),
    ] {
        let (_dir, base) = beside(text);
        let said = read(&base).expect_err(text).to_string();
        assert!(said.contains("replica.db-plait-follows") && said.contains(why), "{said}");
        assert!(
            is_marked(&base) && refusal(&base, Told::ByMark).contains("`plait promote "),
            "{text}"
        );
        assert!(matches!(wait_now(&base, 1), Err(Error::CantOpen(_))), "{text}");
    }
    let (dir, base) = beside(WHOLE);
    std::fs::write(follows_path(&base), "").expect("it is written");
    assert!(read(&base).expect_err("no mark").to_string().contains("it is empty"));
    let other = with_sum(WHOLE).replace("record 12", "record 99");
    std::fs::write(follows_path(&base), other).expect("it is written");
    assert!(read(&base).expect_err("of another record").to_string().contains("it is damaged"));
    std::fs::remove_file(follows_path(&base)).expect("it is removed");
    assert_eq!(read(&base).expect("there is none"), None);
    assert!(!is_marked(&base));
    std::os::unix::fs::symlink("nowhere", follows_path(&base)).expect("a link");
    assert!(is_marked(&base) && read(&base).is_err(), "a link that leads nowhere");
    assert!(!is_marked(&dir.path().join("n".repeat(250))), "no room for the name of a mark");
    std::os::unix::fs::symlink("loop", dir.path().join("loop")).expect("a link");
    let unknown = dir.path().join("loop/replica.db");
    assert!(look(&unknown).is_none() && is_marked(&unknown), "it cannot be found out");
}

// holds REPLICA-2
#[test]
fn a_wait_ends_behind_a_mark_that_holds_the_ticket() {
    let (_dir, base) = beside(WHOLE);
    for ticket in [0, 7, 98] {
        assert!(wait_now(&base, ticket).expect("it is there"), "{ticket}");
    }
    assert!(!wait_now(&base, 99).expect("it is to come"));
    let early = wait_now(&base, 6).expect_err("of an earlier session").to_string();
    assert!(early.contains("look in the data"), "{early}");
    let start = Instant::now();
    assert!(!wait(&base, 99, Some(NAP * 3), &mut || false).expect("it does not come"));
    assert!(start.elapsed() >= NAP * 3);
    let interrupted = wait(&base, 99, None, &mut || true);
    assert!(matches!(interrupted, Err(Error::Interrupted)));
    std::fs::remove_file(follows_path(&base)).expect("it is removed");
    assert!(matches!(wait_now(&base, 7), Err(Error::Misuse(_))));
}
