//! A mix of transactions in the manner of TPC-C: clerks of a wholesaler take orders and payments, look orders up, deliver
//! them and count stock.
//!
//! Ten warehouses with ten districts each, as in the standard. Scaled down, so that a trial is set up in seconds: 10,000
//! articles in place of 100,000, 300 customers of a district in place of 3,000, 100 orders of a district to begin with in
//! place of 3,000 (30 of them not delivered), and 30 last names in place of 1,000. A client keeps to one warehouse.
//!
//! Left out: thinking and typing times, the orders of which one in a hundred is given up on purpose, addresses, credit
//! checks and the other columns that no transaction computes with (a filler stands for their bytes), and limits on response
//! times. A delivery is done at once and in one transaction for all ten districts. What counts are all transactions, not
//! only new orders. Amounts are whole cents.
//!
//! Transactions that write begin as the load says, those that only look begin deferred. One that is refused is repeated as
//! a whole with the same choices.

use super::case::Load;
use super::tpcc_tables::{CUSTOMERS, DISTRICTS, ITEMS, LAST_NAMES, WAREHOUSES};
use super::writer::{Count, Repeated, Settings};
use crate::sqlite::{Connection, Result, SqlError, Statement, Step};
use crate::subject::{Begin, Subject};
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use std::path::Path;
use std::time::Duration;

/// What a client asks for, and its place in [`Count::kinds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An order of five to fifteen articles.
    NewOrder,
    /// A customer pays.
    Payment,
    /// The lines of a customer's last order.
    OrderStatus,
    /// The oldest order of each district is delivered.
    Delivery,
    /// Articles of a district's last twenty orders that are short.
    StockLevel,
}

impl Kind {
    /// All, each with how many of a hundred are of it.
    const SHARES: [(Self, u32); 5] = [
        (Self::NewOrder, 45),
        (Self::Payment, 43),
        (Self::OrderStatus, 4),
        (Self::Delivery, 4),
        (Self::StockLevel, 4),
    ];

    /// That of a number below a hundred.
    fn of(mut number: u32) -> Self {
        for (kind, share) in Self::SHARES {
            if number < share {
                return kind;
            }
            number -= share;
        }
        unreachable!("the shares are a hundred")
    }

    fn writes(self) -> bool {
        !matches!(self, Self::OrderStatus | Self::StockLevel)
    }
}

macro_rules! statements {
    ($($name:ident: $sql:literal),* $(,)?) => {
        /// Everything a client says, prepared.
        struct Statements { $($name: Statement),* }

        impl Statements {
            fn prepare(connection: &Connection) -> Result<Self> {
                Ok(Self { $($name: connection.prepare($sql)?),* })
            }
        }
    };
}

statements! {
    warehouse_tax: "SELECT tax FROM warehouse WHERE w=?1",
    district: "SELECT next_o, tax FROM district WHERE w=?1 AND d=?2",
    district_next: "UPDATE district SET next_o=?3 WHERE w=?1 AND d=?2",
    customer: "SELECT discount, balance FROM customer WHERE w=?1 AND d=?2 AND c=?3",
    customers_named: "SELECT c FROM customer WHERE w=?1 AND d=?2 AND last=?3 ORDER BY first",
    insert_order: "INSERT INTO orders VALUES(?1, ?2, ?3, ?4, NULL, ?5)",
    insert_new_order: "INSERT INTO new_order VALUES(?1, ?2, ?3)",
    item: "SELECT price FROM item WHERE i=?1",
    stock: "SELECT quantity FROM stock WHERE w=?1 AND i=?2",
    update_stock: "UPDATE stock SET quantity=?3, ytd=ytd+?4, orders=orders+1 WHERE w=?1 AND i=?2",
    insert_line: "INSERT INTO order_line VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, ?9)",
    pay_warehouse: "UPDATE warehouse SET ytd=ytd+?2 WHERE w=?1",
    pay_district: "UPDATE district SET ytd=ytd+?3 WHERE w=?1 AND d=?2",
    pay_customer: "UPDATE customer SET balance=balance-?4, paid=paid+?4, payments=payments+1
        WHERE w=?1 AND d=?2 AND c=?3",
    insert_history: "INSERT INTO history(w, d, c_w, c_d, c, amount) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    last_order: "SELECT o FROM orders WHERE w=?1 AND d=?2 AND c=?3 ORDER BY o DESC LIMIT 1",
    lines: "SELECT i, quantity, amount, delivered FROM order_line WHERE w=?1 AND d=?2 AND o=?3",
    oldest: "SELECT o FROM new_order WHERE w=?1 AND d=?2 ORDER BY o LIMIT 1",
    delete_new_order: "DELETE FROM new_order WHERE w=?1 AND d=?2 AND o=?3",
    order_customer: "SELECT c FROM orders WHERE w=?1 AND d=?2 AND o=?3",
    carry: "UPDATE orders SET carrier=?4 WHERE w=?1 AND d=?2 AND o=?3",
    deliver_lines: "UPDATE order_line SET delivered=1 WHERE w=?1 AND d=?2 AND o=?3",
    sum_lines: "SELECT sum(amount) FROM order_line WHERE w=?1 AND d=?2 AND o=?3",
    deliver_customer: "UPDATE customer SET balance=balance+?4, deliveries=deliveries+1
        WHERE w=?1 AND d=?2 AND c=?3",
    short: "SELECT count(DISTINCT s.i) FROM order_line l JOIN stock s ON s.w=l.w AND s.i=l.i
        WHERE l.w=?1 AND l.d=?2 AND l.o>=?3-20 AND l.o<?3 AND s.quantity<?4",
}

/// A connection with its statements, ready for requests at one warehouse.
pub struct Clerk {
    warehouse: i64,
    connection: Connection,
    begin: Statement,
    begin_reading: Statement,
    commit: Statement,
    rollback: Statement,
    say: Statements,
    random: StdRng,
    count: Count,
}

impl Clerk {
    /// Connects and prepares. The seed's remainder says which warehouse, so clients in a row have different ones.
    pub fn connect(subject: &Subject, database: &Path, load: &Load, seed: u64) -> Result<Self> {
        let connection = subject.open(database)?;
        connection.busy_timeout(Duration::from_secs(120))?;
        connection.execute(&format!("PRAGMA synchronous={}", load.synchronous.number()))?;
        Ok(Self {
            warehouse: 1 + (seed % WAREHOUSES.unsigned_abs()) as i64,
            begin: connection.prepare(subject.begin(load.begin))?,
            begin_reading: connection.prepare(subject.begin(Begin::Deferred))?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            say: Statements::prepare(&connection)?,
            connection,
            random: StdRng::seed_from_u64(seed),
            count: Count { kinds: vec![0; Kind::SHARES.len()], ..Count::default() },
        })
    }

    /// Settings of its connection.
    pub fn settings(&self) -> Result<Settings> {
        Settings::read(&self.connection)
    }

    /// One transaction, repeated as a whole until it is committed: its kind.
    fn transaction(&mut self) -> Result<Kind> {
        let kind = Kind::of(self.random.random_range(0..100));
        let choices = self.random.next_u64();
        loop {
            match self.attempt(kind, &mut StdRng::seed_from_u64(choices)) {
                Ok(()) => return Ok(kind),
                Err(error) if error.is_busy() => self.give_up(&error)?,
                Err(error) => return Err(error),
            }
        }
    }

    fn give_up(&mut self, error: &SqlError) -> Result<()> {
        self.count.note_repeated(error);
        if self.connection.autocommit() { Ok(()) } else { self.rollback.run() }
    }

    fn attempt(&mut self, kind: Kind, random: &mut StdRng) -> Result<()> {
        if kind.writes() {
            self.begin.run()?
        } else {
            self.begin_reading.run()?
        }
        match kind {
            Kind::NewOrder => self.new_order(random)?,
            Kind::Payment => self.payment(random)?,
            Kind::OrderStatus => self.order_status(random)?,
            Kind::Delivery => self.delivery(random)?,
            Kind::StockLevel => self.stock_level(random)?,
        }
        self.commit.run()
    }

    fn new_order(&mut self, random: &mut StdRng) -> Result<()> {
        let (w, d) = (self.warehouse, random.random_range(1..=DISTRICTS));
        let c = random.random_range(1..=CUSTOMERS);
        let say = &mut self.say;
        let [tax] = one(&mut say.warehouse_tax, &[w])?;
        let [o, district_tax] = one(&mut say.district, &[w, d])?;
        run(&mut say.district_next, &[w, d, o + 1])?;
        let [discount, _] = one(&mut say.customer, &[w, d, c])?;
        let lines = random.random_range(5..=15);
        run(&mut say.insert_order, &[w, d, o, c, lines])?;
        run(&mut say.insert_new_order, &[w, d, o])?;
        for line in 1..=lines {
            let i = random.random_range(1..=ITEMS);
            // One article in a hundred comes from another warehouse.
            let from =
                if random.random_range(0..100) == 0 { other_warehouse(w, random) } else { w };
            let quantity = random.random_range(1..=10);
            let [price] = one(&mut say.item, &[i])?;
            let [left] = one(&mut say.stock, &[from, i])?;
            let left = left - quantity;
            let left = if left < 10 { left + 91 } else { left };
            run(&mut say.update_stock, &[from, i, left, quantity])?;
            // Taxes and discounts are in hundredths of a per cent.
            let taxed = price * quantity * (10_000 + tax + district_tax) / 10_000;
            let amount = taxed * (10_000 - discount) / 10_000;
            let filler = random.random_range(0..i64::MAX);
            run(&mut say.insert_line, &[w, d, o, line, i, from, quantity, amount, filler])?;
        }
        Ok(())
    }

    fn payment(&mut self, random: &mut StdRng) -> Result<()> {
        let (w, d) = (self.warehouse, random.random_range(1..=DISTRICTS));
        let amount = random.random_range(100..=500_000);
        // Fifteen customers in a hundred are of another warehouse.
        let (c_w, c_d) = if random.random_range(0..100) < 15 {
            (other_warehouse(w, random), random.random_range(1..=DISTRICTS))
        } else {
            (w, d)
        };
        run(&mut self.say.pay_warehouse, &[w, amount])?;
        run(&mut self.say.pay_district, &[w, d, amount])?;
        let c = self.some_customer(c_w, c_d, random)?;
        run(&mut self.say.pay_customer, &[c_w, c_d, c, amount])?;
        run(&mut self.say.insert_history, &[w, d, c_w, c_d, c, amount])
    }

    fn order_status(&mut self, random: &mut StdRng) -> Result<()> {
        let (w, d) = (self.warehouse, random.random_range(1..=DISTRICTS));
        let c = self.some_customer(w, d, random)?;
        let [_discount, _balance] = one(&mut self.say.customer, &[w, d, c])?;
        let orders = all(&mut self.say.last_order, &[w, d, c])?;
        if let Some(o) = orders.first() {
            let lines = all(&mut self.say.lines, &[w, d, *o])?;
            assert!((5..=15).contains(&lines.len()), "order {w} {d} {o} has its lines");
        }
        Ok(())
    }

    fn delivery(&mut self, random: &mut StdRng) -> Result<()> {
        let (w, carrier) = (self.warehouse, random.random_range(1..=10));
        let say = &mut self.say;
        for d in 1..=DISTRICTS {
            let Some(o) = all(&mut say.oldest, &[w, d])?.first().copied() else { continue };
            run(&mut say.delete_new_order, &[w, d, o])?;
            let [c] = one(&mut say.order_customer, &[w, d, o])?;
            run(&mut say.carry, &[w, d, o, carrier])?;
            run(&mut say.deliver_lines, &[w, d, o])?;
            let [amount] = one(&mut say.sum_lines, &[w, d, o])?;
            run(&mut say.deliver_customer, &[w, d, c, amount])?;
        }
        Ok(())
    }

    fn stock_level(&mut self, random: &mut StdRng) -> Result<()> {
        let (w, d) = (self.warehouse, random.random_range(1..=DISTRICTS));
        let [next, _] = one(&mut self.say.district, &[w, d])?;
        let [_short] = one(&mut self.say.short, &[w, d, next, random.random_range(10..=20)])?;
        Ok(())
    }

    /// Sixty in a hundred are asked for by name, the middle one of those who have it, the others by number.
    fn some_customer(&mut self, w: i64, d: i64, random: &mut StdRng) -> Result<i64> {
        if random.random_range(0..100) >= 60 {
            return Ok(random.random_range(1..=CUSTOMERS));
        }
        let name = random.random_range(0..LAST_NAMES);
        let named = all(&mut self.say.customers_named, &[w, d, name])?;
        Ok(named[named.len() / 2])
    }
}

impl Repeated for Clerk {
    fn count(&mut self) -> &mut Count {
        &mut self.count
    }

    fn once(&mut self) -> Result<Option<usize>> {
        self.transaction().map(|kind| Some(kind as usize))
    }
}

fn other_warehouse(w: i64, random: &mut StdRng) -> i64 {
    1 + (w - 1 + random.random_range(1..WAREHOUSES)) % WAREHOUSES
}

fn bind(statement: &mut Statement, values: &[i64]) -> Result<()> {
    (1..).zip(values).try_for_each(|(index, value)| statement.bind_i64(index, *value))
}

fn run(statement: &mut Statement, values: &[i64]) -> Result<()> {
    bind(statement, values)?;
    statement.run()
}

/// The numbers in the one row that a statement has.
fn one<const COLUMNS: usize>(statement: &mut Statement, values: &[i64]) -> Result<[i64; COLUMNS]> {
    bind(statement, values)?;
    let found = statement.step().map(|step| {
        assert_eq!(step, Step::Row, "{} finds a row for {values:?}", statement.sql());
        std::array::from_fn(|column| statement.column_i64(column as i32))
    });
    statement.reset();
    found
}

/// The first numbers of all rows that a statement has.
fn all(statement: &mut Statement, values: &[i64]) -> Result<Vec<i64>> {
    bind(statement, values)?;
    let mut found = Vec::new();
    let outcome = loop {
        match statement.step() {
            Ok(Step::Row) => found.push(statement.column_i64(0)),
            Ok(Step::Done) => break Ok(found),
            Err(error) => break Err(error),
        }
    };
    statement.reset();
    outcome
}

#[cfg(test)]
mod tests {
    use super::{Kind, other_warehouse};
    use crate::ratios::tpcc_tables::WAREHOUSES;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    #[test]
    fn of_a_hundred_transactions_each_kind_has_its_share() {
        for (kind, share) in Kind::SHARES {
            let numbers = (0..100).filter(|number| Kind::of(*number) == kind).count();
            assert_eq!(numbers, share as usize, "{kind:?}");
        }
        for (place, (kind, _)) in Kind::SHARES.iter().enumerate() {
            assert_eq!(*kind as usize, place, "{kind:?} is counted in its place");
        }
    }

    #[test]
    fn another_warehouse_is_any_but_the_own() {
        let mut random = StdRng::seed_from_u64(1);
        for own in 1..=WAREHOUSES {
            let mut seen = vec![false; WAREHOUSES as usize];
            for _ in 0..1000 {
                seen[other_warehouse(own, &mut random) as usize - 1] = true;
            }
            let missed: Vec<usize> = (0..seen.len()).filter(|place| !seen[*place]).collect();
            assert_eq!(missed, [own as usize - 1]);
        }
    }
}
