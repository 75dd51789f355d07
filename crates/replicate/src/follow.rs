//! `plait-replicate follow`: a database that follows a replica, as a process that a supervisor starts.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use futures_util::future::{Either, select};
use plait_replicate::dates;
use plait_replicate::error::{Result, line, printable};
use plait_replicate::following::{Done, Following, Settings};
use plait_replicate::store::objects;
use tokio::signal::unix::{SignalKind, signal};

use crate::quantities;
use crate::real::{self, Stop};
use crate::run::{AGAIN, OVER, USAGE, say};

/// A step that is under way when this is told to end has so long.
const TO_END: Duration = Duration::from_secs(10);

/// How often a folder is looked for that is not there.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Arguments of `plait-replicate follow`.
#[derive(Args)]
pub struct FollowArgs {
    /// A folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX
    url: String,
    /// The database, which this makes
    database: PathBuf,
    /// Time from one look for the next record to the next
    #[arg(long, default_value = "1s", value_parser = quantities::time)]
    interval: Duration,
}

/// Follows until something ends it; returns the exit code.
pub fn run(args: &FollowArgs) -> u8 {
    wait_for_folder(&args.url);
    let store = match objects::open(&args.url, false) {
        Ok(store) => store,
        Err(text) => return say(USAGE, &text),
    };
    let stop = Rc::new(Stop::default());
    let world = real::stoppable_world(Rc::new(store), &stop);
    let settings = Settings {
        place: place_of(&args.url),
        database: args.database.clone(),
        poll: args.interval,
    };
    if let Some(text) = lies_inside(&settings) {
        return say(USAGE, &text);
    }
    let following = match Following::begin(world, settings) {
        Ok(following) => following,
        Err(text) => return say(USAGE, &text),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => return say(AGAIN, &format!("cannot start a runtime: {e}")),
    };
    match runtime.block_on(follow(args, following, &stop)) {
        Ok(()) => OVER,
        Err(error) => say(USAGE, &error.to_string()),
    }
}

/// A place as the mark names it: a folder by its whole path, from wherever this is started.
pub fn place_of(url: &str) -> String {
    match std::path::absolute(url) {
        Ok(folder) if !url.contains("://") => folder.to_string_lossy().into_owned(),
        _ => url.to_owned(),
    }
}

/// A database in the folder that it follows would be among the objects there.
fn lies_inside(settings: &Settings) -> Option<String> {
    let place =
        std::fs::canonicalize(&settings.place).ok().filter(|_| !settings.place.contains("://"))?;
    let absolute = std::path::absolute(&settings.database).ok()?;
    let folder = std::fs::canonicalize(absolute.parent()?).ok()?;
    folder.starts_with(&place).then(|| {
        format!(
            "{} lies in the folder that it is to follow, where the replica's own objects are: choose another folder",
            settings.database.display()
        )
    })
}

/// A folder may come later than this starts, as what is in it does.
fn wait_for_folder(url: &str) {
    let is_missing = || !url.contains("://") && !Path::new(url).exists();
    if is_missing() {
        eprintln!(
            "plait-replicate: {} is not there yet, and is waited for: check its name, or begin it with plait replicate",
            printable(url)
        );
    }
    while is_missing() {
        std::thread::sleep(LOOK_AGAIN);
    }
}

async fn follow(args: &FollowArgs, following: Following, stop: &Rc<Stop>) -> Result<()> {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        return Err(plait_replicate::error::Error::Source("cannot wait for signals".to_owned()));
    };
    let follows = Box::pin(follow_until_stopped(args, following, stop));
    let told_to_end = Box::pin(select(Box::pin(terminate.recv()), Box::pin(interrupt.recv())));
    match select(follows, told_to_end).await {
        Either::Left((ended, _)) => ended,
        Either::Right((_, follows)) => {
            stop.stop();
            // What a new start does not mend it says itself; else the mark tells where it was.
            tokio::time::timeout(TO_END, follows).await.unwrap_or(Ok(()))
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
            Done::Waited if !is_up && following.mark().is_some_and(|mark| !mark.seeding) => {
                is_up = true;
                tell(args, &following, "follows, and is");
            }
            Done::Applied(_) | Done::Waited => {}
            Done::Stuck(why) => {
                let so_long = match following.mark() {
                    Some(mark) if !mark.seeding => {
                        format!("{} stays as it is until then", args.database.display())
                    }
                    _ => "it is tried again".to_owned(),
                };
                eprintln!("plait-replicate: {}; {}", line(&why), printable(&so_long));
            }
        }
    }
    following.end()
}

fn tell(args: &FollowArgs, following: &Following, how: &str) {
    let Some(mark) = following.mark() else { return };
    let (record, at) = (mark.record, dates::utc(mark.written_ms));
    println!(
        "{} {how} at record {record} of {} ({at}), commit {}",
        args.database.display(),
        printable(&args.url),
        mark.commit
    );
}
