//! Open cursors, own writes and rows in the base, in every mixture: equal to stock SQLite.
//!
//! Each case runs with its rows unmerged, merged before it, and merged between all its steps; outside a transaction
//! and inside one of each kind.

use plait_tests::differential::shrink::{Bench, Failure, scratch};
use plait_tests::differential::{Hooks, Script, Step};
use plait_tests::subject::{Begin, Subject};
use std::time::Duration;

const ROWS: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, grp, val);
    CREATE INDEX t_grp ON t(grp);
    CREATE TABLE w(a TEXT, b INTEGER, c, PRIMARY KEY(a, b)) WITHOUT ROWID;
    CREATE INDEX w_c ON w(c);
    CREATE TABLE e(id INTEGER PRIMARY KEY, x);
    CREATE TABLE u(id INTEGER PRIMARY KEY, a UNIQUE, b, c, UNIQUE(b, c));
    CREATE TABLE t2(id INTEGER PRIMARY KEY, grp, val);
    CREATE INDEX t2_grp ON t2(grp);
    CREATE TABLE w2(a TEXT, b INTEGER, c, PRIMARY KEY(a, b)) WITHOUT ROWID;
    CREATE INDEX w2_c ON w2(c);
    CREATE TABLE seq(id INTEGER PRIMARY KEY AUTOINCREMENT, x);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<40) INSERT INTO t SELECT i*10, i%7, 'v'||i FROM n;
    INSERT INTO w SELECT 'k'||(id%5), id, grp FROM t;
    INSERT INTO u VALUES(1,1,1,1),(2,2,2,2),(3,3,3,3),(4,NULL,NULL,4),(5,NULL,5,NULL);
";

fn sql(text: &str) -> Step {
    Step::Sql(text.to_owned())
}

fn open(number: u8, text: &str) -> Step {
    Step::Open(number, text.to_owned())
}

fn fetch(number: u8, rows: u8) -> Step {
    Step::Fetch(number, rows)
}

#[derive(Clone, Copy, Debug)]
enum Merging {
    Never,
    Before,
    Between,
}

fn script(steps: &[Step], merging: Merging, begin: Option<Begin>) -> Script {
    let mut all = vec![sql(ROWS)];
    if !matches!(merging, Merging::Never) {
        all.push(Step::Merge);
    }
    all.extend(begin.map(Step::Begin));
    for step in steps {
        all.push(step.clone());
        if matches!(merging, Merging::Between) {
            all.push(Step::Merge);
        }
    }
    all.push(Step::Compare);
    if begin.is_some() {
        all.push(sql("COMMIT"));
        all.push(Step::Compare);
    }
    Script { seed: 0, hooks: Hooks::Changes, birth: "PRAGMA page_size=1024".to_owned(), steps: all }
}

#[track_caller]
fn same_as_stock(steps: &[Step]) {
    let (stock, plait) = (Subject::stock(), Subject::plait());
    let scratch = scratch();
    let bench = Bench { stock: &stock, plait: &plait, scratch: scratch.path() };
    let begins = [None, Some(Begin::Deferred), Some(Begin::Concurrent), Some(Begin::Immediate)];
    let mergings = [Merging::Never, Merging::Before, Merging::Between];
    let variants: Vec<_> =
        mergings.into_iter().flat_map(|merging| begins.map(|begin| (merging, begin))).collect();
    let scripts: Vec<Script> =
        variants.iter().map(|(merging, begin)| script(steps, *merging, *begin)).collect();
    let Some((failed, failure)) = bench.scripts(&scripts, Duration::from_secs(60)) else { return };
    let (variant, text) = (variants[failed], scripts[failed].render());
    match failure {
        Failure::Broken(message) => panic!("{variant:?}: {message}\n{text}"),
        Failure::Mismatch(mismatch) => panic!(
            "{variant:?}, step {}\nstock: {}\nplait: {}\n{text}",
            mismatch.step, mismatch.stock, mismatch.plait
        ),
    }
}

/// A scan under way, then every kind of write before, at and after its place.
fn writes_around_a_scan(scan: &str) {
    let writes = [
        "DELETE FROM t WHERE id=60",
        "DELETE FROM t WHERE id BETWEEN 30 AND 110",
        "INSERT INTO t VALUES(65, 3, 'new'), (25, 3, 'new'), (395, 3, 'new'), (5, 3, 'new')",
        "UPDATE t SET val='changed' WHERE id>20",
        "UPDATE t SET grp=grp+1",
        "UPDATE t SET id=id+1000 WHERE id IN (40, 70)",
        "UPDATE t SET id=id+5 WHERE id<200",
        "REPLACE INTO t VALUES(50, 4, 'replaced'), (60, 4, 'replaced'), (70, 4, 'replaced')",
        "DELETE FROM t",
        "DELETE FROM t WHERE id=(SELECT max(id) FROM t); DELETE FROM t WHERE id=(SELECT min(id) FROM t)",
    ];
    for write in writes {
        for position in [1, 5] {
            same_as_stock(&[
                open(0, scan),
                fetch(0, position),
                sql(write),
                fetch(0, 3),
                sql("INSERT INTO t(grp, val) VALUES(2, 'auto')"),
                fetch(0, 250),
            ]);
        }
    }
}

#[test]
fn writes_around_a_forward_scan() {
    writes_around_a_scan("SELECT id, grp, val FROM t");
}

#[test]
fn writes_around_a_backward_scan() {
    writes_around_a_scan("SELECT id, grp, val FROM t ORDER BY id DESC");
}

#[test]
fn writes_around_an_index_scan() {
    writes_around_a_scan("SELECT grp, id, val FROM t INDEXED BY t_grp WHERE grp>=0");
}

#[test]
fn writes_around_a_backward_index_scan() {
    writes_around_a_scan(
        "SELECT grp, id, val FROM t INDEXED BY t_grp WHERE grp>=0 ORDER BY grp DESC",
    );
}

#[test]
fn writes_around_a_scan_of_a_table_without_rowid() {
    for scan in [
        "SELECT * FROM w",
        "SELECT * FROM w ORDER BY a DESC, b DESC",
        "SELECT * FROM w INDEXED BY w_c WHERE c>1 ORDER BY c",
    ] {
        for write in [
            "DELETE FROM w WHERE a='k2'",
            "INSERT INTO w VALUES('k1', 5, 5), ('k0', 9999, 1), ('zz', 0, 3)",
            "UPDATE w SET b=b+1 WHERE a='k1'",
            "UPDATE w SET c=c+1",
            "UPDATE w SET a='k9' WHERE b>200",
            "DELETE FROM w",
        ] {
            same_as_stock(&[open(0, scan), fetch(0, 6), sql(write), fetch(0, 4), fetch(0, 250)]);
        }
    }
}

#[test]
fn scans_over_what_one_statement_has_deleted() {
    let all = |number| {
        [
            open(number, "SELECT id, grp FROM t ORDER BY id"),
            fetch(number, 250),
            open(number + 1, "SELECT id, grp FROM t WHERE id<350 ORDER BY id DESC"),
            fetch(number + 1, 250),
        ]
    };
    for delete in [
        "DELETE FROM t WHERE +id BETWEEN 50 AND 300",
        "DELETE FROM t WHERE +id%50<>0",
        "DELETE FROM t",
        "DELETE FROM t WHERE +id>=50; INSERT INTO t VALUES(55, 1, 'n'); DELETE FROM t WHERE +id>=60",
    ] {
        let mut steps = vec![open(4, "SELECT id FROM t ORDER BY id DESC"), fetch(4, 7)];
        steps.push(sql(delete));
        steps.extend(all(0));
        steps.push(sql("INSERT INTO t VALUES(155, 1, 'n'), (52, 1, 'n'), (299, 2, 'n')"));
        steps.push(fetch(4, 9));
        steps.extend(all(2));
        steps.push(sql(
            "SAVEPOINT s; DELETE FROM t WHERE +id>60; INSERT INTO t VALUES(200, 1, 'n')",
        ));
        steps.push(sql("ROLLBACK TO s; RELEASE s; INSERT INTO t(grp) VALUES(3)"));
        steps.extend(all(0));
        steps.push(fetch(4, 250));
        same_as_stock(&steps);
    }
}

#[test]
fn two_scans_and_writes_through_each_other() {
    same_as_stock(&[
        open(0, "SELECT id FROM t ORDER BY id"),
        open(1, "SELECT id FROM t ORDER BY id DESC"),
        fetch(0, 3),
        fetch(1, 3),
        sql("DELETE FROM t WHERE id IN (40, 370)"),
        fetch(0, 1),
        fetch(1, 1),
        sql("INSERT INTO t VALUES(55, 1, 'n'), (355, 1, 'n')"),
        fetch(0, 3),
        fetch(1, 3),
        sql("UPDATE t SET id=id+1 WHERE id%20=0"),
        fetch(0, 250),
        fetch(1, 250),
    ]);
}

#[test]
fn an_in_query_over_duplicate_prefixes_sees_an_updated_row_once() {
    same_as_stock(&[
        sql("UPDATE w SET c=99 WHERE a='k1' AND b=60"),
        sql("SELECT * FROM w WHERE a IN ('k0','k1','k3') AND b>50 ORDER BY a, b"),
        sql("UPDATE w SET b=61 WHERE a='k1' AND b=60"),
        sql("SELECT * FROM w WHERE a IN ('k0','k1','k3') AND b IN (60, 61, 110)"),
        sql("SELECT a, count(*) FROM w WHERE a IN ('k1','k1','k2') GROUP BY a"),
    ]);
}

#[test]
fn long_walks_over_changed_rows_meet_them_all_in_both_directions() {
    let changes = sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500)
             INSERT INTO t SELECT 1000+i, i*13%89, 'n'||i FROM n;
         UPDATE t SET grp=grp*5%97 WHERE id%3=0; DELETE FROM t WHERE id%7=0;
         INSERT INTO w SELECT 'k'||id, grp, val FROM t WHERE id>1000; UPDATE w SET c=NULL WHERE b%2=0");
    let walks = [
        "SELECT id, val FROM t ORDER BY id DESC",
        "SELECT grp, id FROM t ORDER BY grp DESC, id DESC",
        "SELECT grp, id FROM t ORDER BY grp, id",
        "SELECT a, b, c FROM w ORDER BY a DESC, b DESC",
        "SELECT c, a FROM w ORDER BY c DESC",
    ];
    for walk in walks {
        same_as_stock(&[
            changes.clone(),
            open(0, walk),
            fetch(0, 250),
            sql("UPDATE t SET grp=grp+1 WHERE id%5=0; DELETE FROM w WHERE b%3=0"),
            fetch(0, 250),
            sql("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM w)"),
            fetch(0, 255),
        ]);
    }
}

#[test]
fn seeks_that_land_on_deleted_rows_go_on_to_the_next() {
    same_as_stock(&[
        sql("DELETE FROM t WHERE id IN (10, 20, 100, 390, 400)"),
        sql("SELECT id FROM t WHERE id>=100 ORDER BY id LIMIT 2"),
        sql("SELECT id FROM t WHERE id<=100 ORDER BY id DESC LIMIT 2"),
        sql("SELECT id FROM t WHERE id>390"),
        sql("SELECT id FROM t WHERE id<20"),
        sql("SELECT max(id), (SELECT min(id) FROM t) FROM t"),
        sql("SELECT max(grp) FROM t; SELECT min(grp) FROM t; SELECT max(c) FROM w"),
        sql("SELECT id FROM t WHERE id=100; SELECT id FROM t WHERE id IN (90,100,110)"),
        sql(
            "DELETE FROM t WHERE grp=6; SELECT max(grp) FROM t; SELECT id FROM t WHERE grp>=6 ORDER BY grp",
        ),
    ]);
}

#[test]
fn empty_and_emptied_tables_have_no_rows_in_either_direction() {
    same_as_stock(&[
        sql("SELECT max(id), min(id), count(*) FROM e; SELECT * FROM e ORDER BY id DESC"),
        sql("DELETE FROM t; DELETE FROM w"),
        sql(
            "SELECT max(id), min(id), count(*) FROM t; SELECT * FROM t ORDER BY id DESC; SELECT * FROM t WHERE grp>1",
        ),
        sql(
            "SELECT max(b) FROM w; SELECT * FROM w ORDER BY a DESC; SELECT count(*) FROM w WHERE c>=0",
        ),
        sql("INSERT INTO t(grp) VALUES(1); INSERT INTO e VALUES(1, 1); SELECT * FROM t"),
        sql("DELETE FROM e WHERE id=1; SELECT * FROM e; SELECT max(id) FROM e"),
    ]);
}

#[test]
fn every_row_of_a_table_without_rowid_is_found_by_its_key() {
    for key in ["INTEGER PRIMARY KEY", "TEXT PRIMARY KEY", "PRIMARY KEY"] {
        same_as_stock(&[
            sql(&format!(
                "CREATE TABLE k(id {key}, grp, val) WITHOUT ROWID; CREATE INDEX k_grp ON k(grp)"
            )),
            sql("INSERT INTO k SELECT id, grp, val FROM t"),
            Step::Merge,
            sql(
                "INSERT INTO k VALUES(5, 0, 'n'), (105, 0, 'n'); DELETE FROM k WHERE id=200; UPDATE k SET val='u' WHERE id=300",
            ),
            sql(
                "SELECT t.id, (SELECT val FROM k WHERE k.id=t.id), (SELECT count(*) FROM k WHERE k.id=t.id+5) FROM t",
            ),
            sql("SELECT * FROM k WHERE id IN (5, 10, 105, 110, 200, 300, 999)"),
            sql(
                "DELETE FROM k WHERE id=10; UPDATE k SET grp=9 WHERE id=390; REPLACE INTO k VALUES(380, 1, 'r'); SELECT * FROM k",
            ),
        ]);
    }
}

#[test]
fn partial_keys_find_the_first_and_last_of_equal_prefixes() {
    same_as_stock(&[
        sql(
            "INSERT INTO w VALUES('k1', -5, 0), ('k1', 100000, 0); DELETE FROM w WHERE a='k3' AND b<150",
        ),
        sql(
            "SELECT * FROM w WHERE a='k1' ORDER BY b LIMIT 2; SELECT * FROM w WHERE a='k1' ORDER BY b DESC LIMIT 2",
        ),
        sql(
            "SELECT * FROM w WHERE a>'k1' LIMIT 2; SELECT * FROM w WHERE a<'k3' ORDER BY a DESC, b DESC LIMIT 2",
        ),
        sql(
            "SELECT * FROM w WHERE a>='k3' LIMIT 2; SELECT * FROM w WHERE a<='k3' ORDER BY a DESC, b DESC LIMIT 2",
        ),
        sql(
            "SELECT min(b), max(b) FROM w WHERE a='k3'; SELECT max(b) FROM w WHERE a='k3'; SELECT min(b) FROM w WHERE a='k3'",
        ),
        sql("SELECT DISTINCT a FROM w; SELECT DISTINCT grp FROM t"),
    ]);
}

#[test]
fn outer_joins_give_null_rows_over_merged_cursors() {
    same_as_stock(&[
        sql(
            "INSERT INTO e SELECT id, grp FROM t WHERE id<100; DELETE FROM e WHERE id=50; DELETE FROM t WHERE id=60",
        ),
        sql("SELECT t.id, e.id, e.x FROM t LEFT JOIN e ON e.id=t.id ORDER BY t.id"),
        sql(
            "SELECT t.id, e.id FROM t RIGHT JOIN e ON e.id=t.id ORDER BY e.id; SELECT count(*) FROM t FULL JOIN e ON e.id=t.id",
        ),
        sql("SELECT t.id, w.a, w.c FROM t LEFT JOIN w ON w.b=t.id AND w.a='k1' ORDER BY t.id, w.a"),
        sql(
            "SELECT id FROM t WHERE id NOT IN (SELECT id FROM e); SELECT id FROM t WHERE grp IN (SELECT x FROM e WHERE x IN (1,3))",
        ),
    ]);
}

#[test]
fn a_cursor_may_be_restored_twice_and_sought_again() {
    same_as_stock(&[
        open(0, "SELECT a.id, b.id FROM t AS a JOIN t AS b ON b.id>a.id AND b.id<a.id+35"),
        fetch(0, 2),
        sql("UPDATE t SET val='1' WHERE id=20"),
        sql("DELETE FROM t WHERE id=30"),
        fetch(0, 1),
        sql("INSERT INTO t VALUES(31, 0, 'n')"),
        sql("INSERT INTO t VALUES(9, 0, 'behind')"),
        fetch(0, 2),
        sql("UPDATE t SET val='2' WHERE id=20; UPDATE t SET val='3' WHERE id=20"),
        fetch(0, 200),
    ]);
}

#[test]
fn an_incremental_blob_is_aborted_by_a_write_to_its_row_only() {
    let blob =
        |rowid| Step::BlobOpen { table: "t".into(), column: "val".into(), rowid, write: true };
    same_as_stock(&[
        sql("UPDATE t SET val=zeroblob(5000) WHERE id IN (10, 20)"),
        blob(10),
        Step::BlobWrite(3000, 100, 7),
        sql("UPDATE t SET grp=5 WHERE id=20"),
        Step::BlobRead(3000, 20),
        sql("INSERT INTO t VALUES(15, 1, 'x'); DELETE FROM t WHERE id=30"),
        Step::BlobWrite(0, 10, 9),
        sql("UPDATE t SET grp=6 WHERE id=10"),
        Step::BlobRead(0, 10),
        Step::BlobWrite(0, 10, 1),
        Step::BlobClose,
        blob(20),
        Step::BlobReopen(10),
        Step::BlobRead(3000, 20),
        Step::BlobReopen(40),
        Step::BlobReopen(12345),
        Step::BlobClose,
        sql("SELECT hex(substr(val, 2995, 10)) FROM t WHERE id=10"),
    ]);
}

#[test]
fn a_blob_that_has_been_written_is_aborted_by_a_write_to_its_row_on_the_exclusive_path_too() {
    let change = [
        "UPDATE t SET grp=6 WHERE id=10",
        "UPDATE t SET id=11 WHERE id=10",
        "DELETE FROM t WHERE id=10",
        "DELETE FROM t",
    ];
    for exclusive in ["CREATE TABLE made(a)", "PRAGMA user_version=3"] {
        for change in change {
            for begin in ["SELECT 1", "BEGIN"] {
                same_as_stock(&[
                    sql("UPDATE t SET val=zeroblob(5000) WHERE id IN (10, 20)"),
                    sql(begin),
                    Step::BlobOpen {
                        table: "t".into(),
                        column: "val".into(),
                        rowid: 10,
                        write: true,
                    },
                    Step::BlobWrite(3000, 100, 7),
                    sql(exclusive),
                    Step::BlobRead(3000, 20),
                    sql("UPDATE t SET grp=6 WHERE id=20"),
                    Step::BlobRead(3000, 20),
                    sql(change),
                    Step::BlobRead(3000, 20),
                    Step::BlobWrite(3000, 20, 8),
                    Step::BlobClose,
                    sql("SELECT count(*), total(grp), total(length(val)) FROM t"),
                ]);
            }
        }
    }
}

/// What an exclusive transaction loads of a schema that a failed statement made the connection forget is no change of the schema, which would
/// take the open cursors with it.
#[test]
fn a_rollback_after_the_schema_was_loaded_anew_leaves_cursors_that_only_read() {
    same_as_stock(&[
        sql("CREATE TABLE gone(a); CREATE TABLE strict(a NOT NULL);
            CREATE TRIGGER going BEFORE UPDATE ON gone BEGIN DELETE FROM strict; END"),
        open(0, "SELECT id FROM t ORDER BY id DESC"),
        fetch(0, 2),
        sql("DROP TABLE gone"),
        sql("SAVEPOINT s"),
        sql("PRAGMA application_id=39"),
        fetch(0, 1),
        sql("INSERT OR ROLLBACK INTO strict VALUES(NULL)"),
        fetch(0, 3),
    ]);
}

#[test]
fn savepoints_undo_writes_of_tables_and_indexes() {
    same_as_stock(&[
        sql(
            "SAVEPOINT a; UPDATE w SET c=c+1; INSERT INTO w VALUES('n', 1, 1); DELETE FROM w WHERE a='k2'",
        ),
        sql(
            "SAVEPOINT b; UPDATE w SET b=b+1 WHERE a='k1'; DELETE FROM t WHERE grp=3; INSERT INTO t VALUES(77, 3, 's')",
        ),
        sql(
            "SELECT count(*), sum(c), sum(b) FROM w; SELECT count(*) FROM t INDEXED BY t_grp WHERE grp=3",
        ),
        sql(
            "ROLLBACK TO b; SELECT count(*), sum(c), sum(b) FROM w; SELECT count(*) FROM t INDEXED BY t_grp WHERE grp=3",
        ),
        sql("INSERT INTO t VALUES(78, 3, 'kept'); RELEASE b"),
        sql("SAVEPOINT c; DELETE FROM w; DELETE FROM t; ROLLBACK TO c; RELEASE c"),
        sql(
            "ROLLBACK TO a; SELECT count(*), sum(c) FROM w; INSERT INTO w VALUES('m', 2, 2); RELEASE a",
        ),
    ]);
}

#[test]
fn savepoints_under_open_cursors() {
    same_as_stock(&[
        sql("SAVEPOINT a"),
        open(0, "SELECT id, val FROM t ORDER BY id"),
        fetch(0, 3),
        sql("UPDATE t SET val='x' WHERE id>=40; DELETE FROM t WHERE id=50"),
        fetch(0, 2),
        sql("ROLLBACK TO a"),
        fetch(0, 3),
        Step::Close(0),
        sql("RELEASE a"),
    ]);
}

/// Scans in every order, and a join whose inner cursor seeks again for each outer row.
const SCANS: [&str; 7] = [
    "SELECT id, val FROM t",
    "SELECT id, val FROM t ORDER BY id DESC",
    "SELECT grp, id, val FROM t INDEXED BY t_grp WHERE grp>=0",
    "SELECT grp FROM t INDEXED BY t_grp WHERE grp>=1 ORDER BY grp DESC",
    "SELECT * FROM w",
    "SELECT a, b FROM w INDEXED BY w_c WHERE c>=0 ORDER BY c DESC",
    "SELECT x.id, y.id, y.val FROM t AS x JOIN t AS y ON y.id>x.id AND y.id<x.id+35",
];

// holds TXN-1
#[test]
fn a_scan_goes_on_while_its_own_writes_come_and_go() {
    for scan in SCANS {
        same_as_stock(&[
            sql("SAVEPOINT a"),
            open(0, scan),
            fetch(0, 3),
            sql("UPDATE t SET val='x', grp=grp+1 WHERE id BETWEEN 30 AND 90"),
            sql("UPDATE w SET c=c+1 WHERE b<150"),
            fetch(0, 2),
            sql("ROLLBACK TO a"),
            fetch(0, 2),
            sql("SELECT count(*), max(id), max(grp) FROM t; SELECT count(*), max(c) FROM w"),
            sql("DELETE FROM t WHERE id IN (50, 60, 70, 350, 360); DELETE FROM w WHERE b%60=0"),
            fetch(0, 3),
            sql("ROLLBACK TO a"),
            fetch(0, 1),
            sql(
                "INSERT INTO t VALUES(45, 3, 'n'), (355, 3, 'n'); INSERT INTO w VALUES('k1', 45, 3)",
            ),
            fetch(0, 250),
            sql("RELEASE a"),
        ]);
    }
}

#[test]
fn a_scan_goes_on_through_an_exclusive_transaction_and_out_of_it() {
    for scan in SCANS {
        same_as_stock(&[
            sql("BEGIN"),
            open(0, scan),
            fetch(0, 3),
            sql("CREATE TABLE made(a); INSERT INTO made VALUES(1)"),
            fetch(0, 2),
            sql("DELETE FROM t WHERE id IN (40, 50, 60, 340, 350); DELETE FROM w WHERE b%50=0"),
            fetch(0, 2),
            sql("INSERT INTO t VALUES(65, 2, 'n'), (335, 2, 'n'); UPDATE w SET c=c+1"),
            sql("SAVEPOINT s; UPDATE t SET grp=grp+1; ROLLBACK TO s; RELEASE s"),
            fetch(0, 1),
            sql("COMMIT"),
            fetch(0, 2),
            sql("UPDATE t SET val='later', grp=grp+1; DELETE FROM w WHERE b=200"),
            fetch(0, 250),
        ]);
    }
}

#[test]
fn a_row_that_was_deleted_under_a_join_is_left_behind_once() {
    let join = "SELECT x.id, y.id, x.val FROM t AS x JOIN u AS y";
    for (delete, insert) in [
        ("DELETE FROM t WHERE id=10", "INSERT INTO t VALUES(5, 0, 'n')"),
        ("DELETE FROM t WHERE id<=20", "UPDATE t SET val='x' WHERE id>20"),
    ] {
        for order in ["", " ORDER BY x.id DESC"] {
            for made in ["SELECT 1", "CREATE TABLE made(a)"] {
                same_as_stock(&[
                    sql("BEGIN"),
                    sql(made),
                    open(0, &format!("{join}{order}")),
                    fetch(0, 1),
                    sql(delete),
                    sql("DELETE FROM t WHERE id=400"),
                    fetch(0, 1),
                    sql(insert),
                    sql("COMMIT"),
                    fetch(0, 7),
                    sql("UPDATE t SET grp=0"),
                    fetch(0, 250),
                ]);
            }
        }
    }
}

#[test]
fn a_rolled_back_transaction_ends_scans_as_in_stock() {
    for scan in [SCANS[0], SCANS[3], SCANS[6]] {
        for made in ["SELECT 1", "CREATE TABLE made(a)"] {
            same_as_stock(&[
                sql("BEGIN"),
                open(0, scan),
                fetch(0, 3),
                sql("UPDATE t SET val='x' WHERE id<100; DELETE FROM w WHERE c=2"),
                sql(made),
                fetch(0, 2),
                sql("ROLLBACK"),
                fetch(0, 5),
                sql("SELECT count(*), min(val) FROM t; SELECT count(*) FROM w"),
            ]);
        }
    }
}

#[test]
fn a_blob_keeps_its_row_through_every_path() {
    let blob =
        |rowid, write| Step::BlobOpen { table: "t".into(), column: "val".into(), rowid, write };
    for write in [false, true] {
        same_as_stock(&[
            sql("UPDATE t SET val=zeroblob(5000) WHERE id IN (10, 20, 30)"),
            Step::Merge,
            blob(10, write),
            Step::BlobRead(100, 5),
            sql("SAVEPOINT a; UPDATE t SET grp=5 WHERE id=20"),
            Step::BlobRead(4000, 5),
            Step::BlobWrite(100, 3, 8),
            sql("ROLLBACK TO a; RELEASE a"),
            Step::BlobRead(99, 5),
            sql("CREATE TABLE made(a)"),
            Step::BlobRead(99, 5),
            Step::BlobWrite(4000, 5, 9),
            sql("UPDATE t SET grp=6 WHERE id=30; INSERT INTO made VALUES(1)"),
            Step::BlobRead(3998, 5),
            Step::BlobReopen(20),
            Step::BlobRead(3998, 5),
            sql("UPDATE t SET grp=7 WHERE id=20"),
            Step::BlobRead(0, 5),
            Step::BlobReopen(30),
            sql("DELETE FROM t"),
            Step::BlobRead(0, 5),
            Step::BlobClose,
        ]);
    }
}

#[test]
fn counts_follow_own_writes_and_their_undoing() {
    let counts = "SELECT count(*) FROM t; SELECT count(*) FROM w; SELECT count(*) FROM e; SELECT count(*) FROM t WHERE grp=3";
    same_as_stock(&[
        open(0, "SELECT id FROM t"),
        fetch(0, 2),
        sql(counts),
        sql(
            "SAVEPOINT a; INSERT INTO t VALUES(15, 3, 'n'); DELETE FROM w WHERE a='k1'; INSERT INTO e VALUES(1, 1)",
        ),
        sql(counts),
        fetch(0, 2),
        sql("DELETE FROM t WHERE id>200; REPLACE INTO t VALUES(30, 3, 'r')"),
        sql(counts),
        sql("ROLLBACK TO a"),
        sql(counts),
        fetch(0, 250),
        sql("RELEASE a"),
    ]);
}

#[test]
fn rows_are_copied_from_table_to_table() {
    let copy = "INSERT INTO t2 SELECT * FROM t; INSERT INTO w2 SELECT * FROM w; SELECT * FROM t2; SELECT * FROM w2; DELETE FROM t2; DELETE FROM w2";
    same_as_stock(&[
        sql(copy),
        sql("UPDATE t SET val=zeroblob(3000) WHERE id=30; DELETE FROM w WHERE b=60"),
        sql(copy),
        sql("INSERT INTO t2 VALUES(20, 1, 'there'); INSERT INTO t2 SELECT * FROM t"),
        sql(
            "INSERT OR REPLACE INTO t2 SELECT * FROM t; SELECT count(*), sum(length(val)) FROM t2; DELETE FROM t2",
        ),
        sql("CREATE TABLE made(a)"),
        sql(copy),
        sql("PRAGMA integrity_check"),
    ]);
}

#[test]
fn sequences_go_on_from_the_base_and_from_own_rows() {
    same_as_stock(&[
        sql("INSERT INTO seq(x) VALUES(1), (2)"),
        Step::Merge,
        sql("INSERT INTO seq(x) VALUES(3); SELECT * FROM sqlite_sequence"),
        sql(
            "SAVEPOINT a; INSERT INTO seq VALUES(100, 4); INSERT INTO seq(x) VALUES(5); SELECT * FROM seq; ROLLBACK TO a; RELEASE a",
        ),
        sql("UPDATE sqlite_sequence SET seq=500 WHERE name='seq'; INSERT INTO seq(x) VALUES(6)"),
        sql(
            "DELETE FROM seq; INSERT INTO seq(x) SELECT id FROM t; SELECT min(id), max(id), count(*) FROM seq",
        ),
    ]);
}

#[test]
fn a_multi_unique_update_that_fails_midway_leaves_nothing() {
    same_as_stock(&[
        sql("UPDATE u SET a=a+1"),
        sql("UPDATE u SET b=b+1, c=c+1"),
        sql("UPDATE OR FAIL u SET a=a+1 WHERE id<3"),
        sql("UPDATE OR IGNORE u SET a=a+1"),
        sql("UPDATE OR REPLACE u SET b=3, c=3 WHERE id=1"),
        sql("INSERT INTO u VALUES(10, 10, 10, 10), (11, 11, 11, 11), (12, 10, 1, 1)"),
        sql("INSERT OR IGNORE INTO u VALUES(10, 10, 10, 10), (11, 11, 11, 11), (12, 10, 1, 1)"),
        sql("SELECT * FROM u; PRAGMA integrity_check"),
    ]);
}

#[test]
fn upsert_and_replace_over_rows_anywhere() {
    same_as_stock(&[
        sql(
            "INSERT INTO u VALUES(1, 50, 51, 52) ON CONFLICT(id) DO UPDATE SET a=excluded.a, id=id+100",
        ),
        sql(
            "INSERT INTO u VALUES(60, 2, 61, 62) ON CONFLICT(a) DO UPDATE SET id=excluded.id, b=excluded.b RETURNING *",
        ),
        sql("INSERT OR REPLACE INTO u VALUES(3, 50, 4, 4)"),
        sql("REPLACE INTO u VALUES(7, 3, NULL, 4), (8, 3, 4, 4)"),
        sql("INSERT INTO u VALUES(60, 1, 1, 1) ON CONFLICT DO NOTHING"),
        sql("INSERT INTO w VALUES('k1', 60, 5) ON CONFLICT(a, b) DO UPDATE SET c=c*10, b=b+1"),
        sql("REPLACE INTO w SELECT a, b, c+1 FROM w WHERE a='k1'"),
        sql("REPLACE INTO t(id, grp) SELECT id, grp+1 FROM t WHERE id<100"),
        sql("SELECT * FROM u; SELECT * FROM w; SELECT * FROM t; PRAGMA integrity_check"),
    ]);
}

#[test]
fn rowids_at_the_edges() {
    same_as_stock(&[
        sql(
            "INSERT INTO t VALUES(-9223372036854775808, 1, 'min'), (-1, 1, 'minus'), (0, 1, 'zero')",
        ),
        sql("SELECT id FROM t ORDER BY id LIMIT 4; SELECT id FROM t WHERE id<0 ORDER BY id DESC"),
        sql("INSERT INTO t(grp) VALUES(1); SELECT max(id) FROM t"),
        sql(
            "SAVEPOINT s; INSERT INTO t(grp) VALUES(1); INSERT INTO t VALUES(5000, 1, 'x'); ROLLBACK TO s; RELEASE s",
        ),
        sql("INSERT INTO t(grp) VALUES(2); SELECT max(id) FROM t"),
        sql(
            "INSERT INTO t VALUES(9223372036854775807, 1, 'max'); SELECT id FROM t ORDER BY id DESC LIMIT 2",
        ),
        sql("UPDATE t SET id=id-1 WHERE id=9223372036854775807; DELETE FROM t WHERE id>1000000"),
        sql("INSERT INTO t(grp) VALUES(3); SELECT max(id) FROM t"),
        sql(
            "INSERT INTO e(x) VALUES(1); INSERT INTO e VALUES(-5, 1); DELETE FROM e WHERE id>0; INSERT INTO e(x) VALUES(2); SELECT * FROM e",
        ),
    ]);
}

#[test]
fn a_table_made_in_the_transaction_can_be_emptied_and_dropped_in_it() {
    same_as_stock(&[
        sql("CREATE TABLE n(a, b); CREATE INDEX n_a ON n(a); INSERT INTO n VALUES(1, 2), (3, 4)"),
        sql("DELETE FROM n; INSERT INTO n VALUES(5, 6); SELECT * FROM n"),
        sql("INSERT INTO t VALUES(15, 1, 'beside'); UPDATE t SET val='y' WHERE id=10"),
        sql("SAVEPOINT s; DROP TABLE n; ROLLBACK TO s; RELEASE s; SELECT * FROM n"),
        sql("DROP TABLE n; SELECT count(*) FROM t"),
        sql(
            "CREATE TABLE n(a PRIMARY KEY) WITHOUT ROWID; INSERT INTO n VALUES(1); DELETE FROM n WHERE a=1; SELECT * FROM n",
        ),
    ]);
}

#[test]
fn numbers_and_texts_sort_in_indexes_as_in_stock() {
    let values = "(1),(1.0),(2),(1.5),(-0.0),(0),(9007199254740993),(9007199254740992.0),(9223372036854775807),
        (9223372036854775807.0),(-9223372036854775808),(-9223372036854775808.0),(1e300),(-1e300),(9e999),(-9e999),(5e-324),(NULL),
        (''),('a'),('A'),('a '),('ab'),('b'),(x''),(x'00'),(x'0000'),(x'0001'),(x'ff'),('ä'),(CAST(x'6100' AS TEXT)),(CAST(x'610062' AS TEXT))";
    for collation in ["BINARY", "NOCASE", "RTRIM"] {
        for direction in ["", "DESC"] {
            same_as_stock(&[
                sql(&format!(
                    "CREATE TABLE v(a COLLATE {collation}); CREATE INDEX v_a ON v(a {direction})"
                )),
                sql(&format!("INSERT INTO v VALUES{values}")),
                sql(
                    "SELECT a, typeof(a), rowid FROM v INDEXED BY v_a WHERE a IS NULL OR a IS NOT NULL ORDER BY a",
                ),
                sql("SELECT a, typeof(a), rowid FROM v ORDER BY a DESC"),
                sql(
                    "SELECT rowid FROM v WHERE a=1; SELECT rowid FROM v WHERE a='a'; SELECT rowid FROM v WHERE a>1 AND a<2; SELECT rowid FROM v WHERE a=x'00'",
                ),
                sql("SELECT rowid FROM v WHERE a>9007199254740992.0 AND a<9007199254740994"),
                sql(
                    "DELETE FROM v WHERE a='A'; DELETE FROM v WHERE a=1; SELECT count(*) FROM v; PRAGMA integrity_check",
                ),
            ]);
        }
    }
}

#[test]
fn an_index_under_an_applications_collation_follows_it() {
    let Some(subject) = plait_tests::subject::real_plait("collations") else { return };
    let fixture = plait_tests::subject::Fixture::empty(subject);
    let connection = fixture.open();
    connection.create_reversed_collation().expect("it can be registered");
    fixture.subject.convert(&connection).expect("it converts");
    connection.execute("CREATE TABLE c(a TEXT COLLATE reversed UNIQUE, b); INSERT INTO c VALUES('a', 1), ('b', 2), ('c', 3)").expect("rows");
    connection.execute("UPDATE c SET a='z' WHERE a='b'; DELETE FROM c WHERE a='a'; INSERT INTO c VALUES('m', 4)").expect("writes");
    let rows = connection.query("SELECT a FROM c ORDER BY a").expect("a scan");
    assert_eq!(rows, [vec!["z".into()], vec!["m".into()], vec!["c".into()]]);
    assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}
