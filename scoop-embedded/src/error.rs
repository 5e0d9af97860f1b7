//! Errors of private servers, with their remedies.

use std::io;
use std::path::{Path, PathBuf};

/// An error of starting, restarting or stopping a private server.
///
/// ```
/// # mod scoop { pub use scoop_embedded as embedded; }
/// use scoop::embedded::EmbeddedError;
///
/// fn is_taken(error: &EmbeddedError) -> bool {
///     matches!(error, EmbeddedError::Occupied { .. })
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// The machine has no supported PostgreSQL.
    #[error(
        "no PostgreSQL 15 or newer found ({seen}); install it with `{install}`, name the folder of its programs in \
         SCOOP_PG_BIN, or set DATABASE_URL to a server that already runs"
    )]
    NotInstalled {
        /// The candidates, with the reason against each.
        seen: String,
        /// The command that installs PostgreSQL on this machine.
        install: String,
    },
    /// The machine has no supported PostgreSQL, and it could not be downloaded.
    #[cfg(feature = "download")]
    #[error(
        "no PostgreSQL 15 or newer found ({seen}), and it could not be downloaded; install it with `{install}`, name \
         the folder of its programs in SCOOP_PG_BIN, or set DATABASE_URL to a server that already runs"
    )]
    NotDownloaded {
        /// The candidates, with the reason against each.
        seen: String,
        /// The command that installs PostgreSQL on this machine.
        install: String,
        /// The reason for which the download failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kept data needs another major version than those installed.
    #[error(
        "the data in {folder} was made by PostgreSQL {made_by}, which was not found ({seen}); install that version or \
         name the folder of its programs in SCOOP_PG_BIN"
    )]
    OtherVersion {
        /// The kept folder.
        folder: PathBuf,
        /// The major version that made the data.
        made_by: u32,
        /// The candidates, with the reason against each.
        seen: String,
    },
    /// Another owner holds the kept folder.
    #[error(
        "{folder} is in use by process {owner}: one process at a time may own a kept server; connect to that one's, \
         stop it, or choose another folder"
    )]
    Occupied {
        /// The kept folder.
        folder: PathBuf,
        /// The process that owns its server.
        owner: u32,
    },
    /// The kept folder's former owner is gone, but its server did not finish in time.
    #[error(
        "the former server in {folder} is still stopping after {seconds} s; its log is in that folder, try again later"
    )]
    StillStopping {
        /// The kept folder.
        folder: PathBuf,
        /// The time waited, in seconds.
        seconds: u64,
    },
    /// The folder contains files of others.
    #[error("{folder} holds other files; give a new or an empty folder")]
    Foreign {
        /// The folder as given.
        folder: PathBuf,
    },
    /// Root's server runs as another user, which cannot reach the folder.
    #[error(
        "{folder} lies below {barrier}, which the user {account} may not enter; PostgreSQL refuses to run as root and so \
         runs as that user: choose a folder elsewhere, or `chmod o+x {barrier}`"
    )]
    Unreachable {
        /// The folder as given.
        folder: PathBuf,
        /// The first folder on the way that the user may not enter.
        barrier: PathBuf,
        /// The user that would run the server.
        account: String,
    },
    /// Root's server has to run as another user, but there is none.
    #[error(
        "PostgreSQL refuses to run as root, and /etc/passwd has neither `postgres` nor `nobody`; add one, or run this as \
         another user"
    )]
    NoAccount,
    /// A file or folder of the server could not be handled.
    #[error("could not {action} {path}")]
    Folder {
        /// The action that failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A program could not be run at all.
    #[error("could not run `{command}`")]
    Command {
        /// The program, with its arguments.
        command: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A program of PostgreSQL ran and failed.
    #[error("`{command}` failed: {output}")]
    CommandFailed {
        /// The program, with its arguments.
        command: String,
        /// The output of the program.
        output: String,
    },
    /// The server ended instead of becoming ready.
    #[error("PostgreSQL in {folder} ended while starting; the end of its log:\n{log}")]
    Exited {
        /// The server's folder.
        folder: PathBuf,
        /// The last lines of its log.
        log: String,
    },
    /// The server neither ended nor became ready.
    #[error("PostgreSQL in {folder} was not ready after {seconds} s; the end of its log:\n{log}")]
    NotReady {
        /// The server's folder.
        folder: PathBuf,
        /// The time waited, in seconds.
        seconds: u64,
        /// The last lines of its log.
        log: String,
    },
    /// The server survived every attempt to stop it.
    #[error("PostgreSQL in {folder} does not stop; end it by hand")]
    Unstoppable {
        /// The server's folder.
        folder: PathBuf,
    },
    /// The tokio runtime shut down before the work was done.
    #[error(
        "the tokio runtime shut down in the middle; keep it running until the server is started or stopped"
    )]
    RuntimeGone,
}

/// Names the file in errors of the file system.
pub(crate) trait IoContext<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, EmbeddedError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, EmbeddedError> {
        self.map_err(|source| EmbeddedError::Folder { action, path: path.to_owned(), source })
    }
}
