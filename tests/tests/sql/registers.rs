//! What a prepared statement keeps from one run to the next is small, and gone with the statement.

use plait_tests::sqlite::{Connection, Statement, Step};
use plait_tests::subject::{Fixture, Subject};

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val);
    CREATE TABLE seen(val);
    CREATE TRIGGER sees AFTER UPDATE ON t WHEN new.val=1 BEGIN
        INSERT INTO seen SELECT group_concat(val, ',') FROM t WHERE id<>2;
    END;
    INSERT INTO t VALUES(1, 'some'), (2, zeroblob(500000)), (3, 7)";
/// A row, an aggregate, a sorter, a subprogram, an error.
const SQL: [&str; 5] = [
    "SELECT id, val || 'x' FROM t WHERE id=?1",
    "SELECT group_concat(val, ','), count(DISTINCT val) FROM t WHERE id<>2",
    "SELECT val FROM t ORDER BY hex(val) DESC",
    "UPDATE t SET val=?1 WHERE id=3",
    "INSERT INTO t VALUES(1, 'again ' || ?1)",
];

fn run(statement: &mut Statement, bound: i64) {
    while matches!(statement.step(), Ok(Step::Row)) {}
    statement.reset();
    let _ = statement.bind_i64(1, bound);
}

fn prepare_all(connection: &Connection) -> Vec<Statement> {
    SQL.iter().map(|sql| connection.prepare(sql).expect("it is SQL")).collect()
}

// Alone in its process: memory is counted for all of the library.
// holds KEPT-1, KEPT-2
#[test]
fn a_statement_keeps_little_and_leaves_nothing() {
    let fixture = Fixture::new(Subject::plait(), ROWS);
    let connection = fixture.open();
    connection
        .execute("PRAGMA plait_background_merge=off; UPDATE t SET val='y' WHERE id=1")
        .expect("it writes");
    let mut before = 0;
    for round in 0..40 {
        let mut statements = prepare_all(&connection);
        let unused = connection.statement_bytes();
        for bound in 0..4 {
            statements.iter_mut().for_each(|statement| run(statement, bound));
        }
        let kept = connection.statement_bytes() - unused;
        assert!(kept > 0, "nothing is kept");
        assert!(kept < 20_000, "a large value is kept: {kept}");
        for bound in 0..4 {
            statements.iter_mut().for_each(|statement| run(statement, bound));
        }
        assert_eq!(connection.statement_bytes() - unused, kept, "it grows with each run");
        drop(statements);
        assert_eq!(connection.statement_bytes(), 0);
        // Without the pages of the cache.
        connection.execute("DELETE FROM seen; PRAGMA shrink_memory").expect("it writes");
        let used = fixture.subject.library().memory_used();
        if round == 19 {
            before = used;
        }
        assert!(round < 20 || used < before + 10_000, "{used} bytes are in use, {before} were");
    }
}
