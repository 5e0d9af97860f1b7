//! Removes temporary folders whose owner and supervisor were both killed, with the servers that may still run there.
//!
//! All users may write to the folder for temporary files. So only folders of the current user, or of the user that
//! runs root's servers, are touched, and servers are stopped only as that user.

use std::fs::{self, Metadata, OpenOptions};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::binaries::Binaries;
use crate::data_dir::{OWNER, PREFIX, data_in, remove, temporary_parents};
use crate::error::EmbeddedError;
use crate::os_user::Account;
use crate::process::stop_unwatched;
use crate::telemetry;

/// The maximum age of a folder without a lock. A younger one may be about to get its lock; an older one is left over
/// from an interrupted removal.
const UNLOCKED_AGE_MAX: Duration = Duration::from_secs(600);

/// Removes abandoned folders. Failures are only logged: the next start retries.
pub(crate) fn remove_all(account: &Account, binaries: &Binaries) {
    for folder in temporary_parents().iter().flat_map(|parent| our_folders(parent)) {
        if let Err(error) = remove_one(&folder, account, binaries) {
            telemetry::sweep_failed(&error);
        }
    }
}

fn our_folders(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
        .map(|entry| entry.path())
        .collect()
}

fn remove_one(folder: &Path, account: &Account, binaries: &Binaries) -> Result<(), EmbeddedError> {
    let Ok(found) = fs::symlink_metadata(folder) else {
        return Ok(());
    };
    if !found.is_dir() || !account.may_have_made(&found) {
        return Ok(());
    }
    let Ok(lock) = account.open(OpenOptions::new().read(true), &folder.join(OWNER)) else {
        return if is_old(&found) { remove(folder) } else { Ok(()) };
    };
    // The owner locks the file first and then writes its id: until then another start must not take the lock.
    let mut owner = String::new();
    let is_named = (&lock).read_to_string(&mut owner).is_ok() && !owner.is_empty();
    if !is_named && !is_old(&found) || lock.try_lock().is_err() {
        return Ok(());
    }
    stop_unwatched(&data_in(folder), &account.clone().or_owner_of(&found), binaries)?;
    remove(folder)
}

fn is_old(folder: &Metadata) -> bool {
    folder.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNLOCKED_AGE_MAX))
}
