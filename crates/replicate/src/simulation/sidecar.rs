//! A sidecar that is watched: where nobody removes or damages anything it misses nothing.

use std::convert::Infallible;
use std::rc::Rc;

use super::oracle::Oracle;
use crate::error::{Error, Result};
use crate::primary::{Settings, Sidecar};
use crate::source::Source;
use crate::world::World;

/// Ships until something ends it.
///
/// # Errors
/// As of [`Sidecar::run`].
pub async fn run(
    world: World,
    source: Box<dyn Source>,
    settings: Settings,
    oracle: Rc<Oracle>,
) -> Result<Infallible> {
    let mut sidecar = Sidecar::open(world.clone(), source, settings).await?;
    loop {
        match sidecar.step().await {
            Err(error @ Error::Removed { .. }) => {
                oracle.violate_by_writer(format!("a sidecar misses what is there: {error}"));
                sidecar = sidecar.open_anew().await?;
            }
            done => done?,
        }
        if let Some(lost) = world.lost() {
            oracle.violate_by_writer(format!("a sidecar misses what is there: {lost}"));
        }
    }
}
