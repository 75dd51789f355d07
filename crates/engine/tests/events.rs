//! The queue of events, in a process of its own.

use std::path::Path;
use std::sync::{Arc, Mutex};

use plait_engine::base::{Base, BaseOpener};
use plait_engine::error::{Error, Result};
use plait_engine::events::{self, Event, Kind};
use plait_engine::sync::caller::Uncancelled;

/// Keeps what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<(i32, String)>>);

impl BaseOpener for Told {
    fn open(&self, _path: &Path) -> Result<Box<dyn Base>> {
        Err(Error::Misuse("it only listens".into()))
    }

    fn tell(&self, code: i32, text: &str) {
        self.0.lock().unwrap().push((code, text.to_owned()));
    }
}

impl Told {
    fn take(&self) -> Vec<(i32, String)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

// holds EVENT-1, EVENT-3
#[test]
fn events_are_written_in_their_order_outside_of_calls_and_too_many_are_counted() {
    const SQLITE_NOTICE: i32 = 27;
    const WAITING_MAX: u64 = 256;
    let told = Arc::new(Told::default());
    let opener: Arc<dyn BaseOpener> = told.clone();
    let note = |kind: &'static Kind, n: u64| {
        Event::new(kind, Path::new("/srv/app.db"), &opener, n.to_string()).number("n", n).note();
    };
    assert!(!events::are_waiting());
    note(&events::SESSION_BEGAN, 1);
    note(&events::FAILED, 2);
    assert!(events::are_waiting());
    let call = Uncancelled::begin();
    events::write();
    assert!(events::are_waiting() && told.take().is_empty(), "the call may hold something");
    drop(call);
    events::write();
    assert!(!events::are_waiting());
    let began = "session-began: /srv/app.db: 1 (plait explain session-began)";
    assert_eq!(told.take(), [(SQLITE_NOTICE, began.to_owned())], "SQLite logs the other by itself");
    (0..WAITING_MAX + 3).for_each(|n| note(&events::MEMBER_DIED, n));
    events::write();
    let lines = told.take();
    assert_eq!(lines.len() as u64, WAITING_MAX + 1);
    assert!(lines[7].1.starts_with("member-died: /srv/app.db: 7 ("), "{:?}", lines[7]);
    let last = &lines[lines.len() - 1].1;
    assert!(last.starts_with("events-lost: /srv/app.db: 3 events"), "{last}");
}
