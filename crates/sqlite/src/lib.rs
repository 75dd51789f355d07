//! Drop-in libsqlite3: the shim between the spliced amalgamation and the engine.

pub mod ffi;
pub mod key;
