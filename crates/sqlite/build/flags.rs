//! How SQLite is compiled: one list, for the spliced and for the stock library.
//!
//! The options are those of Debian's `libsqlite3-0`, so that the library can take its place, plus
//! SNAPSHOT and DBPAGE_VTAB. One of Debian's is missing: UPDATE_DELETE_LIMIT needs parser
//! tables which an amalgamation does not carry.
//!
//! Both libraries must come from the same list: the tests compare `PRAGMA compile_options`, and every
//! measurement of one against the other depends on it.

use std::path::Path;

/// Preprocessor definitions: name, and value if it has one.
pub const DEFINES: &[(&str, Option<&str>)] = &[
    // Debian's choice of features.
    ("SQLITE_SECURE_DELETE", None),
    ("SQLITE_ENABLE_COLUMN_METADATA", None),
    ("SQLITE_ENABLE_FTS3", None),
    ("SQLITE_ENABLE_FTS3_PARENTHESIS", None),
    ("SQLITE_ENABLE_FTS3_TOKENIZER", None),
    ("SQLITE_ENABLE_FTS4", None),
    ("SQLITE_ENABLE_FTS5", None),
    ("SQLITE_ENABLE_RTREE", None),
    ("SQLITE_ENABLE_SESSION", None),
    ("SQLITE_ENABLE_PREUPDATE_HOOK", None),
    ("SQLITE_ENABLE_DBSTAT_VTAB", None),
    ("SQLITE_ENABLE_STMTVTAB", None),
    ("SQLITE_ENABLE_UNLOCK_NOTIFY", None),
    ("SQLITE_ENABLE_LOAD_EXTENSION", None),
    ("SQLITE_ENABLE_MATH_FUNCTIONS", None),
    ("SQLITE_SOUNDEX", None),
    ("SQLITE_LIKE_DOESNT_MATCH_BLOBS", None),
    ("SQLITE_OMIT_LOOKASIDE", None),
    ("SQLITE_USE_URI", None),
    ("SQLITE_THREADSAFE", Some("1")),
    ("SQLITE_TEMP_STORE", Some("1")),
    ("SQLITE_MAX_SCHEMA_RETRY", Some("25")),
    ("SQLITE_MAX_VARIABLE_NUMBER", Some("250000")),
    ("SQLITE_MAX_DEFAULT_PAGE_SIZE", Some("32768")),
    // Beyond Debian's.
    ("SQLITE_ENABLE_SNAPSHOT", None),
    ("SQLITE_ENABLE_DBPAGE_VTAB", None),
    // What Debian's configure run finds on Linux.
    ("HAVE_ISNAN", Some("1")),
    ("HAVE_USLEEP", Some("1")),
    ("HAVE_LOCALTIME_R", Some("1")),
    ("HAVE_GMTIME_R", Some("1")),
    ("HAVE_FDATASYNC", Some("1")),
    ("HAVE_UTIME", Some("1")),
    ("HAVE_STRCHRNUL", Some("1")),
    // Only the API is visible outside: see also the version script in `exports.rs`.
    ("SQLITE_API", Some("__attribute__((visibility(\"default\")))")),
];

/// A compiler set up for the amalgamation; `out` receives the object file.
///
/// Optimised whatever cargo's profile says: an -O0 SQLite makes every test slow, and
/// the two libraries must not differ in it.
pub fn compiler(out: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .no_default_flags(true)
        .warnings(false)
        .out_dir(out)
        .flag("-O2")
        .flag("-g1")
        .flag("-fPIC")
        .flag("-fvisibility=hidden")
        .flag("-fno-strict-aliasing")
        .flag("-pthread");
    for (name, value) in DEFINES {
        build.define(name, *value);
    }
    build
}
