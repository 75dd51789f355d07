//! What is listed of a chain.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use crate::error::{Error, Result};
use crate::ids::RecordNumber;
use crate::names;
use crate::pack::{INDEX_BYTES_MAX, Pack};
use crate::world::World;

/// The first and the last of some numbers in a row.
pub type Stretch = (RecordNumber, RecordNumber);

/// What is not to be had of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// First and last number of each stretch that is missing, ascending.
    pub missing: Vec<Stretch>,
    /// Packs that the store has and does not give, and why.
    pub unread: Vec<(Stretch, Error)>,
}

/// Packs that are asked for at once: a week has ten thousand.
const AT_ONCE: usize = 16;

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

    /// The highest number below `end` that a pack has, or `chain/` where it was listed; none if none is there.
    pub fn last_below(&self, end: RecordNumber) -> RecordNumber {
        let loose = self.loose.range(..end).next_back().copied().unwrap_or_default();
        let packed = self.packs.iter().filter(|(first, _)| *first < end);
        packed.map(|(_, last)| (*last).min(end.before())).max().unwrap_or_default().max(loose)
    }

    /// The lowest number from one on that a pack has, or `chain/` where it was listed; the highest that can be if none is there.
    pub fn first_from(&self, number: RecordNumber) -> RecordNumber {
        let loose = self.loose.range(number..).next().copied();
        let packed = self.packs.iter().filter(|(_, last)| *last >= number);
        let packed = packed.map(|(first, _)| (*first).max(number)).min();
        loose.into_iter().chain(packed).min().unwrap_or(RecordNumber(u64::MAX))
    }

    /// The numbers from `first` on that are missing below the highest: first and last of each stretch, ascending. A
    /// number between packs may be in a folder that was not listed ([`Listing::missing_surely`]).
    pub fn missing(&self, first: RecordNumber) -> Vec<Stretch> {
        let loose = self.loose.range(first..).map(|number| (*number, *number));
        let mut there: Vec<Stretch> = self.packs.iter().copied().chain(loose).collect();
        there.sort_unstable();
        let mut missing = Vec::new();
        let mut next = first.max(RecordNumber::FIRST);
        for (from, to) in there {
            if from > next {
                missing.push((next, from.before()));
            }
            next = next.max(to.next());
        }
        missing
    }

    /// The same, of what was listed again: what goes into a pack during a list may be missing in it. Records at the beginning
    /// of a stretch that can be read are not missing, but left out of an old list. Asks for nothing where nothing is missing.
    ///
    /// # Errors
    /// The store's.
    pub async fn missing_surely(&self, world: &World, first: RecordNumber) -> Result<Vec<Stretch>> {
        let missing = self.missing(first);
        if missing.is_empty() {
            return Ok(missing);
        }
        let mut again = Listing::make(world).await?;
        // What could not be read any more was not packed, and stays in a folder of before.
        let folders: BTreeSet<u64> = missing
            .iter()
            .flat_map(|(from, to)| names::folder_of(*from)..=names::folder_of(*to))
            .collect();
        for folder in folders {
            let found = world.list(&names::folder(folder)).await?;
            again.loose.extend(found.iter().filter_map(|name| names::parse_record(name)));
        }
        let mut surely = Vec::new();
        for (mut from, to) in common(&missing, &again.missing(first)) {
            // The first alone where it is not there; else more at once, of what an old list has left out.
            let mut at_once = 1;
            while from <= to {
                let some: Vec<_> = (from.0..=to.0).take(at_once).map(RecordNumber).collect();
                let asked = some.iter().map(|number| is_there(world, *number));
                let there: Vec<bool> = join_all(asked).await.into_iter().collect::<Result<_>>()?;
                let in_a_row = there.iter().take_while(|is_there| **is_there).count();
                from = RecordNumber(from.0 + in_a_row as u64);
                if in_a_row < some.len() {
                    surely.push((from, to));
                    break;
                }
                at_once = AT_ONCE;
            }
        }
        Ok(surely)
    }

    /// The same, with the records that a pack leaves in `chain/` and that are not there. Asks for the index of each pack: one
    /// that is out of reach, as in an archive, or forbidden, is told beside those.
    ///
    /// # Errors
    /// The store's, but for those of packs.
    pub async fn lacks(&self, world: &World, first: RecordNumber) -> Result<Lacks> {
        let mut missing = self.missing_surely(world, first).await?;
        let mut unread = Vec::new();
        let large = self.missing_beside_packs(world, first, &mut unread).await?;
        missing.extend(large.into_iter().map(|number| (number, number)));
        missing.sort_unstable();
        missing.dedup_by(|next, last| {
            let goes_on = next.0 <= last.1.next();
            if goes_on {
                last.1 = last.1.max(next.1);
            }
            goes_on
        });
        Ok(Lacks { missing, unread })
    }

    /// The records from `first` on that a pack leaves in `chain/`, and that are not there, ascending.
    async fn missing_beside_packs(
        &self,
        world: &World,
        first: RecordNumber,
        unread: &mut Vec<(Stretch, Error)>,
    ) -> Result<Vec<RecordNumber>> {
        let needed: Vec<Stretch> =
            self.packs.iter().copied().filter(|(_, last)| *last >= first).collect();
        let mut left = BTreeSet::new();
        for some in needed.chunks(AT_ONCE) {
            let asked = some.iter().map(async |pack| {
                let name = names::pack(pack.0, pack.1);
                (*pack, world.beginning(&name, INDEX_BYTES_MAX).await)
            });
            for (pack, found) in join_all(asked).await {
                match found {
                    // A pack that is damaged, or gone meanwhile, is its reader's trouble.
                    Ok(found) => {
                        let of = found.and_then(|bytes| Pack::left_in_chain(&bytes));
                        let is_its =
                            |of: &RecordNumber| *of >= first && self.pack_of(*of) == Some(pack);
                        left.extend(of.unwrap_or_default().into_iter().filter(is_its));
                    }
                    Err(error) => unread.push((pack, error)),
                }
            }
        }
        let mut there = BTreeSet::new();
        let folders: BTreeSet<u64> = left.iter().map(|of| names::folder_of(*of)).collect();
        for folder in folders {
            let found = world.list(&names::folder(folder)).await?;
            there.extend(found.iter().filter_map(|name| names::parse_record(name)));
        }
        // A list may be an old one.
        let unlisted: Vec<RecordNumber> = left.difference(&there).copied().collect();
        let mut missing = Vec::new();
        for some in unlisted.chunks(AT_ONCE) {
            let asked = some.iter().map(|number| is_there(world, *number));
            for (number, is_there) in some.iter().zip(join_all(asked).await) {
                missing.extend((!is_there?).then_some(*number));
            }
        }
        Ok(missing)
    }
}

async fn is_there(world: &World, number: RecordNumber) -> Result<bool> {
    Ok(world.beginning(&names::record(number), 1).await?.is_some())
}

/// The numbers that two lists of stretches, ascending, both have.
fn common(some: &[Stretch], others: &[Stretch]) -> Vec<Stretch> {
    let mut common = Vec::new();
    for (first, last) in some {
        let overlaps = others.iter().filter(|(from, to)| from <= last && to >= first);
        common.extend(overlaps.map(|(from, to)| ((*from).max(*first), (*to).min(*last))));
    }
    common
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
    fn what_is_missing_is_neither_in_a_pack_nor_in_the_chain() {
        let missing = |packs: &[(u64, u64)], loose: &[u64], first| {
            let missing = listing(packs, loose).missing(RecordNumber(first));
            missing.into_iter().map(|(from, to)| (from.0, to.0)).collect::<Vec<_>>()
        };
        assert_eq!(missing(&[(1, 5), (6, 9)], &[1, 10, 11], 1), []);
        assert_eq!(missing(&[(1, 5), (9, 12)], &[7, 13, 16], 1), [(6, 6), (8, 8), (14, 15)]);
        assert_eq!(missing(&[(1, 5), (9, 12)], &[13, 16], 9), [(14, 15)]);
        assert_eq!(missing(&[(4, 9), (4, 6)], &[], 2), [(2, 3)]);
        assert_eq!(missing(&[], &[], 1), []);
        assert_eq!(Listing::default().highest(), RecordNumber::NONE);
        let stretch = |(from, to): (u64, u64)| (RecordNumber(from), RecordNumber(to));
        let of =
            |stretches: &[(u64, u64)]| stretches.iter().copied().map(stretch).collect::<Vec<_>>();
        let both = common(&of(&[(1, 4), (6, 9), (12, 13)]), &of(&[(3, 7), (9, 9), (14, 20)]));
        assert_eq!(both, of(&[(3, 4), (6, 7), (9, 9)]));
        let listing = listing(&[(1, 5), (9, 12)], &[14]);
        let below = |end| listing.last_below(RecordNumber(end)).0;
        assert_eq!([20, 14, 11, 9, 3, 1].map(below), [14, 12, 10, 5, 2, 0]);
        let from = |number| listing.first_from(RecordNumber(number)).0;
        assert_eq!([1, 5, 6, 9, 12, 13, 14, 15].map(from), [1, 5, 9, 9, 12, 14, 14, u64::MAX]);
    }

    #[test]
    fn the_longest_of_packs_that_overlap_is_taken() {
        let listing = listing(&[(1, 5), (3, 4), (3, 9), (10, 12)], &[]);
        assert_eq!(listing.pack_of(RecordNumber(4)), Some((RecordNumber(3), RecordNumber(9))));
        assert_eq!(listing.pack_of(RecordNumber(2)), Some((RecordNumber(1), RecordNumber(5))));
        assert_eq!(listing.pack_of(RecordNumber(13)), None);
    }
}
