//! Who has a database open, and by which copy of SQLite: told by the descriptors and the mapped files of processes.
//!
//! A file with SQLite's code in it is ours if it also has the mark of our logs: whether that is the shared library, a program that is linked with
//! it, or a module of Python. Files are read through the root of the process that has mapped them, which may be that of a container.
//!
//! Deliberately absent: which of several copies in one process has the file open. Only the program can tell, by `SELECT plait_version()`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plait_engine::storage::names::LOG_MAGIC;

use super::finding::Finding;
use crate::failure::quoted;
use crate::inspect::{Inspection, SIDE_FILES, beside, openers};
use crate::os;
use crate::quantity::of;
use crate::run::elf::{self, Image};
use crate::run::findings;
use crate::status::person;

/// Programs that are looked into.
const PROGRAMS_MAX: usize = 64;

/// What is in a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    Ours,
    Other,
    /// Removed or replaced since it was mapped.
    Gone,
}

/// Copies of SQLite in one process, by their files.
type Copies = BTreeMap<PathBuf, Copy>;

/// Looks into all who have it open.
pub fn look(state: &Inspection, shown: &Path) -> Vec<Finding> {
    let files = [""].into_iter().chain(SIDE_FILES).map(|suffix| beside(&state.path, suffix));
    let openers =
        openers::of(&files.filter_map(|file| openers::identity(&file)).collect::<Vec<_>>());
    let mut known = BTreeMap::new();
    let looked = openers.pids.iter().take(PROGRAMS_MAX);
    let mut findings: Vec<_> =
        looked.map(|&pid| about(pid, &copies(pid, &mut known), state, shown)).collect();
    if findings.is_empty() {
        findings.push(Finding::fact("programs", "nobody is seen to have it open"));
    }
    if openers.unseen > 0 {
        let (user, _) = os::effective_ids();
        let others = of(openers.unseen as u64, "process", "processes");
        let advice =
            if user == 0 { String::new() } else { format!("sudo plait doctor {}", quoted(shown)) };
        findings.push(Finding {
            advice,
            ..Finding::fact("programs", format!("{others} of other users could not be looked into"))
        });
    }
    findings
}

fn about(pid: u32, copies: &Copies, state: &Inspection, shown: &Path) -> Finding {
    let who = format!("process {}", person(pid));
    let of_kind = |kind| {
        copies
            .iter()
            .filter(move |(_, copy)| **copy == kind)
            .map(|(path, _)| path.display().to_string())
    };
    let others: Vec<_> = of_kind(Copy::Other).collect();
    let gone: Vec<_> = of_kind(Copy::Gone).collect();
    let ours: Vec<_> = of_kind(Copy::Ours).collect();
    if let Some(gone) = gone.first() {
        return Finding::note(
            "programs",
            format!("{who} runs on {gone}, which was removed or replaced since"),
            "start that program again, so that all use one version",
        );
    }
    match (ours.len(), others.len()) {
        (1, 0) => {
            let writes = if state.lone.writer == Some(pid) {
                ", and is in a transaction that writes"
            } else {
                ""
            };
            Finding::fact("programs", format!("{who} has it open by Plait, {}{writes}", ours[0]))
        }
        (0, 0) => Finding::note(
            "programs",
            format!(
                "{who} has it open, and no SQLite is seen in it: it may be reading or copying the file by itself"
            ),
            format!("plait backup {} DEST, which makes a whole copy", quoted(shown)),
        ),
        (0, _) if !state.header.is_concurrent() => {
            Finding::fact("programs", format!("{who} has it open by another SQLite, {}", others[0]))
        }
        (0, _) => Finding::problem(
            "programs",
            format!(
                "{who} has it open by another SQLite, {}: it cannot write beside others, nor open the database while they use it",
                others[0]
            ),
            match findings::remedy(Path::new(&others[0])) {
                Some(remedy) => format!("{remedy}; or `plait disable {}`", quoted(shown)),
                None => format!(
                    "start it with `plait run -- PROGRAM`, which says why if that does not help; or `plait disable {}`",
                    quoted(shown)
                ),
            },
        ),
        (1, _) => Finding::note(
            "programs",
            format!(
                "{who} has a second SQLite in it, {}: what goes through that one ignores Plait",
                others[0]
            ),
            "ask it for plait_version(): `SELECT plait_version()` fails where Plait is not in use",
        ),
        _ => Finding::problem(
            "programs",
            format!(
                "{who} has two copies of Plait in it, {} and {}: the second is refused",
                ours[0], ours[1]
            ),
            "link or load one of them alone",
        ),
    }
}

/// What is known of files by their paths from here.
type Known = BTreeMap<PathBuf, Option<Copy>>;

fn copies(pid: u32, known: &mut Known) -> Copies {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let mut copies = Copies::new();
    for (path, is_gone) in executables(&maps) {
        let from_here = root.join(path.strip_prefix("/").unwrap_or(&path));
        let copy = if is_gone {
            is_sqlites_name(&path).then_some(Copy::Gone)
        } else {
            *known.entry(from_here.clone()).or_insert_with(|| examine(&from_here))
        };
        copies.extend(copy.map(|copy| (path, copy)));
    }
    copies
}

/// Files that are mapped to be run, and whether each has lost its name: lines are `range rights offset device inode path`.
fn executables(maps: &str) -> BTreeMap<PathBuf, bool> {
    let files = maps.lines().filter_map(|line| {
        let (rights, at) = (line.split(' ').nth(1)?, line.find('/')?);
        let path = &line[at..];
        let stem = path.strip_suffix(" (deleted)");
        rights.contains('x').then(|| (PathBuf::from(stem.unwrap_or(path)), stem.is_some()))
    });
    files.collect()
}

fn is_sqlites_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libsqlite3.so"))
}

fn examine(path: &Path) -> Option<Copy> {
    let image = Image::read(path).ok()??;
    image.sqlite_inside.as_ref()?;
    let is_ours = elf::holds(path, &LOG_MAGIC).ok()?;
    Some(if is_ours { Copy::Ours } else { Copy::Other })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_found_also_when_they_were_removed() {
        let maps = "55d0-55d1 r--p 00000000 08:01 12 /bin/a b\n\
                    55d1-55d2 r-xp 00001000 08:01 12 /bin/a b\n\
                    7f00-7f01 rw-p 00000000 00:00 0 \n\
                    7f01-7f02 r-xp 00000000 08:01 13 /lib/libsqlite3.so.0.8.6 (deleted)\n\
                    7f02-7f03 r-xp 00000000 00:00 0 [vdso]\n";
        let found = [("/bin/a b", false), ("/lib/libsqlite3.so.0.8.6", true)];
        assert_eq!(executables(maps), found.map(|(path, gone)| (PathBuf::from(path), gone)).into());
    }

    #[test]
    fn this_test_program_has_our_copy() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(copies(std::process::id(), &mut Known::new()).get(&own), Some(&Copy::Ours));
    }
}
