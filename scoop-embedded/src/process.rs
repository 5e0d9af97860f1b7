//! Checks processes by their pid: whether they live, and which one serves a data folder.
//!
//! A pid in a file proves nothing, because pids are reused. A process counts as the server of a data folder only if
//! its command line names that folder.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::binaries::Binaries;
use crate::error::EmbeddedError;
use crate::os_user::{Account, run};

/// The line of `postmaster.pid` with the status of the server; `pg_ctl` reads it, too.
const STATUS_LINE: usize = 7;

/// A live server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) pid: u32,
    pub(crate) is_ready: bool,
}

impl Server {
    /// Finds the process that serves the data folder now.
    pub(crate) fn of(data: &Path) -> Option<Self> {
        let file = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let pid = file.lines().next()?.trim().parse().ok()?;
        let is_ready = file.lines().nth(STATUS_LINE).is_some_and(|status| status.trim() == "ready");
        names(&command_line(pid)?, data).then_some(Self { pid, is_ready })
    }
}

/// Whether the process exists and is no zombie.
pub(crate) fn lives(pid: u32) -> bool {
    command_line(pid).is_some()
}

/// Stops a server without a supervisor, if there is one.
pub(crate) fn stop_unwatched(
    data: &Path,
    account: &Account,
    binaries: &Binaries,
) -> Result<(), EmbeddedError> {
    if Server::of(data).is_none() {
        return Ok(());
    }
    let stop = |mode: &str| {
        let mut command = account.command(binaries.program("pg_ctl"));
        run(command.args(["stop", "-w", "-t", "30", "-m", mode, "-D"]).arg(data))
    };
    match stop("fast").or_else(|_| stop("immediate")) {
        Err(error) if Server::of(data).is_some() => Err(error),
        _ => Ok(()),
    }
}

fn names(command_line: &[u8], data: &Path) -> bool {
    let data = data.as_os_str().as_bytes();
    let ends = |byte: u8| byte == 0 || byte == b' ';
    command_line.windows(data.len() + 2).any(|part| match part {
        [before, name @ .., after] => ends(*before) && ends(*after) && name == data,
        _ => false,
    })
}

/// The command line of a process; `None` for a zombie, for which the kernel shows an empty one.
#[cfg(target_os = "linux")]
fn command_line(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|line| !line.is_empty())
}

/// The command line of a process; `None` for a zombie, for which `ps` shows the name in brackets.
#[cfg(not(target_os = "linux"))]
fn command_line(pid: u32) -> Option<Vec<u8>> {
    let output =
        run(std::process::Command::new("ps").args(["-ww", "-o", "args=", "-p"]).arg(pid.to_string())).ok()?;
    let line = output.trim();
    let is_zombie = line.starts_with('(') || line.ends_with("<defunct>");
    (!line.is_empty() && !is_zombie).then(|| line.as_bytes().to_owned())
}
