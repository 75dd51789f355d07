//! What leads out of a page in Markdown, and what can be led to in it: as forges and mdBook read it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A page, as far as links are concerned.
#[derive(Default)]
pub struct Page {
    /// Links and pictures, in their order.
    pub links: Vec<Link>,
    /// Names of headings, and ids that are written in HTML.
    pub anchors: BTreeSet<String>,
}

/// A link, or a picture.
pub struct Link {
    pub destination: String,
    /// Counted from 1.
    pub line: usize,
    /// All of it in the text of the page.
    pub whole: Range<usize>,
    /// What is shown.
    pub shown: Range<usize>,
}

/// Reads a page.
pub fn read(text: &str) -> Page {
    let mut page = Page::default();
    // Where the link starts that the events are in, and the heading.
    let mut open: Option<Link> = None;
    let mut heading: Option<String> = None;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let line = 1 + text[..range.start].matches('\n').count();
                let shown = range.start..range.start;
                open =
                    Some(Link { destination: dest_url.into_string(), line, whole: range, shown });
                continue;
            }
            Event::End(TagEnd::Link | TagEnd::Image) => page.links.extend(open.take()),
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let name = heading.take().map(|said| name_of(&said)).unwrap_or_default();
                add(&mut page.anchors, name);
            }
            Event::Text(said) | Event::Code(said) => {
                heading.iter_mut().for_each(|heading| heading.push_str(&said));
            }
            Event::Html(html) | Event::InlineHtml(html) => page.anchors.extend(ids(&html)),
            _ => {}
        }
        if let Some(link) = &mut open {
            let is_first = link.shown.is_empty();
            link.shown = if is_first { range } else { link.shown.start..range.end };
        }
    }
    page
}

/// The name by which a heading is linked to.
fn name_of(heading: &str) -> String {
    let kept = |c: char| match c {
        '_' | '-' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    };
    heading.to_lowercase().chars().filter_map(kept).collect()
}

/// Headings of one name are told apart by a number.
fn add(anchors: &mut BTreeSet<String>, name: String) {
    let numbered = (1..).map(|number| format!("{name}-{number}"));
    let free = std::iter::once(name.clone()).chain(numbered).find(|name| !anchors.contains(name));
    anchors.extend(free);
}

fn ids(html: &str) -> impl Iterator<Item = String> {
    let behind = html.split("id=\"").skip(1);
    behind.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
}

/// The file in the repository that a link leads to, and the anchor there; `None` for one that leads to another place.
pub fn target<'a>(page: &Path, destination: &'a str) -> Option<(PathBuf, Option<&'a str>)> {
    if destination.contains(':') {
        return None;
    }
    let (file, anchor) = match destination.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (destination, None),
    };
    if file.is_empty() {
        return Some((page.to_owned(), anchor));
    }
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir if path.pop() => {}
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    Some((path, anchor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_where_a_reader_sees_them() {
        let text = "# A\n\n[one `x`](b.md) and ![two](c.svg)\n\n`[no](d.md)`\n\n```sh\n[no](e.md)\n```\n\n\
                    | a |\n|---|\n| [three](f.md#g) |\n";
        let page = read(text);
        let found: Vec<_> = page
            .links
            .iter()
            .map(|link| (&text[link.shown.clone()], &*link.destination, link.line))
            .collect();
        assert_eq!(found, [("one `x`", "b.md", 3), ("two", "c.svg", 3), ("three", "f.md#g", 13)]);
        assert_eq!(&text[page.links[0].whole.clone()], "[one `x`](b.md)");
    }

    #[test]
    fn headings_have_the_names_that_forges_give_them() {
        let page = read(
            "# Not opened (SQLITE_CANTOPEN)\n\n## A `b`, c's\n\n## Same\n\n## Same\n\n<a id=\"Id\"></a>x\n",
        );
        let anchors: Vec<_> = page.anchors.iter().map(|name| &**name).collect();
        assert_eq!(anchors, ["Id", "a-b-cs", "not-opened-sqlite_cantopen", "same", "same-1"]);
    }

    #[test]
    fn a_link_leads_from_the_folder_of_its_page() {
        let from = |page, destination| target(Path::new(page), destination);
        let to = |path: &str, anchor| Some((PathBuf::from(path), anchor));
        assert_eq!(from("docs/a.md", "b.md#c"), to("docs/b.md", Some("c")));
        assert_eq!(from("docs/x/a.md", "../../README.md"), to("README.md", None));
        assert_eq!(from("docs/a.md", "#c"), to("docs/a.md", Some("c")));
        assert_eq!(from("a.md", "../b.md"), to("../b.md", None), "outside of the repository");
        assert_eq!(from("a.md", "https://example.org/b.md"), None);
    }
}
