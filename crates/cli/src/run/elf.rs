//! What an executable or shared object says about itself, and whether SQLite is inside it.
//!
//! SQLite inside shows in one of two ways: the file defines `sqlite3_libversion`, or, when its symbols are
//! stripped, it holds both texts that every build of the amalgamation has: the magic of a database file and the
//! source id (a date, a time and a hash, made by the release).

use std::io;
use std::path::Path;

use memchr::memmem;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, Object, ObjectSymbol};

use super::map::Mapped;
use crate::os;

/// First bytes of a database file, a constant in the amalgamation.
const DATABASE_MAGIC: &[u8] = b"SQLite format 3\0";
/// What a shell prints that insists on the library it was made with.
const SHELL_CHECK: &[u8] = b"SQLite header and source version mismatch";

/// A kind of processor: two files with unlike ones cannot be in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    number: u16,
    is_64: bool,
}

impl Machine {
    /// That of this program, and of the library that comes with it.
    pub const OWN: Machine = Machine {
        number: if cfg!(target_arch = "x86_64") {
            elf::EM_X86_64
        } else if cfg!(target_arch = "aarch64") {
            elf::EM_AARCH64
        } else {
            panic!("a processor that Plait does not run on")
        },
        is_64: cfg!(target_pointer_width = "64"),
    };

    /// As people call it.
    pub fn name(self) -> String {
        let name = match (self.number, self.is_64) {
            (elf::EM_X86_64, true) => "x86_64",
            (elf::EM_X86_64, false) => "x32",
            (elf::EM_386, _) => "i386",
            (elf::EM_AARCH64, _) => "aarch64",
            (elf::EM_ARM, _) => "arm",
            (elf::EM_RISCV, true) => "riscv64",
            (number, _) => return format!("machine {number} of ELF"),
        };
        name.to_owned()
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::OWN
    }
}

/// Facts about an ELF file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The processor that it was made for.
    pub machine: Machine,
    /// The loader that the kernel starts for it; `None` when it is statically linked (or a shared object).
    pub interpreter: Option<String>,
    /// Shared objects that it asks for.
    pub needed: Vec<String>,
    /// Source id of a SQLite whose code is inside: empty when the code is there and the id is not.
    pub sqlite_inside: Option<String>,
    /// It was made by Go, whose drivers bring SQLite along by default.
    pub is_go: bool,
    /// Source id that this `sqlite3` shell insists on.
    pub shell_for: Option<String>,
}

impl Image {
    /// Reads the file at `path`; `None` when it is no ELF file.
    pub fn read(path: &Path) -> io::Result<Option<Image>> {
        let file = os::open_regular(path)?;
        let data = Mapped::new(&file)?;
        Ok(Image::of(data.bytes()))
    }

    /// Examines the bytes of a file; `None` when they are no ELF file.
    pub fn of(data: &[u8]) -> Option<Image> {
        let mut image = match FileKind::parse(data).ok()? {
            FileKind::Elf64 => headers::<elf::FileHeader64<Endianness>>(data),
            FileKind::Elf32 => headers::<elf::FileHeader32<Endianness>>(data),
            _ => return None,
        }
        .ok()?;
        let uses_library = image.needs_sqlite();
        let file = object::File::parse(data).ok();
        let defines = file.as_ref().is_some_and(defines_sqlite);
        if defines || !uses_library {
            let id = source_id(data);
            let holds = id.is_some() && memmem::find(data, DATABASE_MAGIC).is_some();
            image.sqlite_inside = (defines || holds).then(|| id.unwrap_or_default());
        }
        image.is_go = file.is_some_and(|f| {
            f.section_by_name(".go.buildinfo").is_some()
                || f.section_by_name(".gopclntab").is_some()
        });
        if uses_library && memmem::find(data, SHELL_CHECK).is_some() {
            image.shell_for = source_id(data);
        }
        Some(image)
    }

    /// Whether it asks the loader for SQLite.
    pub fn needs_sqlite(&self) -> bool {
        self.needed.iter().any(|name| name.starts_with("libsqlite3.so"))
    }
}

fn headers<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> object::read::Result<Image> {
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let machine = Machine { number: header.e_machine(endian), is_64: header.is_type_64() };
    let mut image = Image { machine, ..Image::default() };
    for segment in header.program_headers(endian, data)? {
        if let Some(name) = segment.interpreter(endian, data)? {
            image.interpreter = Some(String::from_utf8_lossy(name).into_owned());
        }
    }
    let sections = header.sections(endian, data)?;
    if let Some((entries, strings)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, strings)?;
        for entry in entries {
            if entry.tag32(endian) == Some(elf::DT_NEEDED) {
                let name = entry.string(endian, strings)?;
                image.needed.push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    Ok(image)
}

fn defines_sqlite(file: &object::File<'_>) -> bool {
    file.dynamic_symbols()
        .chain(file.symbols())
        .any(|s| s.is_definition() && s.name_bytes() == Ok(b"sqlite3_libversion"))
}

/// Whether the shared object at `path` defines a symbol for others.
pub fn exports(path: &Path, symbol: &str) -> io::Result<bool> {
    let file = os::open_regular(path)?;
    let data = Mapped::new(&file)?;
    Ok(object::File::parse(data.bytes())
        .is_ok_and(|f| f.dynamic_symbols().any(|s| s.is_definition() && s.name() == Ok(symbol))))
}

/// Whether a file holds these bytes.
pub fn holds(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let file = os::open_regular(path)?;
    Ok(memmem::find(Mapped::new(&file)?.bytes(), bytes).is_some())
}

/// The first text of the form `2025-11-04 19:38:17 fb2c...` with a hash of 40 or 64 hexadecimal digits.
///
/// A modified source has `alt1` in the place of the hash's last digits.
fn source_id(data: &[u8]) -> Option<String> {
    const DATE_AND_TIME: &[u8] = b"dddd-dd-dd dd:dd:dd ";
    for at in memmem::find_iter(data, b"20") {
        let rest = &data[at..];
        let Some((stamp, rest)) = rest.split_at_checked(DATE_AND_TIME.len()) else { break };
        let fits = stamp.iter().zip(DATE_AND_TIME).all(|(have, want)| match want {
            b'd' => have.is_ascii_digit(),
            other => have == other,
        });
        if !fits {
            continue;
        }
        let hash = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let end = rest.iter().take_while(|b| b.is_ascii_alphanumeric()).count();
        if hash >= 36 && (end == 40 || end == 64) {
            let text = &data[at..at + DATE_AND_TIME.len() + end];
            return Some(String::from_utf8_lossy(text).into_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together when it is needed: this very program is searched for such a text, too.
    fn id() -> String {
        let hash = "fb2c931ae597f8d00a37574ff67aeed3eced4e5547f9120744ae4bfa8e74527b";
        ["2025-11-04 19:38:17", hash].join(" ")
    }

    #[test]
    fn a_source_id_is_found_among_other_dates() {
        let mut data = b"\x0020 2024-01-01 10:00:00 UTC\0 2099".to_vec();
        data.extend_from_slice(id().as_bytes());
        data.push(0);
        assert_eq!(source_id(&data), Some(id()));
    }

    #[test]
    fn a_source_id_of_a_modified_or_an_old_release_is_found() {
        let modified = id().replace("527b", "alt1");
        assert_eq!(source_id(modified.as_bytes()), Some(modified));
        let old = &id()[..60];
        assert_eq!(source_id(old.as_bytes()).as_deref(), Some(old));
    }

    #[test]
    fn a_date_with_a_short_or_missing_hash_is_none() {
        assert_eq!(source_id(&id().as_bytes()[..50]), None);
        assert_eq!(source_id(b"2025-11-04 19:38:17 "), None);
        assert_eq!(source_id(b"2025-11-04 19:38"), None);
        assert_eq!(source_id(b""), None);
    }

    #[test]
    fn text_is_no_image() {
        assert_eq!(Image::of(b"#!/bin/sh\n"), None);
        assert_eq!(Image::of(b""), None);
        assert_eq!(Image::of(b"\x7fELF"), None);
    }

    #[test]
    fn this_test_program_is_dynamically_linked() {
        let image = Image::read(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert_eq!(image.machine, Machine::OWN);
        assert!(image.interpreter.is_some());
        assert!(image.needed.iter().any(|name| name.starts_with("libc.so")), "{image:?}");
    }

    #[test]
    fn this_test_program_brings_sqlite_inside() {
        // It is linked with the spliced amalgamation, as the command is.
        let image = Image::read(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert!(!image.needs_sqlite());
        assert_eq!(image.sqlite_inside, Some(crate::sqlite::Library::linked().source_id()));
    }
}
