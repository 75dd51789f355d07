//! A real store: a folder, or what `PLAIT_STORE_URL` names (`make stores`). `PLAIT_STORE_FIT=no`
//! says that the probe has to refuse it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::*;
use crate::chain::find_tip;
use crate::error::Error;
use crate::follower::{self, Follower};
use crate::primary::{Settings, Sidecar};
use crate::probe::{ROUNDS, probe};
use crate::restore::{Stop, restore};
use crate::simulation::dice::Dice;
use crate::simulation::oracle::Oracle;
use crate::simulation::primary::{Database, Primary};
use crate::simulation::replica::{Disk, Replica};
use crate::simulation::run::settings;
use crate::world::{Clock, Patience, Random as _, World};

struct Clocks(Instant);

impl Clock for Clocks {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        self.0.elapsed().as_millis() as u64 + 1_780_000_000_000
    }

    fn sleep(&self, time: Duration) -> Later<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// A place of this test alone; a folder goes with it.
struct Place {
    url: String,
    _folder: Option<tempfile::TempDir>,
}

fn place(name: &str) -> Place {
    let unique =
        u64::from_le_bytes(std::array::from_fn(|i| std::process::id().to_le_bytes()[i % 4]));
    match std::env::var("PLAIT_STORE_URL") {
        Ok(url) => Place { url: format!("{url}/{name}-{unique:x}"), _folder: None },
        Err(_) => {
            let folder = tempfile::tempdir().expect("a folder");
            Place { url: format!("{}/{name}", folder.path().display()), _folder: Some(folder) }
        }
    }
}

fn is_fit() -> bool {
    std::env::var("PLAIT_STORE_FIT").map_or(true, |fit| fit != "no")
}

fn block_on<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(task)
}

fn chance() -> Dice {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Dice::new(nanos.map_or(1, |time| time.as_nanos() as u64))
}

// holds STORE-2, STORE-3
#[test]
fn the_five_calls_do_what_they_say() {
    let place = place("calls");
    let store = open(&place.url, Missing::Make).expect("a store");
    block_on(async {
        let large = Bytes::from(vec![7; 9 << 20]);
        let (one, other) = ("chain/000000000000/0000000000000001", "pack/1-2");
        assert_eq!(store.get(one).await, Ok(None));
        let both = [one, other].map(str::to_owned);
        assert_eq!(store.delete(&both).await, Ok(()), "what is not there is deleted");
        assert_eq!(store.list("chain/").await, Ok(vec![]));
        assert_eq!(store.create(one, large.clone()).await, Ok(Created::Made));
        assert_eq!(store.get(one).await, Ok(Some(large.clone())));
        if is_fit() {
            assert_eq!(store.create(one, Bytes::from_static(b"x")).await, Ok(Created::Exists));
            assert_eq!(store.get(one).await, Ok(Some(large)));
        }
        for bytes in [&b"first"[..], b"", b"second"] {
            assert_eq!(store.put(other, Bytes::from_static(bytes)).await, Ok(()));
            assert_eq!(store.get(other).await, Ok(Some(Bytes::from_static(bytes))));
            // No range begins in an object without bytes.
            for len in [1, 3, 100] {
                let beginning = Bytes::from_static(&bytes[..len.min(bytes.len())]);
                assert_eq!(store.beginning(other, len).await, Ok(Some(beginning)));
            }
        }
        assert_eq!(store.beginning("pack/3-4", 1).await, Ok(None));
        assert_eq!(store.list("chain/").await, Ok(vec![one.to_owned()]));
        assert_eq!(store.list("pack/").await, Ok(vec![other.to_owned()]));
        // One of them is not there any more.
        for names in [&both[..1], &both] {
            assert_eq!(store.delete(names).await, Ok(()));
            assert_eq!(store.get(one).await, Ok(None));
        }
        assert_eq!(store.get(other).await, Ok(None));
    });
}

// holds STORE-1
#[test]
fn a_race_says_whether_it_is_fit() {
    let place = place("race");
    let store = open(&place.url, Missing::Make).expect("a store");
    let chance = chance();
    let (verdict, left) =
        block_on(async { (probe(&store, &chance, ROUNDS).await, store.list("probe/").await) });
    let verdict = verdict.expect("it answers");
    println!("{verdict:?}");
    assert_eq!(verdict.is_fit(), is_fit(), "{verdict:?}");
    assert_eq!(left, Ok(vec![]));
}

/// A sidecar, a follower, and restores beside them; the sidecar is killed and started again.
#[test]
fn a_database_is_shipped_followed_and_restored() {
    if !is_fit() {
        return;
    }
    let place = place("whole");
    let store = open(&place.url, Missing::Make).expect("a store");
    let dice = Rc::new(chance());
    let oracle = Rc::new(Oracle::default());
    // The ledger of what was made is the simulated store's.
    oracle.judge_readers_alone();
    let database = Rc::new(RefCell::new(Database::new("alpha", &dice, &oracle)));
    let disk = Rc::new(RefCell::new(Disk::default()));
    let records = Rc::new(Cell::new(0));
    block_on(async {
        for epoch in 1..=3 {
            ship(&store, &database, &dice, epoch, &records).await.expect("a store that is up");
            let target = Replica::new("a follower", &disk, &dice, &oracle, 0, true);
            follow(&store, target, &dice).await.expect("a store that is up");
            let scratch = Rc::new(RefCell::new(Disk::default()));
            let target = Replica::new("a restore", &scratch, &dice, &oracle, 0, true);
            let world = world(&store, &dice);
            let (restored, _) =
                restore(&world, Box::new(target), Stop::Newest, "simulated", &mut |_| {})
                    .await
                    .expect("a snapshot leads to the end");
            assert_eq!(restored.record.0, records.get());
            assert_eq!(scratch.borrow().digests(), disk.borrow().digests());
        }
    });
    assert_eq!(oracle.violation(), None);
}

fn world(store: &Objects, dice: &Rc<Dice>) -> World {
    let random = Rc::new(Dice::new(dice.number()));
    let clocks = Rc::new(Clocks(Instant::now()));
    World::new(Rc::new(store.clone()), clocks, random, Patience::Tries(5))
}

fn change(database: &mut Database, dice: &Dice) {
    match dice.below(12) {
        0..8 => database.commit(true),
        8 | 9 => database.freeze(),
        10 => database.merge(true),
        _ => database.exclusive(),
    }
}

async fn ship(
    store: &Objects,
    database: &Rc<RefCell<Database>>,
    dice: &Rc<Dice>,
    epoch: u64,
    records: &Cell<u64>,
) -> Result<(), Error> {
    let fast = Settings {
        interval: Duration::from_millis(5),
        pack_every: Duration::from_millis(200),
        sweep_every: Duration::from_millis(400),
        ..settings(false)
    };
    let source = Primary::new(database, epoch, &Rc::default());
    let mut sidecar = Sidecar::open(world(store, dice), Box::new(source), fast).await?;
    let first = sidecar.tip().number.0;
    while sidecar.tip().number.0 < first + 25 || sidecar.tip().snapshot.0 == 0 {
        change(&mut database.borrow_mut(), dice);
        sidecar.step().await?;
    }
    records.set(sidecar.tip().number.0);
    Ok(())
}

async fn follow(store: &Objects, target: Replica, dice: &Rc<Dice>) -> Result<(), Error> {
    let world = world(store, dice);
    let tip = find_tip(&world).await?.ok_or(Error::Empty)?.record.header.number;
    let settings = follower::Settings { poll: Duration::from_millis(5) };
    let mut follower = Follower::new(world, Box::new(target), settings)?;
    while follower.applied() < tip {
        follower.step().await?;
    }
    Ok(())
}

#[test]
fn an_object_that_no_sidecar_makes_is_not_read_into_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path().to_str().expect("UTF-8"), Missing::Refuse).expect("a store");
    let file = std::fs::File::create(folder.path().join("large")).expect("a file");
    let read = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(store.get("large"))
    };
    file.set_len(OBJECT_BYTES_MAX).expect("it is sparse");
    assert_eq!(
        read().map(|bytes| bytes.map_or(0, |bytes| bytes.len() as u64)),
        Ok(OBJECT_BYTES_MAX)
    );
    file.set_len(OBJECT_BYTES_MAX + 1).expect("it is sparse");
    let refused = read().expect_err("it is too long");
    assert!(refused.to_string().contains("67108865 bytes"), "{refused}");
}

// holds FOLDER-4
#[test]
fn a_pipe_in_the_place_looks_like_nothing_and_is_waited_for_by_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path().to_str().expect("UTF-8"), Missing::Refuse).expect("a store");
    let rights = rustix::fs::Mode::from(0o600);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path().join("pipe"),
        rustix::fs::FileType::Fifo,
        rights,
        0,
    )
    .expect("a pipe");
    assert_eq!(block_on(store.get("pipe")), Ok(None));
    assert_eq!(block_on(store.beginning("pipe", 9)), Ok(None));
    let made = block_on(store.create("pipe", Bytes::from_static(b"x")));
    assert_eq!(made, Ok(Created::Exists));
    assert_eq!(block_on(store.list("")), Ok(Vec::new()));
}

#[test]
fn a_folder_that_is_missing_or_closed_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing");
    let refused =
        open(missing.to_str().expect("UTF-8"), Missing::Refuse).map(|_| ()).expect_err("missing");
    assert!(
        refused.contains("there is no folder") && refused.contains("missing: check its name"),
        "{refused}"
    );
    let file = folder.path().join("file");
    std::fs::write(&file, b"x").expect("it is written");
    let refused =
        open(file.to_str().expect("UTF-8"), Missing::Make).map(|_| ()).expect_err("a file");
    assert!(refused.contains("cannot create"), "{refused}");
}

#[test]
fn how_long_a_request_took_is_no_part_of_its_error() {
    for (text, left) in [
        (
            "Error performing GET http://a/b in 204.46µs - HTTP error",
            "Error performing GET http://a/b - HTTP error",
        ),
        ("GET http://a/b in 1.5s, after 2 retries", "GET http://a/b, after 2 retries"),
        ("no file in 12 folders in /a in 3ms", "no file in 12 folders in /a"),
    ] {
        assert_eq!(without_time(text), left);
    }
}

// holds FOLDER-2, FOLDER-3
#[test]
fn a_folder_without_the_last_record_takes_nothing_whatever_its_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("place");
    let store = open(place.to_str().expect("UTF-8"), Missing::Make).expect("a store");
    let record = |number| crate::names::record(crate::ids::RecordNumber(number));
    let create = |number| block_on(store.create(&record(number), Bytes::from_static(b"x")));
    assert_eq!(create(7), Ok(Created::Made));
    // The folder itself stays, as one that is made anew has the number of the one before on ext4.
    let chain = place.join("chain");
    std::fs::remove_dir_all(&chain).expect("it goes");
    let get = || block_on(store.get(&record(7)));
    for refused in [create(8).map(|_| ()), get().map(|_| ())] {
        let why = refused.expect_err("an empty one is none").to_string();
        assert!(why.contains("is not there: ") && why.contains("place is empty"), "{why}");
    }
    std::fs::write(place.join("something"), b"x").expect("a file");
    let refused = |answer: Result<(), StoreError>| {
        let why = answer.expect_err("it is another folder").to_string();
        assert!(why.contains("is not there: ") && why.contains(&record(7)), "{why}");
    };
    refused(create(8).map(|_| ()));
    refused(block_on(store.put("part/1", Bytes::from_static(b"x"))));
    refused(block_on(store.delete(&[record(6)])));
    assert!(!chain.exists() && !place.join("part").exists());
    assert_eq!(get(), Ok(None), "what is there is told");
    // Where another writer has packed it this one has to meet that writer's records.
    let packs = place.join("pack");
    std::fs::create_dir(&packs).expect("a folder");
    let pack = |first, last| {
        let number = crate::ids::RecordNumber;
        std::fs::write(place.join(crate::names::pack(number(first), number(last))), b"x")
    };
    pack(1, 6).expect("a file");
    refused(create(8).map(|_| ()));
    pack(8, 9).expect("a file");
    assert_eq!(create(8), Ok(Created::Made));
}

/// An error of a store, as `object_store` hands it on: texts in texts.
#[derive(Debug)]
struct Says(String, Option<std::io::Error>);

impl std::fmt::Display for Says {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Says {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.1.as_ref().map(|io| io as _)
    }
}

/// What becomes of an error with these words, or this number of the system's.
fn becomes(words: &str, errno: Option<i32>) -> StoreError {
    let source = Says(words.to_owned(), errno.map(std::io::Error::from_raw_os_error));
    failure(&ObjectError::Generic { store: "a store", source: Box::new(source) }, str::to_owned)
}

#[test]
fn a_number_or_a_word_in_a_name_says_nothing_about_a_failure() {
    let record = crate::names::record(crate::ids::RecordNumber(1507));
    for words in [
        &*format!("Unable to open file /srv/app507/{record}: Input/output error (os error 5)"),
        "Unable to open file /srv/quota/forbidden/accessdenied/chain: it is stale",
        "Server returned non-2xx status code: 500 Internal Server Error: <Error><Code>InternalError</Code>\
         <Key>quota/507</Key><RequestId>1507</RequestId></Error>",
        "Server returned non-2xx status code: 503 Service Unavailable: quota 507, permission denied",
        "error sending request for url (http://forbidden.quota/507)",
        "Bulk delete request failed for key quota/507 (code: 403): it is busy (code: 503)",
        "DeleteObjects request failed for key quota: one more time (code: SlowDown)",
    ] {
        assert!(matches!(becomes(words, None), StoreError::Unavailable(_)), "{words}");
    }
    let denied = Box::new(Says("no right to delete quota/1507".to_owned(), None));
    let denied = ObjectError::PermissionDenied { path: "quota/507".to_owned(), source: denied };
    assert!(failure(&denied, str::to_owned).is_refusal());
    let full = |words, errno| matches!(becomes(words, errno), StoreError::Full(_));
    assert!(full("Unable to copy data to file", Some(28)) && full("the same", Some(122)));
    for words in [
        "Server returned non-2xx status code: 507 Insufficient Storage: ",
        "Server returned non-2xx status code: 400 Bad Request: <Error><Code>XMinioStorageFull</Code></Error>",
        "Server returned error response: <Error><Code>QuotaExceeded</Code></Error>",
    ] {
        assert!(full(words, None), "{words}");
    }
    for errno in [1, 13, 30] {
        let becomes = becomes("Unable to delete file /srv/app507/quota", Some(errno));
        assert!(matches!(becomes, StoreError::Denied(_)), "{becomes}");
    }
    assert!(matches!(
        becomes("Unable to delete file /srv/app", Some(5)),
        StoreError::Unavailable(_)
    ));
}

// holds REFUSED-1
#[test]
fn a_part_of_a_request_that_is_refused_is_a_refusal() {
    for (service, code) in [
        ("Bulk delete", "409"),
        ("Bulk delete", "403"),
        ("Bulk delete", "401"),
        ("DeleteObjects", "AccessDenied"),
        ("DeleteObjects", "ObjectLocked"),
    ] {
        let words = format!("{service} request failed for key chain/1: a policy (code: {code})");
        let why = becomes(&words, None);
        assert!(matches!(why, StoreError::Denied(_)) && why.is_refusal(), "{words}");
    }
    let words = "Error performing bulk delete request: Error performing POST";
    assert!(!becomes(words, None).is_refusal());
    let words = "Server returned non-2xx status code: 403 Forbidden: ";
    assert!(becomes(words, None).is_refusal(), "all of a request, or a list");
}

/// A server that gives each request one answer; returns its port.
fn answers(answer: String) -> u16 {
    use std::io::{BufRead as _, Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = std::io::BufReader::new(stream);
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                let lower = line.to_lowercase();
                let bytes = lower.strip_prefix("content-length:").map(str::trim);
                length = bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(length);
                line.clear();
            }
            let _ = reader.by_ref().take(length).read_to_end(&mut Vec::new());
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    port
}

fn answer(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// What `object_store` makes of the answers of services.
#[test]
fn what_services_answer_is_understood() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let store =
        |bucket: Arc<dyn ObjectStore>| Objects { inner: Inner::Bucket(bucket), deletes_at_once: 1 };
    let names = ["chain/quota-507".to_owned()];
    let part = "--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\n\
         HTTP/1.1 409 This operation is not permitted as the blob is immutable due to a policy.\r\n\
         x-ms-error-code: BlobImmutableDueToPolicy\r\n\r\n\r\n--b--\r\n";
    let port = answers(answer("202 Accepted", "multipart/mixed; boundary=b", part));
    let azure = MicrosoftAzureBuilder::new().with_account("a").with_container_name("quota");
    let azure = azure.with_access_key("aaaa").with_allow_http(true).with_retry(retry.clone());
    let azure = azure.with_endpoint(format!("http://127.0.0.1:{port}")).build().expect("a client");
    let why = block_on(store(Arc::new(azure)).delete(&names)).expect_err("it is refused");
    assert!(why.is_refusal() && why.to_string().contains("immutable due to a policy"), "{why}");
    for (status, code, kind) in [
        ("403 Forbidden", "AccessDenied", "denied access"),
        ("403 Forbidden", "QuotaExceeded", "has no space left"),
        ("507 Insufficient Storage", "Other", "has no space left"),
        ("503 Slow Down", "SlowDown", "does not answer"),
        ("500 Internal Server Error", "InternalError", "does not answer"),
    ] {
        let body = format!("<Error><Code>{code}</Code><Key>507/quota/forbidden</Key></Error>");
        let port = answers(answer(status, "application/xml", &body));
        let s3 = AmazonS3Builder::new().with_bucket_name("forbidden").with_region("us-east-1");
        let s3 = s3.with_access_key_id("quota").with_secret_access_key("507").with_allow_http(true);
        let s3 = s3.with_endpoint(format!("http://127.0.0.1:{port}")).with_retry(retry.clone());
        let s3 = store(Arc::new(s3.build().expect("a client")));
        let made = block_on(s3.create(&names[0], Bytes::from_static(b"x")));
        let why = made.expect_err("it fails").to_string();
        assert!(why.starts_with(kind), "{status}, {code}: {why}");
        let listed = block_on(s3.list("quota/")).expect_err("it fails").to_string();
        assert!(listed.starts_with(kind), "{status}, {code}: {listed}");
        let deleted = block_on(s3.delete(&names)).expect_err("it fails").to_string();
        assert!(deleted.starts_with(kind), "{status}, {code}: {deleted}");
    }
}

#[test]
fn a_call_that_is_dropped_closes_its_folder_at_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().canonicalize().expect("a path").join("place");
    let store = open(place.to_str().expect("UTF-8"), Missing::Make).expect("a store");
    let open_ones = || {
        let links = std::fs::read_dir("/proc/self/fd").expect("a list").flatten();
        links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|at| at == place)).count()
    };
    let name = crate::names::record(crate::ids::RecordNumber(1));
    block_on(async {
        assert_eq!(store.create(&name, Bytes::from(vec![7; 1 << 20])).await, Ok(Created::Made));
        for round in 0..30_u64 {
            let names = ["chain/none".to_owned()];
            let calls: [Later<'_, ()>; 4] = [
                Box::pin(async { drop(store.get(&name).await) }),
                Box::pin(async { drop(store.list("chain/").await) }),
                Box::pin(async { drop(store.put("part/1", Bytes::from_static(b"x")).await) }),
                Box::pin(async { drop(store.delete(&names).await) }),
            ];
            for mut call in calls {
                // At its beginning, and in its midst.
                let moment = Duration::from_micros(50 * (round % 5));
                let _ = tokio::time::timeout(moment, &mut call).await;
            }
        }
        let begun = Instant::now();
        while open_ones() > 0 {
            assert!(begun.elapsed().as_secs() < 20, "{} are open", open_ones());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}
