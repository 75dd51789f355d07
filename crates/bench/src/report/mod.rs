//! What is shown of the results.
//!
//! | module | what |
//! |---|---|
//! | [`results`] | the results themselves, as JSON |
//! | [`metric`] | what a chart's metric is of a phase |
//! | [`evaluate`] | from trials to the figures that charts and tables show, with [`details`] beside |
//! | [`standing`] | where Plait wins and where it loses |
//! | [`findings`] | what engines did in behaviour tests |
//! | [`grid`], [`numbers`] | a chart as rows and columns of text |
//! | [`terminal`] | the summary on a terminal |

pub mod details;
pub mod evaluate;
pub mod findings;
pub mod grid;
pub mod metric;
pub mod numbers;
pub mod results;
pub mod standing;
pub mod terminal;
