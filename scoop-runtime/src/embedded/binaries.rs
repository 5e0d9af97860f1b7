//! Finds PostgreSQL's own programs on this machine, so that nothing has to be downloaded.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use super::error::EmbeddedError;
use super::os_user::run;

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
pub(super) struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// Finds the first suitable one, in the order of the module [`embedded`](super).
    pub(super) fn find(is_root: bool) -> Result<Self, EmbeddedError> {
        search(|_| true)
            .map_err(|seen| EmbeddedError::NotInstalled { seen, install: install_command(is_root) })
    }

    /// Finds the first one of the version that made the data in `folder`; no other version can read the data.
    pub(super) fn find_version(made_by: u32, folder: &Path) -> Result<Self, EmbeddedError> {
        search(|version| version == made_by).map_err(|seen| EmbeddedError::OtherVersion {
            folder: folder.to_owned(),
            made_by,
            seen,
        })
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Searches for suitable programs. The error describes the candidates.
fn search(wanted: impl Fn(u32) -> bool) -> Result<Binaries, String> {
    let mut seen = Vec::new();
    for folder in candidates() {
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
fn candidates() -> Vec<PathBuf> {
    if let Some(folder) = env::var_os(VARIABLE) {
        return vec![folder.into()];
    }
    let by_pg_config = run(Command::new("pg_config").arg("--bindir")).ok();
    let by_pg_config = by_pg_config.map(|output| PathBuf::from(output.trim()));
    let on_path = on_path("postgres").and_then(|program| Some(program.parent()?.to_owned()));
    let mut found = Vec::new();
    for folder in by_pg_config.into_iter().chain(on_path).chain(VERSIONED.into_iter().flat_map(newest_first))
    {
        if folder.is_dir() && !found.contains(&folder) {
            found.push(folder);
        }
    }
    found
}

fn newest_first((parent, prefix, below): (&str, &str, &str)) -> Vec<PathBuf> {
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
