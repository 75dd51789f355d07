//! Real stores: a folder, S3, Google Cloud Storage, Azure, through the crate `object_store`.
//!
//! Each call is one request: tries and pauses are the caller's, who knows what may be repeated
//! (STORE-4). A folder is written with fsync of files and folders; `create` is a hard link there.
//! Buckets take credentials, regions and endpoints from the environment variables of their
//! services: `AWS_*`, `GOOGLE_*`, `AZURE_*`.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    ClientConfigKey, Error as ObjectError, ObjectStore, ObjectStoreExt as _, PutMode, RetryConfig,
};

use super::folder::Folder;
use super::url::{Place, Service};
use super::{Created, Later, Store, StoreError};

const CONNECT: &str = "10 seconds";
/// A record of 16 MiB in this time is 2 Mbit a second.
const ANSWER: &str = "60 seconds";

/// S3 takes 1,000 names in a request to delete, Azure 256, and both have a pack's worth of records in one.
const DELETES_AT_ONCE: usize = 256;

/// A real store.
#[derive(Clone)]
pub struct Objects {
    inner: Inner,
    deletes_at_once: usize,
}

#[derive(Clone)]
enum Inner {
    Folder(Arc<Folder>),
    Bucket(Arc<dyn ObjectStore>),
}

/// A folder that is missing
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// is made: something begins there.
    Make,
    /// is an error.
    Refuse,
    /// is the trouble of each call until it is there.
    Await,
    /// is that, and so is an empty one: something was shipped there before.
    AwaitFilled,
}

/// Opens the store of a URL.
///
/// # Errors
/// In words.
pub fn open(url: &str, missing: Missing) -> Result<Objects, String> {
    let place = Place::parse(url)?;
    let inner = match &place {
        Place::Folder(folder) => {
            // It is the same one wherever the process goes.
            let folder = std::path::absolute(folder)
                .map_err(|e| format!("cannot tell where {url} is: {e}"))?;
            let is_missing = || {
                std::fs::metadata(&folder).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
            };
            match missing {
                Missing::Make => std::fs::create_dir_all(&folder)
                    .map_err(|e| format!("cannot create {}: {e}", folder.display()))?,
                Missing::Refuse if is_missing() => {
                    return Err(format!(
                        "there is no folder {}: check its name, and that its disk is mounted; or begin a \
                         replica there with plait replicate",
                        folder.display()
                    ));
                }
                Missing::Refuse | Missing::Await | Missing::AwaitFilled => {}
            }
            Inner::Folder(Arc::new(Folder::new(folder, missing == Missing::AwaitFilled)))
        }
        Place::Bucket { service, bucket, prefix } => {
            // Whoever made one before has made this one.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let opened =
                open_bucket(*service, bucket).map_err(|e| format!("cannot open {url}: {e}"))?;
            Inner::Bucket(if prefix.is_empty() {
                opened
            } else {
                let prefix = Path::parse(prefix).map_err(|e| format!("cannot use {url}: {e}"))?;
                Arc::new(PrefixStore::new(opened, prefix))
            })
        }
    };
    let deletes_at_once = match place {
        Place::Bucket { service: Service::S3 | Service::Azure, .. } => DELETES_AT_ONCE,
        _ => 1,
    };
    Ok(Objects { inner, deletes_at_once })
}

fn open_bucket(
    service: Service,
    bucket: &str,
) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let options = [(ClientConfigKey::ConnectTimeout, CONNECT), (ClientConfigKey::Timeout, ANSWER)];
    Ok(match service {
        Service::S3 => {
            let from_env = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
            let set = options.into_iter().fold(from_env, |builder, (key, value)| {
                builder.with_config(AmazonS3ConfigKey::Client(key), value)
            });
            Arc::new(set.build()?)
        }
        Service::Gcs => {
            let from_env = GoogleCloudStorageBuilder::from_env();
            let from_env = from_env.with_bucket_name(bucket).with_retry(retry);
            let set = options.into_iter().fold(from_env, |builder, (key, value)| {
                builder.with_config(GoogleConfigKey::Client(key), value)
            });
            Arc::new(set.build()?)
        }
        Service::Azure => {
            let from_env = MicrosoftAzureBuilder::from_env();
            let from_env = from_env.with_container_name(bucket).with_retry(retry);
            let set = options.into_iter().fold(from_env, |builder, (key, value)| {
                builder.with_config(AzureConfigKey::Client(key), value)
            });
            Arc::new(set.build()?)
        }
    })
}

/// No object of a replica is as long: records have 16 MiB, parts 16 MiB before they are compressed, and a
/// pack is made at 8 MiB of records of 64 KiB. What is longer would only fill memory.
const OBJECT_BYTES_MAX: u64 = 64 << 20;

fn path(name: &str) -> Path {
    Path::from(name)
}

/// Says what kind of failure it is. `named`: the same text with the name by which people know a folder.
fn failure(error: &ObjectError, named: impl Fn(&str) -> String) -> StoreError {
    let mut text = error.to_string();
    let mut says = Says::default();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let words = inner.to_string();
        let io = inner.downcast_ref::<std::io::Error>();
        says.hear(io.and_then(std::io::Error::raw_os_error), &words);
        if !text.contains(&words) {
            text += &format!(": {words}");
        }
        source = inner.source();
    }
    let text = named(&without_time(&text));
    match error {
        _ if says.is_full => StoreError::Full(text),
        ObjectError::PermissionDenied { .. } | ObjectError::Unauthenticated { .. } => {
            StoreError::Denied(text)
        }
        _ if says.is_refused => StoreError::Denied(text),
        ObjectError::Generic { .. } => StoreError::Unavailable(text),
        _ => StoreError::Failed(text),
    }
}

/// What the sources of an error say. Their texts have names of objects and folders, numbers of requests and pages of
/// servers in them, so nothing counts but where a number of the system, a status or a code stands.
#[derive(Default)]
struct Says {
    is_full: bool,
    is_refused: bool,
}

impl Says {
    fn hear(&mut self, errno: Option<i32>, words: &str) {
        match errno.map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => self.is_full = true,
            Some(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM | rustix::io::Errno::ROFS) => {
                self.is_refused = true
            }
            _ => {}
        }
        match status_of(words) {
            Some(507) => self.is_full = true,
            Some(401 | 403) => self.is_refused = true,
            _ => {}
        }
        match part_code_of(words) {
            Some("507") => self.is_full = true,
            // A rule, a lease or a snapshot keeps it (409), or the caller may not.
            Some("401" | "403" | "409") => self.is_refused = true,
            Some(code) => self.hear_code(code),
            None => {}
        }
        if let Some(code) = body_code_of(words) {
            self.hear_code(code);
        }
    }

    /// Takes the word of a service for a failure, as `AccessDenied`. Stores differ in theirs.
    fn hear_code(&mut self, code: &str) {
        let code = code.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| code.contains(word));
        self.is_full |= has(&["quota", "storagefull", "insufficientstorage"]);
        self.is_refused |= has(&["denied", "forbidden", "locked", "immutable", "notallowed"]);
    }
}

/// The status of an answer, where a text of `object_store` begins with it.
fn status_of(words: &str) -> Option<u16> {
    let behind = words.strip_prefix("Server returned non-2xx status code: ")?;
    behind.get(..3)?.parse().ok()
}

/// The code of one part of a request that deletes several objects, with which its text ends: a status of Azure's, a word
/// of S3's.
fn part_code_of(words: &str) -> Option<&str> {
    let is_part = words.starts_with("Bulk delete request failed ")
        || words.starts_with("DeleteObjects request failed for key ");
    let (_, code) = words.strip_suffix(')').filter(|_| is_part)?.rsplit_once(" (code: ")?;
    Some(code)
}

/// The code in the body of an answer, where a text of `object_store` begins with that.
fn body_code_of(words: &str) -> Option<&str> {
    let is_answer = words.starts_with("Server returned ");
    let (_, behind) = words.split_once("<Code>").filter(|_| is_answer)?;
    Some(behind.split_once("</Code>")?.0)
}

/// The text of an error without how long the request took, which differs from try to try: else each would be
/// another trouble.
fn without_time(text: &str) -> String {
    let mut left = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(" in ") {
        let (before, behind) = rest.split_at(at);
        left += before;
        let word = behind[4..].split([' ', ',']).next().unwrap_or_default();
        let number = word.trim_end_matches(|c: char| c.is_alphabetic());
        let is_time = ["ns", "µs", "ms", "s"].contains(&&word[number.len()..])
            && number.parse::<f64>().is_ok();
        let length = if is_time { 4 + word.len() } else { 4 };
        if !is_time {
            left += " in ";
        }
        rest = &behind[length..];
    }
    left + rest
}

impl Objects {
    /// Makes one call. `changes`: it makes or deletes objects.
    ///
    /// A call of a folder is a task of its own: it goes on to its end when whoever awaits it is dropped, and closes the
    /// folder then.
    async fn call<T: Send + 'static, F>(
        &self,
        changes: bool,
        does: impl FnOnce(Arc<dyn ObjectStore>) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, ObjectError>> + Send + 'static,
    {
        let folder = match &self.inner {
            Inner::Bucket(store) => {
                let answer = does(Arc::clone(store)).await;
                return answer.map_err(|error| failure(&error, str::to_owned));
            }
            Inner::Folder(folder) => Arc::clone(folder),
        };
        let called = tokio::spawn(async move {
            // One over a network may not answer for long.
            let opened = tokio::task::spawn_blocking(move || folder.open(changes)).await;
            let opened = opened.map_err(|e| StoreError::Unavailable(e.to_string()))??;
            let answer = does(Arc::clone(&opened.store)).await;
            let answer = answer.map_err(|error| failure(&error, |text| opened.named(text)));
            opened.close();
            answer
        });
        called.await.map_err(|e| StoreError::Unavailable(e.to_string()))?
    }

    /// In a folder, what has this name is nothing, or a file (FOLDER-4).
    async fn opens(&self, name: &str) -> bool {
        let Some(folder) = self.folder() else { return true };
        let name = name.to_owned();
        tokio::task::spawn_blocking(move || folder.opens(&name)).await.unwrap_or(true)
    }

    /// The folder, if it is one.
    fn folder(&self) -> Option<Arc<Folder>> {
        match &self.inner {
            Inner::Folder(folder) => Some(Arc::clone(folder)),
            Inner::Bucket(_) => None,
        }
    }
}

impl Store for Objects {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> Later<'a, Result<Created, StoreError>> {
        let (folder, name) = (self.folder(), name.to_owned());
        Box::pin(self.call(true, move |store: Arc<dyn ObjectStore>| async move {
            match store.put_opts(&path(&name), bytes.into(), PutMode::Create.into()).await {
                Ok(_) => {
                    if let Some(folder) = folder {
                        folder.note_made(&name);
                    }
                    Ok(Created::Made)
                }
                Err(ObjectError::AlreadyExists { .. } | ObjectError::Precondition { .. }) => {
                    Ok(Created::Exists)
                }
                Err(error) => Err(error),
            }
        }))
    }

    fn get<'a>(&'a self, name: &'a str) -> Later<'a, Result<Option<Bytes>, StoreError>> {
        let at = path(name);
        let got = self.call(false, move |store: Arc<dyn ObjectStore>| async move {
            match store.get(&at).await {
                Ok(found) if found.meta.size > OBJECT_BYTES_MAX => {
                    Ok(Got::TooLong(found.meta.size))
                }
                Ok(found) => found.bytes().await.map(Got::Object),
                Err(ObjectError::NotFound { .. }) => Ok(Got::Nothing),
                Err(error) => Err(error),
            }
        });
        Box::pin(async move {
            if !self.opens(name).await {
                return Ok(None);
            }
            match got.await? {
                Got::Object(bytes) => Ok(Some(bytes)),
                Got::Nothing => Ok(None),
                Got::TooLong(bytes) => Err(StoreError::Failed(format!(
                    "it has {bytes} bytes: none that a sidecar makes has more than {OBJECT_BYTES_MAX}",
                ))),
            }
        })
    }

    fn beginning<'a>(
        &'a self,
        name: &'a str,
        bytes: usize,
    ) -> Later<'a, Result<Option<Bytes>, StoreError>> {
        let at = path(name);
        let begun = self.call(false, move |store: Arc<dyn ObjectStore>| async move {
            match store.get_range(&at, 0..bytes as u64).await {
                Err(ObjectError::NotFound { .. }) => Ok(None),
                found => found.map(Some),
            }
        });
        Box::pin(async move {
            if !self.opens(name).await {
                return Ok(None);
            }
            match begun.await {
                Ok(found) => Ok(found),
                // No range begins in an object without bytes, and services say that in words of their own. What else is
                // wrong is told by the whole of it.
                Err(_) => {
                    let whole = self.get(name).await?;
                    Ok(whole.map(|whole| super::first_bytes(&whole, bytes)))
                }
            }
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Later<'a, Result<Vec<String>, StoreError>> {
        let prefix = path(prefix);
        Box::pin(self.call(false, move |store: Arc<dyn ObjectStore>| async move {
            let found = store.list(Some(&prefix));
            match found.map_ok(|meta| meta.location.to_string()).try_collect().await {
                Err(ObjectError::NotFound { .. }) => Ok(Vec::new()),
                names => names,
            }
        }))
    }

    fn put<'a>(&'a self, name: &'a str, bytes: Bytes) -> Later<'a, Result<(), StoreError>> {
        let at = path(name);
        Box::pin(self.call(true, move |store: Arc<dyn ObjectStore>| async move {
            store.put(&at, bytes.into()).await.map(|_| ())
        }))
    }

    fn delete<'a>(&'a self, names: &'a [String]) -> Later<'a, Result<(), StoreError>> {
        let (folder, names) = (self.folder(), names.to_vec());
        Box::pin(self.call(true, move |store: Arc<dyn ObjectStore>| async move {
            let paths: Vec<_> = names.iter().map(|name| Ok(path(name))).collect();
            let mut deleted = store.delete_stream(stream::iter(paths).boxed());
            while let Some(one) = deleted.next().await {
                match one {
                    Ok(_) | Err(ObjectError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            if let Some(folder) = folder {
                folder.note_deleted(&names);
            }
            Ok(())
        }))
    }

    fn deletes_at_once(&self) -> usize {
        self.deletes_at_once
    }
}

/// What stands under a name.
enum Got {
    Object(Bytes),
    Nothing,
    /// More bytes than any object has.
    TooLong(u64),
}

#[cfg(test)]
mod tests;
