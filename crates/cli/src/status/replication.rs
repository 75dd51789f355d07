//! What is known of the sidecar that ships the database elsewhere.

use std::path::Path;

use super::session::Session;
use super::{ELSEWHERE, person};
use crate::console::{BAD, NOTICE, styled};
use crate::quantity::{age, bytes, count, of};

/// Which of the members of a session may be sidecars: those that run one, and those of other pid namespaces, as containers
/// have.
pub fn sidecars(members: &[u32]) -> Vec<u32> {
    members.iter().copied().filter(|&pid| pid == ELSEWHERE || is_sidecar(pid)).collect()
}

fn is_sidecar(pid: u32) -> bool {
    let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split('\0');
    let program = words.next().and_then(|program| Path::new(program).file_name());
    program.is_some_and(|name| name == "plait-replicate") && words.next() == Some("run")
}

/// Lines about replication; none if no sidecar has run in this session. `sidecars` may be some.
pub fn lines(now: &Session, sidecars: &[u32]) -> Vec<(&'static str, String)> {
    let v = |name: &str| now.value(name);
    let place = now.text("replication_place");
    if place.is_empty() {
        return Vec::new();
    }
    let mut behind = Vec::new();
    if v("replication_lag_bytes") > 0 {
        behind.push(of(v("replication_lag_commits"), "commit", "commits"));
        behind.push(format!("{} of log", bytes(v("replication_lag_bytes"))));
    }
    if v("replication_lag_changes") > 0 {
        let changes = of(v("replication_lag_changes"), "change", "changes");
        behind.push(format!(
            "{changes} past the log (of the schema, VACUUM, or a large transaction)"
        ));
    }
    let error = now.text("replication_error");
    let lag = match behind.is_empty() {
        true if error.is_empty() => "all that is committed is there".to_owned(),
        true => "nothing behind that".to_owned(),
        false => format!("{} behind, for {}", behind.join(" and "), age(v("replication_lag_ms"))),
    };
    let shipped = format!(
        "through commit {} (log {}); {lag}",
        count(v("replicated_commit")),
        v("replicated_lsn")
    );
    let mut lines = vec![("replica", place.to_owned()), ("shipped", shipped)];
    if v("replication_running") == 0 {
        // Before its first record it holds nothing of the log.
        let what = match sidecars.iter().max() {
            None => "the sidecar does not run: start plait-replicate run".to_owned(),
            Some(&ELSEWHERE) => "no sidecar ships it now: start plait-replicate run, unless one runs in another container and \
                                 waits for its place"
                .to_owned(),
            Some(&pid) => format!("process {} begins, or waits for its place, and ships nothing yet", person(pid)),
        };
        lines.push(("sidecar", styled(NOTICE, what)));
    }
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
        text_with(numbers, texts, &[])
    }

    fn text_with(numbers: &[(&str, i64)], texts: &[(&str, &str)], sidecars: &[u32]) -> String {
        lines(&session(numbers, texts), sidecars)
            .into_iter()
            .map(|(name, line)| format!("{name}: {line}\n"))
            .collect()
    }

    #[test]
    fn without_a_sidecar_nothing_is_said() {
        assert_eq!(text(&[("commits", 3)], &[]), "");
    }

    #[test]
    fn a_process_that_runs_a_sidecar_is_known_by_its_words() {
        use std::os::unix::process::CommandExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let named = |name: &str, word: &str| {
            std::fs::write(folder.path().join(word), "read line").expect("a script");
            let mut command = std::process::Command::new("/bin/sh");
            command.arg0(name).arg(word).current_dir(folder.path());
            let child = command.stdin(std::process::Stdio::piped()).spawn().expect("it runs");
            // The kernel lets the parent go on before the child has its words.
            let words = format!("/proc/{}/cmdline", child.id());
            while std::fs::read(&words).is_ok_and(|words| words.is_empty()) {
                std::thread::yield_now();
            }
            child
        };
        let children =
            [("/usr/bin/plait-replicate", "run"), ("plait-replicate", "follow"), ("sh", "run")]
                .map(|(name, word)| named(name, word));
        let [runs, follows, other] = children.each_ref().map(std::process::Child::id);
        assert_eq!(sidecars(&[follows, ELSEWHERE, runs, other]), [ELSEWHERE, runs]);
        for mut child in children {
            drop(child.stdin.take());
            child.wait().expect("it ends");
        }
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
        for (sidecars, part) in [
            ([ELSEWHERE, 4_000_000_000], "process 4000000000 begins"),
            ([ELSEWHERE; 2], "unless one runs"),
        ] {
            let said = text_with(&numbers, &place, &sidecars);
            assert!(said.contains(part) && !said.contains("does not run"), "{part}: {said}");
        }
        let said = text(&[("replication_lag_changes", 2), ("replication_lag_ms", 2500)], &place);
        assert!(
            said.contains("; 2 changes past the log (of the schema, VACUUM, or a large"),
            "{said}"
        );
        let said = text(&[("replication_running", 1)], &place[..1]);
        assert!(said.contains("all that is committed is there") && !said.contains("sidecar"));
    }
}
