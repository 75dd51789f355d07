//! Threads that are ended by `pthread_cancel` inside COMMIT.

use plait_tests::subject::{Fixture, real_plait};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Two threads commit under FULL; one more does, and is cancelled in a COMMIT again and again. It can be cancelled in a
/// COMMIT alone, since in SQLite's own code it would end with a mutex of SQLite's held, as with stock SQLite.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct sqlite3 sqlite3;
static int (*open_db)(const char *, sqlite3 **);
static int (*exec)(sqlite3 *, const char *, void *, void *, char **);
static int (*timeout)(sqlite3 *, int);
static const char *path;
static atomic_int stop, others, commits;

static sqlite3 *connect_db(void){
  sqlite3 *db;
  if( open_db(path, &db) || timeout(db, 30000) || exec(db, "PRAGMA synchronous=FULL", 0, 0, 0) ){
    fprintf(stderr, "cannot open\n");
    exit(2);
  }
  return db;
}

static void must(sqlite3 *db, const char *sql){
  char *message = 0;
  if( exec(db, sql, 0, 0, &message) ){
    fprintf(stderr, "%s: %s\n", sql, message ? message : "?");
    exit(3);
  }
}

static void *other(void *unused){
  sqlite3 *db = connect_db();
  (void)unused;
  while( !atomic_load(&stop) ){
    must(db, "BEGIN CONCURRENT; INSERT INTO others DEFAULT VALUES; COMMIT");
    atomic_fetch_add(&others, 1);
  }
  return 0;
}

static void *victim(void *unused){
  int old;
  sqlite3 *db;
  (void)unused;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
  db = connect_db();
  for(;;){
    must(db, "BEGIN CONCURRENT; INSERT INTO victims DEFAULT VALUES");
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    must(db, "COMMIT");
    atomic_fetch_add(&commits, 1);
    pthread_testcancel();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
  }
  return 0;
}

int main(int argc, char **argv){
  void *library = dlopen(argv[1], RTLD_NOW);
  pthread_t threads[2], cancelled;
  int i, before;
  (void)argc;
  path = argv[2];
  if( library==0 ){ fprintf(stderr, "%s\n", dlerror()); return 1; }
  *(void**)&open_db = dlsym(library, "sqlite3_open");
  *(void**)&exec = dlsym(library, "sqlite3_exec");
  *(void**)&timeout = dlsym(library, "sqlite3_busy_timeout");
  for(i=0; i<2; i++) pthread_create(&threads[i], 0, other, 0);
  for(i=0; i<40; i++){
    void *how;
    before = atomic_load(&commits);
    pthread_create(&cancelled, 0, victim, 0);
    while( atomic_load(&commits)<before+2 ) usleep(200);
    usleep((unsigned)(i*137%3000));
    pthread_cancel(cancelled);
    pthread_join(cancelled, &how);
    if( how!=PTHREAD_CANCELED ){ fprintf(stderr, "not cancelled\n"); return 4; }
    before = atomic_load(&others);
    while( atomic_load(&others)<before+2 ) usleep(200);
  }
  atomic_store(&stop, 1);
  for(i=0; i<2; i++) pthread_join(threads[i], 0);
  printf("%d %d\n", atomic_load(&commits), atomic_load(&others));
  return 0;
}
"#;

fn compile(source: &Path, program: &Path) -> bool {
    let mut compiler = Command::new("cc");
    compiler.arg(source).arg("-o").arg(program).args(["-pthread", "-ldl"]);
    match compiler.status() {
        Ok(status) => {
            assert!(status.success(), "{compiler:?}: {status}");
            true
        }
        Err(error) => {
            eprintln!("skipped: cc: {error}");
            false
        }
    }
}

// holds MUTEX-5
#[test]
fn a_thread_cancelled_in_a_commit_leaves_nothing_held() {
    let Some(subject) = real_plait("cancellation") else { return };
    let schema =
        "CREATE TABLE victims(id INTEGER PRIMARY KEY); CREATE TABLE others(id INTEGER PRIMARY KEY)";
    let fixture = Fixture::new(subject.clone(), schema);
    let (source, program) = (fixture.path("cancelled.c"), fixture.path("cancelled"));
    std::fs::write(&source, PROGRAM).expect("it can be written");
    if !compile(&source, &program) {
        return;
    }
    let mut child = Command::new(&program)
        .arg(&subject.library)
        .arg(fixture.database())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be awaited") {
            break status;
        }
        if begin.elapsed() > Duration::from_secs(120) {
            child.kill().expect("it can be killed");
            panic!("somebody waits for a thread that is gone");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{status}");
    let output = child.wait_with_output().expect("its output");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let counts: Vec<i64> =
        printed.split_whitespace().map(|n| n.parse().expect("a count")).collect();
    let connection = fixture.open();
    for (table, acknowledged) in ["victims", "others"].into_iter().zip(counts) {
        let rows = connection.integer(&format!("SELECT count(*) FROM {table}")).expect("a count");
        // The one that was cancelled may not have come to count its last.
        assert!(
            (acknowledged..=acknowledged + 40).contains(&rows),
            "{table}: {rows}, {acknowledged}"
        );
    }
    assert_eq!(connection.text("PRAGMA integrity_check"), Ok("ok".to_owned()));
}
