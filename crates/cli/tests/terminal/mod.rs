//! A pseudo terminal with a program on it, and what a person would see there.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// The terminal, with the program.
pub struct Terminal {
    child: Child,
    main: File,
    /// Keeps the terminal when the program has ended, to be looked at.
    side: File,
    seen: Arc<Mutex<Seen>>,
    before: libc::termios,
}

struct Seen {
    screen: vt100::Parser,
    bytes: Vec<u8>,
}

impl Terminal {
    /// Starts the program on a terminal of this size.
    pub fn with(command: &mut Command, rows: u16, columns: u16) -> Terminal {
        let (mut main, mut side) = (0, 0);
        let size = size(rows, columns);
        // SAFETY: room for two descriptors; no name and no settings are asked for, and the size is
        // a valid one.
        let code = unsafe {
            libc::openpty(&raw mut main, &raw mut side, null_mut(), null(), &raw const size)
        };
        assert_eq!(code, 0, "a pseudo terminal can be had");
        // Cloned: children do not inherit a clone.
        let own = |fd| {
            // SAFETY: opened above, and owned by nobody else.
            let opened = unsafe { File::from_raw_fd(fd) };
            opened.try_clone().expect("a descriptor")
        };
        let (main, side) = (own(main), own(side));
        let end = || side.try_clone().expect("a descriptor");
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color");
        let take_terminal = || {
            // SAFETY: it takes nothing, and is allowed between fork and exec.
            unsafe { libc::setsid() };
            // SAFETY: it takes numbers, and is allowed there too. Descriptor 0 is the terminal by
            // now.
            unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) };
            Ok(())
        };
        // SAFETY: it makes such calls alone.
        unsafe { command.pre_exec(take_terminal) };
        let before = settings(&side);
        let child = command.spawn().expect("it can be started");
        let screen = vt100::Parser::new(rows, columns, 0);
        let seen = Arc::new(Mutex::new(Seen { screen, bytes: Vec::new() }));
        let (mut reader, there) = (main.try_clone().expect("a descriptor"), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut piece) {
                let mut seen = there.lock().unwrap();
                seen.screen.process(&piece[..n]);
                seen.bytes.extend_from_slice(&piece[..n]);
            }
        });
        Terminal { child, main, side, seen, before }
    }

    /// What stands on it.
    pub fn text(&self) -> String {
        self.seen.lock().unwrap().screen.screen().contents()
    }

    /// How often this was sent to it.
    pub fn sent(&self, what: &str) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.bytes.windows(what.len()).filter(|bytes| *bytes == what.as_bytes()).count()
    }

    /// Waits until all of these words stand on it.
    #[track_caller]
    pub fn shows(&self, words: &[&str]) {
        let start = Instant::now();
        while !words.iter().all(|word| self.text().contains(word)) {
            assert!(start.elapsed() < PATIENCE, "{words:?} are missing in\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until this stands on it no longer.
    #[track_caller]
    pub fn loses(&self, word: &str) {
        let start = Instant::now();
        while self.text().contains(word) {
            assert!(start.elapsed() < PATIENCE, "{word:?} stays in\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.main.write_all(keys.as_bytes()).expect("the terminal takes them");
    }

    /// Gives it another size.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.seen.lock().unwrap().screen.screen_mut().set_size(rows, columns);
        let size = size(rows, columns);
        // SAFETY: the descriptor is a terminal's, and the size is a valid one.
        let code = unsafe { libc::ioctl(self.main.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(code, 0);
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: i32) {
        // SAFETY: our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Waits for the end of the program, and sees that the terminal is as it was; the exit code.
    #[track_caller]
    pub fn ends(&mut self) -> i32 {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        };
        let is_own = || self.seen.lock().unwrap().screen.screen().alternate_screen();
        while is_own() {
            assert!(start.elapsed() < PATIENCE, "the screen of before is not back");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!self.seen.lock().unwrap().screen.screen().hide_cursor(), "the cursor is back");
        let after = settings(&self.side);
        assert_eq!(
            (after.c_iflag, after.c_oflag, after.c_lflag),
            (self.before.c_iflag, self.before.c_oflag, self.before.c_lflag),
            "lines and echo are back"
        );
        status.code().unwrap_or(-1)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(rows: u16, columns: u16) -> libc::winsize {
    libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn settings(side: &File) -> libc::termios {
    let mut settings = std::mem::MaybeUninit::<libc::termios>::uninit();
    // SAFETY: the descriptor is a terminal's, and there is room for its settings.
    let code = unsafe { libc::tcgetattr(side.as_raw_fd(), settings.as_mut_ptr()) };
    assert_eq!(code, 0);
    // SAFETY: the call has filled them.
    unsafe { settings.assume_init() }
}
