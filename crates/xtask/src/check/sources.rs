//! The source files that the rules apply to.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A source file with its text.
pub struct SourceFile {
    /// Relative to the workspace.
    pub path: PathBuf,
    pub language: Language,
    pub text: String,
}

/// What a file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Rust,
    C,
    Python,
    /// Pages in Markdown.
    Prose,
}

impl Language {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "rs" => Some(Self::Rust),
            "c" | "h" => Some(Self::C),
            "py" => Some(Self::Python),
            "md" => Some(Self::Prose),
            _ => None,
        }
    }

    /// The rules for source files apply to it.
    fn has_rules(self) -> bool {
        matches!(self, Self::Rust | Self::C)
    }
}

/// Reads every Rust and C file under `crates`, `packages`, `python` and `tests`.
pub fn collect(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for directory in ["crates", "packages", "python", "tests"] {
        walk(&root.join(directory), root, &Language::has_rules, &mut files)?;
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Reads what else names parts of the sources: pages, and what is written in Python.
pub fn pages(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for directory in ["crates", "docs", "python", "tests"] {
        walk(&root.join(directory), root, &|language| !language.has_rules(), &mut files)?;
    }
    for page in ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md"] {
        files.push(read(&root.join(page), root, Language::Prose)?);
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(
    directory: &Path,
    root: &Path,
    is_wanted: &impl Fn(Language) -> bool,
    files: &mut Vec<SourceFile>,
) -> Result<()> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            // What cargo and `make wheel` have built, sources of others among it.
            if entry.file_name() != "target" && path != root.join("python/build") {
                walk(&path, root, is_wanted, files)?;
            }
        } else if let Some(language) = Language::of(&path).filter(|&language| is_wanted(language)) {
            files.push(read(&path, root, language)?);
        }
    }
    Ok(())
}

fn read(path: &Path, root: &Path, language: Language) -> Result<SourceFile> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(SourceFile { path: path.strip_prefix(root)?.to_owned(), language, text })
}
