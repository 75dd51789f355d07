//! The file system as a store: a record is a file, a table a folder, the file's name the key in hexadecimal.
//!
//! | setting | default | what |
//! |---|---|---|
//! | `form` | `plain` | how a record is written, see the next table |
//! | `layout` | `flat` | `flat`: all files of a table in one folder; `sharded`: in 256 folders by the key's last byte |
//!
//! | form | steps | survives |
//! |---|---|---|
//! | `plain` | write in place | the process; a reader may see half a record |
//! | `rename` | write a temporary file, rename it | the process; a reader sees the old record or the new |
//! | `fsync-plain` | write in place, fsync it, fsync the folder of a new file | a power cut, if it does not come in the middle |
//! | `fsync` | write a temporary file, fsync it, rename it, fsync the folder | a power cut at any time |
//!
//! A deletion in the last two forms fsyncs the folder as well. There are no transactions: begin, commit and rollback do
//! nothing, which the settings say. A scan lists folders and sorts what it finds; it is meant for verification. The
//! forms with `rename` do not look whether a key is there before they write it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;

use super::keys::KeyOrder;
use super::{Begin, Connection, Engine, Failure, Key, KeyValue, Outcome, Settings, Store, Table};

/// The setting by which an engine says that begin and commit do nothing.
pub const TRANSACTIONS: &str = "transactions";

/// The engine.
pub struct FilesEngine;

/// How a record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    name: &'static str,
    rename: bool,
    fsync: bool,
}

const FORMS: [Form; 4] = [
    Form { name: "plain", rename: false, fsync: false },
    Form { name: "rename", rename: true, fsync: false },
    Form { name: "fsync-plain", rename: false, fsync: true },
    Form { name: "fsync", rename: true, fsync: true },
];

impl Engine for FilesEngine {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        settings.only(&["form", "layout"])?;
        let form = settings.get("form").unwrap_or("plain");
        let Some(form) = FORMS.into_iter().find(|f| f.name == form) else {
            let known = FORMS.map(|f| f.name).join(", ");
            return Err(Failure::broken(format!("form={form}: there are {known}")));
        };
        let sharded = match settings.get("layout").unwrap_or("flat") {
            "flat" => false,
            "sharded" => true,
            other => return Err(Failure::broken(format!("layout={other}: flat or sharded"))),
        };
        let directory = directory.to_owned();
        Ok(Box::new(FilesStore { directory, form, sharded, temporary: AtomicU64::new(0) }))
    }
}

struct FilesStore {
    directory: PathBuf,
    form: Form,
    sharded: bool,
    /// Numbers the temporary files of this process.
    temporary: AtomicU64,
}

impl FilesStore {
    /// The folders of a table: one, or one for each last byte.
    fn folders(&self, table: &Table) -> Vec<PathBuf> {
        let root = self.directory.join(&table.name);
        if self.sharded {
            (0..=u8::MAX).map(|byte| root.join(hex(&[byte]))).collect()
        } else {
            vec![root]
        }
    }
}

impl Store for FilesStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        for folder in tables.iter().flat_map(|table| self.folders(table)) {
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(())
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        let open = |path: PathBuf| {
            let handle = File::open(&path)
                .with_context(|| format!("there is no table in {}", path.display()))?;
            Ok(Folder { path, handle })
        };
        let tables = tables
            .iter()
            .map(|table| self.folders(table).into_iter().map(open).collect())
            .collect::<Outcome<_>>()?;
        Ok(Box::new(FilesConnection { store: self, tables, name: String::new() }))
    }

    fn settings(&self) -> Outcome<Settings> {
        Ok(Settings::default()
            .with("form", self.form.name)
            .with("layout", if self.sharded { "sharded" } else { "flat" })
            .with(TRANSACTIONS, "none"))
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}

/// A folder, kept open to be synced.
struct Folder {
    path: PathBuf,
    handle: File,
}

struct FilesConnection<'a> {
    store: &'a FilesStore,
    /// For each table its folders.
    tables: Vec<Vec<Folder>>,
    /// The name of the last record, kept for its memory.
    name: String,
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    push_hex(&mut text, bytes);
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

impl FilesConnection<'_> {
    /// The folder of a key, and the path of its record.
    fn place(&mut self, table: usize, key: Key<'_>) -> (&Folder, PathBuf) {
        let bytes = KeyOrder::Numeric.bytes(key);
        self.name.clear();
        push_hex(&mut self.name, &bytes);
        let folders = &self.tables[table];
        let shard = if folders.len() > 1 { bytes.last().copied().unwrap_or(0) } else { 0 };
        let folder = &folders[usize::from(shard)];
        (folder, folder.path.join(&self.name))
    }

    fn put(&mut self, table: usize, key: Key<'_>, value: &[u8], new: bool) -> Outcome<()> {
        let store = self.store;
        let (folder, path) = self.place(table, key);
        if store.form.rename {
            // Relaxed: the counter hands out numbers and orders nothing else.
            let number = store.temporary.fetch_add(1, Ordering::Relaxed);
            let temporary = folder.path.join(format!(".new-{}-{number}", std::process::id()));
            write(OpenOptions::new().write(true).create_new(true), &temporary, value, store.form)?;
            fs::rename(&temporary, &path)
                .with_context(|| format!("cannot rename a file to {}", path.display()))?;
        } else {
            write(
                OpenOptions::new().write(true).truncate(!new).create_new(new),
                &path,
                value,
                store.form,
            )?;
        }
        if store.form.fsync && (new || store.form.rename) { sync(folder) } else { Ok(()) }
    }
}

fn write(options: &OpenOptions, path: &Path, value: &[u8], form: Form) -> Outcome<()> {
    let put = || {
        let mut file = options.open(path)?;
        file.write_all(value)?;
        if form.fsync { file.sync_all() } else { Ok(()) }
    };
    Ok(put().with_context(|| format!("cannot write {}", path.display()))?)
}

fn sync(folder: &Folder) -> Outcome<()> {
    let synced = folder.handle.sync_all();
    Ok(synced.with_context(|| format!("cannot sync {}", folder.path.display()))?)
}

impl Connection for FilesConnection<'_> {
    fn begin(&mut self, _begin: Begin) -> Outcome<()> {
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        Ok(())
    }

    fn rollback(&mut self) -> Outcome<()> {
        Ok(())
    }
}

impl KeyValue for FilesConnection<'_> {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        let (_, path) = self.place(table, key);
        match read(&path) {
            Ok(value) => {
                found(&value);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(anyhow::Error::new(error)
                .context(format!("cannot read {}", path.display()))
                .into()),
        }
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.put(table, key, value, true)
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.put(table, key, value, false)
    }

    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        let store = self.store;
        let (folder, path) = self.place(table, key);
        match fs::remove_file(&path) {
            Ok(()) if store.form.fsync => sync(folder).map(|()| true),
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(anyhow::Error::new(error)
                .context(format!("cannot remove {}", path.display()))
                .into()),
        }
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let first = from.map(|key| hex(&KeyOrder::Numeric.bytes(key))).unwrap_or_default();
        let mut names = Vec::new();
        for folder in &self.tables[table] {
            for entry in fs::read_dir(&folder.path)? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if name >= first {
                    names.push((name, &folder.path));
                }
            }
        }
        names.sort_unstable();
        names.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        for (name, folder) in &names {
            found(&read(&folder.join(name))?);
        }
        Ok(names.len() as u64)
    }
}

/// A record as it stands; with its length not known beforehand, as of a file that others write.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut value = Vec::new();
    File::open(path)?.read_to_end(&mut value)?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::KeyKind;

    fn tables() -> Vec<Table> {
        vec![Table { name: "t".to_owned(), keys: KeyKind::Int, without_rowid: false }]
    }

    #[test]
    fn every_form_and_layout_keeps_records_and_leaves_no_temporary_file() {
        for form in FORMS {
            for layout in ["flat", "sharded"] {
                let directory = tempfile::tempdir().unwrap();
                let settings = Settings::default().with("form", form.name).with("layout", layout);
                let store = FilesEngine.open(directory.path(), &settings).unwrap();
                store.create(&tables()).unwrap();
                let mut kv = store.key_value(&tables()).unwrap();
                for key in [-3, 500, 7] {
                    kv.insert(0, Key::Int(key), format!("{key}").as_bytes()).unwrap();
                }
                kv.update(0, Key::Int(7), b"seven").unwrap();
                assert!(kv.delete(0, Key::Int(500)).unwrap());
                assert!(!kv.delete(0, Key::Int(500)).unwrap());
                let mut all = Vec::new();
                kv.scan(0, None, u64::MAX, &mut |v| all.push(v.to_vec())).unwrap();
                assert_eq!(all, [b"-3".to_vec(), b"seven".to_vec()], "{} {layout}", form.name);
                let told = store.settings().unwrap();
                assert_eq!(told.get("form"), Some(form.name));
                assert_eq!(told.get(TRANSACTIONS), Some("none"));
            }
        }
    }

    #[test]
    fn a_shorter_record_leaves_nothing_of_a_longer_one() {
        let directory = tempfile::tempdir().unwrap();
        let store = FilesEngine.open(directory.path(), &Settings::default()).unwrap();
        store.create(&tables()).unwrap();
        let mut kv = store.key_value(&tables()).unwrap();
        kv.insert(0, Key::Int(1), b"a long record").unwrap();
        kv.update(0, Key::Int(1), b"short").unwrap();
        let mut value = Vec::new();
        assert!(kv.get(0, Key::Int(1), &mut |v| value = v.to_vec()).unwrap());
        assert_eq!(value, b"short");
    }

    #[test]
    fn a_plain_insert_of_a_record_that_is_there_fails() {
        let directory = tempfile::tempdir().unwrap();
        let store = FilesEngine.open(directory.path(), &Settings::default()).unwrap();
        store.create(&tables()).unwrap();
        let mut kv = store.key_value(&tables()).unwrap();
        kv.insert(0, Key::Int(1), b"first").unwrap();
        let failure = kv.insert(0, Key::Int(1), b"second").expect_err("it is there");
        assert!(failure.to_string().contains("cannot write"), "{failure}");
    }
}
