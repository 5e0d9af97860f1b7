//! The command line of Scoop: finds, explains and repairs sagas, on the database alone.
//!
//! Each command is a file in `commands`: its arguments, with the texts of the help, its output and its JSON.

mod args;
mod commands;
mod connection;
mod consent;
mod fault;
mod interrupt;
mod output;
mod progress;
mod times;

use std::process::ExitCode;

use clap::Parser as _;
use scoop_core::Escaped;

use crate::args::Args;
use crate::fault::{Exit, Fault};

fn main() -> ExitCode {
    let args = parsed();
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

/// The command line. Otherwise the program ends with the help or an error, which quotes arguments: escaped ones.
fn parsed() -> Args {
    Args::try_parse().unwrap_or_else(|error| {
        let escaped = std::env::args_os().map(|arg| Escaped(&arg.to_string_lossy()).to_string());
        Args::try_parse_from(escaped).err().unwrap_or(error).exit()
    })
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
