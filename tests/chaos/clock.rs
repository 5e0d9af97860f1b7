//! Moves the clock of a worker with the library `faketime`. The program itself knows nothing of it.
//!
//! Only the time of day moves. The monotonic clock, which measures time-outs, cannot be put back or forward on
//! a real machine either.

use std::fs;
use std::path::{Path, PathBuf};

use scoop::Result;

/// Folders where packages put the library, or a subfolder of them named after the machine's architecture.
const PARENTS: [&str; 4] = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/lib"];

/// The variant for programs with several threads.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// How many seconds the library caches the content of the file.
const REMEMBERED_SECONDS: u32 = 1;

/// The library, if it is installed.
pub(crate) fn library() -> Option<PathBuf> {
    let parents = PARENTS.iter().map(PathBuf::from).flat_map(|parent| {
        let below = fs::read_dir(&parent).into_iter().flatten().flatten().map(|entry| entry.path());
        std::iter::once(parent).chain(below)
    });
    parents.map(|parent| parent.join(LIBRARY)).find(|library| library.is_file())
}

/// The variables that give a program the clock in the file.
pub(crate) fn variables(library: &Path, clock: &Path) -> [String; 4] {
    [
        format!("LD_PRELOAD={}", library.display()),
        format!("FAKETIME_TIMESTAMP_FILE={}", clock.display()),
        format!("FAKETIME_CACHE_DURATION={REMEMBERED_SECONDS}"),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
    ]
}

/// Sets the clock to so many seconds from the right time.
pub(crate) fn set(clock: &Path, seconds: i64) -> Result<()> {
    // Renamed into place, so that a worker never reads half of it.
    let new = clock.with_extension("new");
    fs::write(&new, format!("{seconds:+}\n"))?;
    fs::rename(new, clock)?;
    Ok(())
}
