//! The command line itself: help, versions, wrong usage, colours.

mod plait;

use plait::{command, finish};

const COMMANDS: &[&str] = &[
    "run", "enable", "disable", "status", "top", "metrics", "check", "doctor", "backup", "restore",
    "recover", "explain", "demo",
];

#[test]
fn help_names_every_command_and_the_exit_codes() {
    finish(&mut command(&["--help"])).done().says(COMMANDS).says(&["Examples:", "Exit codes:"]);
}

#[test]
fn help_of_every_command_has_an_example() {
    for name in COMMANDS {
        let example = format!("  plait {name}");
        finish(&mut command(&[name, "--help"])).done().says(&["Examples:", &example]);
    }
}

#[test]
fn hidden_commands_stay_hidden() {
    let help = finish(&mut command(&["--help"])).done();
    assert!(!help.out.contains("demo-"), "{help:?}");
}

#[test]
fn the_version_names_plait_and_its_sqlite() {
    let said = finish(&mut command(&["--version"])).done();
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines[0], concat!("plait ", env!("CARGO_PKG_VERSION")));
    assert!(lines[1].starts_with("SQLite 3."), "{lines:?}");
    assert_eq!(
        lines[1].split(' ').next_back().map(str::len),
        Some(64),
        "the hash of the source id"
    );
    assert_eq!(finish(&mut command(&["-V"])).done().out, said.out);
}

#[test]
fn wrong_usage_exits_with_2() {
    let wrong: &[&[&str]] = &[
        &[],
        &["no-such-command"],
        &["run"],
        &["check"],
        &["disable", "a.db", "--to", "concurrent"],
        &["status", "a.db", "--interval", "1"],
        &["status", "a.db", "--watch", "--interval", "0"],
        &["recover", "a.db", "--yes"],
        &["backup", "a.db"],
        &["doctor"],
        &["restore", "a.db"],
        &["restore", "a.db", "b.db", "--to", "memory"],
        &["backup", "a.db", "b.db", "--check", "a little"],
        &["demo", "--seconds", "-1"],
        &["demo", "--writers", "0"],
    ];
    for args in wrong {
        let ran = finish(&mut command(args));
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{args:?}: {ran:?}");
    }
}

#[test]
fn a_missing_file_is_named_with_what_to_do() {
    for name in ["enable", "disable", "status", "top", "check", "recover", "doctor"] {
        finish(&mut command(&[name, "/no/such/dir/app.db"]))
            .failed()
            .says(&["/no/such/dir/app.db", "path"]);
    }
}

#[test]
fn a_file_of_another_kind_is_refused() {
    for name in ["enable", "disable", "status", "top", "check", "recover", "doctor"] {
        finish(&mut command(&[name, "/bin/sh"]))
            .failed()
            .says(&["/bin/sh", "not an SQLite database"]);
        finish(&mut command(&[name, "/tmp"])).failed().says(&["/tmp", "is a directory"]);
    }
}

#[test]
fn colours_are_for_terminals_or_on_demand() {
    let plain = finish(&mut command(&["check", "/no/such/file"])).failed();
    assert!(!plain.err.contains('\x1b'), "{plain:?}");
    let forced = finish(command(&["check", "/no/such/file"]).env("CLICOLOR_FORCE", "1"));
    assert!(forced.err.contains('\x1b'), "{forced:?}");
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_a_reader_that_goes_away_is_none() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let Some(scene) = plait::Scene::concurrent() else { return };
    let commands: [&[&str]; 11] = [
        &["status", "app.db"],
        &["top", "app.db"],
        &["metrics", "app.db"],
        &["status", "--json", "app.db"],
        &["check", "app.db"],
        &["doctor", "app.db"],
        &["recover", "app.db"],
        &["enable", "app.db"],
        &["backup", "app.db", "copy.db"],
        &["--version"],
        &["--help"],
    ];
    for args in commands {
        let ran = finish(command(args).current_dir(scene.folder()).stdout(full()));
        let ran = ran.failed().says(&["cannot write to the standard output", "no space left"]);
        assert!(!ran.err.contains("panicked"), "{args:?}: {ran:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let args = if args[0] == "backup" { &["status", "app.db"] } else { args };
        let ran = finish(command(args).current_dir(scene.folder()).stdout(writer));
        assert!(ran.err.is_empty(), "{args:?}: {ran:?}");
    }
}

#[test]
fn links_that_lead_through_each_other_are_told() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("b.db", folder.path().join("a.db")).unwrap();
    std::os::unix::fs::symlink("a.db", folder.path().join("b.db")).unwrap();
    for name in ["status", "top", "check", "recover", "doctor", "disable"] {
        finish(command(&[name, "a.db"]).current_dir(folder.path()))
            .failed()
            .says(&["too many levels of symbolic links", "remove the one that is wrong"]);
    }
}
