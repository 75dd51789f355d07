//! The status as text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use comfy_table::{Table, presets};
use plait_engine::replica;

use super::session::{Rows, Session};
use super::{Look, people, person, replication};
use crate::console::{BAD, FAINT, GOOD, HEADING, NOTICE, styled};
use crate::failure::quoted;
use crate::follows::{self, Replica};
use crate::inspect::Inspection;
use crate::inspect::outlook::{Instead, Outlook};
use crate::quantity::{age, bytes, count, of};
use crate::sqlite::{Value, integer, shown};

/// Transactions that are listed.
const TRANSACTIONS_MAX: usize = 12;
/// Conflicts that are listed.
const CONFLICTS_MAX: usize = 6;
/// So many of the last conflicts on one key make it a hot row.
const HOT: usize = 4;

/// One look as text, with rates when there was one before.
pub fn text(file: &Path, look: &Look, before: Option<&Look>) -> String {
    let mut out = String::new();
    let head = styled(HEADING, file.display());
    let Some(session) = &look.session else {
        let _ = write!(
            out,
            "{head}: {}{}",
            at_rest(file, &look.outside, &look.openers),
            opened_by(look)
        );
        let beside = prepared_pages(look).into_iter().chain(put_aside(look));
        for (name, value) in follows(file, look).into_iter().chain(beside) {
            let _ = write!(out, "\n  {name:<14}{value}");
        }
        return out;
    };
    let _ = writeln!(
        out,
        "{head}: concurrent mode, open in {}, {}{}",
        people(look.outside.alive()),
        of(session.value("connections"), "connection", "connections"),
        match &look.openers[..] {
            [] => String::new(),
            others => format!("; outside of the session open in {}", people(others)),
        }
    );
    let rates = before.and_then(|b| Some((b.session.as_ref()?, (look.at - b.at).as_secs_f64())));
    let pages = prepared_pages(look).into_iter().chain(put_aside(look)).collect();
    let hot = hot_row(&session.conflicts).into_iter().collect();
    let replica = [follows(file, look).into_iter().collect(), shipped(look, session)].concat();
    let lines =
        [traffic(session, rates), sizes(session), replica, pages, hot, trouble(session)].concat();
    for (name, value) in lines {
        let _ = writeln!(out, "  {name:<14}{value}");
    }
    TRANSACTIONS.write(&mut out, &session.transactions);
    CONFLICTS.write(&mut out, &session.conflicts);
    out.truncate(out.trim_end().len());
    out
}

/// A replica without a database.
pub fn awaited(file: &Path, replica: &Replica) -> String {
    format!(
        "{}: {}",
        styled(HEADING, file.display()),
        with_advice(file, replica, replica.said_of_nothing())
    )
}

fn with_advice(file: &Path, replica: &Replica, said: String) -> String {
    match replica.amiss(file) {
        None => said,
        Some((what, advice)) => format!("{said}; {}", styled(NOTICE, format!("{what}: {advice}"))),
    }
}

/// What is known of the sidecar that ships it.
fn shipped(look: &Look, session: &Session) -> Vec<(&'static str, String)> {
    replication::lines(session, &replication::sidecars(look.outside.alive()))
}

/// What it is a replica of, and how far it is; or that it was one.
fn follows(file: &Path, look: &Look) -> Option<(&'static str, String)> {
    let Some(replica) = &look.replica else {
        let session = look.session.as_ref()?;
        let said = match session.text("replica_error") {
            "" if session.value("replica_promoted") > 0 => {
                "was promoted in this session: programs that had it open before can only read until they open it again"
            }
            "" => return None,
            error => error,
        };
        return Some(("replica", styled(NOTICE, said)));
    };
    Some(("replica", with_advice(file, replica, replica.said())))
}

/// Who has it open without a session: alone, by a SQLite of its own, or as a mere file.
fn opened_by(look: &Look) -> String {
    if look.openers.is_empty() {
        return String::new();
    }
    format!("; open in {}", people(&look.openers))
}

/// The state of a database without a session, which these processes have open by any SQLite.
pub fn at_rest(file: &Path, outside: &Inspection, openers: &[u32]) -> String {
    let check = format!("`plait check {}` tells more", quoted(file));
    if outside.header.is_concurrent() && !outside.is_settled {
        return "concurrent mode, being opened or closed right now".to_owned();
    }
    if let Some(lost) = outside.lost_by_opening() {
        return format!(
            "{}: opening it makes a new, empty database{lost}; put the database file back before anything opens it; {check}",
            styled(BAD, "the file is empty")
        );
    }
    match outside.outlook() {
        Outlook::Ordinary if follows::is_empty_replica(&outside.path) => {
            "an empty replica, which its follower fills".to_owned()
        }
        Outlook::Ordinary if replica::is_marked(&outside.path) => format!(
            "in mode {}, which no follower goes on with, though the mark of one lies beside it; `plait promote {file}` makes it a \
             database of its own, which `plait enable {file}` takes; or move it and the files beside it away, and follow anew",
            outside.header.mode(),
            file = quoted(file)
        ),
        Outlook::Ordinary => format!(
            "in mode {}, not in concurrent mode; switch with `plait enable {}`",
            outside.header.mode(),
            quoted(file)
        ),
        Outlook::Starts { .. } => without_session(file, outside, openers),
        Outlook::Mixes { why } => format!(
            "{}: {why}; opening it would mix the two; {check}",
            styled(BAD, "the WAL beside it belongs to another database file")
        ),
        Outlook::SetsAside { why } => format!(
            "concurrent mode, {}; the log beside it is not its own, and the next program to open it puts that aside: {why}; {check}",
            styled(GOOD, "at rest")
        ),
        Outlook::Recovers { frames } => format!(
            "concurrent mode, {}: {} in the log, which the next program to open it merges; {check}",
            styled(NOTICE, "left by programs that were killed"),
            of(frames, "commit", "commits")
        ),
        Outlook::GoesOn => format!(
            "concurrent mode, {}: the next program to open it goes on where they stopped; {check}",
            styled(NOTICE, "left by programs that were killed")
        ),
        Outlook::Restores(Instead::Copy) => format!(
            "concurrent mode, {}: the next program to open it brings what they have committed into the file; {check}",
            styled(NOTICE, "left by programs that were killed")
        ),
        Outlook::Restores(instead) => format!(
            "concurrent mode, {}: shared memory has what was committed, and the next program to open it brings that into the \
             file; do not restart the machine before; {check}",
            styled(BAD, format!("left by programs that were killed, and {}", amiss(&instead)))
        ),
        Outlook::Refuses { why, .. } => {
            format!("concurrent mode, {}: {why}; {check}", styled(BAD, "cannot be opened"))
        }
        Outlook::Joins(_) => "concurrent mode, being opened or closed right now".to_owned(),
    }
}

/// What is wrong with the log that shared memory stands in for.
fn amiss(instead: &Instead) -> &'static str {
    match instead {
        Instead::Failed => "a write or sync of its log has failed",
        Instead::InTheWay(_) => "another file stands under the name of its log",
        Instead::Nothing | Instead::Copy => "its log is missing",
    }
}

/// The file has everything but what is in its WAL. A lone connection or a program in WAL mode may have it open.
fn without_session(file: &Path, outside: &Inspection, openers: &[u32]) -> String {
    let commits = outside.wal_commits();
    let in_wal = format!("{} in its WAL", of(commits, "commit", "commits"));
    if is_left_in_wal(outside, openers) {
        return format!(
            "concurrent mode, {}: {in_wal}, which the next program to open it brings into the file; copy the file with its WAL, \
             or after `plait recover {}`",
            styled(NOTICE, "left by programs that were killed"),
            quoted(file)
        );
    }
    let mut said = match commits {
        0 => format!("concurrent mode, {}", styled(GOOD, "at rest")),
        _ => format!("concurrent mode, in use without a session, {in_wal}"),
    };
    said += match (outside.lone.is_open, openers.len()) {
        (false, 0) => "; nobody has it open",
        (true, 0 | 1) if outside.lone.is_claimed => "; one program has it open, alone",
        (true, 0) => "; a program that is not seen from here has it open",
        _ => "",
    };
    if let Some(pid) = outside.lone.writer {
        let _ = write!(said, "; process {} writes: it is in a transaction", person(pid));
    }
    said
}

/// Killed programs have left commits in the WAL, and no session.
pub fn is_left_in_wal(outside: &Inspection, openers: &[u32]) -> bool {
    openers.is_empty() && outside.left_in_wal().is_some()
}

type Line = (&'static str, String);

/// Logs that another file than their own was found beside.
fn put_aside(look: &Look) -> Option<Line> {
    let logs = &look.outside.put_aside;
    let last = logs.last()?;
    let more = if logs.len() > 1 { format!(" and {} more", logs.len() - 1) } else { String::new() };
    let text = format!(
        "{}{more}: commits of another database file, or of a later state of this one; remove it when nobody wants them",
        last.display()
    );
    Some(("put aside", styled(NOTICE, text)))
}

/// The process in a value of `plait_status`, which has another value that says where its number counts.
fn who(now: &Session, name: &str) -> String {
    match (now.value(name), now.value(&format!("{name}_namespace"))) {
        (0, _) => "nobody".to_owned(),
        (pid, 0) => person(pid as u32),
        (pid, _) => format!("{pid} of another pid namespace"),
    }
}

/// What is being done, and how fast.
fn traffic(now: &Session, before: Option<(&Session, f64)>) -> Vec<Line> {
    let v = |name: &str| now.value(name);
    let rate = |name: &str| {
        before.map_or(String::new(), |(before, seconds)| {
            let n = v(name).saturating_sub(before.value(name)) as f64 / seconds;
            format!("  {}", styled(GOOD, format!("{} per second", count(n as u64))))
        })
    };
    let group = match v("log_syncs") {
        0 => String::new(),
        syncs => format!(" ({:.1} per sync of the log)", v("commits") as f64 / syncs as f64),
    };
    let reader = match v("oldest_reader_pid") {
        0 => "none".to_owned(),
        _ => {
            let reader = who(now, "oldest_reader_pid");
            format!("{reader}, for {}", age(v("oldest_reader_age_ms")))
        }
    };
    vec![
        ("commits", format!("{}{group}{}", count(v("commits")), rate("commits"))),
        ("exclusive", format!("{} (schema changes, VACUUM, bulk)", count(v("exclusive_commits")))),
        ("conflicts", format!("{}{}", count(v("conflicts")), rate("conflicts"))),
        ("busy", format!("{} waits ended by their timeout", count(v("busy")))),
        ("writer", who(now, "writer_pid")),
        ("oldest reader", reader),
    ]
}

/// What it takes in memory and on disk.
fn sizes(now: &Session) -> Vec<Line> {
    let v = |name: &str| now.value(name);
    let b = |name: &str| bytes(now.value(name));
    let memory = format!(
        "{} of commits not merged yet, {} being merged, {} kept for readers (at most {})",
        b("memtable_bytes"),
        of(v("memtables_frozen"), "memtable", "memtables"),
        count(v("memtables_kept")),
        b("shared_memory_limit_bytes")
    );
    let log =
        format!("{} on disk, {} not synced yet", b("log_file_bytes"), b("log_unsynced_bytes"));
    let merges = format!(
        "{} of {}, now by {}",
        count(v("merges")),
        of(v("merged_entries"), "entry", "entries"),
        who(now, "merger_pid")
    );
    let wal = format!("{} (commits fail at {})", b("base_wal_bytes"), b("base_wal_limit_bytes"));
    vec![("memory", memory), ("log", log), ("merges", merges), ("base WAL", wal)]
}

/// What a transaction over several files that changes whole pages has put beside the file.
fn prepared_pages(look: &Look) -> Option<Line> {
    let size = look.outside.prepared_pages_bytes?;
    Some(("pages", format!("{} of a transaction over several files, in -plait-pages", bytes(size))))
}

/// The key that most of the last conflicts were on.
fn hot_row(conflicts: &Rows) -> Option<Line> {
    let mut counted: BTreeMap<(String, String), usize> = BTreeMap::new();
    for row in &conflicts.rows {
        let cell = |column| shown(conflicts.cell(row, column));
        *counted.entry((cell("tbl"), cell("key"))).or_default() += 1;
    }
    let ((on, hex), n) = counted.into_iter().max_by_key(|(_, n)| *n).filter(|(_, n)| *n >= HOT)?;
    let all = conflicts.rows.len();
    let what = format!(
        "{on}, {}: {n} of the last {all} conflicts; BEGIN IMMEDIATE avoids this",
        key(&hex)
    );
    Some(("hot row", styled(NOTICE, what)))
}

/// What went wrong; empty when nothing did.
fn trouble(now: &Session) -> Vec<Line> {
    let mut lines = Vec::new();
    let dead = now.value("processes_reaped");
    if dead > 0 {
        let dead = of(dead, "process", "processes");
        lines.push(("reaped", format!("{dead} died and were cleaned up after")));
    }
    if now.value("poisoned") > 0 {
        let what = "it takes no commit after a failed write or sync: close all programs, and open it again to have it recovered";
        lines.push(("stopped", styled(BAD, what)));
    }
    lines
}

/// A list with a title.
struct Section {
    title: &'static str,
    columns: &'static [&'static str],
    rows_max: usize,
    cells: fn(&Rows, &[Value]) -> Vec<String>,
}

const TRANSACTIONS: Section = Section {
    title: "Transactions",
    columns: &["process", "thread", "state", "age", "waits for"],
    rows_max: TRANSACTIONS_MAX,
    cells: transaction_row,
};
const CONFLICTS: Section = Section {
    title: "Recent conflicts",
    columns: &["when", "on", "key", "loser", "winner"],
    rows_max: CONFLICTS_MAX,
    cells: conflict_row,
};

/// A process that may be one of another pid namespace, where its number means somebody else.
fn person_of(rows: &Rows, row: &[Value], pid: &str, namespace: &str) -> String {
    let pid = integer(rows.cell(row, pid)) as u32;
    match rows.cell(row, namespace) {
        Value::Null => person(pid),
        _ => format!("{pid} of another pid namespace"),
    }
}

fn transaction_row(rows: &Rows, row: &[Value]) -> Vec<String> {
    let integer = |column| integer(rows.cell(row, column));
    let waits_for = match integer("waiting_for_pid") {
        0 => String::new(),
        pid => person(pid as u32),
    };
    vec![
        person_of(rows, row, "pid", "pid_namespace"),
        integer("thread").to_string(),
        shown(rows.cell(row, "state")),
        age(integer("age_ms").max(0) as u64),
        waits_for,
    ]
}

fn conflict_row(rows: &Rows, row: &[Value]) -> Vec<String> {
    let integer = |column: &str| integer(rows.cell(row, column));
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let ms = (now.as_millis() as i64 - integer("time_ms")).max(0) as u64;
    let what = if integer("is_range") != 0 { "range, " } else { "" };
    let pid = |column: &str| match integer(column) {
        0 => "unknown".to_owned(),
        _ => person_of(rows, row, column, &format!("{column}_namespace")),
    };
    vec![
        format!("{} ago", age(ms)),
        shown(rows.cell(row, "tbl")),
        format!("{what}{}", key(&shown(rows.cell(row, "key")))),
        pid("loser_pid"),
        pid("winner_pid"),
    ]
}

/// The key of a table is its rowid, eight bytes with the sign flipped; other keys stay hexadecimal.
fn key(hex: &str) -> String {
    const SHOWN: usize = 24;
    match u64::from_str_radix(hex, 16) {
        Ok(bits) if hex.len() == 16 => format!("rowid {}", (bits ^ 1 << 63) as i64),
        _ if hex.len() > SHOWN => format!("x'{}...'", &hex[..SHOWN]),
        _ => format!("x'{hex}'"),
    }
}

impl Section {
    fn write(&self, out: &mut String, rows: &Rows) {
        if rows.rows.is_empty() {
            return;
        }
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(self.columns);
        for row in rows.rows.iter().take(self.rows_max) {
            table.add_row((self.cells)(rows, row));
        }
        let _ = writeln!(out, "{}", styled(HEADING, self.title));
        for line in table.lines() {
            let _ = writeln!(out, " {}", line.trim_end());
        }
        if let Some(more) = rows.rows.len().checked_sub(self.rows_max).filter(|&n| n > 0) {
            let _ = writeln!(out, "  {}", styled(FAINT, format!("and {more} more")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_has_failed_or_is_hidden_is_not_said_to_be_missing() {
        assert!(amiss(&Instead::Failed).contains("has failed"));
        assert!(amiss(&Instead::InTheWay("it is a text".into())).contains("another file"));
        assert!(amiss(&Instead::Nothing).contains("is missing"));
    }

    #[test]
    fn a_table_key_is_shown_as_its_rowid() {
        assert_eq!(key("800000000000002a"), "rowid 42");
        assert_eq!(key("7fffffffffffffff"), "rowid -1");
        assert_eq!(key("0102"), "x'0102'");
        assert!(key(&"ab".repeat(40)).ends_with("...'"));
        assert_eq!(key(""), "x''");
    }
}
