//! Without the feature `testing` there are no rehearsals: these types have no values.

use scoop_core::{Conclusion, Failure};
use uuid::Uuid;

#[derive(Clone, Debug)]
pub(crate) enum Rehearsal {}

#[derive(Debug)]
pub(crate) enum Commit {}

impl Rehearsal {
    pub(crate) fn fails(&self, _: &str, _: Uuid, _: &str, _: u32, _: &str) -> Option<Failure> {
        match *self {}
    }

    pub(crate) fn commits(&self, _: &str, _: Uuid, _: &Conclusion) -> Option<Commit> {
        match *self {}
    }

    pub(crate) fn committed(&self, commit: Commit) -> bool {
        match commit {}
    }
}
