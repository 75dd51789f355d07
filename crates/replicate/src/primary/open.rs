//! Starting, restarting and failing over: one procedure.

use std::time::Duration;

use bytes::Bytes;

use super::append::{Outcome, author_of, create, stamp};
use super::packing::Packing;
use super::retention::Retention;
use super::snapshot::Snapshots;
use super::tracks::Tracks;
use super::{Settings, Sidecar, Writer, ending, without_patience};
use crate::chain::{Flow, Lacks, Listing, Opening, Reader, Tip, find_tip, seams};
use crate::dates;
use crate::error::{Error, Result, Stands};
use crate::fault::{Fault, is_planted};
use crate::ids::{ChainId, CommitTs, Epoch, Hash, Nonce, Position, RecordNumber};
use crate::names;
use crate::record::{BadRecord, Follows, Header, Item, Open, Record, header_of};
use crate::replicas::newest_sound;
use crate::snapshots;
use crate::source::{Source, SourceError, Start, TipOf};
use crate::store::Backoff;
use crate::world::{Patience, World};

/// How often a starter that was overtaken looks again.
const TRIES: u32 = 6;

/// An OPEN that is known, with nothing behind it.
struct Opened {
    record: Record,
    bytes: Bytes,
    start: Start,
    /// True if another library wrote the chain before.
    is_upgraded: bool,
    /// What the place has lost of what leads to the newest record before it.
    lost: Option<String>,
    listing: Listing,
}

impl Sidecar {
    /// Finds the end of the chain and opens an epoch there.
    ///
    /// # Errors
    /// As [`Sidecar::run`].
    pub async fn open(
        world: World,
        source: Box<dyn Source>,
        settings: Settings,
    ) -> Result<Sidecar> {
        Sidecar::open_behind(world, source, settings, None).await
    }

    /// Opens another epoch behind its own last record, where something before that was removed.
    ///
    /// # Errors
    /// As [`Sidecar::run`].
    pub async fn open_anew(self) -> Result<Sidecar> {
        let Sidecar { world, source, settings, writer, retention, .. } = self;
        let mut anew =
            Sidecar::open_behind(world, source, settings, Some(writer.tip.number)).await?;
        anew.retention.goes_on_from(&retention);
        Ok(anew)
    }

    /// Opens an epoch at the end of the chain, or behind `own` and nowhere else.
    async fn open_behind(
        world: World,
        mut source: Box<dyn Source>,
        settings: Settings,
        own: Option<RecordNumber>,
    ) -> Result<Sidecar> {
        let nonce = Nonce(world.random().name());
        // What leads to the newest record is looked at once: who ships on meanwhile would overtake a second look, too.
        let mut looked = None;
        for _ in 0..TRIES {
            let tip = match tip_at_start(&world).await {
                Err(damage @ (Error::Record { .. } | Error::Unlinked { .. })) if own.is_none() => {
                    Some(damaged_tip(&world, damage, settings.take_over).await?)
                }
                found => found?,
            };
            if let Some(own) = own {
                refuse_all_but(own, tip.as_ref())?;
            }
            let before = match tip {
                Some(tip) => Some(refuse_others(&world, &*source, tip, settings.take_over).await?),
                None => {
                    refuse_emptied(&world, &*source, settings.take_over).await?;
                    None
                }
            };
            let lost = match (&before, looked.take()) {
                (Some(before), Some(lost)) if !before.tip.is_damaged => lost,
                (Some(before), _) => lost_before(&world, &before.tip).await?,
                (None, _) => None,
            };
            // Behind a damaged one another writer may have led on.
            looked = before.as_ref().filter(|of| !of.tip.is_damaged).map(|_| lost.clone());
            if let Some(opened) = try_open(&world, &mut *source, nonce, before, lost).await? {
                let chain = opened.record.header.chain;
                let hash = Hash::of(&opened.bytes);
                noted(&world, || source.note_chain(chain, hash)).await?;
                return Ok(Sidecar::new(world, source, settings, opened));
            }
        }
        Err(Error::Overtaken)
    }

    fn new(world: World, source: Box<dyn Source>, settings: Settings, opened: Opened) -> Sidecar {
        let Opened { record, bytes, start, is_upgraded, lost, listing } = opened;
        let header = record.header;
        let inherited = (header.first <= header.number && start.follows == Follows::Stream)
            .then_some(header.first);
        let mut tracks = Tracks::new(inherited);
        tracks.note_base(header.position.base, header.number, header.written_ms);
        if start.follows == Follows::Nothing && header.position.commit == CommitTs(0) {
            tracks.begin_behind();
        }
        let mut flow = Flow::new(header.position, header.segment_bytes);
        if start.follows == Follows::Nothing {
            flow.loosen();
        }
        let now = world.clock().now();
        let snapshots = Snapshots::new(&header, is_upgraded, lost, now);
        let packing = Packing::new(listing.packed().next(), now);
        let writer = Writer {
            chain: header.chain,
            nonce: header.nonce,
            tip_hash: Hash::of(&bytes),
            tip: header,
            uploads: 0,
        };
        let retention = Retention::new(now);
        let once = without_patience(&world);
        let sidecar = Sidecar {
            world,
            once,
            source,
            settings,
            writer,
            flow,
            tracks,
            snapshots,
            packing,
            retention,
            last_look: now,
            last_record: now,
            has_more: true,
            could_read: true,
            last_check: now,
            ends: false,
        };
        sidecar.note_restorable();
        sidecar
    }
}

/// The tip, and the OPEN of its writer.
struct Before {
    tip: Tip,
    open: Option<Open>,
}

/// Fails if the chain does not end with the own last record: another one ships on, or the place has lost it.
fn refuse_all_but(own: RecordNumber, tip: Option<&Tip>) -> Result<()> {
    match tip {
        Some(tip) if tip.record.header.number == own => Ok(()),
        Some(tip) if tip.record.header.number > own => {
            Err(Error::Fenced { number: tip.record.header.number, by: author_of(&tip.bytes) })
        }
        _ => Err(Error::PutBack { number: own, name: names::record(own) }),
    }
}

/// A newest record that is damaged, for a start that leads over it: readers begin with the next snapshot. Nothing else has to
/// be decided: where its writer goes on, one of both makes the next number. Where the header is damaged as well, or another
/// record's, nothing tells who that was.
async fn damaged_tip(world: &World, damage: Error, take_over: bool) -> Result<Tip> {
    let (number, name) = match &damage {
        Error::Record { why: BadRecord::Later(_), .. } => return Err(damage),
        Error::Record { number, name, .. } | Error::Unlinked { number, name, .. } => (number, name),
        _ => return Err(damage),
    };
    let listing = Listing::make(world).await?;
    let is_newest = listing.highest() == *number && listing.pack_of(*number).is_none();
    let Some(bytes) = world.get(name).await?.filter(|_| is_newest) else { return Err(damage) };
    let header = match header_of(&bytes).ok().filter(|header| header.number == *number) {
        // A sound record of this number that follows another one than is there.
        Some(_) if matches!(damage, Error::Unlinked { .. }) => return Err(damage),
        Some(header) => header,
        None if !take_over => {
            return Err(Error::Unreadable { number: *number, name: name.clone() });
        }
        // It may have been an OPEN.
        None => match newest_sound(world, &listing).await? {
            Some(sound) => Header { number: *number, epoch: Epoch(sound.epoch.0 + 1), ..sound },
            None => return Err(damage),
        },
    };
    let hash = Hash::of(&bytes);
    Ok(Tip { record: Record { header, items: Vec::new() }, hash, bytes, is_damaged: true, listing })
}

/// How often an object is asked for at a start before it is asked whether it alone is out of reach.
const LOOKS: u32 = 6;
/// How often it is refused then, or without an answer, before it is believed to be.
const REFUSALS: u32 = 6;
const SILENCES: u32 = 60;
/// A pause between two of those.
const BETWEEN_LOOKS: Duration = Duration::from_secs(10);

/// What keeps the newest record from being reached: itself is damaged, one is missing that its snapshot needs, or the next
/// one, or the snapshot's own is missing or damaged; one is of another history; or the store has one and does not give it, as an
/// archive. A store that does not answer is waited for.
async fn lost_before(world: &World, tip: &Tip) -> Result<Option<String>> {
    let few = world.with(Patience::Tries(LOOKS));
    loop {
        match lost_on_the_way(&few, tip).await {
            Err(error @ Error::Store { .. }) => {
                if let Some(why) = refusal_of(world, error).await? {
                    return Ok(Some(format!(
                        "what leads to the newest record is out of reach: {why}"
                    )));
                }
            }
            looked => return looked,
        }
    }
}

/// Finds the newest record, and says so where that alone is refused for a minute.
async fn tip_at_start(world: &World) -> Result<Option<Tip>> {
    // Who has no patience is told of the refusal itself.
    while world.is_endless() {
        let error = match find_tip(&world.with(Patience::Tries(LOOKS))).await {
            Err(error) if error.is_refusal() && error.damaged().is_some() => error,
            Err(Error::Store { name, .. }) => {
                await_answer(world, &name).await?;
                continue;
            }
            found => return found,
        };
        if let Some(why) = refusal_of(world, error).await? {
            await_refused(world, why).await;
        }
    }
    find_tip(world).await
}

/// Waits until a store answers for what it has not answered for: a list, or an object, for which a refusal is an answer.
async fn await_answer(world: &World, name: &str) -> Result<()> {
    if names::parse_record(name).is_none() && names::parse_pack(name).is_none() {
        return world.list(name).await.map(drop);
    }
    let (once, mut backoff) = (without_patience(world), Backoff::default());
    loop {
        match once.get(name).await {
            Err(error) if !error.is_refusal() => world.pause(&mut backoff, error).await?,
            _ => return Ok(()),
        }
    }
}

/// Waits for an object that the store refuses to give.
async fn await_refused(world: &World, mut why: Error) {
    let once = without_patience(world);
    while let Error::Store { name, error, .. } = &why {
        let (number, name, error) = (names::parse_record(name), name.clone(), error.clone());
        if error.is_refusal() {
            world.note_trouble(&Error::Refused { number, name: name.clone(), error });
        }
        world.clock().sleep(BETWEEN_LOOKS).await;
        match once.get(&name).await {
            Ok(_) => break,
            Err(error) => why = error,
        }
    }
}

/// Why the store does not give an object: it is refused for a minute, or not answered for ten, each time just behind an answer to
/// something else.
async fn refusal_of(world: &World, error: Error) -> Result<Option<Error>> {
    let Error::Store { name, .. } = &error else { return Ok(None) };
    let once = without_patience(world);
    let mut refused = 0;
    for _ in 0..SILENCES {
        world.list(names::PACKS).await?;
        let Err(why) = once.get(name).await else { return Ok(None) };
        refused += u32::from(why.is_refusal());
        if refused == REFUSALS {
            return Ok(Some(why));
        }
        world.note_trouble(&why);
        world.clock().sleep(BETWEEN_LOOKS).await;
    }
    Ok(Some(error))
}

async fn lost_on_the_way(world: &World, tip: &Tip) -> Result<Option<String>> {
    const REMOVED: &str = "removed from the place, by a rule of the bucket or by hand";
    let header = &tip.record.header;
    let named = |number| format!("record {number} ({})", names::record(number));
    let removed = |(first, last)| match first == last {
        true => format!("{} was {REMOVED}", named(first)),
        false => format!("records {first} to {last} were {REMOVED}"),
    };
    if tip.is_damaged {
        return Ok(Some(format!("{}, the newest one, is damaged", named(header.number))));
    }
    // Behind a break a snapshot is waited for, which needs what the base lacks.
    let mut first = header.first;
    let mut reader = Reader::with(world, tip.listing.clone());
    if header.snapshot > header.broken {
        match snapshots::read(&mut reader, header.snapshot, header.chain).await? {
            Some(snapshot) => {
                first = snapshot.first;
                let lineage = snapshots::lineage_of(&mut reader, header.snapshot, header.chain);
                if lineage.await?.is_none() {
                    return Ok(Some(format!(
                        "a record that the snapshot in record {} builds on is missing or damaged at the place",
                        header.snapshot
                    )));
                }
            }
            None => {
                return Ok(Some(format!(
                    "{}, with the newest snapshot, is missing or damaged at the place",
                    named(header.snapshot)
                )));
            }
        }
    }
    let Lacks { missing, unread } = tip.listing.lacks(world, first).await?;
    if let Some((_, error)) = unread.into_iter().next() {
        return Err(error);
    }
    if let Some(stretch) = missing.first() {
        return Ok(Some(removed(*stretch)));
    }
    let seams = seams(world, &mut reader, header, first).await?;
    Ok(seams.first().map(|seam| {
        format!(
            "records of two histories are at the place, as where a backup was copied into it: record {seam} does not follow \
             record {}",
            seam.before()
        )
    }))
}

/// Fails if nothing is at a place where the database was shipped to before. A list may be an old one, but the
/// first record, an OPEN, is there for ever.
async fn refuse_emptied(world: &World, source: &dyn Source, take_over: bool) -> Result<()> {
    match source.chain_here() {
        Some(chain) if !take_over => {
            let first = world.get(&names::record(RecordNumber::FIRST)).await?;
            first.map(drop).ok_or(Error::NotThere { chain })
        }
        _ => Ok(()),
    }
}

/// Fails if the chain is another database's, or another machine ships into it.
async fn refuse_others(
    world: &World,
    source: &dyn Source,
    tip: Tip,
    take_over: bool,
) -> Result<Before> {
    let header = &tip.record.header;
    if let Some(expected) = source.chain()
        && expected != header.chain
    {
        return Err(Error::OtherChain { found: header.chain, expected });
    }
    // An OPEN is in `chain/`, too, if its pack is out of reach.
    let few = world.with(Patience::Tries(LOOKS));
    let mut reader = Reader::with(&few, tip.listing.clone());
    let opening = loop {
        match Opening::of(&few, &mut reader, header).await {
            Err(error @ Error::Store { .. }) => {
                // One that does not answer is waited for.
                if refusal_of(world, error).await?.is_some_and(|why| why.is_refusal()) {
                    break Opening::Refused;
                }
            }
            opening => break opening?,
        }
    };
    let stands = match opening {
        Opening::Another => Stands::Another,
        Opening::Refused => Stands::Refused,
        Opening::There(..) | Opening::Missing => Stands::Nothing,
    };
    let open = opening.open().cloned();
    let is_ours = open.as_ref().is_some_and(|open| open.instance == source.instance());
    match &open {
        None if !take_over => {
            let (chain, number) = (header.chain, header.opened);
            let name = names::record(number);
            return Err(match source.chain() {
                Some(_) => Error::Lost { chain, number, name, stands },
                None => Error::Unowned { number, name, stands },
            });
        }
        Some(open) if !is_ours && !take_over => {
            return Err(Error::Occupied { by: open.host.clone() });
        }
        _ => {}
    }
    // In a session that has shipped there it is the same file. Else nothing but its age tells: salts and
    // generations are of sessions, of which some had no sidecar.
    let made_ms = source.made_ms().filter(|_| !take_over && source.chain().is_none());
    // One of the future says that the clock was wrong.
    let now_ms = world.clock().wall_ms();
    if let Some(made_ms) = made_ms.filter(|made| (header.written_ms + 1..=now_ms).contains(made)) {
        let shipped_ms = latest_stamp(world, &tip, now_ms).await?;
        if made_ms > shipped_ms {
            let (made, shipped) = (dates::utc(made_ms), dates::utc(shipped_ms));
            return Err(Error::MadeAnew { made, shipped });
        }
    }
    Ok(Before { tip, open })
}

/// The latest time before now at which something was shipped, as far as snapshots tell: behind a clock that was set back it is
/// not that of the newest record.
async fn latest_stamp(world: &World, tip: &Tip, now_ms: u64) -> Result<u64> {
    let header = &tip.record.header;
    // What a pack has that the store refuses to give tells nothing.
    let few = world.with(Patience::Tries(LOOKS));
    let known = loop {
        let (newest, chain) = (header.snapshot, header.chain);
        match snapshots::known_but_for(&few, &tip.listing, newest, chain).await {
            Ok((known, _)) => break known.snapshots,
            Err(error) => {
                world.list(names::PACKS).await?;
                world.note_trouble(&error);
                world.clock().sleep(BETWEEN_LOOKS).await;
            }
        }
    };
    let taken =
        known.iter().map(|(_, snapshot)| snapshot.taken_ms).filter(|taken| *taken <= now_ms);
    Ok(taken.chain([header.written_ms]).max().unwrap_or_default())
}

/// Tries once; `None` if another writer has come in between. `lost`: what the place has lost of what leads to the newest record.
async fn try_open(
    world: &World,
    source: &mut dyn Source,
    nonce: Nonce,
    before: Option<Before>,
    lost: Option<String>,
) -> Result<Option<Opened>> {
    // Over a hole nothing leads: readers begin with the next snapshot. Nor does anything lead from
    // another instance's tip. Two copies of a database that each made an exclusive transaction are
    // at one position, with other pages.
    let is_own = |before: &&Before| {
        before.open.as_ref().is_some_and(|open| open.instance == source.instance())
    };
    let sound = before.as_ref().filter(|_| lost.is_none()).filter(is_own);
    let tip = sound.map(|before| TipOf::new(&before.tip.record, before.tip.hash));
    let start = begin(world, source, tip).await?;
    noted(world, || source.note_opening(nonce)).await?;
    let tip = before.as_ref().map(|before| &before.tip);
    let library_before = before.as_ref().and_then(|before| before.open.as_ref());
    let is_upgraded = library_before.is_some_and(|open| open.library != start.library);
    let record = open_record(world, source, nonce, &start, tip);
    let number = record.header.number;
    let bytes = record.encode();
    if let Outcome::Taken(_) = create(world, number, &bytes).await? {
        return Ok(None);
    }
    let listing = Listing::make(world).await?;
    let is_stray = listing.highest() > number || listing.pack_of(number).is_some();
    if is_stray && !is_planted(Fault::StrayUnseen) {
        return Ok(None);
    }
    Ok(Some(Opened { record, bytes, start, is_upgraded, lost, listing }))
}

fn open_record(
    world: &World,
    source: &dyn Source,
    nonce: Nonce,
    start: &Start,
    tip: Option<&Tip>,
) -> Record {
    let before = tip.map(|tip| &tip.record.header);
    let number = before.map_or(RecordNumber::FIRST, |header| header.number.next());
    let goes_on = start.follows == Follows::Stream;
    let first = before.map(|header| header.first).filter(|first| goes_on && *first < number);
    let position = match before {
        Some(header) if goes_on => header.position,
        _ => Position { crc: 0, ..start.position },
    };
    let is_break = start.follows == Follows::Nothing;
    let header = Header {
        chain: before.map_or_else(|| ChainId(world.random().name()), |header| header.chain),
        number,
        epoch: Epoch(before.map_or(0, |header| header.epoch.0) + 1),
        nonce,
        previous: tip.map_or(Hash::ZERO, |tip| tip.hash),
        written_ms: stamp(world, before.map_or(0, |header| header.written_ms)),
        position,
        first: first.unwrap_or_else(|| number.next()),
        snapshot: before.map_or(RecordNumber::NONE, |header| header.snapshot),
        broken: match before {
            Some(header) if !is_break => header.broken,
            _ => number,
        },
        opened: number,
        segment_bytes: start.segment_bytes,
    };
    let open = Open {
        follows: start.follows,
        page_bytes: start.page_bytes,
        instance: source.instance(),
        library: start.library.clone(),
        host: source.host(),
    };
    Record { header, items: vec![Item::Open(open)] }
}

async fn begin(world: &World, source: &mut dyn Source, tip: Option<TipOf>) -> Result<Start> {
    let mut backoff = Backoff::default();
    loop {
        match source.begin(tip.as_ref()) {
            Ok(start) => return Ok(start),
            Err(error) => pause(world, &mut backoff, error).await?,
        }
    }
}

async fn noted(world: &World, mut note: impl FnMut() -> Result<(), SourceError>) -> Result<()> {
    let mut backoff = Backoff::default();
    while let Err(error) = note() {
        pause(world, &mut backoff, error).await?;
    }
    Ok(())
}

async fn pause(world: &World, backoff: &mut Backoff, error: SourceError) -> Result<()> {
    let text = error.to_string();
    match ending(error) {
        Some(end) => Err(end),
        None => {
            let error = Error::Source(text);
            world.note_trouble(&error);
            world.pause(backoff, error).await
        }
    }
}
