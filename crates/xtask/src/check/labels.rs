//! Labels of invariants: each is defined once, a mention is of one that is there, and tests say which of them they hold.
//!
//! A label is a word in capitals, `-` and a number. An item of a list defines it, which begins with it: at the head of a Rust file, in a
//! comment of C, or among the invariants of ARCHITECTURE.md. A comment `holds` with labels, above a test, says that the test fails
//! where they do not hold; so does a text of an assert that begins with one. What nothing holds is counted, and is no breach.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Finding;
use super::sources::{self, Language, SourceFile};
use crate::workspace::Workspace;

/// The page whose items are definitions as well.
const CONTRACT: &str = "ARCHITECTURE.md";

/// The tests of this rule have labels that nobody defines.
const THIS: &str = "crates/xtask/src/check/labels.rs";

/// Words of names that look like labels.
const FOREIGN: &[&str] = &["UTF"];

const WORD: std::ops::RangeInclusive<usize> = 2..=8;
const DIGITS: std::ops::RangeInclusive<usize> = 1..=2;

/// An invariant.
struct Defined {
    path: PathBuf,
    line: usize,
    label: String,
    /// The first line of what it says.
    says: String,
}

/// What the texts say of labels.
#[derive(Default)]
struct Labels {
    defined: Vec<Defined>,
    mentioned: Vec<(PathBuf, usize, String)>,
    held: BTreeSet<String>,
    findings: Vec<Finding>,
}

/// Applies the rule, and says how many invariants nothing holds.
pub fn check(workspace: &Workspace, files: &[SourceFile]) -> Result<Vec<Finding>> {
    let labels = Labels::read(files, &sources::pages(&workspace.root)?);
    let (all, unheld) = (labels.defined.len(), labels.unheld().len());
    eprintln!(
        "{all} invariants, of which tests hold {}; `cargo run -p xtask labels` lists the other {unheld}",
        all - unheld
    );
    Ok(labels.breaches())
}

/// Prints the invariants that nothing holds.
pub fn list() -> Result<()> {
    let workspace = Workspace::locate()?;
    let files = sources::collect(&workspace.root)?;
    let labels = Labels::read(&files, &sources::pages(&workspace.root)?);
    for Defined { path, line, label, says } in labels.unheld() {
        println!("{}:{line}: {label} {says}", path.display());
    }
    Ok(())
}

impl Labels {
    fn read(files: &[SourceFile], pages: &[SourceFile]) -> Self {
        let mut labels = Self::default();
        for file in files.iter().chain(pages).filter(|file| file.path != Path::new(THIS)) {
            labels.read_file(file);
        }
        labels
    }

    fn read_file(&mut self, file: &SourceFile) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let number = at + 1;
            let mut find = |what| {
                self.findings.push(Finding { path: file.path.clone(), line: number, what });
            };
            match item(file, line).and_then(defined) {
                Some((label, says)) => self.defined.push(Defined {
                    path: file.path.clone(),
                    line: number,
                    label: label.to_owned(),
                    says: says.to_owned(),
                }),
                None if seems_to_define(file, line) => {
                    find(
                        "an invariant begins with `- `, a word, `-`, a number and a space"
                            .to_owned(),
                    );
                }
                None => {}
            }
            if let Some(names) = holds(line) {
                if !names.clone().all(|name| labels_of(name).eq([name])) {
                    find("`holds` is followed by labels, with commas between them".to_owned());
                } else if !is_above_test(&lines[number..]) {
                    find("`holds` stands above no test".to_owned());
                }
                self.held.extend(names.map(str::to_owned));
            }
            for label in labels_of(line) {
                self.mentioned.push((file.path.clone(), number, label.to_owned()));
            }
            if file.language != Language::Prose {
                let texts = line.split('"').skip(1);
                self.held
                    .extend(texts.filter_map(label_at_start).map(|(label, _)| label.to_owned()));
            }
        }
    }

    /// Definitions that nothing holds.
    fn unheld(&self) -> Vec<&Defined> {
        self.defined.iter().filter(|defined| !self.held.contains(&defined.label)).collect()
    }

    fn breaches(self) -> Vec<Finding> {
        let mut findings = self.findings;
        let mut first: BTreeMap<&str, &Path> = BTreeMap::new();
        for Defined { path, line, label, .. } in &self.defined {
            if let Some(first) = first.get(&**label) {
                let what = format!("{label} is defined in {} too", first.display());
                findings.push(Finding { path: path.clone(), line: *line, what });
            }
            first.entry(label).or_insert(path);
        }
        for (path, line, label) in self.mentioned {
            if !first.contains_key(&*label) {
                findings.push(Finding { path, line, what: format!("nobody defines {label}") });
            }
        }
        findings
    }
}

/// The text of an item of a list where invariants are defined.
fn item<'a>(file: &SourceFile, line: &'a str) -> Option<&'a str> {
    match file.language {
        Language::Rust => line.strip_prefix("//! - "),
        Language::C => line.strip_prefix("**  - "),
        Language::Prose if file.path == Path::new(CONTRACT) => line.strip_prefix("- "),
        Language::Python | Language::Prose => None,
    }
}

/// The label that an item defines, and what it says of it.
fn defined(item: &str) -> Option<(&str, &str)> {
    let (label, says) = label_at_start(item)?;
    Some((label, says.strip_prefix(' ')?))
}

/// Whether a line is meant to define a label and does not: `R9` alone, in bold, without the dash of an item.
fn seems_to_define(file: &SourceFile, line: &str) -> bool {
    let bare = if file.language == Language::C { line.strip_prefix("**  ") } else { None };
    let Some(text) = item(file, line).or(bare) else { return false };
    let name = text.split(' ').next().unwrap_or_default();
    let name = name.trim_matches('*').trim_end_matches(':');
    let (letters, digits) =
        name.split_at(name.trim_end_matches(|c: char| c.is_ascii_digit()).len());
    let is_wordless = (1..=3).contains(&letters.len())
        && letters.bytes().all(|byte| byte.is_ascii_uppercase())
        && DIGITS.contains(&digits.len());
    is_wordless || label_at_start(name).is_some_and(|(label, _)| label == name)
}

/// The labels of a comment that says what a test holds.
fn holds(line: &str) -> Option<impl Iterator<Item = &str> + Clone> {
    let line = line.trim_start();
    let names = line.strip_prefix("// holds ").or_else(|| line.strip_prefix("# holds "))?;
    names.starts_with(|c: char| c.is_ascii_uppercase()).then(|| names.split(", "))
}

/// Whether a test follows: behind comments and attributes.
fn is_above_test(below: &[&str]) -> bool {
    let code = below.iter().map(|line| line.trim_start());
    let mut code = code.skip_while(|line| line.starts_with("//") || line.starts_with("# "));
    let first = code.next().unwrap_or_default();
    let is_test = |line: &str| line.starts_with("#[") && line.contains("test");
    // Those of `in_threads_and_processes!` have no attribute.
    first.starts_with("def test_")
        || first.starts_with("fn ") && first.ends_with("(place) {")
        || is_test(first)
        || first.starts_with("#[") && code.next().is_some_and(is_test)
}

/// All labels in a line, from the left.
fn labels_of(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let parts = line.split(move |c| !is_part(c));
    parts.filter(|part| {
        let word = part.split('-').next().unwrap_or_default();
        !FOREIGN.contains(&word) && label_at_start(part).is_some_and(|(label, _)| label == *part)
    })
}

/// The label that a text begins with, and what follows it.
fn label_at_start(text: &str) -> Option<(&str, &str)> {
    let (word, rest) = text.split_once('-')?;
    let is_word = WORD.contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let ends = !rest[digits..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
    let at = word.len() + 1 + digits;
    (is_word && DIGITS.contains(&digits) && ends).then(|| text.split_at(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, language: Language, text: &str) -> SourceFile {
        SourceFile { path: PathBuf::from(path), language, text: text.to_owned() }
    }

    fn rust(text: &str) -> SourceFile {
        file("room.rs", Language::Rust, text)
    }

    fn breaches(files: &[SourceFile]) -> Vec<(usize, String)> {
        let findings = Labels::read(files, &[]).breaches();
        findings.into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    fn unheld(files: &[SourceFile]) -> Vec<String> {
        let labels = Labels::read(files, &[]);
        labels.unheld().into_iter().map(|defined| defined.label.clone()).collect()
    }

    const DEFINITION: &str = "//! - ROOM-1 It is open.\n";

    #[test]
    fn rust_c_and_the_contract_define_labels() {
        let files = [
            rust(DEFINITION),
            file(
                "hall.c",
                Language::C,
                "/*\n** hall.c\n**  - HALL-1 It is long.\n**    Or not.\n*/\n",
            ),
            file(CONTRACT, Language::Prose, "- HOUSE-1 It stands (ROOM-1, HALL-1).\n"),
        ];
        assert!(breaches(&files).is_empty());
        assert_eq!(unheld(&files), ["ROOM-1", "HALL-1", "HOUSE-1"]);
    }

    #[test]
    fn a_label_is_defined_once() {
        let again = file("attic.rs", Language::Rust, DEFINITION);
        assert_eq!(
            breaches(&[rust(DEFINITION), again]),
            [(1, "ROOM-1 is defined in room.rs too".to_owned())]
        );
        let twice = rust(&format!("{DEFINITION}{DEFINITION}"));
        assert_eq!(breaches(&[twice]), [(2, "ROOM-1 is defined in room.rs too".to_owned())]);
    }

    #[test]
    fn a_mention_is_of_a_label_that_is_defined() {
        for mention in
            ["// ROOM-2.", "/// (ROOM-2)", "check(\"ROOM-2: shut\");", "//! `ROOM-2`, too"]
        {
            let found = breaches(&[rust(&format!("{DEFINITION}{mention}\n"))]);
            assert_eq!(found, [(2, "nobody defines ROOM-2".to_owned())], "{mention}");
        }
        let page = file("docs/page.md", Language::Prose, "- ROOM-1 is no definition here.\n");
        assert_eq!(breaches(&[page]), [(1, "nobody defines ROOM-1".to_owned())]);
    }

    #[test]
    fn other_names_are_no_labels() {
        let text = "// UTF-8, X-1, ROOM-100, BROOM_ROOM-2, ROOM-2-3, MANSIONES-1 and ROOM-2nd\n";
        assert!(breaches(&[rust(text)]).is_empty());
    }

    #[test]
    fn an_invariant_has_no_label_of_another_form() {
        let what = "an invariant begins with `- `, a word, `-`, a number and a space";
        for item in [
            "//! - R9 Shut.",
            "//! - **R9** Shut.",
            "//! - **ROOM-9** Shut.",
            "//! - ROOM-9: shut.",
        ] {
            let found = breaches(&[rust(&format!("{item}\n"))]);
            assert!(found.contains(&(1, what.to_owned())), "{item}");
        }
        for item in ["**  R9 Shut.", "**  - R9 Shut.", "**  ROOM-9 Shut."] {
            let text = format!("{item}\n**  An item of others.\n");
            let found = breaches(&[file("hall.c", Language::C, &text)]);
            assert_eq!(found.first(), Some(&(1, what.to_owned())), "{item}");
        }
    }

    #[test]
    fn a_test_or_the_text_of_an_assert_holds_a_label() {
        let held = [
            "    // holds ROOM-1\n    #[test]\n    fn it_is_open() {}\n",
            "    // holds ROOM-1\n    fn it_is_open(place) {\n",
            "// holds ROOM-1\n// Slow.\n#[cfg(unix)]\n#[test]\nfn it_is_open() {}\n",
            "debug_assert!(is_open, \"ROOM-1\");\n",
            "return Err(format!(\"ROOM-1: {door} is shut\"));\n",
        ];
        for text in held {
            let files = [rust(&format!("{DEFINITION}{text}"))];
            assert!(breaches(&files).is_empty() && unheld(&files).is_empty(), "{text}");
        }
        let python = file("test_room.py", Language::Python, "# holds ROOM-1\ndef test_open():\n");
        assert!(unheld(&[rust(DEFINITION), python]).is_empty());
        let open = [rust(&format!("{DEFINITION}// It keeps ROOM-1.\nsay(\"see ROOM-1\");\n"))];
        assert_eq!(unheld(&open), ["ROOM-1"]);
    }

    #[test]
    fn what_holds_is_a_test_and_names_labels_alone() {
        let found = |text: &str| breaches(&[rust(&format!("{DEFINITION}{text}"))]);
        let lost = [(2, "`holds` stands above no test".to_owned())];
        assert_eq!(found("// holds ROOM-1\nfn open() {}\n"), lost);
        assert_eq!(found("// holds ROOM-1\n\n#[test]\n"), lost);
        let prose = [(2, "`holds` is followed by labels, with commas between them".to_owned())];
        assert_eq!(found("// holds ROOM-1 and more\n#[test]\nfn open() {}\n"), prose);
        assert!(found("// holds a lock\nfn open() {}\n").is_empty());
    }
}
