//! `site`: the pages of the tree, laid out in target/site for mdBook.
//!
//! `site/SUMMARY.md` lists the pages in their order. They are taken as they are, but for links to files that the site
//! has not: those become links to the sources elsewhere, or plain text.

pub mod links;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::workspace::Workspace;

/// The order of the pages.
pub const SUMMARY: &str = "site/SUMMARY.md";

/// Lays the site out. `source`: the address at which a forge shows the files of the tree.
pub fn lay(source: Option<&str>) -> Result<()> {
    let Workspace { root, target } = Workspace::locate()?;
    let book = target.join("site");
    if book.exists() {
        fs::remove_dir_all(&book).with_context(|| format!("cannot empty {}", book.display()))?;
    }
    let src = book.join("src");
    copy(&root.join(SUMMARY), &src.join("SUMMARY.md"))?;
    for file in ["book.toml", "plait.css"] {
        copy(&root.join("site").join(file), &book.join(file))?;
    }
    let pages = order(&root)?;
    for page in &pages {
        let text = read(&root.join(page))?;
        let (text, files) = for_site(page, &text, &pages, source);
        let to = src.join(page);
        fs::create_dir_all(to.parent().context("a page is in a folder")?)?;
        fs::write(&to, text).with_context(|| format!("cannot write {}", to.display()))?;
        for file in files {
            copy(&root.join(&file), &src.join(&file))?;
        }
    }
    Ok(())
}

/// The pages of the site, as paths in the repository.
pub fn order(root: &Path) -> Result<Vec<PathBuf>> {
    let summary = read(&root.join(SUMMARY))?;
    Ok(links::read(&summary).links.into_iter().map(|link| link.destination.into()).collect())
}

/// The text of a page in the site, and the files that it leads to there.
fn for_site(
    page: &Path,
    text: &str,
    pages: &[PathBuf],
    source: Option<&str>,
) -> (String, BTreeSet<PathBuf>) {
    let mut shown = text.to_owned();
    let mut files = BTreeSet::new();
    // From the end, so that what is before stays where it was found.
    for link in links::read(text).links.into_iter().rev() {
        let Some((file, _)) = links::target(page, &link.destination) else { continue };
        let said = &text[link.shown];
        if pages.contains(&file) {
            // mdBook makes an index of each such page, and leaves links to it as they are.
            if file.ends_with("README.md") {
                let index = link.destination.replace("README.md", "index.md");
                shown.replace_range(link.whole, &format!("[{said}]({index})"));
            }
            continue;
        }
        if has_pages(&file, pages) {
            files.insert(file);
            continue;
        }
        let instead = match source {
            Some(source) => {
                format!("[{said}]({}/{})", source.trim_end_matches('/'), file.display())
            }
            None => said.to_owned(),
        };
        shown.replace_range(link.whole, &instead);
    }
    (shown, files)
}

/// True if a file is in a folder of pages, or below one: it goes with them.
fn has_pages(file: &Path, pages: &[PathBuf]) -> bool {
    let mut folders = pages.iter().filter_map(|page| page.parent());
    folders.any(|folder| folder != Path::new("") && file.starts_with(folder))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_sources_become_text_and_what_is_beside_pages_goes_along() {
        let pages = ["README.md", "docs/a.md", "docs/b/README.md"].map(PathBuf::from);
        let text = "[a](docs/a.md#x) ![p](docs/pictures/p.svg) [the `shop`](examples/app.py) [s](https://example.org)";
        let (shown, files) = for_site(Path::new("README.md"), text, &pages, None);
        assert_eq!(shown, text.replace("[the `shop`](examples/app.py)", "the `shop`"));
        assert_eq!(files.into_iter().collect::<Vec<_>>(), [Path::new("docs/pictures/p.svg")]);

        let (shown, _) =
            for_site(Path::new("docs/a.md"), "[b](../crates/b.rs)", &pages, Some("https://forge/"));
        assert_eq!(shown, "[b](https://forge/crates/b.rs)");

        let (shown, _) =
            for_site(Path::new("docs/a.md"), "[r](../README.md#x) [b](b/README.md)", &pages, None);
        assert_eq!(shown, "[r](../index.md#x) [b](b/index.md)");
    }
}
