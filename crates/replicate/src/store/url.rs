//! Where a replica is, as people write it.
//!
//! | URL | what |
//! |---|---|
//! | `DIR`, `file:///DIR` | a folder |
//! | `s3://BUCKET/PREFIX` | S3, and what speaks its protocol (`AWS_ENDPOINT_URL`) |
//! | `gs://BUCKET/PREFIX` | Google Cloud Storage |
//! | `az://CONTAINER/PREFIX` | Azure Blob Storage |

use std::path::{Path, PathBuf};

/// Where a replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A folder.
    Folder(PathBuf),
    /// A bucket of a service, and the prefix of all names in it.
    Bucket {
        /// Whose.
        service: Service,
        /// The bucket, or container.
        bucket: String,
        /// Without slashes at its ends.
        prefix: String,
    },
}

/// Who keeps a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// `s3://`
    S3,
    /// `gs://`
    Gcs,
    /// `az://`
    Azure,
}

impl Place {
    /// Reads a URL.
    ///
    /// # Errors
    /// In words.
    pub fn parse(text: &str) -> Result<Place, String> {
        if text.contains(char::is_control) {
            return Err(format!(
                "{text:?} has a newline or another control character in it, and names no place: rename the folder"
            ));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return match text {
                "" => Err("the URL is empty: name a folder, or s3://BUCKET/PREFIX".to_owned()),
                _ => Ok(Place::Folder(text.into())),
            };
        };
        let service = match scheme {
            "file" if rest.starts_with('/') => return Ok(Place::Folder(rest.into())),
            "file" => return Err(format!("{text} names a machine: write file:///FOLDER")),
            "s3" => Service::S3,
            "gs" => Service::Gcs,
            "az" => Service::Azure,
            other => {
                return Err(format!(
                    "{other}:// is no place for a replica: name a folder, or a URL that begins \
                     with s3://, gs:// or az://"
                ));
            }
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(format!("{text} names no bucket: write {scheme}://BUCKET/PREFIX"));
        }
        if prefix.contains(['?', '#']) || bucket.contains(['?', '#', '@', ':']) {
            return Err(format!(
                "{text} has more than a bucket and a prefix: credentials and endpoints come from \
                 the environment"
            ));
        }
        let prefix = prefix.trim_matches('/').to_owned();
        Ok(Place::Bucket { service, bucket: bucket.to_owned(), prefix })
    }
}

impl Place {
    /// Its name for people, wherever a program is started: a folder by its whole path.
    pub fn name(&self) -> String {
        match self {
            Place::Folder(folder) => whole(folder).to_string_lossy().into_owned(),
            Place::Bucket { service, bucket, prefix } => {
                let scheme = match service {
                    Service::S3 => "s3",
                    Service::Gcs => "gs",
                    Service::Azure => "az",
                };
                let slash = if prefix.is_empty() { "" } else { "/" };
                format!("{scheme}://{bucket}{slash}{prefix}")
            }
        }
    }

    /// The folder itself, without links, if it is one.
    pub fn folder(&self) -> Option<PathBuf> {
        match self {
            Place::Folder(folder) => Some(real(folder)),
            Place::Bucket { .. } => None,
        }
    }

    /// A URL names this place, perhaps in another way.
    pub fn is(&self, url: &str) -> bool {
        match (Place::parse(url), self) {
            (Ok(Place::Folder(other)), Place::Folder(folder)) => {
                whole(&other) == whole(folder) || real(&other) == real(folder)
            }
            (Ok(other), _) => other == *self,
            (Err(_), _) => false,
        }
    }
}

/// Without a dot or a slash that says nothing.
fn whole(folder: &Path) -> PathBuf {
    std::path::absolute(folder).map_or_else(|_| folder.into(), |path| path.components().collect())
}

/// Without links; what is not there yet is named below what is.
fn real(folder: &Path) -> PathBuf {
    let whole = whole(folder);
    let found = whole.ancestors().find_map(|at| Some((std::fs::canonicalize(at).ok()?, at)));
    match found {
        // To join nothing would add a slash, which a file has none of.
        Some((real, at)) if at == whole => real,
        Some((real, at)) => {
            whole.strip_prefix(at).map_or_else(|_| whole.clone(), |rest| real.join(rest))
        }
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_the_same_under_each_of_its_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |rest: &str| format!("{}{rest}", folder.path().display());
        std::os::unix::fs::symlink(folder.path(), at("/link")).expect("a link");
        let place = |url: &str| Place::parse(url).expect("a place");
        for is_there in [false, true] {
            if is_there {
                std::fs::create_dir(at("/place")).expect("a folder");
            }
            let same = ["/place", "/place/", "/./place", "//place", "/link/place"];
            for other in same.map(at).into_iter().chain([format!("file://{}", at("/place/"))]) {
                assert!(
                    place(&at("/place")).is(&other) && place(&other).is(&at("/place")),
                    "{other}"
                );
                assert!(!place(&at("/other")).is(&other), "{other}");
            }
        }
        assert!(place(&at("/place")).is(&at("/place/../place")));
        assert_eq!(place(&at("/./link//place/")).name(), at("/link/place"), "as it was named");
        assert!(place(&at("/link")).folder() == folder.path().canonicalize().ok());
        assert!(place("s3://b/app").is("s3://b/app/") && !place("s3://b/app").is("gs://b/app"));
        for url in ["s3://b", "gs://b/x", "az://c/x/y"] {
            assert_eq!(place(url).name(), url);
        }
    }

    fn bucket(service: Service, bucket: &str, prefix: &str) -> Result<Place, String> {
        Ok(Place::Bucket { service, bucket: bucket.into(), prefix: prefix.into() })
    }

    #[test]
    fn a_url_names_a_folder_or_a_bucket() {
        assert_eq!(Place::parse("/srv/replica"), Ok(Place::Folder("/srv/replica".into())));
        assert_eq!(Place::parse("replica"), Ok(Place::Folder("replica".into())));
        assert_eq!(Place::parse("file:///srv/r"), Ok(Place::Folder("/srv/r".into())));
        assert_eq!(Place::parse("s3://b"), bucket(Service::S3, "b", ""));
        assert_eq!(Place::parse("s3://b/app/db/"), bucket(Service::S3, "b", "app/db"));
        assert_eq!(Place::parse("gs://b/x"), bucket(Service::Gcs, "b", "x"));
        assert_eq!(Place::parse("az://c/x"), bucket(Service::Azure, "c", "x"));
    }

    #[test]
    fn what_is_no_place_is_refused_with_what_to_write() {
        for (text, says) in [
            ("", "is empty"),
            ("ftp://host/x", "begins with s3://"),
            ("s3:///x", "names no bucket"),
            ("file://host/x", "file:///"),
            ("s3://key:secret@host/b", "from the environment"),
            ("s3://b/x?endpoint=y", "from the environment"),
            ("a\nplace", "\"a\\nplace\" has a newline"),
            ("s3://b/a\u{1b}place", "control character"),
        ] {
            let refused = Place::parse(text).expect_err(text);
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }
}
