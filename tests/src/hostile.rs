//! What the tests with changed files share: the corpus, how many rounds, and changes.

use crate::differential::dice::Dice;
use crate::paths::repository;

/// The files of `tests/fuzz-corpus/NAME`, by name.
///
/// # Panics
/// If there are none.
#[must_use]
pub fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = repository().join("tests/fuzz-corpus").join(name);
    let entries = std::fs::read_dir(&folder).expect("the corpus");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "the corpus {name} is empty");
    paths.iter().map(|path| std::fs::read(path).expect("a readable file")).collect()
}

/// Rounds of a random test: `usual`, or what `PLAIT_FUZZ_ROUNDS` says.
#[must_use]
pub fn rounds(usual: usize) -> usize {
    let asked = std::env::var("PLAIT_FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok());
    asked.unwrap_or(usual)
}

/// Changes, removes or adds bytes; more often near the beginning, where lengths and types stand.
pub fn change_bytes(bytes: &mut Vec<u8>, dice: &mut Dice) {
    const ODD: [u8; 9] = [0, 1, 0x0a, 0x0b, 0x0c, 0x7f, 0x80, 0xfe, 0xff];
    let within = if dice.one_in(2) { bytes.len().min(8) } else { bytes.len() };
    let at = dice.roll(within + 1);
    match dice.roll(5) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, *dice.pick(&ODD)),
        2 => {
            // A number that takes nine bytes, or does not end.
            let many = 1 + dice.roll(10);
            bytes.splice(at..at, std::iter::repeat_n(0xff, many));
        }
        3 => bytes.resize(bytes.len() + dice.roll(64), *dice.pick(&ODD)),
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = if dice.one_in(2) { *dice.pick(&ODD) } else { dice.roll(256) as u8 };
            }
        }
    }
}
