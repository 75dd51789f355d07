//! Callbacks: busy and progress handler, authorizer, commit, rollback, update, pre-update and WAL hooks, and collations.

use crate::api::{MoreFunctions, RawDb, RawValue};
use crate::connection::Connection;
use crate::error::Result;
use crate::value::Value;
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

/// One call of the pre-update hook, with everything that it may ask.
#[derive(Clone, Debug, PartialEq)]
pub struct RowBefore {
    /// What is about to happen.
    pub change: RowChange,
    /// Rowid after the change.
    pub rowid_after: i64,
    /// 0 for the statement itself, more for its triggers.
    pub depth: i32,
    /// The column that an incremental blob is written to, or -1.
    pub blob_column: i32,
    /// The row as it is, but for an insert; codes for columns that cannot be asked for.
    pub old: Vec<std::result::Result<Value, c_int>>,
    /// The row as it will be, but for a delete.
    pub new: Vec<std::result::Result<Value, c_int>>,
}

type BusyHandler = Box<dyn FnMut(i32) -> bool + Send>;
type Authorizer = Box<dyn FnMut(c_int, [Option<String>; 4]) -> c_int + Send>;
type CommitHook = Box<dyn FnMut() -> bool + Send>;
type RollbackHook = Box<dyn FnMut() + Send>;
type ChangeHook = Box<dyn FnMut(RowChange) + Send>;
type Called = Box<dyn FnMut() + Send>;
type AutovacuumHook = Box<dyn FnMut(u32, u32, u32) -> u32 + Send>;
type WalHook = Box<dyn FnMut(i32) -> i32 + Send>;
type PreupdateHook = Box<dyn FnMut(*mut RawDb, RowChange, i64) + Send>;

/// Closures that SQLite holds pointers to. Boxed twice: the outer box gives a thin, stable address.
#[derive(Default)]
#[allow(clippy::box_collection, clippy::redundant_allocation)]
pub(crate) struct Hooks {
    busy: Option<Box<BusyHandler>>,
    progress: Option<Box<CommitHook>>,
    authorizer: Option<Box<Authorizer>>,
    commit: Option<Box<CommitHook>>,
    rollback: Option<Box<RollbackHook>>,
    update: Option<Box<ChangeHook>>,
    preupdate: Option<Box<PreupdateHook>>,
    autovacuum: Option<Box<AutovacuumHook>>,
    wal: Option<Box<WalHook>>,
    called: Option<Box<Called>>,
}

unsafe extern "C" fn call_busy(context: *mut c_void, prior: c_int) -> c_int {
    // SAFETY: registered together with a pointer to this type, which the connection keeps alive.
    let handler = unsafe { &mut *context.cast::<BusyHandler>() };
    c_int::from(handler(prior))
}

unsafe extern "C" fn call_authorizer(
    context: *mut c_void,
    action: c_int,
    first: *const c_char,
    second: *const c_char,
    schema: *const c_char,
    within: *const c_char,
) -> c_int {
    let text = |text: *const c_char| {
        // SAFETY: SQLite passes NUL-terminated texts, or none.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    // SAFETY: registered together with a pointer to this type, which the connection keeps alive.
    let authorizer = unsafe { &mut *context.cast::<Authorizer>() };
    authorizer(action, [first, second, schema, within].map(text))
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
    db: *mut RawDb,
    kind: c_int,
    _schema: *const c_char,
    table: *const c_char,
    rowid_before: i64,
    rowid_after: i64,
) {
    // SAFETY: registered together with a pointer to this type, which the connection keeps alive.
    let hook = unsafe { &mut *context.cast::<PreupdateHook>() };
    // SAFETY: SQLite passes a NUL-terminated name.
    let table = unsafe { CStr::from_ptr(table) }.to_string_lossy().into_owned();
    let change = RowChange { kind: ChangeKind::from_code(kind), table, rowid: rowid_before };
    hook(db, change, rowid_after);
}

unsafe extern "C" fn call_wal(
    context: *mut c_void,
    _db: *mut RawDb,
    _schema: *const c_char,
    frames: c_int,
) -> c_int {
    // SAFETY: registered together with a pointer to this type, which the connection keeps alive.
    let hook = unsafe { &mut *context.cast::<WalHook>() };
    hook(frames)
}

unsafe extern "C" fn call_autovacuum(
    context: *mut c_void,
    _schema: *const c_char,
    pages: u32,
    free: u32,
    page_bytes: u32,
) -> u32 {
    // SAFETY: registered together with a pointer to this type, which the connection keeps alive.
    let hook = unsafe { &mut *context.cast::<AutovacuumHook>() };
    hook(pages, free, page_bytes)
}

/// A value that is only valid while the hook runs.
fn value_of(functions: &MoreFunctions, value: *mut RawValue) -> Value {
    // SAFETY: SQLite has just given the value, which is protected; the type is asked before anything that could convert it.
    match unsafe { (functions.value_type)(value) } {
        // SAFETY: as above.
        1 => Value::Integer(unsafe { (functions.value_int64)(value) }),
        // SAFETY: as above.
        2 => Value::Real(unsafe { (functions.value_double)(value) }),
        5 => Value::Null,
        kind => {
            // SAFETY: as above; of a text these are its bytes.
            let bytes = unsafe { (functions.value_blob)(value) };
            // SAFETY: asked right after the bytes, so no conversion happens between.
            let length = usize::try_from(unsafe { (functions.value_bytes)(value) });
            let length = length.expect("a length is not negative");
            let bytes = if bytes.is_null() {
                Vec::new()
            } else {
                // SAFETY: SQLite guarantees `length` bytes there until the hook returns.
                unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) }.to_vec()
            };
            if kind == 3 { Value::Text(bytes) } else { Value::Blob(bytes) }
        }
    }
}

/// Asks everything that a pre-update hook may ask.
fn row_before(
    functions: &MoreFunctions,
    db: *mut RawDb,
    change: RowChange,
    after: i64,
) -> RowBefore {
    type Ask = unsafe extern "C" fn(*mut RawDb, c_int, *mut *mut RawValue) -> c_int;
    // SAFETY: called from within the hook, where SQLite allows it.
    let columns = unsafe { (functions.preupdate_count)(db) };
    let row = |ask: Ask| -> Vec<std::result::Result<Value, c_int>> {
        let column = |index| {
            let mut value = ptr::null_mut();
            // SAFETY: called from within the hook, with a column that is there and a place for the result.
            let code = unsafe { ask(db, index, &raw mut value) };
            if code == 0 { Ok(value_of(functions, value)) } else { Err(code) }
        };
        (0..columns).map(column).collect()
    };
    RowBefore {
        old: if change.kind == ChangeKind::Insert {
            Vec::new()
        } else {
            row(functions.preupdate_old)
        },
        new: if change.kind == ChangeKind::Delete {
            Vec::new()
        } else {
            row(functions.preupdate_new)
        },
        rowid_after: after,
        // SAFETY: called from within the hook.
        depth: unsafe { (functions.preupdate_depth)(db) },
        // SAFETY: called from within the hook.
        blob_column: unsafe { (functions.preupdate_blobwrite)(db) },
        change,
    }
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

unsafe extern "C" fn compare_and_call(
    context: *mut c_void,
    left_length: c_int,
    left: *const c_void,
    right_length: c_int,
    right: *const c_void,
) -> c_int {
    // SAFETY: registered together with a pointer to this type, which the connection keeps alive.
    let called = unsafe { &mut *context.cast::<Called>() };
    called();
    // SAFETY: the arguments are those that SQLite gave, the other way round.
    unsafe { compare_reversed(ptr::null_mut(), right_length, right, left_length, left) }
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

    /// Sets the progress handler, asked after each instruction; false interrupts. `None` takes it away.
    pub fn progress_handler<F: FnMut() -> bool + Send + 'static>(&self, handler: Option<F>) {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<CommitHook>> =
            handler.map(|handler| -> Box<CommitHook> { Box::new(Box::new(handler)) });
        let context = context_of(&mut slot);
        let call = slot.as_ref().map(|_| call_commit as _);
        // SAFETY: the context is of the type that `call_commit` expects and lives until it is replaced below.
        unsafe { (self.more().progress_handler)(self.inner.raw, 1, call, context) };
        hooks.progress = slot;
    }

    /// Sets the authorizer: it gets an action and what SQLite says of it, and answers with a code.
    pub fn authorizer(
        &self,
        authorizer: impl FnMut(i32, [Option<String>; 4]) -> i32 + Send + 'static,
    ) -> Result<()> {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<Authorizer>> = Some(Box::new(Box::new(authorizer)));
        let context = context_of(&mut slot);
        // SAFETY: the context is of the type that `call_authorizer` expects and lives until it is replaced below.
        let code =
            unsafe { (self.more().set_authorizer)(self.inner.raw, Some(call_authorizer), context) };
        hooks.authorizer = slot;
        self.check(code, "set_authorizer")
    }

    /// Sets the commit hook; false turns the commit into a rollback.
    pub fn commit_hook(&self, hook: impl FnMut() -> bool + Send + 'static) {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<CommitHook>> = Some(Box::new(Box::new(hook)));
        let context = context_of(&mut slot);
        // SAFETY: the context is of the type that `call_commit` expects and lives until it is replaced below.
        unsafe { (self.more().commit_hook)(self.inner.raw, Some(call_commit), context) };
        hooks.commit = slot;
    }

    /// Sets the rollback hook.
    pub fn rollback_hook(&self, hook: impl FnMut() + Send + 'static) {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<RollbackHook>> = Some(Box::new(Box::new(hook)));
        let context = context_of(&mut slot);
        // SAFETY: the context is of the type that `call_rollback` expects and lives until it is replaced below.
        unsafe { (self.more().rollback_hook)(self.inner.raw, Some(call_rollback), context) };
        hooks.rollback = slot;
    }

    /// Sets the update hook.
    pub fn update_hook(&self, hook: impl FnMut(RowChange) + Send + 'static) {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<ChangeHook>> = Some(Box::new(Box::new(hook)));
        let context = context_of(&mut slot);
        // SAFETY: the context is of the type that `call_update` expects and lives until it is replaced below.
        unsafe { (self.more().update_hook)(self.inner.raw, Some(call_update), context) };
        hooks.update = slot;
    }

    /// Sets the pre-update hook.
    pub fn preupdate_hook(&self, mut hook: impl FnMut(RowBefore) + Send + 'static) {
        let functions = self.more();
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<PreupdateHook>> =
            Some(Box::new(Box::new(move |db, change, after| {
                hook(row_before(functions, db, change, after));
            })));
        let context = context_of(&mut slot);
        // SAFETY: the context is of the type that `call_preupdate` expects and lives until it is replaced below.
        unsafe { (self.more().preupdate_hook)(self.inner.raw, Some(call_preupdate), context) };
        hooks.preupdate = slot;
    }

    /// Sets the hook of `sqlite3_wal_hook`: it gets the frames in the WAL after a commit, and answers with a result code.
    pub fn wal_hook(&self, hook: impl FnMut(i32) -> i32 + Send + 'static) {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<WalHook>> = Some(Box::new(Box::new(hook)));
        let context = context_of(&mut slot);
        // SAFETY: the context is of the type that `call_wal` expects and lives until it is replaced below.
        unsafe { (self.more().wal_hook)(self.inner.raw, Some(call_wal), context) };
        hooks.wal = slot;
    }

    /// Whether `sqlite3_snapshot_get` gives an object for the open read transaction.
    pub fn has_snapshot_object(&self) -> Result<()> {
        let mut snapshot = ptr::null_mut();
        // SAFETY: the connection is open and `snapshot` is a valid place for the result.
        let code = unsafe {
            let name = c"main".as_ptr();
            (self.more().snapshot_get)(self.inner.raw, name, &raw mut snapshot)
        };
        if !snapshot.is_null() {
            // SAFETY: the object was made just above and is not used any more.
            unsafe { (self.more().snapshot_free)(snapshot) };
        }
        self.check(code, "snapshot_get")
    }

    /// Sets the callback of `sqlite3_autovacuum_pages`: it gets pages, free pages and the size of a page.
    pub fn autovacuum_pages(
        &self,
        hook: impl FnMut(u32, u32, u32) -> u32 + Send + 'static,
    ) -> Result<()> {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<AutovacuumHook>> = Some(Box::new(Box::new(hook)));
        let context = context_of(&mut slot);
        // SAFETY: the context is of the type that `call_autovacuum` expects and lives until it is replaced below.
        let code = unsafe {
            let call = Some(call_autovacuum as crate::api::AutovacuumFn);
            (self.more().autovacuum_pages)(self.inner.raw, call, context, None)
        };
        hooks.autovacuum = slot;
        self.check(code, "autovacuum_pages")
    }

    /// Registers the collation `called`: BINARY, and each comparison calls `hook`, in the middle of a statement.
    pub fn create_called_collation(&self, hook: impl FnMut() + Send + 'static) -> Result<()> {
        let mut hooks = self.inner.hooks.lock().expect("hooks are set by one thread");
        let mut slot: Option<Box<Called>> = Some(Box::new(Box::new(hook)));
        let context = context_of(&mut slot);
        let compare = Some(compare_and_call as crate::api::CompareFn);
        // SAFETY: the name is NUL-terminated, 1 is UTF-8, and the context lives until it is replaced below.
        let code = unsafe {
            let name = c"called".as_ptr();
            (self.more().create_collation_v2)(self.inner.raw, name, 1, context, compare, None)
        };
        hooks.called = slot;
        self.check(code, "create_collation")
    }

    /// Registers the collation `reversed`: BINARY the other way round, an application's own.
    pub fn create_reversed_collation(&self) -> Result<()> {
        let name = CString::new("reversed").expect("no NUL byte");
        let compare = Some(compare_reversed as crate::api::CompareFn);
        // SAFETY: the name is NUL-terminated, 1 is UTF-8, and the comparison needs no context.
        let code = unsafe {
            (self.more().create_collation_v2)(
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
