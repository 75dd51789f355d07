//! What the state machines of this crate have of the world: a store, a clock, and chance.
//!
//! They are `async` functions that await nothing else, but for threads that compute (`parts.rs`), of which a simulation
//! has none. So it owns every moment at which one of them stands still, and may drop it there, as a kill does.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, Result, line};
use crate::store::{Backoff, Created, Later, Store, StoreError};

/// Time. The monotonic clock decides when something is done, never whether it is safe; the other
/// is only written down.
pub trait Clock {
    /// Time since some moment.
    fn now(&self) -> Duration;

    /// Milliseconds since 1970.
    fn wall_ms(&self) -> u64;

    /// Waits.
    fn sleep(&self, time: Duration) -> Later<'_, ()>;
}

/// Chance.
pub trait Random {
    /// Returns a number.
    fn number(&self) -> u64;

    /// Returns a number below `bound`, which is not 0.
    fn below(&self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// Returns a name that nobody else has.
    fn name(&self) -> [u8; 16] {
        let (high, low) = (self.number(), self.number());
        (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
    }
}

/// Requests so far, by what stores charge for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// `create`, `put` and `list`: the dear ones.
    pub writes: u64,
    /// `get`.
    pub reads: u64,
    /// `delete`: free with most.
    pub deletes: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Bytes that were received.
    pub received_bytes: u64,
}

/// What follows where the store refuses to delete something.
pub const STAYS: &str = "what nobody needs any more stays there, and is asked for again once an hour: everything is shipped as ever";

/// A call that has failed and is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// In words.
    pub what: String,
    /// Since when, by the monotonic clock, no call has succeeded.
    pub since: Duration,
}

/// How often a call is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Until it succeeds.
    Endless,
    /// So many times.
    Tries(u32),
}

/// The world of one machine.
#[derive(Clone)]
pub struct World {
    store: Rc<dyn Store>,
    clock: Rc<dyn Clock>,
    random: Rc<dyn Random>,
    patience: Patience,
    requests: Rc<Cell<Requests>>,
    trouble: Rc<RefCell<Option<Trouble>>>,
    unrestorable: Rc<Cell<Option<Duration>>>,
    lost: Rc<RefCell<Option<String>>>,
    snapshot_trouble: Rc<RefCell<Option<Trouble>>>,
    refusal: Rc<RefCell<Refusal>>,
    /// Objects that are not asked for.
    silent: Rc<BTreeSet<String>>,
}

/// Why an object is refused that the store does not answer for.
const SILENT: &str = "it has not answered for this object in ten minutes, and does for others";

/// Whether the store refuses deletions.
#[derive(Debug, Default, PartialEq, Eq)]
struct Refusal {
    /// Kinds so far, and what followed.
    kinds: Vec<(Discriminant<StoreError>, &'static str)>,
    /// What was not told yet.
    new: VecDeque<String>,
    /// An object was made since.
    ships: bool,
}

impl World {
    /// Puts a world together.
    pub fn new(
        store: Rc<dyn Store>,
        clock: Rc<dyn Clock>,
        random: Rc<dyn Random>,
        patience: Patience,
    ) -> World {
        World {
            store,
            clock,
            random,
            patience,
            requests: Rc::default(),
            trouble: Rc::default(),
            unrestorable: Rc::default(),
            lost: Rc::default(),
            snapshot_trouble: Rc::default(),
            refusal: Rc::default(),
            silent: Rc::default(),
        }
    }

    /// The same world with another patience.
    #[must_use]
    pub fn with(&self, patience: Patience) -> World {
        World { patience, ..self.clone() }
    }

    /// Calls are tried until they succeed.
    pub fn is_endless(&self) -> bool {
        self.patience == Patience::Endless
    }

    /// The same world without objects that the store does not answer for: whoever reads one is refused, as by an archive, and
    /// leads around it.
    #[must_use]
    pub fn without(&self, silent: &BTreeSet<String>) -> World {
        World { silent: Rc::new(silent.clone()), ..self.clone() }
    }

    fn refuse_silent(&self, name: &str) -> Result<()> {
        if !self.silent.contains(name) {
            return Ok(());
        }
        let error = StoreError::Failed(SILENT.to_owned());
        Err(Error::Store { what: "read".to_owned(), name: name.to_owned(), error })
    }

    /// The clock.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Chance.
    pub fn random(&self) -> &dyn Random {
        &*self.random
    }

    /// Requests so far.
    pub fn requests(&self) -> Requests {
        self.requests.get()
    }

    /// What is in the way, if the last call has failed.
    pub fn trouble(&self) -> Option<Trouble> {
        self.trouble.borrow().clone()
    }

    fn count(&self, add: impl FnOnce(&mut Requests)) {
        let mut requests = self.requests.get();
        add(&mut requests);
        self.requests.set(requests);
    }

    /// Remembers how a call has ended.
    fn note<T>(&self, what: &str, name: &str, answer: Result<T, StoreError>) -> Result<T> {
        match answer {
            Ok(value) => {
                *self.trouble.borrow_mut() = None;
                Ok(value)
            }
            Err(error) => {
                let error = Error::Store { what: what.to_owned(), name: name.to_owned(), error };
                self.note_trouble(&error);
                Err(error)
            }
        }
    }

    /// Remembers what is in the way.
    pub fn note_trouble(&self, error: &Error) {
        let mut trouble = self.trouble.borrow_mut();
        let since = trouble.as_ref().map_or(self.clock.now(), |trouble| trouble.since);
        *trouble = Some(Trouble { what: error.to_string(), since });
    }

    /// Remembers whether what was shipped last can be restored.
    pub fn note_restorable(&self, is_restorable: bool) {
        let since = self.unrestorable.get().unwrap_or_else(|| self.clock.now());
        self.unrestorable.set((!is_restorable).then_some(since));
    }

    /// Remembers what the place has lost of the newest snapshot.
    pub fn note_lost(&self, lost: Option<&str>) {
        if self.lost.borrow().as_deref() != lost {
            *self.lost.borrow_mut() = lost.map(str::to_owned);
        }
    }

    /// What the place has lost of the newest snapshot, if it has.
    pub fn lost(&self) -> Option<String> {
        self.lost.borrow().clone()
    }

    /// Remembers why no snapshot can be begun, until one is.
    pub fn note_snapshot_trouble(&self, why: Option<String>) {
        let mut trouble = self.snapshot_trouble.borrow_mut();
        let since = trouble.as_ref().map_or(self.clock.now(), |trouble| trouble.since);
        *trouble = why.map(|what| Trouble { what, since });
    }

    /// Why no snapshot can be begun, if none can.
    pub fn snapshot_trouble(&self) -> Option<Trouble> {
        self.snapshot_trouble.borrow().clone()
    }

    /// Since when what was shipped last cannot be restored, if it cannot.
    pub fn unrestorable_since(&self) -> Option<Duration> {
        self.unrestorable.get()
    }

    /// Nothing is in the way any more.
    pub fn note_no_trouble(&self) {
        *self.trouble.borrow_mut() = None;
    }

    /// Tries to make an object, once (STORE-4).
    ///
    /// # Errors
    /// [`Error::Store`]: nobody knows whether it has happened.
    pub async fn try_create(&self, name: &str, bytes: &Bytes) -> Result<Created> {
        self.count(|requests| {
            requests.writes += 1;
            requests.sent_bytes += bytes.len() as u64;
        });
        let answer = self.store.create(name, bytes.clone()).await;
        self.refusal.borrow_mut().ships |= answer == Ok(Created::Made);
        self.note("create", name, answer)
    }

    /// Tries to write an object, once.
    ///
    /// # Errors
    /// As [`World::try_create`].
    pub async fn try_put(&self, name: &str, bytes: &Bytes) -> Result<()> {
        self.count(|requests| {
            requests.writes += 1;
            requests.sent_bytes += bytes.len() as u64;
        });
        let answer = self.store.put(name, bytes.clone()).await;
        self.note("write", name, answer)
    }

    /// Objects that [`World::try_delete`] removes by one request, at most.
    pub fn deletes_at_once(&self) -> usize {
        self.store.deletes_at_once()
    }

    /// Tries to delete objects, once: as many as one request removes. A store that refuses is no trouble: nothing is in
    /// the way of shipping.
    ///
    /// # Errors
    /// As [`World::try_create`], for each of them.
    pub async fn try_delete(&self, names: &[String]) -> Result<()> {
        self.count(|requests| requests.deletes += 1);
        let answer = self.store.delete(names).await;
        let name = names.first().map_or("", |name| name);
        match answer {
            Err(error) if error.is_refusal() => {
                let refused =
                    Error::Store { what: "delete".to_owned(), name: name.to_owned(), error };
                self.note_refusal(&refused, STAYS);
                Err(refused)
            }
            answer => self.note("delete", name, answer),
        }
    }

    /// Remembers that something is refused, which is in nobody's way, and what follows from that, in words.
    pub fn note_refusal(&self, error: &Error, then: &'static str) {
        let Error::Store { error: of, .. } = error else { return };
        let mut refusal = self.refusal.borrow_mut();
        // Each object, and each request, has other words.
        let kind = (discriminant(of), then);
        if !refusal.kinds.contains(&kind) {
            refusal.kinds.push(kind);
            refusal.new.push_back(format!("{}; {then}", line(&error.to_string())));
            refusal.ships = false;
        }
    }

    /// What is refused, once for each kind of reason and what follows from it; and not before an object was made since:
    /// who may not create either has that trouble first.
    pub fn take_refusal(&self) -> Option<String> {
        let mut refusal = self.refusal.borrow_mut();
        if refusal.ships { refusal.new.pop_front() } else { None }
    }

    /// Tries to read an object, once; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn try_get(&self, name: &str) -> Result<Option<Bytes>> {
        self.count(|requests| requests.reads += 1);
        let answer = self.store.get(name).await;
        if let Ok(Some(bytes)) = &answer {
            self.count(|requests| requests.received_bytes += bytes.len() as u64);
        }
        self.note("read", name, answer)
    }

    /// Reads the beginning of an object, with patience; `None` if there is none.
    ///
    /// # Errors
    /// As [`World::get`].
    pub async fn beginning(&self, name: &str, bytes: usize) -> Result<Option<Bytes>> {
        self.refuse_silent(name)?;
        let mut backoff = Backoff::default();
        loop {
            self.count(|requests| requests.reads += 1);
            let answer = self.store.beginning(name, bytes).await;
            match self.note("read", name, answer) {
                Ok(found) => return Ok(found),
                Err(error) => self.pause(&mut backoff, error).await?,
            }
        }
    }

    /// Reads an object, with patience; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Store`], where patience has an end.
    pub async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        self.refuse_silent(name)?;
        let mut backoff = Backoff::default();
        loop {
            match self.try_get(name).await {
                Ok(found) => return Ok(found),
                Err(error) => self.pause(&mut backoff, error).await?,
            }
        }
    }

    /// Returns the names with a prefix, with patience.
    ///
    /// # Errors
    /// As [`World::get`].
    pub async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut backoff = Backoff::default();
        loop {
            self.count(|requests| requests.writes += 1);
            let answer = self.store.list(prefix).await;
            match self.note("list", prefix, answer) {
                Ok(names) => return Ok(names),
                Err(error) => self.pause(&mut backoff, error).await?,
            }
        }
    }

    /// Writes an object, with patience.
    ///
    /// # Errors
    /// As [`World::get`].
    pub async fn put(&self, name: &str, bytes: &Bytes) -> Result<()> {
        let mut backoff = Backoff::default();
        loop {
            match self.try_put(name, bytes).await {
                Ok(()) => return Ok(()),
                Err(error) => self.pause(&mut backoff, error).await?,
            }
        }
    }

    /// Waits before the next try. What is not there does not come by a few tries.
    ///
    /// # Errors
    /// The error that made it necessary, when patience is at its end.
    pub async fn pause(&self, backoff: &mut Backoff, error: Error) -> Result<()> {
        if let Patience::Tries(tries) = self.patience
            && (backoff.tries() + 1 >= tries || error.is_gone())
        {
            return Err(error);
        }
        let pause = backoff.next(self.random());
        self.clock.sleep(pause).await;
        Ok(())
    }
}
