//! Turns a seed into a script: a schema, some rows, then transactions with all that can happen in them.

use super::dice::Dice;
use super::queries::{scan, select};
use super::run::READERS;
use super::schema::{Key, Schema};
use super::statements::{any, maintenance, schema_change, write};
use super::{Hooks, Script, Step};
use crate::subject::Begin;

/// Cursors that may be open at a time.
const CURSORS: u8 = 3;

struct Generator {
    dice: Dice,
    schema: Schema,
    steps: Vec<Step>,
    savepoints: usize,
    in_transaction: bool,
    open_cursors: Vec<u8>,
    blob_open: bool,
}

/// The script of a seed, with about `length` steps after its schema.
#[must_use]
pub fn generate(seed: u64, length: usize) -> Script {
    let mut generator = Generator {
        dice: Dice::new(seed),
        schema: Schema::default(),
        steps: Vec::new(),
        savepoints: 0,
        in_transaction: false,
        open_cursors: Vec::new(),
        blob_open: false,
    };
    let birth = generator.birth();
    let hooks = *generator.dice.pick(&[Hooks::None, Hooks::None, Hooks::Changes, Hooks::Values]);
    generator.create_schema();
    generator.fill();
    let end = generator.steps.len() + length;
    while generator.steps.len() < end {
        generator.next_step();
    }
    generator.steps.push(Step::Compare);
    Script { seed, hooks, birth, steps: generator.steps }
}

impl Generator {
    fn birth(&mut self) -> String {
        let encoding = *self.dice.pick(&["UTF-8", "UTF-8", "UTF-8", "UTF-16le", "UTF-16be"]);
        let page_size = *self.dice.pick(&[4096, 4096, 4096, 1024, 512, 8192]);
        let auto_vacuum = *self.dice.pick(&[0, 0, 0, 0, 1, 2]);
        format!(
            "PRAGMA encoding='{encoding}'; PRAGMA page_size={page_size}; PRAGMA auto_vacuum={auto_vacuum};"
        )
    }

    fn sql(&mut self, sql: String) {
        self.steps.push(Step::Sql(sql));
    }

    fn all(&mut self, statements: Vec<String>) {
        self.steps.extend(statements.into_iter().map(Step::Sql));
    }

    fn create_schema(&mut self) {
        let foreign_keys = usize::from(!self.dice.one_in(3));
        self.sql(format!("PRAGMA foreign_keys = {foreign_keys}"));
        if self.dice.one_in(4) {
            self.sql("PRAGMA recursive_triggers = 1".to_owned());
        }
        for _ in 0..2 + self.dice.roll(3) {
            let statements = self.schema.create_table(&mut self.dice, "");
            self.all(statements);
        }
        if self.dice.one_in(2) {
            let statements = self.schema.create_family(&mut self.dice);
            self.all(statements);
        }
        if self.dice.one_in(3) {
            let statements = self.schema.create_triggers(&mut self.dice);
            self.all(statements);
        }
        if self.dice.one_in(3) {
            let statements = self.schema.create_view(&mut self.dice);
            self.all(statements);
        }
        if self.dice.one_in(4) {
            let statements = self.schema.create_full_text(&mut self.dice);
            self.all(statements);
        }
        if self.dice.one_in(4) {
            let statements = self.schema.create_rtree(&mut self.dice);
            self.all(statements);
        }
        if self.dice.one_in(4) {
            let statements = self.schema.create_table(&mut self.dice, "temp.");
            self.all(statements);
        }
        if self.dice.one_in(5) {
            self.sql("ATTACH '{dir}/aux.db' AS aux".to_owned());
            let statements = self.schema.create_table(&mut self.dice, "aux.");
            self.all(statements);
        }
    }

    fn fill(&mut self) {
        for position in 0..self.schema.tables.len() {
            for _ in 0..self.dice.roll(6) {
                let table = self.schema.tables[position].clone();
                let statement = write(&mut self.dice, &self.schema, &table);
                self.sql(statement);
            }
        }
        if self.dice.one_in(2) {
            self.many_rows();
        }
        if self.dice.one_in(2) {
            self.steps.push(Step::Merge);
        }
    }

    /// Enough rows that b-trees have several levels.
    fn many_rows(&mut self) {
        let table = self.dice.pick(&self.schema.tables).clone();
        let count = self.dice.between(50, 1500);
        let step = self.dice.between(1, 3);
        let outputs: Vec<String> = (0..table.columns.len())
            .map(|index| match index {
                0 => format!("100 + i*{step}"),
                1 => "i*7919 % 1009".to_owned(),
                _ => "'r' || (i % 50)".to_owned(),
            })
            .collect();
        self.sql(format!(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<{count})
             INSERT OR IGNORE INTO {}({}) SELECT {} FROM n",
            table.name,
            table.columns.join(", "),
            outputs.join(", ")
        ));
    }

    fn next_step(&mut self) {
        match self.dice.weighted(&[40, 8, 9, 12, 3, 3, 5, 4, 2, 2, 1, 2, 10]) {
            0 => {
                let statement = any(&mut self.dice, &self.schema);
                self.sql(statement);
            }
            1 => self.transaction(),
            2 => self.savepoint(),
            3 => self.cursor(),
            4 => self.blob(),
            5 => self.steps.push(Step::Merge),
            6 => {
                let statement = any(&mut self.dice, &self.schema);
                self.steps.push(Step::Other(statement));
            }
            7 => {
                let inside = self.may_be_in_transaction();
                let statement = maintenance(&mut self.dice, &self.schema, inside);
                self.sql(statement);
            }
            8 => {
                let statements = schema_change(&mut self.dice, &mut self.schema);
                self.all(statements);
            }
            9 if !self.schema.attached.is_empty() && !self.may_be_in_transaction() => {
                let table = self.dice.pick(&self.schema.attached).clone();
                let statement = write(&mut self.dice, &Schema::default(), &table);
                self.sql(statement);
            }
            10 if !self.may_be_in_transaction() => self.reopen(),
            11 if self.dice.one_in(3) => self.many_rows(),
            12 => self.reader(),
            _ => {
                let table = self.dice.pick(&self.schema.tables).clone();
                let statement = write(&mut self.dice, &self.schema, &table);
                self.sql(statement);
            }
        }
    }

    fn may_be_in_transaction(&self) -> bool {
        self.in_transaction || self.savepoints > 0
    }

    fn reopen(&mut self) {
        self.steps.push(Step::Reopen);
        self.open_cursors.clear();
        self.blob_open = false;
        self.savepoints = 0;
        self.schema.temp_tables.clear();
        self.schema.attached.clear();
        if self.dice.one_in(2) {
            self.sql("PRAGMA foreign_keys = 1".to_owned());
        }
    }

    fn transaction(&mut self) {
        if !self.in_transaction {
            let begin = *self.dice.pick(&[
                Begin::Deferred,
                Begin::Deferred,
                Begin::Immediate,
                Begin::Concurrent,
                Begin::Concurrent,
                Begin::Exclusive,
                Begin::OnPages,
            ]);
            self.steps.push(Step::Begin(begin));
            self.in_transaction = true;
            return;
        }
        let end = if self.dice.one_in(3) { "ROLLBACK" } else { "COMMIT" };
        self.sql(end.to_owned());
        self.in_transaction = false;
        self.savepoints = 0;
        if self.dice.one_in(4) {
            self.steps.push(Step::Compare);
        }
    }

    fn savepoint(&mut self) {
        if self.savepoints == 0 || (self.savepoints < 4 && self.dice.one_in(2)) {
            self.savepoints += 1;
            self.sql(format!("SAVEPOINT s{}", self.savepoints));
            return;
        }
        let which = 1 + self.dice.roll(self.savepoints);
        if self.dice.one_in(2) {
            self.sql(format!("ROLLBACK TO s{which}"));
            self.savepoints = which;
        } else {
            self.sql(format!("RELEASE s{which}"));
            self.savepoints = which - 1;
        }
    }

    fn cursor(&mut self) {
        if self.open_cursors.is_empty() || self.dice.one_in(3) {
            let number =
                u8::try_from(self.dice.roll(usize::from(CURSORS))).expect("a small number");
            let table = self.dice.pick(&self.schema.tables).clone();
            let sql = scan(&mut self.dice, &self.schema, &table);
            self.steps.push(Step::Open(number, sql));
            if !self.open_cursors.contains(&number) {
                self.open_cursors.push(number);
            }
            let rows = u8::try_from(1 + self.dice.roll(4)).expect("a small number");
            self.steps.push(Step::Fetch(number, rows));
            return;
        }
        let number = *self.dice.pick(&self.open_cursors);
        if self.dice.one_in(5) {
            self.steps.push(Step::Close(number));
            self.open_cursors.retain(|open| *open != number);
        } else {
            let rows = *self.dice.pick(&[1, 1, 2, 5, 40]);
            self.steps.push(Step::Fetch(number, rows));
        }
    }

    /// Somebody who only reads, now in a transaction, now with an open cursor, across what the others write.
    fn reader(&mut self) {
        let number = u8::try_from(self.dice.roll(READERS)).expect("a small number");
        let table = self.dice.pick(&self.schema.tables).clone();
        let rows = *self.dice.pick(&[1, 1, 2, 5, 40]);
        let step = match self.dice.roll(9) {
            0 => Step::Reader(number, "BEGIN".to_owned()),
            1 => Step::Reader(number, "COMMIT".to_owned()),
            2..=4 => Step::Reader(number, select(&mut self.dice, &self.schema, &table)),
            5 => {
                let sql = scan(&mut self.dice, &self.schema, &table);
                self.steps.push(Step::ReaderOpen(number, sql));
                Step::ReaderFetch(number, 2)
            }
            _ => Step::ReaderFetch(number, rows),
        };
        self.steps.push(step);
    }

    fn blob(&mut self) {
        if !self.blob_open {
            let with_rowid: Vec<_> =
                self.schema.tables.iter().filter(|table| table.has_rowid()).cloned().collect();
            if with_rowid.is_empty() {
                return;
            }
            let table = self.dice.pick(&with_rowid).clone();
            let rowid = self.dice.between(1, 20);
            let first = usize::from(matches!(table.key, Key::Integer | Key::Autoincrement));
            let column = table.columns[first + self.dice.roll(table.columns.len() - first)].clone();
            let long = self.dice.long_literal();
            if self.dice.one_in(2) {
                self.sql(format!(
                    "UPDATE {} SET {column} = {long} WHERE rowid = {rowid}",
                    table.name
                ));
            }
            let write = !self.dice.one_in(3);
            self.steps.push(Step::BlobOpen { table: table.name, column, rowid, write });
            self.blob_open = true;
            return;
        }
        let offset = *self.dice.pick(&[0, 3, 100, 1000, 4000]);
        let step = match self.dice.roll(6) {
            0 | 1 => Step::BlobRead(offset, 20),
            2 | 3 => {
                Step::BlobWrite(offset, 12, u8::try_from(self.dice.roll(256)).expect("a byte"))
            }
            4 => Step::BlobReopen(self.dice.between(1, 20)),
            _ => Step::BlobClose,
        };
        self.blob_open = step != Step::BlobClose;
        self.steps.push(step);
    }
}

#[cfg(test)]
mod tests {
    use super::generate;

    #[test]
    fn the_same_seed_gives_the_same_script() {
        assert_eq!(generate(7, 100), generate(7, 100));
        assert_ne!(generate(7, 100), generate(8, 100));
    }
}
