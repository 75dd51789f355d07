//! How an engine is set up: named values, printed with every result.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names and values, for instance `journal_mode=wal synchronous=full`.
///
/// What is asked for and what the engine says it does ([`Store::settings`](super::Store::settings)) have the same
/// form, so that a setting that did not take is seen.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// The same with one more value, or another one under a name that is there.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.set(name, value);
        self
    }

    /// Sets one value.
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_owned(), value.to_string());
    }

    /// The value under a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value under a name as a number or whatever else can be read from a text.
    ///
    /// # Errors
    /// If a value is there and cannot be read.
    pub fn parse<T: FromStr>(&self, name: &str) -> anyhow::Result<Option<T>>
    where
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        let Some(text) = self.get(name) else { return Ok(None) };
        let value = text.parse().with_context(|| format!("{name}={text} cannot be read"))?;
        Ok(Some(value))
    }

    /// Refuses names that an engine does not know, so that a misspelt one cannot pass for a default.
    ///
    /// # Errors
    /// Names the first unknown setting and those that are known.
    pub fn only(&self, known: &[&str]) -> anyhow::Result<()> {
        if let Some(name) = self.0.keys().find(|name| !known.contains(&name.as_str())) {
            bail!("{name} is no setting of this engine; it has {}", known.join(", "));
        }
        Ok(())
    }

    /// The first of these settings for which an engine tells another value, in words; settings of which it tells
    /// nothing count as taken. Names that SQLite's pragmas answer as numbers are compared as such.
    #[must_use]
    pub fn not_taken(&self, told: &Self) -> Option<String> {
        self.iter().find_map(|(name, asked)| {
            let told = told.get(name)?;
            let number = match (name, asked.to_ascii_lowercase().as_str()) {
                ("synchronous", "off") => "0",
                ("synchronous", "normal") => "1",
                ("synchronous", "full") => "2",
                ("synchronous", "extra") => "3",
                _ => asked,
            };
            let taken = told.eq_ignore_ascii_case(asked) || told == number;
            (!taken).then(|| format!("asked for {name}={asked}, it says {told}"))
        })
    }

    /// All of them in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.iter().enumerate() {
            let space = if i == 0 { "" } else { " " };
            write!(f, "{space}{name}={value}")?;
        }
        Ok(())
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Settings {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn a_misspelt_setting_is_refused() {
        let settings = Settings::default().with("synchronus", "full");
        let error = settings.only(&["synchronous"]).expect_err("unknown");
        assert!(error.to_string().contains("synchronus"));
    }

    #[test]
    fn a_setting_that_did_not_take_is_named() {
        let asked = Settings::default().with("journal_mode", "WAL").with("synchronous", "full");
        let told = Settings::default().with("journal_mode", "wal").with("synchronous", "2");
        assert_eq!(asked.not_taken(&told), None);
        let why = asked.not_taken(&told.with("synchronous", "1")).unwrap();
        assert_eq!(why, "asked for synchronous=full, it says 1");
    }

    #[test]
    fn settings_print_in_the_order_of_their_names() {
        let settings = Settings::default().with("b", 2).with("a", 1);
        assert_eq!(settings.to_string(), "a=1 b=2");
    }
}
