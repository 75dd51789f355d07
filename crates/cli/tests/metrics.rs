//! `plait metrics`.

mod exposition;
mod plait;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use exposition::Exposition;
use plait::{Scene, Shell, command, finish};

const PATIENCE: Duration = Duration::from_secs(30);

/// The numbers of `app.db`, and nothing on standard error.
fn measured(scene: &Scene) -> Exposition {
    let ran = scene.plait(&["metrics"]).done();
    assert!(ran.err.is_empty(), "{ran:?}");
    Exposition::of(&ran.out)
}

fn number(scene: &Scene, name: &str) -> f64 {
    measured(scene).of_database(name, "app.db")
}

/// Waits until a number is that.
#[track_caller]
fn comes_to(scene: &Scene, name: &str, value: f64) {
    let start = Instant::now();
    while number(scene, name) != value {
        assert!(start.elapsed() < PATIENCE, "{name} is {}", number(scene, name));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends it as a service manager does.
fn interrupt(child: &mut Child) -> i32 {
    // SAFETY: our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    child.wait().unwrap().code().unwrap_or(-1)
}

#[test]
fn the_numbers_are_those_of_the_status() {
    let Some(scene) = Scene::concurrent() else { return };
    let (mut reader, mut writer) = (scene.shell(), scene.shell());
    reader.run(".bail off");
    for _ in 0..3 {
        reader.run("BEGIN; SELECT n FROM t WHERE id=1;");
        writer.run("UPDATE t SET n=n+1 WHERE id=1;");
        reader.run("UPDATE t SET n=n+1 WHERE id=1;\nROLLBACK;");
    }
    writer.run("CREATE TABLE u(x); INSERT INTO u VALUES(randomblob(3000));");
    reader.run("BEGIN; SELECT count(*) FROM u;");
    let json = scene.plait(&["status", "--json"]).done().out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let numbers = measured(&scene);
    let same = [
        ("plait_connections", "connections"),
        ("plait_commits_total", "commits"),
        ("plait_exclusive_commits_total", "exclusive_commits"),
        ("plait_conflicts_total", "conflicts"),
        ("plait_busy_total", "busy"),
        ("plait_early_begins_total", "begun_early"),
        ("plait_log_syncs_total", "log_syncs"),
        ("plait_base_syncs_total", "base_syncs"),
        ("plait_log_written_bytes_total", "log_bytes"),
        ("plait_log_unsynced_bytes", "log_unsynced_bytes"),
        ("plait_log_file_bytes", "log_file_bytes"),
        ("plait_memtable_bytes", "memtable_bytes"),
        ("plait_shared_memory_limit_bytes", "shared_memory_limit_bytes"),
        ("plait_merges_total", "merges"),
        ("plait_merged_entries_total", "merged_entries"),
        ("plait_base_generation", "base_generation"),
        ("plait_wal_bytes", "base_wal_bytes"),
        ("plait_wal_limit_bytes", "base_wal_limit_bytes"),
        ("plait_reaped_processes_total", "processes_reaped"),
        ("plait_fenced", "fenced"),
        ("plait_poisoned", "poisoned"),
    ];
    for (name, status) in same {
        let status = json["status"][status].as_f64().unwrap();
        assert_eq!(numbers.of_database(name, "app.db"), status, "{name}: {json}");
    }
    assert!(numbers.of_database("plait_commits_total", "app.db") >= 4.0);
    assert!(numbers.of_database("plait_memtable_bytes", "app.db") > 3000.0);
    let conflicts = numbers.of_database("plait_conflicts_total", "app.db");
    let kind = |kind| {
        numbers.value("plait_recent_conflicts", &[("database", "app.db"), ("kind", kind)]).unwrap()
    };
    assert!(conflicts >= 1.0 && kind("row") == conflicts, "{numbers:?}");
    let reading = [("database", "app.db"), ("state", "reading")];
    assert_eq!(numbers.value("plait_transactions", &reading), Some(1.0));
    assert_eq!(numbers.of_database("plait_processes", "app.db"), 2.0);
    assert!(numbers.of_database("plait_oldest_reader_seconds", "app.db") < 600.0);
    reader.close();
    writer.close();
}

#[test]
fn waiting_writers_and_ages_are_told() {
    let Some(scene) = Scene::concurrent() else { return };
    let (mut holder, mut waiter) = (scene.shell(), scene.shell());
    holder.run("BEGIN IMMEDIATE; INSERT INTO t VALUES(2, 20);");
    std::thread::scope(|scope| {
        scope.spawn(|| waiter.run(".timeout 60000\nBEGIN IMMEDIATE;\nCOMMIT;"));
        comes_to(&scene, "plait_waiting_writers", 1.0);
        std::thread::sleep(Duration::from_millis(300));
        assert!(number(&scene, "plait_longest_transaction_seconds") >= 0.3);
        holder.run("COMMIT;");
    });
    comes_to(&scene, "plait_waiting_writers", 0.0);
    holder.close();
    waiter.close();
}

#[test]
fn a_database_that_cannot_be_measured_takes_no_other_down() {
    let Some(scene) = Scene::concurrent() else { return };
    scene.stock_on(&scene.folder().join("wal.db"), "PRAGMA journal_mode=wal; CREATE TABLE t(x)");
    std::fs::write(scene.folder().join("noise.db"), [0x5a; 8192]).unwrap();
    let down = ["wal.db", "noise.db", "missing.db", ".", "a\"b\\c.db"];
    let args = [&["metrics"], &down[..], &["app.db", "app.db"]].concat();
    let ran = finish(command(&args).current_dir(scene.folder())).done();
    let numbers = Exposition::of(&ran.out);
    for file in down {
        assert_eq!(numbers.of_database("plait_up", file), 0.0);
        assert_eq!(numbers.value("plait_session", &[("database", file)]), None);
        let reasons: Vec<_> = ran
            .err
            .lines()
            .filter(|l| l.starts_with(&format!("note: {file} is not up: ")))
            .collect();
        assert_eq!(reasons.len(), 1, "{file}: {ran:?}");
    }
    assert_eq!(ran.err.lines().count(), down.len(), "{ran:?}");
    let ran = ran.says(&["plait enable wal.db", "not an SQLite database", "check the path"]);
    assert_eq!(numbers.of_database("plait_up", "app.db"), 1.0, "{ran:?}");
    assert_eq!(numbers.of_database("plait_session", "app.db"), 0.0);
    assert_eq!(numbers.of_database("plait_commits_total", "app.db"), 0.0);
}

// holds LIVE-1
#[test]
fn nothing_is_changed_at_rest_after_a_kill_and_beside_a_connection_that_is_alone() {
    let Some(scene) = Scene::concurrent() else { return };
    let before = scene.contents();
    assert_eq!(number(&scene, "plait_session"), 0.0);
    assert_eq!(scene.contents(), before);
    let mut alone = scene.lone_shell();
    alone.run("INSERT INTO t VALUES(2, 20);");
    assert_eq!(number(&scene, "plait_session"), 0.0);
    assert!(!scene.beside("-plait-shm").exists(), "looking begins no session");
    alone.close();
    let Some(scene) = Scene::killed(3) else { return };
    let before = scene.contents();
    let numbers = measured(&scene);
    assert_eq!(numbers.of_database("plait_recovery_pending", "app.db"), 1.0);
    assert_eq!(numbers.of_database("plait_session", "app.db"), 0.0);
    assert_eq!(scene.contents(), before);
    scene.remove("-plait-shm");
    assert_eq!(number(&scene, "plait_recovery_pending"), 1.0);
    scene.plait(&["recover"]).done();
    assert_eq!(number(&scene, "plait_recovery_pending"), 0.0);
}

#[test]
fn the_dead_are_not_counted_and_a_log_that_was_taken_away_is_told() {
    let Some(scene) = Scene::concurrent() else { return };
    let (mut dies, mut lives) = (scene.shell(), scene.shell());
    dies.run("BEGIN IMMEDIATE; INSERT INTO t VALUES(2, 20);");
    lives.run("SELECT count(*) FROM t;");
    assert_eq!(number(&scene, "plait_processes"), 2.0);
    dies.kill();
    let numbers = measured(&scene);
    for name in ["plait_processes", "plait_connections"] {
        assert_eq!(numbers.of_database(name, "app.db"), 1.0, "{name}");
    }
    assert_eq!(numbers.of_database("plait_longest_transaction_seconds", "app.db"), 0.0);
    lives.run("INSERT INTO t VALUES(3, 30);");
    assert_eq!(number(&scene, "plait_reaped_processes_total"), 1.0);
    scene.remove("-plait");
    lives.run(".bail off\nINSERT INTO t VALUES(4, 40);");
    assert_eq!(number(&scene, "plait_poisoned"), 1.0);
    lives.close();
}

/// `plait metrics --listen`, and where.
struct Served {
    child: Child,
    address: String,
    err: BufReader<std::process::ChildStderr>,
}

impl Served {
    fn of(scene: &Scene, files: &[&str]) -> Served {
        let args = [&["metrics", "--listen", "127.0.0.1:0"], files].concat();
        let mut child =
            command(&args).current_dir(scene.folder()).stderr(Stdio::piped()).spawn().unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let mut served = Served { child, address: String::new(), err };
        let said = served.says();
        let address = said.trim_end().strip_prefix("note: listening on http://").unwrap();
        served.address = address.strip_suffix("/metrics").unwrap().to_owned();
        served
    }

    /// The next line on standard error.
    fn says(&mut self) -> String {
        let mut line = String::new();
        self.err.read_line(&mut line).unwrap();
        line
    }

    /// Head and body of the answer.
    fn ask(&self, request: &str) -> (String, String) {
        let mut peer = TcpStream::connect(&self.address).unwrap();
        write!(peer, "{request} HTTP/1.0\r\nHost: here\r\n\r\n").unwrap();
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn number(&self, name: &str, database: &str) -> f64 {
        Exposition::of(&self.ask("GET /metrics").1).of_database(name, database)
    }
}

#[test]
fn they_are_served_while_sessions_come_and_go_and_keep_nothing_open() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut served = Served::of(&scene, &["app.db", "later.db"]);
    let (head, body) = served.ask("GET /metrics");
    assert!(head.starts_with("HTTP/1.0 200") || head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert_eq!(Exposition::of(&body).of_database("plait_session", "app.db"), 0.0);
    assert!(served.says().starts_with("note: later.db is not up: "));
    let (head, page) = served.ask("GET /");
    assert!(head.contains("200") && page.contains("href=\"/metrics\""), "{head} {page}");
    assert!(served.ask("GET /else").0.contains("404"));
    assert!(served.ask("POST /metrics").0.contains("405"));
    assert!(served.ask("HEAD /metrics").1.is_empty());

    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    assert_eq!(served.number("plait_session", "app.db"), 1.0);
    assert_eq!(served.number("plait_connections", "app.db"), 1.0, "it is no member itself");
    shell.close();
    assert_eq!(served.number("plait_session", "app.db"), 0.0);
    let names: Vec<_> = scene.contents().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 1, "at rest while it is measured: {names:?}");
    assert_eq!(scene.stock("SELECT count(*) FROM t").done().out, "2\n");

    scene.ours_on(
        &scene.folder().join("later.db"),
        "PRAGMA journal_mode=concurrent; CREATE TABLE t(x)",
    );
    assert_eq!(served.number("plait_up", "later.db"), 1.0);
    assert_eq!(served.says(), "note: later.db is up again\n", "and said once that it was not");
    assert_eq!(interrupt(&mut served.child), 0);
}

#[test]
fn many_ask_at_once_beside_writers_and_one_that_asks_nothing() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut served = Served::of(&scene, &["app.db"]);
    let quiet = TcpStream::connect(&served.address).unwrap();
    let mut shells: Vec<Shell> = (0..3).map(|_| scene.shell()).collect();
    for shell in &mut shells {
        shell.run(".timeout 60000");
    }
    std::thread::scope(|scope| {
        for shell in &mut shells {
            scope.spawn(|| {
                for _ in 0..60 {
                    shell.run("INSERT INTO t(n) VALUES(1);");
                }
            });
        }
        for _ in 0..4 {
            scope.spawn(|| {
                let mut before = 0.0;
                for _ in 0..20 {
                    let commits = served.number("plait_commits_total", "app.db");
                    assert!(commits >= before, "{commits} after {before}");
                    before = commits;
                }
            });
        }
    });
    assert_eq!(served.number("plait_commits_total", "app.db"), 180.0);
    drop(quiet);
    shells.into_iter().for_each(Shell::close);
    assert_eq!(interrupt(&mut served.child), 0);
}

#[test]
fn an_address_that_is_taken_or_none_is_told() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut served = Served::of(&scene, &["app.db"]);
    let ran = scene.plait(&["metrics", "--listen", &served.address]).failed();
    ran.says(&["cannot listen on", &served.address, "in use", "a port that is free"]);
    scene.plait(&["metrics", "--listen", "nonsense"]).failed().says(&["cannot listen on nonsense"]);
    interrupt(&mut served.child);
}

#[test]
fn the_textfile_is_whole_at_any_time_and_readable_for_the_collector() {
    let Some(scene) = Scene::concurrent() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plait.prom");
    let text = file.to_str().unwrap();
    scene.plait(&["metrics", "--textfile", text]).done();
    assert_eq!(Exposition::of(&read(&file)).of_database("plait_up", "app.db"), 1.0);
    let args = ["metrics", "--textfile", text, "--interval", "1", "app.db"];
    let mut writing = command(&args).current_dir(scene.folder()).spawn().unwrap();
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    let start = Instant::now();
    while Exposition::of(&read(&file)).of_database("plait_session", "app.db") != 1.0 {
        assert!(start.elapsed() < PATIENCE);
    }
    shell.close();
    assert_eq!(interrupt(&mut writing), 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o444, 0o444);

    scene.plait(&["metrics", "--textfile", "/no/such/folder/a.prom"]).failed().says(&["a.prom"]);
    let ran = scene.plait(&["metrics", "--textfile", "/tmp/a.txt"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    ran.says(&["ends in .prom"]);
}

#[test]
fn a_textfile_is_written_where_nobody_can_read_what_is_said_beside_it() {
    let Some(scene) = Scene::concurrent() else { return };
    let file = scene.folder().join("plait.prom");
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    for aside in [Stdio::from(unread), Stdio::from(full)] {
        // Of a database that is not there it says that it is not up.
        let args = ["metrics", "--textfile", file.to_str().unwrap(), "--interval", "1", "none.db"];
        let mut writing = command(&args).current_dir(scene.folder()).stderr(aside).spawn().unwrap();
        let start = Instant::now();
        while !file.exists() {
            assert!(start.elapsed() < PATIENCE && writing.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(20));
        }
        // What comes once it is there says so, too.
        std::fs::rename(scene.folder().join("app.db"), scene.folder().join("none.db")).unwrap();
        let is_up = || Exposition::of(&read(&file)).of_database("plait_up", "none.db") == 1.0;
        while !is_up() {
            assert!(start.elapsed() < PATIENCE && writing.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::rename(scene.folder().join("none.db"), scene.folder().join("app.db")).unwrap();
        assert_eq!(interrupt(&mut writing), 0);
        std::fs::remove_file(&file).unwrap();
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The names that a text has.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("plait_"));
    words.map(str::to_owned).collect()
}

#[test]
fn the_dashboard_and_the_rules_name_what_there_is() {
    let Some(scene) = Scene::concurrent() else { return };
    let there: BTreeSet<_> = measured(&scene).kinds.into_keys().collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dashboard = read(&root.join("examples/monitoring/grafana-dashboard.json"));
    let rules = read(&root.join("examples/monitoring/alerts.yml"));
    let json: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = json["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() >= panels.len());
    let shown = names(&queries.concat());
    let unknown: Vec<_> =
        shown.union(&names(&rules)).filter(|name| !there.contains(*name)).cloned().collect();
    assert_eq!(unknown, [""; 0], "no such metric");
    // The version is no curve; a fence is part of every session.
    let quiet = ["plait_build_info", "plait_fenced", "plait_base_generation"];
    let unseen: Vec<_> =
        there.iter().filter(|n| !shown.contains(*n) && !quiet.contains(&n.as_str())).collect();
    assert_eq!(unseen, [""; 0], "in no panel");

    let runbook = read(&root.join("docs/runbook.md"));
    let alerts: Vec<&str> =
        rules.lines().filter_map(|l| l.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 10);
    for alert in alerts {
        assert!(rules.contains(&format!("runbook: \"docs/runbook.md#{alert}\"")), "{alert}");
        let row = format!("| <a id=\"{alert}\"></a>`{alert}` |");
        assert!(runbook.contains(&row), "the runbook has no row of {alert}");
    }
}
