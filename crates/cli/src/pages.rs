//! `plait write-pages`: man pages and shell completions, from the definitions of the command line.
//!
//! A hidden command, which packagers and `make tree` call. Whoever changes a command changes its pages with it, since nobody writes them.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;

use crate::commands::Cli;
use crate::failure::{self, Failure, Result};

/// The command's name, which the help does not show.
pub const COMMAND: &str = "write-pages";

/// The name of the manual in the pages' footer.
const MANUAL: &str = "Plait";

/// Arguments of `plait write-pages`.
#[derive(Args, Debug)]
pub struct PagesArgs {
    /// A folder, which is made: man pages go into man1, completions into completions
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Writes all of them.
pub fn write(args: &PagesArgs) -> Result<u8> {
    let (pages, completions) = (args.folder.join("man1"), args.folder.join("completions"));
    for folder in [&pages, &completions] {
        fs::create_dir_all(folder).map_err(|e| Failure::io("make", folder, &e))?;
    }
    let mut command = visible(&Cli::command());
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, "plait", &completions)
            .map_err(|e| Failure::io("write into", &completions, &e))?;
    }
    write_manual(&command, &pages)?;
    Ok(failure::OK)
}

/// The command without what the help does not show: completions would offer it.
fn visible(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set()).cloned();
    let mut visible = Command::new("plait")
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .args(command.get_arguments().cloned())
        .subcommands(shown);
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(after) = command.get_after_help() {
        visible = visible.after_help(after.clone());
    }
    visible.build();
    visible
}

/// A page for the command and one for each command in it, which is named `plait-run` and so on.
fn write_manual(command: &Command, folder: &Path) -> Result<()> {
    for inner in command.get_subcommands() {
        write_manual(inner, folder)?;
    }
    let source = concat!("plait ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).source(source).manual(MANUAL);
    page.generate_to(folder).map_err(|e| Failure::io("write into", folder, &e))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_help_hides_is_on_no_page() {
        let folder = tempfile::tempdir().unwrap();
        write(&PagesArgs { folder: folder.path().to_owned() }).unwrap();
        let bash = fs::read_to_string(folder.path().join("completions/plait.bash")).unwrap();
        assert!(bash.contains("recover") && !bash.contains(COMMAND), "{bash}");
        let pages: Vec<_> = fs::read_dir(folder.path().join("man1")).unwrap().collect();
        let shown = visible(&Cli::command()).get_subcommands().count();
        assert_eq!(pages.len(), shown + 1, "one for each command, and one for all: {pages:?}");
        let run = fs::read_to_string(folder.path().join("man1/plait-run.1")).unwrap();
        assert!(run.starts_with(".ie") && run.contains("LD_PRELOAD"), "{run}");
    }
}
