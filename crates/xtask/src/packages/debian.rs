//! The Debian package: the tree below `/usr`, where Debian's rules want its parts.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Contents, NAME};
use crate::toolchain::{output, run};
use crate::tree::{JDBC_NOTICE, VERSION, permit};

const UNIT: &str = "usr/lib/systemd/system/plait-metrics.service";
const SETTINGS: &str = "etc/default/plait-metrics";

/// Makes the package.
pub fn package(contents: &Contents) -> Result<PathBuf> {
    let root = contents.scratch.join("debian");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let usr = root.join("usr");
    fs::create_dir_all(&usr)?;
    run(Command::new("cp").arg("-a").arg(contents.tree.join(".")).arg(&usr))?;
    rearrange(&usr, &contents.target.tuple())?;
    documents(contents, &usr)?;
    service(contents, &root)?;
    let machine = contents.target.debian();
    let scripts = root.join("DEBIAN");
    fs::create_dir_all(&scripts)?;
    fs::write(scripts.join("md5sums"), sums(&root)?)?;
    fs::write(scripts.join("control"), control(contents, machine, kibibytes(&usr)?)?)?;
    for script in ["postinst", "prerm", "postrm"] {
        ours(contents, script, &scripts.join(script), 0o755)?;
    }
    fs::write(scripts.join("conffiles"), format!("/{SETTINGS}\n"))?;
    for file in ["md5sums", "control", "conffiles"] {
        permit(&scripts.join(file), 0o644)?;
    }
    folders(&root)?;
    let package = contents.out.join(format!("{NAME}_{VERSION}_{machine}.deb"));
    // xz: the dpkg of Debian 11 reads no zstd.
    run(Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "--build"])
        .arg(&root)
        .arg(&package)
        .env("SOURCE_DATE_EPOCH", &contents.epoch))?;
    Ok(package)
}

/// The unit of `plait metrics`, which nothing switches on, and its settings.
fn service(contents: &Contents, root: &Path) -> Result<()> {
    ours(contents, "plait-metrics.service", &root.join(UNIT), 0o644)?;
    ours(contents, "plait-metrics.default", &root.join(SETTINGS), 0o644)
}

/// Copies a file of `packages/debian`.
fn ours(contents: &Contents, name: &str, to: &Path, mode: u32) -> Result<()> {
    let from = contents.workspace.root.join("packages/debian").join(name);
    fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
    fs::copy(&from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    permit(to, mode)
}

/// What lies elsewhere in Debian than below a prefix.
fn rearrange(usr: &Path, tuple: &str) -> Result<()> {
    // dpkg has its own list.
    fs::remove_file(usr.join("lib/plait/files"))?;
    let completions = usr.join("share/zsh/vendor-completions");
    fs::rename(usr.join("share/zsh/site-functions"), completions)?;
    // Where pkg-config looks that builds for another processor too.
    let ours = usr.join("lib/pkgconfig");
    let theirs = usr.join(format!("lib/{tuple}/pkgconfig"));
    fs::create_dir_all(&theirs)?;
    let text = fs::read_to_string(ours.join("plait.pc"))?;
    let deeper = text.replace("${pcfiledir}/../..", "${pcfiledir}/../../..");
    fs::write(theirs.join("plait.pc"), deeper)?;
    permit(&theirs.join("plait.pc"), 0o644)?;
    fs::remove_dir_all(&ours)?;
    for section in ["man1", "man8"] {
        for page in fs::read_dir(usr.join("share/man").join(section))? {
            run(Command::new("gzip").args(["-9", "--no-name"]).arg(page?.path()))?;
        }
    }
    Ok(())
}

fn documents(contents: &Contents, usr: &Path) -> Result<()> {
    let documents = usr.join("share/doc").join(NAME);
    fs::rename(usr.join("share/doc/plait"), &documents)?;
    fs::remove_file(documents.join("LICENSE"))?;
    let root = &contents.workspace.root;
    let license = fs::read_to_string(root.join("LICENSE"))?;
    let read = |name: &str| {
        let path = root.join("packages/debian").join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let mut text = read("copyright")?.replace("@LICENSE@", indented(&license).trim_end());
    let notice = documents.join(JDBC_NOTICE);
    if notice.exists() {
        text += &of_others(&read("copyright.jdbc")?, &fs::read_to_string(&notice)?)?;
        fs::remove_file(&notice)?;
    }
    fs::write(documents.join("copyright"), text)?;
    let date = output(
        Command::new("date")
            .args(["--utc", "--rfc-email"])
            .arg(format!("--date=@{}", contents.epoch)),
    )?;
    let entry = format!(
        "{NAME} ({VERSION}) unstable; urgency=medium\n\n  * What has changed is in changelog.upstream.gz.\n\n \
         -- The Plait authors <plait@localhost>  {date}"
    );
    fs::write(documents.join("changelog"), entry)?;
    fs::copy(root.join("CHANGELOG.md"), documents.join("changelog.upstream"))?;
    for name in ["changelog", "changelog.upstream"] {
        run(Command::new("gzip").args(["-9", "--no-name"]).arg(documents.join(name)))?;
    }
    for file in fs::read_dir(&documents)? {
        permit(&file?.path(), 0o644)?;
    }
    Ok(())
}

/// What is said of a part that others have written, from the notice in it.
fn of_others(template: &str, notice: &str) -> Result<String> {
    let copyright = notice.lines().find_map(|line| line.strip_prefix("Copyright (c) "));
    let copyright = copyright.context("the notice of the JDBC driver names no author")?;
    let text = template.replace("@COPYRIGHT@", copyright);
    Ok(text.replace("@LICENSE@", indented(notice).trim_end()))
}

/// As a field of a control file goes on over several lines.
fn indented(license: &str) -> String {
    // The first lines, the title and who holds the copyright, are fields of their own.
    let text = license.lines().skip_while(|line| !line.starts_with("Permission"));
    text.map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect()
}

fn control(contents: &Contents, machine: &str, kibibytes: u64) -> Result<String> {
    let path = contents.workspace.root.join("packages/debian/control");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let fields = [
        ("@NAME@", NAME),
        ("@VERSION@", VERSION),
        ("@MACHINE@", machine),
        ("@KIBIBYTES@", &kibibytes.to_string()),
        ("@GLIBC@", &contents.needs.version()),
    ];
    Ok(fields.iter().fold(text, |text, (field, value)| text.replace(field, value)))
}

/// As dpkg counts: each file rounded up, each folder one.
fn kibibytes(folder: &Path) -> Result<u64> {
    let mut sum = 1;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        sum += if meta.is_dir() { kibibytes(&entry.path())? } else { meta.len().div_ceil(1024) };
    }
    Ok(sum)
}

fn sums(root: &Path) -> Result<String> {
    let mut files = Vec::new();
    collect(&root.join("usr"), &mut files)?;
    files.sort();
    let mut sums = String::new();
    for file in files {
        let said = output(Command::new("md5sum").arg(&file))?;
        let sum = said.split(' ').next().context("md5sum says nothing")?;
        // Writing to a String cannot fail.
        let _ = writeln!(sums, "{sum}  {}", file.strip_prefix(root)?.display());
    }
    Ok(sums)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn folders(folder: &Path) -> Result<()> {
    permit(folder, 0o755)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders(&entry.path())?;
        }
    }
    Ok(())
}
