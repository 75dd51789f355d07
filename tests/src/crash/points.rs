//! The names of the engine's crash points, read from its source: this package is built from no other.

/// Every crash point, in the order of the engine's list.
///
/// # Panics
/// If the source does not look as expected.
#[must_use]
pub fn crash_points() -> Vec<&'static str> {
    let source = include_str!("../../../crates/engine/src/crash_point.rs");
    let (_, list) =
        source.split_once("CRASH_POINTS: &[&str] = &[").expect("the engine lists its points");
    let (list, _) = list.split_once("];").expect("the list ends");
    list.split('"').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::crash_points;

    #[test]
    fn the_engines_crash_points_are_found() {
        let points = crash_points();
        assert!(points.contains(&"commit.published") && points.contains(&"right.reserved"));
        assert!(points.iter().all(|name| name.contains('.')), "{points:?}");
    }
}
