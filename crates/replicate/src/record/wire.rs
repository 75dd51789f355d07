//! Little-endian integers into bytes and back.

use bytes::Bytes;

/// Takes bytes.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    pub fn with_capacity(bytes: usize) -> Writer {
        Writer(Vec::with_capacity(bytes))
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// A text that is cut to what a length of 16 bits can say.
    pub fn text(&mut self, text: &str) {
        let mut end = text.len().min(usize::from(u16::MAX));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes(&(end as u16).to_le_bytes());
        self.bytes(&text.as_bytes()[..end]);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Writes over four bytes that are there.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Gives bytes, `None` where there are too few.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    pub fn skip(&mut self, bytes: usize) -> Option<&mut Self> {
        self.take(bytes)?;
        Some(self)
    }

    /// Bytes that are 0.
    pub fn zeros(&mut self, bytes: usize) -> Option<()> {
        self.take(bytes)?.iter().all(|byte| *byte == 0).then_some(())
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn text(&mut self) -> Option<String> {
        let bytes = usize::from(u16::from_le_bytes(self.array()?));
        String::from_utf8(self.take(bytes)?.to_vec()).ok()
    }

    pub fn rest(&mut self) -> Bytes {
        Bytes::copy_from_slice(std::mem::take(&mut self.rest))
    }
}
