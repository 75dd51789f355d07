//! What a follower asks of its place beside the records: whether it is still the one that it knows.

use super::Following;
use super::mark::Mark;
use crate::chain::{Found, Listing, Reader, Tip, find_tip};
use crate::error::{Error, Result};
use crate::ids::{ChainId, Hash, RecordNumber};
use crate::record::header_of;
use crate::replicas::newest_sound;

impl Following {
    /// Where the place has no record as late as the mark's, it was emptied, or is another one's. At a start it may have as
    /// many of another chain.
    pub(super) async fn refuse_another_place(&mut self) -> Result<()> {
        let Some(mark) = &self.mark else { return Ok(()) };
        if self.has_looked
            && self.reader.listing().is_none_or(|listing| listing.highest() >= mark.record)
        {
            return Ok(());
        }
        self.look_at_place(mark.record).await?;
        self.has_looked = true;
        Ok(())
    }

    /// Fails if the place is another database's, or has no record as late as this one.
    pub(super) async fn look_at_place(&self, number: RecordNumber) -> Result<()> {
        let mut is_damaged = false;
        let header = match self.tip().await {
            Ok(tip) => tip.record.header,
            // The newest one may be one that this has, and does not need again.
            Err(damage) if damage.damaged().is_some() => {
                let listing = Listing::make(&self.world).await?;
                match newest_sound(&self.world, &listing).await? {
                    Some(sound) if listing.highest() >= number => {
                        is_damaged = true;
                        sound
                    }
                    Some(_) | None => return Err(damage),
                }
            }
            Err(error) => return Err(error),
        };
        self.refuse_another_chain(header.chain)?;
        if header.number >= number || is_damaged {
            return Ok(());
        }
        Err(Error::Behind { number, newest: header.number })
    }

    /// True if the place has another record of the mark's number: it has forgotten that one, and was shipped to since.
    pub(super) async fn is_forked(&self, mark: &Mark) -> Result<bool> {
        let number = mark.record;
        match Reader::new(&self.world).object(number, true).await {
            Ok(Found::Object(bytes)) => Ok(Hash::of(&bytes) != mark.hash
                && header_of(&bytes)
                    .is_ok_and(|there| (there.chain, there.number) == (mark.chain, number))),
            Err(error @ Error::Store { .. }) => Err(error),
            Ok(Found::Nothing) | Err(_) => Ok(false),
        }
    }

    /// The newest record at the place.
    pub(super) async fn tip(&self) -> Result<Tip> {
        let has = self.mark.as_ref().map_or(RecordNumber::NONE, |mark| mark.record);
        find_tip(&self.world).await?.ok_or(match has {
            RecordNumber::NONE => Error::Empty,
            number => Error::Emptied { number },
        })
    }

    pub(super) fn refuse_another_chain(&self, found: ChainId) -> Result<()> {
        match &self.mark {
            Some(mark) if mark.record > RecordNumber::NONE && mark.chain != found => {
                Err(Error::OtherChain { found, expected: mark.chain })
            }
            _ => Ok(()),
        }
    }
}
