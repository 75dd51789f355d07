//! `docs/runbook.md` quotes messages of the library: each of them stands in the sources.
//!
//! Messages are the code in the first cell of a row, in a table whose first column is headed "message". The parts of one between `...` are looked
//! for one by one, in texts of one file.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::Finding;
use super::sources::{Language, SourceFile};

const PAGE: &str = "docs/runbook.md";
/// Where messages come from.
const SOURCES: &[&str] = &["crates/engine/src", "crates/sqlite/src", "crates/sqlite/csrc"];
/// What stands for a part that differs.
const DIFFERS: &str = "...";
/// A message with no part that is as long says nothing.
const LENGTH_MIN: usize = 12;

/// Looks for every message of the page.
pub fn check(root: &Path, files: &[SourceFile]) -> Result<Vec<Finding>> {
    let page = std::fs::read_to_string(root.join(PAGE)).context("cannot read the runbook")?;
    let is_source = |file: &&SourceFile| SOURCES.iter().any(|of| file.path.starts_with(of));
    let texts: Vec<_> = files.iter().filter(is_source).map(texts).collect();
    Ok(findings(&page, &texts))
}

fn findings(page: &str, texts: &[String]) -> Vec<Finding> {
    let messages = messages(page);
    let missing =
        messages.iter().filter(|(_, message)| !texts.iter().any(|text| says(text, message)));
    let find = |line, what| Finding { path: PathBuf::from(PAGE), line, what };
    let mut findings: Vec<_> = missing
        .map(|(line, message)| find(*line, format!("the sources do not say: {message}")))
        .collect();
    if messages.is_empty() {
        findings.push(find(0, "quotes no message".to_owned()));
    }
    findings
}

/// Messages with their lines.
fn messages(page: &str) -> Vec<(usize, &str)> {
    let mut is_table_of_messages = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        let Some(row) = line.strip_prefix("| ") else {
            is_table_of_messages &= line.starts_with('|');
            continue;
        };
        if row.starts_with("message |") {
            is_table_of_messages = true;
        } else if is_table_of_messages {
            let cell = row.split_once(" | ").map_or(row, |(cell, _)| cell);
            let quoted: Vec<_> = cell.split('`').skip(1).step_by(2).collect();
            // A row without a message has none that could be found.
            let quoted = if quoted.is_empty() { vec![cell] } else { quoted };
            found.extend(quoted.into_iter().map(|message| (number, message)));
        }
    }
    found
}

fn says(text: &str, message: &str) -> bool {
    let parts = || message.split(DIFFERS).map(str::trim).filter(|part| !part.is_empty());
    parts().any(|part| part.len() >= LENGTH_MIN) && parts().all(|part| text.contains(part))
}

/// The texts of a file as they are said: lines that go on are put together, and quotes are not escaped.
fn texts(file: &SourceFile) -> String {
    let mut text = String::new();
    let mut goes_on = false;
    let mut lines = file.text.lines().peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().map_or("", |next| next.trim_start());
        let (begin, end) = match file.language {
            Language::C if next.starts_with('"') => ("\"", "\""),
            Language::C => ("\"", "\n"),
            _ => ("", "\\"),
        };
        // Behind the indentation of a text that goes on.
        let line =
            if goes_on { line.trim_start().strip_prefix(begin).unwrap_or(line) } else { line };
        let piece = line.strip_suffix(end);
        goes_on = piece.is_some();
        text.push_str(piece.unwrap_or(line));
        if !goes_on {
            text.push('\n');
        }
    }
    text.replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_where_it_is_made_and_missed_where_it_is_not() {
        let texts = [
            "the log {path} is damaged at position {at}: {why}".to_owned(),
            "another file".to_owned(),
        ];
        let page = |message: &str| format!("| message | cause |\n|---|---|\n| `{message}` | x |\n");
        let lines = |message: &str| {
            findings(&page(message), &texts).iter().map(|f| f.line).collect::<Vec<_>>()
        };
        assert_eq!(lines("is damaged at position"), [0; 0]);
        assert_eq!(lines("the log ... is damaged at position ..."), [0; 0]);
        assert_eq!(lines("the log ... is broken at position ..."), [3]);
        assert_eq!(
            lines("is damaged at position`, `is broken at position"),
            [3],
            "each of several"
        );
        assert_eq!(lines("the log"), [3], "too short to say anything");
        assert_eq!(lines("is damaged at position ... another file"), [3], "of one file");
        assert_eq!(findings("| stock SQLite says |\n| `what` |\n", &texts)[0].line, 0);
    }

    #[test]
    fn texts_that_go_on_are_put_together() {
        let said = |language, text: &str| {
            texts(&SourceFile { path: PathBuf::new(), language, text: text.to_owned() })
        };
        assert_eq!(
            said(Language::Rust, "\"one \\\n    two \\\n    three\"\n"),
            "\"one two three\"\n"
        );
        assert_eq!(said(Language::C, "f(\"one \"\n  \"\\\"two\\\"\");\n"), "f(\"one \"two\"\");\n");
    }
}
