//! `plait-replicate follow`: a database that follows a replica, as a process that a supervisor starts.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use futures_util::future::{Either, select};
use plait_replicate::dates;
use plait_replicate::error::{Error, Result, line, printable};
use plait_replicate::following::{self, Done, Following, Settings};
use plait_replicate::notes::note;
use plait_replicate::store::objects::{self, Missing};
use plait_replicate::store::url::Place;

use crate::quantities;
use crate::real::{self, Signals, Stop};
use crate::run::{AGAIN, OVER, USAGE, say};
use crate::said;

/// A step that is under way when this is told to end has so long.
const TO_END: Duration = Duration::from_secs(10);

/// Arguments of `plait-replicate follow`.
#[derive(Args)]
pub struct FollowArgs {
    /// A folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX
    url: String,
    /// The database, which this makes
    database: PathBuf,
    /// Time from one look for the next record to the next
    #[arg(long, default_value = "1s", value_parser = quantities::interval)]
    interval: Duration,
}

/// Follows until something ends it; returns the exit code.
pub fn run(args: &FollowArgs) -> u8 {
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
    let opened = Place::parse(&args.url)
        .and_then(|place| Ok((place, objects::open(&args.url, Missing::Await)?)));
    let (place, store) = match opened {
        Ok(opened) => opened,
        Err(text) => return say(USAGE, &text),
    };
    let stop = Rc::new(Stop::default());
    let world = real::stoppable_world(Rc::new(store), &stop);
    let settings =
        Settings { place: place.name(), database: args.database.clone(), poll: args.interval };
    let waits = || {
        let name = printable(&settings.place);
        note(&format!("plait-replicate: {name} does not answer: it is waited for"));
    };
    let database = args.database.clone();
    let looked = move || is_file(&place).or_else(|| lies_inside(&place, &database));
    match real::unless_told_to_end(&runtime, &mut signals, waits, looked) {
        Some(None) => {}
        Some(Some(text)) => return say(USAGE, &text),
        None => {
            runtime.shutdown_background();
            return OVER;
        }
    }
    let following = match Following::begin(world, settings) {
        Ok(following) => following,
        Err(error) => return say(code_of(&error), &error.to_string()),
    };
    match real::run_on(runtime, follow(args, following, &stop, signals)) {
        Ok(()) => OVER,
        Err(error) => say(code_of(&error), &following::said(&error)),
    }
}

/// What the disk did not take it may take later.
fn code_of(error: &Error) -> u8 {
    match error {
        Error::Target { .. } | Error::Unseen(_) => AGAIN,
        _ => USAGE,
    }
}

/// Nothing is ever found there.
fn is_file(place: &Place) -> Option<String> {
    let there = std::fs::metadata(place.folder()?).ok()?;
    (!there.is_dir())
        .then(|| format!("{} is no folder: name the folder that has the replica", place.name()))
}

/// A database in the folder that it follows would be among the objects there.
fn lies_inside(place: &Place, database: &Path) -> Option<String> {
    let place = place.folder()?;
    let absolute = std::path::absolute(database).ok()?;
    let folder = std::fs::canonicalize(absolute.parent()?).ok()?;
    folder.starts_with(&place).then(|| {
        format!(
            "{} lies in the folder that it is to follow, where the replica's own objects are: choose another folder",
            database.display()
        )
    })
}

async fn follow(
    args: &FollowArgs,
    following: Following,
    stop: &Rc<Stop>,
    mut signals: Signals,
) -> Result<()> {
    let follows = Box::pin(follow_until_stopped(args, following, stop));
    match select(follows, Box::pin(signals.told_to_end())).await {
        Either::Left((ended, _)) => ended,
        Either::Right((_, follows)) => {
            stop.stop();
            // What a new start does not mend it says itself; else the mark tells where it was.
            match tokio::time::timeout(TO_END, follows).await {
                Ok(Err(error)) if code_of(&error) == AGAIN => {
                    note(&format!(
                        "plait-replicate: {}: it ends all the same, as it was told to, and a new start goes on",
                        printable(&error.to_string())
                    ));
                    Ok(())
                }
                ended => ended.unwrap_or(Ok(())),
            }
        }
    }
}

async fn follow_until_stopped(
    args: &FollowArgs,
    mut following: Following,
    stop: &Rc<Stop>,
) -> Result<()> {
    let mut is_up = false;
    while !stop.is_stopped() {
        match following.step().await? {
            Done::Copied(_) => tell(args, &following, "is"),
            Done::Applied(_) if !is_up => {}
            Done::Waited
                if !is_up && following.mark().is_some_and(|mark| mark.seeding.is_none()) =>
            {
                is_up = true;
                tell(args, &following, "follows, and is");
            }
            Done::Applied(_) | Done::Waited | Done::StillStuck => {}
            Done::Stuck(why) => {
                let so_long = match following.mark() {
                    Some(mark) if mark.seeding.is_none() => {
                        format!("{} stays as it is until then", args.database.display())
                    }
                    _ => "it is tried again".to_owned(),
                };
                note(&format!("plait-replicate: {}; {}", line(&why), printable(&so_long)));
            }
        }
    }
    following.end()
}

fn tell(args: &FollowArgs, following: &Following, how: &str) {
    let Some(mark) = following.mark() else { return };
    let (record, at) = (mark.record, dates::utc(mark.written_ms));
    // Nobody may read it.
    let _ = said::say(&format!(
        "{} {how} at record {record} of {} ({at}), commit {}\n",
        args.database.display(),
        printable(&args.url),
        mark.commit
    ));
}
