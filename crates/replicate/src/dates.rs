//! Moments as people write them, in UTC.

/// `2026-11-28 12:00:05 UTC`, of milliseconds since 1970.
pub fn utc(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The civil calendar from March on, in eras of 400 years.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Reads a moment, as milliseconds since 1970: RFC 3339 (`2026-11-28T12:00:05.25+01:00`), or in UTC
/// `2026-11-28`, `2026-11-28 12:00` or `2026-11-28 12:00:05`, with ` UTC` or `Z` behind it if one
/// likes. A time is the end of the smallest part that is written: without a fraction the last
/// millisecond of its second, without seconds the last of its minute. So what [`utc`] wrote of a
/// moment is that moment or later. A date alone is its first millisecond.
///
/// # Errors
/// In words.
pub fn parse(text: &str) -> Result<u64, String> {
    let bad = || {
        format!(
            "{text:?} is no time: write 2026-11-28 12:00:05, which is UTC, or 2026-11-28T12:00:05+01:00"
        )
    };
    moment(text.trim()).ok_or_else(bad)
}

fn moment(text: &str) -> Option<u64> {
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let days = days_of(year, month, day)?;
    let rest = rest.strip_suffix(" UTC").unwrap_or(rest);
    let (rest, ahead_s) = match rest.strip_suffix(['Z', 'z']) {
        Some(rest) => (rest, 0),
        None => zone(rest)?,
    };
    let ms = match rest {
        "" => 0,
        _ => time_of_day(rest.strip_prefix(['T', 't', ' '])?)?,
    };
    let ms = (i64::from(days) * 86_400 - ahead_s) * 1000 + ms;
    u64::try_from(ms).ok()
}

/// Numbers of so many digits, between separators.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[u32; N]> {
    let mut found = [0; N];
    let mut words = text.split(between);
    for (number, digits) in found.iter_mut().zip(digits) {
        let word = words.next()?;
        let is_it = word.len() == digits && word.bytes().all(|byte| byte.is_ascii_digit());
        *number = word.parse().ok().filter(|_| is_it)?;
    }
    words.next().is_none().then_some(found)
}

/// Days since 1970.
fn days_of(year: u32, month: u32, day: u32) -> Option<u32> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let longest = match month {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1970 || !(1..=longest).contains(&day) {
        return None;
    }
    // The civil calendar from March on, in eras of 400 years.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400;
    Some(days + (153 * month + 2) / 5 + day - 1 - 719_468)
}

/// Splits what stands behind a date into the time of day and the zone: by how many seconds it is
/// ahead of UTC.
fn zone(text: &str) -> Option<(&str, i64)> {
    let Some(at) = text.rfind(['+', '-']) else { return Some((text, 0)) };
    let [hour, minute] = numbers(&text[at + 1..], ':', [2, 2])?;
    let ahead = i64::from(hour * 3600 + minute * 60);
    let is_zone = hour < 24 && minute < 60;
    let ahead = if text[at..].starts_with('-') { -ahead } else { ahead };
    is_zone.then_some((&text[..at], ahead))
}

/// Milliseconds.
fn time_of_day(text: &str) -> Option<i64> {
    // The end of the second.
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "999"));
    let [hour, minute, second] = match numbers(whole, ':', [2, 2, 2]) {
        Some(all) => all,
        None if whole == text => {
            let [hour, minute] = numbers(whole, ':', [2, 2])?;
            [hour, minute, 59]
        }
        None => return None,
    };
    let is_number = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let ms: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok().filter(|_| is_number)?;
    let is_time = hour < 24 && minute < 60 && second <= 60;
    is_time.then_some(i64::from(hour * 3600 + minute * 60 + second) * 1000 + ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_as_it_is_written() {
        for seconds in [0, 951_782_399, 951_782_400, 1_795_867_205, 4_107_542_400] {
            for ms in [0, 1, 457, 998, 999] {
                assert_eq!(parse(&utc(seconds * 1000 + ms)), Ok(seconds * 1000 + 999));
            }
        }
        let noon = 1_795_867_200_000;
        for (text, ms) in [
            ("2026-11-28 12:00", noon + 59_999),
            ("2026-11-28 12:00:05", noon + 5999),
            ("2026-11-28T12:00:05Z", noon + 5999),
            ("2026-11-28T12:00:05.0Z", noon + 5000),
            ("2026-11-28T12:00:05.25Z", noon + 5250),
            ("2026-11-28t12:00:05.123456789z", noon + 5123),
            ("2026-11-28T13:00:00+01:00", noon + 999),
            ("2026-11-28 06:30:00-05:30", noon + 999),
            (" 2026-11-28 ", noon - 12 * 3_600_000),
        ] {
            assert_eq!(parse(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "now",
            "12:00",
            "2026-02-29",
            "2026-13-01",
            "2026-1-1",
            "2026-11-28 25:00",
            "2026-11-28 12",
            "2026-11-28 12:60",
            "2026-11-28 12:00.5",
            "2026-11-28T12:00:00+1",
            "2026-11-28 12:00:00 CET",
            "1969-12-31",
            "2026-11-28x12:00",
            "2026-11-28 12:00:00.",
            "1970-01-01T00:00:00+01:00",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_moment_is_written_in_the_civil_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_867_205, "2026-11-28 12:00:05 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds * 1000), text);
        }
    }
}
