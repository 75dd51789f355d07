//! What the suites run in processes of their own.
//!
//! `worker actor SUBJECT` serves statements from standard input; `worker job` runs the job that standard input holds.

use anyhow::{Context as _, bail};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["actor", subject] => {
            let subject = serde_json::from_str(subject).context("not a subject")?;
            plait_tests::actor::serve_process(subject)
        }
        ["job"] => plait_tests::job::serve_process(),
        _ => bail!("usage: worker actor SUBJECT | worker job (both are for the test suites)"),
    }
}
