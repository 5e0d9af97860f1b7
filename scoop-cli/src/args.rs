//! The command line: global options and the list of commands.

use clap::{Parser, Subcommand, ValueEnum};

use crate::commands::{
    check, contents, counts, doctor, events, explain, launch, manual, migrate, pause, prune, redeliver,
    register, retire, run_requests, runs, serve, signal, timeline, topology, tree, trigger,
};
use crate::connection::Connection;

/// The exit codes, at the end of the help.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed: the database, the output, or the wait of `launch`, `trigger` or `pause`; or `cancel` or
     `retry` of many runs was interrupted; or `check` found runs that would be stranded
  2  the command line is wrong, or `--yes` is missing without a terminal
  3  nothing has this id or name, a request was not accepted, or it was declined
  4  `doctor` found a problem";

/// Finds, explains and repairs sagas, on the database alone.
///
/// The tables tell all that this program needs: the programs with the sagas may run elsewhere, or not at all. Most
/// commands only read; a role with the rights of a reader is enough for these.
#[derive(Debug, Parser)]
#[command(name = "scoop", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of all commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// Write JSON for programs: one object for each line
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
    /// When to use colors: `auto` means on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, help_heading = "Output", value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

/// When output has colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Client(Box<ClientCommand>),
    Doctor(doctor::DoctorArgs),
    Migrate(migrate::MigrateArgs),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
}

/// Commands that need the tables of this version.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    Runs(runs::RunsArgs),
    Tree(tree::TreeArgs),
    Explain(explain::ExplainArgs),
    Contents(contents::ContentsArgs),
    Counts(counts::CountsArgs),
    Events(events::EventsArgs),
    Launch(launch::LaunchArgs),
    Trigger(trigger::TriggerArgs),
    Redeliver(redeliver::RedeliverArgs),
    Signal(signal::SignalArgs),
    Cancel(run_requests::CancelArgs),
    Rollback(run_requests::RollbackArgs),
    Retry(run_requests::RetryArgs),
    Relaunch(run_requests::RelaunchArgs),
    Skip(run_requests::SkipArgs),
    Resolve(run_requests::ResolveArgs),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Pauses(pause::PausesArgs),
    Check(check::CheckArgs),
    Register(register::RegisterArgs),
    Retire(retire::RetireArgs),
    Topology(topology::TopologyArgs),
    Timeline(timeline::TimelineArgs),
    Prune(prune::PruneArgs),
    Serve(serve::ServeArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }
}
