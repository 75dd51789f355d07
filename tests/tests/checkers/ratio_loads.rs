//! Every load of the ratio table runs on the library under test and proves what it counted.

use plait_tests::place::Place;
use plait_tests::ratios::case::{self, Case, Load};
use plait_tests::ratios::trial::Trial;
use plait_tests::subject::Subject;
use std::time::Duration;

#[test]
fn every_load_counts_what_the_database_holds() {
    let loads =
        |case: Case| case.against.into_iter().chain([case.load]).map(move |l| (case.name, l));
    for (name, load) in case::all().into_iter().flat_map(loads) {
        if load.place == Place::Processes || load.work.begins_with_million() || load.work.is_bulk()
        {
            continue;
        }
        let load = Load { writers: load.writers.min(30), ..load };
        assert!(MILLIS.into_iter().any(|time| counts(name, &load, time)), "{name} counts nothing");
    }
}

/// The lengths of a trial: a disk that others hold up may finish nothing in the shorter ones.
const MILLIS: [u64; 3] = [200, 2_000, 20_000];

/// Says whether a trial of `millis` proves what it counted, and counted anything.
fn counts(name: &str, load: &Load, millis: u64) -> bool {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let trial = Trial {
        subject: Subject::plait(),
        load: load.clone(),
        directory: directory.path().to_owned(),
        million: None,
        seed: 1,
        time: Duration::from_millis(millis),
    };
    trial.run().unwrap_or_else(|error| panic!("{name}: {error:#}")).per_second > 0.0
}
