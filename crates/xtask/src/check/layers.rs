//! The layers of the engine: nothing imports from above. ARCHITECTURE.md draws them and says what each is for.

use std::path::Path;

use super::Finding;
use super::sources::SourceFile;

const SOURCES: &str = "crates/engine/src";

/// From the bottom up; those of one line are one layer.
const LAYERS: &[&[&str]] = &[
    &[
        "ids",
        "error",
        "crash_point",
        "fail_point",
        "fault",
        "filesystem",
        "memory",
        "model",
        "random",
    ],
    &["storage"],
    &["sync"],
    &["log", "memtable"],
    &["shm"],
    &["base", "belongs", "deleted", "events", "pages", "replay", "replica", "session", "several"],
    &["database"],
    &["upkeep"],
    &["commit"],
    &["txn"],
    &["attach", "registry"],
    &["follower", "ship"],
];

/// Applies the rule to one file. Tests may look at everything.
pub fn check(file: &SourceFile) -> Vec<Finding> {
    let Ok(inside) = file.path.strip_prefix(SOURCES) else { return Vec::new() };
    if inside == Path::new("lib.rs") || inside.iter().any(|part| part == "tests") {
        return Vec::new();
    }
    let find = |line, what| Finding { path: file.path.clone(), line, what };
    let room = inside.iter().next().and_then(|first| Path::new(first).file_stem()?.to_str());
    let Some(own) = room.and_then(layer) else {
        return vec![find(0, "is in no layer of the engine".to_owned())];
    };
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let lines = (1..).zip(file.text.lines()).filter(|(_, line)| is_code(line));
    lines
        .filter_map(|(number, line)| {
            let above = rooms(line).find(|room| layer(room).is_some_and(|theirs| theirs > own))?;
            Some(find(number, format!("imports from a layer above it: {above}")))
        })
        .collect()
}

fn layer(room: &str) -> Option<usize> {
    LAYERS.iter().position(|rooms| rooms.contains(&room))
}

/// The rooms that a line names.
fn rooms(line: &str) -> impl Iterator<Item = &str> {
    let named = line.split("crate::").skip(1);
    named.filter_map(|path| path.split(|c: char| !c.is_ascii_lowercase() && c != '_').next())
}

#[cfg(test)]
mod tests {
    use super::super::sources::Language;
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let path = Path::new(SOURCES).join(path);
        let file = SourceFile { path, language: Language::Rust, text: text.to_owned() };
        check(&file).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn an_import_goes_down_or_stays() {
        let text = "use crate::shm::layout::Control;\nuse crate::database::Database;\n";
        assert!(found("upkeep/merge.rs", text).is_empty());
        assert!(found("database/right.rs", text).is_empty());
    }

    #[test]
    fn an_import_from_above_is_found_where_it_stands() {
        let text = "//! As crate::txn does.\nuse crate::ids::Lsn;\nuse crate::shm::layout;\n";
        assert_eq!(found("log/ring.rs", text), [3]);
        assert_eq!(found("session.rs", "\nlet a = crate::database::log_path();\n"), [2]);
        assert_eq!(found("something.rs", ""), [0], "it has to have a place");
        assert!(found("log/tests/mod.rs", text).is_empty());
    }
}
