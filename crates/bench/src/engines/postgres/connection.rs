//! A connection: prepared statements with binary parameters and results.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use super::api::{self, Answer, Api, Conn};
use crate::engines::key_value_sql::Dialect;
use crate::engines::{Begin, Connection, Failure, Outcome, Refusal, Row, Sql, Statement, Value};

/// A connection to a server.
pub struct PostgresConnection {
    api: Arc<Api>,
    conn: Conn,
    /// Texts of the prepared statements; each is prepared under its number.
    statements: Vec<(CString, String)>,
}

/// What a command answered; cleared when dropped.
struct Reply<'a> {
    api: &'a Api,
    answer: Answer,
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        // SAFETY: an answer of libpq, or null, which clear takes; nobody uses it after this.
        unsafe { (self.api.clear)(self.answer) };
    }
}

impl PostgresConnection {
    /// Connects through a socket in a folder.
    pub fn open(api: &Arc<Api>, socket: &std::path::Path) -> Outcome<Self> {
        let target = format!("host={} user=bench dbname=postgres", socket.display());
        let target =
            CString::new(target).map_err(|_| Failure::broken("a path with a zero byte"))?;
        // SAFETY: a text that ends in a zero byte.
        let conn = unsafe { (api.connectdb)(target.as_ptr()) };
        let connection = Self { api: Arc::clone(api), conn, statements: Vec::new() };
        // SAFETY: what connectdb returned.
        if unsafe { (api.status)(conn) } != api::CONNECTION_OK {
            return Err(Failure::broken(format!("cannot connect: {}", connection.message())));
        }
        Ok(connection)
    }

    fn message(&self) -> String {
        // SAFETY: an open connection, or one that failed to open, which has a message too.
        let text = unsafe { (self.api.error_message)(self.conn) };
        // SAFETY: a text that ends in a zero byte and lasts until the connection's next call.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
    }

    /// What an answer means, if it is not what was hoped for.
    fn checked(&self, answer: Answer, doing: &str) -> Outcome<Reply<'_>> {
        let reply = Reply { api: &self.api, answer };
        // SAFETY: an answer of libpq, or null, for which the status is a fatal error.
        let status = unsafe { (self.api.result_status)(answer) };
        if status == api::COMMAND_OK || status == api::TUPLES_OK {
            return Ok(reply);
        }
        let text = format!("{doing}: {}", self.message());
        // SAFETY: as above; the field is null where there is none.
        let state = unsafe { (self.api.result_error_field)(answer, api::DIAG_SQLSTATE) };
        if state.is_null() {
            return Err(Failure::broken(text));
        }
        // SAFETY: a text that ends in a zero byte and lasts as long as the answer.
        let state = unsafe { CStr::from_ptr(state) }.to_string_lossy();
        Err(match state.as_ref() {
            "40001" => Failure::Refused(Refusal::Conflict, text),
            "40P01" => Failure::Refused(Refusal::Deadlock, text),
            "55P03" => Failure::Refused(Refusal::Busy, text),
            state => Failure::broken(format!("{text} (SQLSTATE {state})")),
        })
    }

    fn run(&self, statement: Statement, values: &[Value<'_>]) -> Outcome<Reply<'_>> {
        let (name, text) = &self.statements[statement.0];
        // Room for as many integers as any statement of the suite has parameters, in the order of the network.
        let mut integers = [[0_u8; 8]; 16];
        let mut data = [ptr::null::<c_char>(); 16];
        let mut lengths = [0; 16];
        if values.len() > data.len() {
            return Err(Failure::broken(format!("{text}: more than {} parameters", data.len())));
        }
        for (i, value) in values.iter().enumerate() {
            let bytes = match value {
                Value::Null => continue,
                Value::Int(int) => {
                    integers[i] = int.to_be_bytes();
                    &integers[i]
                }
                Value::Text(text) => text.as_bytes(),
                Value::Blob(bytes) => bytes,
            };
            // An empty slice has an address that is not null: libpq takes null for NULL.
            data[i] = bytes.as_ptr().cast();
            lengths[i] = length(bytes.len())?;
        }
        let formats = [api::BINARY; 16];
        // SAFETY: an open connection, a name that ends in a zero byte, and arrays of at least as many elements as there
        // are parameters, pointing to memory that outlives the call.
        let answer = unsafe {
            (self.api.exec_prepared)(
                self.conn,
                name.as_ptr(),
                length(values.len())?,
                data.as_ptr(),
                lengths.as_ptr(),
                formats.as_ptr(),
                api::BINARY,
            )
        };
        self.checked(answer, text)
    }

    fn simple(&self, text: &str) -> Outcome<()> {
        let command =
            CString::new(text).map_err(|_| Failure::broken("a statement with a zero byte"))?;
        // SAFETY: an open connection and a text that ends in a zero byte.
        let answer = unsafe { (self.api.exec)(self.conn, command.as_ptr()) };
        self.checked(answer, text).map(drop)
    }
}

fn length(length: usize) -> Outcome<c_int> {
    c_int::try_from(length).map_err(|_| Failure::broken("a value of 2 GiB or more"))
}

/// `?1` of SQLite is `$1` here. The statements of the suite have no question marks in texts.
fn translated(text: &str) -> String {
    text.replace('?', "$")
}

impl Connection for PostgresConnection {
    /// All ways of beginning are one here.
    fn begin(&mut self, _begin: Begin) -> Outcome<()> {
        self.simple("BEGIN")
    }

    fn commit(&mut self) -> Outcome<()> {
        self.simple("COMMIT")
    }

    fn rollback(&mut self) -> Outcome<()> {
        // SAFETY: an open connection.
        let idle = unsafe { (self.api.transaction_status)(self.conn) } == api::TRANSACTION_IDLE;
        if idle { Ok(()) } else { self.simple("ROLLBACK") }
    }
}

impl Sql for PostgresConnection {
    fn prepare(&mut self, text: &str) -> Outcome<Statement> {
        let name = CString::new(format!("s{}", self.statements.len())).expect("no zero byte in it");
        let sql = CString::new(translated(text))
            .map_err(|_| Failure::broken("a statement with a zero byte"))?;
        // SAFETY: an open connection and texts that end in a zero byte; the server finds out the types.
        let answer =
            unsafe { (self.api.prepare)(self.conn, name.as_ptr(), sql.as_ptr(), 0, ptr::null()) };
        self.checked(answer, text).map(drop)?;
        self.statements.push((name, text.to_owned()));
        Ok(Statement(self.statements.len() - 1))
    }

    fn execute(&mut self, statement: Statement, values: &[Value<'_>]) -> Outcome<u64> {
        let reply = self.run(statement, values)?;
        // SAFETY: an answer of libpq.
        let text = unsafe { (self.api.cmd_tuples)(reply.answer) };
        // SAFETY: a text that ends in a zero byte (empty where nothing is counted) and lasts as long as the answer.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        Ok(text.parse().unwrap_or(0))
    }

    fn query(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
        found: &mut dyn FnMut(&dyn Row),
    ) -> Outcome<u64> {
        let reply = self.run(statement, values)?;
        // SAFETY: an answer of libpq.
        let rows = unsafe { (self.api.ntuples)(reply.answer) };
        for row in 0..rows {
            found(&PostgresRow { reply: &reply, row });
        }
        Ok(u64::try_from(rows).unwrap_or(0))
    }

    fn script(&mut self, text: &str) -> Outcome<()> {
        self.simple(text)
    }

    fn dialect(&self) -> Dialect {
        super::DIALECT
    }
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        // SAFETY: what connectdb returned; nobody uses it after this.
        unsafe { (self.api.finish)(self.conn) };
    }
}

/// A row of an answer.
struct PostgresRow<'a> {
    reply: &'a Reply<'a>,
    row: c_int,
}

/// `NUMERICOID`, the type of a sum of BIGINT.
const NUMERIC: u32 = 1700;

impl Row for PostgresRow<'_> {
    fn int(&self, column: usize) -> i64 {
        // SAFETY: an answer of libpq; a column out of range has type 0.
        let kind = unsafe { (self.reply.api.ftype)(self.reply.answer, index(column)) };
        let bytes = self.bytes(column);
        if kind == NUMERIC {
            return numeric(bytes);
        }
        // INT2, INT4 and INT8 in the order of the network.
        let sign = if bytes.first().is_some_and(|b| b & 0x80 != 0) { -1 } else { 0 };
        bytes.iter().fold(sign, |int, byte| (int << 8) | i64::from(*byte))
    }

    fn bytes(&self, column: usize) -> &[u8] {
        let (api, answer) = (self.reply.api, self.reply.answer);
        // SAFETY: an answer of libpq and a row of it.
        let length = unsafe { (api.getlength)(answer, self.row, index(column)) };
        // SAFETY: as above.
        let data = unsafe { (api.getvalue)(answer, self.row, index(column)) };
        match usize::try_from(length) {
            // SAFETY: libpq keeps that many bytes there as long as the answer, which outlives the row.
            Ok(length) if !data.is_null() => unsafe {
                std::slice::from_raw_parts(data.cast(), length)
            },
            _ => &[],
        }
    }

    fn is_null(&self, column: usize) -> bool {
        // SAFETY: an answer of libpq and a row of it.
        unsafe { (self.reply.api.getisnull)(self.reply.answer, self.row, index(column)) == 1 }
    }
}

fn index(column: usize) -> c_int {
    c_int::try_from(column).expect("PostgreSQL has at most 1,664 columns")
}

/// The whole part of a binary NUMERIC: 16-bit count of digits to the base of 10,000, weight of the first, sign, scale,
/// then the digits.
fn numeric(bytes: &[u8]) -> i64 {
    let word =
        |i: usize| bytes.get(2 * i..2 * i + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let (digits, negative) = (usize::from(word(0)), word(2) == 0x4000);
    let whole = usize::try_from(i16::from_be_bytes(word(1).to_be_bytes()) + 1).unwrap_or(0);
    let digit = |i: usize| if i < digits { i64::from(word(4 + i)) } else { 0 };
    let magnitude =
        (0..whole).fold(0_i64, |sum, i| sum.wrapping_mul(10_000).wrapping_add(digit(i)));
    if negative { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_read_whole() {
        // 12,345,678 and -20,000 as the server sends them.
        let sum: Vec<u8> =
            [2_u16, 1, 0, 0, 1234, 5678].iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(numeric(&sum), 12_345_678);
        let round: Vec<u8> =
            [1_u16, 1, 0x4000, 0, 2].iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(numeric(&round), -20_000);
    }

    #[test]
    fn parameters_are_written_as_the_server_reads_them() {
        assert_eq!(translated("UPDATE t SET v=?2 WHERE k=?1"), "UPDATE t SET v=$2 WHERE k=$1");
    }
}
