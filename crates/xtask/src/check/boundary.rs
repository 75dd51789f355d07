//! `csrc/engine.h` and the functions of `src/ffi` say the same: neither compiler sees both.
//!
//! A parameter too many, or one of another width, is undefined behaviour that no test need show. So each function of the header is defined
//! once, with the same parameters in the same order, and nothing else has such a name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Finding;
use super::sources::SourceFile;

const HEADER: &str = "crates/sqlite/csrc/engine.h";
const FUNCTIONS: &str = "crates/sqlite/src/ffi";
/// Names in C, and in Rust where they differ.
const NAMES: [(&str, &str); 10] = [
    ("int", "c_int"),
    ("char", "c_char"),
    ("void", "c_void"),
    ("uint8_t", "u8"),
    ("uint32_t", "u32"),
    ("int32_t", "i32"),
    ("uint64_t", "u64"),
    ("int64_t", "i64"),
    ("double", "f64"),
    ("PlMarks", "ReadMarks"),
];
/// What stands for any pointer to a function.
const CALLED: &str = "fn";

/// Where a function is declared or defined, and its types as Rust writes them: what it answers, and its parameters.
struct Function {
    path: PathBuf,
    line: usize,
    types: Vec<String>,
}

type Functions = BTreeMap<String, Function>;

/// Compares the two.
pub fn check(files: &[SourceFile]) -> Vec<Finding> {
    let in_c = files.iter().filter(|file| file.path == Path::new(HEADER)).flat_map(declared);
    let in_rust = files.iter().filter(|file| file.path.starts_with(FUNCTIONS)).flat_map(defined);
    compare(&in_c.collect(), &in_rust.collect())
}

fn compare(in_c: &Functions, in_rust: &Functions) -> Vec<Finding> {
    let find = |at: &Function, what| Finding { path: at.path.clone(), line: at.line, what };
    let mut findings = Vec::new();
    for (name, declared) in in_c {
        match in_rust.get(name) {
            None => findings.push(find(declared, format!("{name} is defined nowhere"))),
            Some(defined) if defined.types != declared.types => findings.push(find(
                defined,
                format!(
                    "{name} is ({}), in engine.h ({})",
                    defined.types.join(", "),
                    declared.types.join(", ")
                ),
            )),
            Some(_) => {}
        }
    }
    let unknown = in_rust.iter().filter(|(name, _)| !in_c.contains_key(*name));
    findings
        .extend(unknown.map(|(name, defined)| find(defined, format!("engine.h has no {name}"))));
    findings
}

/// The prototypes of the header. Those that the shim itself defines (`pl_shim_...`) are no part of the boundary.
fn declared(header: &SourceFile) -> Vec<(String, Function)> {
    let text = without_comments(&header.text);
    let mut found = Vec::new();
    let (mut line, mut depth) = (1, 0);
    let mut statement = String::new();
    for part in text.split_inclusive(['\n', ';', '{', '}']) {
        let is_directive = statement.trim().is_empty() && part.trim_start().starts_with('#');
        match part.as_bytes().last() {
            Some(b'{') => depth += 1,
            Some(b'}') => depth -= 1,
            Some(b';') if depth == 0 => {
                statement.push_str(part.trim_end_matches(';'));
                let at = |types| Function { path: header.path.clone(), line, types };
                found.extend(prototype(&statement).map(|(name, types)| (name, at(types))));
                statement.clear();
            }
            _ if depth == 0 && !is_directive => statement.push_str(part),
            _ => {}
        }
        line += part.matches('\n').count();
    }
    found.retain(|(name, _)| !name.starts_with("pl_shim_"));
    found
}

/// Keeps the lines.
fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    for (i, part) in text.split("/*").enumerate() {
        let (comment, code) =
            if i == 0 { ("", part) } else { part.split_once("*/").unwrap_or((part, "")) };
        kept.extend(comment.matches('\n'));
        kept.push_str(code);
    }
    kept
}

/// `int pl_x(PlConn *, int a)`: its name and types.
fn prototype(statement: &str) -> Option<(String, Vec<String>)> {
    let (head, rest) = statement.split_once('(')?;
    let name_at = head.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')? + 1;
    let (answer, name) = head.split_at(name_at);
    if !name.starts_with("pl_") {
        return None;
    }
    let mut types = vec![c_type(answer)];
    let parameters = rest.trim_end().strip_suffix(')')?;
    types.extend(parts(parameters).into_iter().filter(|p| *p != "void").map(c_type));
    Some((name.to_owned(), types))
}

/// Splits at commas that are in no brackets.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut before) = (0, ' ');
    let split = list.split(|c: char| {
        match c {
            '(' | '<' | '[' => depth += 1,
            // That of an arrow closes nothing.
            '>' if before == '-' => {}
            ')' | '>' | ']' => depth -= 1,
            _ => {}
        }
        before = c;
        c == ',' && depth == 0
    });
    split.map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// A type of C as Rust writes it; the name of a parameter behind it does not matter.
fn c_type(text: &str) -> String {
    if text.contains("(*") {
        return CALLED.to_owned();
    }
    let (of, pointers) = text.split_at(text.find('*').unwrap_or(text.len()));
    let mut words = of.split_whitespace().filter(|word| *word != "struct").peekable();
    let is_const = words.next_if_eq(&"const").is_some();
    let base = words.next().unwrap_or_default();
    let base = NAMES.iter().find(|(c, _)| *c == base).map_or(base, |(_, rust)| rust);
    let mut written = base.to_owned();
    for i in 0..pointers.matches('*').count() {
        let kind = if i == 0 && is_const { "const" } else { "mut" };
        written = format!("*{kind} {written}");
    }
    // What answers nothing.
    if written == "c_void" { String::new() } else { written }
}

/// The functions of the boundary that a file of Rust defines.
fn defined(file: &SourceFile) -> Vec<(String, Function)> {
    let mut found = Vec::new();
    for (at, _) in file.text.match_indices("extern \"C\" fn pl_") {
        let line = file.text[..at].matches('\n').count() + 1;
        let text = &file.text[at + "extern \"C\" fn ".len()..];
        let Some((name, rest)) = text.split_once('(') else { continue };
        let Some((signature, _)) = rest.split_once('{') else { continue };
        let Some((parameters, answer)) = signature.rsplit_once(')') else { continue };
        let answer = answer.trim().trim_start_matches("->").trim();
        let mut types = vec![answer.to_owned()];
        let of = |p: &str| p.split_once(':').map_or(String::new(), |(_, of)| rust_type(of));
        types.extend(parts(parameters).into_iter().map(of));
        let name = name.split('<').next().unwrap_or(name).to_owned();
        found.push((name, Function { path: file.path.clone(), line, types }));
    }
    found
}

fn rust_type(text: &str) -> String {
    let text = text.trim().replace("&'static ", "*const ");
    if text.contains("extern \"C\" fn(") { CALLED.to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::super::sources::Language;
    use super::*;

    fn found(header: &str, functions: &str) -> Vec<String> {
        let file = |path: &str, language, text: &str| SourceFile {
            path: PathBuf::from(path),
            language,
            text: text.to_owned(),
        };
        let files = [
            file(HEADER, Language::C, header),
            file("crates/sqlite/src/ffi/a.rs", Language::Rust, functions),
        ];
        check(&files).into_iter().map(|f| format!("{}: {}", f.line, f.what)).collect()
    }

    const HEAD: &str = "/* of\n** two lines */\ntypedef struct A { int pl_no(void); } A;\n#define X(a) a\n\
        int  pl_a(const A *, uint32_t n, int (*x)(void*, int), A **out);  /* ends */\nvoid pl_b(void);\n";
    const SAME: &str = "pub unsafe extern \"C\" fn pl_a(\n    a: *const A,\n    n: u32,\n    x: unsafe extern \"C\" fn(*mut c_void, c_int) -> c_int,\n    \
        out: *mut *mut A,\n) -> c_int {\n}\npub extern \"C\" fn pl_b() {}\n";

    #[test]
    fn functions_that_say_the_same_are_let_be() {
        assert_eq!(found(HEAD, SAME), [""; 0]);
    }

    #[test]
    fn a_parameter_of_another_type_or_place_is_found() {
        let wide = SAME.replace("u32", "u64");
        assert!(found(HEAD, &wide)[0].starts_with("1: pl_a is (c_int, *const A, u64, fn,"));
        let shared = HEAD.replace("const A *", "A *");
        assert_eq!(found(&shared, SAME).len(), 1);
        assert_eq!(found(&HEAD.replace("uint32_t n, ", ""), SAME).len(), 1);
    }

    #[test]
    fn a_function_that_one_of_them_lacks_is_found() {
        assert_eq!(
            found(&HEAD.replace("pl_b", "pl_c"), SAME),
            ["6: pl_c is defined nowhere", "8: engine.h has no pl_b"]
        );
    }
}
