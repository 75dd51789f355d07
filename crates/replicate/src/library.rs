//! The library inside this program, which merges as the primary's does.

use plait_client::Library;
use plait_engine::base::BaseOpener;

/// Versions of the library inside this program, as an OPEN names the primary's.
pub fn versions() -> String {
    let sqlite = Library::linked().version();
    format!("plait {}, SQLite {sqlite}", env!("CARGO_PKG_VERSION"))
}

/// Opens hidden connections; `None` if SQLite cannot begin.
pub fn opener() -> Option<Box<dyn BaseOpener>> {
    let opener = plait_sqlite::base_opener()?;
    Some(Box::new(opener))
}
