//! A machine's shelf: what is put there stays when a sidecar is killed, and may not be what it was.

use std::cell::RefCell;
use std::io::{self, Cursor, Read, Write};
use std::rc::Rc;

use super::dice::Dice;
use crate::shelf::{Draft, Shelf};
use crate::world::Random as _;

#[derive(Clone, Debug, Default)]
struct Files {
    now: Option<Vec<u8>>,
    /// All that was ever put.
    ever: Vec<Vec<u8>>,
}

/// A shelf.
#[derive(Clone, Debug, Default)]
pub struct Memory(Rc<RefCell<Files>>);

impl Memory {
    /// The same things on the shelf of another machine.
    pub fn copied(&self) -> Memory {
        Memory(Rc::new(RefCell::new(self.0.borrow().clone())))
    }

    /// What is there.
    pub fn now(&self) -> Option<Vec<u8>> {
        self.0.borrow().now.clone()
    }

    /// Puts something else there, or nothing.
    pub fn set(&self, bytes: Option<Vec<u8>>) {
        self.0.borrow_mut().now = bytes;
    }

    /// An older file comes back; or the file is cut off, damaged, or gone.
    pub fn disturb(&self, dice: &Dice) {
        let mut files = self.0.borrow_mut();
        let older = dice.below(files.ever.len().max(1) as u64) as usize;
        let Files { now, ever } = &mut *files;
        let Some(bytes) = now else { return };
        match dice.below(6) {
            0 => bytes.truncate(dice.below(bytes.len() as u64 + 1) as usize),
            1 => {
                let at = dice.below(bytes.len().max(1) as u64) as usize;
                bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << dice.below(8));
            }
            2 => *now = None,
            _ => now.clone_from(&ever.get(older).cloned()),
        }
    }
}

impl Shelf for Memory {
    fn read(&self) -> io::Result<Option<Box<dyn Read>>> {
        Ok(self.now().map(|bytes| Box::new(Cursor::new(bytes)) as Box<dyn Read>))
    }

    fn begin(&self) -> io::Result<Box<dyn Draft>> {
        Ok(Box::new(InMemory { shelf: self.clone(), bytes: Vec::new() }))
    }
}

struct InMemory {
    shelf: Memory,
    bytes: Vec<u8>,
}

impl Write for InMemory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Draft for InMemory {
    fn put(self: Box<Self>) -> io::Result<()> {
        let mut files = self.shelf.0.borrow_mut();
        files.ever.push(self.bytes.clone());
        files.now = Some(self.bytes.clone());
        Ok(())
    }
}
