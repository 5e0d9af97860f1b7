//! Other systems, measured by programs of their users: see `benches/README.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::bench::Bench;
use crate::outcome::Outcome;

/// The number of workflows, of three steps each, that a peer has to run.
const WORKFLOWS: &str = "2000";

/// Runs each program of a folder beside the limit.
pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let Some(folder) = bench.settings.peers.clone() else { return Ok(()) };
    for program in programs(&folder)? {
        let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for _ in 0..bench.settings.rounds {
            let limit = bench.limit().await?;
            match round(bench, &program).await {
                Ok(workflows) => bench.report.add_peer(&name, workflows * 3.0, limit),
                Err(error) => {
                    bench.report.note(format!("{name} failed: {error}"));
                    break;
                }
            }
        }
    }
    Ok(())
}

fn programs(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut programs: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    programs.sort();
    Ok(programs)
}

/// Workflows per second, as reported by the program.
async fn round(bench: &Bench, program: &Path) -> Outcome<f64> {
    let database = bench.server.empty_database().await?;
    let mut command = Command::new(program);
    command.env("DATABASE_URL", database.url()).env("WORKFLOWS", WORKFLOWS);
    command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = command.output().await;
    bench.server.remove(database).await?;
    let output = output?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("it ended with {}", output.status).into());
    }
    said(&text).ok_or_else(|| format!("it did not end with `<number> workflows/s`, but with: {text}").into())
}

/// The number in the last line.
fn said(output: &str) -> Option<f64> {
    let line = output.lines().rev().find(|line| !line.trim().is_empty())?;
    line.trim().strip_suffix("workflows/s")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::said;

    #[test]
    fn the_last_line_counts() {
        assert_eq!(said("connected\n362.5 workflows/s\n\n"), Some(362.5));
        assert_eq!(said("1 workflows/s\ndone\n"), None);
    }
}
