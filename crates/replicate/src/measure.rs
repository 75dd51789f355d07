//! How fast a store takes records: small ones, for the time of each, and large ones, for bytes.

use std::time::Duration;

use bytes::Bytes;

use crate::error::Result;
use crate::ids::Nonce;
use crate::names;
use crate::store::Created;
use crate::world::World;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Bytes of a record.
    pub bytes: usize,
    /// Records.
    pub count: u32,
    /// The time of half of them was less.
    pub median: Duration,
    /// The time of 99 of 100 was less.
    pub p99: Duration,
    /// Time of all of them, one after the other.
    pub all: Duration,
}

impl Measured {
    /// Records in a second.
    pub fn per_second(&self) -> f64 {
        f64::from(self.count) / self.all.as_secs_f64()
    }

    /// Megabytes in a second.
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 * self.per_second() / 1e6
    }
}

/// Creates `count` objects one after the other, as a sidecar does, and deletes them.
///
/// # Errors
/// The store's.
pub async fn measure(world: &World, bytes: usize, count: u32) -> Result<Measured> {
    let nonce = Nonce(world.random().name());
    let body: Vec<u8> =
        (0..bytes.div_ceil(8)).flat_map(|_| world.random().number().to_le_bytes()).collect();
    let body = Bytes::from(body).slice(..bytes);
    let mut times = Vec::new();
    let begun = world.clock().now();
    for index in 0..count {
        let before = world.clock().now();
        let created = world.try_create(&names::probe(nonce, index), &body).await?;
        debug_assert_eq!(created, Created::Made);
        times.push(world.clock().now() - before);
    }
    let all = world.clock().now() - begun;
    for index in 0..count {
        world.try_delete(&[names::probe(nonce, index)]).await?;
    }
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    Ok(Measured { bytes, count, median: at(50), p99: at(99), all })
}
