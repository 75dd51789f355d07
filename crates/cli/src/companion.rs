//! Programs that lie beside this one, and that some commands become.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, Result};

/// Becomes a program beside this one; `what` says what it is. Returns only when that fails.
pub fn become_it(
    name: &str,
    what: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<u8> {
    let own = std::env::current_exe().map_err(|e| {
        Failure::new(
            format!("cannot tell where this program is: {e}"),
            format!("start {name} itself"),
        )
    })?;
    let program = beside(&own, name);
    if !program.is_file() {
        return Err(Failure::new(
            format!("{what} is not there: {}", program.display()),
            "`plait` looks for it beside itself: `make dist` builds it into dist/bin from source; packages have plait-replicate, and no plait-bench",
        ));
    }
    let error = Command::new(&program).args(arguments).exec();
    Err(Failure::io("run", &program, &error))
}

fn beside(own: &Path, name: &str) -> PathBuf {
    own.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_lies_beside_the_command() {
        let own = Path::new("/opt/plait/bin/plait");
        assert_eq!(beside(own, "plait-bench"), Path::new("/opt/plait/bin/plait-bench"));
    }
}
