//! Shared memory that is none, or holds anything.

use std::io::Read as _;

use plait_engine::shm::layout::LAYOUT_END;

use super::*;

/// A file as long as shared memory, which a "process" of this test has in use.
fn used_memory(content: &[u8]) -> (tempfile::TempDir, PathBuf, File) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    std::fs::write(&path, b"").unwrap();
    let file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(shm_path(&path.canonicalize().unwrap()))
        .unwrap();
    file.set_len(TOTAL_BYTES as u64).unwrap();
    file.write_all_at(content, 0).unwrap();
    assert!(locks::try_lock(&file, PROCESS_LOCK_BASE).unwrap());
    (dir, path, file)
}

#[test]
fn memory_that_cannot_be_trusted_is_no_session() {
    let (_dir, path, holder) = used_memory(&[0; 64]);
    assert!(matches!(Session::read(&path).unwrap(), Seen::Moving));
    drop(holder);
    assert!(matches!(Session::read(&path).unwrap(), Seen::Nobody));
}

// holds LIVE-2
#[test]
fn any_bytes_give_numbers() {
    let mut noise = vec![0; LAYOUT_END];
    for round in 0..8 {
        File::open("/dev/urandom").unwrap().read_exact(&mut noise).unwrap();
        if round == 0 {
            noise.fill(0xff);
        }
        let (_dir, _path, file) = used_memory(&noise);
        let copy = Copied::from(&file).unwrap();
        let session = Session::of(copy.layout(), &[0, 7, 1023]);
        assert_eq!(session.processes.len(), 3);
        assert!(session.transactions.len() <= 4096);
        memtable_bytes(&file, copy.layout()).unwrap();
    }
}
