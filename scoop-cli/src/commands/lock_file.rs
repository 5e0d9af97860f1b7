//! Reading of the lock file of a program.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::fault::Fault;

/// Reads what a command needs of a lock file.
pub(super) fn read<T: DeserializeOwned>(file: &Path) -> Result<T, Fault> {
    let unfit = |why: String| Fault::Usage(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| unfit(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| {
        unfit(format!("this is no lock file of a program, or one of another version: {error}"))
    })
}
