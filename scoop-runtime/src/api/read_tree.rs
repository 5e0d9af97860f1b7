//! Reads the tree of a hierarchy, or a part of it.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;

use crate::tree::Extent;
use crate::{Handle, RuntimeError, Tree};

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
    extent: Extent,
}

impl<'a> ReadTree<'a> {
    pub(crate) fn new(handle: &'a Handle) -> Self {
        Self { handle, extent: Extent::default() }
    }

    /// Leaves out the runs below this depth. The runs of the message that started the hierarchy have depth 1, their
    /// children depth 2.
    pub fn depth(mut self, depth: usize) -> Self {
        self.extent.depth = Some(depth);
        self
    }

    /// Sets the maximum number of runs; ancestors come before descendants. [`Tree::is_complete`] returns whether no
    /// run was left out.
    pub fn limit(mut self, runs: usize) -> Self {
        self.extent.runs = Some(runs);
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
