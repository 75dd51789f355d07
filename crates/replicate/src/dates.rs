//! Moments as people write them, in UTC.

use chrono::{DateTime, NaiveDate};

/// `2026-11-28 12:00:05 UTC`, of milliseconds since 1970.
pub fn utc(ms: u64) -> String {
    let moment = i64::try_from(ms).ok().and_then(DateTime::from_timestamp_millis);
    moment.map_or_else(
        || format!("{ms} ms after 1970"),
        |moment| moment.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
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
    if rest.is_empty() {
        let first = NaiveDate::parse_from_str(date, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0)?;
        return u64::try_from(first.and_utc().timestamp_millis()).ok();
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let utc = rest.strip_suffix(" UTC").or_else(|| rest.strip_suffix(['Z', 'z']));
    let (time, zone) = match (utc, rest.rfind(['+', '-'])) {
        (Some(time), _) => (time, "+00:00"),
        (None, Some(at)) => rest.split_at(at),
        (None, None) => (rest, "+00:00"),
    };
    // What is not written: the last milliseconds of the second, or of the minute.
    let (format, unwritten_ms) = match (time.len(), time.contains('.')) {
        (5, _) => ("%Y-%m-%d %H:%M%:z", 59_999),
        (8, _) => ("%Y-%m-%d %H:%M:%S%:z", 999),
        (10.., true) => ("%Y-%m-%d %H:%M:%S%.f%:z", 0),
        _ => return None,
    };
    let moment = DateTime::parse_from_str(&format!("{date} {time}{zone}"), format).ok()?;
    u64::try_from(moment.timestamp_millis()).ok()?.checked_add(unwritten_ms)
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
