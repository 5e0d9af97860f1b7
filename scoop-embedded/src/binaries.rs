//! Finds PostgreSQL's own programs on this machine.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::run;
use crate::download::{download, downloaded};
use crate::error::Result;

/// Overrides the search: the folder that has `postgres` and `initdb`.
const VARIABLE: &str = "SCOOP_PG_BIN";
const OLDEST: u32 = 15;
const NEWEST: u32 = 40;

/// Where Debian, RPM, Homebrew, Postgres.app and Alpine put the programs of a version.
const USUAL: [&str; 6] = [
    "/usr/lib/postgresql/{}/bin",
    "/usr/pgsql-{}/bin",
    "/opt/homebrew/opt/postgresql@{}/bin",
    "/usr/local/opt/postgresql@{}/bin",
    "/Applications/Postgres.app/Contents/Versions/{}/bin",
    "/usr/libexec/postgresql{}",
];

/// Finds the folder of the first suitable programs, see [`installed`]. With the feature `download` they are downloaded
/// if there are none.
pub(crate) fn find(release: Option<u32>) -> Result<PathBuf> {
    match installed(release) {
        Err(missing)
            if cfg!(feature = "download") && release.is_none() && env::var_os(VARIABLE).is_none() =>
        {
            download().map_err(|error| format!("{missing}; the download failed: {error}").into())
        }
        found => found,
    }
}

/// Finds the folder of the first suitable programs, in the order that the documentation of this crate gives: of the
/// version that made the data, if there are data.
pub(crate) fn installed(release: Option<u32>) -> Result<PathBuf> {
    let mut seen = Vec::new();
    let suits = |version| version >= OLDEST && release.is_none_or(|it| it == version);
    for folder in candidates() {
        match version_in(&folder) {
            Some(version) if suits(version) => return Ok(folder),
            Some(version) => seen.push(format!("{} has version {version}", folder.display())),
            None => seen.push(format!("{} has no working `postgres` and `initdb`", folder.display())),
        }
    }
    let wanted = release.map_or(format!("{OLDEST} or newer"), |it| format!("{it}, which made the data,"));
    let seen = if seen.is_empty() { "neither by pg_config nor on the PATH".into() } else { seen.join(", ") };
    Err(format!(
        "no PostgreSQL {wanted} found ({seen}); install it, such as by `apt-get install postgresql`, `dnf install \
         postgresql-server` or `brew install postgresql@17`, name the folder of its programs in {VARIABLE}, or set \
         DATABASE_URL to a server that already runs"
    )
    .into())
}

/// The candidates. If the variable is set it is the only one, so that another server does not hide a mistake in it.
fn candidates() -> Vec<PathBuf> {
    if let Some(folder) = env::var_os(VARIABLE) {
        return vec![folder.into()];
    }
    let by_pg_config = run(Command::new("pg_config").arg("--bindir")).ok().map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let versions = (OLDEST..NEWEST).rev().map(|version| version.to_string());
    let usual = versions.flat_map(|version| USUAL.map(|it| PathBuf::from(it.replace("{}", &version))));
    let found = by_pg_config.into_iter().chain(env::split_paths(&path)).chain(usual);
    let downloaded = cfg!(feature = "download").then(downloaded).flatten();
    found.chain(downloaded).filter(|folder| folder.join("postgres").is_file()).collect()
}

fn version_in(folder: &Path) -> Option<u32> {
    let output = run(Command::new(folder.join("postgres")).arg("--version")).ok()?;
    folder.join("initdb").is_file().then(|| parse_version(&output))?
}

/// `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)` is 15, `postgres (PostgreSQL) 18beta1` is 18.
fn parse_version(output: &str) -> Option<u32> {
    output.split_once("(PostgreSQL) ")?.1.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
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
