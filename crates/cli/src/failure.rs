//! Why a command did not do what was asked, in the words that the user reads.

use std::path::Path;

/// Exit code of a command that did what was asked.
pub const OK: u8 = 0;
/// Exit code when what was asked for failed, or a check found damage.
pub const FAILED: u8 = 1;
/// Exit code for wrong usage; clap uses the same.
pub const USAGE: u8 = 2;
/// Exit code of an interrupted command, as shells count it (128 + SIGINT).
pub const INTERRUPTED: u8 = 130;

/// What to do about a limit of the size of files.
pub const LIMIT: &str = "this process may not make files as long as that: raise the limit (`ulimit -f unlimited`, or that of the service), and run the command again";

/// Result of a command or a step of one.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// What failed and where, and what to do about it. Both are lower-case phrases without a full stop.
#[derive(Debug)]
pub struct Failure {
    /// What failed, and where.
    pub what: String,
    /// What to do.
    pub advice: String,
    /// Exit code of the program.
    pub code: u8,
}

impl Failure {
    /// Something that was asked for failed.
    pub fn new(what: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure { what: what.into(), advice: advice.into(), code: FAILED }
    }

    /// The command line asks for something that makes no sense.
    pub fn usage(what: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure { what: what.into(), advice: advice.into(), code: USAGE }
    }

    /// An operation of the system on a file failed.
    pub fn io(what: &str, path: &Path, error: &std::io::Error) -> Failure {
        use std::io::ErrorKind as Kind;
        let advice = match error.kind() {
            _ if error.raw_os_error() == Some(libc::ELOOP) => {
                "symbolic links lead through each other: `ls -l` shows where they lead to; remove the one that is wrong"
            }
            Kind::InvalidFilename => {
                "take a shorter name: file systems take names of 255 bytes, and what is made beside the file has a longer one than it"
            }
            Kind::FileTooLarge => LIMIT,
            Kind::NotFound => "check the path",
            Kind::PermissionDenied => "check the permissions of the file and of its directory",
            Kind::IsADirectory | Kind::InvalidInput => "give the path of a database file",
            Kind::ReadOnlyFilesystem => {
                "name a place that can be written, or mount that file system for writing"
            }
            Kind::StorageFull => "free some space on that disk and run the command again",
            _ => "check the disk and the system's log",
        };
        Failure::new(format!("cannot {what} {}: {}", path.display(), said(error)), advice)
    }
}

/// A path as a shell takes it, for a command that the user is told to run. A name that begins with a dash would be an option.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let text = if text.starts_with('-') { format!("./{text}") } else { text };
    shlex::try_quote(&text).map_or_else(|_| text.clone(), Into::into)
}

/// The system's words without the number that the standard library puts behind them.
pub fn said(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_command_is_one_word_and_no_option() {
        let of = |name: &str| quoted(Path::new(name));
        assert_eq!(of("/srv/app.db"), "/srv/app.db");
        assert_eq!(of("my app.db"), "'my app.db'");
        assert_eq!(of("$HOME.db"), "'$HOME.db'");
        assert_eq!(of("-x.db"), "./-x.db");
    }
}
