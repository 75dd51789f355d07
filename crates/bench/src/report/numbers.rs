//! Figures as text: three digits that matter, or whole numbers with commas.

use crate::measure::statistics::Median;

/// A figure: `57,695`, `1,234`, `12.3`, `0.0123`.
#[must_use]
pub fn figure(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "∞".to_owned()
    } else if size >= 1e12 {
        format!("{value:.2e}")
    } else if size >= 99.95 || size == 0.0 {
        with_commas(value)
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else if size >= 0.9995 {
        format!("{value:.2}")
    } else {
        // Three digits behind the leading noughts.
        let noughts = (-size.log10()).floor().max(0.0) as usize;
        if noughts > 6 { format!("{value:.1e}") } else { format!("{value:.*}", noughts + 3) }
    }
}

fn with_commas(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// A figure, or a dash.
#[must_use]
pub fn figure_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), figure)
}

/// Half of the interval in percent of the median: `±3%`; nothing for a single trial.
#[must_use]
pub fn spread(median: &Median) -> String {
    if median.trials < 2 || median.median == 0.0 {
        return String::new();
    }
    let percent = 50.0 * (median.high - median.low) / median.median.abs();
    if percent < 0.5 { "±0%".to_owned() } else { format!("±{percent:.0}%") }
}

/// The interval: `9,120–9,870`; nothing for a single trial.
#[must_use]
pub fn interval(median: &Median) -> String {
    if median.trials < 2 {
        return String::new();
    }
    format!("{}–{}", figure(median.low), figure(median.high))
}

/// A size: `812 B`, `4.0 KiB`, `1.2 GiB`.
#[must_use]
pub fn bytes(value: f64) -> String {
    let mut value = value;
    for unit in ["B", "KiB", "MiB"] {
        if value < 1024.0 {
            let places = usize::from(unit != "B" && value < 100.0);
            return format!("{value:.places$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} GiB")
}

/// A ratio: `2.41×`; none is infinite.
#[must_use]
pub fn times(ratio: Option<f64>) -> String {
    match ratio {
        None => "∞×".to_owned(),
        Some(ratio) => format!("{}×", figure(ratio)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits_that_matter() {
        let texts: Vec<String> =
            [57695.4, 1234.0, 99.94, 9.87, 0.0, 0.012_34, -1500.0].map(figure).to_vec();
        assert_eq!(texts, ["57,695", "1,234", "99.9", "9.87", "0", "0.0123", "-1,500"]);
    }

    #[test]
    fn a_single_trial_has_no_interval() {
        let one = Median { median: 5.0, low: 5.0, high: 5.0, trials: 1 };
        assert_eq!((spread(&one), interval(&one)), (String::new(), String::new()));
        let five = Median { median: 100.0, low: 97.0, high: 103.0, trials: 5 };
        assert_eq!((spread(&five).as_str(), interval(&five).as_str()), ("±3%", "97.0–103"));
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!([812.0, 4096.0, 1.5e9].map(bytes), ["812 B", "4.0 KiB", "1.4 GiB"]);
    }
}
