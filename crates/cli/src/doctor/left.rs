//! What commands and dead processes have left beside a database, and nothing needs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::finding::Finding;
use crate::copy::leftovers;
use crate::failure::quoted;
use crate::inspect::{Inspection, SIDE_FILES, beside};
use crate::quantity::bytes;

/// What may hold commits that the file beside it lacks.
const NEEDED: [&str; 3] = ["-wal", "-journal", "-plait"];
/// Files of others that are told.
const TOLD_MAX: usize = 4;
/// Numbers of names that are looked through.
const NAMES_MAX: u32 = 1000;

/// Looks for all of it.
pub fn look(state: &Inspection) -> Vec<Finding> {
    let path = &state.path;
    let cut_off =
        [leftovers::BACKUP, leftovers::RESTORE].iter().flat_map(|infix| leftovers::of(path, infix));
    let cut_off = cut_off.map(|left| {
        let (files, remove) = leftovers::all_of(&left);
        let by = "by a command that was killed, and nothing needs it";
        Finding { advice: remove, ..kept(by, &files) }
    });
    let aside = state.put_aside.iter().map(|log| {
        kept(
            "aside by a program that found another database file beside it: remove it when nobody wants the commits in it",
            std::slice::from_ref(log),
        )
    });
    cut_off.chain(aside).chain(before_restores(path)).chain(of_missing(path)).collect()
}

/// What belongs to databases of this folder that are not there: this one may have had such a name.
fn of_missing(path: &Path) -> Vec<Finding> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let side = entry.path();
        let suffix = NEEDED
            .iter()
            .find(|suffix| side.as_os_str().as_bytes().ends_with(suffix.as_bytes()))?;
        let stem = side.as_os_str().as_bytes().strip_suffix(suffix.as_bytes())?;
        let base = Path::new(OsStr::from_bytes(stem));
        if leftovers::temporary_of(&side).is_some() {
            return None;
        }
        let is_left = entry.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0)
            && std::fs::symlink_metadata(base).is_err()
            && !base.as_os_str().as_bytes().ends_with(b"/");
        is_left.then(|| (side.clone(), base.to_owned()))
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    let told = found.into_iter().take(TOLD_MAX).map(|(side, base)| {
        Finding::note(
            "left",
            format!(
                "{} belongs to a database {} that is not there: if this one had that name, its newest commits may be in it",
                side.display(),
                base.display()
            ),
            "give all files of a database the same name again; else put that file away",
        )
    });
    told.collect()
}

/// What stood there before each restore.
fn before_restores(path: &Path) -> impl Iterator<Item = Finding> {
    let sets = (1..NAMES_MAX).map(|n| {
        let base = beside(path, &format!("-before-restore-{n}"));
        let all = [""].into_iter().chain(SIDE_FILES).map(|suffix| beside(&base, suffix));
        all.filter(|file| std::fs::symlink_metadata(file).is_ok()).collect::<Vec<_>>()
    });
    sets.take_while(|files| !files.is_empty())
        .map(|files| kept("by a restore, which put it aside; remove it when you are sure", &files))
}

fn kept(by: &str, files: &[PathBuf]) -> Finding {
    use std::os::unix::fs::MetadataExt;
    // Shared memory is mostly holes.
    let on_disk =
        |file: &PathBuf| std::fs::symlink_metadata(file).map_or(0, |meta| meta.blocks() * 512);
    let names: Vec<_> = files.iter().map(|file| quoted(file)).collect();
    Finding::note(
        "left",
        format!(
            "{} ({}) was left {by}",
            files[0].display(),
            bytes(files.iter().map(on_disk).sum())
        ),
        format!("rm {}", names.join(" ")),
    )
}
