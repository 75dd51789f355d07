//! A living database of the library, and what a sidecar would see of it: read from its files while
//! nobody writes.
//!
//! Merges happen where the test asks for them, by a checkpoint; a change of the schema and VACUUM,
//! which merge everything first, come behind one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plait_client::{Connection, Library, OpenFlags, Value};
use plait_engine::error::Error as EngineError;
use plait_engine::log::{LogError, LogScan, OpKind, SEGMENT_BYTES};
use plait_engine::storage::os::OsStorage;
use plait_replicate::ids::{Generation, Lsn, Position, RecordNumber, Salt};
use plait_replicate::new_file::last_transaction;
use plait_replicate::record::item::push_page;
use plait_replicate::record::{Body, Item, Merge, PageSet};

use crate::chain::{self, Chain};

/// What keeps the writer from being alone, so that its commits go to the log.
const BESIDE: &str = "BEGIN; SELECT 1 FROM sqlite_schema; COMMIT";

/// Frames that follow each other: generation, position, first and last commit, bytes.
type Run = (u32, u64, (u64, u64), Vec<u8>);

/// The database and its chain.
pub struct Primary {
    path: PathBuf,
    keeper: Option<Connection>,
    writer: Option<Connection>,
    pub page_bytes: u32,
    pub chain: Chain,
    /// The last snapshot, and the base that it has.
    snapshot: Option<(RecordNumber, Vec<u8>)>,
}

fn open(path: &Path) -> Connection {
    let connection = Library::linked().open_with(path, OpenFlags::ReadWriteCreate);
    let connection = connection.expect("it opens");
    connection.busy_timeout(Duration::from_secs(30)).expect("a timeout");
    connection
}

fn join(path: &Path) -> [Connection; 2] {
    let [keeper, writer] = [open(path), open(path)];
    keeper.execute("PRAGMA plait_background_merge=off").expect("a pragma");
    keeper.execute(BESIDE).expect("it reads");
    writer.execute(BESIDE).expect("it reads");
    [keeper, writer]
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A frame's bytes, made anew from what was read of it.
fn encoded(frame: &plait_engine::log::Frame<'_>) -> Vec<u8> {
    let mut ops = Vec::new();
    for op in frame.ops() {
        let kind = match op.kind {
            OpKind::Put => 0,
            OpKind::Tombstone => 1,
        };
        ops.extend_from_slice(&op.root.get().to_le_bytes());
        ops.extend_from_slice(&(op.key.len() as u32).to_le_bytes());
        ops.extend_from_slice(&(op.rec.len() as u32).to_le_bytes());
        ops.extend_from_slice(&[kind, 0, 0, 0]);
        ops.extend_from_slice(op.key);
        ops.extend_from_slice(op.rec);
        ops.resize(ops.len().next_multiple_of(8), 0);
    }
    let length = frame.len_bytes() as u32;
    let mut bytes = b"PLTF".to_vec();
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&frame.lsn.get().to_le_bytes());
    bytes.extend_from_slice(&frame.commit_ts.get().to_le_bytes());
    bytes.extend_from_slice(&frame.durable_lsn.get().to_le_bytes());
    bytes.extend_from_slice(&frame.generation.get().to_le_bytes());
    bytes.extend_from_slice(&frame.op_count.to_le_bytes());
    bytes.extend_from_slice(&frame.durable_generation.get().to_le_bytes());
    bytes.extend_from_slice(&frame.prev_crc.to_le_bytes());
    bytes.extend_from_slice(&ops);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&frame.crc.to_le_bytes());
    bytes
}

impl Primary {
    /// Makes a database with `birth`, and begins its chain in `store`.
    pub fn begin(path: &Path, store: &Path, birth: &str, library: &str) -> Primary {
        let first = open(path);
        first.execute(birth).expect("a new file takes it");
        let mode = first.text("PRAGMA journal_mode=concurrent").expect("the mode");
        assert_eq!(mode, "concurrent");
        let [keeper, writer] = join(path);
        first.close().expect("it closes");
        writer.execute("CREATE TABLE begun(a)").expect("a table");
        keeper.execute("PRAGMA wal_checkpoint").expect("it merges");
        let page_bytes = keeper.integer("PRAGMA page_size").expect("a size") as u32;
        let first = page_1(path);
        let position = Position {
            salt: Salt(word(&first, 72)),
            base: Generation(word(&first, 76)),
            stream: Lsn(SEGMENT_BYTES),
            ..Position::default()
        };
        let mut chain = Chain::begin(store, position, SEGMENT_BYTES as u32, library);
        let base = std::fs::read(path).expect("a file");
        chain.snapshot(&base, page_bytes, None);
        Primary {
            path: path.to_owned(),
            keeper: Some(keeper),
            writer: Some(writer),
            page_bytes,
            snapshot: Some((chain.number(), base)),
            chain,
        }
    }

    fn keeper(&self) -> &Connection {
        self.keeper.as_ref().expect("it is open")
    }

    /// Runs statements that may fail.
    pub fn run(&self, sql: &str) {
        self.keeper().execute(BESIDE).expect("it reads");
        let _ = self.writer.as_ref().expect("it is open").execute(sql);
    }

    /// All rows of all tables, as text.
    pub fn rows(&self) -> String {
        rows(self.keeper())
    }

    fn generation(&self) -> u32 {
        word(&page_1(&self.path), 76)
    }

    /// Ships frames that were not shipped.
    pub fn ship(&mut self) {
        let items = self.unshipped();
        if !items.is_empty() {
            self.chain.append(items);
        }
    }

    /// Frames that were not shipped.
    pub fn unshipped(&self) -> Vec<Item> {
        let Position { salt, base, stream, commit, .. } = self.chain.position();
        let log = plait_replicate::new_file::beside(&self.path, "-plait");
        let generation = plait_engine::ids::Generation::new(base.0);
        let mut scan = match LogScan::open(&OsStorage, &log, salt.0, generation) {
            Err(LogError::Missing { .. }) => return Vec::new(),
            other => other.expect("the log is sound"),
        };
        let mut runs: Vec<Run> = Vec::new();
        let taken = scan.replay(|frame| {
            let (generation, at, ts) =
                (frame.generation.get(), frame.lsn.get(), frame.commit_ts.get());
            if at < stream.0 || ts <= commit.0 {
                return Ok::<(), EngineError>(());
            }
            let bytes = encoded(frame);
            match runs.last_mut() {
                Some((of, from, commits, run))
                    if *of == generation && *from + run.len() as u64 == at =>
                {
                    run.extend_from_slice(&bytes);
                    commits.1 = ts;
                }
                _ => runs.push((generation, at, (ts, ts), bytes)),
            }
            Ok(())
        });
        taken.expect("frames");
        let item =
            |(generation, from, commits, bytes)| chain::frames(generation, from, commits, bytes);
        runs.into_iter().map(item).collect()
    }

    /// Brings everything that is committed into the base, and ships that.
    pub fn merge(&mut self) {
        let mut items = self.unshipped();
        let before = self.generation();
        self.keeper().execute("PRAGMA wal_checkpoint").expect("it merges");
        let through = self.generation();
        if through != before {
            let wal = File::open(plait_replicate::new_file::beside(&self.path, "-wal"));
            let wal = wal.expect("a WAL");
            let written = last_transaction(&wal).expect("it is read").expect("the merge's");
            let first = written.page(1).expect("it is read").expect("page 1");
            assert_eq!(word(&first, 76), through, "the merge was the last to write");
            let (before, through) = (Generation(before), Generation(through));
            items.push(Item::Merge(Merge {
                before,
                through,
                page_count: written.page_count,
                sum: written.sum().expect("it is read"),
            }));
        }
        if !items.is_empty() {
            self.chain.append(items);
        }
    }

    /// Runs statements that change pages, or rows after all, and ships that.
    pub fn exclusive(&mut self, sql: &str) {
        self.merge();
        let (before, old) = (self.generation(), std::fs::read(&self.path).expect("a file"));
        self.run(sql);
        let through = self.generation();
        if through == before {
            return self.ship();
        }
        self.keeper().execute("PRAGMA wal_checkpoint").expect("it is brought");
        assert_eq!(self.generation(), through, "nothing is left to merge");
        let new = std::fs::read(&self.path).expect("a file");
        let size = self.page_bytes as usize;
        let mut list = Vec::new();
        for (at, page) in new.chunks(size).enumerate() {
            if old.get(at * size..(at + 1) * size) != Some(page) {
                push_page(&mut list, at as u32 + 1, page);
            }
        }
        self.chain.append(vec![Item::Pages(PageSet {
            before: Generation(before),
            through: Generation(through),
            page_bytes: self.page_bytes,
            page_count: (new.len() / size) as u32,
            body: Body::Inline(list.into()),
        })]);
    }

    /// Takes a snapshot; of changed pages alone, if it `may_change` the one before.
    pub fn snapshot(&mut self, may_change: bool) {
        self.merge();
        let base = std::fs::read(&self.path).expect("a file");
        let parent = self.snapshot.as_ref().filter(|_| may_change);
        let parent = parent.map(|(number, pages)| (*number, &pages[..]));
        self.chain.snapshot(&base, self.page_bytes, parent);
        self.snapshot = Some((self.chain.number(), base));
    }

    /// All processes end, and a new session begins over the same base.
    pub fn renew(&mut self) {
        self.merge();
        self.end();
        let [keeper, writer] = join(&self.path);
        // The first write of a session raises the fence, and gives the session its salt.
        writer.execute("INSERT INTO begun VALUES(1)").expect("a row");
        (self.keeper, self.writer) = (Some(keeper), Some(writer));
        let position = Position {
            salt: Salt(word(&page_1(&self.path), 72)),
            stream: Lsn(SEGMENT_BYTES),
            base: self.chain.position().base,
            ..Position::default()
        };
        self.chain.renew(position);
        self.ship();
    }

    /// All processes end.
    pub fn end(&mut self) {
        for connection in [self.writer.take(), self.keeper.take()].into_iter().flatten() {
            connection.close().expect("it closes");
        }
    }
}

/// The newest page 1.
fn page_1(path: &Path) -> Vec<u8> {
    let wal = File::open(plait_replicate::new_file::beside(path, "-wal")).ok();
    let written = wal.as_ref().and_then(|wal| last_transaction(wal).expect("it is read"));
    match written.and_then(|written| written.page(1).expect("it is read")) {
        Some(page) => page,
        None => std::fs::read(path).expect("a file")[..100].to_vec(),
    }
}

/// All rows of all tables of a database, as text.
pub fn rows(connection: &Connection) -> String {
    let tables = connection.query(
        "SELECT name, sql FROM sqlite_schema WHERE type='table' AND rootpage>0 ORDER BY name",
    );
    let shown = |value: &Value| match value {
        Value::Text(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        other => format!("{other:?}"),
    };
    let mut text = String::new();
    for row in tables.expect("the schema") {
        let Value::Text(name) = &row[0] else { continue };
        let name = String::from_utf8_lossy(name).replace('"', "\"\"");
        text += &format!("{name}: {}\n", shown(&row[1]));
        // Collations of a table may be any: rows are put in order here.
        let rows = connection.query(&format!("SELECT * FROM \"{name}\""));
        let mut lines: Vec<String> = match rows {
            Ok(rows) => {
                rows.iter().map(|row| row.iter().map(shown).collect::<Vec<_>>().join("|")).collect()
            }
            Err(error) => vec![error.message],
        };
        lines.sort();
        text += &(lines.join("\n") + "\n");
    }
    text
}
