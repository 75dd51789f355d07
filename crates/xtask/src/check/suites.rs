//! The suites of `tests/tests`: each lies in the folder of its promise, is declared once, and stands in the table of
//! docs/testing.md.
//!
//! Cargo finds no suites in folders by itself. A suite that nobody declares is never run, and nobody misses it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use plait_splice::manifest;
use serde_json::Value;

use super::Finding;
use super::sources::SourceFile;
use crate::workspace::Workspace;

const FOLDER: &str = "tests/tests";
const MANIFEST: &str = "tests/Cargo.toml";
const PAGE: &str = "docs/testing.md";
/// The header of the table, from which on each line is a folder.
const TABLE: &str = "| folder | its promise | suites |";

/// A test program that a manifest declares.
struct Declared {
    name: String,
    /// Relative to the workspace.
    path: PathBuf,
}

/// Compares the files with the manifest and the page.
pub fn check(workspace: &Workspace, files: &[SourceFile]) -> Result<Vec<Finding>> {
    let metadata = manifest::metadata(Some(&workspace.root.join("Cargo.toml")), "--no-deps")?;
    let packages = manifest::packages(&metadata)?;
    let path = workspace.root.join(MANIFEST);
    let package = packages.iter().find(|package| manifest::path(package).is_ok_and(|p| p == path));
    let package = package.with_context(|| format!("cargo knows no {MANIFEST}"))?;
    let declared = declared(package, &workspace.root)?;
    let page = std::fs::read_to_string(workspace.root.join(PAGE))
        .with_context(|| format!("cannot read {PAGE}"))?;
    let suites: Vec<&Path> =
        files.iter().map(|file| &*file.path).filter(|path| path.starts_with(FOLDER)).collect();
    let mut findings = undeclared(&suites, &declared);
    findings.extend(unlisted(&suites, &page));
    Ok(findings)
}

fn declared(package: &Value, root: &Path) -> Result<Vec<Declared>> {
    let targets = package["targets"].as_array().context("cargo metadata lists no targets")?;
    let tests = targets.iter().filter(|target| target["kind"][0] == "test");
    tests
        .map(|target| {
            let path = Path::new(manifest::text(target, "src_path")?);
            Ok(Declared {
                name: manifest::text(target, "name")?.to_owned(),
                path: path.strip_prefix(root)?.to_owned(),
            })
        })
        .collect()
}

/// A file and a declaration belong to each other, and both have the name of the suite.
fn undeclared(suites: &[&Path], declared: &[Declared]) -> Vec<Finding> {
    let find = |path: &Path, what| Finding { path: path.to_owned(), line: 0, what };
    let mut findings = Vec::new();
    for path in suites {
        if folder(path).is_none() {
            findings.push(find(path, format!("lies in no folder of {FOLDER}")));
        }
        match declared.iter().filter(|test| test.path == *path).count() {
            0 => {
                findings.push(find(path, format!("is not declared in {MANIFEST}: nobody runs it")))
            }
            1 => {}
            times => findings.push(find(path, format!("is declared {times} times in {MANIFEST}"))),
        }
    }
    for Declared { name, path } in declared {
        if !suites.contains(&&**path) {
            findings.push(find(path, format!("is declared in {MANIFEST} and is not there")));
        }
        if path.file_stem().is_none_or(|stem| stem != &**name) {
            findings.push(find(path, format!("is declared in {MANIFEST} by another name: {name}")));
        }
    }
    findings
}

/// Each folder has a line in the table, which names its suites in their order.
fn unlisted(suites: &[&Path], page: &str) -> Vec<Finding> {
    let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for path in suites {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let Some((folder, stem)) = folder(path).zip(stem) else { continue };
        folders.entry(folder).or_default().push(stem);
    }
    let lines = (1..).zip(page.lines()).skip_while(|(_, line)| *line != TABLE).skip(2);
    let rows: Vec<_> = lines.take_while(|(_, line)| line.starts_with('|')).collect();
    let find = |line, what| Finding { path: PathBuf::from(PAGE), line, what };
    let row_of = |folder| rows.iter().find(|(_, row)| row.starts_with(&format!("| `{folder}` |")));
    let mut findings = Vec::new();
    for (folder, names) in &mut folders {
        names.sort_unstable();
        let names = format!("`{}`", names.join("`, `"));
        match row_of(folder) {
            None => findings.push(find(0, format!("the table of suites has no line for {folder}"))),
            Some((_, row)) if row.ends_with(&format!(" | {names} |")) => {}
            Some((line, _)) => findings.push(find(*line, format!("the suites are: {names}"))),
        }
    }
    if rows.len() > folders.len() {
        let number = rows.first().map_or(0, |(number, _)| *number);
        findings.push(find(number, "the table of suites has a line for no folder".to_owned()));
    }
    findings
}

/// The folder of a suite, if it is in one, and in no further one.
fn folder(suite: &Path) -> Option<&str> {
    let inside = suite.strip_prefix(FOLDER).ok()?;
    let folder = inside.parent()?.to_str()?;
    (inside.iter().count() == 2).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn against(suites: &[&str], declared: &[(&str, &str)]) -> Vec<String> {
        let path = |name: &&str| Path::new(FOLDER).join(name);
        let suites: Vec<PathBuf> = suites.iter().map(path).collect();
        let suites: Vec<&Path> = suites.iter().map(PathBuf::as_path).collect();
        let declared: Vec<Declared> = declared
            .iter()
            .map(|(name, file)| Declared { name: (*name).to_owned(), path: path(file) })
            .collect();
        undeclared(&suites, &declared).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_suite_is_declared_once_by_its_name() {
        let suites = ["sql/cursors.rs", "maps/values.rs"];
        let both = [("cursors", "sql/cursors.rs"), ("values", "maps/values.rs")];
        assert!(against(&suites, &both).is_empty());
        assert_eq!(
            against(&suites, &both[..1]),
            ["is not declared in tests/Cargo.toml: nobody runs it"]
        );
        let twice = [both[0], both[1], both[0]];
        assert_eq!(against(&suites, &twice), ["is declared 2 times in tests/Cargo.toml"]);
        assert_eq!(
            against(&suites[..1], &both),
            ["is declared in tests/Cargo.toml and is not there"]
        );
        let renamed = [("cursor", "sql/cursors.rs"), both[1]];
        assert_eq!(
            against(&suites, &renamed),
            ["is declared in tests/Cargo.toml by another name: cursor"]
        );
    }

    #[test]
    fn a_suite_is_in_a_folder_and_in_no_further_one() {
        for lost in ["cursors.rs", "sql/open/cursors.rs"] {
            assert_eq!(
                against(&[lost], &[("cursors", lost)]),
                ["lies in no folder of tests/tests"],
                "{lost}"
            );
        }
    }

    #[test]
    fn the_table_names_the_suites_of_each_folder() {
        let suites =
            ["sql/cursors.rs", "sql/cursors_open.rs"].map(|name| Path::new(FOLDER).join(name));
        let suites = suites.each_ref().map(PathBuf::as_path);
        let page =
            |rows: &str| format!("# Tests\n\n{TABLE}\n|---|---|---|\n{rows}\nThat is all.\n");
        let lines = |rows: &str| -> Vec<usize> {
            unlisted(&suites, &page(rows)).into_iter().map(|finding| finding.line).collect()
        };
        let row = "| `sql` | as SQLite | `cursors`, `cursors_open` |\n";
        assert!(lines(row).is_empty());
        assert_eq!(lines("| `sql` | as SQLite | `cursors` |\n"), [5]);
        assert_eq!(lines(""), [0]);
        assert_eq!(lines(&format!("{row}| `maps` | none | `values` |\n")), [5]);
    }
}
