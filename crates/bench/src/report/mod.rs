//! What is shown of the results.
//!
//! | module | what |
//! |---|---|
//! | [`results`] | the results themselves, as JSON |

pub mod results;
