//! Compiles the recorder of file operations that power cuts are made of; see `src/powercut`.

use std::path::Path;
use std::process::Command;

fn main() {
    let source = "src/powercut/recorder.c";
    println!("cargo::rerun-if-changed={source}");
    let folder = std::env::var("OUT_DIR").expect("cargo names a folder");
    let object = Path::new(&folder).join("recorder.so");
    let compiler = cc::Build::new().get_compiler();
    let mut command = Command::new(compiler.path());
    command.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(&object).arg(source);
    let status = command.status().expect("the C compiler runs");
    assert!(status.success(), "{command:?} failed");
    println!("cargo::rustc-env=PLAIT_RECORDER={}", object.display());
}
