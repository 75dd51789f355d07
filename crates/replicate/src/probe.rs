//! Whether a store keeps what the chain relies on (STORE-1 to STORE-3), found out by a race.
//!
//! A serial test is not enough: stores that look whether a name is free, and then write, are right
//! until two callers come at once. So sixteen callers create one name, again and again, each with
//! bytes of its own: one of them may be told that it has made the object, and its bytes are there.

use bytes::Bytes;
use futures_util::future::join_all;

use crate::error::{Error, Result};
use crate::ids::Nonce;
use crate::names;
use crate::store::{Created, Store, StoreError};
use crate::world::Random;

/// Callers of a race.
pub const RACERS: usize = 16;
/// Races at the start of a sidecar.
pub const ROUNDS_AT_START: u32 = 4;
/// Races that people ask for.
pub const ROUNDS: u32 = 20;

/// What was found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Races.
    pub rounds: u32,
    /// Races in which nobody was told that it has made the object; the most that were, in others.
    pub without_winner: u32,
    /// The most callers that were told so in one race.
    pub winners_max: usize,
    /// What the store does not keep, in words; empty: it is fit.
    pub broken: Vec<String>,
    /// Why it deletes nothing, where it refuses that: it is fit, and what nobody needs any more stays there.
    pub refusal: Option<Error>,
}

impl Verdict {
    /// True if a chain can be kept there.
    pub fn is_fit(&self) -> bool {
        self.broken.is_empty()
    }

    /// Fails if no chain can be kept there.
    ///
    /// # Errors
    /// [`Error::Unfit`].
    pub fn check(&self) -> Result<()> {
        if self.is_fit() {
            return Ok(());
        }
        let broken = self.broken.join("; ");
        Err(Error::Unfit(format!(
            "this store is not fit for a replica: {broken}. A folder, S3, Google Cloud Storage and \
             Azure are"
        )))
    }

    fn breaks(&mut self, what: String) {
        if !self.broken.contains(&what) {
            self.broken.push(what);
        }
    }
}

/// Races a store. What it makes it deletes, where the store lets it.
///
/// # Errors
/// [`Error::Store`] if the store does not answer.
pub async fn probe(store: &dyn Store, random: &dyn Random, rounds: u32) -> Result<Verdict> {
    let nonce = Nonce(random.name());
    let mut verdict = Verdict { rounds, ..Verdict::default() };
    for round in 0..rounds {
        let name = names::probe(nonce, round);
        let raced = race(store, &name, &mut verdict).await;
        let deleted = store.delete(std::slice::from_ref(&name)).await;
        raced?;
        match deleted.map_err(|error| failed("delete", &name, error)) {
            Err(error) if error.is_refusal() => {
                verdict.refusal = Some(error);
                continue;
            }
            deleted => deleted?,
        }
        if store.get(&name).await.map_err(|error| failed("read", &name, error))?.is_some() {
            verdict.breaks("an object is there after it was deleted".to_owned());
        }
    }
    Ok(verdict)
}

fn failed(what: &str, name: &str, error: StoreError) -> Error {
    Error::Store { what: what.to_owned(), name: name.to_owned(), error }
}

async fn race(store: &dyn Store, name: &str, verdict: &mut Verdict) -> Result<()> {
    // Longer than what is written at once, so that a torn object is seen.
    let body = |racer: usize| Bytes::from(vec![racer as u8; 70_000 + racer]);
    let calls = (0..RACERS).map(|racer| store.create(name, body(racer)));
    let answers = join_all(calls).await;
    let mut winners = Vec::new();
    for (racer, answer) in answers.into_iter().enumerate() {
        // Who gets no answer may have made it.
        match answer {
            Ok(Created::Made) => winners.push(racer),
            Ok(Created::Exists) | Err(StoreError::Unavailable(_)) => {}
            Err(error) => return Err(failed("create", name, error)),
        }
    }
    verdict.winners_max = verdict.winners_max.max(winners.len());
    verdict.without_winner += u32::from(winners.is_empty());
    if winners.len() > 1 {
        verdict.breaks(format!(
            "it let {} of {RACERS} create one object: it cannot fence a second writer",
            verdict.winners_max
        ));
        verdict.broken.retain(|what| {
            !what.starts_with("it let ") || what.contains(&format!(" {} of", verdict.winners_max))
        });
    }
    let found = store.get(name).await.map_err(|error| failed("read", name, error))?;
    let is_of = |racer: &usize| found.as_ref().is_some_and(|found| *found == body(*racer));
    match (&winners[..], &found) {
        ([], None) => {}
        (_, None) => verdict.breaks("an object is not there after it was created".to_owned()),
        ([], Some(_)) if (0..RACERS).any(|racer| is_of(&racer)) => {}
        (winners, Some(_)) if winners.iter().any(is_of) => {}
        (_, Some(_)) => {
            verdict.breaks("the object is not that of the caller which has made it".to_owned());
        }
    }
    let late = store.create(name, body(0)).await;
    if found.is_some() && late == Ok(Created::Made) {
        verdict.breaks("it creates an object that is there".to_owned());
    }
    let listed = store.list(names::PROBES).await;
    let listed = listed.map_err(|error| failed("list", names::PROBES, error))?;
    if found.is_some() && !listed.iter().any(|other| other == name) {
        verdict.breaks("a list lacks an object that is there".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
