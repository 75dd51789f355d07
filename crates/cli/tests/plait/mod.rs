//! Running the command, and databases for it to work on.
//!
//! The libraries and shells are those of `dist`, or of the directory `PLAIT_DIST`. Without them a test that needs
//! them says so and passes.
#![allow(dead_code, missing_docs, reason = "each test program uses a part of it")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use tempfile::TempDir;

/// What the command said.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// It did what was asked.
    #[track_caller]
    pub fn done(self) -> Ran {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// It failed, and said what to do.
    #[track_caller]
    pub fn failed(self) -> Ran {
        assert_eq!(self.code, 1, "{self:?}");
        assert!(self.err.starts_with("error: "), "{self:?}");
        assert!(self.err.contains("\n  try: "), "{self:?}");
        self
    }

    /// Everything that it said holds these words, in any order.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Ran {
        for word in words {
            let found = self.out.contains(word) || self.err.contains(word);
            assert!(found, "{word:?} is missing in {self:?}");
        }
        self
    }
}

/// The command with these arguments, to be changed and run.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plait"));
    command.args(args).stdin(Stdio::null());
    command.env_remove("PLAIT_LIB").env_remove("PLAIT_STOCK_LIB").env_remove("NO_COLOR");
    // SAFETY: it calls nothing but signal(), which is allowed between fork and exec.
    unsafe { command.pre_exec(heed_signals) };
    command
}

/// A test that a shell has begun in the background ignores SIGINT, one of nohup SIGHUP, and a child inherits that.
fn heed_signals() -> std::io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: the default action is no function of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

/// Has a command run as somebody who owns nothing, if this runs as root; false if that cannot be.
pub fn unprivileged(command: &mut Command) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::process::CommandExt as _;
    const NOBODY: u32 = 65534;
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return true;
    }
    command.uid(NOBODY).gid(NOBODY);
    let can = Command::new("true").uid(NOBODY).gid(NOBODY).status().is_ok();
    if !can {
        eprintln!("skipped: this cannot run the program as another user");
    }
    can
}

/// Sets the rights of a file, or of a folder.
pub fn set_rights(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub fn finish(command: &mut Command) -> Ran {
    Ran::of(command.output().expect("a program that is there can be started"))
}

/// Makes a program of this content, by another process: had this one the file open for writing, a child that another
/// test forks at that moment would keep it open, and "text file busy" would be all that can be started.
pub fn executable(path: &Path, content: &[u8]) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = install.spawn().expect("install can be started");
    child.stdin.take().expect("a pipe").write_all(content).expect("install reads all");
    assert!(child.wait().expect("install ends").success(), "cannot make {}", path.display());
}

/// What `make dist` builds.
pub struct Dist(PathBuf);

impl Dist {
    /// `None`, with a word about it, when it is not there.
    pub fn find() -> Option<Dist> {
        let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
        let root = std::env::var_os("PLAIT_DIST").map_or_else(default, PathBuf::from);
        let there = [
            "lib/libsqlite3.so.0",
            "stock/lib/libsqlite3.so.0",
            "bin/sqlite3",
            "stock/bin/sqlite3",
        ]
        .iter()
        .all(|file| root.join(file).exists());
        if !there {
            eprintln!("skipped: {} is not complete, run `make dist`", root.display());
            return None;
        }
        Some(Dist(root.canonicalize().expect("a directory that is there")))
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }

    /// The command with the libraries of this dist.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("PLAIT_LIB", self.path("lib")).env("PLAIT_STOCK_LIB", self.path("stock/lib"));
        command
    }

    /// Runs SQL in the stock shell.
    pub fn stock(&self, database: &Path, sql: &str) -> Ran {
        finish(Command::new(self.path("stock/bin/sqlite3")).arg("-bail").arg(database).arg(sql))
    }

    /// Our shell, a member of the session also when nobody else is there.
    fn our_shell(&self) -> Command {
        let mut shell = Command::new(self.path("bin/sqlite3"));
        shell.env("PLAIT_JOIN", "always");
        shell
    }

    /// Runs SQL in our shell.
    pub fn ours(&self, database: &Path, sql: &str) -> Ran {
        finish(self.our_shell().arg("-bail").arg(database).arg(sql))
    }

    /// Our shell with the database open.
    pub fn shell(&self, database: &Path) -> Shell {
        Dist::start(&mut self.our_shell(), database)
    }

    /// The same, which may work alone while nobody else is there.
    pub fn lone_shell(&self, database: &Path) -> Shell {
        Dist::start(&mut Command::new(self.path("bin/sqlite3")), database)
    }

    fn start(shell: &mut Command, database: &Path) -> Shell {
        let mut child = shell
            .args(["-batch", "-bail"])
            .arg(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the shell can be started");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Shell { child, input: Some(input), output }
    }
}

/// A database `app.db` in a folder of its own.
pub struct Scene {
    dist: Dist,
    folder: TempDir,
    pub path: PathBuf,
}

impl Scene {
    /// Before the database is made. `None` where there is no dist.
    pub fn empty() -> Option<Scene> {
        let dist = Dist::find()?;
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("app.db");
        Some(Scene { dist, folder, path })
    }

    /// With a row, in concurrent mode.
    pub fn concurrent() -> Option<Scene> {
        let scene = Scene::empty()?;
        let sql = "CREATE TABLE t(id INTEGER PRIMARY KEY, n INT); INSERT INTO t VALUES(1, 10)";
        scene.ours(sql).done();
        scene.plait(&["enable"]).done();
        Some(scene)
    }

    /// The same, left by a shell that was killed after this many commits.
    pub fn killed(commits: u32) -> Option<Scene> {
        let scene = Scene::concurrent()?;
        let mut shell = scene.shell();
        for n in 0..commits {
            shell.run(&format!("INSERT INTO t(n) VALUES({n});"));
        }
        shell.kill();
        Some(scene)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the command in the folder, with the database as its last argument.
    pub fn plait(&self, args: &[&str]) -> Ran {
        finish(command(&[args, &["app.db"]].concat()).current_dir(self.folder()))
    }

    /// Runs SQL in the stock shell.
    pub fn stock(&self, sql: &str) -> Ran {
        self.dist.stock(&self.path, sql)
    }

    /// Runs SQL in our shell.
    pub fn ours(&self, sql: &str) -> Ran {
        self.dist.ours(&self.path, sql)
    }

    /// Runs SQL in the stock shell, on another file.
    pub fn stock_on(&self, database: &Path, sql: &str) -> Ran {
        self.dist.stock(database, sql)
    }

    /// Runs SQL in our shell, on another file.
    pub fn ours_on(&self, database: &Path, sql: &str) -> Ran {
        self.dist.ours(database, sql)
    }

    /// Our shell with the database open.
    pub fn shell(&self) -> Shell {
        self.dist.shell(&self.path)
    }

    /// The same, which may work alone.
    pub fn lone_shell(&self) -> Shell {
        self.dist.lone_shell(&self.path)
    }

    /// The same, on another file.
    pub fn lone_shell_on(&self, database: &Path) -> Shell {
        self.dist.lone_shell(database)
    }

    /// A file beside the database.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    }

    /// Removes a file beside the database.
    pub fn remove(&self, suffix: &str) {
        std::fs::remove_file(self.beside(suffix)).expect("it is there");
    }

    /// Names and contents of all files in the folder.
    pub fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = std::fs::read_dir(self.folder())
            .expect("the folder is there")
            .map(|entry| entry.expect("it can be read").path())
            .map(|path| (path.display().to_string(), std::fs::read(&path).expect("it can be read")))
            .collect();
        files.sort();
        files
    }
}

/// A running shell.
pub struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Shell {
    /// Runs SQL and waits until it is done.
    pub fn run(&mut self, sql: &str) {
        let input = self.input.as_mut().expect("the shell is not closed");
        writeln!(input, "{sql}\n.print done").expect("the shell listens");
        let mut line = String::new();
        while line != "done\n" {
            line.clear();
            assert!(
                self.output.read_line(&mut line).expect("the shell speaks") > 0,
                "the shell ended at {sql}"
            );
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it end, closing the database.
    pub fn close(mut self) {
        self.input = None;
        self.child.wait().expect("a child can be waited for");
    }

    pub fn kill(mut self) {
        self.child.kill().expect("a running child can be killed");
        self.child.wait().expect("a child can be waited for");
    }
}
