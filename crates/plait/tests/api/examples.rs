//! The examples do what they say.

#[path = "../../examples/maps.rs"]
mod maps;
#[path = "../../examples/tickets.rs"]
mod tickets;
#[path = "../../examples/transfer.rs"]
mod transfer;

fn runs(example: fn(&std::path::Path) -> plait::Result<()>) {
    let folder = tempfile::tempdir().expect("a folder");
    example(&folder.path().join("app.db")).expect("it runs");
}

#[test]
fn the_example_of_maps_runs() {
    runs(maps::run);
}

#[test]
fn the_example_of_transfers_runs() {
    runs(transfer::run);
}

#[test]
fn the_example_of_tickets_runs() {
    runs(tickets::run);
}
