//! What an event is as a line, when it is due, and which files get it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::sync::atomic::AtomicU64;

use super::sink::{Sink, append, say, send};
use super::*;
use crate::base::Base;
use crate::error::{Error, Result};

struct Nothing;

impl BaseOpener for Nothing {
    fn open(&self, _path: &Path) -> Result<Box<dyn Base>> {
        Err(Error::Misuse("there is none".into()))
    }
}

fn event(kind: &'static Kind, text: &str) -> Event {
    Event::new(kind, Path::new("/srv/app.db"), &(Arc::new(Nothing) as _), text)
}

/// First cells of the table with this head on a page, with the second ones.
fn table(page: &'static str, head: &str) -> BTreeMap<&'static str, &'static str> {
    let lines = page.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    lines
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let mut cells = line.split('|').skip(1);
            let name = cells.next().and_then(|cell| cell.split('`').nth(1)).expect("a name");
            (name, cells.next().unwrap_or_default().trim())
        })
        .collect()
}

// holds EVENT-8
#[test]
fn the_pages_have_a_row_for_each_kind_and_no_other() {
    let kinds: BTreeMap<_, _> = ALL.iter().map(|k| (k.name, k.severity.name())).collect();
    assert_eq!(kinds.len(), ALL.len(), "a name stands twice");
    let operation = include_str!("../../../../docs/operate.md");
    assert_eq!(table(operation, "| event | severity |"), kinds);
    let runbook = include_str!("../../../../docs/runbook.md");
    let rows: BTreeSet<_> = table(runbook, "| event | cause |").into_keys().collect();
    assert_eq!(rows, kinds.keys().copied().collect());
    for name in kinds.keys() {
        assert!(runbook.contains(&format!("<a id=\"{name}\"></a>`{name}`")), "{name}");
    }
}

#[test]
fn recurring_kinds_have_words_of_their_own() {
    let places: Vec<_> = ALL.iter().filter_map(|kind| kind.place).collect();
    assert_eq!(places, (0..RECURRING_EVENTS).collect::<Vec<_>>());
}

// holds EVENT-6
#[test]
fn a_recurring_event_is_due_once_a_minute_and_after_the_clock_was_set_back() {
    let words: [AtomicU64; RECURRING_EVENTS] = Default::default();
    assert!(MERGE_FAILED.is_due(&words) && !MERGE_FAILED.is_due(&words));
    assert!(PROCESS_STALLED.is_due(&words), "another kind");
    assert!(MEMBER_DIED.is_due(&words) && MEMBER_DIED.is_due(&words), "it does not recur");
    for moved in [unix_ms() - EVERY_MS, unix_ms() + 2 * EVERY_MS] {
        words[0].store(moved, Relaxed);
        assert!(MERGE_FAILED.is_due(&words) && !MERGE_FAILED.is_due(&words));
    }
}

#[test]
fn a_line_has_all_of_an_event() {
    let event = event(&MEMBER_DIED, "it \"died\"").number("dead_pid", 7).said("held", "a\nb");
    let line = line::json(&event);
    assert!(line.starts_with("{\"time\":\"20") && line.ends_with("}\n"), "{line}");
    let rest = "\"text\":\"it \\\"died\\\"\",\"docs\":\"docs/runbook.md#member-died\",\"dead_pid\":7,\
                \"held\":\"a\\u000ab\"}\n";
    assert!(line.ends_with(rest), "{line}");
    let first = format!(
        "\"severity\":\"warning\",\"event\":\"member-died\",\"database\":\"/srv/app.db\",\"pid\":{}",
        std::process::id()
    );
    assert!(line.contains(&first), "{line}");
    let datagram = line::journal(&event);
    let says = |bytes: &[u8]| datagram.windows(bytes.len()).any(|part| part == bytes);
    assert!(says(b"MESSAGE=member-died: /srv/app.db: it \"died\" (plait explain member-died)\n"));
    assert!(says(b"PRIORITY=4\n") && says(b"PLAIT_DEAD_PID=7\n"));
    assert!(says(b"PLAIT_HELD\n\x03\0\0\0\0\0\0\0a\nb\n"), "with its length");
}

#[test]
fn the_variable_names_a_file_the_journal_or_standard_error() {
    let of = |value: &str| Sink::of(Some(value.as_ref()));
    assert_eq!(Sink::of(None), Sink::Nowhere);
    assert_eq!(of(""), Sink::Nowhere);
    assert_eq!((of("journald"), of("stderr")), (Sink::Journal, Sink::StandardError));
    assert_eq!(of("/var/log/plait"), Sink::File("/var/log/plait".into()));
    let here = std::env::current_dir().unwrap();
    assert_eq!(of("./plait"), Sink::File(here.join("plait")));
    assert_eq!(of("jounald"), Sink::Unknown("jounald".into()));
}

/// How a line begins.
const BEGIN: &str = "{\"time\":\"";

// holds EVENT-5
#[test]
fn lines_of_many_threads_stay_whole_in_a_file_that_is_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, database) = (dir.path().join("events"), dir.path().join("app.db"));
    let of_thread = |thread: usize| {
        let line = format!("{BEGIN}{}}}\n", thread.to_string().repeat(3000));
        for _ in 0..50 {
            append(&path, &database, &line).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || of_thread(thread));
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        let _ = std::fs::rename(&path, dir.path().join("events.1"));
    });
    of_thread(4);
    let mut lines = 0;
    for name in ["events", "events.1"] {
        let text = std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let inside = line.strip_prefix(BEGIN).and_then(|line| line.strip_suffix('}')).unwrap();
            let thread = &inside[..1];
            assert_eq!(inside, thread.repeat(3000));
            lines += 1;
        }
    }
    assert_eq!(lines, 250);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o137, 0, "no more than its owner writes it, and its group reads it");
}

#[test]
fn what_is_no_file_of_events_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let database = at("app.db");
    let refused = |name: &str| append(&at(name), &database, "{}\n").unwrap_err().to_string();
    for content in ["somebody's", "{\"times\":1}"] {
        std::fs::write(at("other"), content).unwrap();
        assert!(refused("other").contains("does not begin with an event"), "{content}");
        assert_eq!(std::fs::read_to_string(at("other")).unwrap(), content);
    }
    std::fs::create_dir(at("folder")).unwrap();
    assert!(refused("folder").contains("Is a directory"), "{}", refused("folder"));
    for name in ["app.db", "app.db-wal", "app.db-shm", "app.db-plait", "app.db-plait-shm"] {
        assert!(refused(name).contains("belongs to it"), "{name}");
        assert!(!at(name).exists(), "{name}");
    }
    symlink(at("other"), at("link")).unwrap();
    assert!(refused("link").contains("symbolic link"), "{}", refused("link"));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    assert!(refused("pipe").contains("not a regular file"), "{}", refused("pipe"));
    assert!(refused("nowhere/events").contains("No such file"), "{}", refused("nowhere/events"));
    append(&at("app.db-events"), &database, "{}\n").expect("another name than those of its files");
}

#[test]
fn the_journal_gets_a_datagram_and_nobody_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    assert!(send(&path, b"nobody").is_err());
    let journal = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    send(&path, b"MESSAGE=a\n").unwrap();
    let mut got = [0; 64];
    let n = journal.recv(&mut got).unwrap();
    assert_eq!(&got[..n], b"MESSAGE=a\n");
    let full = (0..100_000).find_map(|_| send(&path, &[b'a'; 1000]).err()).expect("nobody reads");
    assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_part_of_a_line_spoils_no_other_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events");
    let line = format!("{BEGIN}1\"}}\n");
    for before in [line[..4].to_owned(), [&line, &line[..12]].concat()] {
        std::fs::write(&path, &before).unwrap();
        append(&path, &dir.path().join("app.db"), &line).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{before}\n{line}"));
    }
}

#[test]
fn a_file_of_another_user_gets_nothing_unless_the_database_is_theirs() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, database) = (dir.path().join("events"), dir.path().join("app.db"));
    for file in [&path, &database] {
        std::fs::write(file, "").unwrap();
    }
    let line = format!("{BEGIN}1\"}}\n");
    chown(&path, Some(65_534), None).unwrap();
    let refused = append(&path, &database, &line).unwrap_err().to_string();
    assert!(refused.contains("belongs to another user"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"");
    chown(&database, Some(65_534), None).unwrap();
    append(&path, &database, &line).unwrap();
}

#[test]
fn nobody_waits_for_standard_error() {
    let (read, write) = std::io::pipe().unwrap();
    let line = "x".repeat(1000);
    let said = (0..1000).take_while(|_| say(&write, &line).is_ok()).count();
    assert!((1..1000).contains(&said), "it is full: {said}");
    drop(read);
    assert!(say(&write, &line).is_err(), "and no signal has ended this process");
}

#[test]
fn a_text_of_others_looks_like_no_line_of_its_own() {
    let (opener, path) = (Arc::new(Nothing) as _, Path::new("/srv/a\nplait: b\u{1b}.db"));
    let said = line::for_people(&Event::new(&RECOVERED, path, &opener, "text"));
    assert_eq!(said, "recovered: /srv/a plait: b .db: text (plait explain recovered)");
}
