//! Runs: which a list has and where its next page begins; how many there are; what a run waits for.

mod activity;
mod contents;
mod counts;
mod explain;
mod explanation;
mod filter;
mod found;
mod keys;
mod list;
mod relaunch;
mod requests;
mod rows;
mod summary;

pub use self::activity::{Activity, ActivitySpan, RunDurations};
pub use self::contents::{RunContents, RunValue};
pub use self::counts::{CountRuns, RunCount, RunCounts, RunPosition};
pub use self::explanation::{
    Delay, Explanation, FailedBelow, JoinWait, LimitKey, RunExplanation, WaitReason, WorkerInfo,
};
pub use self::found::{FindField, FindValue, FoundBy};
pub use self::keys::FoundKey;
pub use self::list::{FindRuns, RunPage};
pub use self::relaunch::Relaunch;
pub use self::requests::WaitingMember;
pub use self::summary::{FailureSummary, RunSummary};
use crate::Operate;
pub(crate) use scoop_runtime::WaitKind;

/// The runs of a program.
#[derive(Clone)]
pub struct Runs {
    pub(crate) operate: Operate,
}
