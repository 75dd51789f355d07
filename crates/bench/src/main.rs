//! The program behind `plait bench`.

use std::process::ExitCode;

use plait_bench::commands::UsageError;

fn main() -> ExitCode {
    match plait_bench::commands::parse_and_run() {
        Ok(code) => code,
        Err(error) => {
            anstream::eprintln!("plait bench: {error:#}");
            // As clap ends for what it refuses itself.
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
