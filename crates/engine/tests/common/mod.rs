//! A base that is one file with a map in it, for tests of the engine without SQLite.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plait_engine::attach::{attach, detach};
use plait_engine::base::{Base, BaseHeader, BaseOpener, Checkpoint, WalState};
use plait_engine::error::{Error, Result};
use plait_engine::ids::{Generation, Root};
use plait_engine::shm::read_marks::ReadMarks;
use plait_engine::sync::wait::Wait;
use plait_engine::txn::snapshot::Taken;
use plait_engine::txn::{Conn, Sync, WriteMode};

type Rows = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

#[derive(Clone, Default)]
struct Content {
    header: BaseHeader,
    rows: Rows,
}

fn put_bytes(out: &mut Vec<u8>, b: &[u8]) {
    out.extend_from_slice(&(b.len() as u32).to_le_bytes());
    out.extend_from_slice(b);
}

impl Content {
    fn read(path: &Path) -> Content {
        let all = std::fs::read(path).unwrap();
        let mut at = 0;
        let mut take = |n: usize| {
            at += n;
            &all[at - n..at]
        };
        let word = |b: &[u8]| u32::from_le_bytes(b.try_into().unwrap());
        let mut c = Content::default();
        let flags = take(1)[0];
        c.header.marked = flags & 1 != 0;
        c.header.fenced = flags & 2 != 0;
        c.header.salt = word(take(4));
        c.header.generation = Generation::new(word(take(4)));
        c.header.cookie = u64::from(word(take(4)));
        for _ in 0..word(take(4)) {
            let root = word(take(4));
            let n = word(take(4)) as usize;
            let key = take(n).to_vec();
            let n = word(take(4)) as usize;
            c.rows.insert((root, key), take(n).to_vec());
        }
        c
    }

    fn write(&self, path: &Path) {
        let mut out = vec![u8::from(self.header.marked) | u8::from(self.header.fenced) << 1];
        out.extend_from_slice(&self.header.salt.to_le_bytes());
        out.extend_from_slice(&self.header.generation.get().to_le_bytes());
        out.extend_from_slice(&(self.header.cookie as u32).to_le_bytes());
        out.extend_from_slice(&(self.rows.len() as u32).to_le_bytes());
        for ((root, key), rec) in &self.rows {
            out.extend_from_slice(&root.to_le_bytes());
            put_bytes(&mut out, key);
            put_bytes(&mut out, rec);
        }
        // In place: the identity of the base is its inode. A small file is written in whole pages
        // at once.
        std::fs::write(path, out).unwrap();
    }
}

struct MapBase {
    path: PathBuf,
    open: Option<Content>,
}

impl MapBase {
    fn open(&mut self) -> &mut Content {
        self.open.as_mut().expect("a write outside a transaction")
    }
}

impl Base for MapBase {
    fn use_read_marks(&mut self, _: &Arc<ReadMarks>) {}

    fn header(&mut self) -> Result<BaseHeader> {
        Ok(self.open.as_ref().map_or_else(|| Content::read(&self.path).header, |c| c.header))
    }
    fn begin(&mut self) -> Result<()> {
        self.open = Some(Content::read(&self.path));
        Ok(())
    }
    fn put(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        self.open().rows.insert((root.get(), key.to_vec()), rec.to_vec());
        Ok(())
    }
    fn delete(&mut self, root: Root, key: &[u8], _: &[u8]) -> Result<()> {
        self.open().rows.remove(&(root.get(), key.to_vec()));
        Ok(())
    }
    fn stamp(&mut self, header: &BaseHeader) -> Result<()> {
        let cookie = self.open().header.cookie + 1;
        self.open().header = BaseHeader { cookie, ..*header };
        Ok(())
    }
    fn commit(&mut self) -> Result<()> {
        self.open.take().expect("begun").write(&self.path);
        Ok(())
    }
    fn rollback(&mut self) {
        self.open = None;
    }
    fn raise_fence(&mut self) -> Result<()> {
        Ok(())
    }
    fn checkpoint(&mut self, _: Checkpoint) -> Result<WalState> {
        Ok(WalState::default())
    }
}

pub struct Opener;

impl BaseOpener for Opener {
    fn open(&self, path: &Path) -> Result<Box<dyn Base>> {
        Ok(Box::new(MapBase { path: path.to_owned(), open: None }))
    }
}

/// What a call of a [`FaultyBase`] meets instead of being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Error,
    Panic,
}

/// Is called with the name of each call of a [`FaultyBase`], in the thread that makes it.
type Watcher = Box<dyn FnMut(&str) + Send>;

/// A fault that the next call of one name meets, once; and the watcher of all calls.
#[derive(Clone, Default)]
pub struct Faults {
    armed: Arc<Mutex<Option<(&'static str, Fault)>>>,
    watcher: Arc<Mutex<Option<Watcher>>>,
}

impl Faults {
    pub fn arm(&self, call: &'static str, fault: Fault) {
        *self.armed.lock().unwrap() = Some((call, fault));
    }

    /// True if the armed fault has been met.
    pub fn is_met(&self) -> bool {
        self.armed.lock().unwrap().is_none()
    }

    pub fn watch(&self, watcher: impl FnMut(&str) + Send + 'static) {
        *self.watcher.lock().unwrap() = Some(Box::new(watcher));
    }

    fn meet(&self, call: &str) -> Result<()> {
        if let Some(watcher) = &mut *self.watcher.lock().unwrap() {
            watcher(call);
        }
        // Unlocks before the panic.
        let met = self.armed.lock().unwrap().take_if(|(armed, _)| *armed == call);
        match met {
            None => Ok(()),
            Some((_, Fault::Panic)) => panic!("on purpose, in {call}"),
            Some((_, Fault::Error)) => Err(Error::Io {
                what: format!("on purpose, in {call}"),
                source_text: "no reason".into(),
                errno: 5,
            }),
        }
    }
}

struct FaultyBase {
    inner: MapBase,
    faults: Faults,
}

impl Base for FaultyBase {
    fn use_read_marks(&mut self, marks: &Arc<ReadMarks>) {
        self.inner.use_read_marks(marks);
    }
    fn header(&mut self) -> Result<BaseHeader> {
        self.faults.meet("header")?;
        self.inner.header()
    }
    fn begin(&mut self) -> Result<()> {
        self.faults.meet("begin")?;
        self.inner.begin()
    }
    fn put(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        self.faults.meet("put")?;
        self.inner.put(root, key, rec)
    }
    fn delete(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        self.inner.delete(root, key, rec)
    }
    fn stamp(&mut self, header: &BaseHeader) -> Result<()> {
        self.faults.meet("stamp")?;
        self.inner.stamp(header)
    }
    fn commit(&mut self) -> Result<()> {
        if let Err(e) = self.faults.meet("commit") {
            self.inner.rollback();
            return Err(e);
        }
        self.inner.commit()
    }
    fn raise_fence(&mut self) -> Result<()> {
        self.faults.meet("raise_fence")?;
        self.inner.raise_fence()
    }
    fn lower_fence(&mut self) -> Result<bool> {
        self.faults.meet("lower_fence")?;
        self.inner.lower_fence()
    }
    fn sync_lowered(&mut self) -> Result<()> {
        self.faults.meet("sync_lowered")?;
        self.inner.sync_lowered()
    }
    fn rollback(&mut self) {
        self.inner.rollback();
    }
    fn checkpoint(&mut self, how: Checkpoint) -> Result<WalState> {
        self.faults.meet("checkpoint")?;
        self.inner.checkpoint(how)
    }
}

impl BaseOpener for Faults {
    fn open(&self, path: &Path) -> Result<Box<dyn Base>> {
        let inner = MapBase { path: path.to_owned(), open: None };
        Ok(Box::new(FaultyBase { inner, faults: self.clone() }))
    }
}

pub const TABLE: Root = Root::new(2);

/// A new base in concurrent mode, at rest.
pub fn create(dir: &Path) -> PathBuf {
    let path = dir.join("app.db");
    let mut c = Content::default();
    c.header.marked = true;
    c.header.salt = 7;
    c.write(&path);
    path
}

/// The base's own rows and header, as a stock program would see them.
pub fn at_rest(path: &Path) -> (BaseHeader, BTreeMap<Vec<u8>, Vec<u8>>) {
    let c = Content::read(path);
    (c.header, c.rows.into_iter().map(|((_, k), v)| (k, v)).collect())
}

/// A connection. The shim's part is played here.
pub struct Client {
    pub conn: Option<Conn>,
    path: PathBuf,
    base: BTreeMap<(u32, Vec<u8>), Vec<u8>>,
}

pub fn wait_ms<T>(ms: u64, f: impl FnOnce(&mut Wait<'_>) -> T) -> T {
    f(&mut Wait { timeout: Duration::from_millis(ms), busy: None, interrupted: &mut || false })
}

impl Client {
    pub fn open(path: &Path) -> Client {
        Client::try_open(path).unwrap()
    }
    pub fn try_open(path: &Path) -> Result<Client> {
        Client::try_open_with(path, Arc::new(Opener))
    }
    pub fn try_open_with(path: &Path, opener: Arc<dyn BaseOpener>) -> Result<Client> {
        let conn = Wait::forever(|wait| attach(path, None, 0, &opener, wait))?;
        Ok(Client { conn: Some(conn), path: path.to_owned(), base: BTreeMap::new() })
    }
    pub fn conn(&mut self) -> &mut Conn {
        self.conn.as_mut().unwrap()
    }
    /// Starts reading; with `newest`, as a writer does.
    pub fn snapshot(&mut self, newest: bool) {
        loop {
            self.conn().pin(false).unwrap();
            let content = Content::read(&self.path);
            let header = content.header;
            self.base = content.rows;
            if self.conn().take(&header, newest).unwrap() == Taken::Yes {
                return;
            }
        }
    }
    pub fn begin_concurrent(&mut self) {
        self.conn().write_begin(WriteMode::Optimistic, &mut no_wait()).unwrap();
        self.snapshot(true);
    }
    pub fn begin_immediate(&mut self, ms: u64) -> Result<()> {
        wait_ms(ms, |w| self.conn().write_begin(WriteMode::Queued, w))?;
        self.snapshot(true);
        Ok(())
    }
    pub fn upgrade(&mut self) -> Result<()> {
        wait_ms(1000, |w| self.conn().write_begin(WriteMode::Queued, w))
    }
    /// The keys of the table in the base of the snapshot.
    pub fn base_keys(&self) -> Vec<Vec<u8>> {
        self.base
            .keys()
            .filter(|(root, _)| *root == TABLE.get())
            .map(|(_, key)| key.clone())
            .collect()
    }
    pub fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        self.conn().read_point(TABLE, key);
        let found = self.conn().get(TABLE, key).map(|e| (e.tombstone, e.rec.to_vec()));
        match found {
            Some((true, _)) => None,
            Some((false, rec)) => Some(rec),
            None => self.base.get(&(TABLE.get(), key.to_vec())).cloned(),
        }
    }
    pub fn put(&mut self, key: &[u8], rec: &[u8]) {
        self.conn().put(TABLE, key, rec, 0).unwrap();
    }
    pub fn commit(&mut self, sync: Sync) -> Result<()> {
        wait_ms(2000, |w| self.conn().commit(sync, false, w))?;
        self.conn().snapshot_end();
        // In these tests a connection that reads nothing of the base writes to it: no merge runs in
        // parallel.
        self.conn().maintain()
    }
    pub fn rollback(&mut self) {
        self.conn().rollback().unwrap();
        self.conn().snapshot_end();
    }
    /// Writes one row in a queued transaction.
    pub fn write(&mut self, key: &[u8], rec: &[u8], sync: Sync) -> Result<()> {
        self.begin_immediate(10_000)?;
        self.put(key, rec);
        self.commit(sync)
    }
    /// Reads one row in a transaction of its own.
    pub fn read(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        self.snapshot(false);
        let value = self.get(key);
        self.conn().snapshot_end();
        value
    }
    pub fn merge(&mut self) {
        wait_ms(10_000, |w| self.conn().merge_all(false, w)).unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            detach(conn);
        }
    }
}

fn no_wait() -> Wait<'static> {
    Wait { timeout: Duration::from_secs(5), busy: None, interrupted: Box::leak(Box::new(|| false)) }
}

pub fn is_conflict(e: &Error) -> bool {
    matches!(e, Error::Conflict(_))
}
