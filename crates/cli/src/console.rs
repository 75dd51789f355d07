//! What the user sees: colours where a terminal shows them, plain text elsewhere.
//!
//! `anstream` strips the styles when the output is no terminal, or when `NO_COLOR` says so.

use std::fmt::Display;
use std::io::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{self, Failure};

/// Something is in order.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Something deserves a look.
pub const NOTICE: Style = AnsiColor::Yellow.on_default().bold();
/// Something is wrong.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// A heading.
pub const HEADING: Style = Style::new().bold();
/// What is there to be skipped.
pub const FAINT: Style = Style::new().dimmed();

/// A text in a style.
pub fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Tells why the command failed and what to do.
pub fn report(failure: &Failure) {
    aside(&format!("{} {}", styled(BAD, "error:"), failure.what));
    advise(&failure.advice);
}

/// Writes a line to standard error. Where it cannot be written, as on a full disk, it is lost, and no reason to panic: the
/// command goes on, and its exit code says what became of it.
pub fn aside(line: &str) {
    let _ = anstream::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

fn advise(advice: &str) {
    if !advice.is_empty() {
        aside(&format!("  {} {advice}", styled(GOOD, "try:")));
    }
}

/// Ends the program with an error where its output cannot be written, as on a full disk: the macros that print panic there.
pub fn end_where_nothing_can_be_said() {
    let otherwise = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        let Some(why) = said.strip_prefix("failed printing to stdout: ") else {
            return otherwise(panic);
        };
        report(&unsaid(why));
        std::process::exit(i32::from(failure::FAILED));
    }));
}

/// The output could not be written.
pub fn unsaid(why: impl Display) -> Failure {
    let why = why.to_string().to_lowercase();
    let why = why.split(" (os error").next().unwrap_or_default();
    Failure::new(
        format!("cannot write to the standard output: {why}"),
        "free some space where it goes, or send it elsewhere; what the command was asked for may have been done",
    )
}

/// Says something that is worth knowing, in one line on standard error.
pub fn note(what: &str) {
    aside(&format!("{} {what}", styled(NOTICE, "note:")));
}

/// Says something that does not stop the command, on standard error.
pub fn warn(what: &str, advice: &str) {
    aside(&format!("{} {what}", styled(NOTICE, "warning:")));
    advise(advice);
}

/// A bar on standard error, where that is a terminal, for so many bytes.
pub fn progress(doing: &'static str, bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("  {msg} {bar:30} {bytes}/{total_bytes} {eta}");
    ProgressBar::new(bytes).with_style(style.expect("a valid template")).with_message(doing)
}

/// A sign of life on standard error, where that is a terminal, for work of unknown length.
pub fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("  {spinner} {msg} {elapsed}");
    let spinner = ProgressBar::new_spinner().with_style(style.expect("a valid template"));
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
