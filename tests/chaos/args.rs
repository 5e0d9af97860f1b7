//! The command line.

use std::str::FromStr;
use std::time::Duration;

use scoop::{Error, Result};

/// Duration, workers, faults and seed of a run.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    /// The duration of the long form. The short form commits each fault a fixed number of times.
    pub(crate) duration: Option<Duration>,
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    /// The faults to commit, by name. Empty means all.
    pub(crate) only: Vec<String>,
}

impl Args {
    /// Reads them. Unknown arguments belong to the tests with the usual harness, and are ignored.
    pub(crate) fn read(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut known = Self { duration: None, seed: std::process::id().into(), workers: 3, only: vec![] };
        while let Some(name) = args.next() {
            match &*name {
                "--minutes" => {
                    let minutes: f64 = number(&name, args.next())?;
                    known.duration = Some(Duration::try_from_secs_f64(minutes * 60.0)?);
                }
                "--seed" => known.seed = number(&name, args.next())?,
                "--workers" => known.workers = number::<usize>(&name, args.next())?.max(1),
                "--only" => known.only.extend(args.next()),
                _ => {}
            }
        }
        Ok(known)
    }
}

fn number<T: FromStr>(name: &str, value: Option<String>) -> Result<T> {
    let number = value.as_deref().and_then(|value| value.parse().ok());
    number.ok_or_else(|| Error::msg(format!("`{name}` needs a number, not {value:?}")))
}
