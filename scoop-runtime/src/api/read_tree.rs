//! Reads the tree of a hierarchy, or a part of it.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;

use crate::tree::TreeBounds;
use crate::{Handle, RunId, RuntimeError, Tree};

/// A tree about to be read. Await it.
///
/// ```no_run
/// # use scoop_runtime::{Handle, RuntimeError};
/// # async fn example(order: Handle) -> Result<(), RuntimeError> {
/// let tree = order.tree().depth(2).limit(1_000).await?;
/// println!("{tree}");
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is read before this is awaited"]
#[derive(Clone, Copy)]
pub struct ReadTree<'a> {
    handle: &'a Handle,
    extent: TreeBounds,
}

impl<'a> ReadTree<'a> {
    pub(crate) fn new(handle: &'a Handle) -> Self {
        Self { handle, extent: TreeBounds::default() }
    }

    /// Leaves out the runs below this depth. The runs of the message that started the hierarchy have depth 1, their
    /// children depth 2.
    pub fn depth(mut self, depth: usize) -> Self {
        self.extent.depth = Some(depth);
        self
    }

    /// Sets the maximum number of runs; ancestors come before descendants. [`Tree::is_complete`] returns whether no
    /// run was left out. With a limit, [messages without a handler](Tree::has_more_unhandled) are limited, too.
    pub fn limit(mut self, runs: usize) -> Self {
        self.extent.runs = Some(runs);
        self
    }

    /// Reads only the first and the last `count` events of each run, and of those between them its end, the beginning of its
    /// rollback, and the end of that. [`RunInfo::events_left_out`](crate::RunInfo::events_left_out) counts the others, and the
    /// text of the tree has a line where they are left out. The [interventions](crate::RunInfo::interventions) on a run are
    /// bounded alike, and [counted](crate::RunInfo::interventions_left_out).
    pub fn events(mut self, count: usize) -> Self {
        self.extent.events = Some(count.max(1));
        self
    }

    /// Reads only this run, which handles the message of the handle, and its children. Of the events of children,
    /// [`events`](Self::events) reads one at each end.
    #[doc(hidden)]
    pub fn only(mut self, run: RunId) -> Self {
        self.extent.run = Some(run.uuid());
        self
    }
}

impl<'a> IntoFuture for ReadTree<'a> {
    type Output = Result<Tree, RuntimeError>;
    type IntoFuture = BoxFuture<'a, Result<Tree, RuntimeError>>;

    fn into_future(self) -> Self::IntoFuture {
        self.handle.read_tree(self.extent)
    }
}
