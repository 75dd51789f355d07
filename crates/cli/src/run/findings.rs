//! Why a program would not use our library, or not as its user expects.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::elf::Image;
use crate::os;

/// One thing to warn about.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is the matter.
    pub what: String,
    /// What to do.
    pub advice: String,
}

impl Finding {
    fn new(what: String, advice: &str) -> Finding {
        Finding { what, advice: advice.to_owned() }
    }
}

/// What is to be said about the program at `path`, which the kernel will start.
pub fn about(path: &Path, image: &Image, our_source_id: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = path.display();
    if let Some(finding) = privileges(path) {
        findings.push(finding);
    }
    if let Some(id) = &image.sqlite_inside {
        findings.push(bundled(&name.to_string(), id, image));
    } else if image.interpreter.is_none() {
        findings.push(Finding::new(
            format!("{name} is statically linked: it loads no library, so Plait is ignored without a word"),
            "if it uses SQLite, build it against the shared libsqlite3",
        ));
    }
    if let Some(id) = &image.shell_for
        && id != our_source_id
    {
        findings.push(Finding::new(
            format!("{name} is an sqlite3 shell that insists on the library it was made with and will stop"),
            "use the sqlite3 shell that comes with Plait, in the same directory as this command",
        ));
    }
    findings
}

/// What is to be said about a shared object that the loader takes in for `program`.
pub fn about_library(program: &Path, library: &Path, image: &Image) -> Option<Finding> {
    let id = image.sqlite_inside.as_ref().filter(|_| !image.needs_sqlite())?;
    Some(Finding::new(
        format!(
            "{} loads {}, which brings its own SQLite{} inside: what goes through it may ignore Plait",
            program.display(),
            library.display(),
            of(id)
        ),
        "ask the program for plait_version(): `SELECT plait_version()` fails where Plait is not in use",
    ))
}

fn of(id: &str) -> String {
    if id.is_empty() {
        return String::new();
    }
    format!(" (of {})", &id[..10])
}

fn bundled(name: &str, id: &str, image: &Image) -> Finding {
    let advice = if image.is_go {
        "build it with `go build -tags libsqlite3`, which links mattn/go-sqlite3 to the shared library"
    } else if Path::new(name).file_name().is_some_and(|n| n == "node" || n == "nodejs") {
        "node:sqlite cannot be changed; use a driver that is built against the shared libsqlite3 \
         (the package sqlite3: `npm install sqlite3 --build-from-source --sqlite=/usr`)"
    } else {
        "use a build of it that links the shared libsqlite3"
    };
    Finding::new(
        format!(
            "{name} brings its own SQLite{} inside and will use that one: Plait is ignored without a word",
            of(id)
        ),
        advice,
    )
}

/// The loader ignores LD_PRELOAD with a path, and LD_LIBRARY_PATH, for programs that gain rights when started.
fn privileges(path: &Path) -> Option<Finding> {
    let meta = std::fs::metadata(path).ok()?;
    let (user, group) = os::effective_ids();
    let mode = meta.permissions().mode();
    let gains_user = mode & libc::S_ISUID != 0 && meta.uid() != user;
    let gains_group = mode & libc::S_ISGID != 0 && meta.gid() != group;
    let gains_rights = user != 0 && os::has_attribute(path, "security.capability");
    let how = match (gains_user, gains_group, gains_rights) {
        (true, ..) => "setuid",
        (_, true, _) => "setgid",
        (.., true) => "started with extra capabilities",
        _ => return None,
    };
    Some(Finding::new(
        format!("{} is {how}: the system's loader ignores Plait for such programs", path.display()),
        "start it as its owner, or install our library in the system's library path",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a hash, or the tests of `elf.rs` would find it in this program.
    const ID: &str = "2025-11-04 19:38:17 of some release";

    fn dynamic(needed: &[&str]) -> Image {
        Image {
            interpreter: Some("/lib64/ld-linux-x86-64.so.2".into()),
            needed: needed.iter().map(|&n| n.to_owned()).collect(),
            ..Image::default()
        }
    }

    fn texts(image: &Image) -> Vec<String> {
        about(Path::new("/x/app"), image, ID)
            .into_iter()
            .map(|f| f.what + "; " + &f.advice)
            .collect()
    }

    #[test]
    fn a_program_that_loads_sqlite_gives_no_reason_to_warn() {
        assert!(texts(&dynamic(&["libsqlite3.so.0", "libc.so.6"])).is_empty());
        assert!(texts(&dynamic(&["libc.so.6"])).is_empty());
    }

    #[test]
    fn a_program_with_sqlite_inside_is_named_with_its_release() {
        let image = Image { sqlite_inside: Some(ID.into()), ..dynamic(&[]) };
        let said = texts(&image);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("its own SQLite (of 2025-11-04) inside"), "{said:?}");
        assert!(said[0].contains("ignored without a word"));
    }

    #[test]
    fn a_go_program_gets_the_tag_to_build_with() {
        let image = Image { sqlite_inside: Some(ID.into()), is_go: true, ..dynamic(&[]) };
        assert!(texts(&image)[0].contains("-tags libsqlite3"));
    }

    #[test]
    fn a_static_program_is_named() {
        let said = texts(&Image::default());
        assert!(said[0].contains("statically linked"), "{said:?}");
    }

    #[test]
    fn a_shell_made_for_another_release_is_named() {
        let image = Image { shell_for: Some("2022".into()), ..dynamic(&["libsqlite3.so.0"]) };
        assert!(texts(&image)[0].contains("insists"));
        let image = Image { shell_for: Some(ID.into()), ..dynamic(&["libsqlite3.so.0"]) };
        assert!(texts(&image).is_empty());
    }

    #[test]
    fn a_library_with_sqlite_inside_is_named_unless_it_is_sqlite() {
        let program = Path::new("/x/app");
        let image = Image { sqlite_inside: Some(ID.into()), ..dynamic(&[]) };
        let said = about_library(program, Path::new("/x/libnode.so"), &image).unwrap();
        assert!(said.what.contains("/x/libnode.so"), "{said:?}");
        assert_eq!(about_library(program, Path::new("/x/libx.so"), &dynamic(&[])), None);
    }
}
