//! A database that is slow to open or to close keeps no other connection of its process from
//! another database.

mod common;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Client, Opener, at_rest, create};
use plait_engine::base::{Base, BaseHeader, BaseOpener, Checkpoint, WalState};
use plait_engine::error::{Error, Result};
use plait_engine::ids::Root;
use plait_engine::shm::read_marks::ReadMarks;
use plait_engine::txn::Sync;

/// Ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The call that blocks, the sender that reports its arrival, and the receiver that lets it go on.
type Scene = (&'static str, Sender<()>, Receiver<()>);

/// A disk that does not answer: the first call of one name reports its arrival, and blocks until it
/// may go on.
#[derive(Clone)]
struct Stall(Arc<Mutex<Option<Scene>>>);

impl Stall {
    /// Also returns the other ends of the scene: what reports the call, and what lets it go on.
    fn at(call: &'static str) -> (Stall, Receiver<()>, Sender<()>) {
        let (reached, is_there) = channel();
        let (go_on, may_go_on) = channel();
        (Stall(Arc::new(Mutex::new(Some((call, reached, may_go_on))))), is_there, go_on)
    }

    fn meet(&self, call: &str) {
        let met = self.0.lock().unwrap().take_if(|(armed, ..)| *armed == call);
        if let Some((_, reached, may_go_on)) = met {
            reached.send(()).unwrap();
            may_go_on.recv_timeout(PATIENCE).expect("the test lets it go on");
        }
    }
}

struct StallingBase {
    inner: Box<dyn Base>,
    stall: Stall,
}

impl Base for StallingBase {
    fn use_read_marks(&mut self, marks: &Arc<ReadMarks>) {
        self.inner.use_read_marks(marks);
    }
    fn header(&mut self) -> Result<BaseHeader> {
        self.inner.header()
    }
    fn begin(&mut self) -> Result<()> {
        self.inner.begin()
    }
    fn put(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        self.inner.put(root, key, rec)
    }
    fn delete(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        self.inner.delete(root, key, rec)
    }
    fn stamp(&mut self, header: &BaseHeader) -> Result<()> {
        self.inner.stamp(header)
    }
    fn commit(&mut self) -> Result<()> {
        self.inner.commit()
    }
    fn rollback(&mut self) {
        self.inner.rollback();
    }
    fn raise_fence(&mut self) -> Result<()> {
        self.inner.raise_fence()
    }
    fn lower_fence(&mut self) -> Result<bool> {
        self.inner.lower_fence()
    }
    fn sync_lowered(&mut self) -> Result<()> {
        self.inner.sync_lowered()
    }
    fn checkpoint(&mut self, how: Checkpoint) -> Result<WalState> {
        self.stall.meet("checkpoint");
        self.inner.checkpoint(how)
    }
}

impl BaseOpener for Stall {
    fn open(&self, path: &Path) -> Result<Box<dyn Base>> {
        self.meet("open");
        Ok(Box::new(StallingBase { inner: Opener.open(path)?, stall: self.clone() }))
    }
}

fn database() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    (dir, path)
}

/// Opens another database, writes to it, and closes it.
fn use_another() {
    let (_dir, path) = database();
    let mut client = Client::try_open(&path).expect("nobody has it");
    client.write(b"k", b"1", Sync::Full).unwrap();
    drop(client);
    assert_eq!(at_rest(&path).1[&b"k"[..]], b"1", "merged by its last close");
}

fn wants_it_for_a_moment(path: &Path) {
    let opener: Arc<dyn BaseOpener> = Arc::new(Opener);
    let mut enough = |_| false;
    let mut wait = plait_engine::sync::wait::Wait {
        timeout: Duration::ZERO,
        busy: Some(&mut enough),
        interrupted: &mut || false,
    };
    let refused = plait_engine::attach::attach(path, None, 0, &opener, &mut wait).err();
    assert!(matches!(refused, Some(Error::Busy(_))), "{refused:?}");
}

// holds REGISTRY-1
#[test]
fn a_database_that_is_slow_to_open_keeps_nobody_from_another() {
    let (_dir, slow) = database();
    let (stall, is_there, go_on) = Stall::at("open");
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| Client::try_open_with(&slow, Arc::new(stall)));
        is_there.recv_timeout(PATIENCE).unwrap();
        use_another();
        wants_it_for_a_moment(&slow);
        go_on.send(()).unwrap();
        let mut client = opening.join().unwrap().unwrap();
        client.write(b"k", b"1", Sync::Full).unwrap();
    });
    assert_eq!(at_rest(&slow).1[&b"k"[..]], b"1");
}

// holds REGISTRY-1
#[test]
fn a_database_that_is_slow_to_close_keeps_nobody_from_another() {
    let (_dir, slow) = database();
    let (stall, is_there, go_on) = Stall::at("checkpoint");
    let armed = stall.0.lock().unwrap().take();
    let mut client = Client::try_open_with(&slow, Arc::new(stall.clone())).unwrap();
    client.write(b"k", b"1", Sync::Full).unwrap();
    *stall.0.lock().unwrap() = armed;
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| drop(client));
        is_there.recv_timeout(PATIENCE).unwrap();
        use_another();
        wants_it_for_a_moment(&slow);
        go_on.send(()).unwrap();
        closing.join().unwrap();
    });
    assert_eq!(at_rest(&slow).1[&b"k"[..]], b"1");
    let mut again = Client::open(&slow);
    assert_eq!(again.read(b"k"), Some(b"1".to_vec()));
}

// holds REGISTRY-3
#[test]
fn an_opening_that_panics_leaves_the_database_to_the_next() {
    struct Panics;
    impl BaseOpener for Panics {
        fn open(&self, _: &Path) -> Result<Box<dyn Base>> {
            panic!("on purpose")
        }
    }
    let (_dir, path) = database();
    let opening =
        std::panic::catch_unwind(|| Client::try_open_with(&path, Arc::new(Panics)).is_ok());
    assert!(opening.is_err());
    let mut client = Client::open(&path);
    client.write(b"k", b"1", Sync::Full).unwrap();
}

// holds REGISTRY-2
#[test]
fn many_threads_that_open_and_close_one_database_and_others_lose_nothing() {
    let (_dir, path) = database();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let path = &path;
            scope.spawn(move || {
                for round in 0..20u8 {
                    let mut client = Client::open(path);
                    client.write(&[thread, round], b"1", Sync::Normal).unwrap();
                    drop(client);
                    if round % 5 == 0 {
                        use_another();
                    }
                }
            });
        }
    });
    assert_eq!(at_rest(&path).1.len(), 80);
}
