//! Links between pages lead somewhere, on a forge as in the site, and the site has every page.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Finding;
use super::sources::{Language, SourceFile};
use crate::site::links::{self, Page};
use crate::site::{self, SUMMARY};

/// Follows every link. `pages`: all that is written in the tree.
pub fn check(root: &Path, pages: &[SourceFile]) -> Result<Vec<Finding>> {
    let order = site::order(root)?;
    let mut texts = BTreeMap::new();
    for page in &order {
        // A page that is missing is one without anything in it, and found below.
        let text = std::fs::read_to_string(root.join(page)).unwrap_or_default();
        texts.insert(page.clone(), links::read(&text));
    }
    let mut findings = broken(&texts, &|file| root.join(file).is_file());
    let is_for_readers = |page: &&SourceFile| {
        page.language == Language::Prose
            && (page.path.starts_with("docs") || page.path.iter().count() == 1)
    };
    let missing = pages.iter().filter(is_for_readers).filter(|page| !order.contains(&page.path));
    findings.extend(missing.map(|page| find(&page.path, 0, format!("is not in {SUMMARY}"))));
    let gone = order.iter().filter(|page| !root.join(page).is_file());
    findings.extend(gone.map(|page| find(SUMMARY, 0, format!("no such page: {}", page.display()))));
    Ok(findings)
}

/// Links that lead nowhere.
fn broken(pages: &BTreeMap<PathBuf, Page>, is_file: &dyn Fn(&Path) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, page) in pages {
        for link in &page.links {
            let Some((file, anchor)) = links::target(path, &link.destination) else { continue };
            let what = match (pages.get(&file), anchor) {
                _ if !is_file(&file) => "no such file",
                (Some(to), Some(anchor)) if !to.anchors.contains(anchor) => "no such heading there",
                (None, _) if file.extension().is_some_and(|kind| kind == "md") => {
                    "a page that the site has not"
                }
                _ => continue,
            };
            findings.push(find(path, link.line, format!("{what}: {}", link.destination)));
        }
    }
    findings
}

fn find(path: impl Into<PathBuf>, line: usize, what: String) -> Finding {
    Finding { path: path.into(), line, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_that_leads_nowhere_is_found_where_it_stands() {
        let page = |text| links::read(text);
        let pages = BTreeMap::from([
            (
                PathBuf::from("a.md"),
                page("[b](docs/b.md#there)\n[s](s.rs) [w](https://w.org/x.md)\n"),
            ),
            (
                PathBuf::from("docs/b.md"),
                page("## There\n\n[a](../a.md#no)\n\n[c](c.md) [d](d.md)\n"),
            ),
        ]);
        let is_file = |path: &Path| path != Path::new("docs/c.md");
        let found: Vec<_> =
            broken(&pages, &is_file).into_iter().map(|f| (f.path, f.line, f.what)).collect();
        let in_b = |line, what: &str| (PathBuf::from("docs/b.md"), line, what.to_owned());
        assert_eq!(
            found,
            [
                in_b(3, "no such heading there: ../a.md#no"),
                in_b(5, "no such file: c.md"),
                in_b(5, "a page that the site has not: d.md"),
            ]
        );
    }
}
