//! Project tasks, run as `cargo run -p xtask -- TASK` or through the Makefile.

mod check;
mod dist;
mod edits;
mod packages;
mod site;
mod suites;
mod target;
mod toolchain;
mod tree;
mod tsan;
mod workspace;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Project tasks")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check formatting, clippy's lints and the house rules.
    Check,
    /// Build the libraries, headers and programs into a directory.
    Dist {
        /// Where to put them.
        #[arg(long, default_value = "dist")]
        out: PathBuf,
        /// Also build a library that can be killed at named steps, for the crash tests.
        #[arg(long)]
        crash_points: bool,
        /// Also build a library whose C part looks for its own faults, for `make sanitize`.
        #[arg(long)]
        sanitizers: bool,
        /// Also write SQLite's source as one file, and the engine to link with it.
        #[arg(long)]
        amalgamation: bool,
        /// Also build the native part of the JDBC driver, on our library; needs Maven and a JDK.
        #[arg(long)]
        jdbc: bool,
        /// Also build better-sqlite3 with our library inside, for Node; needs npm and a compiler of C++.
        #[arg(long, requires = "amalgamation")]
        npm: bool,
        /// Build the unspliced library and its shell alone.
        #[arg(long, conflicts_with_all = ["crash_points", "sanitizers"])]
        stock_only: bool,
        /// Leave out the evaluation suite, which takes longest to build.
        #[arg(long)]
        no_suite: bool,
        /// Build what `plait demo` needs alone: both shared libraries and the command.
        #[arg(long, conflicts_with_all = ["crash_points", "sanitizers", "stock_only", "peers"])]
        demo: bool,
        /// Cargo features of the evaluation suite: peers that take long to build. Remembered.
        #[arg(long)]
        peers: Option<String>,
        /// Build for another platform, named as Rust does, without shells and the suite.
        #[arg(long, conflicts_with_all = ["sanitizers", "stock_only", "demo", "peers"])]
        target: Option<String>,
    },
    /// Lay out in dist/tree what is installed.
    Tree,
    /// Make the packages: dist/packages.
    Packages {
        /// Build for this machine's C library instead of Debian 11's.
        #[arg(long, conflicts_with = "target")]
        native: bool,
        /// What for, named as Rust does: aarch64-unknown-linux-musl, say. This machine if absent.
        #[arg(long)]
        target: Option<String>,
        /// Make the npm package although it is for this machine's C library; without --native it is made where npm is.
        #[arg(long)]
        npm: bool,
    },
    /// Run a command as packages for a target are built: with its compiler and in its target directory.
    Within {
        /// What for, named as Rust does.
        target: String,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Write the page that lists the edits of SQLite anew, from the edits.
    Edits,
    /// Lay the pages out in target/site, for mdBook.
    Site {
        /// The address at which a forge shows the files of this tree; without it links to sources become text.
        #[arg(long)]
        source: Option<String>,
    },
    /// List the invariants that no test holds.
    Labels,
    /// Build all test programs, and run them a few at once.
    Test {
        /// How many run at once; one more than there are processors if absent.
        #[arg(long)]
        jobs: Option<usize>,
    },
    /// Run test programs with ThreadSanitizer.
    Tsan {
        /// Names of test programs of plait-tests.
        suites: Vec<String>,
    },
}

fn main() -> Result<()> {
    match Cli::parse().task {
        Task::Check => check::run(),
        Task::Dist {
            out,
            crash_points,
            sanitizers,
            amalgamation,
            jdbc,
            npm,
            stock_only,
            no_suite,
            demo,
            peers,
            target,
        } => {
            let what = dist::Request {
                crash_points,
                sanitizers,
                amalgamation,
                jdbc,
                npm,
                stock_only,
                no_suite,
                plain_shell: false,
                demo,
                peers,
                target,
            };
            dist::run(&out, what)
        }
        Task::Tree => tree::build(),
        Task::Packages { native, target, npm } => packages::run(target.as_deref(), native, npm),
        Task::Within { target, command } => packages::within(&target, &command),
        Task::Edits => edits::write_page(),
        Task::Site { source } => site::lay(source.as_deref()),
        Task::Labels => check::list_labels(),
        Task::Test { jobs } => suites::run(jobs),
        Task::Tsan { suites } => tsan::run_suites(&suites),
    }
}
