//! Callbacks: busy handler, commit, rollback, update, pre-update and WAL hooks, and collations.

use super::api::RawDb;
use super::connection::Connection;
use super::error::Result;
use std::cmp::Ordering;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A row was inserted.
    Insert,
    /// A row was updated.
    Update,
    /// A row was deleted.
    Delete,
}

impl ChangeKind {
    fn from_code(code: c_int) -> Self {
        match code {
            18 => Self::Insert,
            23 => Self::Update,
            9 => Self::Delete,
            other => panic!("unknown kind of change {other}"),
        }
    }
}

/// One call of the update or pre-update hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    /// Insert, update or delete.
    pub kind: ChangeKind,
    /// Table name.
    pub table: String,
    /// Rowid (before the change, for the pre-update hook).
    pub rowid: i64,
}

type BusyHandler = Box<dyn FnMut(i32) -> bool + Send>;
type CommitHook = Box<dyn FnMut() -> bool + Send>;
type RollbackHook = Box<dyn FnMut() + Send>;
type ChangeHook = Box<dyn FnMut(RowChange) + Send>;

/// Closures that SQLite holds pointers to. Boxed twice: the outer box gives a thin, stable address.
#[derive(Default)]
#[allow(clippy::box_collection, clippy::redundant_allocation)]
pub(super) struct Hooks {
    busy: Option<Box<BusyHandler>>,
    commit: Option<Box<CommitHook>>,
    rollback: Option<Box<RollbackHook>>,
    update: Option<Box<ChangeHook>>,
    preupdate: Option<Box<ChangeHook>>,
}

unsafe extern "C" fn call_busy(context: *mut c_void, prior: c_int) -> c_int {
    // SAFETY: registered together with a pointer to this type, which the connection keeps alive.
    let handler = unsafe { &mut *context.cast::<BusyHandler>() };
    c_int::from(handler(prior))
}

unsafe extern "C" fn call_commit(context: *mut c_void) -> c_int {
    // SAFETY: registered together with a pointer to this type, which the connection keeps alive.
    let hook = unsafe { &mut *context.cast::<CommitHook>() };
    c_int::from(!hook())
}

unsafe extern "C" fn call_rollback(context: *mut c_void) {
    // SAFETY: registered together with a pointer to this type, which the connection keeps alive.
    let hook = unsafe { &mut *context.cast::<RollbackHook>() };
    hook();
}

unsafe extern "C" fn call_update(
    context: *mut c_void,
    kind: c_int,
    _schema: *const c_char,
    table: *const c_char,
    rowid: i64,
) {
    // SAFETY: registered together with a pointer to this type, which the connection keeps alive.
    let hook = unsafe { &mut *context.cast::<ChangeHook>() };
    // SAFETY: SQLite passes a NUL-terminated name.
    let table = unsafe { CStr::from_ptr(table) }.to_string_lossy().into_owned();
    hook(RowChange { kind: ChangeKind::from_code(kind), table, rowid });
}

unsafe extern "C" fn call_preupdate(
    context: *mut c_void,
    _db: *mut RawDb,
    kind: c_int,
    _schema: *const c_char,
    table: *const c_char,
    rowid_before: i64,
    _rowid_after: i64,
) {
    // SAFETY: registered together with a pointer to this type, which the connection keeps alive.
    let hook = unsafe { &mut *context.cast::<ChangeHook>() };
    // SAFETY: SQLite passes a NUL-terminated name.
    let table = unsafe { CStr::from_ptr(table) }.to_string_lossy().into_owned();
    hook(RowChange { kind: ChangeKind::from_code(kind), table, rowid: rowid_before });
}

unsafe extern "C" fn compare_reversed(
    _context: *mut c_void,
    left_length: c_int,
    left: *const c_void,
    right_length: c_int,
    right: *const c_void,
) -> c_int {
    let bytes = |text: *const c_void, length: c_int| -> Vec<u8> {
        let length = usize::try_from(length).expect("a length is not negative");
        if length == 0 {
            return Vec::new();
        }
        // SAFETY: SQLite passes `length` readable bytes.
        unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) }.to_vec()
    };
    match bytes(right, right_length).cmp(&bytes(left, left_length)) {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }
}

fn context_of<T>(slot: &mut Option<Box<T>>) -> *mut c_void {
    slot.as_deref_mut().map_or(ptr::null_mut(), |closure| (&raw mut *closure).cast())
}

impl Connection {
    /// Sets the busy handler; it gets the number of earlier calls and says whether to try again.
    pub fn busy_handler(&self, handler: impl FnMut(i32) -> bool + Send + 'static) -> Result<()> {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<BusyHandler>> = Some(Box::new(Box::new(handler)));
        let context = context_of(&mut slot);
        // SAFETY: the context is of the type that `call_busy` expects and lives until it is replaced below.
        let code =
            unsafe { (self.functions().busy_handler)(self.inner.raw, Some(call_busy), context) };
        hooks.busy = slot;
        self.check(code, "busy_handler")
    }

    /// Sets the commit hook; false turns the commit into a rollback.
    pub fn commit_hook(&self, hook: impl FnMut() -> bool + Send + 'static) {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<CommitHook>> = Some(Box::new(Box::new(hook)));
        let context = context_of(&mut slot);
        // SAFETY: the context is of the type that `call_commit` expects and lives until it is replaced below.
        unsafe { (self.functions().commit_hook)(self.inner.raw, Some(call_commit), context) };
        hooks.commit = slot;
    }

    /// Sets the rollback hook.
    pub fn rollback_hook(&self, hook: impl FnMut() + Send + 'static) {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<RollbackHook>> = Some(Box::new(Box::new(hook)));
        let context = context_of(&mut slot);
        // SAFETY: the context is of the type that `call_rollback` expects and lives until it is replaced below.
        unsafe { (self.functions().rollback_hook)(self.inner.raw, Some(call_rollback), context) };
        hooks.rollback = slot;
    }

    /// Sets the update hook.
    pub fn update_hook(&self, hook: impl FnMut(RowChange) + Send + 'static) {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<ChangeHook>> = Some(Box::new(Box::new(hook)));
        let context = context_of(&mut slot);
        // SAFETY: the context is of the type that `call_update` expects and lives until it is replaced below.
        unsafe { (self.functions().update_hook)(self.inner.raw, Some(call_update), context) };
        hooks.update = slot;
    }

    /// Sets the pre-update hook.
    pub fn preupdate_hook(&self, hook: impl FnMut(RowChange) + Send + 'static) {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<ChangeHook>> = Some(Box::new(Box::new(hook)));
        let context = context_of(&mut slot);
        // SAFETY: the context is of the type that `call_preupdate` expects and lives until it is replaced below.
        unsafe { (self.functions().preupdate_hook)(self.inner.raw, Some(call_preupdate), context) };
        hooks.preupdate = slot;
    }

    /// Registers the collation `reversed`: BINARY the other way round, an application's own.
    pub fn create_reversed_collation(&self) -> Result<()> {
        let name = CString::new("reversed").expect("no NUL byte");
        let compare = Some(compare_reversed as super::api::CompareFn);
        // SAFETY: the name is NUL-terminated, 1 is UTF-8, and the comparison needs no context.
        let code = unsafe {
            (self.functions().create_collation_v2)(
                self.inner.raw,
                name.as_ptr(),
                1,
                ptr::null_mut(),
                compare,
                None,
            )
        };
        self.check(code, "create_collation")
    }
}
