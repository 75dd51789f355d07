//! A library, and opening databases with it.

use crate::api::{self, Loaded, MoreFunctions};
use crate::connection::{Connection, OpenFlags, text};
use crate::error::Result;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::path::Path;

/// A `libsqlite3`. Copies are handles on the same one.
#[derive(Clone, Copy)]
pub struct Library(pub(crate) &'static Loaded);

/// A library could not be loaded, or is not one of SQLite's interface.
#[derive(Debug)]
pub struct LoadError(String);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

impl Library {
    /// Loads the shared object at `path`; loading the same path again gives the same library.
    pub fn load(path: &Path) -> std::result::Result<Self, LoadError> {
        api::load(path).map(Self).map_err(|error| {
            LoadError(format!("cannot load the SQLite library {}: {error}", path.display()))
        })
    }

    /// The one that the program is linked with, which has to be Plait's.
    #[must_use]
    #[inline]
    pub fn linked() -> Self {
        Self(api::linked())
    }

    /// Where it was loaded from; empty if it is linked.
    #[must_use]
    pub fn path(&self) -> &'static Path {
        &self.0.path
    }

    /// Whether it has the key-value interface and the tickets of `plait.h`.
    #[must_use]
    pub fn has_maps(&self) -> bool {
        self.0.maps.is_some()
    }

    /// A symbol of the shared object that is none of SQLite's, if it has it.
    ///
    /// # Safety
    /// It has this type.
    #[must_use]
    pub unsafe fn symbol<T: Copy>(&self, name: &CStr) -> Option<T> {
        // SAFETY: the caller's contract.
        unsafe { self.0.symbol(name) }
    }

    pub(crate) fn more(self) -> &'static MoreFunctions {
        self.0
            .more
            .as_ref()
            .expect("the library is today's SQLite, with all that is built into it here")
    }

    /// `sqlite3_libversion()`, for example `3.54.1`.
    #[must_use]
    pub fn version(&self) -> String {
        // SAFETY: the function takes nothing and returns a static string.
        let version = unsafe { (self.0.functions.libversion)() };
        // SAFETY: as above.
        unsafe { text(version) }
    }

    /// `sqlite3_sourceid()`.
    #[must_use]
    pub fn source_id(&self) -> String {
        // SAFETY: the function takes nothing and returns a static string.
        let id = unsafe { (self.0.functions.sourceid)() };
        // SAFETY: as above.
        unsafe { text(id) }
    }

    /// Bytes that all of it has allocated at this moment.
    #[must_use]
    pub fn memory_used(&self) -> i64 {
        // SAFETY: the function takes nothing.
        unsafe { (self.more().memory_used)() }
    }

    /// Every compile option as `sqlite3_compileoption_get` lists it.
    #[must_use]
    pub fn compile_options(&self) -> Vec<String> {
        let mut options = Vec::new();
        for index in 0.. {
            // SAFETY: any index is allowed; past the end the result is null.
            let text = unsafe { (self.more().compileoption_get)(index) };
            if text.is_null() {
                break;
            }
            // SAFETY: the string is static and NUL-terminated.
            let text = unsafe { CStr::from_ptr(text) };
            options.push(text.to_string_lossy().into_owned());
        }
        options
    }

    /// Configures it for a program that has one thread; before anything is opened with it.
    ///
    /// # Panics
    /// If it is in use already.
    pub fn configure_for_one_thread(&self) {
        const SINGLETHREAD: i32 = 1;
        // SAFETY: this option takes no further arguments.
        let code = unsafe { (self.more().config)(SINGLETHREAD) };
        assert_eq!(code, 0, "it is in use already");
    }

    /// `SQLITE_CONFIG_LOG`: what is called with each line of the error log, its code and its text; before anything is opened with it.
    ///
    /// # Panics
    /// If it is in use already, or is linked.
    pub fn log_to(&self, log: unsafe extern "C" fn(*mut c_void, c_int, *const c_char)) {
        type Config = unsafe extern "C" fn(c_int, ...) -> c_int;
        const LOG: c_int = 16;
        // SAFETY: SQLite's function of this name has this type.
        let config: Option<Config> = unsafe { self.symbol(c"sqlite3_config") };
        let config = config.expect("a shared object");
        // SAFETY: this option takes a function and its first argument.
        let code = unsafe { config(LOG, log, std::ptr::null_mut::<c_void>()) };
        assert_eq!(code, 0, "it is in use already");
    }

    /// `sqlite3_auto_extension()`: called for every connection that this process opens with the library from now on.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn register_automatic_extension(&self, extension: api::ExtensionFn) {
        // SAFETY: it is called with a connection, a place for a message and the table of functions.
        let code = unsafe { (self.more().auto_extension)(Some(extension)) };
        assert_eq!(code, 0, "out of memory");
    }

    /// Registers a VFS of this name that does what the default one does, with its files.
    ///
    /// # Panics
    /// If it cannot be registered.
    pub fn register_forwarding_vfs(&self, name: &'static CStr) {
        self.register_forwarding(name, false);
    }

    /// Registers one that becomes the default.
    ///
    /// # Panics
    /// If it cannot be registered.
    pub fn register_forwarding_default_vfs(&self, name: &'static CStr) {
        self.register_forwarding(name, true);
    }

    fn register_forwarding(&self, name: &'static CStr, is_default: bool) {
        // SAFETY: null asks for the default VFS, which lives as long as the library.
        let default = unsafe { (self.more().vfs_find)(std::ptr::null()) };
        // SAFETY: the default VFS is one of version 3, whose fields are plain.
        let mut vfs = Box::new(unsafe { *default });
        vfs.next = std::ptr::null_mut();
        vfs.name = name.as_ptr();
        // SAFETY: the structure and its name are never freed.
        let code = unsafe { (self.more().vfs_register)(Box::leak(vfs), is_default.into()) };
        assert_eq!(code, 0, "the VFS cannot be registered");
    }

    /// Opens a database for reading and writing, creating it if it is not there.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Connection> {
        self.open_with(path, OpenFlags::ReadWriteCreate)
    }

    /// Opens a database in a given way.
    pub fn open_with(&self, path: impl AsRef<Path>, flags: OpenFlags) -> Result<Connection> {
        Connection::open(*self, path.as_ref(), flags.bits())
    }

    /// As [`Library::open_with`], and SQLite locks nothing for threads (`SQLITE_OPEN_NOMUTEX`).
    ///
    /// # Safety
    /// The connection and what is made from it are used by one thread at a time.
    pub unsafe fn open_without_mutex(
        &self,
        path: impl AsRef<Path>,
        flags: OpenFlags,
    ) -> Result<Connection> {
        const NOMUTEX: c_int = 0x8000;
        Connection::open(*self, path.as_ref(), flags.bits() | NOMUTEX)
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path().display(), self.version())
    }
}
