//! `plait-replicate write-pages`: man pages, from the definitions of the command line. `make tree` calls it.

use std::path::Path;

use clap::Command;
use clap_mangen::Man;

/// The command's name, which the help does not show.
pub const COMMAND: &str = "write-pages";

/// Writes a page for the program, and one for each command in it, into `man1` of a folder.
///
/// # Errors
/// In words.
pub fn write(mut command: Command, folder: &Path) -> Result<(), String> {
    command.build();
    let folder = folder.join("man1");
    std::fs::create_dir_all(&folder)
        .and_then(|()| pages(&command, &folder))
        .map_err(|e| format!("cannot write into {}: {e}", folder.display()))
}

fn pages(command: &Command, folder: &Path) -> std::io::Result<()> {
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    for inner in inner.filter(|inner| inner.get_name() != "help") {
        pages(inner, folder)?;
    }
    let source = concat!("plait-replicate ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).source(source).manual("Plait").generate_to(folder).map(drop)
}
