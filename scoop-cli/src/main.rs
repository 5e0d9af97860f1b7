//! The command line of Scoop: finds, explains and repairs sagas, on the database alone.
//!
//! Each command is a file in `commands`: its arguments, with the texts of the help, its output and its JSON.

mod args;
mod commands;
mod connection;
mod consent;
mod fault;
mod output;
mod progress;
mod times;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Args;
use crate::fault::{Exit, Fault};

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(args)),
        Err(error) => Err(Fault::Output(error)),
    };
    let exit = ended.unwrap_or_else(|fault| {
        fault.report();
        fault.exit()
    });
    exit.into()
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
