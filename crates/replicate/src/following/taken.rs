//! Whose a database is that is to follow, as far as its name, its mark and its session tell.

use super::mark::Mark;
use super::{Live, Settings, bytes_of};
use crate::error::{Error, Result};
use crate::store::url::Place;

/// Fails if the name has what follows nothing, or another place; returns the mark that is there.
pub(super) fn refuse_taken(settings: &Settings) -> Result<Option<Mark>> {
    let shown = settings.database.display();
    let mark = Mark::read(&settings.database).map_err(Error::Taken)?;
    let there = bytes_of(&settings.database)?;
    match &mark {
        // SQLite makes an empty file where a program opens the name too early.
        None if there.is_some_and(|bytes| bytes > 0) => {
            if Live::is_told_of_follower(&settings.database) {
                return Err(Error::Taken(format!(
                    "{shown} is a replica, and its mark was deleted, so that nobody can tell how far it is: \
                     `plait promote {shown}` makes it a database of its own; or close all programs, remove it with \
                     the files beside it, and follow anew"
                )));
            }
            Err(Error::Taken(format!(
                "{shown} is there, and follows nothing: choose a name that is free, so that no data is lost"
            )))
        }
        Some(mark) if there.is_some() && !is_place(&settings.place, &mark.place) => {
            Err(Error::Taken(format!(
                "{shown} follows {}: name that place, or choose another database",
                mark.place
            )))
        }
        _ => Ok(mark),
    }
}

fn is_place(named: &str, other: &str) -> bool {
    named == other || Place::parse(named).is_ok_and(|place| place.is(other))
}
