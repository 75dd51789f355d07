//! Outputs that nobody reads any more: what is printed is lost, and the work is done.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::disks::trouble;
use crate::following::{agrees, begun, is_told, nap, replica};
use crate::processes::{Process, open};
use crate::stage::Stage;

fn without_reader() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn command(words: &[&Path]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
    command.args(words).stdout(Stdio::null());
    command
}

/// A sidecar or a follower, with a standard error that nobody reads.
fn unheard(word: &str, stage: &Stage, database: &Path) -> Process {
    let mut command = command(&[Path::new(word), &stage.url, database]);
    command.args(["--interval", "50ms"]).stderr(without_reader());
    Process::of(command.spawn().expect("a process"))
}

#[test]
fn a_command_whose_reader_has_gone_away_has_done_its_work_and_says_how_that_went() {
    let (stage, sidecar) = begun();
    stage.agrees();
    let made = stage.folder.path().join("made.db");
    // As other commands end of which nothing but the output is asked. A restore is asked for a database.
    for (word, code) in [("probe", 141), ("replicas", 141), ("restore", 0)] {
        let mut asks = command(&[Path::new(word), &stage.url]);
        if word == "restore" {
            asks.arg("-o").arg(&made);
        }
        let output = asks.stdout(without_reader()).stderr(Stdio::piped()).output();
        let output = output.expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        // Where nobody sees a bar, each of the last steps of a restore has a line.
        let expected = match word {
            "restore" => "merging the rest\nmoving it into place\n",
            _ => "",
        };
        assert_eq!((output.status.code(), &*said), (Some(code), expected), "{word}");
    }
    assert!(made.exists());
    std::fs::remove_file(&made).expect("it is there");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("it opens");
    let words = [Path::new("restore"), &stage.url, Path::new("-o"), &made];
    let status = command(&words).stdout(full).stderr(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()) && made.exists());
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_restore_whose_standard_error_has_no_reader_makes_the_database() {
    let (stage, sidecar) = begun();
    stage.agrees();
    let made = stage.folder.path().join("made.db");
    let words = [Path::new("restore"), &stage.url, Path::new("-o"), &made];
    let restore = || command(&words).stderr(without_reader()).status().expect("it runs");
    assert_eq!(restore().code(), Some(0));
    assert!(made.exists());
    assert_eq!(restore().code(), Some(1), "the name is taken, and nobody hears of it");
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_sidecar_and_a_follower_whose_standard_error_has_no_reader_outlive_what_they_say() {
    let stage = Stage::new();
    let keeper = open(&stage.database);
    keeper.execute("INSERT INTO t VALUES(1, 'first')").expect("it commits");
    let sidecar = unheard("run", &stage, &stage.database);
    let follower = unheard("follow", &stage, &replica(&stage));
    stage.agrees();
    agrees(&stage);
    let away = stage.folder.path().join("away");
    std::fs::rename(&stage.url, &away).expect("it goes");
    keeper.execute("INSERT INTO t VALUES(3, 'meanwhile')").expect("it commits");
    assert!(trouble(&stage).contains("there is no folder"));
    is_told(&stage, "there is no folder ");
    nap(500);
    std::fs::rename(&away, &stage.url).expect("it comes back");
    stage.agrees();
    agrees(&stage);
    assert_eq!(follower.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}
