//! The command line: what can be asked, with help texts, and who answers.

use std::io::Write as _;

use clap::{Parser, Subcommand};

use crate::failure::{self, Failure, Result};
use crate::os;
use crate::sqlite::Library;
use crate::{
    backup, bench, check, console, convert, demo, doctor, explain, metrics, pages, promote,
    recover, replicas, restore, run, status, top,
};

/// SQLite with many writers: start programs on it, and look after databases in concurrent mode
#[derive(Parser, Debug)]
#[command(
    name = "plait",
    disable_version_flag = true,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "\
Examples:
  plait enable app.db                 many writers from now on
  plait run -- python3 app.py         a program on our library
  plait status app.db --watch         what goes on in it
  plait top app.db                    the same, live
  plait metrics app.db                its numbers for Prometheus
  plait check app.db                  is it sound?
  plait doctor app.db                 what is wrong, and what mends it
  plait explain SQLITE_FULL           what a message, a code or an event means
  plait backup app.db copy.db         a copy, while programs write
  plait restore copy.db app.db        the copy in its place
  plait demo                          what it is good for, measured on this machine
  plait bench quick app.db            it or stock SQLite, on the disk of that file: a minute
  plait bench all --quick             the same question for other stores and workloads (packages lack the suite)

Exit codes: 0 done, 1 it failed or a check found damage, 2 wrong usage."
)]
pub struct Cli {
    /// Print the versions of Plait and of the SQLite in it
    #[arg(short = 'V', long)]
    version: bool,
    #[command(subcommand)]
    command: Option<Commands>,
}

#[derive(Subcommand, Debug)]
enum Commands {
    /// Start a program on our library instead of its own libsqlite3
    #[command(
        long_about = "\
Start a program on our library instead of the system's libsqlite3.

Sets LD_LIBRARY_PATH and LD_PRELOAD and becomes the program. Says so on standard error when the program would ignore \
our library without a word: because it brings its own SQLite inside, is statically linked, or is setuid. Says so too \
when it has ended and no database was opened through our library, and names programs that it started and that bring their \
own (those that are not statically linked). And if it has written a database that is in no concurrent mode, and closed none that is, \
one line says how that is switched on.

With --concurrent every database that the program wants in WAL mode goes into concurrent mode, new ones too, and stays in \
it: for programs that cannot be changed. Where concurrent mode is impossible it gets what SQLite gives. The same by hand: \
PLAIT_JOURNAL_MODE=concurrent in the environment. Transactions that such programs begin with a plain BEGIN wait their turn at \
the first statement where others that began so were refused; PLAIT_BEGIN=deferred keeps SQLite's way, and PLAIT_BEGIN=immediate makes each \
a BEGIN IMMEDIATE. Conflicts are told as SQLITE_BUSY; PLAIT_BUSY_SNAPSHOT=snapshot tells them by their own code.",
        after_help = "\
Examples:
  plait run -- python3 app.py
  plait run --concurrent -- bin/rails server
  plait run ./server --port 8080

The library is the libsqlite3.so.0 in ../lib/plait or ../lib beside this command, or in the directory PLAIT_LIB.
What a program loads later (a driver, an extension) cannot be seen beforehand. From inside,
`SELECT plait_version()` tells which library is in use."
    )]
    Run(run::RunArgs),
    /// Switch a database to concurrent mode
    #[command(
        long_about = "\
Switch a database to concurrent mode, once: the file remembers it, as it does with WAL.

The same as `PRAGMA journal_mode=concurrent`. While programs write to it, the file is fenced against other SQLite \
libraries; when all have closed it, it is a plain SQLite file again.

With --create a file that is not there is made: a new, empty database. One that is there is switched, as without it.",
        after_help = "Examples:\n  plait enable app.db\n  plait enable --create new.db\n  plait run -- python3 app.py"
    )]
    Enable(convert::EnableArgs),
    /// Switch a database back to a journal mode of SQLite
    #[command(
        long_about = "\
Switch a database back to a journal mode of SQLite.

In SQL `PRAGMA journal_mode=delete` does it. `PRAGMA journal_mode=wal` does not: programs say that each time they connect, \
so a concurrent database stays as it is.",
        after_help = "Examples:\n  plait disable app.db\n  plait disable app.db --to delete"
    )]
    Disable(convert::DisableArgs),
    /// Show what goes on in a database
    #[command(
        long_about = "\
Show what goes on in a database: who has it open, commits, conflicts, memory, log, oldest reader, transactions.

The numbers are those of the tables plait_status, plait_transactions and plait_conflicts, which every driver can query. A \
database that nobody has open is only looked at, not opened.

Exit codes: 0 it was looked at, whatever its state; 1 it could not be looked at, or who asks it is refused; 2 wrong usage. `plait check` \
judges.",
        after_help = "\
Examples:
  plait status app.db
  plait status app.db --watch
  plait status app.db --json | jq .status.commits"
    )]
    Status(status::StatusArgs),
    /// Watch a database live: rates, open transactions, and what they wait for
    #[command(
        long_about = "\
Watch a database live: commits, conflicts and syncs a second, memory, log and merges, and below them the transactions that are open, \
with process, age, state, and what each waits for.

Keys: q ends it, s changes the order, p pauses, + and - change the interval, arrows move through the list.

It only looks: it is no member of the session, takes no lock, and changes nothing. A database that is closed, removed or opened again \
is shown so. Where the output is no terminal, or with --once, it prints one look as plain text.

Exit codes: 0 it was looked at, whatever its state; 1 it could not be looked at when the command began; 2 wrong usage.",
        after_help = "\
Examples:
  plait top app.db
  plait top app.db --interval 0.5
  plait top app.db --once"
    )]
    Top(top::TopArgs),
    /// Print, serve or write the numbers of databases for Prometheus
    #[command(
        long_about = "\
Print the numbers of databases in the text format of Prometheus, serve them over HTTP, or write them into a file for the textfile \
collector of node_exporter.

It only looks: it is no member of a session, takes no lock, and changes nothing. A database that cannot be looked at, or is in another \
mode, has plait_up 0, and a line on standard error says why; the others are measured all the same. A database at rest is up, with \
plait_session 0. Counters begin at 0 with each session.

Exit codes: 0 it was measured, whatever the state of the databases; 1 the numbers could not be served or written; 2 wrong usage.",
        after_help = "\
Examples:
  plait metrics /srv/app.db
  plait metrics --listen 127.0.0.1:9578 /srv/app.db /srv/shop.db
  plait metrics --textfile /var/lib/node_exporter/plait.prom --interval 15 /srv/app.db

The label `database` is FILE as it is written here: absolute paths are the same for everybody. Whoever reaches ADDR:PORT reads the \
numbers and these paths, and nothing else. `examples/monitoring` of the sources has a dashboard of Grafana and rules for alerts."
    )]
    Metrics(metrics::MetricsArgs),
    /// Check a database, its log and its shared memory, and tell what opening it will do
    #[command(
        long_about = "\
Check a database, its log and its shared memory, and tell what opening it will do. What a crash has left is not \
changed. A sound database is opened to be checked, as by any reader: SQLite may make and remove files beside it for that, and if \
the check is the last to close it, commits of programs that have ended are merged. With --quick it is only looked at.

The content is checked with integrity_check and foreign_key_check. After a crash that is done on a private copy in \
TMPDIR, on which the same recovery runs that the next program would cause.

Beside programs that open, write and close it all the time it may take some seconds until it can be told, or end in an error \
that says so.",
        after_help = "Examples:\n  plait check app.db\n  plait check --quick app.db && echo sound"
    )]
    Check(check::CheckArgs),
    /// Say what is wrong with a database and around it, and what mends it
    #[command(
        long_about = "\
Say what is wrong with a database and around it, and what mends it: the state of its files, the file system, rights and limits, what killed \
commands and programs have left, and which copy of SQLite is in the programs that have it open.

The verdict is the first line. Nothing is opened or changed, and the content is not looked at: `plait check` does that. What programs of \
other users do is told to root alone.",
        after_help = "Examples:\n  plait doctor app.db\n  sudo plait doctor app.db"
    )]
    Doctor(doctor::DoctorArgs),
    /// Copy a database while programs write to it
    #[command(
        long_about = "\
Copy a database in any journal mode while programs write to it.

The copy is what was committed at one moment. It is made under a temporary name beside DEST, synced, checked, and renamed: \
DEST is a whole copy, or it is what it was. A file that is there is replaced with --force alone. The copy is one plain SQLite file, in \
the journal mode of FILE: put back, it works as before.

Nobody waits for the copy in concurrent or WAL mode. Beside it the WAL grows, as beside any long reader. In a rollback mode writers wait until the \
pages are copied.",
        after_help = "\
Examples:
  plait backup app.db /backups/app.db
  plait backup app.db /backups/app.db --force --check full"
    )]
    Backup(backup::BackupArgs),
    /// Put a backup in the place of a database, or restore out of a replica
    #[command(
        long_about = "\
Put a backup in the place of a database, whatever stands there: a database, the files beside it, some of them, or nothing.

BACKUP is copied and checked before anything is changed. What stood there is kept under the name FILE-before-restore-1, with all files \
beside it: nothing is deleted. The file keeps its journal mode, owner and permissions. The command refuses while a program has FILE open.

Killed at any moment it leaves the database as it was, restored, or closed: then nothing opens it, and the same command ends what was begun.

With -o FILE it makes FILE out of a replica, as it was at the newest moment that was shipped or at an earlier one; `plait replicas` lists \
them. Nothing stands under that name before it is whole.",
        after_help = "\
Examples:
  plait restore s3://bucket/app -o app.db --at '2026-11-28 12:00'
  plait restore /backups/app.db app.db
  plait restore app.db-before-restore-1 app.db     back again
  plait restore /backups/app.db app.db --to concurrent"
    )]
    Restore(restore::RestoreArgs),
    /// Make a replica a database that can be written
    #[command(
        long_about = "\
Make a replica, which follows a primary, a database that can be written, from its next opening on.

It asks nothing, and refuses while the follower runs. What the primary has committed since the record that is printed is not in it: \
from here on the primary must not be written any more.",
        after_help = "Examples:\n  plait promote replica.db"
    )]
    Promote(promote::PromoteArgs),
    /// Bring a database to rest after a crash
    #[command(
        long_about = "\
Bring a database to rest after a crash.

Opening the database does the same; there is no need to run this first. With --accept-base the commits that are only in \
the log are given up: for a log that is lost, damaged or of another file. The log is kept under another name. While shared \
memory holds what the database file lacks, opening it loses nothing, and --accept-base refuses unless --force is given.",
        after_help = "Examples:\n  plait recover app.db\n  plait recover app.db --accept-base"
    )]
    Recover(recover::RecoverArgs),
    /// Say what a message, a code or an event means, and what to do
    #[command(
        long_about = "\
Say what a message of the library, a code of SQLite's, an event or an alert means, and what to do: the rows of docs/runbook.md, which is in \
this command.

A message may be cut, and may hold any names and numbers. Without TEXT the whole page is printed.",
        after_help = "\
Examples:
  plait explain 'database is locked: process 4711 holds the writer'\\''s right'
  plait explain was removed, renamed, replaced or cut short
  plait explain SQLITE_CANTOPEN
  plait explain checkpoint-starved
  plait explain | less"
    )]
    Explain(explain::ExplainArgs),
    /// Measure the main job on stock SQLite and on Plait
    #[command(
        long_about = "\
Measure the main job on stock SQLite and on Plait: 1, 10, 50 and 100 writers in threads and in processes, each with random \
selects and updates of 400-byte rows, every commit durable. Every result is verified.

Takes a little more than a minute and, for the time being, a few hundred MB of disk.",
        after_help = "\
Examples:
  plait demo
  plait demo --dir /mnt/data --seconds 5
  plait demo --writers 4,16"
    )]
    Demo(demo::DemoArgs),
    /// Measure this machine: four classic studies, beside other stores; built from source (`make dist`), packages have no suite
    #[command(disable_help_flag = true)]
    Bench(bench::BenchArgs),
    /// Ship a living database to a folder or an object store, until told to end: plait-replicate run
    #[command(disable_help_flag = true)]
    Replicate(replicas::ReplicaArgs),
    /// Keep a database as a replica has it, for programs that read it, until told to end
    #[command(disable_help_flag = true)]
    Follow(replicas::ReplicaArgs),
    /// List what can be restored from a replica
    #[command(disable_help_flag = true)]
    Replicas(replicas::ReplicaArgs),
    /// Find out whether an object store or a folder is fit for a replica
    #[command(disable_help_flag = true)]
    Probe(replicas::ReplicaArgs),
    #[command(name = run::watch::COMMAND, hide = true)]
    RunWatch(run::watch::WatchArgs),
    #[command(name = restore::LOOK_COMMAND, hide = true)]
    LookBeforeRestore(restore::LookArgs),
    #[command(name = pages::COMMAND, hide = true)]
    WritePages(pages::PagesArgs),
    #[command(name = demo::TRIAL_COMMAND, hide = true)]
    DemoTrial,
    #[command(name = demo::WRITER_COMMAND, hide = true)]
    DemoWriter,
    #[command(name = demo::VERIFY_COMMAND, hide = true)]
    DemoVerify,
}

/// Does what the command line asks.
pub fn parse_and_run() -> Result<u8> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let code = u8::try_from(e.exit_code()).unwrap_or(failure::USAGE);
            let printed = e.print().and_then(|()| std::io::stdout().flush());
            return printed.map(|()| code).map_err(console::unsaid);
        }
    };
    if !matches!(cli.command, Some(Commands::Run(_))) {
        os::outlive_long_files();
    }
    if cli.version {
        let sqlite = Library::linked();
        anstream::println!("plait {}", env!("CARGO_PKG_VERSION"));
        anstream::println!("SQLite {} {}", sqlite.version(), sqlite.source_id());
        return Ok(failure::OK);
    }
    let Some(command) = cli.command else {
        return Err(Failure::usage("no command was given", "`plait --help` lists the commands"));
    };
    let hidden = |done: std::result::Result<(), String>| {
        done.map(|()| failure::OK).map_err(|e| {
            Failure::new(e, "run `plait demo` or `plait run`, which start this by themselves")
        })
    };
    match command {
        Commands::Run(args) => run::run(&args),
        Commands::Enable(args) => convert::enable(&args),
        Commands::Disable(args) => convert::disable(&args),
        Commands::Status(args) => status::run(&args),
        Commands::Top(args) => top::run(&args),
        Commands::Metrics(args) => metrics::run(&args),
        Commands::Check(args) => check::run(&args),
        Commands::Doctor(args) => doctor::run(&args),
        Commands::Backup(args) => backup::run(&args),
        Commands::Restore(args) => restore::run(&args),
        Commands::Promote(args) => promote::run(&args),
        Commands::Recover(args) => recover::run(&args),
        Commands::Explain(args) => explain::run(&args),
        Commands::Demo(args) => demo::run(&args),
        Commands::Bench(args) => bench::run(&args),
        Commands::Replicate(args) => replicas::run("run", &args),
        Commands::Follow(args) => replicas::run("follow", &args),
        Commands::Replicas(args) => replicas::run("replicas", &args),
        Commands::Probe(args) => replicas::run("probe", &args),
        Commands::RunWatch(args) => hidden(run::watch::run(&args).map_err(|e| e.to_string())),
        Commands::LookBeforeRestore(args) => restore::look(&args),
        Commands::WritePages(args) => pages::write(&args),
        Commands::DemoTrial => hidden(demo::be_trial()),
        Commands::DemoWriter => hidden(demo::be_writer()),
        Commands::DemoVerify => hidden(demo::be_verifier()),
    }
}
