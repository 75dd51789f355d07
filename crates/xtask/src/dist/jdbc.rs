//! The native part of the SQLite JDBC driver, `org.xerial:sqlite-jdbc`, on our library: `lib/jdbc/libsqlitejdbc.so`.
//!
//! The one in the driver's jar has SQLite inside. Ours has none: it asks the loader for `libsqlite3.so.0`, and the loader looks
//! into the folder above its own first. Java loads it from the folder that the property `org.sqlite.lib.path` names.
//!
//! Maven fetches the driver's sources. Of them one C file is compiled, which is known by its digest: it calls the public
//! interfaces of Java and of SQLite, and nothing else. Its notice goes with what is made of it.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use plait_splice::exports;

use super::{Context, install};
use crate::toolchain::{Stamp, output, run};

/// The driver that it is the native part of: classes of another version may call functions that this one has not.
const VERSION: &str = "3.53.4.0";

/// The file that is compiled, in the archive of sources, and what its bytes have to be.
const SOURCE: &str = "org/sqlite/core/NativeDB.c";
const DIGEST: &str = "1a695760a4bdf8d1a9b50a899b0fad18a87168c1b24de2fb6404b680d44ce31f";

/// The plugin of Maven that fetches, and its task.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy";

const FLAGS: [&str; 5] = ["-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-w"];
/// The folder above comes before LD_LIBRARY_PATH.
const LINKING: [&str; 4] =
    ["-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/..", "-Wl,-z,defs", "-Wl,-z,relro"];

/// Where it is put, below the directory of libraries.
pub const FOLDER: &str = "jdbc";
/// Its name, by which Java looks for it.
pub const LIBRARY: &str = "libsqlitejdbc.so";
/// The notice of its authors.
pub const NOTICE: &str = "NOTICE";

/// Whether this machine has what it takes.
pub fn has_tools() -> bool {
    let answers =
        |tool, ask| Command::new(tool).arg(ask).output().is_ok_and(|o| o.status.success());
    answers("mvn", "--version") && answers("javac", "-version")
}

/// Makes it; after the library.
pub(super) fn build(context: &Context) -> Result<()> {
    let cache = context.cache.join(FOLDER);
    fs::create_dir_all(&cache)?;
    let source = source(&cache.join(VERSION))?;
    // The header that the driver's own build generates declares what the file defines.
    fs::write(cache.join("NativeDB.h"), "#include <jni.h>\n")?;
    let include = java_headers()?;
    let library = context.out.join("lib").join(exports::SONAME);
    let made = cache.join(LIBRARY);
    Stamp::default()
        .text(context.toolchain.version())
        .text(&format!("{FLAGS:?} {LINKING:?} {}", include.display()))
        .file(&source)?
        .file(&library)?
        .guard(&made, || compile(context, &source, &include, &library, &made))?;
    let out = context.out.join("lib").join(FOLDER);
    install::file(&made, &out, LIBRARY)?;
    install::text(&notice(&source)?, &out, NOTICE)
}

/// The verified C file, which Maven fetches unless it was fetched before.
fn source(cache: &Path) -> Result<PathBuf> {
    let source = cache.join(SOURCE);
    if !source.exists() {
        fs::create_dir_all(cache)?;
        let archive = format!("sqlite-jdbc-{VERSION}-sources.jar");
        run(Command::new("mvn")
            .args(["--batch-mode", "--quiet", COPY])
            .arg(format!("-Dartifact=org.xerial:sqlite-jdbc:{VERSION}:jar:sources"))
            .arg(format!("-DoutputDirectory={}", cache.display())))
        .context(
            "cannot fetch the sources of the JDBC driver from Maven Central; without mvn on the search path packages are \
             made that have none of it",
        )?;
        run(Command::new("jar").current_dir(cache).args([
            "--extract",
            "--file",
            &archive,
            SOURCE,
        ]))?;
    }
    let told = output(Command::new("sha256sum").arg(&source))?;
    ensure!(
        told.split(' ').next() == Some(DIGEST),
        "{} is not the pinned file: its sha256 is to be {DIGEST}; remove {} to have it fetched again",
        source.display(),
        cache.display()
    );
    Ok(source)
}

/// The folder of `jni.h`: that of JAVA_HOME, or of the compiler on the search path.
fn java_headers() -> Result<PathBuf> {
    let home = match env::var_os("JAVA_HOME") {
        Some(home) => PathBuf::from(home),
        None => {
            let told =
                output(Command::new("sh").args(["-c", "readlink -f \"$(command -v javac)\""]))?;
            let folders = Path::new(told.trim()).ancestors().nth(2);
            folders.context("javac lies in no folder")?.to_owned()
        }
    };
    let include = home.join("include");
    ensure!(
        include.join("jni.h").exists(),
        "there is no jni.h in {}: set JAVA_HOME to the folder of a JDK",
        include.display()
    );
    Ok(include)
}

fn compile(
    context: &Context,
    source: &Path,
    include: &Path,
    library: &Path,
    made: &Path,
) -> Result<()> {
    let cache = made.parent().context("a library lies in a folder")?;
    let headers = [cache, include, &include.join("linux")];
    let header = context.amalgamation.header.parent().context("a header lies in a folder")?;
    run(context
        .toolchain
        .command()?
        .args(FLAGS)
        // The same bytes in any folder.
        .arg(format!("-ffile-prefix-map={}=.", cache.display()))
        .args(headers.map(|folder| [OsStr::new("-I"), folder.as_os_str()]).concat())
        .arg("-I")
        .arg(header)
        .arg("-o")
        .arg(made)
        .arg(source)
        .arg(library)
        .args(LINKING))
}

/// The comment at the head of the file.
fn notice(source: &Path) -> Result<String> {
    let text = fs::read_to_string(source)?;
    let comment = text.strip_prefix("/*").and_then(|rest| rest.split_once("*/"));
    let (comment, _) = comment.with_context(|| format!("{} has no notice", source.display()))?;
    let lines = comment.trim().lines().map(|line| line.trim().trim_start_matches('*').trim());
    Ok(lines.fold(String::new(), |all, line| all + line + "\n"))
}
