//! Integer keys in stores of bytes.

use super::Key;

/// In which order the 8 bytes of an integer key are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// The highest byte first and the sign turned, so that the order of bytes is that of numbers and a scan answers as
    /// SQL does.
    #[default]
    Numeric,
    /// As in this machine's memory, as the published program stored them. On a little-endian machine the order of bytes
    /// is then none that a scan could use.
    Native,
}

/// The bytes of a key, without memory of their own on the heap.
pub enum KeyBytes<'a> {
    /// Of an integer.
    Int([u8; 8]),
    /// As they were given.
    Blob(&'a [u8]),
}

impl KeyOrder {
    /// The bytes under which a key is stored.
    #[must_use]
    pub fn bytes(self, key: Key<'_>) -> KeyBytes<'_> {
        match (key, self) {
            (Key::Int(int), Self::Numeric) => KeyBytes::Int((int ^ i64::MIN).to_be_bytes()),
            (Key::Int(int), Self::Native) => KeyBytes::Int(int.to_ne_bytes()),
            (Key::Blob(bytes), _) => KeyBytes::Blob(bytes),
        }
    }
}

impl std::ops::Deref for KeyBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Int(bytes) => bytes,
            Self::Blob(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_order_is_the_order_of_bytes() {
        let numbers = [i64::MIN, -256, -1, 0, 1, 255, 256, i64::MAX];
        let bytes: Vec<Vec<u8>> =
            numbers.iter().map(|n| KeyOrder::Numeric.bytes(Key::Int(*n)).to_vec()).collect();
        assert!(bytes.is_sorted());
    }

    #[test]
    fn native_order_is_the_memory_of_the_number() {
        assert_eq!(*KeyOrder::Native.bytes(Key::Int(77)), 77_i64.to_ne_bytes());
    }
}
