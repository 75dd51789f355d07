//! Why a program would not use our library, or not as its user expects.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::elf::{Image, Machine};
use crate::failure::quoted;
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
    if let Some(finding) = stranger(path, image) {
        findings.push(finding);
    } else if let Some(id) = &image.sqlite_inside {
        findings.push(bundled(path, id, image));
    } else if image.interpreter.is_none() {
        findings.push(Finding::new(
            format!("{name} is statically linked: it loads no library, so Plait is ignored without a word"),
            "if it uses SQLite, build it against the shared libsqlite3",
        ));
    }
    if let Some(id) = &image.shell_for
        && id != our_source_id
    {
        findings.push(Finding {
            what: format!("{name} is an sqlite3 shell that insists on the library it was made with and will stop"),
            advice: shell_of_ours(std::env::current_exe().ok()),
        });
    }
    findings
}

/// The shell that takes our library: `make dist` builds one beside the command, and packages have none.
fn shell_of_ours(own: Option<PathBuf>) -> String {
    match own.map(|own| own.with_file_name("sqlite3")).filter(|shell| shell.is_file()) {
        Some(shell) => format!("use the shell that comes with Plait: {}", quoted(&shell)),
        None => "while no program has the database open, start it without `plait run`: the file is plain SQLite then; beside programs use one that \
                 takes any SQLite, such as `plait run -- python3`, or the shell that `make dist` builds from Plait's source"
            .to_owned(),
    }
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

/// The loader of such a program cannot load our library.
fn stranger(path: &Path, image: &Image) -> Option<Finding> {
    let name = path.display();
    if image.machine != Machine::OWN {
        let (its, ours) = (image.machine.name(), Machine::OWN.name());
        return Some(Finding::new(
            format!(
                "{name} was built for {its}, and Plait's library for {ours}: the loader leaves it out"
            ),
            "use a build of the program for this processor",
        ));
    }
    let loader = image.interpreter.as_deref()?;
    let is_for_musl = loader.contains("/ld-musl");
    match (is_for_musl, IS_MUSL) {
        (true, false) => Some(Finding::new(
            format!(
                "{name} was built for musl ({loader}), and this Plait for glibc: it will not start"
            ),
            "use Plait's package for musl",
        )),
        (false, true) => Some(Finding::new(
            format!("{name} was built for glibc ({loader}), and this Plait for musl"),
            "use Plait's package for glibc",
        )),
        _ => None,
    }
}

/// The C library of this command, and of the library that comes with it.
const IS_MUSL: bool = cfg!(target_env = "musl");

fn bundled(path: &Path, id: &str, image: &Image) -> Finding {
    let advice = if image.is_go {
        "build it with `go build -tags libsqlite3`, which links mattn/go-sqlite3 to the shared library"
    } else {
        remedy(path).unwrap_or("use a build of it that links the shared libsqlite3")
    };
    Finding::new(
        format!(
            "{} brings its own SQLite{} inside and will use that one: Plait is ignored without a word",
            path.display(),
            of(id)
        ),
        advice,
    )
}

/// What makes a program use Plait whose SQLite is in this file, by the file's name: runtimes and drivers that are known for it.
pub fn remedy(file: &Path) -> Option<&'static str> {
    let name = file.file_name()?.to_str()?;
    match name {
        "node" | "nodejs" => Some(
            "node:sqlite cannot be changed; use a driver that is built against the shared libsqlite3 \
             (the package sqlite3: `npm install sqlite3 --build-from-source --sqlite=/usr`)",
        ),
        "bun" | "bun.exe" => Some(
            "bun:sqlite cannot be changed; use the package sqlite3, built against the shared libsqlite3 \
             (docs/adopt/bun.md)",
        ),
        "better_sqlite3.node" => {
            Some("build better-sqlite3 from Plait's amalgamation (docs/adopt/node.md)")
        }
        "node_sqlite3.node" => {
            Some("build the package sqlite3 against the shared libsqlite3 (docs/adopt/node.md)")
        }
        // As its jar unpacks it, with a number in front.
        _ if name.ends_with("libsqlitejdbc.so") => Some(
            "start Java with -Dorg.sqlite.lib.path=FOLDER, where FOLDER is Plait's lib/plait/jdbc \
             (docs/adopt/java.md)",
        ),
        _ => None,
    }
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

    const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"];

    fn dynamic(needed: &[&str]) -> Image {
        Image {
            interpreter: Some(LOADERS[usize::from(IS_MUSL)].into()),
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
    fn known_runtimes_and_drivers_get_the_way_that_is_theirs() {
        let image = Image { sqlite_inside: Some(ID.into()), ..dynamic(&[]) };
        let of = |path: &str| about(Path::new(path), &image, ID).remove(0).advice;
        assert!(of("/usr/bin/node").contains("node:sqlite"));
        assert!(of("/x/node_modules/bun/bin/bun.exe").contains("docs/adopt/bun.md"));
        assert_eq!(of("/x/bunny"), "use a build of it that links the shared libsqlite3");
        let unpacked = Path::new("/tmp/sqlite-3.53.4.0-0be1-libsqlitejdbc.so");
        assert!(remedy(unpacked).unwrap().contains("-Dorg.sqlite.lib.path=FOLDER"));
        let addon = Path::new("/x/build/Release/better_sqlite3.node");
        assert!(remedy(addon).unwrap().contains("docs/adopt/node.md"));
        assert_eq!(remedy(Path::new("/usr/lib/libsqlite3.so.0")), None);
    }

    #[test]
    fn a_program_for_the_other_c_library_is_told_the_package_for_it() {
        let loader = LOADERS[usize::from(!IS_MUSL)];
        let image = Image { interpreter: Some(loader.into()), ..dynamic(&["libsqlite3.so.0"]) };
        let said = texts(&image);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains(loader) && said[0].contains("use Plait's package for "));
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
    fn a_shell_of_ours_is_named_where_there_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let command = folder.path().join("plait");
        assert!(shell_of_ours(Some(command.clone())).contains("without `plait run`"));
        let shell = folder.path().join("sqlite3");
        std::fs::write(&shell, "").unwrap();
        assert!(shell_of_ours(Some(command)).ends_with(&shell.display().to_string()));
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
