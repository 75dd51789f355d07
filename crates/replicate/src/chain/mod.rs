//! The chain as its readers find it: names that are listed, records in their order, and the tip.
//!
//! - CHAIN-3 A number has one record for ever: a pack's, or the object in `chain/`. Each names the
//!   hash of the one before.
//! - CHAIN-10 Damage, holes and foreign objects end in an error that names the object. Nothing that
//!   was not shipped whole is applied.
//!
//! Why an object in `chain/` is the record of its number, where no pack has it. The writer of
//! record *n* alone sends record *n* + 1, always with the same bytes; any other sender's is an
//! OPEN. A starter's OPEN meets a free number behind the tip only where the number was written,
//! packed and deleted since the starter looked: it is a *stray*. So an OPEN is believed when a list
//! that was made behind it shows no pack that has its number, or a later one.

mod flow;
mod listing;
mod opening;
mod reader;
mod seams;
mod tip;

pub use flow::Flow;
pub use listing::{Lacks, Listing, Stretch};
pub use opening::Opening;
pub use reader::{Found, Link, Reader};
pub use seams::seams;
pub use tip::{Tip, find as find_tip, find_newest};
