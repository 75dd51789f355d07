//! Times and sizes as people write them.

use std::time::Duration;

use bytesize::ByteSize;

/// Reads `500ms`, `1s`, `10m`, `2h`, `7d`.
///
/// # Errors
/// In words.
pub fn time(text: &str) -> Result<Duration, String> {
    let read = humantime::parse_duration(text).ok().filter(|time| !time.is_zero());
    read.ok_or_else(|| "write a number above 0 and ms, s, m, h or d, such as 7d".to_owned())
}

/// The same, of the time from one record, or one look, to the next.
///
/// # Errors
/// In words.
pub fn interval(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(24 * 3600);
    let interval = time(text)?;
    match interval <= LONGEST {
        true => Ok(interval),
        false => Err("write a day or less".to_owned()),
    }
}

/// Reads `512MiB`, `1GiB`.
///
/// # Errors
/// In words.
pub fn size(text: &str) -> Result<u64, String> {
    let read = text.parse::<ByteSize>().ok().filter(|size| size.as_u64() > 0);
    let read =
        read.ok_or_else(|| "write a number above 0 and KiB, MiB or GiB, such as 1GiB".to_owned());
    read.map(|size| size.as_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("7d"), Ok(Duration::from_secs(7 * 86_400)));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(interval("24h"), time("1d"));
        assert!(interval("25h").is_err());
        for bad in ["", "7", "0s", "s", "1 fortnight", "-1s"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert!(size("1XB").is_err() && size("0MiB").is_err() && size("").is_err());
    }
}
