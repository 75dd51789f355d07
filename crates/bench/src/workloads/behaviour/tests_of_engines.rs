//! The tests: what the paper showed of both engines, as a series of steps of two sessions.
//!
//! What was published about Berkeley DB or SQLite stands in parentheses behind the question.

use std::time::Duration;

use super::super::Finding;
use super::Ground;
use super::session::{Reply, Session, Step};
use crate::engines::{Begin, Outcome};

/// A test: its findings.
pub type Test = fn(&Ground<'_>) -> Outcome<Vec<Finding>>;

/// All tests, in the order of the table.
pub const ALL: &[Test] = &[
    basic_use,
    two_immediate_transactions,
    blocked_without_timeout,
    blocked_with_timeout,
    blocked_until_commit,
    same_page,
    two_table_deadlock,
    reader_that_wants_to_write,
    reader_beside_writer,
    two_concurrent_transactions,
];

/// Many times longer than any refusal may take: a busy timeout of 500 ms, the time of which engines count differently, or
/// a second until PostgreSQL looks for deadlocks. Only a session that is never refused waits so long.
const LONGER: Duration = Duration::from_secs(10);
/// A busy timeout that no test waits for.
const PATIENT_MS: u64 = 60_000;

const UPDATE_A: Step = Step::Run("UPDATE {a} SET n=n+1 WHERE id=1");
const UPDATE_B: Step = Step::Run("UPDATE {b} SET n=n+1 WHERE id=1");
const READ_A: Step = Step::Ask("SELECT n FROM {a} WHERE id=1");

fn finding(question: &str, answer: impl Into<String>) -> Finding {
    Finding { question: question.to_owned(), answer: answer.into() }
}

/// Brings both sessions to an end, whatever state they are in.
fn end(first: &mut Session, second: &mut Session) {
    for _ in 0..2 {
        for session in [&mut *first, &mut *second] {
            session.settles(Duration::ZERO);
            session.does(Step::Rollback);
        }
    }
}

fn basic_use(ground: &Ground<'_>) -> Outcome<Vec<Finding>> {
    let (mut first, mut second) = ground.sessions(PATIENT_MS)?;
    let wrote = first.does(UPDATE_A);
    let answer = match second.does(READ_A) {
        Reply::Done(Some(1)) if wrote.is_done() => "works".to_owned(),
        read => format!("writing: {wrote}; reading from the other session: {read}"),
    };
    end(&mut first, &mut second);
    Ok(vec![finding("Open, write in one session, read in another", answer)])
}

fn two_immediate_transactions(ground: &Ground<'_>) -> Outcome<Vec<Finding>> {
    let (mut first, mut second) = ground.sessions(PATIENT_MS)?;
    let immediate = Step::Begin(Begin::Immediate);
    let begun = (first.does(immediate), second.does(immediate));
    let answer = match begun {
        (Reply::Done(_), Reply::Done(_)) => {
            let one = first.does(Step::Run("INSERT INTO {a}(id, n) VALUES(100001, 0)"));
            let two = second.does(Step::Run("INSERT INTO {b}(id, n) VALUES(100001, 0)"));
            let freed = first.does(Step::Commit);
            let then = if two.is_done() { two.clone() } else { second.settles(LONGER) };
            match (one.is_done() && freed.is_done(), two, then) {
                (true, Reply::Done(_), _) => "both begin and both insert".to_owned(),
                (true, Reply::Waits, Reply::Done(_)) => {
                    "both begin; the second insert waits for the first commit".to_owned()
                }
                (_, two, then) => format!("both begin; inserts: {one}, {two}; then {then}"),
            }
        }
        (Reply::Done(_), Reply::Waits) => {
            first.does(Step::Commit);
            format!("the second BEGIN waits; after the first COMMIT: {}", second.settles(LONGER))
        }
        (one, two) => format!("first BEGIN: {one}; second BEGIN: {two}"),
    };
    end(&mut first, &mut second);
    let question = "Two BEGIN IMMEDIATE, inserts into two tables (Berkeley DB: both proceed)";
    Ok(vec![finding(question, answer)])
}

/// The first session holds a row that it has updated; the second wants to write it too.
fn blocked(ground: &Ground<'_>, timeout_ms: u64) -> Outcome<(Session, Session, Reply)> {
    let (mut first, mut second) = ground.sessions(timeout_ms)?;
    first.does(Step::Begin(Begin::Immediate));
    first.does(UPDATE_A);
    // Who may wait for a minute is seen to; who is to be refused is waited for.
    let mut does = |step| match timeout_ms {
        PATIENT_MS => second.does(step),
        _ => second.does_within(step, LONGER),
    };
    let mut reply = does(Step::Begin(Begin::Immediate));
    if reply.is_done() {
        reply = does(UPDATE_A);
    }
    Ok((first, second, reply))
}

fn blocked_without_timeout(ground: &Ground<'_>) -> Outcome<Vec<Finding>> {
    let (mut first, mut second, reply) = blocked(ground, 0)?;
    end(&mut first, &mut second);
    let question = "A writer blocked by another, busy timeout 0 (Berkeley DB: no way to be told)";
    Ok(vec![finding(question, reply.to_string())])
}

fn blocked_with_timeout(ground: &Ground<'_>) -> Outcome<Vec<Finding>> {
    let (mut first, mut second, reply) = blocked(ground, 500)?;
    let again = match &reply {
        Reply::Refused { .. } => {
            first.does(Step::Commit);
            let again = second.does(Step::Begin(Begin::Immediate));
            if again.is_done() { "yes".to_owned() } else { format!("no: {again}") }
        }
        Reply::Waits => "it has not been refused".to_owned(),
        other => other.to_string(),
    };
    end(&mut first, &mut second);
    Ok(vec![
        finding("A writer blocked by another, busy timeout 500 ms", reply.to_string()),
        finding("After that refusal and the other's COMMIT, does the same statement help", again),
    ])
}

fn blocked_until_commit(ground: &Ground<'_>) -> Outcome<Vec<Finding>> {
    let (mut first, mut second, reply) = blocked(ground, PATIENT_MS)?;
    let answer = match reply {
        Reply::Waits => {
            first.does(Step::Commit);
            match second.settles(LONGER) {
                Reply::Done(_) => "waits, then goes on".to_owned(),
                then => format!("waits, then {then}"),
            }
        }
        other => other.to_string(),
    };
    end(&mut first, &mut second);
    Ok(vec![finding("A writer blocked by another that commits", answer)])
}

fn same_page(ground: &Ground<'_>) -> Outcome<Vec<Finding>> {
    let (mut first, mut second) = ground.sessions(PATIENT_MS)?;
    first.does(Step::Begin(Begin::Deferred));
    second.does(Step::Begin(Begin::Deferred));
    first.does(UPDATE_A);
    let two = second.does(Step::Run("UPDATE {a} SET n=n+1 WHERE id=2"));
    let answer = match two {
        Reply::Waits => {
            let freed = first.does(Step::Commit);
            format!(
                "the second waits; after the first COMMIT ({freed}): {}",
                second.settles(LONGER)
            )
        }
        other => other.to_string(),
    };
    end(&mut first, &mut second);
    let question = "Updates of two rows of a page (Berkeley DB: the second blocks)";
    Ok(vec![finding(question, answer)])
}

fn two_table_deadlock(ground: &Ground<'_>) -> Outcome<Vec<Finding>> {
    let (mut first, mut second) = ground.sessions(500)?;
    first.does(Step::Begin(Begin::Deferred));
    second.does(Step::Begin(Begin::Deferred));
    let mut steps = vec![("first a", first.does(UPDATE_A)), ("second b", second.does(UPDATE_B))];
    if steps.iter().all(|(_, reply)| reply.is_done()) {
        steps.push(("first b", first.does(UPDATE_B)));
        steps.push(("second a", second.does_within(UPDATE_A, LONGER)));
    }
    if matches!(steps.last(), Some((_, Reply::Waits))) {
        steps.push(("second then", second.settles(LONGER)));
    }
    let late = steps.iter().any(|(who, reply)| *who == "first b" && *reply == Reply::Waits);
    if late {
        steps.push(("first b then", first.settles(LONGER)));
    }
    let story: Vec<String> = steps.iter().map(|(who, reply)| format!("{who}: {reply}")).collect();
    let mut findings = vec![finding(
        "Crossing updates of tables a and b (Berkeley DB: “database table is locked”)",
        story.join("; "),
    )];
    let refused = |who: &str| {
        steps.iter().any(|(w, r)| w.starts_with(who) && matches!(r, Reply::Refused { .. }))
    };
    let (failed, other) = if refused("second") {
        (&mut second, &mut first)
    } else if refused("first") {
        (&mut first, &mut second)
    } else {
        end(&mut first, &mut second);
        return Ok(findings);
    };
    findings.extend(after_a_deadlock(failed, other));
    end(&mut first, &mut second);
    Ok(findings)
}

/// What the session that was refused can do, and what helps.
fn after_a_deadlock(failed: &mut Session, other: &mut Session) -> [Finding; 3] {
    let again = failed.does_within(UPDATE_A, LONGER);
    failed.settles(LONGER);
    let commit = failed.does(Step::Commit);
    failed.does(Step::Rollback);
    other.settles(LONGER);
    other.does(Step::Commit);
    other.does(Step::Rollback);
    let mut over = failed.does(Step::Begin(Begin::Immediate));
    for step in [UPDATE_A, UPDATE_B, Step::Commit] {
        if over.is_done() {
            over = failed.does(step);
        }
    }
    let over = if over.is_done() { "yes".to_owned() } else { format!("no: {over}") };
    [
        finding("The refused session of that: the same statement again", again.to_string()),
        finding(
            "The refused session of that: COMMIT (Berkeley DB: an unresolved deadlock)",
            commit.to_string(),
        ),
        finding("The refused session of that: does ROLLBACK and all of it again help", over),
    ]
}

fn reader_that_wants_to_write(ground: &Ground<'_>) -> Outcome<Vec<Finding>> {
    let (mut reader, mut writer) = ground.sessions(500)?;
    reader.does(Step::Begin(Begin::Deferred));
    reader.does(READ_A);
    writer.does(Step::Begin(Begin::Immediate));
    let wrote = writer.does(UPDATE_A);
    let wants = reader.does_within(UPDATE_A, LONGER);
    let commits = if wrote.is_done() { writer.does_within(Step::Commit, LONGER) } else { wrote };
    reader.settles(Duration::ZERO);
    reader.does(Step::Rollback);
    let then = match &commits {
        Reply::Done(_) => commits.clone(),
        Reply::Waits => writer.settles(LONGER),
        Reply::Refused { .. } | Reply::Failed(_) => writer.does_within(Step::Commit, LONGER),
    };
    end(&mut reader, &mut writer);
    Ok(vec![
        finding("A reader that wants to write beside a writer: the reader", wants.to_string()),
        finding("A reader that wants to write beside a writer: the writer", commits.to_string()),
        finding("The same, after the reader's ROLLBACK: the writer's COMMIT", then.to_string()),
    ])
}

fn reader_beside_writer(ground: &Ground<'_>) -> Outcome<Vec<Finding>> {
    let (mut reader, mut writer) = ground.sessions(PATIENT_MS)?;
    writer.does(Step::Begin(Begin::Immediate));
    writer.does(UPDATE_A);
    let answer = match reader.does(READ_A) {
        Reply::Done(Some(0)) => "sees the state before".to_owned(),
        Reply::Waits => {
            writer.does(Step::Commit);
            format!("waits for the writer's COMMIT, then {}", reader.settles(LONGER))
        }
        other => other.to_string(),
    };
    end(&mut reader, &mut writer);
    Ok(vec![finding("A select of a row that is being updated", answer)])
}

fn two_concurrent_transactions(ground: &Ground<'_>) -> Outcome<Vec<Finding>> {
    let mut findings = Vec::new();
    let far: Step = Step::Run("UPDATE {b} SET n=n+1 WHERE id=1");
    for (question, other) in [
        ("Two BEGIN CONCURRENT that update two tables", far),
        ("Two BEGIN CONCURRENT that update one row", UPDATE_A),
    ] {
        let (mut first, mut second) = ground.sessions(500)?;
        let begin = Step::Begin(Begin::Concurrent);
        let begun = (first.does(begin), second.does(begin));
        let answer = if begun.0.is_done() && begun.1.is_done() {
            let one = first.does(UPDATE_A);
            let two = second.does(other);
            let commit_one = first.does(Step::Commit);
            let two = if two == Reply::Waits { second.settles(LONGER) } else { two };
            let commit_two = if two.is_done() { second.does(Step::Commit) } else { two.clone() };
            let ends = [one, commit_one, two, commit_two.clone()];
            if ends.iter().all(Reply::is_done) {
                "both commit".to_owned()
            } else {
                format!("the second: {commit_two}")
            }
        } else {
            "has no BEGIN CONCURRENT".to_owned()
        };
        end(&mut first, &mut second);
        findings.push(finding(question, answer));
    }
    Ok(findings)
}
