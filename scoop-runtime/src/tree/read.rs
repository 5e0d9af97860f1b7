//! Reads the tree of a hierarchy, or a part of it.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use scoop_core::Lineage;

use super::{RunRow, Tree};
use crate::{Handle, RuntimeError};

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

/// The part of a hierarchy that is read; by default all of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    pub(crate) depth: Option<usize>,
    pub(crate) runs: Option<usize>,
}

impl Extent {
    /// Whether a run of this lineage is in it.
    pub(crate) fn reaches(&self, lineage: &Lineage) -> bool {
        self.depth.is_none_or(|depth| lineage.ids().len() <= depth.saturating_add(1))
    }

    /// Whether a run of this lineage is at the maximum depth or below it, so that its children are not in it.
    pub(crate) fn ends_at(&self, lineage: &Lineage) -> bool {
        self.depth.is_some_and(|depth| lineage.ids().len() > depth)
    }
}

/// The rows read of a hierarchy, in the order of the lineages.
#[derive(Debug)]
pub(crate) struct TreeRows {
    /// The rows; an unreadable row is represented by the reason.
    pub(crate) rows: Vec<Result<RunRow, String>>,
    pub(crate) is_complete: bool,
}

impl TreeRows {
    /// Restricts the rows to the limit of the extent. `more` is whether there are runs below the maximum depth.
    pub(crate) fn new(mut rows: Vec<Result<RunRow, String>>, more: bool, extent: Extent) -> Self {
        let depth = |row: &Result<RunRow, String>| row.as_ref().map_or(0, |row| row.lineage().ids().len());
        let runs = rows.iter().enumerate();
        let runs = runs.filter(|(_, row)| !matches!(row, Ok(RunRow::Unhandled(..))));
        let beyond = extent.runs.is_some_and(|max| runs.clone().count() > max);
        // A limited query reads one row more than the limit; one of the lowest is dropped.
        let lowest = runs.max_by_key(|(_, row)| depth(row)).map(|(at, _)| at);
        if let Some(lowest) = lowest.filter(|_| beyond) {
            drop(rows.remove(lowest));
        }
        Self { rows, is_complete: !more && !beyond }
    }

    /// All rows of a hierarchy.
    #[cfg(test)]
    pub(crate) fn all(rows: Vec<Result<RunRow, String>>) -> Self {
        Self { rows, is_complete: true }
    }
}
