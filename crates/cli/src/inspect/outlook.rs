//! What opening a database will do, by what stands on disk: the table of `plait_engine::session`, in words.
//!
//! Must say the same as `session::begin` there does; the order of the questions is the same.

use super::base::Header;
use super::log::Log;
use super::memory::Memory;

/// What the next program that opens the database causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing of ours: another journal mode.
    Ordinary,
    /// It joins the processes that have it open.
    Joins(usize),
    /// It goes on with the session in shared memory; nothing was lost when the processes died.
    GoesOn,
    /// It brings into the database file what is only in shared memory, since the log of that session is missing.
    Restores(Instead),
    /// It starts a new session, and removes a log that is no longer needed.
    Starts {
        /// Whether there is such a log.
        stale_log: bool,
    },
    /// It applies a WAL to the file that is of another one, as any SQLite does.
    Mixes {
        /// How that is known.
        why: String,
    },
    /// It gives the log beside the file at rest, which is not its own, another name, and starts a new session.
    SetsAside {
        /// How that is known.
        why: String,
    },
    /// It merges this many commits from the log into the database file first.
    Recovers {
        /// Commits.
        frames: u64,
    },
    /// It fails.
    Refuses {
        /// Why.
        why: String,
        /// What to do.
        advice: Advice,
    },
}

/// What stands under the name of a log that is restored from shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// Nothing, or nothing that is kept.
    Nothing,
    /// A copy of it, whole.
    Copy,
    /// The log itself, of which a write or sync has failed.
    Failed,
    /// Something that opening fails over when everything is restored, and why.
    InTheWay(String),
}

/// What helps against a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Close the other programs.
    CloseOthers,
    /// Put the right file back, or accept the database file as it is.
    RestoreOrAccept,
    /// Convert it back with the program that made it.
    OtherVersion,
    /// Close the programs that have another version, or use theirs.
    SameVersion,
    /// Recover with the version that was killed, or give up what it has left.
    RecoverOrGiveUp,
}

/// The outlook for a database with this header, shared memory and log. `belongs`: the file goes with what is beside it.
pub fn outlook(header: Header, belongs: bool, memory: Option<&Memory>, log: &Log) -> Outlook {
    if !belongs {
        let in_use = memory.is_some_and(|m| m.in_use);
        return refuse(
            "the files next to the database belong to another database file: this one was \
             replaced or overwritten while they were kept",
            if in_use { Advice::CloseOthers } else { Advice::RestoreOrAccept },
        );
    }
    if header.read_version > 3 {
        return refuse(
            format!(
                "byte 19 of its header is {}, which no SQLite and no version of Plait reads",
                header.read_version
            ),
            Advice::OtherVersion,
        );
    }
    if !header.is_concurrent() {
        if matches!(log, Log::InUse) {
            return refuse(
                "processes still have the former database file open, which was replaced or overwritten",
                Advice::CloseOthers,
            );
        }
        if header.read_version < 3 {
            return Outlook::Ordinary;
        }
        return refuse(
            "its header has version bytes that only concurrent mode uses, but no mark of concurrent mode",
            Advice::OtherVersion,
        );
    }
    if let Some(memory) = memory.filter(|m| m.in_use) {
        return match &memory.distrust {
            None => Outlook::Joins(memory.alive.len()),
            Some(_) if memory.is_of_another_version => refuse(
                "programs with another version of the library have it open",
                Advice::SameVersion,
            ),
            Some(why) => refuse(
                format!("processes use its shared memory, which cannot be trusted: {why}"),
                Advice::CloseOthers,
            ),
        };
    }
    if matches!(log, Log::InUse) {
        return used_log();
    }
    if let Log::Ahead(text) = log {
        return refuse(text, Advice::RestoreOrAccept);
    }
    if let Some(memory) = memory.filter(|m| m.is_trusted())
        && let Some(outlook) = continues(header, memory, log)
    {
        return outlook;
    }
    if header.is_fenced() {
        return match memory.and_then(|m| m.left_by_another) {
            Some(layout) => left_by_another(layout),
            None => recovers(log),
        };
    }
    let of_another = memory
        .is_some_and(|m| m.is_left && m.salt != header.salt && m.has_unmerged(m.base_generation));
    match starts(log) {
        Outlook::Starts { .. } if of_another => Outlook::SetsAside {
            why: "shared memory holds commits of another session than that of the file".into(),
        },
        other => other,
    }
}

/// What surviving shared memory leads to; `None` when it does not go with the database file.
fn continues(header: Header, memory: &Memory, log: &Log) -> Option<Outlook> {
    let same = header.salt == memory.salt;
    let whole = if memory.has_log && memory.poisoned.is_none() {
        Outlook::GoesOn
    } else {
        Outlook::Restores(instead(memory, log))
    };
    if !memory.is_fenced {
        return (same && header.is_fenced()).then_some(whole);
    }
    if memory.is_in_doubt {
        return None;
    }
    if header.is_fenced() && same && header.generation >= memory.base_generation {
        return Some(whole);
    }
    let is_older = header.generation < memory.base_generation;
    (same && (is_older || memory.has_unmerged(header.generation))).then(|| {
        refuse(
            "the database file with its WAL is an older state of itself: one of them was removed, emptied or replaced, or commits that \
             came after it are still in the files next to it",
            Advice::RestoreOrAccept,
        )
    })
}

/// What the log's name is for when memory has been brought into the file, which is at rest then.
fn instead(memory: &Memory, log: &Log) -> Instead {
    match log {
        Log::Damaged(text) => Instead::InTheWay(text.clone()),
        Log::Sound(_) if memory.poisoned.is_some() && !memory.is_lost => Instead::Failed,
        Log::Sound(_) if memory.has_copy => Instead::Copy,
        _ => Instead::Nothing,
    }
}

fn left_by_another(layout: u32) -> Outlook {
    let text = format!(
        "shared memory has the newest commits under synchronous=NORMAL or OFF, which the log lacks, and killed programs had another \
         version of the library (layout {layout} of shared memory)"
    );
    refuse(text, Advice::RecoverOrGiveUp)
}

fn recovers(log: &Log) -> Outlook {
    match log {
        Log::Sound(summary) => Outlook::Recovers { frames: summary.frames },
        Log::Absent => refuse(
            "its log is missing, and with it commits that are not in the database file",
            Advice::RestoreOrAccept,
        ),
        Log::Foreign { text, .. } | Log::Ahead(text) | Log::Damaged(text) => {
            refuse(text, Advice::RestoreOrAccept)
        }
        Log::InUse => used_log(),
    }
}

fn starts(log: &Log) -> Outlook {
    match log {
        Log::Absent => Outlook::Starts { stale_log: false },
        Log::Foreign { has_frames: false, .. } => Outlook::Starts { stale_log: true },
        Log::Sound(summary) if summary.frames == 0 => Outlook::Starts { stale_log: true },
        Log::Sound(summary) => refuse(
            format!(
                "its log holds {} commits that are not in the database file, which is an older copy of \
                 itself, from before a checkpoint, or another program has changed its journal mode",
                summary.frames
            ),
            Advice::RestoreOrAccept,
        ),
        Log::Foreign { text, .. } => Outlook::SetsAside { why: text.clone() },
        Log::Ahead(text) | Log::Damaged(text) => refuse(text, Advice::RestoreOrAccept),
        Log::InUse => used_log(),
    }
}

fn used_log() -> Outlook {
    refuse("its log is in use without shared memory", Advice::CloseOthers)
}

fn refuse(why: impl Into<String>, advice: Advice) -> Outlook {
    Outlook::Refuses { why: why.into(), advice }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plait_engine::log::LogSummary;

    const FENCED: Header = Header {
        page_bytes: 4096,
        write_version: 3,
        read_version: 3,
        pages: 1,
        salt: 9,
        generation: 4,
    };
    const RESTING: Header = Header { write_version: 2, read_version: 2, ..FENCED };

    fn memory() -> Memory {
        Memory { is_fenced: true, has_log: true, salt: 9, base_generation: 4, ..Memory::default() }
    }

    fn sound(frames: u64) -> Log {
        Log::Sound(LogSummary { frames, ..LogSummary::default() })
    }

    fn foreign(has_frames: bool) -> Log {
        Log::Foreign { has_frames, text: "another database".into() }
    }

    fn refused(outlook: &Outlook) -> bool {
        matches!(outlook, Outlook::Refuses { .. })
    }

    #[test]
    fn another_journal_mode_is_none_of_our_business() {
        let wal = Header { salt: 0, ..RESTING };
        assert_eq!(outlook(wal, true, None, &sound(3)), Outlook::Ordinary);
        assert!(refused(&outlook(Header { salt: 0, ..FENCED }, true, None, &Log::Absent)));
        for salt in [0, 9] {
            let unknown = Header { read_version: 4, salt, ..RESTING };
            assert!(refused(&outlook(unknown, true, None, &Log::Absent)));
        }
    }

    #[test]
    fn a_file_that_its_side_files_do_not_belong_to_is_refused() {
        assert!(refused(&outlook(FENCED, false, Some(&memory()), &sound(1))));
        assert!(refused(&outlook(RESTING, false, None, &Log::Absent)));
        // Moved over one that processes have open: they have the log, too.
        let plain = Header { salt: 0, ..RESTING };
        assert!(refused(&outlook(plain, true, None, &Log::InUse)));
    }

    #[test]
    fn living_processes_are_joined_unless_their_memory_is_foreign() {
        let used = Memory { in_use: true, alive: vec![7, 8], ..memory() };
        assert_eq!(outlook(FENCED, true, Some(&used), &Log::InUse), Outlook::Joins(2));
        let other = Memory { distrust: Some("x".into()), ..used };
        assert!(refused(&outlook(FENCED, true, Some(&other), &Log::InUse)));
    }

    #[test]
    fn programs_with_another_version_are_waited_for() {
        let used = Memory { in_use: true, distrust: Some("x".into()), ..memory() };
        let used = Memory { is_of_another_version: true, ..used };
        let found = outlook(FENCED, true, Some(&used), &Log::InUse);
        assert!(matches!(found, Outlook::Refuses { advice: Advice::SameVersion, .. }));
    }

    // holds LEFT-1
    #[test]
    fn what_killed_programs_with_another_version_have_left_is_not_given_up() {
        let distrusted = Memory { distrust: Some("another version".into()), ..memory() };
        let found = |left_by_another| {
            let left = Memory { left_by_another, ..distrusted.clone() };
            outlook(FENCED, true, Some(&left), &sound(3))
        };
        assert!(matches!(
            found(Some(24)),
            Outlook::Refuses { advice: Advice::RecoverOrGiveUp, .. }
        ));
        assert_eq!(found(None), Outlook::Recovers { frames: 3 });
    }

    #[test]
    fn a_log_in_use_beside_another_memory_than_that_of_its_users_is_refused() {
        assert!(refused(&outlook(FENCED, true, Some(&memory()), &Log::InUse)));
        assert!(refused(&outlook(FENCED, true, None, &Log::InUse)));
        assert!(refused(&outlook(RESTING, true, None, &Log::InUse)));
    }

    #[test]
    fn trusted_memory_of_dead_processes_goes_on() {
        assert_eq!(outlook(FENCED, true, Some(&memory()), &sound(1)), Outlook::GoesOn);
        let resting = Memory { is_fenced: false, ..memory() };
        assert_eq!(outlook(FENCED, true, Some(&resting), &Log::Absent), Outlook::GoesOn);
    }

    #[test]
    fn memory_of_dead_processes_without_their_log_is_restored_from() {
        let alone = Memory { has_log: false, newest_unmerged: 5, ..memory() };
        for log in [Log::Absent, foreign(false), foreign(true), sound(1)] {
            let restores = Outlook::Restores(Instead::Nothing);
            assert_eq!(outlook(FENCED, true, Some(&alone), &log), restores);
        }
        let outlook_of_damaged = outlook(FENCED, true, Some(&alone), &Log::Damaged("x".into()));
        assert_eq!(outlook_of_damaged, Outlook::Restores(Instead::InTheWay("x".into())));
        let copied = Memory { has_copy: true, ..alone };
        let restores = Outlook::Restores(Instead::Copy);
        assert_eq!(outlook(FENCED, true, Some(&copied), &sound(1)), restores);
        // It came back after processes had missed it.
        let lost = Memory { is_lost: true, poisoned: Some(2), ..memory() };
        let restores = Outlook::Restores(Instead::Nothing);
        assert_eq!(outlook(FENCED, true, Some(&lost), &sound(1)), restores);
        let failed = Memory { poisoned: Some(5), ..memory() };
        let restores = Outlook::Restores(Instead::Failed);
        assert_eq!(outlook(FENCED, true, Some(&failed), &sound(1)), restores);
        let untrusted = Memory { distrust: Some("restart".into()), has_log: false, ..memory() };
        assert!(refused(&outlook(FENCED, true, Some(&untrusted), &Log::Absent)));
    }

    #[test]
    fn memory_that_does_not_go_with_the_file_is_passed_over() {
        let doubtful = Memory { poisoned: Some(5), is_in_doubt: true, ..memory() };
        assert_eq!(
            outlook(FENCED, true, Some(&doubtful), &sound(2)),
            Outlook::Recovers { frames: 2 }
        );
        let stranger = Memory { salt: 1, newest_unmerged: 5, ..memory() };
        assert_eq!(
            outlook(FENCED, true, Some(&stranger), &sound(2)),
            Outlook::Recovers { frames: 2 }
        );
        let untrusted = Memory { distrust: Some("restart".into()), ..memory() };
        assert_eq!(
            outlook(FENCED, true, Some(&untrusted), &sound(2)),
            Outlook::Recovers { frames: 2 }
        );
    }

    #[test]
    fn an_older_state_of_the_file_beside_newer_commits_is_refused() {
        let newer = Memory { base_generation: 5, newest_unmerged: 5, ..memory() };
        assert!(refused(&outlook(FENCED, true, Some(&newer), &sound(1))));
        assert!(refused(&outlook(
            RESTING,
            true,
            Some(&Memory { newest_unmerged: 5, ..memory() }),
            &sound(1)
        )));
        // A restoring that was cut off had brought everything into the file.
        let merged = Memory { newest_unmerged: 4, ..memory() };
        assert_eq!(
            outlook(RESTING, true, Some(&merged), &Log::Absent),
            Outlook::Starts { stale_log: false }
        );
    }

    #[test]
    fn behind_a_lowered_fence_the_file_has_everything() {
        let lowered = Memory { is_lowered: true, ..memory() };
        for memory in [None, Some(&lowered)] {
            let starts = Outlook::Starts { stale_log: true };
            assert_eq!(outlook(RESTING, true, memory, &sound(0)), starts);
            // A copy of it from behind an earlier checkpoint.
            assert!(refused(&outlook(RESTING, true, memory, &sound(1))));
        }
        // Its author was killed before the file was written.
        assert_eq!(outlook(FENCED, true, Some(&lowered), &sound(0)), Outlook::GoesOn);
    }

    #[test]
    fn a_file_that_lacks_what_its_log_says_it_had_is_refused_whatever_memory_says() {
        let ahead = Log::Ahead("older".into());
        for memory in [None, Some(memory())] {
            assert!(refused(&outlook(FENCED, true, memory.as_ref(), &ahead)));
        }
        let merged = Memory { base_generation: 5, ..memory() };
        for header in [FENCED, RESTING] {
            assert!(refused(&outlook(header, true, Some(&merged), &sound(0))));
        }
    }

    #[test]
    fn a_fenced_file_needs_its_own_sound_log() {
        assert_eq!(outlook(FENCED, true, None, &sound(0)), Outlook::Recovers { frames: 0 });
        for log in [Log::Absent, foreign(true), foreign(false), Log::Damaged("x".into())] {
            assert!(refused(&outlook(FENCED, true, None, &log)), "{log:?}");
        }
    }

    #[test]
    fn a_resting_file_starts_anew_unless_a_log_holds_commits() {
        assert_eq!(
            outlook(RESTING, true, None, &Log::Absent),
            Outlook::Starts { stale_log: false }
        );
        assert_eq!(outlook(RESTING, true, None, &sound(0)), Outlook::Starts { stale_log: true });
        assert_eq!(
            outlook(RESTING, true, None, &foreign(false)),
            Outlook::Starts { stale_log: true }
        );
        for log in [sound(1), Log::Damaged("x".into())] {
            assert!(refused(&outlook(RESTING, true, None, &log)), "{log:?}");
        }
    }

    #[test]
    fn beside_a_resting_file_what_holds_commits_of_another_is_set_aside() {
        let is_set_aside = |memory: Option<&Memory>, log: &Log| {
            matches!(outlook(RESTING, true, memory, log), Outlook::SetsAside { .. })
        };
        assert!(is_set_aside(None, &foreign(true)));
        let left = Memory { is_left: true, salt: 1, newest_unmerged: 5, ..memory() };
        for log in [Log::Absent, foreign(false), foreign(true)] {
            assert!(is_set_aside(Some(&left), &log), "{log:?}");
        }
        assert!(!is_set_aside(Some(&Memory { newest_unmerged: 4, ..left.clone() }), &Log::Absent));
        assert!(!is_set_aside(Some(&Memory { is_left: false, ..left }), &Log::Absent));
    }
}
