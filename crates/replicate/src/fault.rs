//! Faults that a test may plant, so that the checks of the simulation are seen to notice them.
//!
//! What is shipped has none of them.

/// Something done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The database is told "shipped" before the record is known.
    ShippedEarly,
    /// An OPEN is deleted with the records that a pack has.
    OpenDeleted,
    /// A record that is there is taken for the writer's own, and not read.
    NonceUnread,
    /// The next number is sent before the last one is known.
    NumberAhead,
    /// Who has made an OPEN does not look whether something is behind it.
    StrayUnseen,
    /// Who reads an OPEN does not look whether a pack has its number.
    StrayBelieved,
    /// A record is deleted before its pack is there.
    DeletedUnpacked,
    /// A lost stretch of the log is not told.
    BreakUntold,
    /// A snapshot is named before its last part is there.
    NamedEarly,
    /// A snapshot says that frames begin later than they do.
    FirstLate,
    /// Retention takes the newest snapshot for one before the window.
    FloorHigh,
    /// Retention goes by a clock, and by stamps, that were wrong.
    ClockBelieved,
    /// Retention deletes parts that a snapshot which is kept names.
    PartsDropped,
    /// The writer of a tip is not asked for: another one's on a twin machine counts as the own.
    TwinUnseen,
    /// Sums of pages count as the newest snapshot's, whosever they are.
    SumsOfAnother,
    /// The sum of a merge is not compared.
    SumUnread,
    /// A record that names another one before it is accepted.
    HashUnread,
    /// The pages of an exclusive transaction are left out.
    PagesLeftOut,
    /// A session that was begun anew is taken for the one before.
    SaltUnread,
    /// A restore does not say the number of the last commit where the base has it.
    NumberUntold,
    /// The sidecar ships what is not on the primary's disk yet.
    ShippedVolatile,
    /// A follower merges one generation at a time, and does not say so.
    MergedElsewhere,
}

impl Fault {
    /// All of them.
    pub const ALL: &[Fault] = &[
        Fault::ShippedEarly,
        Fault::OpenDeleted,
        Fault::NonceUnread,
        Fault::NumberAhead,
        Fault::StrayUnseen,
        Fault::StrayBelieved,
        Fault::DeletedUnpacked,
        Fault::BreakUntold,
        Fault::NamedEarly,
        Fault::FirstLate,
        Fault::FloorHigh,
        Fault::ClockBelieved,
        Fault::PartsDropped,
        Fault::TwinUnseen,
        Fault::SumsOfAnother,
        Fault::SumUnread,
        Fault::HashUnread,
        Fault::PagesLeftOut,
        Fault::SaltUnread,
        Fault::NumberUntold,
        Fault::ShippedVolatile,
        Fault::MergedElsewhere,
    ];
}

#[cfg(any(test, feature = "simulation"))]
mod planted {
    use std::cell::Cell;

    use super::Fault;

    thread_local! {
        static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Plants a fault in this thread, or takes it away.
    pub fn plant(fault: Option<Fault>) {
        PLANTED.set(fault);
    }

    /// True if the fault is planted in this thread.
    pub fn is_planted(fault: Fault) -> bool {
        PLANTED.get() == Some(fault)
    }
}

#[cfg(any(test, feature = "simulation"))]
pub use planted::{is_planted, plant};

/// False: nothing can be planted here.
#[cfg(not(any(test, feature = "simulation")))]
pub const fn is_planted(_: Fault) -> bool {
    false
}
