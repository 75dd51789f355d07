//! Drop-in libsqlite3: the shim between the spliced amalgamation and the engine.

pub mod ffi;
pub mod key;

use plait_engine::base::BaseOpener;

pub use ffi::replica::{allow_replica_writes, heed_mark};

/// Opens hidden connections to bases, for programs that are linked with this library; `None` if
/// SQLite cannot begin. Nobody else has such a base: there is no session over it.
pub fn base_opener() -> Option<impl BaseOpener> {
    ffi::base_opener()
}
