//! The spliced source as one file, for build systems that take a `sqlite3.c`.
//!
//! Every file of ours that it includes stands in place of its `#include`; headers of SQLite and of the system stay
//! included. The options come first, each unless the compiler's command line has it already.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::flags;
use crate::splice::{Inputs, splice_to};

/// Files include files that include files; more than this is a circle.
const DEPTH_MAX: usize = 8;

/// Splices, and returns all of it as one text. The folder `scratch` receives what the splice writes.
pub fn one_file(inputs: &Inputs<'_>, scratch: &Path) -> Result<String> {
    splice_to(inputs, scratch)?;
    let source = fs::read_to_string(scratch.join("sqlite3.c")).context("cannot read the splice")?;
    let mut out = options();
    inline(&source, &[inputs.csrc, scratch], 0, &mut out)?;
    Ok(out)
}

/// The options that the libraries are built with. Which symbols are visible is for the build to say that compiles this.
fn options() -> String {
    let mut out = String::from(
        "/*\n** SQLite with Plait's b-tree layer, as one file: generated, see README.md beside it. Link it with libplait.a.\n*/\n",
    );
    for (name, value) in flags::DEFINES.iter().filter(|(name, _)| *name != "SQLITE_API") {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "#ifndef {name}\n# define {name} {}\n#endif", value.unwrap_or("1"));
    }
    out
}

fn inline(text: &str, folders: &[&Path], depth: usize, out: &mut String) -> Result<()> {
    ensure!(depth < DEPTH_MAX, "files include each other in a circle");
    for line in text.lines() {
        let found = included(line).and_then(|name| {
            folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
        });
        match found {
            Some(path) => {
                let inner = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                inline(&inner, folders, depth + 1, out)?;
            }
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    Ok(())
}

/// The name in `#include "name"`.
fn included(line: &str) -> Option<&str> {
    line.strip_prefix("#include \"")?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_stands_in_place_of_its_include() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.c"), "int a;\n#include \"b.h\"\n").unwrap();
        fs::write(folder.path().join("b.h"), "int b;\n").unwrap();
        let text = "#include <stdio.h>\n#include \"a.c\"\n#include \"sqlite3.h\"\nint c;\n";
        let mut out = String::new();
        inline(text, &[folder.path()], 0, &mut out).unwrap();
        assert_eq!(out, "#include <stdio.h>\nint a;\nint b;\n#include \"sqlite3.h\"\nint c;\n");
    }

    #[test]
    fn a_circle_of_includes_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.h"), "#include \"a.h\"\n").unwrap();
        let mut out = String::new();
        assert!(inline("#include \"a.h\"", &[folder.path()], 0, &mut out).is_err());
    }

    #[test]
    fn an_option_may_be_given_on_the_command_line() {
        let options = options();
        assert!(
            options.contains("#ifndef SQLITE_THREADSAFE\n# define SQLITE_THREADSAFE 1\n#endif\n")
        );
        assert!(!options.contains("visibility"), "{options}");
    }
}
