//! The writer's right and the right to merge are free again whatever ended the work that they were
//! taken for: an error, after which everything goes on, or a panic, after which the database is
//! stopped and no connection waits.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Client, Fault, Faults, TABLE, create, wait_ms};
use plait_engine::attach::{accept_base, detach};
use plait_engine::base::BaseOpener;
use plait_engine::database::changed::Changed;
use plait_engine::error::{Error, Result};
use plait_engine::shm::layout::fence;
use plait_engine::txn::checkpoint::Asked;
use plait_engine::txn::{Size, Sync, WriteMode};

/// More than anything here takes, and less than a wait without end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A database with one committed row, a connection that meets a fault, and another one.
struct Scene {
    path: PathBuf,
    faults: Faults,
    victim: Client,
    other: Client,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let mut scene = Scene::untouched();
        scene.other.write(b"before", b"1", Sync::Full).unwrap();
        scene
    }

    fn untouched() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let path = create(dir.path());
        let faults = Faults::default();
        let open = || Client::try_open_with(&path, Arc::new(faults.clone())).unwrap();
        let (victim, other) = (open(), open());
        Scene { path, faults, victim, other, _dir: dir }
    }

    fn holders(&mut self) -> (i64, i64) {
        let status = self.other.conn().database().status();
        let value = |name| status.iter().find(|(n, _)| *n == name).unwrap().1;
        (value("writer_pid"), value("merger_pid"))
    }

    /// Lets the victim do `work`, which meets `fault` in `call` of the base. Returns the error
    /// unless the work panicked.
    fn meet(
        &mut self,
        call: &'static str,
        fault: Fault,
        work: impl FnOnce(&mut Client) -> Result<()>,
    ) -> Option<Error> {
        self.faults.arm(call, fault);
        let Scene { victim, .. } = self;
        let outcome = catch_unwind(AssertUnwindSafe(|| work(victim)));
        assert!(self.faults.is_met(), "{call} was never called");
        match outcome {
            Err(_) => {
                assert_eq!(fault, Fault::Panic);
                // The boundary to C does this.
                self.victim.conn().abandon();
                None
            }
            Ok(outcome) => outcome.err(),
        }
    }

    /// No connection holds anything. The other connection goes on after an error, and is refused at
    /// once after a panic.
    fn is_free_after(&mut self, fault: Fault) {
        let start = Instant::now();
        if fault == Fault::Panic {
            assert_eq!(self.holders(), (0, 0));
            let written = self.other.begin_immediate(60_000);
            assert!(matches!(written, Err(Error::Io { .. })), "{written:?}");
            let merged = wait_ms(60_000, |w| self.other.conn().merge_all(true, w));
            assert!(merged.is_err());
        } else {
            self.victim.rollback();
            assert_eq!(self.holders(), (0, 0));
            self.other.write(b"after", b"2", Sync::Full).unwrap();
            self.other.merge();
            self.other.begin_immediate(60_000).unwrap();
            wait_ms(60_000, |w| self.other.conn().exclusive_begin(w)).unwrap();
            self.other.conn().exclusive_end(false, false);
            self.other.rollback();
        }
        assert!(start.elapsed() < PATIENCE, "somebody waited");
        self.reopens_with(if fault == Fault::Panic { None } else { Some(b"2") });
    }

    /// After all connections have left, the next one finds what was committed.
    fn reopens_with(&mut self, after: Option<&[u8]>) {
        for client in [&mut self.victim, &mut self.other] {
            if let Some(conn) = client.conn.take() {
                detach(conn);
            }
        }
        let mut next = Client::open(&self.path);
        assert_eq!(next.read(b"before").as_deref(), Some(&b"1"[..]));
        assert_eq!(next.read(b"after").as_deref(), after);
        next.write(b"next", b"3", Sync::Full).unwrap();
    }
}

const BOTH: [Fault; 2] = [Fault::Error, Fault::Panic];

// holds GEN-5
#[test]
fn a_merge_that_was_asked_for_gives_its_right_back() {
    for fault in BOTH {
        for call in ["begin", "put", "stamp", "commit", "checkpoint"] {
            let mut scene = Scene::new();
            let error = scene
                .meet(call, fault, |victim| wait_ms(1000, |w| victim.conn().merge_all(true, w)));
            assert_eq!(error.is_some(), fault == Fault::Error);
            scene.is_free_after(fault);
        }
    }
}

#[test]
fn a_checkpoint_that_was_asked_for_gives_its_right_back() {
    for fault in BOTH {
        let mut scene = Scene::new();
        scene.meet("put", fault, |victim| {
            wait_ms(1000, |w| victim.conn().checkpoint(w, Asked::Whole, &mut |_| Ok(true)))
                .map(drop)
        });
        scene.is_free_after(fault);
        let mut scene = Scene::new();
        let faults = scene.faults.clone();
        scene.meet("header", fault, |victim| {
            wait_ms(1000, |w| {
                let attempt = |client: &Faults, path: &Path| client.open(path)?.header();
                let path = victim.conn().database().path().to_owned();
                victim
                    .conn()
                    .checkpoint(w, Asked::Whole, &mut |_| attempt(&faults, &path).map(|_| true))
            })
            .map(drop)
        });
        scene.is_free_after(fault);
    }
}

fn lower(client: &mut Client) -> Result<()> {
    wait_ms(1000, |w| client.conn().checkpoint(w, Asked::Truncate, &mut |_| Ok(true))).map(drop)
}

#[test]
fn who_lowers_the_fence_gives_the_right_to_merge_back() {
    for fault in BOTH {
        for call in ["header", "lower_fence"] {
            let mut scene = Scene::new();
            let error = scene.meet(call, fault, lower);
            assert_eq!(error.is_some(), fault == Fault::Error, "{call}");
            scene.is_free_after(fault);
        }
    }
}

#[test]
fn who_raises_it_again_gives_the_right_to_merge_back() {
    for fault in BOTH {
        for call in ["header", "raise_fence"] {
            let mut scene = Scene::new();
            lower(&mut scene.victim).unwrap();
            assert_eq!(scene.victim.conn().fence(), fence::LOWERED);
            scene.victim.begin_concurrent();
            scene.victim.put(b"after", b"2");
            let error = scene.meet(call, fault, |victim| victim.commit(Sync::Full));
            assert_eq!(error.is_some(), fault == Fault::Error, "{call}");
            assert_eq!(scene.other.conn().fence(), fence::LOWERED, "{call}");
            scene.is_free_after(fault);
        }
    }
}

#[test]
fn an_optimistic_transaction_over_which_the_fence_was_lowered_raises_it_to_commit() {
    let mut scene = Scene::new();
    scene.victim.begin_concurrent();
    scene.victim.put(b"after", b"2");
    lower(&mut scene.other).unwrap();
    assert_eq!(scene.other.conn().fence(), fence::LOWERED);
    scene.victim.commit(Sync::Full).unwrap();
    assert_eq!(scene.other.conn().fence(), fence::FENCED);
    scene.reopens_with(Some(b"2"));
}

#[test]
fn the_first_write_of_a_session_gives_the_right_to_merge_back() {
    for fault in BOTH {
        for call in ["header", "begin", "stamp", "commit", "raise_fence"] {
            let mut scene = Scene::untouched();
            scene.meet(call, fault, |victim| {
                wait_ms(1000, |w| victim.conn().write_begin(WriteMode::Queued, w))
            });
            if fault == Fault::Panic {
                assert_eq!(scene.holders(), (0, 0), "{call}");
                continue;
            }
            scene.victim.rollback();
            assert_eq!(scene.holders(), (0, 0), "{call}");
            scene.other.write(b"before", b"1", Sync::Full).unwrap();
            scene.is_free_after(fault);
        }
    }
}

// holds MERGE-1
#[test]
fn a_transaction_that_cannot_become_exclusive_gives_both_rights_back() {
    for fault in BOTH {
        for call in ["begin", "put", "stamp", "commit"] {
            let mut scene = Scene::new();
            scene.meet(call, fault, |victim| {
                victim.snapshot(true);
                wait_ms(1000, |w| victim.conn().exclusive_begin(w))
            });
            assert_eq!(scene.holders(), (0, 0), "{call}: also before the transaction ends");
            scene.is_free_after(fault);
        }
    }
}

// holds MERGE-1
#[test]
fn an_exclusive_transaction_gives_both_rights_back_when_its_end_fails() {
    for fault in BOTH {
        let mut scene = Scene::new();
        scene.victim.begin_immediate(1000).unwrap();
        wait_ms(1000, |w| scene.victim.conn().exclusive_begin(w)).unwrap();
        scene.victim.conn().exclusive_header(Sync::Full, Size::default(), Changed::ANYTHING);
        scene.meet("header", fault, |victim| {
            victim.conn().exclusive_end(false, false);
            Ok(())
        });
        assert_eq!(scene.holders(), (0, 0));
        // After an error the next connection that needs the rights finds out whether it was
        // committed.
        scene.is_free_after(fault);
    }
}

// holds MERGE-1, BULK-1
#[test]
fn a_bulk_load_that_cannot_go_straight_to_the_base_gives_the_right_to_merge_back() {
    for fault in BOTH {
        let mut scene = Scene::new();
        // The second transaction follows a large one: it is asked to become exclusive early, and
        // merges what is in memory.
        for round in 0..2u32 {
            scene.victim.begin_immediate(1000).unwrap();
            let put = |victim: &mut Client, i: u32| {
                let key = (round * 1000 + i).to_be_bytes();
                match victim.conn().put(TABLE, &key, b"v", 0) {
                    Err(Error::Escalate) => panic!("round {round} goes straight to the base"),
                    other => other,
                }
            };
            if round == 0 {
                (0..500).try_for_each(|i| put(&mut scene.victim, i)).unwrap();
                scene.victim.commit(Sync::Full).unwrap();
                continue;
            }
            let error =
                scene.meet("begin", fault, |victim| (0..500).try_for_each(|i| put(victim, i)));
            assert!(error.is_none(), "it goes on in memory");
            if fault == Fault::Error {
                let status = scene.holders();
                assert!(status.0 != 0 && status.1 == 0, "{status:?}");
                scene.victim.commit(Sync::Full).unwrap();
            }
        }
        scene.is_free_after(fault);
    }
}

/// Fills memtables until a merge is due, and merges nothing.
fn make_merge_due(scene: &mut Scene) {
    let big = vec![7u8; 1 << 20];
    for i in 0..60u32 {
        scene.other.begin_immediate(1000).unwrap();
        scene.other.put(&i.to_be_bytes(), &big);
        wait_ms(2000, |w| scene.other.conn().commit(Sync::Off, false, w)).unwrap();
        scene.other.conn().snapshot_end();
    }
}

#[test]
fn a_merge_that_is_due_gives_its_right_back() {
    for fault in BOTH {
        let mut scene = Scene::new();
        make_merge_due(&mut scene);
        scene.meet("put", fault, |victim| victim.conn().maintain());
        scene.is_free_after(fault);
    }
}

#[test]
fn the_thread_that_merges_gives_its_right_back() {
    for fault in BOTH {
        let mut scene = Scene::new();
        make_merge_due(&mut scene);
        scene.other.conn().database().background_merge(Some(true));
        scene.victim.conn().allow_threads();
        scene.faults.arm("put", fault);
        scene.victim.conn().maintain().unwrap();
        let start = Instant::now();
        while !scene.faults.is_met() || scene.holders().1 != 0 {
            assert!(start.elapsed() < PATIENCE, "{fault:?}: {:?}", scene.holders());
            std::thread::sleep(Duration::from_millis(5));
        }
        scene.other.conn().database().background_merge(Some(false));
        scene.is_free_after(fault);
    }
}

#[test]
fn leaving_concurrent_mode_can_be_tried_again_after_a_failure() {
    for call in ["begin", "stamp", "commit"] {
        let mut scene = Scene::new();
        scene.victim.begin_immediate(1000).unwrap();
        wait_ms(1000, |w| scene.victim.conn().exclusive_begin(w)).unwrap();
        let error = scene.meet(call, Fault::Error, |victim| {
            let left = victim.conn().database().retire_log();
            // The boundary to C does this.
            victim.conn().exclusive_end(false, false);
            left
        });
        assert!(error.is_some_and(|e| e.to_string().contains("on purpose")));
        scene.is_free_after(Fault::Error);
    }
}

#[test]
fn a_last_close_that_fails_keeps_nobody_from_opening() {
    for fault in BOTH {
        for call in ["begin", "put", "commit", "checkpoint"] {
            let mut scene = Scene::new();
            detach(scene.other.conn.take().unwrap());
            scene.faults.arm(call, fault);
            let conn = scene.victim.conn.take().unwrap();
            let closed = catch_unwind(AssertUnwindSafe(|| detach(conn)));
            assert_eq!(closed.is_err(), fault == Fault::Panic, "{call}");
            assert!(scene.faults.is_met(), "{call} was never called");
            let (sender, receiver) = std::sync::mpsc::channel();
            let path = scene.path.clone();
            std::thread::spawn(move || {
                let mut next = Client::open(&path);
                let found = (next.read(b"before"), next.write(b"next", b"3", Sync::Full).is_ok());
                drop(next);
                sender.send(found)
            });
            let next = receiver.recv_timeout(PATIENCE).expect("it is opened");
            assert_eq!(next, (Some(b"1".to_vec()), true), "{call}");
        }
    }
}

#[test]
fn a_base_that_cannot_be_accepted_keeps_nobody_from_opening() {
    for fault in BOTH {
        let mut scene = Scene::new();
        for client in [&mut scene.victim, &mut scene.other] {
            detach(client.conn.take().unwrap());
        }
        let faults = scene.faults.clone();
        faults.arm("header", fault);
        let path = scene.path.clone();
        let accepted =
            catch_unwind(AssertUnwindSafe(|| accept_base(&path, &mut || faults.open(&path))));
        assert!(accepted.map_or(true, |accepted| accepted.is_err()));
        scene.reopens_with(None);
    }
}

#[test]
fn who_waits_for_the_right_leaves_the_queue_when_the_database_is_stopped() {
    let mut scene = Scene::new();
    scene.victim.begin_immediate(1000).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let path = scene.path.clone();
    let faults = scene.faults.clone();
    std::thread::spawn(move || {
        let mut waiter = Client::try_open_with(&path, Arc::new(faults)).unwrap();
        let refused = wait_ms(600_000, |w| waiter.conn().write_begin(WriteMode::Queued, w));
        drop(waiter);
        sender.send(refused)
    });
    std::thread::sleep(Duration::from_millis(200));
    // The holder does not know yet.
    scene.other.conn().database().poison();
    let refused = receiver.recv_timeout(PATIENCE).expect("it is not left waiting");
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    scene.victim.conn().rollback().unwrap();
    assert_eq!(scene.holders(), (0, 0));
}

#[test]
fn a_wait_that_panics_has_no_place_in_the_queue_afterwards() {
    let mut scene = Scene::new();
    scene.other.begin_immediate(1000).unwrap();
    let victim = &mut scene.victim;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut wait = plait_engine::sync::wait::Wait {
            timeout: PATIENCE,
            busy: None,
            interrupted: &mut || panic!("on purpose"),
        };
        victim.conn().write_begin(WriteMode::Queued, &mut wait)
    }));
    assert!(panicked.is_err());
    victim.conn().abandon();
    scene.other.rollback();
    assert_eq!(scene.holders(), (0, 0), "it was not handed to one who is gone");
}
