//! Locks on the base's read marks: those that are counted in shared memory, and stock connections from before the fence,
//! which see none of them.

use std::os::unix::fs::FileExt;

use plait_tests::actor::Actor;
use plait_tests::place::Place;
use plait_tests::sqlite::{CANTOPEN, Connection};
use plait_tests::subject::{Fixture, Subject, real_plait};

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val INTEGER);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<2000) INSERT INTO t SELECT i, 0 FROM n;";
const SUM: &str = "SELECT sum(val) FROM t";
/// Version in the header of a WAL-index.
const STOCK: u32 = 3_007_000;
/// See `STOCK`.
const FENCED: u32 = 0x506c_6169;

/// Changes every row and brings it into the database file as far as readers allow.
fn change_and_checkpoint(writer: &Connection, rounds: usize) {
    for _ in 0..rounds {
        writer.execute("UPDATE t SET val=val+1").expect("an update");
        writer.execute("PRAGMA wal_checkpoint").expect("a checkpoint");
    }
}

fn wal_index_version(fixture: &Fixture) -> u32 {
    let bytes = std::fs::read(fixture.side_file("-shm")).expect("there is a WAL-index");
    u32::from_ne_bytes(bytes[..4].try_into().expect("four bytes"))
}

/// A database at rest, open in this process and in a stock one.
fn at_rest(subject: Subject) -> (Fixture, Connection, Actor) {
    let fixture = Fixture::new(subject, ROWS);
    let writer = fixture.open();
    assert_eq!(writer.integer(SUM), Ok(0));
    let stock = Actor::start(Place::Processes, "stock", &Subject::stock(), &fixture.database());
    (fixture, writer, stock)
}

#[test]
fn a_stock_connection_from_before_the_fence_is_refused_under_it() {
    let Some(subject) = real_plait("the fence") else { return };
    let (fixture, writer, mut stock) = at_rest(subject);
    assert_eq!(stock.integer(SUM), 0);
    assert_eq!(wal_index_version(&fixture), STOCK, "at rest");
    writer.execute("UPDATE t SET val=1").expect("an update");
    assert_eq!(wal_index_version(&fixture), FENCED);
    for sql in [SUM, "PRAGMA wal_checkpoint(TRUNCATE)", "UPDATE t SET val=2", "VACUUM"] {
        stock.fails(sql, CANTOPEN);
    }
    change_and_checkpoint(&writer, 3);
    stock.fails(SUM, CANTOPEN);
    writer.close().expect("it closes");
    // Back at rest: the same connection goes on.
    assert_eq!(stock.integer(SUM), 4 * 2000);
    stock.ok("UPDATE t SET val=5");
    assert_eq!(fixture.open().integer(SUM), Ok(5 * 2000));
}

#[test]
fn a_stock_reader_from_before_the_fence_keeps_its_rows() {
    let Some(subject) = real_plait("the fence") else { return };
    let (_fixture, writer, mut stock) = at_rest(subject);
    stock.ok("BEGIN");
    assert_eq!(stock.integer("SELECT val FROM t WHERE id=1"), 0);
    change_and_checkpoint(&writer, 10);
    assert_eq!(stock.integer(SUM), 0);
    stock.ok("COMMIT");
    stock.fails(SUM, CANTOPEN);
    assert_eq!(writer.integer(SUM), Ok(10 * 2000));
    assert_eq!(writer.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

fn readers_of_all_ages_keep_their_rows(place: Place) {
    let subject = Subject::plait();
    let fixture = Fixture::new(subject.clone(), ROWS);
    let writer = fixture.open();
    writer.execute("UPDATE t SET val=1").expect("an update");
    // More than there are marks.
    let mut readers: Vec<_> = (0..12)
        .map(|age| {
            let name = format!("reader {age}");
            let mut reader = Actor::start(place, &name, &subject, &fixture.database());
            reader.ok("BEGIN");
            // A few rows: the others stay to be read from the file.
            assert_eq!(reader.integer("SELECT val FROM t WHERE id=1"), 1 + age);
            change_and_checkpoint(&writer, 1);
            reader
        })
        .collect();
    change_and_checkpoint(&writer, 3);
    for (age, reader) in readers.iter_mut().enumerate() {
        assert_eq!(reader.integer(SUM), (1 + age as i64) * 2000, "reader {age}");
        reader.ok("COMMIT");
    }
    assert_eq!(readers[0].integer(SUM), 16 * 2000);
}

#[test]
fn readers_of_all_ages_keep_their_rows_in_threads() {
    readers_of_all_ages_keep_their_rows(Place::Threads);
}

#[test]
fn readers_of_all_ages_keep_their_rows_in_processes() {
    readers_of_all_ages_keep_their_rows(Place::Processes);
}

// holds MARK-2
#[test]
fn a_killed_reader_holds_no_mark() {
    let Some(subject) = real_plait("read marks") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let writer = fixture.open();
    writer.execute("UPDATE t SET val=1").expect("an update");
    let mut reader = Actor::start(Place::Processes, "reader", &subject, &fixture.database());
    reader.ok("BEGIN");
    assert_eq!(reader.integer(SUM), 2000);
    change_and_checkpoint(&writer, 2);
    let busy = "PRAGMA wal_checkpoint(TRUNCATE)";
    assert_eq!(writer.integer(busy), Ok(1), "the reader needs the WAL");
    reader.kill();
    assert_eq!(writer.integer(busy), Ok(0));
    let wal = std::fs::metadata(fixture.side_file("-wal")).expect("there is a WAL").len();
    assert_eq!(wal, 32, "nothing but its header, which stays under the fence");
    assert_eq!(writer.integer(SUM), Ok(3 * 2000));
}

#[test]
fn whoever_merges_the_wal_index_says_that_the_base_is_fenced() {
    let Some(subject) = real_plait("read marks") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let first = fixture.open();
    first.execute("UPDATE t SET val=1").expect("an update");
    for n in 2..6 {
        // The first merge of a process opens its hidden connection.
        let mut other = Actor::start(Place::Processes, "other", &subject, &fixture.database());
        other.ok(&format!("UPDATE t SET val={n}"));
        other.ok("PRAGMA wal_checkpoint");
        assert_eq!(wal_index_version(&fixture), FENCED);
        other.ok("CREATE TABLE IF NOT EXISTS exclusive(a)");
        assert_eq!(wal_index_version(&fixture), FENCED);
        other.close().expect("it closes");
    }
    assert_eq!(first.integer(SUM), Ok(5 * 2000));
}

/// All processes of a session are killed, while a stock one keeps the WAL-index as they left it.
fn a_session_goes_on_beside_an_idle_stock_program(memory_survives: bool) {
    let Some(subject) = real_plait("read marks") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let mut stock = Actor::start(Place::Processes, "stock", &Subject::stock(), &fixture.database());
    assert_eq!(stock.integer(SUM), 0);
    let mut victim = Actor::start(Place::Processes, "victim", &subject, &fixture.database());
    victim.ok("UPDATE t SET val=1");
    victim.ok("PRAGMA wal_checkpoint");
    victim.ok("UPDATE t SET val=2");
    victim.kill();
    assert_eq!(wal_index_version(&fixture), FENCED);
    if !memory_survives {
        std::fs::remove_file(fixture.side_file("-plait-shm")).expect("as after a power cut");
    }
    let heir = fixture.open();
    assert_eq!(heir.integer(SUM), Ok(2 * 2000));
    change_and_checkpoint(&heir, 5);
    assert_eq!(heir.integer(SUM), Ok(7 * 2000));
    assert_eq!(heir.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    heir.close().expect("it closes");
    assert_eq!(stock.integer(SUM), 7 * 2000);
    assert_eq!(stock.ok("PRAGMA integrity_check"), [["ok".into()]]);
}

#[test]
fn a_session_whose_memory_survives_goes_on_beside_an_idle_stock_program() {
    a_session_goes_on_beside_an_idle_stock_program(true);
}

#[test]
fn a_session_is_recovered_beside_an_idle_stock_program() {
    a_session_goes_on_beside_an_idle_stock_program(false);
}

#[test]
fn a_rebuilt_wal_index_still_says_that_the_base_is_fenced() {
    let Some(subject) = real_plait("read marks") else { return };
    let fixture = Fixture::empty(subject.clone());
    // It stamps a header without fence when it converts, and rebuilds under the fence.
    let writer = subject.create(&fixture.database()).expect("it is created");
    writer.execute(ROWS).expect("the rows");
    change_and_checkpoint(&writer, 2);
    assert_eq!(wal_index_version(&fixture), FENCED);
    for byte in [8, 48 + 8] {
        // One of the two copies of the header, as a killed writer leaves it.
        let shm = std::fs::File::options().write(true).open(fixture.side_file("-shm"));
        shm.expect("it opens").write_all_at(&[0xa5; 16], byte).expect("it can be torn");
        assert_eq!(writer.integer(SUM), Ok(2 * 2000));
        assert_eq!(wal_index_version(&fixture), FENCED);
        change_and_checkpoint(&writer, 1);
        writer.execute("UPDATE t SET val=2").expect("an update");
    }
    assert_eq!(writer.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}
