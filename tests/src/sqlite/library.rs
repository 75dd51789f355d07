//! A loaded library, and opening databases with it.

use super::api::{self, Functions, Loaded};
use super::connection::{Connection, OpenFlags};
use super::error::Result;
use anyhow::Context as _;
use std::ffi::CStr;
use std::path::Path;

/// A `libsqlite3` loaded by path. Copies are handles on the same loaded object.
#[derive(Clone, Copy)]
pub struct Library(pub(super) &'static Loaded);

impl Library {
    /// Loads the shared object at `path`; loading the same path again gives the same library.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let loaded = api::load(path)
            .with_context(|| format!("cannot load the SQLite library {}", path.display()))?;
        Ok(Self(loaded))
    }

    /// Where it was loaded from.
    #[must_use]
    pub fn path(&self) -> &'static Path {
        &self.0.path
    }

    pub(super) fn functions(self) -> &'static Functions {
        &self.0.functions
    }

    /// `sqlite3_libversion()`, for example `3.54.1`.
    #[must_use]
    pub fn version(&self) -> String {
        // SAFETY: the function takes nothing and returns a static string.
        let text = unsafe { (self.functions().libversion)() };
        // SAFETY: that string is NUL-terminated and never freed.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// `sqlite3_sourceid()`.
    #[must_use]
    pub fn source_id(&self) -> String {
        // SAFETY: the function takes nothing and returns a static string.
        let text = unsafe { (self.functions().sourceid)() };
        // SAFETY: that string is NUL-terminated and never freed.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Every compile option as `sqlite3_compileoption_get` lists it.
    #[must_use]
    pub fn compile_options(&self) -> Vec<String> {
        let mut options = Vec::new();
        for index in 0.. {
            // SAFETY: any index is allowed; past the end the result is null.
            let text = unsafe { (self.functions().compileoption_get)(index) };
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
        let code = unsafe { (self.functions().config)(SINGLETHREAD) };
        assert_eq!(code, 0, "it is in use already");
    }

    /// `sqlite3_auto_extension()`: called for every connection that this process opens with the library from now on.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn register_automatic_extension(&self, extension: api::ExtensionFn) {
        // SAFETY: it is called with a connection, a place for a message and the table of functions.
        let code = unsafe { (self.functions().auto_extension)(Some(extension)) };
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
        let default = unsafe { (self.functions().vfs_find)(std::ptr::null()) };
        // SAFETY: the default VFS is one of version 3, whose fields are plain.
        let mut vfs = Box::new(unsafe { *default });
        vfs.next = std::ptr::null_mut();
        vfs.name = name.as_ptr();
        // SAFETY: the structure and its name are never freed.
        let code = unsafe { (self.functions().vfs_register)(Box::leak(vfs), is_default.into()) };
        assert_eq!(code, 0, "the VFS cannot be registered");
    }

    /// Opens a database for reading and writing, creating it if it is not there.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Connection> {
        Connection::open(*self, path.as_ref(), OpenFlags::ReadWriteCreate)
    }

    /// Opens a database in a given way.
    pub fn open_with(&self, path: impl AsRef<Path>, flags: OpenFlags) -> Result<Connection> {
        Connection::open(*self, path.as_ref(), flags)
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.path().display(), self.version())
    }
}
