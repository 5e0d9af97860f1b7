//! Downloads the programs of PostgreSQL where none are installed.

use std::path::PathBuf;
use std::process::Command;

use crate::account::run;
use crate::error::Result;

const SCRIPT: &str = include_str!("download.sh");
const RELEASES: &str = "https://github.com/theseus-rs/postgresql-binaries/releases/download";

/// The programs that were downloaded earlier.
pub(crate) fn downloaded() -> Option<PathBuf> {
    run_script(&[""]).ok()
}

/// Downloads the programs, unless another process has just done so.
pub(crate) fn download() -> Result<PathBuf> {
    run_script(&[RELEASES])
}

fn run_script(arguments: &[&str]) -> Result<PathBuf> {
    let mut script = Command::new("/bin/sh");
    run(script.args(["-c", SCRIPT, "scoop-postgres-download"]).args(arguments)).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;
    use std::{env, io, thread};

    use super::*;

    /// Changes the file with the SHA-256 of an archive.
    type Publish = fn(&Path) -> io::Result<()>;

    /// A release and a cache in a folder that is removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        /// With an archive of one program.
        fn new(name: &str, publish: Publish) -> Self {
            let folder = env::temp_dir().join(format!("scoop-test-download-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            let script = r#"
                set -e
                system=unknown-linux-gnu
                [ -z "$(find /lib -maxdepth 1 -name 'ld-musl-*')" ] || system=unknown-linux-musl
                [ "$(uname)" != Darwin ] || system=apple-darwin
                name=postgresql-17.7.0-$(uname -m | sed s/arm64/aarch64/)-$system
                mkdir -p "$1/$name/bin" "$1/17.7.0"
                echo 'a program' >"$1/$name/bin/postgres"
                cd "$1"
                tar -czf "17.7.0/$name.tar.gz" "$name"
                cd 17.7.0
                (sha256sum "$name.tar.gz" || shasum -a 256 "$name.tar.gz") >"$name.tar.gz.sha256"
            "#;
            run(Command::new("/bin/sh").args(["-c", script, "release"]).arg(&folder)).unwrap();
            for file in files(&folder.join("17.7.0")).into_iter().filter(|name| name.ends_with("sha256")) {
                publish(&folder.join("17.7.0").join(file)).unwrap();
            }
            Self(folder)
        }

        fn cache(&self) -> PathBuf {
            self.0.join("cache")
        }

        fn download(&self) -> Result<PathBuf> {
            run_script(&[&format!("file://{}", self.0.display()), &self.cache().to_string_lossy()])
        }

        fn downloaded(&self) -> Option<PathBuf> {
            run_script(&["", &self.cache().to_string_lossy()]).ok()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn files(folder: &Path) -> Vec<String> {
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        files.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn concurrent_downloads_leave_the_programs_in_a_closed_folder() {
        let scratch = Scratch::new("once", |_| Ok(()));
        assert_eq!(scratch.downloaded(), None);
        let downloaded = thread::scope(|scope| {
            let downloads = [(); 4].map(|()| scope.spawn(|| scratch.download().unwrap()));
            downloads.map(|download| download.join().unwrap())
        });
        let programs = scratch.cache().join("17.7.0/bin");
        assert!(downloaded.iter().all(|folder| *folder == programs), "{downloaded:?}");
        assert_eq!(fs::read_to_string(programs.join("postgres")).unwrap(), "a program\n");
        assert_eq!(files(&scratch.cache()), ["17.7.0"]);
        for folder in [scratch.cache(), scratch.cache().join("17.7.0")] {
            assert_eq!(fs::metadata(folder).unwrap().mode() & 0o022, 0);
        }
        // Nothing is downloaded again.
        fs::remove_dir_all(scratch.0.join("17.7.0")).unwrap();
        assert_eq!(scratch.download().unwrap(), programs);
        assert_eq!(scratch.downloaded(), Some(programs));
    }

    #[test]
    fn archive_without_its_published_hash_is_refused() {
        let cases: [(&str, Publish, &str); 2] = [
            ("unpublished", |file| fs::remove_file(file), "curl"),
            ("other", |file| fs::write(file, "0".repeat(64)), "published SHA-256"),
        ];
        for (name, publish, says) in cases {
            let scratch = Scratch::new(name, publish);
            let error = scratch.download().unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(scratch.downloaded(), None);
            assert_eq!(files(&scratch.cache()), [""; 0]);
        }
    }

    #[test]
    fn folder_that_others_may_write_to_is_refused() {
        let scratch = Scratch::new("open", |_| Ok(()));
        scratch.download().unwrap();
        fs::set_permissions(scratch.cache(), Permissions::from_mode(0o777)).unwrap();
        let error = scratch.download().unwrap_err();
        assert!(error.to_string().contains("others may write to it"), "{error}");
        assert_eq!(scratch.downloaded(), None);
    }
}
