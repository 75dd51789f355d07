//! Stores that keep their promises, and stores that do not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::simulation::dice::Dice;
use crate::store::Later;

/// What a store does about "if there is none of this name".
#[derive(Clone, Copy, PartialEq)]
enum Condition {
    Kept,
    Ignored,
    /// It looks first, and writes later.
    LookedAt,
    /// A moment later it forgets what it has said.
    Lost,
    /// Kept, and so is everything.
    Locked,
}

struct Memory {
    condition: Condition,
    objects: RefCell<BTreeMap<String, Bytes>>,
}

async fn moment() {
    let mut is_first = true;
    poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

impl Store for Memory {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> Later<'a, Result<Created, StoreError>> {
        Box::pin(async move {
            moment().await;
            let is_there = self.objects.borrow().contains_key(name);
            if is_there && self.condition != Condition::Ignored {
                return Ok(Created::Exists);
            }
            if self.condition == Condition::LookedAt {
                moment().await;
            }
            if self.condition != Condition::Lost {
                self.objects.borrow_mut().insert(name.to_owned(), bytes);
            }
            Ok(Created::Made)
        })
    }

    fn get<'a>(&'a self, name: &'a str) -> Later<'a, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move { Ok(self.objects.borrow().get(name).cloned()) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Later<'a, Result<Vec<String>, StoreError>> {
        Box::pin(async move {
            let objects = self.objects.borrow();
            Ok(objects.keys().filter(|name| name.starts_with(prefix)).cloned().collect())
        })
    }

    fn put<'a>(&'a self, name: &'a str, bytes: Bytes) -> Later<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.objects.borrow_mut().insert(name.to_owned(), bytes);
            Ok(())
        })
    }

    fn delete<'a>(&'a self, names: &'a [String]) -> Later<'a, Result<(), StoreError>> {
        Box::pin(async move {
            if self.condition == Condition::Locked {
                return Err(StoreError::Denied("the object is locked".to_owned()));
            }
            self.objects.borrow_mut().retain(|name, _| !names.contains(name));
            Ok(())
        })
    }
}

fn verdict(condition: Condition) -> Verdict {
    let store = Memory { condition, objects: RefCell::default() };
    let dice = Dice::new(1);
    let mut probing = pin!(probe(&store, &dice, 3));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(verdict) = probing.as_mut().poll(&mut context) {
            let is_locked = condition == Condition::Locked;
            assert!(is_locked || store.objects.borrow().is_empty(), "it leaves nothing behind");
            return verdict.expect("the store answers");
        }
    }
}

// holds STORE-1
#[test]
fn a_store_that_keeps_the_condition_is_fit() {
    let verdict = verdict(Condition::Kept);
    assert_eq!((verdict.winners_max, verdict.without_winner), (1, 0));
    verdict.check().expect("it is fit");
}

#[test]
fn a_store_that_deletes_nothing_is_fit_and_says_so() {
    let verdict = verdict(Condition::Locked);
    verdict.check().expect("it fences");
    assert!(verdict.refusal.is_some_and(|why| why.to_string().contains("the object is locked")));
}

#[test]
fn a_store_that_ignores_the_condition_or_looks_before_it_writes_is_refused() {
    for condition in [Condition::Ignored, Condition::LookedAt, Condition::Lost] {
        let refused = verdict(condition).check().expect_err("it is not fit").to_string();
        assert!(refused.contains("let 16 of 16 create one object"), "{refused}");
    }
}

#[test]
fn a_store_that_loses_what_it_has_made_is_refused() {
    let refused = verdict(Condition::Lost).check().expect_err("it is not fit").to_string();
    assert!(refused.contains("not there after it was created"), "{refused}");
}
