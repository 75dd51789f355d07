//! Where a database lies, and what this process may do there.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use plait_engine::filesystem::{refuse_lone_mount, refuse_network};

use super::finding::Finding;
use crate::failure::quoted;
use crate::inspect::Inspection;
use crate::installation;
use crate::os::{self, FileSystem};
use crate::quantity::{bytes, of};
use crate::sqlite::Library;

/// What the first write of a session needs.
const SESSION_BYTES: u64 = 60 << 20;
/// How long the log may become.
const LOG_BYTES: u64 = 256 << 20;
/// What a process maps of a session.
const MAPPED_BYTES: u64 = 181 << 20;
/// Fewer open files than this are soon used up: a session takes two beside those of its connections.
const FILES_MIN: u64 = 64;

/// Looks at all of it.
pub fn look(state: &Inspection, shown: &Path) -> Vec<Finding> {
    let mut findings = disk(state);
    findings.extend(names(state, shown));
    findings.extend(rights(state, shown));
    findings.extend(limits(state));
    findings.push(library());
    findings
}

fn disk(state: &Inspection) -> Vec<Finding> {
    let is_concurrent = state.header.is_concurrent();
    let mut findings = Vec::new();
    let elsewhere =
        "move the database, with all its files, to a local disk while nobody has it open";
    for refused in [refuse_network(&state.path).err(), refuse_lone_mount(&state.path).err()] {
        let Some(why) = refused else { continue };
        findings.push(if is_concurrent {
            Finding::problem("file system", why.to_string(), elsewhere)
        } else {
            Finding::note(
                "file system",
                format!("concurrent mode is not possible here: {why}"),
                elsewhere,
            )
        });
    }
    let Ok(system) = FileSystem::of(&state.path) else { return findings };
    let free = bytes(system.free_bytes);
    if is_concurrent && system.free_bytes < SESSION_BYTES {
        findings.push(Finding::problem(
            "file system",
            format!("{free} are free: the first write of a session needs about {}, and fails with SQLITE_FULL without", bytes(SESSION_BYTES)),
            "free some space on that disk",
        ));
    } else {
        findings.push(Finding::fact("file system", format!("{}, {free} free", system.name())));
    }
    if system.is_memory() {
        findings.push(Finding::note(
            "file system",
            "it is memory: what is in it is gone when the machine stops",
            "move the database to a disk if it is to last",
        ));
    }
    findings
}

fn names(state: &Inspection, shown: &Path) -> Option<Finding> {
    let meta = std::fs::metadata(&state.path).ok()?;
    (meta.nlink() > 1).then(|| {
        Finding::note(
            "names",
            format!(
                "the file has {} (hard links): the files beside it go by one of them, and a program that uses another is refused or misses commits",
                of(meta.nlink(), "name", "names")
            ),
            format!("use one name alone; copies are made by `plait backup {} DEST`", quoted(shown)),
        )
    })
}

fn rights(state: &Inspection, shown: &Path) -> Vec<Finding> {
    let folder = state.path.parent().unwrap_or(Path::new("/"));
    let file = plait_engine::storage::names::unwritable(&state.path);
    let own = file.as_ref().filter(|file| **file == state.path);
    let about = own.map(|file| (file.as_path(), "the file"));
    let folder_too = Some((folder, "its folder")).filter(|(folder, _)| !os::is_writable(folder));
    let refused = about.into_iter().chain(folder_too);
    let mut findings: Vec<_> = refused
        .map(|(path, what)| {
            Finding::note(
                "rights",
                format!("you may not write {what}, {}: SQLite opens the database for reading alone, or not at all", path.display()),
                format!("ask as its owner: ls -ld {} {}", quoted(folder), quoted(shown)),
            )
        })
        .collect();
    if let Some(beside) = file.filter(|file| *file != state.path) {
        findings.push(Finding::problem(
            "rights",
            format!(
                "you may write the database, but not {} beside it, which was made while the database could not be written: \
                 nothing is committed until it can be",
                beside.display()
            ),
            format!("chmod --reference={} {}", quoted(shown), quoted(&beside)),
        ));
    }
    findings
}

fn limits(state: &Inspection) -> Vec<Finding> {
    if !state.header.is_concurrent() {
        return Vec::new();
    }
    let limits = [
        (
            libc::RLIMIT_FSIZE,
            LOG_BYTES,
            "-f",
            "a file may have",
            "a COMMIT fails that needs a longer log",
        ),
        (
            libc::RLIMIT_AS,
            MAPPED_BYTES,
            "-v",
            "a process may map",
            "the shared memory of a session does not fit",
        ),
        (
            libc::RLIMIT_NOFILE,
            FILES_MIN,
            "-n",
            "files may be open",
            "connections fail to open or join",
        ),
    ];
    let low = limits.into_iter().filter(|(which, least, ..)| os::limit(*which) < *least);
    low.map(|(which, _, option, of_what, then)| {
        let limit = os::limit(which);
        let limit = if option == "-n" { limit.to_string() } else { bytes(limit) };
        Finding::problem(
            "limits",
            format!(
                "{of_what} {limit} in programs that are started from here (ulimit {option}): {then}"
            ),
            format!("ulimit {option} with a greater number, or the limit of the service that starts them"),
        )
    })
    .collect()
}

/// The library that `plait run` gives to programs, and whether it is that of this command.
fn library() -> Finding {
    let (version, id) = (env!("CARGO_PKG_VERSION"), Library::linked().source_id());
    let path = match installation::our_library() {
        Ok(path) => path,
        Err(failure) => return Finding::note("library", failure.what, failure.advice),
    };
    let loaded = Library::load(&path);
    match loaded {
        Ok(library) if library.source_id() == id => Finding::fact(
            "library",
            format!("plait {version}, SQLite {}, {}", library.version(), path.display()),
        ),
        Ok(library) => Finding::problem(
            "library",
            format!(
                "{} is of SQLite {}, and this command of {}",
                path.display(),
                library.version(),
                Library::linked().version()
            ),
            "install command and library of one version together",
        ),
        Err(e) => Finding::problem(
            "library",
            format!("{} cannot be loaded: {e}", path.display()),
            "make dist",
        ),
    }
}
