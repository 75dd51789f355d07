//! The drill of docs/replication.md: a database that programs write to is shipped, lost, restored and compared.

use plait_tests::paths;
use std::process::Command;

#[test]
fn a_lost_machine_is_restored_from_what_was_shipped() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/replication/drill.sh");
    let shell = paths::shell().expect("a shell");
    let programs = shell.parent().expect("it lies in a folder");
    if !programs.join("plait-replicate").exists() {
        eprintln!("skipped: {} has no plait-replicate", programs.display());
        return;
    }
    let mut drill = Command::new("sh");
    drill.arg(script).arg("3").env("PLAIT_BIN", programs).env_remove("URL");
    let output = drill.output().expect("sh runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    assert!(said.contains("drill: restored "), "{said}");
    assert!(said.contains("drill: the replica has the same "), "{said}");
}
