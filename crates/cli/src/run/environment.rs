//! The environment in which the loader finds our library.
//!
//! `LD_LIBRARY_PATH` serves every later `dlopen("libsqlite3.so.0")`; `LD_PRELOAD` also wins over a search path that is
//! built into a program. Both are inherited by the programs that the program starts. What is
//! there already stays, behind ours.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::failure::{Failure, Result};
use crate::installation::SONAME;

/// Variables to set so that `library`, an absolute path that ends in the soname, is the SQLite of a program.
pub fn with_library(
    library: &Path,
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<[(&'static str, OsString); 2]> {
    let directory = library.parent().unwrap_or(Path::new("/"));
    let separates = |b: &u8| matches!(b, b':' | b';');
    if library.file_name() != Some(OsStr::new(SONAME)) {
        return Err(Failure::new(
            format!("the library {} has another name than {SONAME}", library.display()),
            format!("put a link named {SONAME} beside it and point PLAIT_LIB to that directory"),
        ));
    }
    if directory.as_os_str().as_bytes().iter().any(separates) {
        return Err(Failure::new(
            format!(
                "the directory {} has a colon or semicolon in its name, which the loader cannot take",
                directory.display()
            ),
            "move the library elsewhere and point PLAIT_LIB to it",
        ));
    }
    // The loader splits LD_PRELOAD at spaces too; the bare name is then found through the search path.
    let spaced = library.as_os_str().as_bytes().iter().any(u8::is_ascii_whitespace);
    let preload = if spaced { OsStr::new(SONAME) } else { library.as_os_str() };
    Ok([
        ("LD_LIBRARY_PATH", before(directory.as_os_str(), get("LD_LIBRARY_PATH"))),
        ("LD_PRELOAD", before(preload, get("LD_PRELOAD"))),
    ])
}

fn before(first: &OsStr, rest: Option<OsString>) -> OsString {
    let mut value = first.to_owned();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        value.push(":");
        value.push(rest);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(library: &str, existing: Option<&str>) -> Option<[String; 2]> {
        let set = with_library(Path::new(library), |_| existing.map(OsString::from)).ok()?;
        Some(set.map(|(_, value)| value.into_string().unwrap()))
    }

    #[test]
    fn ours_comes_first_and_the_rest_stays() {
        let library = "/opt/plait/lib/libsqlite3.so.0";
        assert_eq!(values(library, None).unwrap(), ["/opt/plait/lib", library]);
        assert_eq!(values(library, Some("")).unwrap(), ["/opt/plait/lib", library]);
        let both = ["/opt/plait/lib:/x".to_owned(), format!("{library}:/x")];
        assert_eq!(values(library, Some("/x")).unwrap(), both);
    }

    #[test]
    fn a_path_with_a_space_is_preloaded_by_name() {
        let set = values("/opt/my plait/libsqlite3.so.0", None).unwrap();
        assert_eq!(set, ["/opt/my plait", "libsqlite3.so.0"]);
    }

    #[test]
    fn a_path_that_the_loader_would_split_is_refused() {
        assert!(values("/opt/a:b/libsqlite3.so.0", None).is_none());
        assert!(values("/opt/ab/libplait.so", None).is_none());
    }
}
