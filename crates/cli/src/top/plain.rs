//! One look as lines, for files, pipes and `--once`.

use std::fmt::Write as _;

use comfy_table::{Table, presets};

use super::facts::{self, COLUMNS, Order};
use super::monitor::{Monitor, Shown};
use crate::console::{BAD, HEADING, styled};

/// All of it.
pub fn text(monitor: &Monitor) -> String {
    let head = styled(HEADING, monitor.file.display());
    let (session, rates) = match monitor.shown() {
        Shown::Said(said, _) => return format!("{head}: {said}"),
        Shown::Session(session, rates) => (session, rates),
    };
    let mut out = format!("{head}: {}\n", facts::users(session));
    for fact in facts::facts(session, rates) {
        let value = if fact.is_bad { styled(BAD, fact.value) } else { fact.value };
        let _ = writeln!(out, "  {:<14}{value}", fact.name);
    }
    let rows = facts::rows(session, Order::Age);
    if rows.is_empty() {
        out.push_str("no transaction is open");
        return out;
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(COLUMNS);
    for row in rows {
        table.add_row([&row.pid, &row.age, row.state, &row.waits_for, &row.command]);
    }
    for line in table.lines() {
        let _ = writeln!(out, " {}", line.trim_end());
    }
    out.truncate(out.trim_end().len());
    out
}
