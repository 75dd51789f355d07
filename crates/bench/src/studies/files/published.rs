//! The figures of study C: "dbench" in Go with mattn/go-sqlite3, on btrfs on the SSD of a laptop of 2020, then on ext4 on
//! a small cloud server. In seconds, one for each run.

use crate::studies::{Published, X};

/// The published runs of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Runs {
    /// Part of the chart's id.
    pub test: &'static str,
    /// SQLite.
    pub sqlite: &'static [f64],
    /// The file system; nothing where it was not run.
    pub files: &'static [f64],
    /// Which file system.
    pub file_system: &'static str,
}

/// 10,000 inserts in a tight loop.
pub const LINEAR: Runs = Runs {
    test: "linear",
    sqlite: &[0.647, 0.809, 0.708],
    files: &[0.393, 0.371, 0.382],
    file_system: "btrfs",
};
/// 100 writers with 1,000 records each.
pub const CONCURRENT: Runs = Runs {
    test: "concurrent",
    sqlite: &[8.2, 8.1, 8.5],
    files: &[3.1, 3.4, 3.4],
    file_system: "btrfs",
};
/// The task simulation.
pub const TASKS: Runs = Runs {
    test: "tasks",
    sqlite: &[11.5, 10.3, 7.8],
    files: &[3.3, 3.2, 2.4],
    file_system: "btrfs",
};
/// The same with files by temporary file and rename.
pub const TASKS_RENAME: Runs = Runs {
    test: "tasks-rename",
    sqlite: &[9.6, 9.6, 7.9],
    files: &[13.5, 13.3, 10.2],
    file_system: "btrfs",
};
/// Six runs of SQLite alone.
pub const WARM_UP: Runs = Runs {
    test: "warm-up",
    sqlite: &[10.8, 10.3, 8.9, 6.5, 6.7, 6.9],
    files: &[],
    file_system: "",
};
/// On the cloud server, files by temporary file and rename.
pub const SERVER: Runs = Runs {
    test: "server",
    sqlite: &[8.7, 8.0, 8.2, 8.3, 8.0, 8.5],
    files: &[18.3, 17.3, 16.6, 15.7, 16.1],
    file_system: "ext4",
};

impl Runs {
    /// How many runs of each were published, at most.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.sqlite.len().max(self.files.len())).expect("a handful")
    }

    /// The figures as ghosts over the number of the run.
    #[must_use]
    pub fn ghosts(&self) -> Vec<Published> {
        let ghost = |label: String, engine: &str, figures: &[f64]| Published {
            label,
            engine: engine.to_owned(),
            points: (1_u32..).map(|n| X::Number(n.into())).zip(figures.iter().copied()).collect(),
        };
        let mut all = vec![ghost("SQLite, published".to_owned(), "stock", self.sqlite)];
        if !self.files.is_empty() {
            let label = format!("files on {}, published", self.file_system);
            all.push(ghost(label, "files", self.files));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as it was published.
    const TEXT: &str = "\
        | linear: 10,000 inserts in a tight loop | 647, 809, 708 ms | btrfs 393, 371, 382 ms |
        | concurrent: 100 writers x 1,000 records | 8.2, 8.1, 8.5 s | btrfs 3.1, 3.4, 3.4 s |
        | tasks: create, change status, update output 10 times, delete | 11.5, 10.3, 7.8 s | btrfs 3.3, 3.2, 2.4 s |
        | tasks, files by temporary file and rename | 9.6, 9.6, 7.9 s | btrfs 13.5, 13.3, 10.2 s |
        | tasks again, six runs, SQLite alone (warming up) | 10.8, 10.3, 8.9, 6.5, 6.7, 6.9 s | |
        | tasks on the cloud server | 8.7, 8.0, 8.2, 8.3, 8.0, 8.5 s | ext4 18.3, 17.3, 16.6, 15.7, 16.1 s |";

    /// The seconds in a field, and the file system it begins with.
    fn figures(field: &str) -> (String, Vec<f64>) {
        let milliseconds = field.ends_with(" ms");
        let scale = if milliseconds { 1000.0 } else { 1.0 };
        let (mut file_system, mut seconds) = (String::new(), Vec::new());
        for word in field.split([' ', ',']).filter(|word| !word.is_empty()) {
            match word.parse::<f64>() {
                Ok(figure) => seconds.push(figure / scale),
                Err(_) if ["s", "ms"].contains(&word) => {}
                Err(_) => word.clone_into(&mut file_system),
            }
        }
        (file_system, seconds)
    }

    #[test]
    fn the_figures_are_those_of_the_publication() {
        let all = [LINEAR, CONCURRENT, TASKS, TASKS_RENAME, WARM_UP, SERVER];
        let lines: Vec<&str> = TEXT.lines().collect();
        assert_eq!(lines.len(), all.len());
        for (line, runs) in lines.into_iter().zip(all) {
            let fields: Vec<&str> = line.trim().split('|').map(str::trim).collect();
            assert_eq!(figures(fields[2]), (String::new(), runs.sqlite.to_vec()), "{line}");
            let (file_system, seconds) = figures(fields[3]);
            assert_eq!((file_system.as_str(), seconds.as_slice()), (runs.file_system, runs.files));
        }
    }

    #[test]
    fn ghosts_stand_over_the_number_of_their_run() {
        let ghosts = SERVER.ghosts();
        assert_eq!(ghosts[0].points[5], (X::Number(6.0), 8.5));
        assert_eq!((ghosts[1].points.len(), ghosts[1].engine.as_str()), (5, "files"));
    }
}
