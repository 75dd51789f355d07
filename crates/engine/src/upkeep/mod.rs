//! Merging memtable generations into the base.
//!
//! One process at a time merges or is exclusive: the holder of `merge_owner`.
//!
//! ```text
//! own merge right -> freeze active generation -> log durable through it ->
//! base write transaction: newest version per key, sorted; header stamped ->
//! commit (durable) -> generations MERGED -> log segments reused ->
//! WAL checkpoint -> arenas of generations that no snapshot needs become FREE
//! ```
//!
//! States of a generation
//!
//! | state | commits | in the base | arena |
//! |---|---|---|---|
//! | ACTIVE | yes | no | in use |
//! | FROZEN | no | no | in use |
//! | MERGED | no | yes | kept while a snapshot or a validation may need it |
//! | FREE | no | - | formatted when it becomes ACTIVE |
//!
//! Invariants
//! - GEN-1 Exactly one generation is ACTIVE; numbers grow by one; FROZEN ones lie between the
//!   base's generation and the active one, without gaps.
//! - GEN-2 (SNAP-2) A generation is merged only when all its frames are durable.
//! - GEN-3 (FILE-4) The base's header carries the generation inside the merge's own transaction;
//!   log space is reused only after that transaction is durable.
//! - GEN-4 (SNAP-3) An arena is reformatted only when its generation is MERGED and no pinned
//!   snapshot needs it; under the commit mutex.
//! - GEN-5 If anything fails the generations stay FROZEN and the next merge retries.

pub use crate::base::{Base, BaseHeader, BaseOpener, Checkpoint, WalState};

mod fence;
pub(crate) mod leave;
mod merge;
pub(crate) mod pressure;
