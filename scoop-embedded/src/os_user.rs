//! The user that runs the server: the current user, or a substitute for root, since PostgreSQL refuses to run as
//! root.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::{env, io};

use crate::error::EmbeddedError;

const ROOT: u32 = 0;

/// A user, and whether it differs from the current one.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    name: String,
    uid: u32,
    gid: u32,
    is_other: bool,
}

impl Account {
    /// The current user, or the substitute for root.
    pub(crate) fn for_new_cluster() -> Result<Self, EmbeddedError> {
        let uid = our_uid()?;
        if uid != ROOT {
            return Ok(Self { name: uid.to_string(), uid, gid: 0, is_other: false });
        }
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        ["postgres", "_postgres", "nobody"]
            .into_iter()
            .find_map(|name| find_user(&passwd, |user| user.name == name))
            .ok_or(EmbeddedError::NoAccount)
    }

    /// The owner of this file, or `self` if root owns it. Unless the current user is root, always `self`.
    pub(crate) fn or_owner_of(self, file: &Metadata) -> Self {
        if !self.is_other || file.uid() == ROOT {
            return self;
        }
        Self { name: file.uid().to_string(), uid: file.uid(), gid: file.gid(), is_other: true }
    }

    pub(crate) fn is_root_substitute(&self) -> bool {
        self.is_other
    }

    /// The id of the user of this process.
    #[cfg(any(feature = "download", test))]
    pub(crate) fn current_uid(&self) -> u32 {
        if self.is_other { ROOT } else { self.uid }
    }

    /// Whether this process or its server could have made the file.
    pub(crate) fn may_have_made(&self, file: &Metadata) -> bool {
        file.uid() == self.uid || (self.is_other && file.uid() == ROOT)
    }

    /// A command run by this user, with English messages and without the variables that configure PostgreSQL's
    /// programs.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        if self.is_other {
            command.uid(self.uid).gid(self.gid);
        }
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C");
        // The current folder may be closed to that user.
        command.current_dir("/");
        command
    }

    /// Makes this user the owner of an open folder.
    pub(crate) fn own(&self, folder: &File) -> io::Result<()> {
        if self.is_other { fchown(folder, Some(self.uid), Some(self.gid)) } else { Ok(()) }
    }

    /// Opens a file in a folder that this user may write. Refuses links and other files in its place: the user could
    /// have planted them, and this process may be root.
    pub(crate) fn open(&self, options: &mut OpenOptions, path: &Path) -> io::Result<File> {
        let planted = || {
            io::Error::other("it is a link to another file, no file at all, or of another user; remove it")
        };
        let opened = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
        let is_link = |error: &io::Error| error.raw_os_error() == Some(libc::ELOOP);
        let file = opened.map_err(|error| if is_link(&error) { planted() } else { error })?;
        let found = file.metadata()?;
        match found.is_file() && found.nlink() == 1 && self.may_have_made(&found) {
            true => Ok(file),
            false => Err(planted()),
        }
    }

    /// Checks that this user can enter the folders above `folder`, which is an absolute path.
    pub(crate) fn check_reaches(&self, folder: &Path) -> Result<(), EmbeddedError> {
        if !self.is_other {
            return Ok(());
        }
        let mut above: Vec<&Path> = folder.ancestors().skip(1).collect();
        above.reverse();
        match above.into_iter().find(|folder| !self.may_enter(folder)) {
            None => Ok(()),
            Some(barrier) => Err(EmbeddedError::Unreachable {
                folder: folder.to_owned(),
                barrier: barrier.to_owned(),
                account: self.name.clone(),
            }),
        }
    }

    /// Whether this user may enter the folder, judged by the mode alone; PostgreSQL itself reports other
    /// restrictions, such as access lists. A missing folder is created later with access for all users.
    fn may_enter(&self, folder: &Path) -> bool {
        let Ok(found) = fs::metadata(folder) else {
            return true;
        };
        let enter = match found {
            _ if found.uid() == self.uid => 0o100,
            _ if found.gid() == self.gid => 0o010,
            _ => 0o001,
        };
        found.mode() & enter != 0
    }
}

/// Runs a command to its end. It reads nothing unless its input was set. A failing exit status is an error that
/// quotes the output.
pub(crate) fn run(command: &mut Command) -> Result<String, EmbeddedError> {
    let text = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ");
    match command.output() {
        Err(source) => Err(EmbeddedError::Command { command: text, source }),
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(EmbeddedError::CommandFailed { command: text, output: said(&output) }),
    }
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    match String::from_utf8_lossy(&text).trim() {
        "" => output.status.to_string(),
        text => text.to_owned(),
    }
}

/// The id of the current user: the standard library has no function for it, but every Unix has `id`.
fn our_uid() -> Result<u32, EmbeddedError> {
    let output = run(Command::new("id").arg("-u"))?;
    output
        .trim()
        .parse()
        .map_err(|_| EmbeddedError::CommandFailed { command: "id -u".to_owned(), output: output.clone() })
}

fn find_user(passwd: &str, wanted: impl Fn(&Account) -> bool) -> Option<Account> {
    passwd.lines().filter_map(parse_user).find(wanted)
}

/// A line of /etc/passwd: `name:password:uid:gid:…`.
fn parse_user(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(Account { name, uid, gid, is_other: true })
}
