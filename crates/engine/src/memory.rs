//! Fallible allocation of what may be as large as a row: a process under a limit gets an error, and
//! continues.

use std::collections::TryReserveError;

use crate::error::{Error, Result};

impl From<TryReserveError> for Error {
    fn from(_: TryReserveError) -> Error {
        Error::NoMemory
    }
}

/// Appends bytes; leaves `to` unchanged if there is no memory for all of them.
pub fn append(to: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    to.try_reserve(bytes.len())?;
    to.extend_from_slice(bytes);
    Ok(())
}

/// Replaces the content; leaves it unchanged if there is no memory.
pub fn replace(old: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    old.try_reserve(bytes.len().saturating_sub(old.len()))?;
    old.clear();
    old.extend_from_slice(bytes);
    Ok(())
}

/// Returns a copy.
pub fn copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Fails if there is no memory for so many values. For a call that comes next and cannot fail: if
/// another thread takes the memory in between, that call ends the process.
pub fn expect<T>(values: usize) -> Result<()> {
    Ok(Vec::<T>::new().try_reserve_exact(values)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_leaves_everything_as_it_was() {
        let mut bytes = b"old".to_vec();
        replace(&mut bytes, b"newer").unwrap();
        append(&mut bytes, b"!").unwrap();
        assert_eq!(bytes, b"newer!");
        assert_eq!(copy(&bytes).unwrap(), bytes);
        assert!(matches!(expect::<u64>(usize::MAX >> 4), Err(Error::NoMemory)));
        assert!(expect::<u64>(8).is_ok());
    }
}
