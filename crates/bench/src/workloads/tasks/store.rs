//! Where tasks are kept: in a table, or as records in which the status is the first part.

use crate::engines::{
    Failure, Key, KeyKind, KeyValue, Outcome, Sql, Statement, Store, Table, Value, Waits,
};

/// Status of a new task.
pub const SCHEDULED: &str = "scheduled";
/// Status of a task that has begun.
pub const RUNNING: &str = "running";

/// A task.
pub struct Task {
    /// Its key.
    pub id: i64,
    /// [`SCHEDULED`] or [`RUNNING`].
    pub status: &'static str,
    /// When it is due: any number.
    pub scheduled_at: i64,
    /// What it has put out so far.
    pub output: Vec<u8>,
}

impl Task {
    /// Status, time and output, as [`Tasks::read`] gives them.
    pub fn as_written(&self) -> (&[u8], i64, &[u8]) {
        (self.status.as_bytes(), self.scheduled_at, &self.output)
    }
}

/// What takes a task's status, time and output.
pub type Found<'f> = dyn FnMut(&[u8], i64, &[u8]) + 'f;

/// A connection to where tasks are kept. Each change is a transaction of its own and must find its task.
pub trait Tasks {
    /// Adds a task.
    fn insert(&mut self, task: &Task) -> Outcome<()>;
    /// Writes its status.
    fn set_status(&mut self, task: &Task) -> Outcome<()>;
    /// Writes its output.
    fn set_output(&mut self, task: &Task) -> Outcome<()>;
    /// Removes it.
    fn delete(&mut self, id: i64) -> Outcome<()>;
    /// Gives it to `found`, if it is there.
    fn read(&mut self, id: i64, found: &mut Found<'_>) -> Outcome<()>;
    /// How many there are, by table and by index, whichever has more.
    fn left(&mut self) -> Outcome<u64>;
    /// See [`Connection::rollback`](crate::engines::Connection::rollback).
    fn rollback(&mut self) -> Outcome<()>;
    /// See [`Connection::waits`](crate::engines::Connection::waits).
    fn waits(&self) -> Waits;
}

/// A connection for SQL, from engines that have it.
fn sql_of(store: &dyn Store) -> Outcome<Option<Box<dyn Sql + '_>>> {
    match store.sql() {
        Ok(sql) => Ok(Some(sql)),
        Err(Failure::Unsupported(_)) => Ok(None),
        Err(worse) => Err(worse),
    }
}

fn tables() -> Vec<Table> {
    vec![Table { name: "tasks".to_owned(), keys: KeyKind::Int, without_rowid: false }]
}

/// Makes the table with its indexes, or the folder.
pub fn create(store: &dyn Store) -> Outcome<()> {
    let Some(mut sql) = sql_of(store)? else { return store.create(&tables()) };
    let (int, blob) = (sql.dialect().int, sql.dialect().blob);
    sql.script(&format!(
        "CREATE TABLE tasks(id {int} PRIMARY KEY, status TEXT NOT NULL, scheduled_at {int} NOT NULL, \
         output {blob} NOT NULL); \
         CREATE INDEX tasks_by_status ON tasks(status); \
         CREATE INDEX tasks_by_time ON tasks(scheduled_at);"
    ))
}

/// Opens a connection.
pub fn connect(store: &dyn Store) -> Outcome<Box<dyn Tasks + '_>> {
    Ok(match sql_of(store)? {
        Some(sql) => Box::new(SqlTasks::new(sql)?),
        None => {
            Box::new(RecordTasks { connection: store.key_value(&tables())?, record: Vec::new() })
        }
    })
}

/// Tasks in a table.
struct SqlTasks<'a> {
    sql: Box<dyn Sql + 'a>,
    insert: Statement,
    set_status: Statement,
    set_output: Statement,
    delete: Statement,
    read: Statement,
    left: [Statement; 3],
}

impl<'a> SqlTasks<'a> {
    fn new(mut sql: Box<dyn Sql + 'a>) -> Outcome<Self> {
        Ok(Self {
            insert: sql.prepare(
                "INSERT INTO tasks(id, status, scheduled_at, output) VALUES(?1, ?2, ?3, ?4)",
            )?,
            set_status: sql.prepare("UPDATE tasks SET status=?2 WHERE id=?1")?,
            set_output: sql.prepare("UPDATE tasks SET output=?2 WHERE id=?1")?,
            delete: sql.prepare("DELETE FROM tasks WHERE id=?1")?,
            read: sql.prepare("SELECT status, scheduled_at, output FROM tasks WHERE id=?1")?,
            left: [
                sql.prepare("SELECT count(*) FROM tasks")?,
                sql.prepare("SELECT count(*) FROM tasks WHERE status IN ('scheduled', 'running')")?,
                sql.prepare("SELECT count(*) FROM tasks WHERE scheduled_at >= 0")?,
            ],
            sql,
        })
    }

    /// Runs a statement that must change one row.
    fn change(&mut self, statement: Statement, values: &[Value<'_>]) -> Outcome<()> {
        match self.sql.execute(statement, values)? {
            1 => Ok(()),
            rows => Err(Failure::broken(format!("a step changed {rows} tasks instead of one"))),
        }
    }
}

impl Tasks for SqlTasks<'_> {
    fn insert(&mut self, task: &Task) -> Outcome<()> {
        let values = [
            Value::Int(task.id),
            Value::Text(task.status),
            Value::Int(task.scheduled_at),
            Value::Blob(&task.output),
        ];
        self.change(self.insert, &values)
    }

    fn set_status(&mut self, task: &Task) -> Outcome<()> {
        self.change(self.set_status, &[Value::Int(task.id), Value::Text(task.status)])
    }

    fn set_output(&mut self, task: &Task) -> Outcome<()> {
        self.change(self.set_output, &[Value::Int(task.id), Value::Blob(&task.output)])
    }

    fn delete(&mut self, id: i64) -> Outcome<()> {
        self.change(self.delete, &[Value::Int(id)])
    }

    fn read(&mut self, id: i64, found: &mut Found<'_>) -> Outcome<()> {
        let give = &mut |row: &dyn crate::engines::Row| {
            found(row.bytes(0), row.int(1), row.bytes(2));
        };
        self.sql.query(self.read, &[Value::Int(id)], give).map(drop)
    }

    fn left(&mut self) -> Outcome<u64> {
        let mut most = 0;
        for statement in self.left {
            self.sql.query(statement, &[], &mut |row| most = most.max(row.int(0)))?;
        }
        Ok(u64::try_from(most).unwrap_or(0))
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.sql.rollback()
    }

    fn waits(&self) -> Waits {
        self.sql.waits()
    }
}

/// Tasks as records: the status, a line feed, the time in 8 bytes, the output. Each change writes the whole record.
struct RecordTasks<'a> {
    connection: Box<dyn KeyValue + 'a>,
    record: Vec<u8>,
}

impl RecordTasks<'_> {
    fn make(&mut self, task: &Task) {
        self.record.clear();
        self.record.extend_from_slice(task.status.as_bytes());
        self.record.push(b'\n');
        self.record.extend_from_slice(&task.scheduled_at.to_le_bytes());
        self.record.extend_from_slice(&task.output);
    }

    fn update(&mut self, task: &Task) -> Outcome<()> {
        self.make(task);
        self.connection.update(0, Key::Int(task.id), &self.record)
    }
}

/// The parts of a record; none of what is no task.
fn parse(record: &[u8]) -> Option<(&[u8], i64, &[u8])> {
    let end = record.iter().position(|byte| *byte == b'\n')?;
    let (time, output) = record[end + 1..].split_first_chunk()?;
    Some((&record[..end], i64::from_le_bytes(*time), output))
}

impl Tasks for RecordTasks<'_> {
    fn insert(&mut self, task: &Task) -> Outcome<()> {
        self.make(task);
        self.connection.insert(0, Key::Int(task.id), &self.record)
    }

    fn set_status(&mut self, task: &Task) -> Outcome<()> {
        self.update(task)
    }

    fn set_output(&mut self, task: &Task) -> Outcome<()> {
        self.update(task)
    }

    fn delete(&mut self, id: i64) -> Outcome<()> {
        if self.connection.delete(0, Key::Int(id))? {
            Ok(())
        } else {
            Err(Failure::broken(format!("task {id} was not there to be deleted")))
        }
    }

    fn read(&mut self, id: i64, found: &mut Found<'_>) -> Outcome<()> {
        let mut broken = false;
        self.connection.get(0, Key::Int(id), &mut |record| match parse(record) {
            Some((status, time, output)) => found(status, time, output),
            None => broken = true,
        })?;
        if broken { Err(Failure::broken(format!("record {id} is no task"))) } else { Ok(()) }
    }

    fn left(&mut self) -> Outcome<u64> {
        self.connection.scan(0, None, u64::MAX, &mut |_| ())
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.connection.rollback()
    }

    fn waits(&self) -> Waits {
        self.connection.waits()
    }
}
