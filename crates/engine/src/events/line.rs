//! An event as a line: for SQLite's error log, as JSON, and for journald.
//!
//! JSON, one object a line: paths and names of processes hold spaces, quotes and any other
//! character, and JSON alone of the usual formats says how these are written. Every collector of
//! logs reads it, and `jq` makes a table of it.

use std::fmt::Write as _;

use super::{Detail, Event, Severity};
use crate::shm::process::{self, Who};

/// Longest text of an event, in bytes: what an error says may hold long paths several times.
const TEXT_MAX: usize = 2000;

/// The line for the error log: what has happened to which database, and where more is said. A path
/// may hold anything, but does not look like lines of others.
pub(super) fn for_people(event: &Event) -> String {
    let (name, database) = (event.kind.name, event.database.display());
    let line = format!("{name}: {database}: {} (plait explain {name})", event.text);
    line.replace(|c: char| c.is_control(), " ")
}

/// All of an event, each value as text, with its name in JSON; true for a number. The order is that
/// of the lines.
fn fields(event: &Event) -> Vec<(&'static str, String, bool)> {
    let mut fields = vec![
        ("time", time(event.at_ms), false),
        ("severity", event.kind.severity.name().into(), false),
        ("event", event.kind.name.into(), false),
        ("database", event.database.to_string_lossy().into_owned(), false),
        ("pid", process::pid().to_string(), true),
        ("process", name_in("self"), false),
        ("text", cut(&event.text, TEXT_MAX).into(), false),
        ("docs", format!("docs/runbook.md#{}", event.kind.name), false),
    ];
    fields.extend(event.details.iter().map(|(name, detail)| match detail {
        Detail::Number(number) => (*name, number.to_string(), true),
        Detail::Text(text) => (*name, cut(text, TEXT_MAX).into(), false),
        Detail::Name(who) => (*name, name_of(*who), false),
    }));
    fields
}

/// The event as JSON, with the end of its line.
pub(super) fn json(event: &Event) -> String {
    let mut line = String::from("{");
    for (name, value, is_number) in fields(event) {
        // Writing to a string does not fail.
        let _ = write!(line, "{}\"{name}\":", if line.len() > 1 { "," } else { "" });
        match is_number {
            true => line.push_str(&value),
            false => push_quoted(&mut line, &value),
        }
    }
    line.push_str("}\n");
    line
}

fn push_quoted(line: &mut String, text: &str) {
    line.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => line.extend(['\\', c]),
            // Line separators end lines for some readers.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

/// The event as a datagram of journald's native protocol. Fields of ours begin with `PLAIT_`.
pub(super) fn journal(event: &Event) -> Vec<u8> {
    let priority = match event.kind.severity {
        Severity::Notice => 5,
        Severity::Warning => 4,
        Severity::Error => 3,
    };
    let mut datagram = Vec::new();
    let mut push = |name: &str, value: &str| {
        datagram.extend_from_slice(name.as_bytes());
        if value.contains('\n') {
            datagram.push(b'\n');
            datagram.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            datagram.push(b'=');
        }
        datagram.extend_from_slice(value.as_bytes());
        datagram.push(b'\n');
    };
    push("MESSAGE", &for_people(event));
    push("PRIORITY", &priority.to_string());
    push("SYSLOG_IDENTIFIER", "plait");
    for (name, value, _) in fields(event) {
        push(&format!("PLAIT_{}", name.to_ascii_uppercase()), &value);
    }
    datagram
}

/// Milliseconds since the Unix epoch as a time of RFC 3339, UTC.
fn time(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    // Days are counted in eras of 400 years from the first of March of the year 0.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (seconds, ms) = (of_day / 1000, of_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The beginning of a text that has `max` bytes at most.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// The name of a process, as the kernel has it; empty if it cannot be known. A command line would say
/// more, but may hold passwords, and to read it may wait for ever for a process that stands still.
fn name_of(who: Who) -> String {
    match who.pid == 0 || who.foreign_namespace != 0 {
        true => String::new(),
        false => name_in(&who.pid.to_string()),
    }
}

fn name_in(process: &str) -> String {
    let name = std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (ms, is) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_251_199_001, "2024-02-29T23:59:59.001Z"),
            (1_735_689_600_000, "2025-01-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (4_107_456_000_000, "2100-02-28T00:00:00.000Z"),
        ] {
            assert_eq!(time(ms), is);
        }
    }

    #[test]
    fn what_would_end_a_line_or_a_text_is_escaped() {
        let mut line = String::new();
        push_quoted(&mut line, "a \"b\"\\\n\u{1}\u{2028}ü");
        assert_eq!(line, r#""a \"b\"\\\u000a\u0001\u2028ü""#);
    }

    #[test]
    fn a_text_is_cut_between_two_characters() {
        assert_eq!(cut("aüb", 2), "a");
        assert_eq!(cut("aüb", 3), "aü");
        assert_eq!(cut("a", 3), "a");
    }
}
