//! A restored database is the primary's: its rows at each moment, its pages at rest. And where the
//! chain, the disk or the process fails, nothing stands under its name.
//!
//! The chain is written by the test, from the files of a living database (`primary.rs`, `chain.rs`).

mod chain;
mod hostile;
mod primary;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plait_client::{Library, OpenFlags};
use plait_replicate::ids::RecordNumber;
use plait_tests::differential::dice::Dice;
use plait_tests::differential::schema::Schema;
use plait_tests::differential::statements::{change, rows_at_once, schema_change};
use primary::Primary;
use tempfile::TempDir;

/// What differs at rest: the salt, and the count of the file's transactions.
const MAY_DIFFER: [std::ops::Range<usize>; 3] = [72..76, 24..28, 92..96];

/// A folder with a database, its replica, and what was restored.
struct Site {
    dir: TempDir,
}

impl Site {
    fn new() -> Site {
        Site { dir: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn primary(&self, birth: &str) -> Primary {
        let library = plait_replicate::library::versions();
        Primary::begin(&self.path("app.db"), &self.path("replica"), birth, &library)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
        command.arg("restore").arg(self.path("replica")).arg("-o").arg(self.path("new.db"));
        command.args(arguments);
        command
    }

    /// Restores to `new.db`.
    fn restore(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it runs")
    }

    /// Restores, and returns the rows; the file is removed.
    fn restored_rows(&self, arguments: &[&str]) -> String {
        let output = self.restore(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        self.take_rows()
    }

    /// The rows of `new.db`, which is removed.
    fn take_rows(&self) -> String {
        let path = self.path("new.db");
        let found = Library::linked().open_with(&path, OpenFlags::ReadWrite).expect("it opens");
        let rows = primary::rows(&found);
        assert_eq!(found.text("PRAGMA integrity_check").expect("an answer"), "ok");
        found.close().expect("it closes");
        std::fs::remove_file(path).expect("it is removed");
        rows
    }

    /// Names that begin with `new.db`.
    fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).expect("a folder").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("new.db")).collect()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn at_rest(path: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(path).expect("a file at rest");
    MAY_DIFFER.into_iter().for_each(|place| bytes[place].fill(0));
    bytes
}

/// What a database had behind a record.
type Moments = Vec<(RecordNumber, String)>;

fn note(primary: &Primary, moments: &mut Moments) {
    let number = primary.chain.number();
    if moments.last().is_none_or(|(last, _)| *last < number) {
        moments.push((number, primary.rows()));
    }
}

/// A life of a database: schemas of all kinds, changes, merges, snapshots, sessions.
fn life(site: &Site, seed: u64, steps: usize) -> (Primary, Moments) {
    let mut dice = Dice::new(seed);
    let mut schema = Schema::default();
    let page_size = *dice.pick(&[512, 1024, 4096, 8192, 65536]);
    let encoding = *dice.pick(&["UTF-8", "UTF-8", "UTF-16le"]);
    let auto_vacuum = *dice.pick(&[0, 0, 1, 2]);
    let mut primary = site.primary(&format!(
        "PRAGMA encoding='{encoding}'; PRAGMA page_size={page_size}; PRAGMA auto_vacuum={auto_vacuum}"
    ));
    let mut moments = Moments::new();
    note(&primary, &mut moments);
    let mut made = Vec::new();
    for _ in 0..3 {
        made.extend(schema.create_table(&mut dice, ""));
    }
    made.extend(schema.create_full_text(&mut dice));
    made.extend(schema.create_rtree(&mut dice));
    for sql in made {
        primary.exclusive(&sql);
        note(&primary, &mut moments);
    }
    for _ in 0..steps {
        match dice.roll(32) {
            0 => {
                for sql in schema_change(&mut dice, &mut schema) {
                    primary.exclusive(&sql);
                    note(&primary, &mut moments);
                }
            }
            1 => primary.exclusive("VACUUM"),
            2 => primary.snapshot(dice.one_in(2)),
            3 => primary.renew(),
            4..8 => primary.merge(),
            8..14 => {
                primary.run(&rows_at_once(&mut dice, &schema, 40, "hex(zeroblob(i * 60)) || i"))
            }
            14..18 => {
                let (one, other) = (change(&mut dice, &schema), change(&mut dice, &schema));
                primary.run(&format!("BEGIN CONCURRENT; {one}; {other}; COMMIT"));
                primary.run("ROLLBACK");
            }
            18..22 => primary.ship(),
            _ => primary.run(&change(&mut dice, &schema)),
        }
        if dice.one_in(3) {
            primary.ship();
            note(&primary, &mut moments);
        }
    }
    primary.ship();
    note(&primary, &mut moments);
    (primary, moments)
}

// holds CHAIN-7, NEWFILE-1, REPLAY-2
#[test]
fn a_restored_database_has_the_primarys_rows_at_each_moment_and_its_pages_at_rest() {
    let seeds = std::env::var("PLAIT_TORTURE_SEED").ok().and_then(|seed| seed.parse().ok());
    let first: u64 = seeds.unwrap_or(1);
    let count: u64 =
        std::env::var("PLAIT_RESTORE_LIVES").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    for seed in first..first + count {
        let site = Site::new();
        let (mut primary, moments) = life(&site, seed, 60);
        for (number, rows) in moments.iter().step_by(5).chain(moments.last()) {
            let restored = site.restored_rows(&["--record", &number.to_string(), "--verify"]);
            assert!(restored == *rows, "seed {seed}, record {number}: other rows");
        }
        // The last close merges what is left, as a restore does.
        primary.end();
        let output = site.restore(&[]);
        assert!(output.status.success(), "seed {seed}: {}", said(&output));
        let (own, restored) = (at_rest(&site.path("app.db")), at_rest(&site.path("new.db")));
        let differs = own.iter().zip(&restored).position(|(one, other)| one != other);
        assert_eq!((own.len(), None), (restored.len(), differs), "seed {seed}: other pages");
        assert_eq!(site.left(), ["new.db"]);
    }
}
