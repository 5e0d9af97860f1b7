//! `scoop doctor`

mod operation;
mod runs;
mod server;
mod workers;

use std::fmt;
use std::time::Duration;

use scoop_core::Escaped;
use scoop_runtime::{Scoop, SetupError};
use serde::Serialize;

use crate::connection::Connection;
use crate::fault::{Exit, Fault};
use crate::output::{Output, Rows, Tone, counted, shortened, toned, unstyled};
use crate::times;

/// How many runs of a kind are listed by their ids, and how many pauses and handlers by their names.
const ITEMS_MAX: u32 = 10;

/// Check the server, the tables and the runs, and say what to do about each problem
///
/// The exit code is 4 if there is a problem. Warnings and notes do not count.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Also write the checks that found nothing
    #[arg(long, short)]
    verbose: bool,
    /// Report transactions that are open for longer than this
    #[arg(long, value_name = "TIME", value_parser = times::duration, default_value = "5 minutes")]
    open_for: Duration,
}

/// The result of a check.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    /// The name of the check, which stays the same.
    check: &'static str,
    text: String,
    advice: Option<Advice>,
}

/// What to do about a finding. Displayed on one line, it has the commands after the text.
#[derive(Debug)]
struct Advice {
    text: String,
    /// One of these, or all in their order, as the text says.
    commands: Vec<String>,
}

impl Advice {
    /// A text that ends with a colon, and a command.
    fn with_command(text: impl Into<String>, command: impl Into<String>) -> Self {
        Self { text: text.into(), commands: vec![command.into()] }
    }
}

impl From<String> for Advice {
    fn from(text: String) -> Self {
        Self { text, commands: vec![] }
    }
}

impl From<&str> for Advice {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        for (nth, command) in self.commands.iter().enumerate() {
            write!(f, "{} {command}", if nth == 0 { "" } else { ";" })?;
        }
        Ok(())
    }
}

impl Serialize for Advice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// The check found nothing.
    Good,
    /// It limits what this role can do, or is about to matter.
    Note,
    /// It costs time or space, or may become a problem.
    Warning,
    /// Runs cannot go on, or data is at risk.
    Problem,
}

impl Finding {
    fn good(check: &'static str, text: impl Into<String>) -> Self {
        Self { level: Level::Good, check, text: text.into(), advice: None }
    }

    fn bad(level: Level, check: &'static str, text: impl Into<String>, advice: impl Into<Advice>) -> Self {
        Self { level, check, text: text.into(), advice: Some(advice.into()) }
    }
}

/// Makes all checks.
pub(crate) async fn check(connection: &Connection, output: Output, args: DoctorArgs) -> Result<Exit, Fault> {
    let pool = connection.pool()?;
    let mut findings = match server::check(&pool, connection.is_behind_proxy(), args.open_for).await {
        Err(fault @ Fault::Sql(..)) => return Err(connection.refusal().await.unwrap_or(fault)),
        findings => findings?,
    };
    match connection.client().await {
        Ok(scoop) => {
            findings.push(Finding::good("tables", "the tables are those of this version"));
            findings.extend(server::tables(&pool, &connection.schema()?).await?);
            findings.extend(server::statements(&pool, &connection.schema()?).await?);
            findings.extend(of_runs(&scoop).await?);
        }
        Err(Fault::Library(error)) if !error.setup().is_empty() => {
            findings.extend(error.setup().iter().map(of_setup));
        }
        Err(fault) => return Err(fault),
    }
    write(output, findings, args.verbose)
}

/// Why the tables are not those of this version.
fn of_setup(mistake: &SetupError) -> Finding {
    let advice = match mistake {
        SetupError::NoTables { .. } => Some(Advice::with_command(
            "a program with sagas makes them when it starts; to make them before:",
            "scoop migrate",
        )),
        SetupError::SchemaTooOld { .. } => {
            Some(Advice::with_command("make the tables those of this version:", "scoop migrate"))
        }
        SetupError::SchemaTooNew { .. } => Some("update this program".into()),
        _ => None,
    };
    Finding { level: Level::Problem, check: "tables", text: mistake.to_string(), advice }
}

async fn of_runs(scoop: &Scoop) -> Result<Vec<Finding>, Fault> {
    let mut findings = workers::rights(scoop).await?;
    let of_workers = workers::workers(scoop).await?;
    let none_lives = of_workers.iter().any(|it| (it.check, it.level) == (workers::NO_WORKER, Level::Problem));
    findings.extend(of_workers);
    findings.push(workers::clock_lag(scoop).await);
    findings.extend(operation::paused(scoop).await?);
    findings.extend(runs::unfinished(scoop, none_lives).await?);
    findings.extend(operation::queues(scoop).await?);
    findings.extend(operation::undeletable(scoop).await?);
    Ok(findings)
}

/// Writes the findings, the worst ones first.
fn write(output: Output, mut findings: Vec<Finding>, verbose: bool) -> Result<Exit, Fault> {
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (problems, warnings, good) = (count(Level::Problem), count(Level::Warning), count(Level::Good));
    let shown = findings.iter().filter(|finding| verbose || finding.level != Level::Good);
    if output.json {
        shown.into_iter().try_for_each(|finding| output.record(finding))?;
    } else {
        let mut rows = Rows::new(&["LEVEL", "CHECK", "FINDING"]);
        let mut needs_options = false;
        for Finding { level, check, text, advice } in shown {
            let (word, tone) = match level {
                Level::Good => ("good", Tone::Good),
                Level::Note => ("note", Tone::Neutral),
                Level::Warning => ("warning", Tone::Idle),
                Level::Problem => ("problem", Tone::Bad),
            };
            let mut finding = Escaped(&shortened(text)).to_string();
            if let Some(Advice { text, commands }) = advice {
                finding += &format!("\n-> {}", Escaped(text));
                for command in commands {
                    needs_options |= command.starts_with("scoop ");
                    // A command that is wrapped cannot be copied.
                    finding += &format!("\n{}", rows.whole_line(Escaped(command)));
                }
            }
            rows.add([toned(word, tone), unstyled(check), unstyled(finding)]);
        }
        if !rows.is_empty() {
            output.table(rows)?;
        }
        if needs_options {
            output.remark_options();
        }
        output.remark(format_args!(
            "{}, {}, {} found nothing",
            counted(problems, "problem", "problems"),
            counted(warnings, "warning", "warnings"),
            counted(good, "check", "checks")
        ));
    }
    Ok(if problems > 0 { Exit::Problems } else { Exit::Success })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_another_version_are_a_problem_with_what_to_do() {
        let schema = || "scoop".to_owned();
        let differs = SetupError::SchemaDiffers {
            schema: schema(),
            version: 2,
            found: "0a1b".into(),
            applied_at: std::time::UNIX_EPOCH,
            known: "2c3d".into(),
        };
        let make = "a program with sagas makes them when it starts; to make them before: scoop migrate";
        let migrate = "make the tables those of this version: scoop migrate";
        for (mistake, advice) in [
            (SetupError::NoTables { what: "schema `scoop`".into() }, Some(make)),
            (SetupError::SchemaTooOld { schema: schema(), found: 1, known: 3 }, Some(migrate)),
            (SetupError::SchemaTooNew { schema: schema(), found: 4, known: 3 }, Some("update this program")),
            (differs, None),
        ] {
            let found = of_setup(&mistake);
            assert_eq!(
                (found.level, found.check, found.advice.map(|advice| advice.to_string()).as_deref()),
                (Level::Problem, "tables", advice)
            );
            assert!(found.text.contains("`scoop`"), "{}", found.text);
        }
    }
}
