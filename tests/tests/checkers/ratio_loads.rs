//! Every load of the ratio table runs on the library under test and proves what it counted.

use plait_tests::place::Place;
use plait_tests::ratios::case::{self, Load};
use plait_tests::ratios::trial::Trial;
use plait_tests::subject::Subject;
use std::time::Duration;

#[test]
fn every_load_counts_what_the_database_holds() {
    for case in case::all() {
        if case.load.place == Place::Processes
            || case.load.work.begins_with_million()
            || case.load.work.is_bulk()
        {
            continue;
        }
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let trial = Trial {
            subject: Subject::plait(),
            load: Load { writers: case.load.writers.min(30), ..case.load },
            directory: directory.path().to_owned(),
            million: None,
            seed: 1,
            time: Duration::from_millis(200),
        };
        let outcome = trial.run().unwrap_or_else(|error| panic!("{}: {error:#}", case.name));
        assert!(outcome.per_second > 0.0, "{}: {outcome:?}", case.name);
    }
}
