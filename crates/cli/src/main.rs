//! The `plait` command.
//!
//! | module | command |
//! |---|---|
//! | [`run`] | `plait run`: start a program on our library |
//! | [`convert`] | `plait enable`, `plait disable` |
//! | [`status`] | `plait status` |
//! | [`metrics`] | `plait metrics` |
//! | [`top`] | `plait top` |
//! | [`backup`] | `plait backup` |
//! | [`check`] | `plait check` |
//! | [`restore`] | `plait restore` |
//! | [`recover`] | `plait recover` |
//! | [`doctor`] | `plait doctor` |
//! | [`explain`] | `plait explain` |
//! | [`demo`] | `plait demo` |
//! | [`bench`] | `plait bench` |
//! | [`promote`] | `plait promote` |
//! | [`replicas`] | `plait replicate`, `plait replicas`, `plait probe` |
//! | [`pages`] | `plait write-pages`: man pages and completions |
//!
//! Beneath them: [`inspect`] (a database looked at from outside), [`live`] (a session looked at from outside), [`copy`] (a whole copy of one), [`sqlite`] (SQLite's C interface, linked or
//! loaded), [`installation`] (where the libraries are), [`follows`] (the mark of a replica), [`companion`] (programs beside this one), [`os`], [`console`], [`quantity`], [`failure`].

#![deny(unsafe_code)]

mod backup;
mod bench;
mod check;
mod commands;
mod companion;
mod console;
mod convert;
mod copy;
mod demo;
mod doctor;
mod explain;
mod failure;
mod follows;
mod inspect;
mod installation;
mod live;
mod metrics;
mod os;
mod pages;
mod promote;
mod quantity;
mod recover;
mod replicas;
mod restore;
mod run;
mod sqlite;
mod status;
mod top;

use std::process::ExitCode;

fn main() -> ExitCode {
    os::end_with_the_reader();
    console::end_where_nothing_can_be_said();
    let code = commands::parse_and_run().unwrap_or_else(|failure| {
        console::report(&failure);
        failure.code
    });
    ExitCode::from(code)
}
