//! Whether several parties are threads of this process or processes of their own.

use serde::{Deserialize, Serialize};

/// Where an actor or a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A thread of this process.
    Threads,
    /// A `worker` process.
    Processes,
}

/// Makes two tests of one function over [`Place`]: `name::in_threads` and `name::in_processes`.
#[macro_export]
macro_rules! in_threads_and_processes {
    ($( $(#[$attribute:meta])* fn $name:ident($place:ident) $body:block )*) => { $(
        $(#[$attribute])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn scenario($place: $crate::place::Place) $body

            #[test]
            fn in_threads() {
                scenario($crate::place::Place::Threads);
            }

            #[test]
            fn in_processes() {
                scenario($crate::place::Place::Processes);
            }
        }
    )* };
}
