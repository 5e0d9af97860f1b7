//! The commands, one in a file; `run_requests` has those that request something of a run or a hierarchy.

pub(crate) mod check;
pub(crate) mod contents;
pub(crate) mod counts;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod explain;
mod filters;
pub(crate) mod launch;
mod lock_file;
pub(crate) mod manual;
mod many_runs;
pub(crate) mod migrate;
mod names;
pub(crate) mod pause;
mod payload;
pub(crate) mod prune;
pub(crate) mod redeliver;
pub(crate) mod register;
pub(crate) mod retire;
pub(crate) mod run_requests;
pub(crate) mod runs;
pub(crate) mod serve;
pub(crate) mod signal;
mod target;
pub(crate) mod timeline;
pub(crate) mod topology;
pub(crate) mod tree;
pub(crate) mod trigger;

use scoop_runtime::Scoop;

use crate::args::{Args, ClientCommand, Command};
use crate::fault::{Exit, Fault};
use crate::output::Output;

/// Executes the command.
pub(crate) async fn run(args: Args) -> Result<Exit, Fault> {
    let Args { connection, global, command } = args;
    let output = Output::new(&global, connection.given());
    let command = match command {
        Command::Doctor(args) => return doctor::check(&connection, output, args).await,
        Command::Migrate(args) => return migrate::run(&connection, output, args).await,
        Command::Completions(args) => return manual::completions(args),
        Command::Man(args) => return manual::man(args),
        Command::Client(command) => *command,
    };
    let scoop = connection.client().await?;
    let ended = carry_out(&scoop, output, command).await;
    // Until the workers are notified of what was launched or sent.
    let stopped = scoop.shutdown().await;
    let exit = ended?;
    stopped?;
    Ok(exit)
}

async fn carry_out(scoop: &Scoop, output: Output, command: ClientCommand) -> Result<Exit, Fault> {
    match command {
        ClientCommand::Runs(args) => runs::list(scoop, output, args).await,
        ClientCommand::Tree(args) => tree::show(scoop, output, args).await,
        ClientCommand::Explain(args) => explain::show(scoop, output, args).await,
        ClientCommand::Contents(args) => contents::show(scoop, output, args).await,
        ClientCommand::Counts(args) => counts::show(scoop, output, args).await,
        ClientCommand::Events(args) => events::follow(scoop, output, args).await,
        ClientCommand::Launch(args) => launch::launch(scoop, output, args).await,
        ClientCommand::Trigger(args) => trigger::trigger(scoop, output, args).await,
        ClientCommand::Redeliver(args) => redeliver::redeliver(scoop, output, args).await,
        ClientCommand::Signal(args) => signal::send(scoop, output, args).await,
        ClientCommand::Cancel(args) => run_requests::cancel(scoop, output, args).await,
        ClientCommand::Rollback(args) => run_requests::rollback(scoop, output, args).await,
        ClientCommand::Retry(args) => run_requests::retry(scoop, output, args).await,
        ClientCommand::Relaunch(args) => run_requests::relaunch(scoop, output, args).await,
        ClientCommand::Skip(args) => run_requests::skip(scoop, output, args).await,
        ClientCommand::Resolve(args) => run_requests::resolve(scoop, output, args).await,
        ClientCommand::Pause(args) => pause::pause(scoop, output, args).await,
        ClientCommand::Resume(args) => pause::resume(scoop, output, args).await,
        ClientCommand::Pauses(pause::PausesArgs {}) => pause::list(scoop, output).await,
        ClientCommand::Check(args) => check::check(scoop, output, args).await,
        ClientCommand::Register(args) => register::register(scoop, output, args).await,
        ClientCommand::Retire(args) => retire::retire(scoop, output, args).await,
        ClientCommand::Topology(args) => topology::show(scoop, output, args).await,
        ClientCommand::Timeline(args) => timeline::show(scoop, output, args).await,
        ClientCommand::Prune(args) => prune::prune(scoop, output, args).await,
        ClientCommand::Serve(args) => serve::serve(scoop, output, args).await,
    }
}
