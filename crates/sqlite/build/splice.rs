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

/// Splices: wrappers around the functions of `lists`, and every edit at its place.
pub fn splice(amalgamation: &str, lists: &Lists, edits: &[Edit]) -> Result<Spliced> {
    let source = Source::new(amalgamation)?;
    let layer = source.section(LAYER)?;
    let declared = prototypes::parse(&source.lines[source.section("btree.h")?])?;
    let headers = wrappers::generate(&declared, lists, |name| {
        defines(&source.lines[layer.clone()], name)
    })?;

    let mut output = Output::new(&source);
    output.insert(layer.start, Place::Before, BEFORE_LAYER);
    output.insert(layer.end - 1, Place::After, AFTER_LAYER);
    for edit in edits {
        apply(&source, edit, &mut output).with_context(|| {
            format!(
                "cannot splice SQLite: in section {} the line\n    {}\n(changed because: {})",
                edit.section, edit.anchor, edit.why
            )
        })?;
    }
    Ok(Spliced {
        source: output.finish(),
        headers,
    })
}

fn apply<'a>(source: &Source<'a>, edit: &Edit, output: &mut Output<'a>) -> Result<()> {
    let at = source.only(edit.anchor, source.section(edit.section)?)?;
    ensure!(
        edit.place != Place::Replace || !output.slots[at].replaced,
        "is replaced by two edits"
    );
    let lines: Vec<&'static str> = edit.text.split('\n').collect();
    output.insert(at, edit.place, &lines);
    Ok(())
}

/// Tells whether the lines define a function: its name at the start of a definition that has a body.
fn defines(lines: &[&str], name: &str) -> bool {
    lines.iter().enumerate().any(|(i, line)| {
        let declares = line.starts_with("SQLITE_PRIVATE")
            && line
                .find(name)
                .is_some_and(|at| line[at + name.len()..].starts_with('('));
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
        let slots = source
            .lines
            .iter()
            .map(|line| Slot {
                line,
                ..Slot::default()
            })
            .collect();
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
