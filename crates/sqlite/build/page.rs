//! The page of the documentation that lists the edits, written from the edits themselves.
//!
//! `docs/sqlite-edits.md` has prose of its own above and below two markers; [`renew`] gives the whole page
//! with what stands between them written anew. `make edits` writes it. A test here and `make check`
//! compare.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::edits::{Concern, Edit, FILES, Place};

/// The page, below the workspace.
pub const PATH: &str = "docs/sqlite-edits.md";
/// The command that writes it anew.
pub const REWRITE: &str = "make edits";

const BEGIN: &str = "<!-- generated from crates/sqlite/build/edits/ by make edits -->\n";
const END: &str = "<!-- end of the generated part -->\n";

/// Characters of an anchor that the page shows.
const ANCHOR_SHOWN: usize = 50;

/// The page in the workspace at `root`, as it is, and as the edits want it.
pub fn read(root: &Path) -> Result<(String, String)> {
    let path = root.join(PATH);
    let is = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let wanted = renew(&is).with_context(|| PATH)?;
    Ok((is, wanted))
}

/// A page with its generated part written anew.
pub fn renew(page: &str) -> Result<String> {
    let (above, rest) = page.split_once(BEGIN).with_context(|| format!("has no line {BEGIN}"))?;
    let (_, below) = rest.split_once(END).with_context(|| format!("has no line {END}"))?;
    Ok(format!("{above}{BEGIN}{}{END}{below}", render()))
}

fn render() -> String {
    format!("\n{}\n{}\n", concerns(), sections())
}

/// One row for each concern.
fn concerns() -> String {
    let mut out = "## What the edits are for\n\n\
                   | concern | sections, edits | purpose | look at |\n|---|---|---|---|\n"
        .to_owned();
    for (file, concerns) in FILES {
        for Concern { title, purpose, look_at, edits } in *concerns {
            let row = [&format!("[{title}]({})", link(file)), &counts(edits), *purpose, *look_at];
            row_to(&mut out, &row);
        }
    }
    out
}

fn link(file: &str) -> String {
    format!("../crates/sqlite/build/edits/{file}")
}

/// The sections that edits are in, each with their number there.
fn counts(edits: &[Edit]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for edit in edits {
        match counts.iter_mut().find(|(section, _)| *section == edit.section) {
            Some((_, n)) => *n += 1,
            None => counts.push((edit.section, 1)),
        }
    }
    let counts: Vec<_> = counts.iter().map(|(section, n)| format!("{section} {n}")).collect();
    counts.join(", ")
}

/// All edits, by section of SQLite and then in the order of their concerns.
fn sections() -> String {
    let mut all: BTreeMap<&str, Vec<(&Concern, &Edit)>> = BTreeMap::new();
    for concern in FILES.iter().flat_map(|(_, concerns)| *concerns) {
        for edit in concern.edits {
            all.entry(edit.section).or_default().push((concern, edit));
        }
    }
    let total: usize = all.values().map(Vec::len).sum();
    let mut out = format!(
        "## Every edit\n\n{total} edits in {} sections. The line is SQLite's, cut short; `grep` finds it \
         in the amalgamation and below `crates/sqlite/build/edits/`.\n",
        all.len()
    );
    for (section, edits) in all {
        write!(out, "\n### {section}\n\n| line | | why | concern |\n|---|---|---|---|\n")
            .expect("a String takes everything");
        for (concern, edit) in edits {
            let place = match edit.place {
                Place::Before => "above",
                Place::After => "below",
                Place::Replace => "replaced",
            };
            row_to(&mut out, &[&code(edit.anchor), place, edit.why, concern.title]);
        }
    }
    out
}

/// The beginning of a line of C, as code.
fn code(line: &str) -> String {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(ANCHOR_SHOWN) {
        Some((cut, _)) => format!("`{}...`", line[..cut].trim_end()),
        None => format!("`{line}`"),
    }
}

fn row_to(out: &mut String, cells: &[&str]) {
    for cell in cells {
        write!(out, "| {} ", cell.replace('|', "\\|")).expect("a String takes everything");
    }
    out.push_str("|\n");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::edits::EDITS;

    #[test]
    fn the_page_lists_the_edits_as_they_are() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(3)
            .expect("this package lies three levels below the workspace");
        let (is, wanted) = read(root).expect("the page has its markers");
        assert!(is == wanted, "{PATH} is not what the edits say: run `{REWRITE}`");
    }

    #[test]
    fn every_edit_has_a_row_and_every_concern() {
        let page = render();
        let rows = page.lines().filter(|line| line.starts_with("| `") || line.starts_with("| ["));
        let concerns = FILES.iter().map(|(_, concerns)| concerns.len()).sum::<usize>();
        assert_eq!(rows.count(), EDITS.len() + concerns);
    }

    #[test]
    fn every_concern_says_what_it_is_for() {
        let mut titles = BTreeSet::new();
        for concern in FILES.iter().flat_map(|(_, concerns)| *concerns) {
            assert!(titles.insert(concern.title), "two concerns called {}", concern.title);
            assert!(!concern.edits.is_empty(), "{} has no edit", concern.title);
            for text in [concern.title, concern.purpose, concern.look_at] {
                assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
            }
            for edit in concern.edits {
                assert!(!edit.why.is_empty() && !edit.why.contains('\n'), "{:?}", edit.why);
            }
        }
    }

    #[test]
    fn a_page_keeps_what_is_written_by_hand() {
        let page = renew(&format!("above\n{BEGIN}stale\n{END}below\n")).expect("both markers");
        assert!(page.starts_with("above\n") && page.ends_with("below\n"));
        assert!(!page.contains("stale") && page.contains("## Every edit"));
        assert_eq!(renew(&page).expect("both markers"), page);
        assert!(renew("no markers").is_err());
    }

    #[test]
    fn a_line_of_c_fits_a_table() {
        assert_eq!(code("  if( a\t||  b ){"), "`if( a || b ){`");
        assert_eq!(code(&"x".repeat(60)), format!("`{}...`", "x".repeat(50)));
        let mut row = String::new();
        row_to(&mut row, &["`a || b`", "c"]);
        assert_eq!(row, "| `a \\|\\| b` | c |\n");
    }
}
