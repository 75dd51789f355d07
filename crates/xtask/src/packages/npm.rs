//! The npm package: better-sqlite3's JavaScript and an addon with our library inside. It is installed without a compiler.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Contents, NAME, archive};
use crate::dist::npm::{DRIVER_VERSION, FOLDER, processor};
use crate::toolchain::run;
use crate::tree::{VERSION, permit_all};

/// Packs what `dist` has made, with what says what it is.
pub fn package(contents: &Contents) -> Result<PathBuf> {
    let folder = contents.scratch.join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    run(Command::new("cp").arg("-R").arg(contents.dist.join(FOLDER)).arg(&folder))?;
    let machine = processor(&contents.target);
    let addon = folder.join(format!("prebuilds/linux-{machine}.node"));
    let strip = contents.target.tool("strip");
    run(Command::new(strip)
        .args(["--strip-unneeded", "--enable-deterministic-archives"])
        .arg(&addon))?;
    let root = &contents.workspace.root;
    fs::copy(root.join("LICENSE"), folder.join("LICENSE"))?;
    let glibc = contents.needs.version();
    let fields = [
        ("@NAME@", NAME),
        ("@VERSION@", VERSION),
        ("@DRIVER@", DRIVER_VERSION),
        ("@MACHINE@", machine),
        ("@GLIBC@", glibc.as_str()),
    ];
    for name in ["package.json", "README.md", "entry.js"] {
        let path = root.join("packages/npm").join(name);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = fields.iter().fold(text, |text, (field, value)| text.replace(field, value));
        fs::write(folder.join(name), text)?;
    }
    permit_all(&folder)?;
    // As `npm pack` names what is inside.
    archive::pack(contents, &folder, "package", &format!("{NAME}-{VERSION}.tgz"))
}
