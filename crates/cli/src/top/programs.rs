//! Processes by name, for a terminal: what a process calls itself may hold anything, and only what
//! can be seen is shown.

use std::fs;

/// Its number and name: `12 (python3)`.
pub fn person(pid: u32) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{pid} ({})", visible(name.trim_end())),
        Err(_) => pid.to_string(),
    }
}

/// Its command line, with the program's name in the place of its path: there is little room.
pub fn command(pid: u32) -> String {
    let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
    let (program, arguments) = line.split_once('\0').unwrap_or((&line, ""));
    let name = program.rsplit_once('/').map_or(program, |(_, name)| name);
    let line = format!("{name} {}", arguments.replace('\0', " "));
    if !line.trim().is_empty() {
        return visible(line.trim());
    }
    match String::from_utf8_lossy(&read("comm")).trim() {
        "" => "(ended)".to_owned(),
        name => visible(&format!("[{name}]")),
    }
}

/// Without what would steer the terminal.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_command_line_and_one_that_is_not_there_has_none() {
        let own = command(std::process::id());
        assert!(own.contains("plait"), "{own}");
        assert_eq!(command(u32::MAX), "(ended)");
        assert_eq!(person(u32::MAX), u32::MAX.to_string());
    }

    #[test]
    fn a_name_does_not_steer_the_terminal() {
        assert_eq!(visible("a\x1b[2Jb\nc\u{9b}d"), "a?[2Jb?c?d");
    }
}
