//! What a power cut may leave.
//!
//! - Of each file: what was synced, and of what was changed since any choice, sector by sector.
//! - Of the names: those at the last sync of the folder, and of the changes since a prefix, as journals of file systems keep it.
//! - A sector holds what was written to it or what it held before, never a mixture.

use super::content::{Content, is_zeros};
use super::recording::Operation;
use crate::differential::dice::Dice;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

const SECTOR: usize = 512;

/// The files of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Image(BTreeMap<String, Content>);

impl Image {
    /// Reads the files that are no shared memory.
    pub fn of(folder: &Path) -> anyhow::Result<Self> {
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !name.ends_with("-shm") {
                let bytes = std::fs::read(folder.join(&name))?;
                files.insert(name, Content::of(&bytes));
            }
        }
        Ok(Self(files))
    }

    /// Makes a folder with these files, sparse.
    pub fn put(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder)?;
        for (name, content) in &self.0 {
            content.make(&folder.join(name))?;
        }
        Ok(())
    }

    /// A name for the content.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// A change that is not on the disk for certain.
#[derive(Clone, Debug)]
enum Change {
    /// So many bytes of what was written, from here on in it.
    Sector {
        at: usize,
        data: Arc<[u8]>,
        from: usize,
        len: usize,
    },
    Length(usize),
}

impl Change {
    fn apply(&self, content: &mut Content) {
        match self {
            Self::Length(length) => content.resize(*length),
            Self::Sector { at, data, from, len } => content.write(*at, &data[*from..from + len]),
        }
    }

    /// Whether it writes something other than zeros.
    fn tells(&self) -> bool {
        match self {
            Self::Sector { data, from, len, .. } => !is_zeros(&data[*from..from + len]),
            Self::Length(_) => true,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct File {
    synced: Content,
    /// Changes with the number of their operation.
    pending: Vec<(usize, Change)>,
}

type Names = BTreeMap<String, usize>;

/// Which of the changes that are not synced a power cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All.
    All,
    /// None.
    None,
    /// All but one, by its number.
    AllBut(usize),
    /// A random choice.
    Random(u64),
}

/// A folder while operations are made on it.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    files: Vec<File>,
    names: Names,
    /// Names before each change since the folder was synced, with the number of the operation.
    former: Vec<(usize, Names)>,
    begun: BTreeMap<u64, usize>,
    operations: usize,
    /// Commits that must survive a power cut now.
    pub acknowledged: i64,
}

impl Disk {
    /// A folder whose files are on the disk.
    #[must_use]
    pub fn new(image: &Image, acknowledged: i64) -> Self {
        let mut disk = Self { acknowledged, ..Self::default() };
        for (name, content) in &image.0 {
            disk.names.insert(name.clone(), disk.files.len());
            disk.files.push(File { synced: content.clone(), pending: Vec::new() });
        }
        disk
    }

    fn file(&mut self, name: &str) -> anyhow::Result<&mut File> {
        let index = *self.names.get(name).with_context(|| format!("there is no {name}"))?;
        Ok(&mut self.files[index])
    }

    fn rename(&mut self, change: impl FnOnce(&mut Names)) {
        self.former.push((self.operations, self.names.clone()));
        change(&mut self.names);
    }

    /// Makes an operation. Fails if it does not go with those before it.
    pub fn apply(&mut self, operation: &Operation) -> anyhow::Result<()> {
        self.operations += 1;
        let now = self.operations;
        match operation {
            Operation::Write(name, at, data) => {
                let at = usize::try_from(*at)?;
                let file = self.file(name)?;
                let mut done = 0;
                while done < data.len() {
                    let len = (SECTOR - (at + done) % SECTOR).min(data.len() - done);
                    let (at, data, from) = (at + done, data.clone(), done);
                    file.pending.push((now, Change::Sector { at, data, from, len }));
                    done += len;
                }
            }
            Operation::Length(name, bytes) => {
                let length = usize::try_from(*bytes)?;
                self.file(name)?.pending.push((now, Change::Length(length)));
            }
            Operation::Create(name) => {
                let index = self.files.len();
                self.files.push(File::default());
                self.rename(|names| {
                    let _ = names.insert(name.clone(), index);
                });
            }
            Operation::Remove(name) => self.rename(|names| {
                let _ = names.remove(name);
            }),
            Operation::Rename(from, to) => {
                let index = self.names.get(from).copied().context("what is renamed is there")?;
                self.rename(|names| {
                    names.remove(from);
                    names.insert(to.clone(), index);
                });
            }
            Operation::SyncBegins(_, id) => {
                self.begun.insert(*id, now);
            }
            Operation::SyncEnded(name, id) => self.synced(name, *id)?,
            Operation::Acknowledged(commits) => self.acknowledged = *commits,
            // Nothing is promised by it, and what is pending may be on the disk anyway.
            Operation::WriteOut(..) | Operation::WaitOut(..) => {}
        }
        Ok(())
    }

    fn synced(&mut self, name: &str, id: u64) -> anyhow::Result<()> {
        let begun = self.begun.remove(&id).context("a sync ends that began")?;
        if name.is_empty() {
            self.former.retain(|(at, _)| *at > begun);
            return Ok(());
        }
        // Removed in the meantime: nobody will look at it.
        let Ok(file) = self.file(name) else { return Ok(()) };
        let (before, after) = file.pending.drain(..).partition(|(at, _)| *at < begun);
        let before: Vec<(usize, Change)> = before;
        for (_, change) in &before {
            change.apply(&mut file.synced);
        }
        file.pending = after;
        Ok(())
    }

    /// The numbers of the changes that are not on the disk for certain and write something other than zeros, those of
    /// names not counted.
    #[must_use]
    pub fn telling(&self) -> Vec<usize> {
        let pending = self.files.iter().flat_map(|file| &file.pending).enumerate();
        pending.filter(|(_, (_, change))| change.tells()).map(|(number, _)| number).collect()
    }

    /// What a power cut now leaves.
    #[must_use]
    pub fn cut(&self, keep: Keep) -> Image {
        let mut dice = Dice::new(match keep {
            Keep::Random(seed) => seed,
            _ => 0,
        });
        let names = match keep {
            Keep::All | Keep::AllBut(_) => &self.names,
            Keep::None => self.former.first().map_or(&self.names, |(_, names)| names),
            Keep::Random(_) => {
                let lost = dice.roll(self.former.len() + 1);
                let kept = self.former.len() - lost;
                self.former.get(kept).map_or(&self.names, |(_, names)| names)
            }
        };
        let mut number = 0;
        let odds = 1 + dice.roll(9);
        let contents: Vec<Content> = self
            .files
            .iter()
            .map(|file| {
                let mut content = file.synced.clone();
                for (_, change) in &file.pending {
                    let kept = match keep {
                        Keep::All => true,
                        Keep::None => false,
                        Keep::AllBut(lost) => number != lost,
                        Keep::Random(_) => dice.roll(10) < odds,
                    };
                    if kept {
                        change.apply(&mut content);
                    }
                    number += 1;
                }
                content
            })
            .collect();
        Image(names.iter().map(|(name, index)| (name.clone(), contents[*index].clone())).collect())
    }
}
