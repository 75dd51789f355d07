//! `plait explain`: the rows of `docs/runbook.md` for a message, a code, an event or an alert.
//!
//! The page is in the command, so a user without the sources has it. A row belongs to a text if one of the quotes in its first cell is
//! in the text: the parts of a quote between `...`, one after the other, or most of them. A part of a quote finds its row, too.

use std::ffi::OsString;

use clap::Args;

use crate::console::{HEADING, styled};
use crate::failure::{self, Failure, Result};

const PAGE: &str = include_str!("../../../docs/runbook.md");
/// What stands for a part that differs.
const DIFFERS: &str = "...";
/// The least length of a part of a message that finds a row, and of a part of a row that is found in a cut message.
const PART_MIN: usize = 4;
const CUT_MIN: usize = 12;
/// What a cell says that repeats the one above it.
const SAME: &str = "the same";
/// SQLite's primary codes that have a section.
const CODES: [(i32, &str); 6] = [
    (5, "SQLITE_BUSY"),
    (10, "SQLITE_IOERR"),
    (11, "SQLITE_CORRUPT"),
    (13, "SQLITE_FULL"),
    (14, "SQLITE_CANTOPEN"),
    (517, "SQLITE_BUSY_SNAPSHOT"),
];

/// Arguments of `plait explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// A message or a part of it, a code of SQLite's, or the name of an event or an alert; without it, the whole page
    #[arg(value_name = "TEXT", trailing_var_arg = true, allow_hyphen_values = true)]
    text: Vec<OsString>,
}

/// Prints what the page has.
pub fn run(args: &ExplainArgs) -> Result<u8> {
    if args.text.is_empty() {
        anstream::print!("{PAGE}");
        return Ok(failure::OK);
    }
    let words: Vec<_> = args.text.iter().map(|word| word.to_string_lossy()).collect();
    let text = words.join(" ");
    let found = find(&text);
    if found.is_empty() {
        return Err(Failure::new(
            format!("no row of the runbook is about: {text}"),
            "a shorter part of the message, or `plait explain` alone, which prints the whole page",
        ));
    }
    let mut section = "";
    for row in found {
        if row.section != section {
            section = row.section;
            anstream::println!("{}\n", styled(HEADING, section));
        }
        anstream::println!("  {}", plain(row.says));
        anstream::println!("      cause: {}", plain(row.cause));
        anstream::println!("      do:    {}\n", plain(row.advice));
    }
    Ok(failure::OK)
}

/// A row of one of the tables.
#[derive(Debug, Clone, Copy)]
struct Row {
    section: &'static str,
    says: &'static str,
    cause: &'static str,
    advice: &'static str,
}

fn rows() -> impl Iterator<Item = Row> {
    let mut section = "";
    let mut is_head = false;
    let mut above = Row { section, says: "", cause: "", advice: "" };
    PAGE.lines().filter_map(move |line| {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        }
        let Some(cells) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else {
            // The line below the head of a table, or none of a table.
            is_head = !line.starts_with('|');
            return None;
        };
        if std::mem::take(&mut is_head) {
            return None;
        }
        let mut cells = cells.split(" | ");
        let (says, cause, advice) = (cells.next()?, cells.next()?, cells.next()?);
        let or_above = |cell: &'static str, above| if cell == SAME { above } else { cell };
        let (cause, advice) = (or_above(cause, above.cause), or_above(advice, above.advice));
        above = Row { section, says, cause, advice };
        Some(above)
    })
}

/// The rows for a text: those of a section for a code, those that are named so, or those that fit best.
fn find(text: &str) -> Vec<Row> {
    let text = normal(text);
    let named = |text: &str| -> Vec<_> {
        rows().filter(|row| quotes(row.says).any(|quote| quote == text)).collect()
    };
    let found = named(&text);
    if !found.is_empty() {
        return found;
    }
    if let Some(code) = code(&text) {
        let of_code = format!("({})", normal(code));
        return rows().filter(|row| normal(row.section).ends_with(&of_code)).collect();
    }
    if let Ok(extended) = text.parse::<u32>() {
        return named(&(extended & 0xff).to_string());
    }
    let scored: Vec<_> = rows().map(|row| (score(row, &text), row)).collect();
    let best = scored.iter().map(|(score, _)| *score).max().unwrap_or(0);
    scored.into_iter().filter(|(score, _)| best > 0 && *score == best).map(|(_, row)| row).collect()
}

/// The name of a code that a text is.
fn code(text: &str) -> Option<&'static str> {
    let number = text.parse().ok();
    let is = |&&(code, name): &&(i32, &str)| text == normal(name) || number == Some(code);
    let found = CODES.iter().find(is);
    let primary = || CODES.iter().find(|(code, _)| number.is_some_and(|n: i32| n & 0xff == *code));
    found.or_else(primary).map(|(_, name)| *name)
}

/// How much of a text a row speaks of, in bytes; 0 for nothing.
fn score(row: Row, text: &str) -> usize {
    let of_quote = |quote: String| {
        if is_name(&quote) && !is_named(&quote, text) {
            return 0;
        }
        let parts = quote.split(DIFFERS).map(str::trim).filter(|part| !part.is_empty());
        let (mut rest, mut found, mut is_whole) = (text, 0, true);
        for part in parts {
            match rest.split_once(part) {
                Some((_, after)) => {
                    rest = after;
                    found += part.len();
                }
                None => is_whole = false,
            }
        }
        let is_part = text.len() >= PART_MIN && quote.contains(text);
        match (is_whole || found >= CUT_MIN, is_part) {
            (true, _) => found,
            (_, true) => text.len(),
            _ => 0,
        }
    };
    quotes(row.says).map(of_quote).max().unwrap_or(0)
}

/// A code, an event or an alert.
fn is_name(quote: &str) -> bool {
    !quote.contains(' ')
}

/// A longer text names it: as a word, and one of the events that are common words as such a line has it, `plait: recovered: ...`.
fn is_named(name: &str, text: &str) -> bool {
    let is_common = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    match is_common {
        true => text.contains(&format!("plait: {name}:")) || name.contains(text),
        false => text.contains(name) || name.contains(text),
    }
}

/// What the first cell quotes.
fn quotes(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(normal)
}

/// Letters are small and one space stands between words, so that a message may be typed or have been wrapped.
fn normal(text: &str) -> String {
    text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A cell without marks of Markdown and HTML.
fn plain(cell: &str) -> String {
    let mut text = cell.replace("**", "");
    while let Some((before, rest)) = text.split_once("<a id=") {
        let after = rest.split_once("</a>").map_or("", |(_, after)| after);
        text = format!("{before}{after}");
    }
    // [text](target): the text, and the target where it is another page.
    while let Some((before, rest)) = text.split_once("](") {
        let (target, after) = rest.split_once(')').unwrap_or((rest, ""));
        let (before, label) = before.rsplit_once('[').unwrap_or(("", before));
        let target =
            if target.starts_with('#') { String::new() } else { format!(" (docs/{target})") };
        text = format!("{before}{label}{target}{after}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str) -> Vec<&'static str> {
        find(text).iter().map(|row| row.says).collect()
    }

    #[test]
    fn a_message_finds_its_row_whatever_stands_in_it() {
        let busy = "database is locked: process 4711 holds the writer's right (waited 5000 ms); retry, raise the busy timeout or use BEGIN CONCURRENT";
        assert_eq!(says(busy).len(), 1);
        assert!(says(busy)[0].contains("writer's right (waited"), "{:?}", says(busy));
        let lost = "the log /srv/app.db-plait was removed, renamed, replaced or cut short while processes had the database\n open, so nothing more can be committed (docs/runbook.md)";
        assert!(says(lost)[0].contains("was removed, renamed"), "{:?}", says(lost));
        assert_eq!(says("WAS REMOVED, renamed"), says(lost), "a part of it");
        let cut = "database is locked: process 4711 holds the writer's right (waited 50";
        assert_eq!(says(cut), says(busy), "one that was cut");
        assert!(says("no message of anybody").is_empty());
    }

    #[test]
    fn a_code_finds_its_section_and_a_name_its_row() {
        let sections = |text: &str| {
            let mut sections: Vec<_> = find(text).iter().map(|row| row.section).collect();
            sections.dedup();
            sections
        };
        assert_eq!(sections("SQLITE_FULL"), ["Full (SQLITE_FULL)"]);
        assert_eq!(sections("13"), sections("sqlite_full"));
        assert_eq!(sections("517"), ["Conflicts (SQLITE_BUSY_SNAPSHOT)"]);
        assert_eq!(sections("5"), ["Others are at work (SQLITE_BUSY)"]);
        assert_eq!(sections("3850"), ["The log has stopped (SQLITE_IOERR)"], "an extended code");
        assert_eq!(sections("PlaitStopped"), ["Alerts"]);
        assert_eq!(says("member-died").len(), 1);
        assert_eq!(sections("member-died"), ["Events"]);
    }

    #[test]
    fn messages_and_codes_of_sqlite_itself_have_rows() {
        for text in ["8", "1544", "776", "SQLITE_READONLY", "attempt to write a readonly database"]
        {
            assert!(says(text).len() == 1 && says(text)[0].contains("readonly"), "{text}");
            let row = find(text)[0];
            assert!(row.cause.contains("is a replica") && row.advice.contains("plait promote"));
        }
        for text in ["26", "SQLITE_NOTADB"] {
            assert!(says(text).len() == 1 && says(text)[0].contains("not a database"), "{text}");
        }
        for text in ["4874", "disk I/O error", "cannot read f.db: disk I/O error (code 4874)"] {
            assert!(says(text)[0].contains("the disk is full"), "{text}");
        }
        assert_eq!(says("Error: database disk image is malformed").len(), 1);
        assert_eq!(says("SQLite header and source version mismatch 2022-12-28").len(), 1);
    }

    #[test]
    fn a_word_of_a_message_is_no_event() {
        assert_eq!(
            says("f.db was recovered but is not at rest"),
            ["`was recovered but is not at rest`"]
        );
        assert!(says("it was recovered and failed").is_empty());
        assert!(says("plait: recovered: /srv/f.db: 3 commits")[0].contains("`recovered`"));
    }

    #[test]
    fn every_row_has_a_cause_and_a_cure_and_is_found_by_its_own_words() {
        assert!(rows().count() > 100);
        for row in rows() {
            assert!(!row.cause.is_empty() && !row.advice.is_empty(), "{row:?}");
            assert!(row.cause != SAME && row.advice != SAME, "{row:?}");
            for quote in quotes(row.says) {
                let said = quote.replace(DIFFERS, " something ");
                let found = says(&said);
                assert!(found.contains(&row.says), "{quote}: {found:?}");
            }
        }
    }

    #[test]
    fn cells_are_printed_without_their_marks() {
        assert_eq!(
            plain("<a id=\"x\"></a>`x` is **not** [sql.md](sql.md#a), [there](#b)"),
            "`x` is not sql.md (docs/sql.md#a), there"
        );
    }
}
