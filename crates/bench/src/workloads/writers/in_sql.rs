//! The table in SQL: prepared statements, as an application would use them.

use super::rows::Rows;
use crate::engines::{Begin, Outcome, Sql, Statement, Value, Waits};

/// A connection with its statements.
pub struct InSql<'a> {
    sql: Box<dyn Sql + 'a>,
    select: Statement,
    update: Statement,
    insert: Statement,
    sums: Statement,
    /// Prepared when it is first needed: not every table has the index.
    tagged: Option<Statement>,
}

impl<'a> InSql<'a> {
    pub fn create(mut sql: Box<dyn Sql + 'a>, index: bool) -> Outcome<Self> {
        let dialect = sql.dialect();
        let (int, blob, key) = (dialect.int, dialect.blob, dialect.automatic_key);
        sql.script(&format!(
            "CREATE TABLE records(id {key}, n {int} NOT NULL, tag {int} NOT NULL, v {blob} NOT NULL)"
        ))?;
        if index {
            sql.script("CREATE INDEX records_by_tag ON records(tag)")?;
        }
        Self::open(sql)
    }

    pub fn open(mut sql: Box<dyn Sql + 'a>) -> Outcome<Self> {
        Ok(Self {
            select: sql.prepare("SELECT n, v FROM records WHERE id=?1")?,
            update: sql.prepare("UPDATE records SET n=n+1, v=?2 WHERE id=?1")?,
            insert: sql.prepare("INSERT INTO records(n, tag, v) VALUES(?1, ?2, ?3)")?,
            sums: sql.prepare("SELECT count(*), sum(n) FROM records")?,
            tagged: None,
            sql,
        })
    }

    fn two_numbers(&mut self, statement: Statement) -> Outcome<(i64, i64)> {
        let mut numbers = (0, 0);
        self.sql.query(statement, &[], &mut |row| numbers = (row.int(0), row.int(1)))?;
        Ok(numbers)
    }
}

impl Rows for InSql<'_> {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        self.sql.begin(begin)
    }

    fn commit(&mut self) -> Outcome<()> {
        self.sql.commit()
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.sql.rollback()
    }

    fn waits(&self) -> Waits {
        self.sql.waits()
    }

    fn select(&mut self, id: i64) -> Outcome<Option<usize>> {
        let mut bytes = None;
        self.sql.query(self.select, &[Value::Int(id)], &mut |row| {
            bytes = Some(row.bytes(1).len());
        })?;
        Ok(bytes)
    }

    fn update(&mut self, id: i64, v: &[u8]) -> Outcome<u64> {
        self.sql.execute(self.update, &[Value::Int(id), Value::Blob(v)])
    }

    fn insert(&mut self, n: i64, tag: i64, v: &[u8]) -> Outcome<u64> {
        self.sql.execute(self.insert, &[Value::Int(n), Value::Int(tag), Value::Blob(v)])
    }

    fn sums(&mut self) -> Outcome<(i64, i64)> {
        self.two_numbers(self.sums)
    }

    fn ids(&mut self) -> Outcome<(i64, i64)> {
        let range = self.sql.prepare("SELECT min(id), max(id) FROM records")?;
        self.two_numbers(range)
    }

    fn tagged(&mut self, tag: i64) -> Outcome<u64> {
        let tagged = match self.tagged {
            Some(tagged) => tagged,
            None => self.sql.prepare("SELECT count(*) FROM records WHERE tag=?1")?,
        };
        self.tagged = Some(tagged);
        let mut count = 0;
        self.sql
            .query(tagged, &[Value::Int(tag)], &mut |row| count = row.int(0).cast_unsigned())?;
        Ok(count)
    }
}
