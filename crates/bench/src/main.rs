//! The program behind `plait bench`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match plait_bench::commands::parse_and_run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("plait bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
