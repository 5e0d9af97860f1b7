//! `scoop completions` and `scoop man`, which need no database.

use std::io;
use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Args;
use crate::fault::{Exit, Fault};

/// Write the completions of a shell
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Write the manual page
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory, instead of that of the program to standard output
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

/// Writes the completions.
pub(crate) fn completions(args: CompletionsArgs) -> Result<Exit, Fault> {
    // Into memory first: the generator panics if it cannot write.
    let mut text = vec![];
    clap_complete::generate(args.shell, &mut Args::command(), "scoop", &mut text);
    io::Write::write_all(&mut io::stdout().lock(), &text)?;
    Ok(Exit::Success)
}

/// Writes the manual.
pub(crate) fn man(args: ManArgs) -> Result<Exit, Fault> {
    match args.dir {
        Some(dir) => clap_mangen::generate_to(Args::command(), dir)?,
        None => clap_mangen::Man::new(Args::command()).render(&mut io::stdout().lock())?,
    }
    Ok(Exit::Success)
}
