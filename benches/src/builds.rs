//! B16: build times, and the amount of code that the macros generate.
//!
//! Measured in a copy of the workspace, with build folders of its own. Crates that are already downloaded are
//! not downloaded again.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use tokio::process::Command;

use crate::bench::Bench;
use crate::outcome::Outcome;

const SAGA: &str = "examples/checkout/src/courier.rs";

/// A library for the same purpose. The machine that builds it can be compared with others.
const PEER: &str = "\
[package]
name = \"peer\"
edition = \"2024\"

[dependencies]
durare = { version = \"=0.5.0\", default-features = false, features = [\"postgres\"] }

[workspace]
";

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    if !bench.settings.builds {
        bench
            .report
            .note("B16 is left out: it builds everything from nothing; ask for it with --builds.".into());
        return Ok(());
    }
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the workspace is the folder above this")?;
    let scratch = Scratch::new()?;
    copy(root, &scratch.0)?;

    let peer = scratch.peer().await?;
    let scoop = scratch.cargo("target-scoop", &["build", "--release", "-p", "scoop-saga"]).await?;
    bench.report.add("B16 scoop", scoop, Some(peer));
    let crates = scratch.crates().await?;
    bench.report.add("B16 crates", crates, None);
    let release = ["build", "--release", "-p", "checkout"];
    let checkout = scratch.cargo("target-checkout", &release).await?;
    bench.report.add("B16 checkout", checkout, None);
    // Another edit than any of those below.
    edit_saga(&scratch.0.join(SAGA), bench.settings.rounds)?;
    let rebuild = scratch.cargo("target-checkout", &release).await?;
    bench.report.add("B16 rebuild release", rebuild, None);

    scratch.cargo("target", &["build", "-p", "checkout"]).await?;
    for edit in 0..bench.settings.rounds {
        edit_saga(&scratch.0.join(SAGA), edit)?;
        let rebuild = scratch.cargo("target", &["build", "-p", "checkout"]).await?;
        bench.report.add("B16 rebuild", rebuild, None);
    }
    let lines = scratch.expansion().await?;
    bench.report.add("B16 expansion", lines, None);
    Ok(())
}

/// A copy of the workspace, removed when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("scoop-bench-builds-{}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    /// The seconds that a command of cargo takes.
    async fn cargo(&self, target: &str, words: &[&str]) -> Outcome<f64> {
        let begun = Instant::now();
        output(&mut self.command(target, words)).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// The seconds that a release build of [`PEER`] takes, beneath an empty program.
    async fn peer(&self) -> Outcome<f64> {
        let folder = self.0.join("peer");
        fs::create_dir_all(folder.join("src"))?;
        fs::write(folder.join("Cargo.toml"), PEER)?;
        fs::write(folder.join("src/main.rs"), "fn main() {}\n")?;
        let mut fetch = Command::new("cargo");
        output(fetch.arg("fetch").current_dir(&folder)).await?;
        let mut build = Command::new("cargo");
        build.args(["build", "--release", "--locked"]).current_dir(&folder);
        let begun = Instant::now();
        output(build.env("CARGO_TARGET_DIR", self.0.join("target-peer")).kill_on_drop(true)).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// The number of crates that a program with default features compiles.
    async fn crates(&self) -> Outcome<f64> {
        let tree =
            ["tree", "--package", "scoop-saga", "--edges", "normal", "--prefix", "none", "--no-dedupe"];
        let tree = output(&mut self.command("target", &tree)).await?;
        let crates: BTreeSet<_> = tree.lines().map(|line| line.trim_end_matches(" (proc-macro)")).collect();
        Ok(f64::from(u32::try_from(crates.len())?))
    }

    fn command(&self, target: &str, words: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        command.args(words).arg("--locked").current_dir(&self.0).stdin(Stdio::null()).kill_on_drop(true);
        command.env("CARGO_TARGET_DIR", self.0.join(target));
        command
    }

    /// The number of lines that the compiler sees of a saga of ten steps.
    async fn expansion(&self) -> Outcome<f64> {
        fs::write(self.0.join("examples/ten_steps.rs"), include_str!("../data/ten_steps.rs"))?;
        let mut command = self.command("target", &["rustc", "-p", "examples", "--example", "ten_steps"]);
        // The compiler shows expansions only with this variable.
        command.env("RUSTC_BOOTSTRAP", "1").args(["--", "-Zunpretty=expanded"]);
        let expanded = output(&mut command).await?;
        let module = expanded.lines().skip_while(|line| !line.starts_with("mod ten_steps")).skip(1);
        let count = module.take_while(|line| *line != "}").count();
        Ok(f64::from(u32::try_from(count)?))
    }
}

/// The output of a command, which has to succeed.
async fn output(command: &mut Command) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output().await?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies everything except build folders and the git history.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == "target" || name == ".git" {
            continue;
        }
        let target = to.join(&name);
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Adds a line to the first function that ends with `Ok`.
fn edit_saga(path: &Path, edit: usize) -> Outcome<()> {
    let text = fs::read_to_string(path)?;
    let edited =
        text.replacen("        Ok(())\n", &format!("        let _edited = {edit};\n        Ok(())\n"), 1);
    if edited == text {
        return Err(format!("{} has no line to edit", path.display()).into());
    }
    Ok(fs::write(path, edited)?)
}
