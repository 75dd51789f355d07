//! The hidden base connection: C callbacks behind the engine's [`Base`] trait.

use std::ffi::{CStr, CString};
use std::fmt;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::FromRawFd;
use std::os::raw::{c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plait_engine::base::{
    Base, BaseHeader, BaseOpener, Checkpoint, PagesRead, WalState, Written, sum_page,
};
use plait_engine::error::{Error, Result};
use plait_engine::ids::Root;
use plait_engine::shm::read_marks::ReadMarks;
use plait_engine::storage::StorageFile;
use plait_engine::storage::os::{Kept, OsFile};

use super::codes::{PL_FENCED_STILL, PL_MISFIT, SQLITE_NOMEM, SQLITE_OK};
use super::types::{PlBaseOps, PlEntry, PlHeader};

unsafe extern "C" {
    fn sqlite3_free(p: *mut c_void);
    fn pl_shim_base_ops() -> Option<&'static PlBaseOps>;
}

/// Opens hidden connections through the shim's table of functions.
pub struct Opener {
    pub ops: &'static PlBaseOps,
}

impl Opener {
    /// The opener of the library that this program is linked with; `None` if SQLite cannot begin.
    pub fn linked() -> Option<Opener> {
        // SAFETY: it takes nothing, and returns null or a static table.
        let ops = unsafe { pl_shim_base_ops() };
        ops.map(|ops| Opener { ops })
    }
}

/// A file that a handle of SQLite's also has open.
struct LentFile {
    file: ManuallyDrop<File>,
    lent: *mut c_void,
    ops: &'static PlBaseOps,
}

// SAFETY: the shim's give-back works from any thread, under a mutex; nothing else is done with
// the pointer.
unsafe impl Send for LentFile {}
// SAFETY: see `Send`; a shared file is only read and written.
unsafe impl Sync for LentFile {}

impl fmt::Debug for LentFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl Deref for LentFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Kept for LentFile {
    fn sync(&self) -> io::Result<()> {
        // SAFETY: borrowed, and not given back yet.
        match unsafe { (self.ops.x_sync_lent)(self.lent) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Drop for LentFile {
    fn drop(&mut self) {
        // SAFETY: borrowed, and not used again.
        unsafe { (self.ops.x_give_back)(self.lent) };
    }
}

struct CBase {
    ops: &'static PlBaseOps,
    handle: *mut c_void,
    path: PathBuf,
    /// The shim has a pointer to it.
    read_marks: Option<Arc<ReadMarks>>,
}

// SAFETY: the handle is a SQLite connection in serialized mode, which may move between threads; the
// engine uses it from one thread at a time.
unsafe impl Send for CBase {}

impl BaseOpener for Opener {
    fn open(&self, path: &Path) -> Result<Box<dyn Base>> {
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::CantOpen("the path of the database holds a zero byte".into()))?;
        let mut handle = std::ptr::null_mut();
        let mut message = std::ptr::null_mut();
        // SAFETY: the path is a C string; both results are plain out-pointers.
        let code = unsafe { (self.ops.x_open)(c_path.as_ptr(), &raw mut handle, &raw mut message) };
        if code == SQLITE_OK {
            return Ok(Box::new(CBase {
                ops: self.ops,
                handle,
                path: path.to_owned(),
                read_marks: None,
            }));
        }
        let mut text = format!("cannot open the database file {}", path.display());
        if !message.is_null() {
            // SAFETY: the shim returned a C string.
            let why = unsafe { CStr::from_ptr(message) };
            text = format!("{text}: {}", why.to_string_lossy());
            // SAFETY: it was allocated by sqlite3_mprintf.
            unsafe { sqlite3_free(message.cast()) };
        }
        Err(Error::Base { code, text })
    }

    fn borrow(&self, path: &Path) -> Option<Box<dyn StorageFile>> {
        let c_path = CString::new(path.as_os_str().as_bytes()).ok()?;
        let mut lent = std::ptr::null_mut();
        // SAFETY: the path is a C string; the result is a plain out-pointer.
        let fd = unsafe { (self.ops.x_borrow)(c_path.as_ptr(), &raw mut lent) };
        if fd < 0 {
            return None;
        }
        // SAFETY: it is open until it is given back; nothing here closes it.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        Some(Box::new(OsFile(LentFile { file, lent, ops: self.ops })))
    }

    fn tell(&self, code: c_int, text: &str) {
        let text = super::text(text);
        // SAFETY: a C string, which the shim reads.
        unsafe { (self.ops.x_tell)(code, text.as_ptr()) };
    }
}

impl CBase {
    fn check(&self, code: c_int, doing: &str) -> Result<()> {
        if code == SQLITE_OK {
            return Ok(());
        }
        if code == PL_MISFIT {
            return Err(Error::Replaced(self.path.clone()));
        }
        // SAFETY: the handle is open; the result is null or a C string valid until the next call
        // on it.
        let message = unsafe { (self.ops.x_errmsg)(self.handle) };
        let why = if message.is_null() || code == SQLITE_NOMEM {
            "out of memory".into()
        } else {
            // SAFETY: see above.
            unsafe { CStr::from_ptr(message) }.to_string_lossy()
        };
        Err(Error::Base {
            code,
            text: format!("cannot {doing} the database file {}: {why}", self.path.display()),
        })
    }
}

fn entry(key: &[u8], rec: &[u8], tombstone: bool) -> PlEntry {
    PlEntry {
        key: key.as_ptr(),
        n_key: key.len() as u32,
        n_rec: rec.len() as u32,
        rec: rec.as_ptr(),
        tombstone: u8::from(tombstone),
        maximum: 0,
    }
}

impl Base for CBase {
    fn use_read_marks(&mut self, marks: &Arc<ReadMarks>) {
        let marks = self.read_marks.insert(marks.clone());
        // SAFETY: open handle; the marks live as long as it.
        unsafe { (self.ops.x_read_marks)(self.handle, Arc::as_ptr(marks)) };
    }

    fn header(&mut self) -> Result<BaseHeader> {
        let mut header = PlHeader::default();
        // SAFETY: open handle, valid out-pointer.
        let code = unsafe { (self.ops.x_header)(self.handle, &raw mut header) };
        self.check(code, "read the header of")?;
        Ok(BaseHeader::from(&header))
    }

    fn begin(&mut self) -> Result<()> {
        // SAFETY: open handle.
        let code = unsafe { (self.ops.x_begin)(self.handle) };
        self.check(code, "start a transaction on")
    }

    fn put(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        let e = entry(key, rec, false);
        // SAFETY: open handle; the entry lives through the call.
        let code = unsafe { (self.ops.x_put)(self.handle, root.get(), &raw const e) };
        self.check(code, "write to")
    }

    fn delete(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        let e = entry(key, rec, true);
        // SAFETY: open handle; the entry lives through the call.
        let code = unsafe { (self.ops.x_delete)(self.handle, root.get(), &raw const e) };
        self.check(code, "delete from")
    }

    fn replace_pages(&mut self, page_bytes: u32, change_counter: u32) -> Result<()> {
        // SAFETY: open handle.
        let code = unsafe { (self.ops.x_replace_pages)(self.handle, page_bytes, change_counter) };
        self.check(code, "replace pages of")
    }

    fn put_page(&mut self, number: u32, content: &[u8]) -> Result<()> {
        // SAFETY: open handle; `replace_pages` has made sure that pages are as long as the content.
        let code = unsafe { (self.ops.x_put_page)(self.handle, number, content.as_ptr()) };
        self.check(code, "write a page of")
    }

    fn set_page_count(&mut self, count: u32) -> Result<()> {
        // SAFETY: open handle.
        let code = unsafe { (self.ops.x_set_page_count)(self.handle, count) };
        self.check(code, "set the size of")
    }

    fn stamp(&mut self, header: &BaseHeader) -> Result<()> {
        let header = PlHeader::from(header);
        // SAFETY: open handle; the header lives through the call.
        let code = unsafe { (self.ops.x_stamp)(self.handle, &raw const header) };
        self.check(code, "stamp")
    }

    fn commit(&mut self) -> Result<()> {
        // SAFETY: open handle.
        let code = unsafe { (self.ops.x_commit)(self.handle) };
        let result = self.check(code, "commit to");
        if result.is_err() {
            self.rollback();
        }
        result
    }

    fn commit_and_sum(&mut self) -> Result<Option<Written>> {
        let (mut is_summed, mut written) = (0, Written::default());
        // SAFETY: open handle, valid out-pointers.
        let code = unsafe {
            (self.ops.x_commit_sum)(
                self.handle,
                &raw mut is_summed,
                &raw mut written.page_count,
                &raw mut written.sum,
            )
        };
        let result = self.check(code, "commit to");
        if result.is_err() {
            self.rollback();
        }
        result.map(|()| (is_summed != 0).then_some(written))
    }

    fn begin_read(&mut self) -> Result<PagesRead> {
        let mut header = PlHeader::default();
        let mut read = PagesRead::default();
        // SAFETY: open handle, valid out-pointers.
        let code = unsafe {
            (self.ops.x_begin_read)(
                self.handle,
                &raw mut header,
                &raw mut read.page_bytes,
                &raw mut read.page_count,
            )
        };
        self.check(code, "read")?;
        Ok(PagesRead { header: BaseHeader::from(&header), ..read })
    }

    fn read_page(&mut self, number: u32, content: &mut [u8]) -> Result<()> {
        // SAFETY: open handle; the caller's content is as long as a page, as `begin_read` says.
        let code = unsafe { (self.ops.x_read_page)(self.handle, number, content.as_mut_ptr()) };
        self.check(code, "read a page of")
    }

    fn end_read(&mut self) {
        // SAFETY: open handle.
        unsafe { (self.ops.x_end_read)(self.handle) };
    }

    fn rollback(&mut self) {
        // SAFETY: open handle.
        unsafe { (self.ops.x_rollback)(self.handle) };
    }

    fn has_unseen_commit(&mut self) -> Result<bool> {
        let mut is_unseen = 0;
        // SAFETY: open handle, valid out-pointer.
        let code = unsafe { (self.ops.x_has_unseen)(self.handle, &raw mut is_unseen) };
        self.check(code, "look into the WAL of")?;
        Ok(is_unseen != 0)
    }

    fn wait_at_most(&mut self, longest: Option<Duration>) {
        let ms = longest.map_or(-1, |longest| longest.as_millis().try_into().unwrap_or(c_int::MAX));
        // SAFETY: the handle is open, and this thread has it.
        unsafe { (self.ops.x_wait_at_most)(self.handle, ms) }
    }

    fn raise_fence(&mut self) -> Result<()> {
        // SAFETY: open handle.
        let code = unsafe { (self.ops.x_raise_fence)(self.handle) };
        self.check(code, "raise the fence in")
    }

    fn lower_fence(&mut self) -> Result<bool> {
        // SAFETY: open handle.
        let code = unsafe { (self.ops.x_lower_fence)(self.handle) };
        if code == PL_FENCED_STILL {
            return Ok(false);
        }
        self.check(code, "lower the fence in").map(|()| true)
    }

    fn sync_lowered(&mut self) -> Result<()> {
        // SAFETY: open handle.
        let code = unsafe { (self.ops.x_sync_lowered)(self.handle) };
        self.check(code, "sync the header of")
    }

    fn checkpoint(&mut self, how: Checkpoint) -> Result<WalState> {
        let mode = match how {
            Checkpoint::Passive => 0,
            Checkpoint::Truncate => 2,
        };
        let mut state = WalState::default();
        // SAFETY: open handle, valid out-pointers.
        let code = unsafe {
            (self.ops.x_checkpoint)(
                self.handle,
                mode,
                &raw mut state.log_pages,
                &raw mut state.checkpointed_pages,
                &raw mut state.page_bytes,
            )
        };
        self.check(code, "checkpoint")?;
        Ok(state)
    }
}

impl Drop for CBase {
    fn drop(&mut self) {
        // SAFETY: open handle, not used again.
        unsafe { (self.ops.x_close)(self.handle) };
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_sum_page(sum: u32, number: u32, page: *const u8, n: u32) -> u32 {
    // SAFETY: engine.h: a page of so many bytes.
    sum_page(sum, number, unsafe { super::bytes(page, n) })
}
