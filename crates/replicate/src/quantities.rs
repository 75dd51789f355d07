//! Times and sizes as people write them.

use std::time::Duration;

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

/// Reads `500ms`, `1s`, `10m`, `2h`, `7d`.
///
/// # Errors
/// In words.
pub fn time(text: &str) -> Result<Duration, String> {
    let read = split(text).and_then(|(number, unit)| {
        let ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        number.checked_mul(ms).filter(|ms| *ms > 0).map(Duration::from_millis)
    });
    read.ok_or_else(|| "write a number above 0 and ms, s, m, h or d, such as 7d".to_owned())
}

/// Reads `512MiB`, `1GiB`.
///
/// # Errors
/// In words.
pub fn size(text: &str) -> Result<u64, String> {
    let read = split(text).and_then(|(number, unit)| {
        let bytes = match unit {
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        };
        number.checked_mul(bytes).filter(|bytes| *bytes > 0)
    });
    read.ok_or_else(|| "write a number above 0 and KiB, MiB or GiB, such as 1GiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("7d"), Ok(Duration::from_secs(7 * 86_400)));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        for bad in ["", "7", "0s", "s", "1 week", "-1s"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert!(size("1GB").is_err() && size("0MiB").is_err());
    }
}
