//! Turns the pristine amalgamation into one with the dispatch layer inside.
//!
//! ```text
//! ... btreeInt.h, btmutex.c
//! #include "pl_stock.h"      prototypes of sqlite3StockBtreeX
//! #include "dispatch.h"      csrc: handles, PL_BT, PL_CSR, hooks called from btree.c
//! #include "pl_rename.h"
//! ... btree.c, untouched but for the edits
//! #include "pl_unrename.h"
//! #include "pl_forward.h"    generated wrappers
//! #include "dispatch.c"      csrc: alternatives, handwritten wrappers, hooks
//! ... backup.c, vdbe.c, ...
//! ```

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::edits::{Edit, Place};
use crate::prototypes;
use crate::sections::Source;
use crate::wrappers::{self, Headers, Lists};

/// The section that the dispatch layer goes around.
const LAYER: &str = "btree.c";

const BEFORE_LAYER: &[&str] = &[
    "#include \"pl_stock.h\" /* [plait] */",
    "#include \"dispatch.h\" /* [plait] */",
    "#include \"pl_rename.h\" /* [plait] */",
];
const AFTER_LAYER: &[&str] = &[
    "#include \"pl_unrename.h\" /* [plait] */",
    "#include \"pl_forward.h\" /* [plait] */",
    "#include \"dispatch.c\" /* [plait] */",
];

/// The spliced amalgamation and the headers that it includes.
#[derive(Debug)]
pub struct Spliced {
    /// The new `sqlite3.c`.
    pub source: String,
    /// The generated headers.
    pub headers: Headers,
}

/// What a splice is made of.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The pristine `sqlite3.c`.
    pub amalgamation: &'a Path,
    /// The directory of the dispatch layer, with `alternatives.txt` and `handwritten.txt`.
    pub csrc: &'a Path,
    /// The edits to make.
    pub edits: &'a [Edit],
}

/// Splices files and writes `sqlite3.c` and the generated headers into the directory `out`.
pub fn splice_to(inputs: &Inputs<'_>, out: &Path) -> Result<()> {
    let lists = Lists {
        alternatives: read_list(inputs, "alternatives.txt", wrappers::parse_alternatives)?,
        handwritten: read_list(inputs, "handwritten.txt", wrappers::parse_list)?,
    };
    let spliced = splice(&read(inputs.amalgamation)?, &lists, inputs.edits)?;
    let headers = &spliced.headers;
    for (name, text) in [
        ("sqlite3.c", &spliced.source),
        ("pl_stock.h", &headers.stock),
        ("pl_rename.h", &headers.rename),
        ("pl_unrename.h", &headers.unrename),
        ("pl_forward.h", &headers.forward),
    ] {
        fs::write(out.join(name), text)
            .with_context(|| format!("cannot write {name} into {}", out.display()))?;
    }
    Ok(())
}

fn read_list<T>(inputs: &Inputs<'_>, name: &str, parse: fn(&str) -> Result<T>) -> Result<T> {
    let path = inputs.csrc.join(name);
    parse(&read(&path)?).with_context(|| path.display().to_string())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Splices: wrappers around the functions of `lists`, and every edit at its place.
pub fn splice(amalgamation: &str, lists: &Lists, edits: &[Edit]) -> Result<Spliced> {
    let source = Source::new(amalgamation)?;
    let layer = source.section(LAYER)?;
    let declared = prototypes::parse(&source.lines[source.section("btree.h")?])?;
    let headers =
        wrappers::generate(&declared, lists, |name| defines(&source.lines[layer.clone()], name))?;

    let mut output = Output::new(&source);
    output.insert(layer.start, Place::Before, BEFORE_LAYER);
    output.insert(layer.end - 1, Place::After, AFTER_LAYER);
    // All that do not fit are told at once: who takes over a new SQLite goes through them.
    let misfits: Vec<String> = edits
        .iter()
        .filter_map(|edit| {
            let why = apply(&source, edit, &mut output).err()?;
            Some(format!(
                "in section {} the line\n    {}\n{why:#} (changed because: {})",
                edit.section, edit.anchor, edit.why
            ))
        })
        .collect();
    ensure!(
        misfits.is_empty(),
        "cannot splice SQLite: {} edits do not fit: {}",
        misfits.len(),
        misfits.join("; ")
    );
    Ok(Spliced { source: output.finish(), headers })
}

fn apply<'a>(source: &Source<'a>, edit: &Edit, output: &mut Output<'a>) -> Result<()> {
    let at = source.only(edit.anchor, source.section(edit.section)?)?;
    ensure!(edit.place != Place::Replace || !output.slots[at].replaced, "is replaced by two edits");
    let lines: Vec<&'static str> = edit.text.split('\n').collect();
    output.insert(at, edit.place, &lines);
    Ok(())
}

/// Tells whether the lines define a function: its name at the start of a definition that has a body.
fn defines(lines: &[&str], name: &str) -> bool {
    lines.iter().enumerate().any(|(i, line)| {
        let declares = line.starts_with("SQLITE_PRIVATE")
            && line.find(name).is_some_and(|at| line[at + name.len()..].starts_with('('));
        declares
            && lines[i..]
                .iter()
                .find_map(|l| l.find(['{', ';']).map(|at| l.as_bytes()[at] == b'{'))
                .unwrap_or(false)
    })
}

/// The lines of the output, each with what was put around it.
struct Output<'a> {
    slots: Vec<Slot<'a>>,
}

#[derive(Clone, Default)]
struct Slot<'a> {
    before: Vec<&'static str>,
    line: &'a str,
    replaced: bool,
    replacement: Vec<&'static str>,
    after: Vec<&'static str>,
}

impl<'a> Output<'a> {
    fn new(source: &Source<'a>) -> Self {
        let slots = source.lines.iter().map(|line| Slot { line, ..Slot::default() }).collect();
        Self { slots }
    }

    fn insert(&mut self, at: usize, place: Place, lines: &[&'static str]) {
        let slot = &mut self.slots[at];
        let list = match place {
            Place::Before => &mut slot.before,
            Place::After => &mut slot.after,
            Place::Replace => {
                slot.replaced = true;
                &mut slot.replacement
            }
        };
        list.extend_from_slice(lines);
    }

    fn finish(self) -> String {
        let mut out = String::new();
        for slot in &self.slots {
            let line = (!slot.replaced).then_some(slot.line);
            let all = slot
                .before
                .iter()
                .copied()
                .chain(line)
                .chain(slot.replacement.iter().copied())
                .chain(slot.after.iter().copied());
            for line in all {
                out.push_str(line);
                out.push('\n');
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::edits::{EDITS, FILES};
    use crate::{upstream, wrappers::parse_alternatives};

    const SMALL: &str = "\
/************** Begin file btree.h ****/
SQLITE_PRIVATE int sqlite3BtreeNext(BtCursor*, int);
/************** End of btree.h ****/
/************** Begin file btree.c ****/
  twice();
SQLITE_PRIVATE int sqlite3BtreeNext(BtCursor *pCur, int flags){
  once();
  twice();
}
/************** End of btree.c ****/
/************** Begin file vdbe.c ****/
  once();
/************** End of vdbe.c ****/
";

    fn edit(anchor: &'static str, place: Place) -> Edit {
        Edit { section: "btree.c", anchor, place, text: "  one\n  two", why: "a test needs it" }
    }

    fn small(edits: &[Edit]) -> Result<String> {
        let alternatives = parse_alternatives("sqlite3BtreeNext")?;
        let lists = Lists { alternatives, ..Lists::default() };
        splice(SMALL, &lists, edits).map(|spliced| spliced.source)
    }

    fn failure(edits: &[Edit]) -> String {
        format!("{:#}", small(edits).expect_err("must not work"))
    }

    #[test]
    fn an_edit_lands_in_its_section_alone() {
        let text = small(&[edit("  once();", Place::Replace)]).expect("the line is there once");
        let (btree, vdbe) = text.split_once("Begin file vdbe.c").expect("both sections");
        assert!(btree.contains("{\n  one\n  two\n  twice();"));
        assert!(vdbe.contains("  once();"));
    }

    #[test]
    fn edits_may_meet_at_one_line() {
        let text = small(&[edit("  once();", Place::After), edit("  once();", Place::Before)])
            .expect("they do not contradict each other");
        assert!(text.contains("  one\n  two\n  once();\n  one\n  two\n"));
    }

    #[test]
    fn a_missing_anchor_stops_the_build_and_is_named() {
        let message = failure(&[edit("  gone();", Place::After)]);
        for part in ["section btree.c", "  gone();", "a test needs it", "found 0 times"] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }

    #[test]
    fn a_doubled_anchor_stops_the_build_and_is_named() {
        let message = failure(&[edit("  twice();", Place::Before)]);
        for part in ["section btree.c", "  twice();", "found 2 times"] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }

    #[test]
    fn a_part_of_a_line_is_no_anchor() {
        assert!(failure(&[edit("once();", Place::After)]).contains("found 0 times"));
    }

    #[test]
    fn a_line_is_replaced_by_one_edit_only() {
        let message =
            failure(&[edit("  once();", Place::Replace), edit("  once();", Place::Replace)]);
        assert!(message.contains("replaced by two edits"), "{message}");
    }

    #[test]
    fn a_missing_section_stops_the_build() {
        let mut elsewhere = edit("  once();", Place::After);
        elsewhere.section = "pager.c";
        assert!(failure(&[elsewhere]).contains("no banner `Begin file pager.c`"));
    }

    #[test]
    fn the_layer_stands_around_btree_c() {
        let text = small(&[]).expect("no edits");
        let order = [
            "End of btree.h",
            "pl_stock.h",
            "dispatch.h",
            "pl_rename.h",
            "Begin file btree.c",
            "End of btree.c",
            "pl_unrename.h",
            "pl_forward.h",
            "dispatch.c",
            "Begin file vdbe.c",
        ];
        let places: Vec<_> = order.iter().map(|mark| text.find(mark)).collect();
        assert!(places.is_sorted() && places[0].is_some(), "{places:?}");
    }

    fn pinned_amalgamation() -> String {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(3)
            .expect("this package lies three levels below the workspace");
        let found = upstream::amalgamation(workspace).expect("the amalgamation is there");
        fs::read_to_string(found.source).expect("it is readable")
    }

    #[test]
    fn every_edit_fits_the_pinned_amalgamation() {
        let spliced =
            splice(&pinned_amalgamation(), &Lists::default(), &EDITS).expect("every edit fits");
        let ours = spliced.source.matches("[plait]").count();
        let expected: usize = EDITS.iter().map(|e| e.text.matches("[plait]").count()).sum();
        assert_eq!(ours, expected + BEFORE_LAYER.len() + AFTER_LAYER.len());
    }

    #[test]
    fn what_a_concern_says_to_look_at_is_there() {
        let amalgamation = pinned_amalgamation();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let known: HashSet<&str> = amalgamation.split(|c| !is_part(c)).collect();
        for concern in FILES.iter().flat_map(|(_, concerns)| *concerns) {
            let quoted = concern.look_at.split('`').skip(1).step_by(2);
            let functions =
                quoted.filter(|name| name.chars().all(is_part) && !name.starts_with("pl"));
            let constants = concern.look_at.split(|c| !is_part(c));
            let constants =
                constants.filter(|w| ["OP_", "SQLITE_", "UNIX_"].iter().any(|p| w.starts_with(p)));
            for name in functions.chain(constants) {
                assert!(known.contains(name), "{} ({}) is not in SQLite", name, concern.title);
            }
        }
    }

    #[test]
    fn the_pinned_amalgamation_is_the_release_it_is_said_to_be() {
        let version = format!("#define SQLITE_VERSION        \"{}\"\n", upstream::SQLITE_VERSION);
        assert!(pinned_amalgamation().contains(&version));
    }

    #[test]
    fn the_bits_that_mark_our_cursors_are_free() {
        let text = pinned_amalgamation();
        let hints = "sqlite3BtreeCursorHintFlags(pCur->uc.pCursor,\n                               (pOp->p5 & (OPFLAG_BULKCSR|OPFLAG_SEEKEQ)));";
        assert_eq!(text.matches(hints).count(), 1);
        assert_eq!(
            text.matches("sqlite3BtreeCursorHintFlags(").count(),
            3,
            "declared, defined, called"
        );
        for (name, value) in [("OPFLAG_BULKCSR", "0x01"), ("OPFLAG_SEEKEQ", "0x02")] {
            let line = text.lines().find(|line| line.starts_with(&format!("#define {name} ")));
            assert_eq!(line.and_then(|line| line.split_whitespace().nth(2)), Some(value), "{name}");
        }
    }

    #[test]
    fn every_inserted_line_is_marked() {
        for edit in EDITS.iter() {
            for line in edit.text.lines() {
                assert!(line.contains("[plait]"), "{line}");
            }
        }
    }
}
