//! Numbers as people read them.

use std::time::Duration;

/// `1234567` as `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the unit that keeps the number short: `512 B`, `4.0 KiB`, `16 MiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value < 9.95 {
        format!("{value:.1} {}", UNITS[unit])
    } else {
        format!("{value:.0} {}", UNITS[unit])
    }
}

/// A wait with three digits or so: `87 us`, `1.35 ms`, `2.08 s`.
pub fn wait(d: Duration) -> String {
    let us = d.as_secs_f64() * 1e6;
    match us {
        us if us < 999.5 => format!("{us:.0} us"),
        us if us < 9_995.0 => format!("{:.2} ms", us / 1e3),
        us if us < 99_950.0 => format!("{:.1} ms", us / 1e3),
        us if us < 999_500.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// An age: `350 ms`, `4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.
pub fn age(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => format!("{ms} ms"),
        1..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3600 % 24),
    }
}

/// `1 process`, `2 processes`.
pub fn of(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_a_comma_between_thousands() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1000, 1_234_567].map(count)[..]);
    }

    #[test]
    fn sizes_take_the_unit_that_keeps_them_short() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(4096), "4.0 KiB");
        assert_eq!(bytes(16 << 20), "16 MiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16384 PiB");
    }

    #[test]
    fn waits_and_ages_take_the_unit_that_keeps_them_short() {
        assert_eq!(wait(Duration::from_micros(87)), "87 us");
        assert_eq!(wait(Duration::from_micros(1350)), "1.35 ms");
        assert_eq!(wait(Duration::from_micros(99_960)), "100 ms");
        assert_eq!(wait(Duration::from_millis(2080)), "2.08 s");
        assert_eq!(age(350), "350 ms");
        assert_eq!(age(200_000), "3 min 20 s");
        assert_eq!(age(90_061_000), "1 d 1 h");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(of(1, "process", "processes"), "1 process");
        assert_eq!(of(0, "process", "processes"), "0 processes");
    }
}
