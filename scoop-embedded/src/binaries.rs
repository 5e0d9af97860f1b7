//! Finds PostgreSQL's own programs on this machine.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[cfg(feature = "download")]
use crate::download::Cache;
use crate::error::EmbeddedError;
use crate::os_user::{Account, run};

/// Overrides the search: the folder that holds `postgres`, `initdb` and `pg_ctl`.
const VARIABLE: &str = "SCOOP_PG_BIN";
const OLDEST: u32 = 15;
const NEEDED: [&str; 3] = ["postgres", "initdb", "pg_ctl"];

/// Places with one folder per version: the parent, the prefix of the folders' names, and the subfolder with the
/// programs.
const VERSIONED: [(&str, &str, &str); 6] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
    ("/usr/libexec", "postgresql", ""),
];

/// A folder with the programs of one PostgreSQL.
#[derive(Debug, Clone)]
pub(crate) struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// Whether there are suitable ones.
    pub(crate) fn exist(account: &Account) -> bool {
        search(account, |_| true).is_ok()
    }

    /// Finds the first suitable ones, in the order that the documentation of this crate gives. With the feature
    /// `download` they are downloaded if there are none.
    pub(crate) fn find(account: &Account) -> Result<Self, EmbeddedError> {
        let seen = match search(account, |_| true) {
            Ok(found) => return Ok(found),
            Err(seen) => seen,
        };
        let install = install_command(account.is_root_substitute());
        #[cfg(feature = "download")]
        if let (None, Some(cache)) = (env::var_os(VARIABLE), Cache::of(account)) {
            let downloaded = cache.fill().map(|folder| Self { folder });
            return downloaded.map_err(|source| EmbeddedError::NotDownloaded { seen, install, source });
        }
        Err(EmbeddedError::NotInstalled { seen, install })
    }

    /// Finds the first one of the version that made the data in `folder`; no other version can read the data.
    pub(crate) fn find_version(
        made_by: u32,
        folder: &Path,
        account: &Account,
    ) -> Result<Self, EmbeddedError> {
        search(account, |version| version == made_by).map_err(|seen| EmbeddedError::OtherVersion {
            folder: folder.to_owned(),
            made_by,
            seen,
        })
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Searches for suitable programs. The error describes the candidates.
fn search(account: &Account, wanted: impl Fn(u32) -> bool) -> Result<Binaries, String> {
    let mut seen = Vec::new();
    for folder in candidates(account) {
        match version_in(&folder) {
            Ok(version) if version >= OLDEST && wanted(version) => return Ok(Binaries { folder }),
            Ok(version) => seen.push(format!("{} has version {version}", folder.display())),
            Err(reason) => seen.push(format!("{} {reason}", folder.display())),
        }
    }
    match env::var_os(VARIABLE) {
        Some(_) => Err(format!("{VARIABLE} is set: {}", seen.join(", "))),
        None if seen.is_empty() => {
            Err("neither by pg_config, nor on the PATH, nor in the usual places".to_owned())
        }
        None => Err(seen.join(", ")),
    }
}

/// The candidates. If the variable is set it is the only one, so that another server does not hide a mistake in it.
fn candidates(account: &Account) -> Vec<PathBuf> {
    if let Some(folder) = env::var_os(VARIABLE) {
        return vec![folder.into()];
    }
    let by_pg_config = run(Command::new("pg_config").arg("--bindir")).ok();
    let by_pg_config = by_pg_config.map(|output| PathBuf::from(output.trim()));
    let on_path = on_path("postgres").and_then(|program| Some(program.parent()?.to_owned()));
    let mut found = Vec::new();
    let versioned = VERSIONED.into_iter();
    let versioned =
        versioned.flat_map(|(parent, prefix, below)| newest_first(Path::new(parent), prefix, below));
    for folder in by_pg_config.into_iter().chain(on_path).chain(versioned).chain(downloaded(account)) {
        if folder.is_dir() && !found.contains(&folder) {
            found.push(folder);
        }
    }
    found
}

/// The programs that were downloaded earlier.
#[cfg(feature = "download")]
fn downloaded(account: &Account) -> Vec<PathBuf> {
    let cache = Cache::of(account);
    let folder = cache.as_ref().and_then(Cache::folder);
    folder.map_or_else(Vec::new, |folder| newest_first(folder, "", "bin"))
}

#[cfg(not(feature = "download"))]
fn downloaded(_: &Account) -> [PathBuf; 0] {
    []
}

fn newest_first(parent: &Path, prefix: &str, below: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let version = name.to_str()?.strip_prefix(prefix)?.split('.').next()?.parse().ok()?;
            Some((version, entry.path().join(below)))
        })
        .collect();
    versions.sort_by(|(a, _), (b, _)| b.cmp(a));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

fn version_in(folder: &Path) -> Result<u32, String> {
    if let Some(absent) = NEEDED.into_iter().find(|name| !folder.join(name).is_file()) {
        return Err(format!("has no `{absent}`"));
    }
    let output =
        run(Command::new(folder.join("postgres")).arg("--version")).map_err(|error| error.to_string())?;
    parse_version(&output).ok_or_else(|| format!("says `{}` for its version", output.trim()))
}

/// `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)` is 15, `postgres (PostgreSQL) 18beta1` is 18.
fn parse_version(output: &str) -> Option<u32> {
    let version = output.split_once("(PostgreSQL) ")?.1;
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..digits].parse().ok()
}

fn install_command(is_root: bool) -> String {
    let by_root = [
        ("apt-get", "apt-get install -y postgresql"),
        ("dnf", "dnf install -y postgresql-server"),
        ("apk", "apk add postgresql"),
        ("pacman", "pacman -S --noconfirm postgresql"),
        ("zypper", "zypper install -y postgresql-server"),
    ];
    // Homebrew comes first, except for root, which may not use it.
    if on_path("brew").is_some() && !is_root {
        return "brew install postgresql@17".to_owned();
    }
    match by_root.into_iter().find(|(program, _)| on_path(program).is_some()) {
        Some((_, command)) if is_root => command.to_owned(),
        Some((_, command)) => format!("sudo {command}"),
        None => "<your package manager> install postgresql".to_owned(),
    }
}

fn on_path(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program.as_ref())).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::parse_version;

    #[test]
    fn versions_as_distributions_print_them() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_version("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(parse_version("postgres (PostgreSQL) 17\n"), Some(17));
        assert_eq!(parse_version("mysqld 8.0"), None);
    }
}
