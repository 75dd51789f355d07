//! C functions stop at 70 lines, as Rust functions do (there clippy counts).
//!
//! A function is taken to begin on a line that starts in the first column and ends in `{`, or on a
//! lone `{` there, and to end at the next `}` in the first column: the layout that `csrc` keeps.
//! Types and tables end in `};` and do not count.

use super::Finding;
use super::sources::{Language, SourceFile};

/// Longest function, without the line of its closing brace.
const LINES_MAX: usize = 70;

/// Applies the rule to one file.
pub fn check(file: &SourceFile) -> Vec<Finding> {
    if file.language != Language::C {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut begun: Option<usize> = None;
    for (number, line) in (1..).zip(file.text.lines()) {
        if line == "}" {
            if let Some(first) = begun.take()
                && number - first > LINES_MAX
            {
                findings.push(Finding {
                    path: file.path.clone(),
                    line: first,
                    what: format!("a function of {} lines; at most {LINES_MAX}", number - first),
                });
            }
        } else if line.starts_with('}') {
            begun = None;
        } else if begun.is_none() && opens(line) {
            begun = Some(number);
        }
    }
    findings
}

fn opens(line: &str) -> bool {
    line.ends_with('{') && !line.starts_with([' ', '\t', '#', '*', '/'])
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn found(text: &str) -> Vec<usize> {
        let file =
            SourceFile { path: PathBuf::from("a.c"), language: Language::C, text: text.to_owned() };
        check(&file).into_iter().map(|f| f.line).collect()
    }

    #[test]
    fn a_long_function_is_found_where_it_begins() {
        let body = "  x();\n".repeat(LINES_MAX);
        assert_eq!(found(&format!("\nint f(void){{\n{body}}}\n")), [2]);
        let body = "  x();\n".repeat(LINES_MAX - 1);
        assert!(found(&format!("\nint f(void){{\n{body}}}\n")).is_empty());
    }

    #[test]
    fn a_long_table_is_no_function() {
        let body = "  1,\n".repeat(200);
        let text = format!("static int a[] = {{\n{body}}};\nint f(void){{\n}}\n");
        assert!(found(&text).is_empty());
    }
}
