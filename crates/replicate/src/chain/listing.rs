//! What is listed of a chain.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::ids::RecordNumber;
use crate::names;
use crate::world::World;

/// Packs, and records in the folders behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// First and last number of each pack, ascending.
    pub packs: Vec<(RecordNumber, RecordNumber)>,
    /// Records in `chain/`, from the folder of the first number behind the packs on.
    pub loose: BTreeSet<RecordNumber>,
}

impl Listing {
    /// Lists packs first: a record goes from `chain/` into a pack, never back.
    ///
    /// # Errors
    /// The store's.
    pub async fn make(world: &World) -> Result<Listing> {
        let packs = world.list(names::PACKS).await?;
        let mut packs: Vec<_> = packs.iter().filter_map(|name| names::parse_pack(name)).collect();
        packs.sort_unstable();
        let mut listing = Listing { packs, loose: BTreeSet::new() };
        let first = names::folder_of(listing.packed().next());
        for folder in first.. {
            let found = world.list(&names::folder(folder)).await?;
            let before = listing.loose.len();
            listing.loose.extend(found.iter().filter_map(|name| names::parse_record(name)));
            // The folder behind may have some where the first of its kind was removed by hand.
            if folder > first && listing.loose.len() == before {
                break;
            }
        }
        Ok(listing)
    }

    /// The highest number that a pack has, or none.
    pub fn packed(&self) -> RecordNumber {
        self.packs.iter().map(|(_, last)| *last).max().unwrap_or(RecordNumber::NONE)
    }

    /// The lowest number that a pack has.
    pub fn lowest_packed(&self) -> Option<RecordNumber> {
        self.packs.first().map(|(first, _)| *first)
    }

    /// The highest number of all, or none.
    pub fn highest(&self) -> RecordNumber {
        self.packed().max(self.loose.last().copied().unwrap_or_default())
    }

    /// A pack that has the number: the longest behind it.
    pub fn pack_of(&self, number: RecordNumber) -> Option<(RecordNumber, RecordNumber)> {
        let has = |pack: &&(RecordNumber, RecordNumber)| pack.0 <= number && number <= pack.1;
        self.packs.iter().filter(has).max_by_key(|pack| pack.1).copied()
    }

    /// The first number behind the packs that is missing below the highest.
    pub fn hole(&self) -> Option<RecordNumber> {
        let behind = (self.packed().0 + 1..self.highest().0).map(RecordNumber);
        behind.into_iter().find(|number| !self.loose.contains(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(packs: &[(u64, u64)], loose: &[u64]) -> Listing {
        let number = |n: &u64| RecordNumber(*n);
        let packs = packs.iter().map(|(a, b)| (number(a), number(b))).collect();
        Listing { packs, loose: loose.iter().map(number).collect() }
    }

    #[test]
    fn a_hole_is_a_number_behind_the_packs_and_before_the_highest() {
        assert_eq!(listing(&[], &[1, 2, 3]).hole(), None);
        assert_eq!(listing(&[], &[1, 3]).hole(), Some(RecordNumber(2)));
        assert_eq!(listing(&[(1, 5)], &[1, 6, 7]).hole(), None);
        assert_eq!(listing(&[(1, 5)], &[1, 7]).hole(), Some(RecordNumber(6)));
        assert_eq!(listing(&[(1, 5)], &[]).highest(), RecordNumber(5));
        assert_eq!(listing(&[], &[]).highest(), RecordNumber::NONE);
    }

    #[test]
    fn the_longest_of_packs_that_overlap_is_taken() {
        let listing = listing(&[(1, 5), (3, 4), (3, 9), (10, 12)], &[]);
        assert_eq!(listing.pack_of(RecordNumber(4)), Some((RecordNumber(3), RecordNumber(9))));
        assert_eq!(listing.pack_of(RecordNumber(2)), Some((RecordNumber(1), RecordNumber(5))));
        assert_eq!(listing.pack_of(RecordNumber(13)), None);
    }
}
