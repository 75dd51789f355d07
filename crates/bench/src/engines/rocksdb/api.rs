//! The part of RocksDB's C interface (`rocksdb/c.h`) that is called, found in its library by name.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use anyhow::Context as _;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// A pointer to any of RocksDB's objects.
pub type Object = *mut c_void;
/// Bytes that are read.
pub type Bytes = *const c_char;
/// Where an error's text is written: null stays null without one.
pub type Error = *mut *mut c_char;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library, each named as in `rocksdb/c.h` without `rocksdb_`.
        #[allow(missing_docs, non_snake_case, reason = "described by rocksdb/c.h, and named as there")]
        pub struct Api {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Keeps the code mapped for as long as it can be called.
            _library: Library,
        }

        impl Api {
            /// Loads a library and finds its functions.
            ///
            /// # Errors
            /// If the library cannot be loaded or lacks one of them.
            #[allow(non_snake_case, reason = "named as in rocksdb/c.h")]
            pub fn load(path: &Path) -> anyhow::Result<Self> {
                // SAFETY: running a library's initializers is what loading one means.
                let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
                    .with_context(|| format!("cannot load {}", path.display()))?;
                $(
                    let symbol = concat!("rocksdb_", stringify!($name), "\0");
                    // SAFETY: the type is that of rocksdb/c.h of 7.8 for this name.
                    let $name = *unsafe { library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(symbol.as_bytes()) }
                        .with_context(|| format!("{} lacks a function of RocksDB 7.8", path.display()))?;
                )*
                Ok(Self { $($name,)* _library: library })
            }
        }
    };
}

functions! {
    free: fn(Object);
    options_create: fn() -> Object;
    options_destroy: fn(Object);
    options_set_create_if_missing: fn(Object, u8);
    options_increase_parallelism: fn(Object, c_int);
    options_set_write_buffer_size: fn(Object, usize);
    options_set_block_based_table_factory: fn(Object, Object);
    block_based_options_create: fn() -> Object;
    block_based_options_destroy: fn(Object);
    block_based_options_set_block_cache: fn(Object, Object);
    block_based_options_set_filter_policy: fn(Object, Object);
    cache_create_lru: fn(usize) -> Object;
    cache_destroy: fn(Object);
    filterpolicy_create_bloom_full: fn(f64) -> Object;
    transactiondb_options_create: fn() -> Object;
    transactiondb_options_destroy: fn(Object);
    transaction_options_create: fn() -> Object;
    transaction_options_destroy: fn(Object);
    transaction_options_set_deadlock_detect: fn(Object, u8);
    writeoptions_create: fn() -> Object;
    writeoptions_destroy: fn(Object);
    writeoptions_set_sync: fn(Object, u8);
    writeoptions_get_sync: fn(Object) -> u8;
    writeoptions_disable_WAL: fn(Object, c_int);
    writeoptions_get_disable_WAL: fn(Object) -> u8;
    readoptions_create: fn() -> Object;
    readoptions_destroy: fn(Object);
    readoptions_set_snapshot: fn(Object, Object);
    transactiondb_open: fn(Object, Object, Bytes, Error) -> Object;
    transactiondb_close: fn(Object);
    transactiondb_create_column_family: fn(Object, Object, Bytes, Error) -> Object;
    column_family_handle_destroy: fn(Object);
    transactiondb_create_snapshot: fn(Object) -> Object;
    transactiondb_release_snapshot: fn(Object, Object);
    transactiondb_get_pinned_cf: fn(Object, Object, Object, Bytes, usize, Error) -> Object;
    transactiondb_put_cf: fn(Object, Object, Object, Bytes, usize, Bytes, usize, Error);
    transactiondb_create_iterator_cf: fn(Object, Object, Object) -> Object;
    transaction_begin: fn(Object, Object, Object, Object) -> Object;
    transaction_commit: fn(Object, Error);
    transaction_rollback: fn(Object, Error);
    transaction_destroy: fn(Object);
    transaction_get_pinned_for_update_cf: fn(Object, Object, Object, Bytes, usize, u8, Error) -> Object;
    transaction_put_cf: fn(Object, Object, Bytes, usize, Bytes, usize, Error);
    transaction_delete_cf: fn(Object, Object, Bytes, usize, Error);
    transaction_create_iterator_cf: fn(Object, Object, Object) -> Object;
    pinnableslice_value: fn(Object, *mut usize) -> Bytes;
    pinnableslice_destroy: fn(Object);
    iter_seek: fn(Object, Bytes, usize);
    iter_valid: fn(Object) -> u8;
    iter_next: fn(Object);
    iter_value: fn(Object, *mut usize) -> Bytes;
    iter_get_error: fn(Object, Error);
    iter_destroy: fn(Object);
}
