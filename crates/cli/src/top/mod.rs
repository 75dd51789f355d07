//! `plait top`: a database live, as `top` and `htop` show a machine.
//!
//! | module | |
//! |---|---|
//! | `monitor` | what was seen, and what has changed since |
//! | `facts` | what is said of it, in words |
//! | `screen` | where that stands on a terminal |
//! | `plain` | the same as lines, where there is none |
//!
//! One thread looks (`live`), and another has the terminal: a look at a file that others move may
//! take seconds, and a key is heard all the same.

mod facts;
mod monitor;
mod plain;
mod programs;
mod screen;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::failure::{self, Failure, Result, said};
use crate::live::{self, Look, State};
use crate::os;
use facts::Order;
use monitor::Monitor;

/// Arguments of `plait top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// The database
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Seconds between two looks
    #[arg(long, short, default_value_t = 1.0, value_name = "SECONDS", value_parser = interval)]
    interval: f64,
    /// Print one look as plain text, also on a terminal
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give a number of seconds between 0.1 and 3600".to_owned()),
    }
}

/// How long a key is waited for before anything else is looked after.
const NAP: Duration = Duration::from_millis(50);
/// What the keys choose from, in seconds.
const INTERVALS: [f64; 9] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// Shows it.
pub fn run(args: &TopArgs) -> Result<u8> {
    // A name that was mistyped is told at once. Later the file may go and come.
    let first = live::look(&args.file)?;
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if args.once || is_dumb || !io::stdout().is_terminal() {
        return once(args, first);
    }
    os::note_interrupts();
    let mut top = Top {
        monitor: Monitor::of(&args.file, first),
        order: Order::Age,
        skipped: 0,
        interval: Duration::from_secs_f64(args.interval),
        is_paused: false,
    };
    let mut screen = Screen::begin()?;
    let ended = top.stay(&mut screen.terminal, &Looker::of(&args.file));
    drop(screen);
    ended.map(|()| failure::OK)
}

/// Rates need a second look, where there is something to be counted.
fn once(args: &TopArgs, first: Look) -> Result<u8> {
    const PAUSE_MAX: f64 = 1.0;
    let is_session = matches!(first.state, State::Session(_));
    let mut monitor = Monitor::of(&args.file, first);
    if is_session {
        std::thread::sleep(Duration::from_secs_f64(args.interval.min(PAUSE_MAX)));
        monitor.take(live::look(&args.file));
    }
    anstream::println!("{}", plain::text(&monitor));
    Ok(failure::OK)
}

/// The terminal as this command has it. It gets back what it was at the end, and at a panic by the
/// hook that is set with it.
struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    fn begin() -> Result<Screen> {
        let terminal = ratatui::try_init().map_err(|e| no_terminal(&e))?;
        Ok(Screen { terminal })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // One that has gone wants nothing back.
        let _ = ratatui::try_restore();
    }
}

fn no_terminal(error: &io::Error) -> Failure {
    Failure::new(
        format!("cannot use the terminal: {}", said(error)),
        "run it in a terminal, or with --once for plain text",
    )
}

/// Looks when it is asked to.
struct Looker {
    asks: Sender<()>,
    looks: Receiver<Result<Look>>,
}

impl Looker {
    fn of(file: &Path) -> Looker {
        let (asks, asked) = mpsc::channel();
        let (says, looks) = mpsc::channel();
        let file = file.to_owned();
        std::thread::spawn(
            move || {
                while asked.recv().is_ok() && says.send(live::look(&file)).is_ok() {}
            },
        );
        Looker { asks, looks }
    }
}

/// What is shown, and how.
struct Top {
    monitor: Monitor,
    order: Order,
    /// Rows above the first one that is shown.
    skipped: usize,
    interval: Duration,
    is_paused: bool,
}

impl Top {
    /// Shows it until the user, or somebody by a signal, ends it.
    fn stay(&mut self, terminal: &mut DefaultTerminal, looker: &Looker) -> Result<()> {
        let mut due = Instant::now() + self.interval.min(Duration::from_millis(300));
        let mut is_looking = false;
        let mut is_stale = true;
        while !os::interrupted() {
            if is_stale {
                terminal.draw(|frame| screen::draw(frame, self)).map_err(|e| no_terminal(&e))?;
                is_stale = false;
            }
            if event::poll(NAP).map_err(|e| no_terminal(&e))? {
                is_stale = true;
                if self.hear(&event::read().map_err(|e| no_terminal(&e))?) {
                    return Ok(());
                }
            }
            match looker.looks.try_recv() {
                Ok(look) => {
                    is_looking = false;
                    if !self.is_paused {
                        self.monitor.take(look);
                        is_stale = true;
                    }
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(internal()),
            }
            due = due.min(Instant::now() + self.interval);
            if !self.is_paused && !is_looking && Instant::now() >= due {
                looker.asks.send(()).map_err(|_| internal())?;
                is_looking = true;
                due = Instant::now() + self.interval;
            }
        }
        Ok(())
    }

    /// Does what a key says; true at the end.
    fn hear(&mut self, event: &Event) -> bool {
        let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else {
            return false;
        };
        match code {
            KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return true,
            KeyCode::Char('s' | 'S') => self.order = self.order.next(),
            KeyCode::Char('p' | 'P' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('+' | '=') => {
                self.set_interval(INTERVALS.iter().find(|s| **s > self.seconds()))
            }
            KeyCode::Char('-') => {
                self.set_interval(INTERVALS.iter().rev().find(|s| **s < self.seconds()));
            }
            KeyCode::Down | KeyCode::Char('j') => self.skipped += 1,
            KeyCode::Up | KeyCode::Char('k') => self.skipped = self.skipped.saturating_sub(1),
            KeyCode::PageDown => self.skipped += 10,
            KeyCode::PageUp => self.skipped = self.skipped.saturating_sub(10),
            KeyCode::Home => self.skipped = 0,
            _ => {}
        }
        false
    }

    fn seconds(&self) -> f64 {
        self.interval.as_secs_f64()
    }

    /// None: it is the longest or the shortest already.
    fn set_interval(&mut self, seconds: Option<&f64>) {
        if let Some(&seconds) = seconds {
            self.interval = Duration::from_secs_f64(seconds);
        }
    }
}

fn internal() -> Failure {
    Failure::new(
        "the look at the database ended in an internal error, which is told above",
        "please report it",
    )
}
