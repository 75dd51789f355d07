//! The bytes of a file, in blocks that copies share: most of a log is zeros, and most of what a power cut leaves is what another one leaves too.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

const BLOCK: usize = 4096;
const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Whether these are zeros.
#[must_use]
pub fn is_zeros(bytes: &[u8]) -> bool {
    // Compared whole, which is many times as fast as byte by byte.
    bytes.chunks(BLOCK).all(|bytes| bytes == &ZEROS[..bytes.len()])
}

/// A file's bytes. Blocks of zeros are not kept, so that equal contents are equal here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    len: usize,
    blocks: BTreeMap<usize, Arc<[u8; BLOCK]>>,
}

impl Content {
    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content
    }

    /// Cuts it, or makes it longer by zeros.
    pub fn resize(&mut self, len: usize) {
        if len < self.len {
            self.blocks.split_off(&len.div_ceil(BLOCK));
            let within = len % BLOCK;
            if within > 0 {
                self.put(len / BLOCK, within, &ZEROS[within..]);
            }
        }
        self.len = len;
    }

    /// Writes bytes; the file is as long as they reach, at least.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        self.len = self.len.max(at + data.len());
        let mut done = 0;
        while done < data.len() {
            let from = at + done;
            let n = (BLOCK - from % BLOCK).min(data.len() - done);
            self.put(from / BLOCK, from % BLOCK, &data[done..done + n]);
            done += n;
        }
    }

    /// Writes within a block.
    fn put(&mut self, number: usize, at: usize, data: &[u8]) {
        let zeros = is_zeros(data);
        if zeros && !self.blocks.contains_key(&number) {
            return;
        }
        let block = self.blocks.entry(number).or_insert_with(|| Arc::new(ZEROS));
        Arc::make_mut(block)[at..at + data.len()].copy_from_slice(data);
        if zeros && **block == ZEROS {
            self.blocks.remove(&number);
        }
    }

    /// Makes a file of it, sparse.
    pub fn make(&self, path: &Path) -> std::io::Result<()> {
        let file = File::create(path)?;
        for (number, block) in &self.blocks {
            let at = number * BLOCK;
            file.write_all_at(&block[..BLOCK.min(self.len - at)], at as u64)?;
        }
        file.set_len(self.len as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::Content;
    use crate::differential::dice::Dice;

    #[test]
    fn a_content_is_what_a_vector_becomes_by_the_same_writes_and_lengths() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        for seed in 0..40 {
            let mut dice = Dice::new(seed);
            let (mut content, mut bytes) = (Content::default(), Vec::<u8>::new());
            for _ in 0..30 {
                if dice.one_in(3) {
                    let len = dice.roll(20_000);
                    content.resize(len);
                    bytes.resize(len, 0);
                    continue;
                }
                let (at, n, byte) = (dice.roll(16_000), dice.roll(9_000), dice.roll(3) as u8);
                content.write(at, &vec![byte; n]);
                bytes.resize(bytes.len().max(at + n), 0);
                bytes[at..at + n].fill(byte);
            }
            content.make(&path).expect("it can be made");
            assert!(std::fs::read(&path).expect("it is there") == bytes, "seed {seed}");
            assert!(content == Content::of(&bytes), "seed {seed}: equal bytes, another content");
        }
    }
}
