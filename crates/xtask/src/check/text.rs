//! Rules about a file as a text: length, header, name, leftover notes.

use super::Finding;
use super::sources::{Language, SourceFile};

/// Files aim at 500 lines and stop here.
const LINES_MAX: usize = 800;

/// Names that say nothing about what a file is for.
const EMPTY_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "misc", "common"];

/// Notes to oneself that belong into an issue. Split so that this file passes its own rule.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Applies the rules to one file.
pub fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line, what: String| {
        findings.push(Finding { path: file.path.clone(), line, what });
    };

    let length = file.text.lines().count();
    if length > LINES_MAX {
        find(0, format!("{length} lines; at most {LINES_MAX}"));
    }
    let header = match file.language {
        Language::Rust => "//!",
        Language::C => "/*",
        Language::Python | Language::Prose => return findings,
    };
    if !file.text.starts_with(header) {
        find(1, "does not begin by saying what it is for".to_owned());
    }
    let stem = file.path.file_stem().and_then(|stem| stem.to_str());
    if stem.is_some_and(|stem| EMPTY_NAMES.contains(&stem)) {
        find(0, "is named after no concept".to_owned());
    }
    for (number, line) in (1..).zip(file.text.lines()) {
        if let Some(note) = NOTES.iter().find(|note| has_word(line, note)) {
            find(number, format!("{note} left in the source"));
        }
        if line.ends_with([' ', '\t']) {
            find(number, "white space at the end of the line".to_owned());
        }
    }
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn found(path: &str, language: Language, text: &str) -> Vec<String> {
        let file = SourceFile { path: PathBuf::from(path), language, text: text.to_owned() };
        check(&file).into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn a_file_in_order_passes() {
        assert!(found("a/log.rs", Language::Rust, "//! The log.\n").is_empty());
        assert!(found("a/log.c", Language::C, "/*\n** The log.\n*/\n").is_empty());
    }

    #[test]
    fn each_rule_finds_its_breach() {
        let long = format!("//! Long.\n{}", "\n".repeat(LINES_MAX));
        assert_eq!(found("a.rs", Language::Rust, &long), ["801 lines; at most 800"]);
        assert_eq!(found("a.rs", Language::Rust, "mod b;\n").len(), 1);
        assert_eq!(found("utils.rs", Language::Rust, "//! A.\n").len(), 1);
        let note = format!("//! A.\n// {}: later\n", NOTES[0]);
        assert_eq!(found("a.rs", Language::Rust, &note).len(), 1);
        assert_eq!(found("a.rs", Language::Rust, "//! A. \n").len(), 1);
    }
}
