//! Where everything stands on the terminal: a title, facts as they fit, a table, and the keys. What
//! does not fit is cut, the least important first.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table, Wrap};

use super::Top;
use super::facts::{self, COLUMNS, Fact};
use super::monitor::Shown;
use crate::quantity::age;

/// Columns between two facts.
const GAP: usize = 3;
/// Rows that the table keeps, with its head, where the terminal is low.
const TABLE_MIN: u16 = 4;
/// Widths of the first three columns.
const WIDTHS: [u16; 3] = [7, 11, 10];
/// Of the fourth, at most.
const WAITS_MAX: u16 = 30;

/// Draws all of it.
pub fn draw(frame: &mut Frame, top: &mut Top) {
    let area = frame.area();
    let facts = match top.monitor.shown() {
        Shown::Session(session, rates) => {
            let facts = facts::facts(session, rates);
            flow(&facts, usize::from(area.width))
        }
        Shown::Said(..) => Vec::new(),
    };
    let fitting = area.height.saturating_sub(2 + TABLE_MIN).min(facts.len() as u16);
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(fitting),
        Constraint::Fill(1),
        Constraint::Length(u16::from(area.height > 2)),
    ]);
    let [title, head, body, keys] = parts.areas(area);
    frame.render_widget(self::title(top), title);
    frame.render_widget(Paragraph::new(facts), head);
    if let Shown::Said(said, is_trouble) = top.monitor.shown() {
        let style = if is_trouble { Style::new().fg(Color::Red) } else { Style::new() };
        frame.render_widget(Paragraph::new(said).style(style).wrap(Wrap { trim: true }), body);
    } else {
        transactions(frame, top, body);
    }
    frame.render_widget(self::keys(top), keys);
}

fn title(top: &Top) -> Line<'static> {
    let mut line = vec![Span::from(top.monitor.file.display().to_string()).bold()];
    if let Shown::Session(session, _) = top.monitor.shown() {
        line.push(format!(": {}", facts::users(session)).into());
    }
    if let Some((change, ms)) = top.monitor.change() {
        line.push(Span::from(format!("; {change} {} ago", age(ms.max(1000)))).yellow());
    }
    Line::from(line)
}

fn keys(top: &Top) -> Line<'static> {
    let mut line = vec![
        Span::from(format!(
            "q quit  s sort: {}  p pause  +/- every {} s",
            top.order.word(),
            top.interval.as_secs_f64()
        ))
        .dim(),
    ];
    if top.is_paused {
        line.push("  ".into());
        line.push(" PAUSED ".black().on_yellow());
    }
    Line::from(line)
}

/// Facts side by side in lines of this width.
fn flow(facts: &[Fact], width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    let mut room = 0;
    for fact in facts {
        let style = if fact.is_bad { Style::new().red().bold() } else { Style::new().bold() };
        let spans =
            [Span::from(format!("{} ", fact.name)), Span::styled(fact.value.clone(), style)];
        let needed = spans.iter().map(Span::width).sum::<usize>();
        match lines.last_mut() {
            Some(line) if needed + GAP <= room => {
                line.push_span(" ".repeat(GAP));
                line.extend(spans);
                room -= needed + GAP;
            }
            _ => {
                lines.push(Line::from_iter(spans));
                room = width.saturating_sub(needed);
            }
        }
    }
    lines
}

fn transactions(frame: &mut Frame, top: &mut Top, area: Rect) {
    let rows = match top.monitor.shown() {
        Shown::Session(session, _) => facts::rows(session, top.order),
        Shown::Said(..) => Vec::new(),
    };
    let fitting = usize::from(area.height.saturating_sub(1));
    top.skipped = top.skipped.min(rows.len().saturating_sub(fitting.max(1)));
    let waits = area.width.saturating_sub(WIDTHS.iter().sum::<u16>() + 4) * 3 / 5;
    let widths = [
        Constraint::Length(WIDTHS[0]),
        Constraint::Length(WIDTHS[1]),
        Constraint::Length(WIDTHS[2]),
        Constraint::Length(waits.min(WAITS_MAX)),
        Constraint::Fill(1),
    ];
    let is_empty = rows.is_empty();
    let shown = rows.into_iter().skip(top.skipped).take(fitting).map(|row| {
        let style = if row.waits_for.is_empty() { Style::new() } else { Style::new().yellow() };
        Row::new([row.pid, row.age, row.state.to_owned(), row.waits_for, row.command]).style(style)
    });
    let table = Table::new(shown, widths).header(Row::new(COLUMNS).style(Style::new().reversed()));
    frame.render_widget(table, area);
    if is_empty && area.height > 1 {
        let below = Rect { y: area.y + 1, height: 1, ..area };
        frame.render_widget(Line::from("no transaction is open").dim(), below);
    }
}

#[cfg(test)]
mod tests;
