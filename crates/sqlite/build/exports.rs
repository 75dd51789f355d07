//! What a shared object exports: the API of SQLite and of Plait, nothing else.

/// Name patterns (shell globs, as a linker's version script takes them) of exported symbols.
pub const EXPORTED: &[&str] = &[
    "sqlite3_*",
    "sqlite3session_*",
    "sqlite3changeset_*",
    "sqlite3changegroup_*",
    "sqlite3rebaser_*",
    "plait_*",
];

/// The soname that programs linked against Debian's library ask the loader for.
pub const SONAME: &str = "libsqlite3.so.0";

/// A version script for `ld --version-script` that hides everything but [`EXPORTED`].
pub fn version_script() -> String {
    format!("{{\n  global: {};\n  local: *;\n}};\n", EXPORTED.join("; "))
}
