//! Records by number, from packs where there are some.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::{Listing, Stretch};
use crate::error::{Error, Result};
use crate::fault::{Fault, is_planted};
use crate::ids::{ChainId, Hash, RecordNumber};
use crate::names;
use crate::pack::{BadPack, Entry, Pack};
use crate::record::{BadRecord, Record};
use crate::world::{Patience, World};

/// A reader that waits at the end of the chain looks this often whether it is behind retention.
const LIST_EVERY: Duration = Duration::from_secs(60);

/// What stands at a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its object.
    Object(Bytes),
    /// Nothing, and nothing behind it.
    Nothing,
}

/// Reads objects of records.
pub struct Reader {
    world: World,
    listing: Option<(Duration, Listing)>,
    pack: Option<Pack>,
    /// What the store refuses to give, and why; `None`: a refusal is an error.
    withheld: Option<BTreeMap<Stretch, Error>>,
}

impl Reader {
    /// Begins without having looked.
    pub fn new(world: &World) -> Reader {
        Reader { world: world.clone(), listing: None, pack: None, withheld: None }
    }

    /// Begins with a list that was made just now.
    pub fn with(world: &World, listing: Listing) -> Reader {
        let made = world.clock().now();
        Reader { listing: Some((made, listing)), ..Reader::new(world) }
    }

    /// The same, for which what the store has and refuses to give, as an archive does, is as damaged. `withheld` is known.
    pub fn without(world: &World, listing: Listing, withheld: Vec<(Stretch, Error)>) -> Reader {
        Reader { withheld: Some(withheld.into_iter().collect()), ..Reader::with(world, listing) }
    }

    /// Why the store has refused to give this many things, or more: of the last of them.
    pub fn refusal_of_many(&self, many: u32) -> Option<&Error> {
        let withheld = self.withheld.as_ref().filter(|withheld| withheld.len() >= many as usize);
        withheld.and_then(|withheld| withheld.values().next())
    }

    /// What the store has refused to give so far.
    pub fn withheld(&self) -> impl Iterator<Item = Stretch> {
        self.withheld.iter().flat_map(BTreeMap::keys).copied()
    }

    /// Packs, and records in `chain/`, that the store has refused to give, ascending, and why.
    pub fn into_withheld(self) -> Vec<(Stretch, Error)> {
        self.withheld.unwrap_or_default().into_iter().collect()
    }

    /// The list that this reader goes by.
    pub fn listing(&self) -> Option<&Listing> {
        self.listing.as_ref().map(|(_, listing)| listing)
    }

    async fn look(&mut self) -> Result<()> {
        let made = self.world.clock().now();
        self.listing = Some((made, Listing::make(&self.world).await?));
        Ok(())
    }

    /// Reads what stands at a number. Without a record there it looks behind it, if it has not for
    /// a minute, or `is_sure` asks for it.
    ///
    /// # Errors
    /// [`Error::Gone`]: retention has removed it. [`Error::Missing`]: something has, though there
    /// are later ones. [`Error::Pack`], [`Error::Store`].
    pub async fn object(&mut self, number: RecordNumber, is_sure: bool) -> Result<Found> {
        if self.listing.is_none() {
            self.look().await?;
        }
        let mut looks = 0;
        loop {
            if let Some(bytes) = self.packed(number).await? {
                return Ok(Found::Object(bytes));
            }
            let found = match self.given((number, number), &names::record(number)).await? {
                Given::Found(found) => found,
                Given::Withheld => return Err(unread(number)),
            };
            let is_open = |bytes: &Bytes| Record::decode(bytes).is_ok_and(|r| r.open().is_some());
            if let Some(bytes) = &found
                && (!is_open(bytes) || is_planted(Fault::StrayBelieved))
            {
                return Ok(Found::Object(bytes.clone()));
            }
            // An OPEN may be a stray, and nothing may be what retention left.
            let now = self.world.clock().now();
            let made = self.listing.as_ref().map(|(made, _)| *made);
            let is_due = found.is_some()
                || is_sure
                || made.is_none_or(|made| now.saturating_sub(made) >= LIST_EVERY);
            if is_due && looks == 0 {
                looks += 1;
                self.look().await?;
                continue;
            }
            if looks > 0 {
                match self.refuse_behind(number, found.is_some()) {
                    // It may have gone into a pack between the two lists of one look. The next one
                    // has that pack.
                    Err(Error::Missing { .. }) if looks == 1 => {
                        looks += 1;
                        self.look().await?;
                        continue;
                    }
                    other => other?,
                }
            }
            return Ok(found.map_or(Found::Nothing, Found::Object));
        }
    }

    /// Fails if the list shows something behind a number that no pack has.
    fn refuse_behind(&self, number: RecordNumber, is_there: bool) -> Result<()> {
        let Some((_, listing)) = &self.listing else { return Ok(()) };
        if listing.packs.iter().any(|(first, _)| *first > number) {
            let lowest = listing.lowest_packed().unwrap_or_default();
            return Err(if lowest > number {
                Error::Gone { through: lowest.before() }
            } else {
                missing(number)
            });
        }
        let is_behind = listing.loose.range(number.next()..).next().is_some();
        if is_behind && !is_there && !listing.loose.contains(&number) {
            return Err(missing(number));
        }
        Ok(())
    }

    /// Reads a record from a pack; `None` if no pack is known to have it.
    async fn packed(&mut self, number: RecordNumber) -> Result<Option<Bytes>> {
        loop {
            if let Some(entry) = self.pack.as_ref().and_then(|pack| pack.entry(number)) {
                return match entry.clone() {
                    Entry::Here(bytes) => Ok(Some(bytes)),
                    Entry::InChain(hash) => self.large(number, hash).await.map(Some),
                };
            }
            let listing = self.listing.as_ref().map(|(_, listing)| listing);
            let Some((first, last)) = listing.and_then(|listing| listing.pack_of(number)) else {
                return Ok(None);
            };
            let name = names::pack(first, last);
            let found = match self.given((first, last), &name).await? {
                Given::Found(found) => found,
                Given::Withheld => return Err(Error::Pack { name, why: BadPack::Unread }),
            };
            let Some(bytes) = found else {
                // The list is old.
                self.look().await?;
                let listing = self.listing.as_ref().map(|(_, listing)| listing);
                if listing
                    .and_then(|listing| listing.pack_of(number))
                    .is_some_and(|pack| pack == (first, last))
                {
                    return Err(Error::Missing { number, name });
                }
                continue;
            };
            let bad = |why| Error::Pack { name: name.clone(), why };
            let pack = Pack::decode(&bytes).map_err(bad)?;
            if pack.first != first || pack.last() != last {
                return Err(bad(BadPack::Damaged("name")));
            }
            self.pack = Some(pack);
        }
    }

    /// Reads an object that has the records of a stretch.
    async fn given(&mut self, of: Stretch, name: &str) -> Result<Given> {
        let Some(withheld) = &mut self.withheld else {
            return Ok(Given::Found(self.world.get(name).await?));
        };
        if withheld.contains_key(&of) {
            return Ok(Given::Withheld);
        }
        // Where others are refused, this one is asked for once.
        let first = match withheld.is_empty() {
            true => self.world.get(name).await,
            false => self.world.with(Patience::Tries(1)).get(name).await,
        };
        let answer = match first {
            Err(error) if !error.is_refusal() && !withheld.is_empty() => self.world.get(name).await,
            answer => answer,
        };
        match answer {
            Err(error) if error.is_refusal() => {
                // It is an answer: the store works.
                self.world.note_no_trouble();
                withheld.insert(of, error);
                Ok(Given::Withheld)
            }
            answer => Ok(Given::Found(answer?)),
        }
    }

    async fn large(&mut self, number: RecordNumber, hash: Hash) -> Result<Bytes> {
        let name = names::record(number);
        let bytes = match self.given((number, number), &name).await? {
            Given::Found(found) => found.ok_or_else(|| missing(number))?,
            Given::Withheld => return Err(unread(number)),
        };
        if Hash::of(&bytes) != hash {
            let why = Record::decode(&bytes).err().unwrap_or(BadRecord::Checksum("object"));
            return Err(Error::Record { number, name, why });
        }
        Ok(bytes)
    }
}

/// What the store has answered.
enum Given {
    Found(Option<Bytes>),
    /// It refuses, and this reader goes on without that.
    Withheld,
}

fn unread(number: RecordNumber) -> Error {
    Error::Record { number, name: names::record(number), why: BadRecord::Unread }
}

fn missing(number: RecordNumber) -> Error {
    Error::Missing { number, name: names::record(number) }
}

/// The end of what was read of a chain: which record comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The chain, once it is known.
    pub chain: Option<ChainId>,
    /// The last record.
    pub number: RecordNumber,
    /// Its hash, if it was read.
    pub hash: Option<Hash>,
}

impl Link {
    /// Begins before the first record of any chain.
    pub const START: Link =
        Link { chain: None, number: RecordNumber::NONE, hash: Some(Hash::ZERO) };

    /// Begins before a record whose predecessor was not read.
    pub fn before(chain: Option<ChainId>, number: RecordNumber) -> Link {
        let hash = (number == RecordNumber::FIRST).then_some(Hash::ZERO);
        Link { chain, number: number.before(), hash }
    }

    /// Decodes the object of the next record, and moves behind it.
    ///
    /// # Errors
    /// [`Error::Record`], [`Error::Unlinked`] (CHAIN-10).
    pub fn follow(&mut self, bytes: &Bytes) -> Result<Record> {
        let number = self.number.next();
        let name = || names::record(number);
        let record =
            Record::decode(bytes).map_err(|why| Error::Record { number, name: name(), why })?;
        let header = &record.header;
        let why = if header.number != number {
            Some("it has another number")
        } else if self.chain.is_some_and(|chain| chain != header.chain) {
            Some("it is of another chain")
        } else if self.hash.is_some_and(|hash| hash != header.previous) {
            Some("it names another record before it")
        } else {
            None
        };
        if let Some(why) = why {
            return Err(Error::Unlinked { number, name: name(), why });
        }
        *self = Link { chain: Some(header.chain), number, hash: Some(Hash::of(bytes)) };
        Ok(record)
    }
}
