//! `plait-replicate run`: the sidecar of a living database, as a process that a supervisor starts.
//!
//! ```text
//! join ──► race the store ──► open an epoch ──► ship ──► SIGTERM, SIGINT: the rest ──► 0
//!                                                 ├──── the database has left the mode ──► 0
//!                                                 ├──── something that a new start mends ──► 1
//!                                                 └──── fenced ──► 3
//! ```

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::future::{Either, select};
use plait_engine::database::Database;
use plait_replicate::error::{Error, Result, line, printable};
use plait_replicate::following::mark::Mark;
use plait_replicate::notes::note;
use plait_replicate::primary::{self, Sidecar};
use plait_replicate::probe::{ROUNDS_AT_START, probe};
use plait_replicate::store::Backoff;
use plait_replicate::store::objects::{self, Missing, Objects};
use plait_replicate::store::url::Place;
use plait_replicate::world::{Patience, STAYS, Trouble, World};

use tokio::runtime::Runtime;

use crate::living::{End, Living, Settings, Shared};
use crate::quantities;
use crate::real::{self, Chance, Signals, Stop};
use crate::said;

/// A sidecar that is told to end has so long to ship the rest.
const TO_END: Duration = Duration::from_secs(10);
/// How often the database is told what is in the way.
const TELL_EVERY: Duration = Duration::from_secs(1);

const NOTHING_SHIPPED: &str =
    "it was told to end before anything could be shipped: the next start goes on";

/// What is told while the newest record cannot be restored.
const WAITS: &str = "what was committed since cannot be restored before a snapshot is complete";

/// The same, where what was there before cannot be, either.
const WAITS_ALL: &str = "the newest record cannot be restored before a snapshot is complete";

/// Exit codes, for supervisors.
pub const OVER: u8 = 0;
pub const AGAIN: u8 = 1;
pub const USAGE: u8 = 2;
const FENCED: u8 = 3;

/// Arguments of `plait-replicate run`.
#[derive(Args)]
pub struct RunArgs {
    /// A folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX
    url: String,
    /// The database
    database: PathBuf,
    /// Time from one record to the next, while something happens
    #[arg(long, default_value = "1s", value_parser = quantities::interval)]
    interval: Duration,
    /// How far back a moment can be restored
    #[arg(long, default_value = "7d", value_parser = quantities::time)]
    keep: Duration,
    /// What the database's log may keep beyond its own needs while it cannot be shipped; past it a
    /// snapshot bridges what is missing
    #[arg(long, default_value = "1GiB", value_parser = quantities::size)]
    max_lag: u64,
    /// Take over a place that another database, or this one on another machine, was shipped to
    #[arg(long)]
    take_over: bool,
    /// A name for this machine that stays, where /etc/machine-id does not, as in containers
    #[arg(long)]
    machine: Option<String>,
    /// The folder for copies of the database, which snapshots are made of, and for the sums of pages by
    /// which the next one uploads changes alone; that of the database if not given
    #[arg(long)]
    scratch: Option<PathBuf>,
}

/// Ships the database until something ends it; returns the exit code.
pub fn run(args: &RunArgs) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => return say(AGAIN, &format!("cannot start a runtime: {e}")),
    };
    // Before anything that takes time: it ends as it should whenever it is told to.
    let mut signals = match Signals::heard(&runtime) {
        Ok(signals) => signals,
        Err(text) => return say(AGAIN, &text),
    };
    let place = match Place::parse(&args.url) {
        Ok(place) => place,
        Err(text) => return say(USAGE, &text),
    };
    let (name, database) = (place.name(), args.database.clone());
    let waits = || note_silent(&name);
    let looked = {
        let place = place.clone();
        move || follows_there(&database, &place)
    };
    match real::unless_told_to_end(&runtime, &mut signals, waits, looked) {
        Some(None) => {}
        Some(Some(text)) => return say(USAGE, &text),
        None => return told_to_end(runtime),
    }
    let shared = Shared::default();
    let absolute = std::path::absolute(&args.database).unwrap_or_else(|_| args.database.clone());
    let beside = absolute.parent().map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let settings = Settings {
        place: name,
        max_lag_bytes: args.max_lag,
        scratch: args.scratch.clone().unwrap_or(beside),
        machine: args.machine.clone(),
        takes_over: args.take_over,
    };
    let living = match Living::join(&args.database, settings, shared.clone()) {
        Ok(living) => living,
        Err(refused) => return say(if refused.is_usage { USAGE } else { AGAIN }, &refused.text),
    };
    let store = match open_place(args, place, &living, &runtime, &mut signals) {
        Some(Ok(store)) => store,
        Some(Err(text)) => return say(USAGE, &text),
        None => return told_to_end(runtime),
    };
    let database = living.database();
    let ended = real::run_on(runtime, ship(args, store, living, &shared, &database, signals));
    let why = ended.as_ref().err().map(Error::to_string).unwrap_or_default();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since_ms = now.ok().filter(|_| !why.is_empty()).map_or(0, |now| now.as_millis() as u64);
    database.note_shipping_trouble(&why, since_ms);
    match ended {
        Ok(()) => OVER,
        Err(error) => say(code_of(&error, shared.end.get()), &error.to_string()),
    }
}

/// Opens the place, and finds out whether the database was shipped there before; `None` if this is told to end before
/// that answers.
fn open_place(
    args: &RunArgs,
    place: Place,
    living: &Living,
    runtime: &Runtime,
    signals: &mut Signals,
) -> Option<std::result::Result<Objects, String>> {
    let (url, told, name) = (args.url.clone(), living.told_place(), place.name());
    let waits = || note_silent(&name);
    let opened = real::unless_told_to_end(runtime, signals, waits, move || {
        let is_here = told.is_some_and(|told| place.is(&told));
        // Where something was shipped to before, a folder that is missing or empty was moved away, or is not mounted.
        let missing = if is_here { Missing::AwaitFilled } else { Missing::Make };
        (is_here, objects::open(&url, missing))
    });
    opened.map(|(is_here, store)| {
        if is_here {
            living.note_here();
        }
        store
    })
}

fn note_silent(place: &str) {
    note(&format!(
        "plait-replicate: {place} does not answer: is its disk mounted, and its server up?; it is waited for"
    ));
}

/// It has begun nothing.
fn told_to_end(runtime: Runtime) -> u8 {
    runtime.shutdown_background();
    say(AGAIN, NOTHING_SHIPPED)
}

/// A replica that was shipped to the place that it follows would follow itself.
fn follows_there(shown: &Path, place: &Place) -> Option<String> {
    let database = std::fs::canonicalize(shown).ok()?;
    let mark = match Mark::read(&database) {
        Ok(mark) => mark?,
        // Which place it follows is not known.
        Err(text) => return Some(text),
    };
    let shown = shown.display();
    place.is(&mark.place).then(|| {
        format!(
            "{shown} follows this place: `plait promote {shown}` makes it the primary, where the old one is \
             lost; else ship to another place"
        )
    })
}

pub fn say(code: u8, text: &str) -> u8 {
    note(&format!("plait-replicate: {}", printable(text)));
    code
}

fn code_of(error: &Error, end: Option<End>) -> u8 {
    match error {
        Error::Fenced { .. } => FENCED,
        Error::Occupied { .. }
        | Error::Unowned { .. }
        | Error::Unreadable { .. }
        | Error::OtherChain { .. }
        | Error::MadeAnew { .. }
        | Error::NotThere { .. }
        | Error::Lost { .. }
        | Error::Unfit(_) => USAGE,
        Error::Ended(_) if end == Some(End::Over) => OVER,
        _ => AGAIN,
    }
}

fn settings(args: &RunArgs) -> primary::Settings {
    primary::Settings {
        interval: args.interval,
        keep: args.keep,
        take_over: args.take_over,
        ..primary::Settings::default()
    }
}

async fn ship(
    args: &RunArgs,
    store: Objects,
    living: Living,
    shared: &Shared,
    database: &Arc<Database>,
    mut signals: Signals,
) -> Result<()> {
    let stop = Rc::new(Stop::default());
    let store = Rc::new(store);
    let world = real::stoppable_world(Rc::clone(&store), &stop);
    let ships = Box::pin(ship_until_stopped(args, &store, &world, living, &stop, shared, database));
    let told = Box::pin(async {
        loop {
            tell(&world, database);
            shared.scratch.borrow().spare_the_disk();
            tokio::time::sleep(TELL_EVERY).await;
        }
    });
    let ships = Box::pin(async {
        match select(ships, told).await {
            Either::Left((ended, _)) | Either::Right((ended, _)) => ended,
        }
    });
    match select(ships, Box::pin(signals.told_to_end())).await {
        Either::Left((ended, _)) => ended,
        Either::Right((_, ships)) => {
            shared.hurries.set(true);
            stop.stop();
            match tokio::time::timeout(TO_END, ships).await {
                Ok(ended) => ended,
                Err(_) => Err(Error::Source(format!(
                    "not everything could be shipped within {} seconds{}: the next start goes on",
                    TO_END.as_secs(),
                    match world.unrestorable_since() {
                        Some(_) => ", the snapshot above all without which it cannot be restored",
                        None => "",
                    }
                ))),
            }
        }
    }
}

/// Tells the database what is in the way.
fn tell(world: &World, database: &Arc<Database>) {
    // `Backoff` pauses for no longer.
    const AGAIN: &str = "; it is tried again, after 10 seconds at most";
    let why = world.lost().map_or_else(|| WAITS.to_owned(), |lost| format!("{lost}: {WAITS_ALL}"));
    let waits = || match (world.unrestorable_since(), world.snapshot_trouble()) {
        (None, None) => None,
        (Some(since), None) => Some((format!("{why}, which is under way"), since, "")),
        (Some(since), Some(Trouble { what, .. })) => {
            Some((format!("{why}, and that fails: {what}"), since, AGAIN))
        }
        (None, Some(Trouble { what, since })) => {
            Some((format!("no snapshot can be made: {what}"), since, AGAIN))
        }
    };
    if let Some(why) = world.take_refusal() {
        note(&format!("plait-replicate: {why}"));
    }
    let trouble = world.trouble().map(|trouble| (trouble.what, trouble.since, AGAIN));
    let trouble = trouble.or_else(waits);
    let trouble = trouble.map(|(what, since, then)| (line(&what) + then, since));
    let told = database.told();
    let what = trouble.as_ref().map_or("", |(what, _)| what);
    let (is_new, was) = (told.trouble.is_empty() != what.is_empty(), &told.trouble);
    if is_new || !what.starts_with(&**was) {
        let since = trouble.as_ref().map_or(0, |(_, since)| {
            let ago = world.clock().now().saturating_sub(*since);
            world.clock().wall_ms().saturating_sub(ago.as_millis() as u64)
        });
        database.note_shipping_trouble(what, since);
        if let Some((what, _)) = &trouble {
            note(&format!("plait-replicate: {what}"));
        }
    }
}

async fn ship_until_stopped(
    args: &RunArgs,
    store: &Objects,
    world: &World,
    living: Living,
    stop: &Stop,
    shared: &Shared,
    database: &Arc<Database>,
) -> Result<()> {
    race(store, world, stop).await?;
    if stop.is_stopped() {
        return Err(Error::Source(NOTHING_SHIPPED.to_owned()));
    }
    let mut sidecar = Sidecar::open(world.clone(), Box::new(living), settings(args)).await?;
    let tip = sidecar.tip();
    // Nobody may read it.
    let _ = said::say(&format!(
        "shipping {} to {}: chain {}, epoch {}, from record {}\n",
        args.database.display(),
        args.url,
        tip.chain,
        tip.epoch,
        tip.number
    ));
    let mut lost = None;
    while !stop.is_stopped() {
        if world.lost() != lost {
            // A small snapshot makes up for it before the next second.
            tell(world, database);
            lost = world.lost();
        }
        match sidecar.step().await {
            Err(Error::Removed { .. }) => sidecar = sidecar.open_anew().await?,
            done => done?,
        }
    }
    shared.hurries.set(true);
    sidecar.finish().await?;
    let number = sidecar.tip().number;
    let _ = said::say(&format!(
        "it ends, as it was told to: everything is shipped, through record {number}\n"
    ));
    Ok(())
}

/// Refuses a store that cannot fence; waits for one that does not answer.
async fn race(store: &Objects, world: &World, stop: &Stop) -> Result<()> {
    let patient = world.with(Patience::Endless);
    let mut backoff = Backoff::default();
    while !stop.is_stopped() {
        match probe(store, &Chance, ROUNDS_AT_START).await {
            Ok(verdict) => {
                patient.note_no_trouble();
                if let Some(refusal) = &verdict.refusal {
                    patient.note_refusal(refusal, STAYS);
                }
                return verdict.check();
            }
            Err(error) => patient.note_trouble(&error),
        }
        world.clock().sleep(backoff.next(world.random())).await;
    }
    Ok(())
}
