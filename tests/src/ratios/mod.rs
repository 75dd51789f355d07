//! The ratios that the project promises against stock SQLite, measured in one interleaved run.
//!
//! [`case`] names each row of the table, [`trial`] runs one engine on one case in a process and directory of its own,
//! [`writer`] and [`reader`] are the loops, the same for both engines, [`overhead`] compares the two libraries on
//! SQLite's own path in alternating slices of one process, and [`table`] prints what was required and what was measured.
//!
//! A figure counts only when the database proves it: after every trial the rows are counted and a counter in each row,
//! raised by each update, must add up to the commits that were acknowledged. Values differ at every write, all
//! statements are prepared (BEGIN and COMMIT too), and settings are read back.

pub mod case;
pub mod members;
pub mod overhead;
pub mod reader;
pub mod table;
pub mod trial;
pub mod writer;
