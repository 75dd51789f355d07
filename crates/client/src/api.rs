//! The functions of one library, found by name in a shared object, or linked.
//!
//! Several libraries may be loaded in one process: each is opened with `RTLD_LOCAL`, so their symbols neither mix with each other nor with those
//! that the program is linked with.

use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use libloading::os::unix::{Library as Object, RTLD_LOCAL, RTLD_NOW};

pub use plait_raw::*;

/// One library. A loaded one stays loaded to the end of the process: connections point into it.
pub struct Loaded {
    pub functions: Functions,
    /// Not there in libraries that are old, or built without them.
    pub more: Option<MoreFunctions>,
    /// Not there in libraries of others.
    pub maps: Option<MapFunctions>,
    /// Empty for the one that is linked.
    pub path: PathBuf,
    object: Option<Object>,
}

impl Loaded {
    /// A symbol of the shared object that is none of SQLite's.
    ///
    /// # Safety
    /// It has this type.
    pub unsafe fn symbol<T: Copy>(&self, name: &CStr) -> Option<T> {
        // SAFETY: the caller's contract.
        let symbol = unsafe { self.object.as_ref()?.get::<T>(name.to_bytes_with_nul()) };
        symbol.ok().map(|symbol| *symbol)
    }
}

static LOADED: Mutex<Vec<&'static Loaded>> = Mutex::new(Vec::new());

/// Loads a library once per path and process.
pub fn load(path: &Path) -> Result<&'static Loaded, libloading::Error> {
    let mut loaded = LOADED.lock().expect("nothing panics while a library loads");
    if let Some(found) = loaded.iter().find(|candidate| candidate.path == path) {
        return Ok(found);
    }
    // SAFETY: libsqlite3 runs no initialisers that could be unsound; the handle is kept for the life of the process.
    let object = unsafe { Object::open(Some(path), RTLD_NOW | RTLD_LOCAL) }?;
    let find = |name: &CStr| {
        // SAFETY: the address of whatever has that name, which is not looked at.
        unsafe { object.get::<*const c_void>(name.to_bytes_with_nul()) }.map(|found| *found)
    };
    // SAFETY: a libsqlite3, which is kept.
    let functions = unsafe { Functions::found(find) }?;
    // SAFETY: as above.
    let more = unsafe { MoreFunctions::found(find) }.ok();
    // SAFETY: as above.
    let maps = unsafe { MapFunctions::found(find) }.ok();
    let entry: &'static Loaded = Box::leak(Box::new(Loaded {
        functions,
        more,
        maps,
        path: path.to_owned(),
        object: Some(object),
    }));
    loaded.push(entry);
    Ok(entry)
}

/// The library that the program is linked with, which is Plait's.
#[inline]
pub fn linked() -> &'static Loaded {
    static LINKED: OnceLock<Loaded> = OnceLock::new();
    LINKED.get_or_init(|| Loaded {
        functions: Functions::linked(),
        more: Some(MoreFunctions::linked()),
        maps: Some(MapFunctions::linked()),
        path: PathBuf::new(),
        object: None,
    })
}
