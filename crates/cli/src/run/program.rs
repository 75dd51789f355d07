//! Which file will run: the search path, and the interpreters of scripts.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::os;

/// Scripts whose interpreter is a script, and so on: the kernel's own limit.
const DEPTH_MAX: usize = 5;
/// What the kernel reads of a script's first line.
const LINE_MAX: usize = 256;

/// The file that `name` stands for: a path if it holds a slash, otherwise the first match in the search path.
pub fn find(name: &OsStr) -> Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match std::fs::metadata(&path) {
            Err(e) => Err(Failure::io("run", &path, &e)),
            Ok(_) if !os::is_executable(&path) => Err(Failure::new(
                format!("cannot run {}: it is not executable", path.display()),
                format!(
                    "make it executable with `chmod +x {}`, or name its interpreter",
                    path.display()
                ),
            )),
            Ok(_) => Ok(path),
        };
    }
    on_search_path(name).ok_or_else(|| {
        Failure::new(
            format!("cannot find the program {} on the search path", name.display()),
            "check its name, or give its path",
        )
    })
}

/// The kernel did not start it.
pub fn refused(program: &Path, error: &std::io::Error) -> Failure {
    let shown = program.display();
    let chain = chain(program);
    let missing = chain.iter().zip(chain.iter().skip(1)).find(|(_, next)| !next.exists());
    if let Some((script, interpreter)) = missing {
        return Failure::new(
            format!(
                "cannot run {shown}: the first line of {} names {}, which is not there",
                script.display(),
                interpreter.display()
            ),
            "install that program, or correct the line",
        );
    }
    Failure::io("run", program, error)
}

fn on_search_path(name: &OsStr) -> Option<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    std::env::split_paths(&search).map(|dir| dir.join(name)).find(|path| os::is_executable(path))
}

/// The chain of files behind a program: itself, and the interpreters if it is a script. The last one is what the
/// kernel starts.
pub fn chain(program: &Path) -> Vec<PathBuf> {
    let mut chain = vec![program.to_owned()];
    while chain.len() <= DEPTH_MAX {
        let last = &chain[chain.len() - 1];
        let Some(next) = first_line(last).as_deref().and_then(interpreter) else { break };
        chain.push(next);
    }
    chain
}

fn first_line(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    os::open_regular(path).ok()?.take(LINE_MAX as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The interpreter that a script's first line names, looking through `env`.
fn interpreter(text: &[u8]) -> Option<PathBuf> {
    let line = text.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let mut words = line
        .split(|b| b.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_vec()));
    let program = PathBuf::from(words.next()?);
    if program.file_name() != Some(OsStr::new("env")) {
        return Some(program);
    }
    // `env -S` splits the rest itself; assignments and options come before the name.
    let name = words.find(|word| {
        let word = word.as_bytes();
        !word.starts_with(b"-") && !word.contains(&b'=')
    });
    match name {
        Some(name) if name.as_bytes().contains(&b'/') => Some(PathBuf::from(name)),
        Some(name) => on_search_path(&name),
        None => Some(program),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_its_interpreter() {
        let of = |line: &str| interpreter(line.as_bytes());
        assert_eq!(of("#!/bin/sh\necho"), Some("/bin/sh".into()));
        assert_eq!(of("#! /usr/bin/python3 -E"), Some("/usr/bin/python3".into()));
        assert_eq!(of("echo"), None);
        assert_eq!(of("#!"), None);
    }

    #[test]
    fn env_is_looked_through() {
        let of = |line: &str| interpreter(line.as_bytes());
        let shell = on_search_path(OsStr::new("sh"));
        assert!(shell.is_some());
        assert_eq!(of("#!/usr/bin/env sh\n"), shell);
        assert_eq!(of("#!/usr/bin/env -S A=1 sh -e\n"), shell);
        assert_eq!(of("#!/usr/bin/env no-such-program-anywhere\n"), None);
    }

    #[test]
    fn a_chain_of_scripts_ends_at_the_program_and_never_circles() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, format!("#!{}\n", b.display())).unwrap();
        std::fs::write(&b, "#!/bin/sh\n").unwrap();
        assert_eq!(chain(&a), [a.clone(), b.clone(), PathBuf::from("/bin/sh")]);
        std::fs::write(&b, format!("#!{}\n", a.display())).unwrap();
        assert_eq!(chain(&a).len(), DEPTH_MAX + 1);
    }
}
