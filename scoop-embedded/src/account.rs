//! The user that runs the server: the current one, or another one for root, since PostgreSQL refuses to run as root.

use std::env;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::error::{Result, at};

/// The ids of the user of the server and of its group, unless it is the current user.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account(pub(crate) Option<(u32, u32)>);

/// Writes the id of the current user; for root also those of the user that runs the server and of its group. The
/// standard library has no function for that.
const IDS: &str = r#"
user=$(id -u) && echo "$user" || exit
[ "$user" != 0 ] || for user in postgres _postgres nobody; do id -u $user && id -g $user && exit; done 2>/dev/null
exit 0"#;

const NO_USER: &str = "PostgreSQL refuses to run as root; add a user `postgres`, or run this as another user";

impl Account {
    pub(crate) fn for_new_data() -> Result<Self> {
        let said = run(Command::new("/bin/sh").args(["-c", IDS]))?;
        let ids: Vec<u32> = said.split_whitespace().filter_map(|id| id.parse().ok()).collect();
        match ids[..] {
            [0, user, group] => Ok(Self(Some((user, group)))),
            [0, ..] => Err(NO_USER.to_owned().into()),
            _ => Ok(Self(None)),
        }
    }

    /// For root the owner of this file, unless that is root.
    pub(crate) fn or_owner_of(self, file: &Metadata) -> Self {
        Self(self.0.map(|other| if file.uid() == 0 { other } else { (file.uid(), file.gid()) }))
    }

    /// A shell of this user with this script, with English messages and without the variables that configure
    /// PostgreSQL's programs.
    pub(crate) fn shell(self, script: &str) -> Command {
        let mut shell = Command::new("/bin/sh");
        if let Some((user, group)) = self.0 {
            shell.uid(user).gid(group);
        }
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            shell.env_remove(name);
        }
        // The current folder may be closed to that user.
        shell.env("LC_ALL", "C").current_dir("/").args(["-c", script, "scoop-postgres-supervisor"]);
        shell
    }

    /// For errors.
    pub(crate) fn note(self) -> String {
        self.0.map_or(String::new(), |(user, _)| format!(" as user {user}, since it refuses to run as root"))
    }
}

/// The output of a command, which ends with success.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let program = Path::new(command.get_program()).to_owned();
    let output = command.output().map_err(at("run", &program))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("`{}` failed: {}, {}", program.display(), output.status, said.trim()).into())
        }
    }
}
