//! Without the feature `testing` there are no rehearsals: these types have no values.

use scoop_core::{Conclusion, Failure};
use uuid::Uuid;

#[derive(Clone, Debug)]
pub(crate) enum Rehearsal {}

#[derive(Debug)]
pub(crate) enum CommitToken {}

impl Rehearsal {
    pub(crate) fn fail_after_step(&self, _: &str, _: Uuid, _: &str, _: u32, _: &str) -> Option<Failure> {
        match *self {}
    }

    pub(crate) fn before_commit(&self, _: &str, _: Uuid, _: &Conclusion) -> Option<CommitToken> {
        match *self {}
    }

    pub(crate) fn after_commit(&self, commit: CommitToken) -> bool {
        match commit {}
    }
}
