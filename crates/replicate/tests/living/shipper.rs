//! What the engine gives a shipper, and from where it goes on: in this process.

use std::sync::Arc;
use std::time::Duration;

use plait_client::Connection;
use plait_engine::database::Database;
use plait_engine::error::Error;
use plait_engine::ids::Generation;
use plait_engine::ship::{Begun, Copied, Happened, Position, SYNC_AFTER, Shipper, Tip, Written};
use plait_engine::sync::wait::Wait;
use plait_tests::crash::disk::SmallDisk;

use crate::processes::{commit, open};
use crate::stage::Stage;

struct Shipped {
    stage: Stage,
    /// Keeps the session.
    db: Connection,
    database: Arc<Database>,
    shipper: Shipper,
    at: Position,
}

/// The record that is known.
const RECORD: [u8; 16] = [3; 16];

fn begin(database: &Arc<Database>, tip: Option<&Position>, limit_bytes: u64) -> (Begun, Shipper) {
    begin_behind(database, tip.map(|at| tip_at(*at)), limit_bytes)
}

/// A replica that ends with the record that is known.
fn tip_at(position: Position) -> Tip {
    let merges = Some(Vec::new());
    Tip { position, record: RECORD, previous: [2; 16], opening: None, merges }
}

fn begin_behind(database: &Arc<Database>, tip: Option<Tip>, limit_bytes: u64) -> (Begun, Shipper) {
    let begun = Wait::forever(|wait| Shipper::begin(database, tip.as_ref(), limit_bytes, wait));
    begun.expect("a shipper")
}

impl Shipped {
    fn new() -> Shipped {
        Shipped::on(Stage::new())
    }

    fn on(stage: Stage) -> Shipped {
        let db = open(&stage.database);
        db.query("SELECT count(*) FROM plait_status").expect("it is asked");
        db.query("SELECT count(*) FROM t").expect("it joins");
        let database = Shipper::joined(&stage.database).expect("joined");
        let (begun, mut shipper) = begin(&database, None, 1 << 30);
        assert_eq!(begun.anew, Some("there was no replica"));
        shipper.note_chain([7; 16], RECORD, "here");
        Shipped { stage, db, database, shipper, at: begun.position }
    }

    fn commit(&self, id: i64) {
        commit(&self.db, &[format!("INSERT OR REPLACE INTO t VALUES({id}, 'v{id}')")]);
    }

    fn merge(&self) {
        self.db.query("PRAGMA wal_checkpoint").expect("a merge");
    }

    /// Reads, and follows the position.
    fn read(&mut self) -> Vec<Happened> {
        let events = self.shipper.read(1 << 20).expect("events");
        for event in &events {
            match event {
                Happened::Frames(stretch) => {
                    self.at.stream = stretch.end();
                    self.at.commit = stretch.last_commit;
                    self.at.crc = stretch.crc;
                }
                Happened::Merge { before, through, .. } => {
                    assert_eq!(*before, self.at.base);
                    self.at.base = *through;
                }
                Happened::Lost { stream, base, .. } => {
                    assert!(*stream >= self.at.stream);
                    (self.at.stream, self.at.base, self.at.crc) = (*stream, *base, 0);
                }
            }
        }
        events
    }

    fn ship(&mut self) -> Vec<Happened> {
        let events = self.read();
        self.shipper.shipped(RECORD, &self.at);
        events
    }

    /// A new start behind a position, with which the record that is known ends.
    fn begin_again(self, tip: &Position) -> (Option<&'static str>, Shipped) {
        self.begin_behind(tip_at(*tip))
    }

    /// A new start.
    fn begin_behind(self, tip: Tip) -> (Option<&'static str>, Shipped) {
        let Shipped { stage, db, database, shipper, .. } = self;
        drop(shipper);
        let (begun, shipper) = begin_behind(&database, Some(tip), 1 << 30);
        (begun.anew, Shipped { stage, db, database, shipper, at: begun.position })
    }
}

fn kinds(events: &[Happened]) -> String {
    let kind = |event: &Happened| match event {
        Happened::Frames(_) => 'f',
        Happened::Merge { .. } => 'm',
        Happened::Lost { .. } => 'l',
    };
    events.iter().map(kind).collect()
}

// holds SHIP-1
#[test]
fn a_merge_comes_behind_the_frames_of_its_generations_and_before_later_ones() {
    let mut shipped = Shipped::new();
    for round in 0..3 {
        shipped.commit(round);
        shipped.merge();
    }
    shipped.commit(9);
    assert_eq!(kinds(&shipped.ship()), "fmfmfmf");
    assert_eq!(kinds(&shipped.ship()), "");
}

// holds SHIP-3
#[test]
fn what_was_read_and_not_shipped_is_held() {
    let mut shipped = Shipped::new();
    let before = shipped.at;
    shipped.commit(1);
    shipped.merge();
    assert_eq!(kinds(&shipped.read()), "fm");
    shipped.commit(2);
    // The record was never made: the next start has all of it.
    let (anew, mut shipped) = shipped.begin_again(&before);
    assert_eq!(anew, None);
    assert_eq!(kinds(&shipped.ship()), "fmf");
}

// holds SHIP-4
#[test]
fn a_start_goes_on_behind_a_tip_that_the_database_was_not_told_of() {
    let mut shipped = Shipped::new();
    shipped.commit(1);
    shipped.ship();
    shipped.commit(2);
    shipped.merge();
    let merges = shipped.read().into_iter().filter_map(|event| match event {
        Happened::Merge { before, through, written } => Some((before, through, written)),
        _ => None,
    });
    let merges = Some(merges.collect());
    // The record was made, and the sidecar killed before it said so.
    let tip = Tip { record: [6; 16], previous: RECORD, merges, ..tip_at(shipped.at) };
    let (anew, mut shipped) = shipped.begin_behind(tip);
    assert_eq!(anew, None);
    shipped.commit(3);
    assert_eq!(kinds(&shipped.ship()), "f");
}

// holds SHIP-4
#[test]
fn a_database_that_has_gone_on_in_another_way_is_not_taken_for_the_same() {
    let mut shipped = Shipped::new();
    shipped.commit(1);
    shipped.ship();
    shipped.commit(2);
    shipped.read();
    let tip = shipped.at;
    // A machine that was copied with its memory has these words and another frame in that place.
    for wrong in [
        Position { crc: tip.crc ^ 1, ..tip },
        Position { salt: tip.salt ^ 1, ..tip },
        Position { base: Generation::new(tip.base.get() + 1), ..tip },
        Position { crc: 0, ..tip },
    ] {
        let (anew, again) = shipped.begin_again(&wrong);
        assert!(anew.is_some(), "{wrong:?}");
        shipped = again;
    }
}

// holds SHIP-4
#[test]
fn a_copy_with_equal_frames_is_told_by_the_last_record_of_the_replica() {
    let mut shipped = Shipped::new();
    shipped.commit(1);
    shipped.ship();
    let known = tip_at(shipped.at);
    drop(shipped.shipper);
    let anew = |tip: &Tip| begin_behind(&shipped.database, Some(tip.clone()), 1 << 30).0.anew;
    assert_eq!(anew(&known), None);
    // A sidecar of the copy has made two records more, which move nothing here.
    let other = Tip { record: [6; 16], previous: [5; 16], ..known.clone() };
    assert!(anew(&other).is_some_and(|why| why.contains("copy of the database")));
    // One record more may be of this database: its sidecar was killed before it knew.
    let next = Tip { previous: RECORD, ..other.clone() };
    assert_eq!(anew(&next), None);
    assert!(anew(&Tip { merges: None, ..next }).is_some());
    // An OPEN is, if it was about to be made.
    let open = Tip { opening: Some([4; 16]), ..other };
    assert!(anew(&open).is_some());
    let (_, mut shipper) = begin_behind(&shipped.database, Some(known.clone()), 1 << 30);
    shipper.note_opening([4; 16]);
    drop(shipper);
    assert_eq!((anew(&open), anew(&known)), (None, None));
}

// holds SHIP-4
#[test]
fn merges_of_a_copy_at_other_places_are_not_taken_for_the_own() {
    let mut shipped = Shipped::new();
    shipped.commit(1);
    shipped.ship();
    shipped.commit(2);
    shipped.merge();
    let events = shipped.read();
    let Some(Happened::Merge { before, through, written }) = events.last() else {
        panic!("{}", kinds(&events))
    };
    let own = (*before, *through, *written);
    let position = shipped.at;
    drop(shipped.shipper);
    let anew = |merges: Vec<_>| {
        let merges = Some(merges);
        let tip = Tip { position, record: [6; 16], previous: RECORD, opening: None, merges };
        begin_behind(&shipped.database, Some(tip), 1 << 30).0.anew
    };
    assert_eq!(anew(vec![own]), None);
    let other = Written { sum: own.2.sum ^ 1, ..own.2 };
    assert!(anew(vec![(own.0, own.1, other)]).is_some());
    assert!(anew(vec![]).is_some());
}

// holds TOLD-2
#[test]
fn a_shipper_that_lost_its_hold_to_another_one_tells_nothing_more() {
    let mut shipped = Shipped::new();
    shipped.commit(1);
    shipped.ship();
    let tip = shipped.at;
    let (_, mut second) = begin(&shipped.database, Some(&tip), 1 << 30);
    second.note_chain([7; 16], [4; 16], "there");
    let told = shipped.database.told();
    assert_eq!((&*told.place, told.record, told.position), ("there", [4; 16], tip));
    // Nobody has fenced the first yet.
    shipped.shipper.note_chain([9; 16], RECORD, "here");
    shipped.shipper.note_opening(RECORD);
    shipped.shipper.shipped([9; 16], &tip);
    assert_eq!(shipped.database.told(), told);
    second.note_opening([5; 16]);
    assert_eq!(shipped.database.told().opening, [5; 16]);
}

// holds SHIP-5, BOUND-1
#[test]
fn an_exclusive_transaction_is_a_break_and_so_is_a_start_behind_it() {
    let mut shipped = Shipped::new();
    shipped.commit(1);
    shipped.ship();
    let tip = shipped.at;
    shipped.stage.execute("CREATE TABLE u(a)");
    shipped.commit(2);
    let events = shipped.read();
    assert_eq!(kinds(&events), "lf");
    // It was not shipped: from the tip nothing leads over it.
    let (anew, mut shipped) = shipped.begin_again(&tip);
    assert!(anew.is_some());
    shipped.commit(3);
    assert_eq!(kinds(&shipped.ship()), "f", "with what is not in the base, from its start");
}

// holds SHIP-5
#[test]
fn a_break_in_the_midst_of_a_generation_is_remembered_over_a_start() {
    let mut shipped = Shipped::new();
    shipped.commit(1);
    shipped.stage.execute("CREATE TABLE u(a)");
    shipped.commit(2);
    shipped.ship();
    shipped.commit(3);
    shipped.ship();
    // As a merge whose author died: the frames of the active generation were given already.
    shipped.database.note_burial().expect("a note");
    let events = shipped.read();
    let Some(Happened::Lost { base, incomplete, stream, .. }) = events.first() else {
        panic!("{}", kinds(&events))
    };
    assert!(incomplete > base && *stream == shipped.at.stream, "{events:?}");
    shipped.shipper.shipped(RECORD, &shipped.at.clone());
    let tip = shipped.at;
    let (anew, shipped) = shipped.begin_again(&tip);
    assert!(anew.is_some(), "the rows of commit 2 and 3 are in no base and behind no break");
    assert!(shipped.at.stream < tip.stream, "they are given again");
    // That start may end before its chain begins anew: nothing has changed until then.
    let (anew, mut shipped) = shipped.begin_again(&tip);
    assert!(anew.is_some(), "the chain does not begin anew yet");
    shipped.shipper.note_chain([7; 16], RECORD, "here");
    let tip = shipped.at;
    let (anew, _shipped) = shipped.begin_again(&tip);
    assert_eq!(anew, None);
}

// holds HELD-2
#[test]
fn a_hold_that_was_broken_is_taken_again_where_nothing_is_gone() {
    let mut shipped = Shipped::new();
    shipped.commit(1);
    shipped.ship();
    // Another one takes it, and ends.
    drop(begin(&shipped.database, None, 1 << 30));
    shipped.commit(2);
    assert_eq!(kinds(&shipped.ship()), "f");
}

// holds SHIP-6
#[test]
fn what_nobody_has_synced_for_a_while_is_given_at_the_first_look() {
    let mut shipped = Shipped::new();
    shipped.commit(1);
    shipped.ship();
    shipped.db.query("PRAGMA synchronous = NORMAL").expect("a level");
    for round in 2..5 {
        std::thread::sleep(SYNC_AFTER + Duration::from_millis(50));
        shipped.commit(round);
        assert_eq!(kinds(&shipped.ship()), "f", "round {round}");
    }
    // Somebody else may sync it yet.
    shipped.commit(9);
    assert_eq!(kinds(&shipped.ship()), "");
}

/// A copy of the base, or why there is none.
fn copied(shipped: &mut Shipped) -> Result<Copied, Error> {
    let scratch = shipped.stage.folder.path().to_owned();
    loop {
        if let Some(copied) = shipped.shipper.copy(Generation::ZERO, &scratch)? {
            return Ok(copied);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

// holds SCRATCH-4
#[test]
fn a_copy_gives_way_where_the_wal_grows_to_half_of_its_limit() {
    let mut shipped = Shipped::new();
    let large = |id: i64| format!("INSERT OR REPLACE INTO t VALUES({id}, hex(randomblob(2000)))");
    let fill = |shipped: &Shipped, ids: std::ops::Range<i64>| {
        ids.for_each(|id| commit(&shipped.db, &[large(id)]));
        shipped.merge();
    };
    fill(&shipped, 0..400);
    copied(&mut shipped).expect("nothing is in the way");
    // A reader keeps the WAL from beginning anew.
    let reader = open(&shipped.stage.database);
    reader.execute("BEGIN").expect("a transaction");
    reader.query("SELECT count(*) FROM t").expect("a snapshot");
    shipped.db.query("PRAGMA plait_wal_limit = 2000000").expect("a limit");
    fill(&shipped, 0..300);
    let given_up = copied(&mut shipped).expect_err("the WAL has more than half of its limit");
    assert!(given_up.to_string().contains("half of its limit"), "{given_up}");
    reader.execute("COMMIT").expect("its end");
    shipped.merge();
    copied(&mut shipped).expect("nothing is in the way any more");
}

// holds TAILING-2
#[test]
fn two_long_frames_behind_much_come_in_a_piece_of_their_own() {
    let mut shipped = Shipped::new();
    let other = shipped.stage.folder.path().join("other.db");
    let made = plait_client::Library::linked().open(&other).expect("a database");
    made.execute("PRAGMA journal_mode = concurrent").expect("the mode");
    made.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v)").expect("a table");
    let attach = format!("ATTACH '{}' AS other", other.display());
    shipped.db.execute(&attach).expect("it is attached");
    let row = |file: &str, id: i64, mib: i64| {
        format!("INSERT INTO {file}.t VALUES({id}, zeroblob({mib} << 20))")
    };
    // Almost as much as is asked for, then a commit over two files: a frame that prepares and one
    // that decides.
    commit(&shipped.db, &[row("main", 1, 5)]);
    commit(&shipped.db, &[row("main", 2, 2)]);
    commit(&shipped.db, &[row("main", 3, 5), row("other", 3, 1)]);
    // Nobody waits for the frame that decides.
    shipped.shipper.sync().expect("a sync");
    let mut lengths = Vec::new();
    while lengths.iter().sum::<usize>() < 17 << 20 {
        let events = shipped.shipper.read(8 << 20).expect("events");
        for event in &events {
            match event {
                Happened::Frames(stretch) => lengths.push(stretch.bytes.len()),
                other => panic!("{other:?}"),
            }
        }
        assert!(!events.is_empty(), "{lengths:?}");
    }
    assert!(lengths.iter().all(|bytes| *bytes <= 16 << 20), "{lengths:?}");
    assert!(lengths.iter().any(|bytes| *bytes > 8 << 20), "{lengths:?}: a pair is given at once");
}

// holds HELD-2
#[test]
fn a_hold_takes_no_space_from_commits_where_the_disk_is_short_of_it() {
    let status = |shipped: &Shipped, name: &str| {
        let sql = format!("SELECT value FROM plait_status WHERE name = '{name}'");
        shipped.db.integer(&sql).expect("a number")
    };
    let log_after = |mib: u64| {
        // Less than what is to be left on a disk (`shm/region.rs`), or more, with a shipper that holds all.
        let disk = SmallDisk::mount(mib)?;
        let folder = tempfile::tempdir_in(disk.path()).expect("a folder");
        let shipped = Shipped::on(Stage::in_folder(folder));
        for id in 0..60 {
            let row =
                format!("INSERT OR REPLACE INTO t VALUES({}, hex(randomblob(100000)))", id % 5);
            commit(&shipped.db, &[row]);
            if id % 6 == 5 {
                shipped.merge();
            }
        }
        let log = std::fs::metadata(format!("{}-plait", shipped.stage.database.display()));
        let found = (status(&shipped, "replication_breaks"), log.expect("a log").len());
        drop(shipped);
        Some(found)
    };
    let (Some((breaks, log)), Some((none, held))) = (log_after(200), log_after(900)) else {
        return;
    };
    assert!(breaks > 0 && none == 0, "{breaks} and {none} holds were broken");
    assert!(log * 2 < held, "{log} bytes of log, and {held} where it is held");
}
