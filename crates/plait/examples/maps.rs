//! A map is a table: put and get, ranges, and SQL on the same rows.
//!
//! `cargo run --example maps -- app.db`

use plait::{Applied, Connection, MapDefinition, Prefix, params};

const PAGES: MapDefinition<&str, &str> = MapDefinition::new("pages");
const HITS: MapDefinition<&str, i64> = MapDefinition::new("hits");

/// Does all of it in the file at `path`.
pub fn run(path: &std::path::Path) -> plait::Result<()> {
    let mut connection = Connection::open(path)?;

    let mut pages = connection.map(PAGES)?;
    pages.load([("/", "home"), ("/blog/1", "first"), ("/blog/2", "second")])?;
    if let Some(text) = pages.get("/blog/1")? {
        println!("{text}"); // not copied
    }
    for page in pages.range(Prefix("/blog/"))?.rev() {
        let (address, text) = page?;
        println!("{address}: {text}");
    }

    let mut hits = connection.map(HITS)?;
    hits.add("/", 1)?;
    let mut batch = hits.batch();
    batch.expect("/blog/1", None).put("/blog/1", 10).add("/", 10);
    assert_eq!(hits.apply(&batch)?, Applied::All);
    drop((pages, hits));

    let popular = connection.read(|snapshot| {
        let sql = "SELECT k, hits.v FROM pages JOIN hits USING(k) WHERE hits.v>=?1 ORDER BY k";
        snapshot.query(sql, params![10], |row| Ok((row.get::<String>(0)?, row.get::<i64>(1)?)))
    })?;
    assert_eq!(popular, [("/".to_owned(), 11), ("/blog/1".to_owned(), 10)]);
    connection.write(|tx| tx.execute("DELETE FROM hits", &[]))?;
    assert!(connection.map(HITS)?.is_empty()?);
    Ok(())
}

#[allow(dead_code, reason = "the tests call run()")]
fn main() -> plait::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "app.db".into());
    run(path.as_ref())
}
