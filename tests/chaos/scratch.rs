//! A folder for files outside of the database, removed when this process is gone for any reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use scoop::Result;

/// Removes the folder as soon as its input is closed at the other end.
const KEEPER: &str = r#"
trap '' HUP INT QUIT TERM
while read -r _; do :; done
rm -rf "$1"
"#;

/// The folder, and the process that removes it.
pub(crate) struct Scratch {
    folder: PathBuf,
    keeper: Child,
}

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("scoop-chaos-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let mut keeper = Command::new("/bin/sh");
        keeper.args(["-c", KEEPER, "scoop-chaos-scratch"]).arg(&folder);
        let keeper = keeper.stdin(Stdio::piped()).spawn()?;
        Ok(Self { folder, keeper })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
