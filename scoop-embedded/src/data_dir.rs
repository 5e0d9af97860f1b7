//! The folder of one server: its owner, its contents, and its removal.
//!
//! A data directory holds `data` (PostgreSQL's), `server.log`, the socket unless the path is too long for one, and
//! `owner`, a file with the owning process's pid. That file is locked by the owner *and* by the process that works for
//! it there, `initdb` or the supervisor of the server, so:
//!
//! - a lock that can be taken means that no process is left to stop the server or remove the folder;
//! - a lock that cannot be taken, with a live pid in the file, means that the folder has an owner;
//! - a lock that cannot be taken, without a live pid, means that the server is being stopped.
//!
//! The user that runs the server may write to the folder, and this process may be root. So files there are opened by
//! [`Account::open`], and the folder itself is changed through a handle opened without following links.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, io, process, thread};

use crate::binaries::Binaries;
use crate::error::{EmbeddedError, IoContext};
use crate::os_user::{Account, run};
use crate::process::lives;
use crate::telemetry;

/// The prefix of the names of temporary folders; the owner's pid and a number follow.
pub(crate) const PREFIX: &str = "scoop-pg-";
pub(crate) const OWNER: &str = "owner";
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// The smallest known limit for a socket's path: macOS's 104 bytes, including the terminator.
const SOCKET_PATH_MAX: usize = 103;
const SOCKET_NAME: &str = "/.s.PGSQL.5432";

/// A folder owned by this process until it is released; dropping releases it.
#[derive(Debug)]
pub(crate) struct DataDir {
    folder: PathBuf,
    socket: PathBuf,
    account: Account,
    is_temporary: bool,
    lock: Option<File>,
    /// Protects the socket's own folder, if there is one, from being swept up.
    _socket_lock: Option<File>,
}

impl DataDir {
    /// A fresh folder, removed when released.
    pub(crate) fn temporary(account: Account) -> Result<Self, EmbeddedError> {
        let (folder, lock) = fresh_folder(&account)?;
        let socket = folder.clone();
        Ok(Self { folder, socket, account, is_temporary: true, lock: Some(lock), _socket_lock: None })
    }

    /// The given folder, created if it does not exist. Waits for a server that is being stopped there.
    pub(crate) fn kept(given: &Path, account: Account) -> Result<Self, EmbeddedError> {
        if !given.exists() {
            account.check_reaches(&std::path::absolute(given).at("find the folder", given)?)?;
            fs::create_dir_all(given).at("make the folder", given)?;
        }
        let folder = given.canonicalize().at("find the folder", given)?;
        let opened = open_folder(&folder)?;
        let found = opened.metadata().at("look at the folder", &folder)?;
        let account = account.or_owner_of(&found);
        account.check_reaches(&folder)?;
        check_is_ours_or_empty(&folder)?;

        let lock = wait_for_lock(&folder, &account)?;
        opened.set_permissions(Permissions::from_mode(0o700)).at("close to others the folder", &folder)?;
        account.own(&opened).at("change the owner of", &folder)?;
        let (socket, socket_lock) = match socket_fits(&folder) {
            true => (folder.clone(), None),
            false => fresh_folder(&account).map(|(socket, lock)| (socket, Some(lock)))?,
        };
        Ok(Self { folder, socket, account, is_temporary: false, lock: Some(lock), _socket_lock: socket_lock })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    pub(crate) fn is_temporary(&self) -> bool {
        self.is_temporary
    }

    pub(crate) fn data(&self) -> PathBuf {
        data_in(&self.folder)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// The folder to be removed after the end of the server.
    pub(crate) fn doomed(&self) -> Option<&Path> {
        (self.is_temporary || self.socket != self.folder).then_some(&*self.socket)
    }

    /// Duplicates the lock for a supervisor.
    pub(crate) fn share_lock(&self) -> Result<File, EmbeddedError> {
        let released = || io::Error::other("it was released");
        let lock = self.lock.as_ref().ok_or_else(released);
        lock.and_then(File::try_clone).at("share the lock of", &self.folder)
    }

    /// The major version of the PostgreSQL that made the data, if there is any.
    pub(crate) fn made_by(&self) -> Option<u32> {
        fs::read_to_string(self.data().join("PG_VERSION")).ok()?.trim().parse().ok()
    }

    /// Makes the data unless it exists. A failure leaves no partial data.
    pub(crate) fn prepare(&self, binaries: &Binaries) -> Result<(), EmbeddedError> {
        remove_file(&self.log())?;
        if self.made_by().is_some() {
            return Ok(());
        }
        let fresh = self.folder.join("unfinished");
        remove(&fresh)?;
        match self.initdb(binaries, &fresh, "C.UTF-8") {
            Err(EmbeddedError::CommandFailed { output, .. }) if output.contains("locale") => {
                self.initdb(binaries, &fresh, "C")?;
            }
            made => made?,
        }
        fs::rename(&fresh, self.data()).at("put into place", &self.data())
    }

    /// Copies the data of the server that listens at `source`, as a standby of it.
    pub(crate) fn copy(&self, binaries: &Binaries, source: &Path) -> Result<(), EmbeddedError> {
        let mut backup = self.account.command(binaries.program("pg_basebackup"));
        backup.args(["--username=postgres", "--port=5432", "--checkpoint=fast", "--wal-method=stream"]);
        backup.args(["--write-recovery-conf", "--no-sync", "--no-password"]);
        // As for `initdb`: the input shares the lock.
        backup.stdin(self.share_lock()?);
        run(backup.arg("--host").arg(source).arg("--pgdata").arg(self.data())).map(drop)
    }

    fn initdb(&self, binaries: &Binaries, data: &Path, locale: &str) -> Result<(), EmbeddedError> {
        let mut initdb = self.account.command(binaries.program("initdb"));
        initdb.args([
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-sync",
            "--no-instructions",
        ]);
        // The input is never read, but shares the lock: if this process is killed, the folder stays locked until
        // `initdb` ends.
        initdb.stdin(self.share_lock()?);
        run(initdb.arg(format!("--locale={locale}")).arg("-D").arg(data)).map(drop)
    }

    /// Releases the folder. The owner's pid is removed first, so that another process which finds the lock taken
    /// waits for it.
    pub(crate) fn release(&mut self) -> Result<(), EmbeddedError> {
        let Some(lock) = self.lock.take() else {
            return Ok(());
        };
        lock.set_len(0).at("empty", &self.folder.join(OWNER))?;
        self.doomed().map_or(Ok(()), remove)
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            telemetry::folder_left(&error);
        }
    }
}

/// The folder of the data of PostgreSQL in it.
pub(crate) fn data_in(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// The parents of temporary folders, best first.
pub(crate) fn temporary_parents() -> Vec<PathBuf> {
    let mut parents: Vec<_> =
        [env::temp_dir(), "/tmp".into()].iter().flat_map(|parent| parent.canonicalize()).collect();
    parents.dedup();
    parents
}

/// Removes a folder with all that is in it; the supervisor may be doing the same.
pub(crate) fn remove(folder: &Path) -> Result<(), EmbeddedError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove", folder),
        _ => Ok(()),
    }
}

/// Removes a file, which need not be there.
pub(crate) fn remove_file(file: &Path) -> Result<(), EmbeddedError> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove", file),
        _ => Ok(()),
    }
}

/// Creates a folder with a path short enough for a socket, owned by the account and locked by this process.
fn fresh_folder(account: &Account) -> Result<(PathBuf, File), EmbeddedError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let parent = parent_for(account)?;
    loop {
        let folder =
            parent.join(format!("{PREFIX}{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made.at("make the folder", &folder)?,
        }
        account.own(&open_folder(&folder)?).at("change the owner of", &folder)?;
        // A concurrent sweep may take the lock first, and then removes the folder.
        if let Some(lock) = try_lock(&folder, account)? {
            return Ok((folder, lock));
        }
    }
}

/// Opens a folder without following a link.
fn open_folder(folder: &Path) -> Result<File, EmbeddedError> {
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY);
    options.open(folder).at("open the folder", folder)
}

fn parent_for(account: &Account) -> Result<PathBuf, EmbeddedError> {
    let mut refused = None;
    for parent in temporary_parents() {
        let example = parent.join(format!("{PREFIX}{}-{}", u32::MAX, u32::MAX));
        match account.check_reaches(&example) {
            Ok(()) if socket_fits(&example) => return Ok(parent),
            Ok(()) => {}
            Err(error) => refused = Some(error),
        }
    }
    let unfit = io::Error::other("neither TMPDIR nor /tmp exists with a path short enough for a socket");
    match refused {
        Some(error) => Err(error),
        None => Err(unfit).at("make a temporary folder in", &env::temp_dir()),
    }
}

/// Whether the path is short enough for a socket, and text, which sqlx requires.
fn socket_fits(folder: &Path) -> bool {
    folder.to_str().is_some_and(|path| path.len() + SOCKET_NAME.len() <= SOCKET_PATH_MAX)
}

fn check_is_ours_or_empty(folder: &Path) -> Result<(), EmbeddedError> {
    let is_empty = fs::read_dir(folder).at("read the folder", folder)?.next().is_none();
    match is_empty || folder.join(OWNER).is_file() {
        true => Ok(()),
        false => Err(EmbeddedError::Foreign { folder: folder.to_owned() }),
    }
}

fn wait_for_lock(folder: &Path, account: &Account) -> Result<File, EmbeddedError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(lock) = try_lock(folder, account)? {
            return Ok(lock);
        }
        let owner = fs::read_to_string(folder.join(OWNER)).ok().and_then(|pid| pid.trim().parse().ok());
        match owner {
            Some(owner) if lives(owner) => {
                return Err(EmbeddedError::Occupied { folder: folder.to_owned(), owner });
            }
            _ if Instant::now() > deadline => {
                return Err(EmbeddedError::StillStopping {
                    folder: folder.to_owned(),
                    seconds: PATIENCE.as_secs(),
                });
            }
            _ => thread::sleep(PAUSE),
        }
    }
}

/// Takes the lock and writes the pid of this process. Returns `None` if the lock is taken.
fn try_lock(folder: &Path, account: &Account) -> Result<Option<File>, EmbeddedError> {
    let path = folder.join(OWNER);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let mut lock = account.open(&mut options, &path).at("open", &path)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error).at("lock", &path),
    }
    lock.set_len(0).and_then(|()| writeln!(lock, "{}", process::id())).at("write", &path)?;
    Ok(Some(lock))
}
