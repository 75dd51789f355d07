//! The ratios that the project promises against stock SQLite, measured in one interleaved run.
//!
//! [`case`] names each row of the table, [`trial`] runs one engine on one case in a process and directory of
//! its own, [`writer`], [`reader`], [`worker`] (of a queue), [`visitor`] (who opens and closes), [`passer`]
//! (who reads much), [`tpcc`] (a wholesaler's clerks, at [`tpcc_tables`]), [`ycsb`] (a mix of requests for
//! keys by [`zipf`]), [`keyed`] (by the key-value API, and on stock by prepared statements) and [`remover`]
//! are the loops, the same for both engines, [`paced`] gives a writer's transactions times at which they are
//! due, [`shipped`] has a sidecar beside them, [`written`] counts what goes to disk, [`idle`] looks at what lies there when nothing happens,
//! [`bare_log`] is the limit of what can be durable, [`instructions`] counts instead of timing, [`overhead`]
//! compares the two libraries on SQLite's own path in alternating slices of one process, [`peers`] has the
//! evaluation suite measure other stores, [`verdict`] holds what was measured against what is required, and
//! [`table`] prints both.
//!
//! A figure counts only when the database proves it: after every trial the rows are counted and a counter in
//! each row, raised by each update, must add up to the commits that were acknowledged. Values differ at every
//! write, all statements are prepared (BEGIN and COMMIT too), and settings are read back. Of a queue's jobs
//! each must have been taken by one worker, once, and every row that a visitor was told is there must be. A
//! bare log must hold the last record of each writer.

pub mod bare_log;
pub mod case;
pub mod idle;
pub mod instructions;
pub mod keyed;
pub mod members;
pub mod overhead;
pub mod paced;
pub mod passer;
pub mod peers;
pub mod reader;
pub mod remover;
pub mod shipped;
pub mod table;
pub mod tpcc;
pub mod tpcc_tables;
pub mod trial;
pub mod verdict;
pub mod visitor;
pub mod worker;
pub mod writer;
pub mod written;
pub mod ycsb;
pub mod zipf;
