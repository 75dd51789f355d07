//! Killing processes, at named steps and at random, and auditing what is left.
//!
//! [`points`] names the steps, [`case`] kills one process at one of them, [`storm`] kills at random, [`audit`]
//! holds the survivors' database against the record that was kept outside, [`image`] copies a dead database's files so that
//! they can be damaged.

pub mod audit;
pub mod case;
pub mod image;
pub mod points;
pub mod storm;
