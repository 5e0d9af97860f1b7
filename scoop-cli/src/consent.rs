//! The question before a change, and its options.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::fault::Fault;
use crate::output::Output;

/// Options of commands that change something.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Consent {
    /// Do it without a question
    #[arg(long, short)]
    yes: bool,
    /// Only say what would be done, and change nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

/// What `--dry-run` writes.
#[derive(Serialize)]
struct DryRunRecord<'a> {
    would: &'a str,
}

impl Consent {
    /// Whether the command only says what it would do.
    pub(crate) fn is_dry_run(self) -> bool {
        self.dry_run
    }

    /// Whether the change is to be made: a sentence without a subject, such as "cancel run 7". Asks the user unless the
    /// options have the answer.
    pub(crate) fn to(self, output: Output, change: &str) -> Result<bool, Fault> {
        if self.dry_run {
            if output.json {
                output.record(&DryRunRecord { would: change })?;
            } else {
                output.line(format_args!("would {change}"))?;
            }
            return Ok(false);
        }
        if self.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(Fault::Usage(
                "this changes something, and no terminal is there for a question: add --yes, or --dry-run to see what \
                 would be done"
                    .into(),
            ));
        }
        eprint!("This will {change}.\nGo on? [y/N] ");
        io::stderr().flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if is_yes(&answer) { Ok(true) } else { Err(Fault::Declined) }
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_a_yes() {
        assert!(is_yes("y\n") && is_yes(" YES\r\n"));
        assert!(!is_yes("\n") && !is_yes("") && !is_yes("no") && !is_yes("yes, but"));
    }
}
