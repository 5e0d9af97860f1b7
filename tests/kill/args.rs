//! The command line.

use scoop::{Error, Result};

use crate::sagas::Plot;

/// How much is tried, and of what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Args {
    /// Every execution of each statement, before and after it, instead of two points for each statement.
    pub(crate) all: bool,
    /// The plots to play. Empty means all.
    pub(crate) only: Vec<Plot>,
    /// Only the points whose text has this in it.
    pub(crate) point: Option<String>,
}

impl Args {
    /// Reads them. Unknown arguments belong to the tests with the usual harness, and are ignored.
    pub(crate) fn read(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut known = Self::default();
        while let Some(name) = args.next() {
            match &*name {
                "--all" => known.all = true,
                "--only" => {
                    let plot = args.next().unwrap_or_default();
                    known.only.push(plot.parse()?);
                }
                "--point" => {
                    let point =
                        args.next().ok_or_else(|| Error::msg("`--point` needs a part of a statement"))?;
                    known.point = Some(point);
                }
                _ => {}
            }
        }
        Ok(known)
    }

    /// Whether all plots are played, with points of all statements.
    pub(crate) fn is_complete(&self) -> bool {
        self.only.is_empty() && self.point.is_none()
    }
}
