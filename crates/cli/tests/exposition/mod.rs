//! The text format of Prometheus, read strictly: what its own parser, and the checks of promtool
//! for names, would complain of panics here.

use std::collections::{BTreeMap, BTreeSet};

/// A text.
#[derive(Debug)]
pub struct Exposition {
    /// Kinds by name.
    pub kinds: BTreeMap<String, String>,
    samples: BTreeMap<(String, Labels), f64>,
}

type Labels = BTreeMap<String, String>;

impl Exposition {
    /// Reads a text.
    #[track_caller]
    pub fn of(text: &str) -> Exposition {
        assert!(text.ends_with('\n'), "the last line has no end");
        let mut read = Exposition { kinds: BTreeMap::new(), samples: BTreeMap::new() };
        let mut helped = BTreeSet::new();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').expect("a name and its help");
                assert!(helped.insert(name.to_owned()) && !words.is_empty(), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a name and its kind");
                assert!(helped.contains(name) && is_name(name), "{line}");
                assert!(["counter", "gauge"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(read.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
                name.clone_into(&mut current);
            } else {
                let (name, labels, value) = sample(line);
                assert_eq!(name, current, "samples of one name stand together, below its kind");
                assert!(value.is_finite() && value >= 0.0, "{line}");
                assert!(read.samples.insert((name, labels), value).is_none(), "twice: {line}");
            }
        }
        read
    }

    /// The value with these labels; `None` if there is none.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        self.samples.get(&(name.to_owned(), labels)).copied()
    }

    /// The value of a database.
    #[track_caller]
    pub fn of_database(&self, name: &str, database: &str) -> f64 {
        self.value(name, &[("database", database)])
            .unwrap_or_else(|| panic!("{name} of {database} is missing in {self:?}"))
    }
}

/// `name{label="value",...} number`.
fn sample(line: &str) -> (String, Labels, f64) {
    let (name, rest) = line.split_once('{').unwrap_or_else(|| panic!("no labels: {line}"));
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    let mut rest = rest;
    loop {
        let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
        assert!(is_name(label) && !label.starts_with("__"), "{line}");
        let (value, after) = quoted(after).unwrap_or_else(|| panic!("{line}"));
        assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => {
                let number = after.strip_prefix("} ").unwrap_or_else(|| panic!("{line}"));
                let number = number.parse().unwrap_or_else(|_| panic!("no number: {line}"));
                return (name.to_owned(), labels, number);
            }
        }
    }
}

/// A text through its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_part)
}
