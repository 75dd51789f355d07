//! Compiles `csrc/bdb.c`, if Berkeley DB's header is here; otherwise the program is built without that engine.
//!
//! Nothing is linked: the library is found at run time.

use std::path::Path;

/// Where db.h can be, 5.3's own folder first.
const FOLDERS: &[&str] =
    &["/usr/include/db5.3", "/usr/local/include", "/usr/include", "/usr/include/libdb"];

/// Whether a header is that of Berkeley DB 5.3.
fn is_5_3(header: &Path) -> bool {
    let text = std::fs::read_to_string(header).unwrap_or_default();
    let defines = |name: &str, value: &str| {
        text.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words == ["#define", name, value]
        })
    };
    defines("DB_VERSION_MAJOR", "5") && defines("DB_VERSION_MINOR", "3")
}

fn main() {
    println!("cargo::rustc-check-cfg=cfg(bdb)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=csrc");
    let found = FOLDERS.iter().map(Path::new).find(|folder| is_5_3(&folder.join("db.h")));
    let Some(folder) = found else {
        // So that it is looked for again when something has been installed.
        println!("cargo::rerun-if-changed=/usr/include");
        return;
    };
    println!("cargo::rerun-if-changed={}", folder.join("db.h").display());
    println!("cargo::rustc-cfg=bdb");
    cc::Build::new().include(folder).file("csrc/bdb.c").compile("bench_bdb");
}
