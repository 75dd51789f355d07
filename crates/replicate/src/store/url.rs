//! Where a replica is, as people write it.
//!
//! | URL | what |
//! |---|---|
//! | `DIR`, `file:///DIR` | a folder |
//! | `s3://BUCKET/PREFIX` | S3, and what speaks its protocol (`AWS_ENDPOINT_URL`) |
//! | `gs://BUCKET/PREFIX` | Google Cloud Storage |
//! | `az://CONTAINER/PREFIX` | Azure Blob Storage |

use std::path::PathBuf;

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

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            let refused = Place::parse(text).expect_err(text);
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }
}
