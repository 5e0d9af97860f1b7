//! What is said on the command line.

use std::str::FromStr;
use std::time::Duration;

use scoop::{Error, Result};

/// How long, with what, and from which seed.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    /// How long the long form goes on; the short form commits each fault once or twice.
    pub(crate) duration: Option<Duration>,
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    /// The faults to commit, by name, if not all.
    pub(crate) only: Vec<String>,
}

impl Args {
    /// Reads them. What is not known belongs to the tests that have the usual harness, and is left to them.
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
