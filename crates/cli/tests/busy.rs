//! Looking at a database that other programs open, write, close and are killed in all the time.

mod plait;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plait::Scene;
use plait_engine::shm::layout::{LOG_IN_USE_LOCK, PROCESS_LOCK_BASE};
use plait_engine::shm::locks;

const WRITERS: u64 = 3;
const AT_WORK: Duration = Duration::from_secs(6);

/// Opens it, writes a few rows and closes it or is killed, until told to stop.
fn come_and_go(scene: &Scene, seed: u64, is_over: &AtomicBool) {
    for n in seed.. {
        let mut shell = if n % 4 == 0 { scene.lone_shell() } else { scene.shell() };
        for _ in 0..=n % 3 {
            shell.run(
                "PRAGMA busy_timeout=20000; INSERT INTO t(n) VALUES(1); SELECT count(*) FROM t;",
            );
        }
        if n % 16 == 7 {
            shell.kill()
        } else {
            shell.close()
        }
        if is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

#[test]
fn a_sound_database_is_not_called_damaged_beside_programs_that_come_and_go() {
    let Some(scene) = Scene::concurrent() else { return };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..WRITERS {
            let (scene, is_over) = (&scene, &is_over);
            scope.spawn(move || come_and_go(scene, seed * 5, is_over));
        }
        let start = Instant::now();
        let mut wrong = Vec::new();
        while start.elapsed() < AT_WORK {
            for command in
                [&["check"][..], &["check", "--quick"], &["enable"], &["status"], &["recover"]]
            {
                let ran = scene.plait(command);
                let said = format!("{}{}", ran.out, ran.err);
                let is_in_use = command == ["recover"] && ran.err.contains("is open in");
                let is_calm = !said.contains("DAMAGE")
                    && !said.contains("cannot be opened")
                    && !said.contains("cannot be recovered")
                    && !said.contains("--accept-base");
                if !is_calm || (ran.code != 0 && !is_in_use) {
                    wrong.push((command, ran));
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
    scene.plait(&["recover"]).done();
    scene.plait(&["check"]).done().says(&["no damage found", "integrity     ok"]);
}

/// Less than a process that dies is given.
const DYING: Duration = Duration::from_millis(200);

/// Takes a byte of a file beside the database as a process has it, until what is returned is dropped.
fn hold(scene: &Scene, suffix: &str, byte: i64) -> std::fs::File {
    let file = std::fs::File::options().read(true).write(true).open(scene.beside(suffix));
    let file = file.expect("it is there");
    assert!(locks::try_lock(&file, byte).expect("it can be locked"));
    file
}

// holds MOMENT-5
#[test]
fn a_process_that_has_the_log_while_it_dies_is_waited_for() {
    for commands in [&[&["check"][..], &["enable"], &["status"]][..], &[&["recover"]]] {
        for is_left_to_recovery in [false, true] {
            let Some(scene) = Scene::killed(2) else { return };
            if is_left_to_recovery {
                scene.remove("-plait-shm");
            }
            for command in commands {
                let dying = hold(&scene, "-plait", LOG_IN_USE_LOCK);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(DYING);
                        drop(dying);
                    });
                    let ran = scene.plait(command).done();
                    let said = format!("{}{}", ran.out, ran.err);
                    assert!(!said.contains("without shared memory"), "{said}");
                });
            }
        }
    }
}

#[test]
fn a_database_whose_recovery_meets_a_dying_process_opens() {
    let Some(scene) = Scene::killed(2) else { return };
    scene.remove("-plait-shm");
    let dying = hold(&scene, "-plait", LOG_IN_USE_LOCK);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(DYING);
            drop(dying);
        });
        assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "3\n");
    });
}

// holds MOMENT-4
#[test]
fn a_look_that_finds_no_member_beside_members_is_not_believed() {
    let Some(scene) = Scene::killed(2) else { return };
    // As if one had come, and its place had not been filled yet.
    let coming = [
        hold(&scene, "-plait-shm", PROCESS_LOCK_BASE + 1),
        hold(&scene, "-plait", LOG_IN_USE_LOCK),
    ];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(4 * DYING);
            drop(coming);
        });
        scene.plait(&["recover"]).done().says(&["everything in shared memory"]);
    });
}

#[test]
fn a_real_damage_is_told_at_once_also_when_programs_try_again_and_again_to_open_it() {
    let Some(scene) = Scene::killed(2) else { return };
    scene.remove("-plait-shm");
    scene.remove("-plait");
    let start = Instant::now();
    let ran = scene.plait(&["check", "--quick"]).says(&["DAMAGE", "log is missing"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(start.elapsed() < Duration::from_secs(4), "it looked again and again");
    scene.plait(&["status"]).done().says(&["cannot be opened", "log is missing"]);
    scene.plait(&["enable"]).failed().says(&["cannot be opened", "log is missing"]);

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_ne!(scene.ours("SELECT count(*) FROM t").code, 0);
            }
        });
        let ran = scene.plait(&["check", "--quick"]);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(ran.code, 1, "{ran:?}");
        ran.says(&["DAMAGE", "log is missing"]);
    });
}
