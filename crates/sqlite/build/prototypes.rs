//! Reads the prototypes of `btree.h`.
//!
//! The header is regular: one declaration starts on a line with `SQLITE_PRIVATE` and ends with `;`,
//! around it are comments and `#if`/`#else`/`#endif`. Whatever does not fit is an error.

use anyhow::{Context as _, Result, bail, ensure};

/// A function that `btree.h` declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prototype {
    /// Preprocessor lines (`#if ..`, `#ifdef ..`) that the declaration stands under, outermost first.
    pub conditions: Vec<String>,
    /// Return type.
    pub returns: String,
    /// Function name.
    pub name: String,
    /// Parameter types, without names; empty for `void`.
    pub parameters: Vec<Parameter>,
}

/// The type of one parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// A type that a name can follow.
    Plain(String),
    /// A pointer to a function: what stands left and right of `(*)`.
    Function(String, String),
    /// `...`
    Variadic,
}

impl Parameter {
    /// The parameter declared under a name.
    pub fn declare(&self, name: &str) -> String {
        match self {
            Self::Plain(ty) => format!("{ty} {name}"),
            Self::Function(returns, arguments) => format!("{returns}(*{name}){arguments}"),
            Self::Variadic => "...".to_owned(),
        }
    }
}

const GUARD: &str = "SQLITE_BTREE_H";

/// Reads all prototypes of functions whose name starts with `sqlite3`; a repeated one counts once.
pub fn parse(lines: &[&str]) -> Result<Vec<Prototype>> {
    let mut found: Vec<Prototype> = Vec::new();
    let mut conditions: Vec<String> = Vec::new();
    let mut pending = String::new();
    for line in strip_comments(lines) {
        let line = line.trim();
        if let Some(directive) = line.strip_prefix('#') {
            ensure!(pending.is_empty(), "directive inside a prototype: {line}");
            follow(directive.trim_start(), &mut conditions)?;
        } else if !pending.is_empty() || line.starts_with("SQLITE_PRIVATE") {
            pending.push_str(line);
            pending.push(' ');
            if line.ends_with(';') {
                let prototype = declaration(&pending, &conditions)
                    .with_context(|| format!("cannot read prototype `{pending}`"))?;
                pending.clear();
                if found.iter().all(|other| other.name != prototype.name) {
                    found.push(prototype);
                }
            }
        }
    }
    ensure!(conditions.is_empty(), "unfinished #if in btree.h");
    ensure!(pending.is_empty(), "unfinished prototype `{pending}`");
    Ok(found)
}

fn strip_comments(lines: &[&str]) -> Vec<String> {
    let mut inside = false;
    lines
        .iter()
        .map(|line| {
            let mut kept = String::new();
            let mut rest = *line;
            while !rest.is_empty() {
                let (mark, length) = if inside { ("*/", 2) } else { ("/*", 2) };
                let (text, after) = match rest.find(mark) {
                    Some(at) => (&rest[..at], &rest[at + length..]),
                    None => (rest, ""),
                };
                if !inside {
                    kept.push_str(text);
                }
                if rest.contains(mark) {
                    inside = !inside;
                }
                rest = after;
            }
            kept
        })
        .collect()
}

fn follow(directive: &str, conditions: &mut Vec<String>) -> Result<()> {
    let word = directive.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    match word {
        "if" | "ifdef" | "ifndef" => conditions.push(format!("#{directive}")),
        "else" => {
            let last = conditions.pop().context("#else without #if")?;
            conditions.push(format!("#if !({})", expression(&last)?));
        }
        "elif" => bail!("#elif in btree.h is not understood"),
        "endif" => {
            conditions.pop().context("#endif without #if")?;
        }
        _ => {}
    }
    Ok(())
}

/// The condition of an `#if` line as an expression.
fn expression(condition: &str) -> Result<String> {
    let (word, rest) = condition
        .trim_start_matches('#')
        .split_once(char::is_whitespace)
        .with_context(|| format!("empty condition `{condition}`"))?;
    Ok(match word {
        "ifdef" => format!("defined({})", rest.trim()),
        "ifndef" => format!("!defined({})", rest.trim()),
        _ => rest.trim().to_owned(),
    })
}

fn declaration(text: &str, conditions: &[String]) -> Result<Prototype> {
    let text = text
        .trim()
        .strip_prefix("SQLITE_PRIVATE")
        .and_then(|t| t.strip_suffix(");"))
        .context("neither `SQLITE_PRIVATE` in front nor `);` behind")?;
    let (head, parameters) = text.split_once('(').context("no parameter list")?;
    let at = head.rfind("sqlite3").context("no name")?;
    let (returns, name) = (head[..at].trim(), head[at..].trim());
    ensure!(is_word(name), "`{name}` is not a name");
    Ok(Prototype {
        conditions: conditions.iter().filter(|c| !c.contains(GUARD)).cloned().collect(),
        returns: returns.to_owned(),
        name: name.to_owned(),
        parameters: split(parameters)
            .iter()
            .filter(|p| p.as_str() != "void")
            .map(|p| parameter(p))
            .collect::<Result<_>>()?,
    })
}

/// Splits at commas outside parentheses.
fn split(parameters: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0_u32;
    for c in parameters.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts.iter().map(|p| p.trim().to_owned()).collect()
}

fn parameter(text: &str) -> Result<Parameter> {
    if text == "..." {
        return Ok(Parameter::Variadic);
    }
    if let Some((left, right)) = text.split_once("(*)") {
        return Ok(Parameter::Function(left.to_owned(), right.to_owned()));
    }
    ensure!(!text.contains(['(', '[']), "parameter `{text}`");
    // `Btree *p`, `const BtreePayload *pPayload`, `int flags`, `unsigned int mask`, `unsigned`, `Btree*`
    let words: Vec<&str> = text.split_whitespace().collect();
    let (Some(last), Some(first)) = (words.last(), words.first()) else {
        bail!("empty parameter");
    };
    let is_name = words.len() > 1 && {
        let bare = last.trim_start_matches('*');
        let completes_type = !last.starts_with('*')
            && (words.len() == 2 && matches!(*first, "struct" | "const" | "unsigned"))
            && !matches!((*first, bare), ("unsigned", b) if b != "int" && b != "char");
        is_word(bare) && !completes_type
    };
    let ty = if is_name {
        let bare = last.trim_start_matches('*').len();
        text[..text.len() - bare].trim_end()
    } else {
        text
    };
    Ok(Parameter::Plain(ty.to_owned()))
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Vec<Prototype> {
        let lines: Vec<&str> = text.lines().collect();
        parse(&lines).expect("the text is in order")
    }

    fn types(prototype: &Prototype) -> Vec<String> {
        prototype.parameters.iter().map(|parameter| parameter.declare("x")).collect()
    }

    #[test]
    fn a_parameter_loses_its_name_and_keeps_its_type() {
        let found = parse_text(
            "SQLITE_PRIVATE int sqlite3BtreeA(Btree *p, const BtreePayload *pPayload, unsigned,\n\
             \x20   unsigned int mask, int flags, struct KeyInfo*, char **pzOut, void(*)(void *));",
        );
        assert_eq!(
            types(&found[0]),
            [
                "Btree * x",
                "const BtreePayload * x",
                "unsigned x",
                "unsigned int x",
                "int x",
                "struct KeyInfo* x",
                "char ** x",
                "void(*x)(void *)"
            ]
        );
    }

    #[test]
    fn a_prototype_may_span_lines_and_comments() {
        let found = parse_text(
            "/* SQLITE_PRIVATE int sqlite3BtreeNot(int);\n   still a comment */\n\
             SQLITE_PRIVATE const void *sqlite3BtreeB(\n  BtCursor*,  /* the; cursor */\n  u32 *pAmt\n);",
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].returns, "const void *");
        assert_eq!(found[0].name, "sqlite3BtreeB");
        assert_eq!(types(&found[0]), ["BtCursor* x", "u32 * x"]);
    }

    #[test]
    fn a_prototype_knows_its_conditions_but_not_the_include_guard() {
        let found = parse_text(
            "#ifndef SQLITE_BTREE_H\n#ifdef A\n#else\n # if B>1\n\
             SQLITE_PRIVATE void sqlite3BtreeC(void);\n#endif\n#endif\n#endif",
        );
        assert_eq!(found[0].conditions, ["#if !(defined(A))", "#if B>1"]);
        assert!(found[0].parameters.is_empty());
    }

    #[test]
    fn a_header_that_is_not_understood_is_an_error() {
        for text in [
            "#if A\n#elif B\n#endif",
            "#if A",
            "SQLITE_PRIVATE int sqlite3BtreeD(int)",
            "SQLITE_PRIVATE int sqlite3BtreeE(int a[2]);",
        ] {
            let lines: Vec<&str> = text.lines().collect();
            assert!(parse(&lines).is_err(), "{text}");
        }
    }
}
