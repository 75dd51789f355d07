//! Where objects are: five calls, and what is expected of them.
//!
//! - STORE-1 `create` makes an object or says that one of this name is there, for any number of
//!   callers at once: one of them makes it. This is the only condition that the chain needs.
//! - STORE-2 An object is whole or absent, whoever reads it when.
//! - STORE-3 `get` and `list` show what was made before they were called, until it is deleted. A
//!   list is in no order, and what comes or goes during it may be missing.
//! - STORE-4 An error of `create`, `put` and `delete` leaves open whether it has happened, or is
//!   still to happen. So the caller repeats the same bytes under the same name, and nothing else.
//!   `Exists` leaves open whether the object is there: some stores answer so to a request that met
//!   another one. The caller reads it.
//!
//! A store that breaks STORE-1 is found by the probe (`probe.rs`).

mod backoff;
mod folder;
pub mod objects;
pub mod url;

use std::pin::Pin;

use bytes::Bytes;

pub use backoff::Backoff;

/// What comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The answer to a `create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The object was made by this call.
    Made,
    /// An object of this name is said to be there.
    Exists,
}

/// Why a call has failed. The text is the store's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No answer, or one that says "later".
    #[error("does not answer: {0}")]
    Unavailable(String),
    /// It is not where it was, or not there yet.
    #[error(
        "is not there: {0}: bring back what was moved or replaced, mount it, or check its name"
    )]
    Gone(String),
    /// The caller has not the right.
    #[error(
        "denied access: check the credentials, and the rights to read, create, list and delete: {0}"
    )]
    Denied(String),
    /// No space, or a quota.
    #[error("has no space left: free some, or raise the quota: {0}")]
    Full(String),
    /// Anything else.
    #[error("failed: {0}")]
    Failed(String),
}

impl StoreError {
    /// The store has understood, and will not: the same call is refused again.
    pub fn is_refusal(&self) -> bool {
        matches!(self, StoreError::Denied(_) | StoreError::Failed(_))
    }
}

/// So many bytes from the start of an object, or as many as it has.
fn first_bytes(whole: &Bytes, bytes: usize) -> Bytes {
    whole.slice(..bytes.min(whole.len()))
}

/// A place for objects.
pub trait Store {
    /// Makes an object, unless there is one of this name.
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> Later<'a, Result<Created, StoreError>>;

    /// Reads an object; `None` if there is none.
    fn get<'a>(&'a self, name: &'a str) -> Later<'a, Result<Option<Bytes>, StoreError>>;

    /// Reads the beginning of an object, so many bytes or as many as it has; `None` if there is none.
    fn beginning<'a>(
        &'a self,
        name: &'a str,
        bytes: usize,
    ) -> Later<'a, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move {
            let whole = self.get(name).await?;
            Ok(whole.map(|whole| first_bytes(&whole, bytes)))
        })
    }

    /// Returns the names that begin with `prefix`, which ends in a slash.
    fn list<'a>(&'a self, prefix: &'a str) -> Later<'a, Result<Vec<String>, StoreError>>;

    /// Writes an object, over another if there is one.
    fn put<'a>(&'a self, name: &'a str, bytes: Bytes) -> Later<'a, Result<(), StoreError>>;

    /// Removes objects, those that are there, in any order.
    fn delete<'a>(&'a self, names: &'a [String]) -> Later<'a, Result<(), StoreError>>;

    /// Objects that `delete` removes by one request.
    fn deletes_at_once(&self) -> usize {
        1
    }
}
