//! What is known of the sidecar that ships the database elsewhere.

use super::session::Session;
use crate::console::{BAD, NOTICE, styled};
use crate::quantity::{age, bytes, count, of};

/// Lines about replication; none if no sidecar has run in this session.
pub fn lines(now: &Session) -> Vec<(&'static str, String)> {
    let v = |name: &str| now.value(name);
    let place = now.text("replication_place");
    if place.is_empty() {
        return Vec::new();
    }
    let lag = match v("replication_lag_bytes") {
        0 => "all that is committed is there".to_owned(),
        lag => format!(
            "{} and {} of log behind, for {}",
            of(v("replication_lag_commits"), "commit", "commits"),
            bytes(lag),
            age(v("replication_lag_ms"))
        ),
    };
    let shipped = format!(
        "through commit {} (log {}); {lag}",
        count(v("replicated_commit")),
        v("replicated_lsn")
    );
    let mut lines = vec![("replica", place.to_owned()), ("shipped", shipped)];
    if v("replication_running") == 0 {
        let what = "the sidecar does not run: start plait-replicate run";
        lines.push(("sidecar", styled(NOTICE, what)));
    }
    let error = now.text("replication_error");
    if !error.is_empty() {
        lines.push(("in the way", styled(BAD, error)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(numbers: &[(&str, i64)], texts: &[(&str, &str)]) -> Session {
        Session {
            status: numbers.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect(),
            texts: texts.iter().map(|(name, t)| ((*name).to_owned(), (*t).to_owned())).collect(),
            ..Session::default()
        }
    }

    fn text(numbers: &[(&str, i64)], texts: &[(&str, &str)]) -> String {
        lines(&session(numbers, texts))
            .into_iter()
            .map(|(name, line)| format!("{name}: {line}\n"))
            .collect()
    }

    #[test]
    fn without_a_sidecar_nothing_is_said() {
        assert_eq!(text(&[("commits", 3)], &[]), "");
    }

    #[test]
    fn lag_and_error_are_said_with_what_to_do() {
        let place =
            [("replication_place", "s3://b/app"), ("replication_error", "the store is full")];
        let numbers = [
            ("replication_lag_bytes", 4096),
            ("replication_lag_commits", 12),
            ("replication_lag_ms", 2500),
        ];
        let said = text(&numbers, &place);
        for part in ["s3://b/app", "12 commits", "behind", "start plait-replicate run", "is full"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let said = text(&[("replication_running", 1)], &place[..1]);
        assert!(said.contains("all that is committed is there") && !said.contains("sidecar"));
    }
}
