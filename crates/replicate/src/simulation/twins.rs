//! Two machines with one name, and copies of one database at one position.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::run::settings;
use super::stage::Stage;
use crate::fault::{Fault, plant};
use crate::restore::Stop;

/// Both make a transaction that changes other pages, at what looks like one place; the first ships
/// its own, and the second one goes on. Returns what is wrong with what is restored then.
fn a_twin_goes_on() -> Option<String> {
    let stage = Stage::default();
    let first = stage.database("alpha");
    let work = |sidecar: &mut _| stage.work(sidecar, Duration::from_secs(5));
    first.borrow_mut().commit(true);
    let mut sidecar = stage.open(&first, settings(false)).expect("an empty place");
    work(&mut sidecar).expect("a quiet world");
    let twin = Rc::new(RefCell::new(first.borrow().twin("beta")));
    first.borrow_mut().exclusive_with(5);
    twin.borrow_mut().exclusive_with(6);
    work(&mut sidecar).expect("a quiet world");
    drop(sidecar);
    let mut second = stage.open(&twin, settings(false)).expect("it passes for the first");
    work(&mut second).expect("a quiet world");
    twin.borrow_mut().commit(true);
    twin.borrow_mut().merge_everything();
    work(&mut second).expect("a quiet world");
    let restored = stage.restore(Stop::Newest);
    restored.err().map(|error| error.to_string()).or_else(|| stage.oracle.violation())
}

// holds SOURCE-5
#[test]
fn a_twin_does_not_go_on_where_the_other_was_and_one_that_does_is_found_out() {
    assert_eq!(a_twin_goes_on(), None);
    plant(Some(Fault::TwinUnseen));
    let wrong = a_twin_goes_on();
    plant(None);
    assert!(wrong.is_some());
}
