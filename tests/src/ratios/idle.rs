//! What an open database takes while nothing happens: blocks of its side files, and what of them a process has in memory.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Bytes beside the database file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Allocated on disk.
    pub disk_bytes: u64,
    /// Of that, mapped into this process and resident.
    pub mapped_bytes: u64,
}

impl Footprint {
    /// Looks at all files in the folder of `database`, but for itself.
    pub fn of(database: &Path) -> anyhow::Result<Self> {
        let folder = database.parent().context("the database is in a folder")?;
        let mut disk_bytes = 0;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.path() != database {
                disk_bytes += entry.metadata()?.blocks() * 512;
            }
        }
        Ok(Self { disk_bytes, mapped_bytes: mapped_from(folder)? })
    }
}

/// Resident bytes of this process's mappings of files in `folder`.
fn mapped_from(folder: &Path) -> anyhow::Result<u64> {
    let folder = folder.to_str().context("the folder has a name in UTF-8")?;
    let maps = std::fs::read_to_string("/proc/self/smaps")?;
    let (mut inside, mut kibibytes) = (false, 0);
    for line in maps.lines() {
        // A mapping's first line begins with its addresses; the lines about it begin with a word and a colon.
        match line.split_once(' ') {
            Some((first, _)) if !first.ends_with(':') => inside = line.contains(folder),
            Some(("Rss:", size)) if inside => {
                let size = size.trim().trim_end_matches(" kB");
                kibibytes += size.parse::<u64>().with_context(|| line.to_owned())?;
            }
            _ => {}
        }
    }
    Ok(kibibytes << 10)
}
