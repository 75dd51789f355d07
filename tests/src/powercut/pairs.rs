//! Power cuts in commits over two files.
//!
//! Commit `n` inserts row `n` into both files, and if that is asked for makes a table in one of them, which runs exclusively there. Before each of them each file has a commit of its own under NORMAL, which a cut may
//! take. After any cut in one of them both files have the same rows of the first kind, at least those that were acknowledged, whichever is
//! opened first.
//!
//! Super-journal, references and journals name each other by full names: so what a cut leaves is opened in the folder in which it
//! was recorded.

use super::disk::{Disk, Image, Keep};
use super::recording::{Operation, Recording};
use crate::subject::Subject;
use anyhow::{Context as _, ensure};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER); CREATE INDEX tv ON t(v); CREATE TABLE alone(v); INSERT INTO t VALUES(1, 1)";
const FILES: [&str; 2] = ["app.db", "other.db"];
/// The last commit over both.
const COMMITS: i64 = 4;

/// What came of opening both files.
struct Opened {
    commits: i64,
    operations: Vec<Operation>,
}

/// Tries what power cuts leave of a recorded workload over two files.
pub struct Pairs<'a> {
    subject: &'a Subject,
    folder: PathBuf,
    before: Image,
    operations: Vec<Operation>,
    /// The operation before which both files have sessions.
    from: usize,
    known: HashMap<(u64, bool), Rc<Opened>>,
    /// States looked at, and those opened.
    pub tally: (u64, u64),
}

impl<'a> Pairs<'a> {
    /// Records the workload; the other file is in this journal mode. `changes_schema`: of main.
    pub fn new(
        subject: &'a Subject,
        scratch: &Path,
        mode: &str,
        changes_schema: bool,
    ) -> anyhow::Result<Self> {
        let folder = scratch.join("files");
        std::fs::create_dir(&folder)?;
        for (name, mode) in FILES.into_iter().zip([subject.mode.name(), mode]) {
            let connection = subject.open(&folder.join(name))?;
            let answer = connection.text(&format!("PRAGMA journal_mode={mode}"))?;
            ensure!(answer == mode, "the mode is {answer}");
            connection.execute(SCHEMA)?;
            connection.close()?;
        }
        let before = Image::of(&folder)?;
        let recording = Recording::of(&folder);
        recording.acknowledge(1)?;
        let mut actor = recording.actor("writer", subject, None);
        actor.open(&folder.join(FILES[0]))?;
        actor.ok(&format!(
            "ATTACH '{}' AS other; PRAGMA other.journal_mode={mode}",
            folder.join(FILES[1]).display()
        ));
        actor.ok("INSERT INTO main.alone VALUES(1); INSERT INTO other.alone VALUES(1)");
        let from = recording.operations()?.len();
        for n in 2..=COMMITS {
            actor.ok("PRAGMA synchronous=NORMAL");
            if mode == subject.mode.name() {
                // A journal of SQLite's that is torn before it is synced may pass for one under NORMAL.
                actor.ok("PRAGMA other.synchronous=NORMAL");
            }
            actor.ok(&format!(
                "INSERT INTO main.alone VALUES({n}); INSERT INTO other.alone VALUES({n})"
            ));
            actor.ok("PRAGMA synchronous=FULL; PRAGMA other.synchronous=FULL");
            let more = match changes_schema {
                true => {
                    format!("CREATE TABLE main.made{n}(v); INSERT INTO main.made{n} VALUES({n});")
                }
                false => String::new(),
            };
            actor.ok(&format!("BEGIN; INSERT INTO main.t VALUES({n}, {n}); {more} INSERT INTO other.t VALUES({n}, {n}); COMMIT"));
            recording.acknowledge(n)?;
        }
        let operations = recording.operations()?;
        actor.close()?;
        Ok(Self { subject, folder, before, operations, from, known: HashMap::new(), tally: (0, 0) })
    }

    /// A cut at every operation, that keeps all of what was not synced, nothing, or a random choice; after some of them a cut at every
    /// operation of the recovery.
    pub fn each_cut(&mut self, choices: u64) -> anyhow::Result<()> {
        let operations = self.operations.clone();
        let mut disk = Disk::new(&self.before, 1);
        for (i, operation) in operations.iter().enumerate() {
            if i < self.from {
                disk.apply(operation)?;
                continue;
            }
            let random = (1..=choices).map(|n| Keep::Random(i as u64 * 100 + n));
            for (j, keep) in [Keep::All, Keep::None].into_iter().chain(random).enumerate() {
                let name = format!("at {i} of {} {operation:.60?} {keep:?}", operations.len());
                let image = disk.cut(keep);
                let opened = self.look(&image, disk.acknowledged, (i + j) % 2 == 0, &name)?;
                if (i + j) % 32 == 0 {
                    self.each_cut_of_recovery(&image, &opened, disk.acknowledged, &name)?;
                }
            }
            disk.apply(operation)?;
        }
        Ok(())
    }

    /// A cut at each of the first `most` operations after so many commits were acknowledged, which keeps all of what was not synced, or nothing.
    pub fn each_cut_behind(&mut self, commits: i64, most: usize) -> anyhow::Result<()> {
        let operations = self.operations.clone();
        let mut disk = Disk::new(&self.before, 1);
        let mut looked = 0;
        for (i, operation) in operations.iter().enumerate() {
            disk.apply(operation)?;
            if disk.acknowledged < commits || looked == most {
                continue;
            }
            looked += 1;
            for keep in [Keep::All, Keep::None] {
                let name = format!("behind {i} of {} {operation:.60?} {keep:?}", operations.len());
                self.look(&disk.cut(keep), disk.acknowledged, i % 2 == 0, &name)?;
            }
        }
        ensure!(looked == most, "only {looked} operations follow");
        Ok(())
    }

    fn each_cut_of_recovery(
        &mut self,
        image: &Image,
        opened: &Opened,
        acknowledged: i64,
        name: &str,
    ) -> anyhow::Result<()> {
        let mut disk = Disk::new(image, acknowledged);
        let is_silent = |operation: &Operation| {
            matches!(
                operation,
                Operation::SyncBegins(..) | Operation::WriteOut(..) | Operation::WaitOut(..)
            )
        };
        for (i, operation) in opened.operations.iter().enumerate() {
            for keep in [Keep::All, Keep::None] {
                if !is_silent(operation) {
                    let name = format!("{name}, then at {i} {operation:.60?} {keep:?}");
                    self.look(&disk.cut(keep), disk.acknowledged, i % 2 == 1, &name)?;
                }
            }
            disk.apply(operation)?;
        }
        Ok(())
    }

    /// Opens what a power cut left, unless the same was opened before, and checks it.
    fn look(
        &mut self,
        image: &Image,
        acknowledged: i64,
        main_first: bool,
        name: &str,
    ) -> anyhow::Result<Rc<Opened>> {
        self.tally.0 += 1;
        let key = (image.digest(), main_first);
        let opened = match self.known.get(&key) {
            Some(known) => known.clone(),
            None => {
                let opened =
                    Rc::new(self.open(image, main_first).with_context(|| name.to_owned())?);
                self.known.insert(key, opened.clone());
                opened
            }
        };
        ensure!(
            opened.commits >= acknowledged,
            "{name}: {acknowledged} commits were acknowledged or seen, {} are there",
            opened.commits
        );
        Ok(opened)
    }

    fn open(&mut self, image: &Image, main_first: bool) -> anyhow::Result<Opened> {
        self.tally.1 += 1;
        let _ = std::fs::remove_dir_all(&self.folder);
        image.put(&self.folder)?;
        let recording = Recording::of(&self.folder);
        let mut actor = recording.actor("opener", self.subject, None);
        let mut rows = Vec::new();
        let mut files = FILES;
        if !main_first {
            files.reverse();
        }
        for name in files {
            let kept =
                || format!("{name}, main first {main_first}, left in {}", self.folder.display());
            actor.open(&self.folder.join(name)).with_context(kept)?;
            for question in ["PRAGMA integrity_check", "SELECT id FROM t NOT INDEXED ORDER BY id"] {
                let reply = actor.run(question);
                reply.error.map_or(Ok(()), Err).with_context(kept)?;
                rows.push(reply.rows);
            }
            actor.close()?;
        }
        ensure!(rows[0] == rows[2] && rows[0] == [vec!["ok".into()]], "integrity_check: {rows:?}");
        ensure!(
            rows[1] == rows[3],
            "the files differ: {files:?} have {:?} and {:?}, main first {main_first}",
            rows[1],
            rows[3]
        );
        let commits = rows[1].len() as i64;
        recording.acknowledge(commits)?;
        drop(actor);
        Ok(Opened { commits, operations: recording.operations()? })
    }
}
