//! `tree`: what is installed, laid out as it will lie below a prefix; `make install` copies it, packages hold it.
//!
//! ```text
//! bin/plait  plait-replicate  plait-sqlite3
//! sbin/plait-system-sqlite
//! lib/plait/libsqlite3.so.0  libsqlite3.so -> libsqlite3.so.0  libsqlite3.a  stock/libsqlite3.so.0
//! lib/plait/jdbc/libsqlitejdbc.so         in packages, where Maven and a JDK are
//! lib/plait/pkgconfig/sqlite3.pc          for programs that ask pkg-config for sqlite3
//! lib/plait/files                         all of these paths: what `make uninstall` removes
//! lib/pkgconfig/plait.pc
//! lib/cmake/Plait/PlaitConfig.cmake  PlaitConfigVersion.cmake
//! include/plait/sqlite3.h  sqlite3ext.h  plait.h
//! share/man/man1/plait.1 ...  man8/plait-system-sqlite.8
//! share/bash-completion/completions/plait  share/zsh/site-functions/_plait  share/fish/vendor_completions.d/plait.fish
//! share/doc/plait/LICENSE  docs/install.md  docs/runbook.md ...  docs/adopt/...
//! ```
//!
//! Nothing in it names the prefix: each file finds the others from where it is itself. The libraries have a directory of
//! their own, so that the system's libsqlite3 stays what programs load.
//!
//! Rights are set, not taken over, and debug information is left out: it is three quarters of the size.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use plait_splice::upstream::SQLITE_VERSION;

use crate::dist::{self, jdbc};
use crate::site::links;
use crate::target::{Libc, Target};
use crate::toolchain::run;
use crate::workspace::Workspace;

/// The version of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The list of all files, in the tree.
const LIST: &str = "lib/plait/files";

/// What is started: each writes pages about itself.
pub const PROGRAMS: [&str; 2] = ["bin/plait", "bin/plait-replicate"];

/// The `sqlite3` shell, by a name that it has beside the system's.
pub const SHELL: &str = "bin/plait-sqlite3";

/// The native part of Java's driver.
pub const JDBC: &str = "lib/plait/jdbc/libsqlitejdbc.so";
/// The notice of its authors, among the documents.
pub const JDBC_NOTICE: &str = "sqlite-jdbc.NOTICE";

/// Folders of pages that are installed.
const PAGES: [&str; 2] = ["docs", "docs/adopt"];

const SONAME: &str = plait_splice::exports::SONAME;

/// Builds what is installed, and lays it out in `dist/tree`.
pub fn build() -> Result<()> {
    let what = dist::Request { no_suite: true, ..dist::Request::default() };
    dist::run(Path::new("dist"), what)?;
    let root = Workspace::locate()?.root;
    let dist = root.join("dist");
    let from =
        Origin { root: &root, dist: &dist, target: &Target::here()?, runner: &[], jdbc: false };
    lay(&from, &root.join("dist/tree"))
}

/// What a tree is laid out from.
pub struct Origin<'a> {
    /// The repository, whose folder `packages` has a part of it.
    pub root: &'a Path,
    /// What was built.
    pub dist: &'a Path,
    /// What it was built for.
    pub target: &'a Target,
    /// What starts a program of the target here, before its name.
    pub runner: &'a [OsString],
    /// The native part of Java's driver is there and belongs to it.
    pub jdbc: bool,
}

/// Lays a tree out. An older one goes.
pub fn lay(from: &Origin<'_>, tree: &Path) -> Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    let tree = Tree { from, at: tree };
    tree.libraries()?;
    if from.jdbc {
        tree.jdbc()?;
    }
    tree.for_builds()?;
    tree.commands()?;
    tree.pages()?;
    let mut files = Vec::new();
    list(tree.at, tree.at, &mut files)?;
    files.push(LIST.into());
    files.sort();
    let lines: Vec<String> = files.iter().map(|file| format!("{}\n", file.display())).collect();
    tree.text(&lines.concat(), LIST)
}

struct Tree<'a> {
    from: &'a Origin<'a>,
    at: &'a Path,
}

impl Tree<'_> {
    fn libraries(&self) -> Result<()> {
        self.stripped(
            &format!("lib/{SONAME}"),
            "--strip-unneeded",
            &format!("lib/plait/{SONAME}"),
            0o644,
        )?;
        self.stripped(
            &format!("stock/lib/{SONAME}"),
            "--strip-unneeded",
            &format!("lib/plait/stock/{SONAME}"),
            0o644,
        )?;
        self.stripped("lib/libsqlite3.a", "--strip-debug", "lib/plait/libsqlite3.a", 0o644)?;
        symlink(SONAME, self.at.join("lib/plait/libsqlite3.so")).context("cannot make a link")
    }

    fn jdbc(&self) -> Result<()> {
        let from = format!("lib/{}", jdbc::FOLDER);
        self.stripped(&format!("{from}/{}", jdbc::LIBRARY), "--strip-unneeded", JDBC, 0o644)?;
        let notice = self.from.dist.join(from).join(jdbc::NOTICE);
        self.copy(&notice, &format!("share/doc/plait/{JDBC_NOTICE}"), 0o644)
    }

    fn for_builds(&self) -> Result<()> {
        for header in ["sqlite3.h", "sqlite3ext.h", "plait.h"] {
            self.copy(
                &self.from.dist.join("include").join(header),
                &format!("include/plait/{header}"),
                0o644,
            )?;
        }
        let unwinding = match self.from.target.libc {
            Libc::Glibc => None,
            // Not every compiler asks for it in a static program, and nothing else leads to what unwinds the stack.
            Libc::Musl => Some("-Wl,--eh-frame-hdr"),
        };
        for (from, to) in [
            ("plait.pc", "lib/pkgconfig/plait.pc"),
            ("sqlite3.pc", "lib/plait/pkgconfig/sqlite3.pc"),
            ("PlaitConfig.cmake", "lib/cmake/Plait/PlaitConfig.cmake"),
            ("PlaitConfigVersion.cmake", "lib/cmake/Plait/PlaitConfigVersion.cmake"),
        ] {
            let text = self.ours(&format!("tree/{from}"))?;
            let mut text =
                text.replace("@VERSION@", VERSION).replace("@SQLITE_VERSION@", SQLITE_VERSION);
            for separator in [" ", ";"] {
                let with = unwinding.map(|flag| format!("{separator}{flag}")).unwrap_or_default();
                text = text.replace(&format!("{separator}@UNWINDING@"), &with);
            }
            self.text(&text, to)?;
        }
        Ok(())
    }

    fn commands(&self) -> Result<()> {
        for program in PROGRAMS {
            self.stripped(program, "--strip-all", program, 0o755)?;
        }
        self.stripped("bin/sqlite3", "--strip-all", SHELL, 0o755)?;
        let helper = self.from.root.join("packages/tree/plait-system-sqlite");
        self.copy(&helper, "sbin/plait-system-sqlite", 0o755)
    }

    /// Man pages, completions and documents.
    fn pages(&self) -> Result<()> {
        let made = self.at.join("made");
        for program in PROGRAMS {
            let program = [self.from.dist.join(program).into_os_string()];
            let mut words = self.from.runner.iter().chain(&program);
            let mut writes = Command::new(words.next().context("a command has a name")?);
            run(writes.args(words).arg("write-pages").arg(&made))?;
        }
        let manual = made.join("man1");
        for page in fs::read_dir(&manual)? {
            let name = page?.file_name();
            let to = Path::new("share/man/man1").join(&name);
            self.copy(&manual.join(&name), &to.to_string_lossy(), 0o644)?;
        }
        for (from, to) in [
            ("plait.bash", "share/bash-completion/completions/plait"),
            ("_plait", "share/zsh/site-functions/_plait"),
            ("plait.fish", "share/fish/vendor_completions.d/plait.fish"),
        ] {
            self.copy(&made.join("completions").join(from), to, 0o644)?;
        }
        fs::remove_dir_all(&made)?;
        for (section, page) in [("man1", "plait-sqlite3.1"), ("man8", "plait-system-sqlite.8")] {
            let from = self.from.root.join("packages/tree").join(page);
            self.copy(&from, &format!("share/man/{section}/{page}"), 0o644)?;
        }
        self.copy(&self.from.root.join("LICENSE"), "share/doc/plait/LICENSE", 0o644)?;
        self.documents()
    }

    /// The pages of `docs`, by the names that messages give them. A link leads to a page that is there, or is text.
    fn documents(&self) -> Result<()> {
        let mut pages = Vec::new();
        for folder in PAGES {
            for entry in fs::read_dir(self.from.root.join(folder))? {
                let page = Path::new(folder).join(entry?.file_name());
                pages.extend(page.extension().is_some_and(|end| end == "md").then_some(page));
            }
        }
        for page in &pages {
            let text = fs::read_to_string(self.from.root.join(page))
                .with_context(|| format!("cannot read {}", page.display()))?;
            let to = Path::new("share/doc/plait").join(page);
            self.text(&without_dead_links(page, &text, &pages), &to.to_string_lossy())?;
        }
        Ok(())
    }

    fn ours(&self, name: &str) -> Result<String> {
        let path = self.from.root.join("packages").join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// The path of a file in the tree, in a folder that is there.
    fn place(&self, to: &str) -> Result<PathBuf> {
        let path = self.at.join(to);
        let folder = path.parent().context("a file lies in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(path)
    }

    fn stripped(&self, from: &str, how: &str, to: &str, mode: u32) -> Result<()> {
        let path = self.place(to)?;
        let (from, output) = (self.from.dist.join(from), OsStr::new("-o"));
        let names = [output, path.as_os_str(), from.as_os_str()];
        let strip = self.from.target.tool("strip");
        run(Command::new(strip).args([how, "--enable-deterministic-archives"]).args(names))?;
        permit(&path, mode)
    }

    fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<()> {
        let path = self.place(to)?;
        fs::copy(from, &path).with_context(|| format!("cannot copy {}", from.display()))?;
        permit(&path, mode)
    }

    fn text(&self, text: &str, to: &str) -> Result<()> {
        let path = self.place(to)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        permit(&path, 0o644)
    }
}

/// A page without links to what is not installed: their text stays.
fn without_dead_links(page: &Path, text: &str, pages: &[PathBuf]) -> String {
    let mut shown = text.to_owned();
    // From the end, so that what is before stays where it was found.
    for link in links::read(text).links.into_iter().rev() {
        let Some((file, _)) = links::target(page, &link.destination) else { continue };
        if !pages.contains(&file) {
            shown.replace_range(link.whole, &text[link.shown]);
        }
    }
    shown
}

/// Sets the rights of a file.
pub fn permit(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the rights of {}", path.display()))
}

/// Has all read what is in a folder, and nobody start it.
pub fn permit_all(folder: &Path) -> Result<()> {
    permit(folder, 0o755)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => permit_all(&entry.path())?,
            false => permit(&entry.path(), 0o644)?,
        }
    }
    Ok(())
}

/// Collects what is below `folder`, but for folders, as paths below `top`; folders get the rights that all may look into them.
fn list(folder: &Path, top: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    permit(folder, 0o755)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), top, files)?;
        } else {
            files.push(entry.path().strip_prefix(top)?.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_an_installed_page_leads_to_another_or_is_text() {
        let pages = ["docs/a.md", "docs/adopt/b.md"].map(PathBuf::from);
        let text = "[b](adopt/b.md#x), [here](#y), [`c`](../crates/c.rs), [s](https://example.org), [d](d.md)";
        assert_eq!(
            without_dead_links(Path::new("docs/a.md"), text, &pages),
            "[b](adopt/b.md#x), [here](#y), `c`, [s](https://example.org), d"
        );
    }
}
