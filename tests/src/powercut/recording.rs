//! A process whose file operations are written down, and what was.

use crate::actor::Actor;
use crate::subject::Subject;
use anyhow::{Context as _, bail};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What `recorder.c` compiles to.
const RECORDER: &str = env!("PLAIT_RECORDER");
/// Bytes of a record before its name: what, length of the name, number, length of the data, zero.
const HEAD: usize = 24;
/// The record by which this side says how many commits are acknowledged.
const ACKNOWLEDGED: u32 = 100;

/// One operation on a file, by its name in the folder; "" is the folder itself.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Bytes are about to be written at an offset.
    Write(String, u64, Arc<[u8]>),
    /// A length is about to be set.
    Length(String, u64),
    /// A file is about to be created.
    Create(String),
    /// A name is about to be removed.
    Remove(String),
    /// A file is about to be renamed to the second name.
    Rename(String, String),
    /// The sync of this number begins.
    SyncBegins(String, u64),
    /// It has succeeded.
    SyncEnded(String, u64),
    /// The system is asked to begin with writing from an offset on so many bytes to the disk.
    WriteOut(String, u64, u64),
    /// The same, and who asks waits until they are there.
    WaitOut(String, u64, u64),
    /// From here on this many commits must survive.
    Acknowledged(i64),
}

impl Operation {
    /// What it is and to what, without contents and numbers of syncs, which may be others each time.
    #[must_use]
    pub fn shape(&self) -> String {
        match self {
            Self::Write(name, at, data) => format!("write {name} {at} {}", data.len()),
            Self::SyncBegins(name, _) => format!("sync begins {name}"),
            Self::SyncEnded(name, _) => format!("sync ended {name}"),
            other => format!("{other:?}"),
        }
    }
}

/// Where operations of processes on one folder are written down.
pub struct Recording {
    folder: PathBuf,
    file: PathBuf,
}

impl Recording {
    /// Of a folder, in a file beside it.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Self::into_file(folder, &folder.with_extension("record"))
    }

    /// Of a folder, in this file.
    #[must_use]
    pub fn into_file(folder: &Path, file: &Path) -> Self {
        let _ = std::fs::remove_file(file);
        Self { folder: folder.to_owned(), file: file.to_owned() }
    }

    /// An actor whose operations are written down. While `hold` exists, its syncs of the log wait.
    #[must_use]
    pub fn actor(&self, name: &str, subject: &Subject, hold: Option<&Path>) -> Actor {
        let text = |path: &Path| path.to_str().expect("a temporary folder is text").to_owned();
        let (file, folder, hold) = (text(&self.file), text(&self.folder), hold.map(text));
        let mut environment = vec![
            ("LD_PRELOAD", RECORDER),
            ("PLAIT_RECORD", &file),
            ("PLAIT_RECORD_FOLDER", &folder),
        ];
        environment.extend(hold.as_deref().map(|hold| ("PLAIT_RECORD_HOLD", hold)));
        Actor::in_process_with(name, subject, &environment)
    }

    /// What a process has in its environment whose operations are written down.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("LD_PRELOAD", PathBuf::from(RECORDER)),
            ("PLAIT_RECORD", self.file.clone()),
            ("PLAIT_RECORD_FOLDER", self.folder.clone()),
        ]
    }

    /// An actor for whom the sync of the folder that follows the removal of a super-journal fails while `fail` exists.
    #[must_use]
    pub fn failing_actor(&self, name: &str, subject: &Subject, fail: &Path) -> Actor {
        self.actor_with(name, subject, "PLAIT_RECORD_FAIL", fail)
    }

    /// An actor whose writes to WAL files fail while `fail` exists.
    #[must_use]
    pub fn actor_without_wal(&self, name: &str, subject: &Subject, fail: &Path) -> Actor {
        self.actor_with(name, subject, "PLAIT_RECORD_FAIL_WAL", fail)
    }

    /// An actor who hears, while `fail` exists and it waits for a part of a file to be on disk, that it is not.
    #[must_use]
    pub fn actor_without_waits(&self, name: &str, subject: &Subject, fail: &Path) -> Actor {
        self.actor_with(name, subject, "PLAIT_RECORD_FAIL_WAIT", fail)
    }

    /// An actor whose syncs of WAL files wait while `hold` exists, those after as many as the file says; the file with `.inside` added
    /// tells that one waits.
    #[must_use]
    pub fn actor_held_at_wal(&self, name: &str, subject: &Subject, hold: &Path) -> Actor {
        self.actor_with(name, subject, "PLAIT_RECORD_HOLD_WAL", hold)
    }

    fn actor_with(&self, name: &str, subject: &Subject, what: &str, when: &Path) -> Actor {
        let text = |path: &Path| path.to_str().expect("a temporary folder is text").to_owned();
        let (file, folder, when) = (text(&self.file), text(&self.folder), text(when));
        let environment = [
            ("LD_PRELOAD", RECORDER),
            ("PLAIT_RECORD", &file),
            ("PLAIT_RECORD_FOLDER", &folder),
            (what, &when),
        ];
        Actor::in_process_with(name, subject, &environment)
    }

    /// Says that this many commits are acknowledged, or have been seen, by now.
    pub fn acknowledge(&self, commits: i64) -> anyhow::Result<()> {
        let mut record = Vec::with_capacity(HEAD);
        record.extend(ACKNOWLEDGED.to_ne_bytes());
        record.extend(0u32.to_ne_bytes());
        record.extend(commits.to_ne_bytes());
        record.extend([0; 8]);
        let file = std::fs::File::options().append(true).create(true).open(&self.file);
        file.and_then(|mut file| file.write_all(&record)).context("the record can be written")
    }

    /// Everything so far is forgotten; who is recorded goes on appending. Nobody may be at work.
    pub fn forget(&self) -> anyhow::Result<()> {
        let file = std::fs::File::options().write(true).truncate(true).open(&self.file);
        file.map(drop).context("the record can be emptied")
    }

    /// Everything so far, in order.
    pub fn operations(&self) -> anyhow::Result<Vec<Operation>> {
        let bytes = std::fs::read(&self.file).context("nothing was recorded")?;
        let mut rest = bytes.as_slice();
        let mut operations = Vec::new();
        while !rest.is_empty() {
            let (operation, after) = parse(rest).context("the record is cut short")??;
            operations.push(operation);
            rest = after;
        }
        Ok(operations)
    }
}

/// The first operation and what follows it; `None` if the bytes end before it does.
fn parse(bytes: &[u8]) -> Option<anyhow::Result<(Operation, &[u8])>> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (what, name_len, data_len) = (word(0)?, word(4)? as usize, word(16)? as usize);
    let number = u64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
    let name = String::from_utf8_lossy(bytes.get(HEAD..HEAD + name_len)?).into_owned();
    let end = HEAD + name_len + data_len;
    let data = bytes.get(HEAD + name_len..end)?.to_vec();
    let operation = match what {
        1 => Operation::Write(name, number, data.into()),
        2 => Operation::Length(name, number),
        3 => Operation::Create(name),
        4 => Operation::Remove(name),
        5 => Operation::Rename(name, String::from_utf8_lossy(&data).into_owned()),
        6 => Operation::SyncBegins(name, number),
        7 => Operation::SyncEnded(name, number),
        9 | 11 => {
            let len = data.try_into().map(u64::from_ne_bytes).ok()?;
            let out = if what == 9 { Operation::WriteOut } else { Operation::WaitOut };
            out(name, number, len)
        }
        10 => {
            let len = data.try_into().map(u64::from_ne_bytes).ok()?;
            Operation::Write(name, number, vec![0; usize::try_from(len).ok()?].into())
        }
        ACKNOWLEDGED => Operation::Acknowledged(number.cast_signed()),
        _ => {
            let call = String::from_utf8_lossy(&data).into_owned();
            return Some(Err(anyhow::anyhow!("{call} of {name:?} is not simulated")));
        }
    };
    Some(Ok((operation, &bytes[end..])))
}

/// Waits until a file appears.
pub fn await_file(path: &Path) -> anyhow::Result<()> {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !path.exists() {
        if std::time::Instant::now() > deadline {
            bail!("{} does not appear", path.display());
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(())
}
