//! `plait restore URL -o FILE`: out of a replica. `plait-replicate` does that, which can reach object
//! stores.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::companion;
use crate::failure::Result;

/// What is asked of a restore out of a replica.
#[derive(clap::Args, Debug)]
pub struct ReplicaArgs {
    /// Restore out of a replica (a folder, s3://, gs:// or az://) to this file
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["to", "check"])]
    output: Option<PathBuf>,
    /// As it was at the end of this minute (or second), in UTC: 2026-11-28 12:00
    #[arg(
        long,
        value_name = "TIME",
        requires = "output",
        conflicts_with = "file",
        group = "moment"
    )]
    at: Option<OsString>,
    /// Through this commit of the newest session
    #[arg(
        long,
        value_name = "COMMIT",
        requires = "output",
        conflicts_with = "file",
        group = "moment"
    )]
    commit: Option<OsString>,
    /// Through this record
    #[arg(
        long,
        value_name = "RECORD",
        requires = "output",
        conflicts_with = "file",
        group = "moment"
    )]
    record: Option<OsString>,
    /// Check what was restored before it gets its name
    #[arg(long, requires = "output", conflicts_with = "file")]
    verify: bool,
    /// Put what stands there aside
    #[arg(long, requires = "output", conflicts_with = "file")]
    force: bool,
}

/// Becomes `plait-replicate`. Returns only when that fails.
pub fn hand_over(url: &Path, args: &ReplicaArgs) -> Result<u8> {
    companion::become_it("plait-replicate", "the program for replicas", words(url, args))
}

fn words<'a>(url: &'a Path, args: &'a ReplicaArgs) -> Vec<&'a OsStr> {
    let ReplicaArgs { output, at, commit, record, verify, force } = args;
    let mut words = vec![OsStr::new("restore"), url.as_os_str()];
    let valued = [
        ("--output", output.as_ref().map(|path| path.as_os_str())),
        ("--at", at.as_deref()),
        ("--commit", commit.as_deref()),
        ("--record", record.as_deref()),
    ];
    for (name, value) in valued {
        words.extend(value.into_iter().flat_map(|value| [OsStr::new(name), value]));
    }
    let flags: [(&str, bool); 2] = [("--verify", *verify), ("--force", *force)];
    words.extend(flags.into_iter().filter(|flag| flag.1).map(|(name, _)| OsStr::new(name)));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: crate::restore::RestoreArgs,
    }

    fn parsed(line: &str) -> std::result::Result<Cli, clap::error::ErrorKind> {
        let words = ["restore"].into_iter().chain(line.split(' '));
        Cli::try_parse_from(words).map_err(|error| error.kind())
    }

    #[test]
    fn what_is_asked_is_passed_on() {
        let cli = parsed("s3://b/p -o new.db --record 7 --verify").expect("it is a command line");
        let passed = words(&cli.args.backup, &cli.args.replica);
        assert_eq!(
            passed.join(OsStr::new(" ")),
            "restore s3://b/p --output new.db --record 7 --verify"
        );
        assert!(parsed("backup.db app.db --to wal").is_ok());
    }

    #[test]
    fn a_backup_and_a_replica_are_told_apart() {
        for line in [
            "s3://b/p",
            "backup.db app.db -o new.db",
            "backup.db app.db --at 2026-11-28",
            "s3://b/p -o new.db --to wal",
            "s3://b/p -o new.db --record 7 --commit 8",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
