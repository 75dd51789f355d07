//! Which database on which machine this is.
//!
//! A place that a database is shipped to is not taken over by another one unless that is asked for.
//! Who has copied a machine with its name has two of one name: the second that starts fences the
//! first, which ends and says so, and goes on with a break and a snapshot of its own (SHIP-4).

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use plait_replicate::ids::{Hash, Instance};

fn text_of(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The name of this machine, for people.
pub fn host() -> String {
    text_of("/proc/sys/kernel/hostname").unwrap_or_else(|| "a machine without a name".to_owned())
}

/// The database at an absolute path, on the machine of this name, or on this one.
pub fn of(path: &Path, machine: Option<&str>) -> Instance {
    let own = || text_of("/etc/machine-id").unwrap_or_else(host);
    let machine = machine.map_or_else(own, str::to_owned);
    let name = [machine.as_bytes(), b"\0", path.as_os_str().as_bytes()].concat();
    let Hash(hash) = Hash::of(&name);
    let mut instance = Instance::default();
    instance.0.copy_from_slice(&hash[..16]);
    instance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_and_path_make_an_instance() {
        let of = |path: &str, machine: &str| of(Path::new(path), Some(machine));
        assert_eq!(of("/srv/a.db", "one"), of("/srv/a.db", "one"));
        assert_ne!(of("/srv/a.db", "one"), of("/srv/b.db", "one"));
        assert_ne!(of("/srv/a.db", "one"), of("/srv/a.db", "two"));
    }
}
