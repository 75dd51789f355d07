//! The amalgamation as lines, and the sections that its banners mark.

use std::ops::Range;

use anyhow::{Result, bail, ensure};

/// A source text cut into lines.
#[derive(Debug)]
pub struct Source<'a> {
    /// The lines, without their ends.
    pub lines: Vec<&'a str>,
}

impl<'a> Source<'a> {
    /// Cuts a text into lines; it must have Unix line ends, which all anchors assume.
    pub fn new(text: &'a str) -> Result<Self> {
        ensure!(!text.contains('\r'), "the amalgamation has carriage returns at its line ends");
        Ok(Self { lines: text.lines().collect() })
    }

    /// The lines from `Begin file NAME` to `End of NAME`, both included.
    pub fn section(&self, name: &str) -> Result<Range<usize>> {
        let begin = self.banner("Begin file", name)?;
        let end = self.banner("End of", name)?;
        ensure!(begin < end, "section {name} ends before it begins");
        Ok(begin..end + 1)
    }

    /// The one line within `range` that equals `wanted`.
    pub fn only(&self, wanted: &str, range: Range<usize>) -> Result<usize> {
        let hits: Vec<usize> = range.filter(|&i| self.lines[i] == wanted).collect();
        match hits.as_slice() {
            [hit] => Ok(*hit),
            _ => bail!("found {} times, must be exactly once", hits.len()),
        }
    }

    fn banner(&self, kind: &str, name: &str) -> Result<usize> {
        let start = format!("/************** {kind} {name} *");
        let mut hits = (0..self.lines.len()).filter(|&i| self.lines[i].starts_with(&start));
        match (hits.next(), hits.next()) {
            (Some(hit), None) => Ok(hit),
            (None, _) => bail!("no banner `{kind} {name}`"),
            (Some(_), Some(_)) => bail!("several banners `{kind} {name}`"),
        }
    }
}
