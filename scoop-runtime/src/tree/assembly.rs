//! Builds the tree of a hierarchy from its runs.

use std::collections::{BTreeMap, HashMap};

use scoop_core::Lineage;
use uuid::Uuid;

use super::{CancellationRequest, RunInfo, RunRow, Tree, UnhandledMessage};
use crate::Intervention;

impl Tree {
    /// Builds the tree of these runs, parents before children, with their interventions and the messages that they
    /// launched without a handler. An unreadable row is represented by the reason.
    pub(crate) fn of(
        read: TreeRows,
        mut interventions: Vec<Intervention>,
        cancellations: Vec<CancellationRequest>,
    ) -> Self {
        let (mut runs, mut unreadable) = (vec![], vec![]);
        let mut unhandled: BTreeMap<Lineage, Vec<UnhandledMessage>> = BTreeMap::new();
        for row in read.rows {
            match row {
                Ok(RunRow::Run(run)) => runs.push(*run),
                Ok(RunRow::Unhandled(emitter, message)) => {
                    unhandled.entry(emitter).or_default().push(message)
                }
                Err(why) => unreadable.push(why),
            }
        }
        for run in &mut runs {
            run.interventions =
                interventions.extract_if(.., |done| done.run.uuid() == run.lineage.id()).collect();
            run.unhandled = unhandled.remove(&run.lineage).unwrap_or_default();
            if run.giving_up {
                let concerns = |request: &&CancellationRequest| request.concerns(run);
                run.pending_cancellations = cancellations.iter().filter(concerns).cloned().collect();
            }
        }
        let unhandled = unhandled.into_values().flatten().collect();
        Self { roots: nested(runs), unhandled, cancellations, unreadable, is_complete: read.is_complete }
    }
}

impl CancellationRequest {
    /// Whether it applies to this run: it names the run or an ancestor.
    fn concerns(&self, run: &RunInfo) -> bool {
        run.lineage.ids().starts_with(self.lineage.ids())
    }
}

/// Moves each run to the children of its parent. If ancestors are missing, that is the lowest ancestor with a
/// complete path from the root.
fn nested(runs: Vec<RunInfo>) -> Vec<RunInfo> {
    let mut places: HashMap<(Option<usize>, Uuid), usize> = HashMap::new();
    let mut parents = Vec::with_capacity(runs.len());
    for (place, run) in runs.iter().enumerate() {
        let ids = run.lineage.ids();
        // The first id is the root emission's; those between are the ancestors.
        let ancestors = ids.get(1..ids.len() - 1).unwrap_or_default();
        let mut parent = None;
        for ancestor in ancestors {
            let Some(at) = places.get(&(parent, *ancestor)) else {
                break;
            };
            parent = Some(*at);
        }
        parents.push(parent);
        places.entry((parent, run.lineage.id())).or_insert(place);
    }
    // In reverse order, so that a run has all its children when it is moved to its parent.
    let mut runs: Vec<_> = runs.into_iter().map(Some).collect();
    let mut roots = vec![];
    for (place, parent) in parents.into_iter().enumerate().rev() {
        let Some(mut run) = runs[place].take() else {
            continue;
        };
        run.children.reverse();
        run.find_waits();
        match parent.and_then(|parent| runs[parent].as_mut()) {
            Some(parent) => parent.children.push(run),
            None => roots.push(run),
        }
    }
    roots.reverse();
    roots
}

impl RunInfo {
    /// Finds the waits for children and for the ends of sleeps between the events. Structured cooperation determines which event they belong to:
    /// children of earlier steps ended before the event, and those of later steps begin after the next one.
    fn find_waits(&mut self) {
        let ends = self.children.iter().flat_map(|child| {
            let ends = child.events.iter().filter(|event| event.ends());
            ends.filter_map(|end| Some((end.at?, false)))
        });
        let sleeps = self.events.iter().filter_map(|event| Some((event.sleeps_until?, true)));
        let mut ends: Vec<_> = ends.chain(sleeps).collect();
        ends.sort();
        let mut begin = None;
        for at in 0..self.events.len() {
            let Some(end) = self.events[at].at else {
                continue;
            };
            if let Some((begun, start)) = begin.replace((at, end)) {
                let before = |time| ends.partition_point(|(at, _)| *at <= time);
                let waited_for = ends.get(before(start)..before(end)).unwrap_or_default();
                if let Some((last, is_sleep)) = waited_for.last() {
                    self.events[begun].waited = last.duration_since(start).ok();
                    self.events[begun].slept = *is_sleep;
                    self.events[at].took = end.duration_since(*last).ok();
                }
            }
        }
    }
}

#[cfg(test)]
mod fuzz {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::tree::RunHead;

    fn row(ids: &[u128]) -> RunRow {
        let lineage = Lineage::from_ids(ids.iter().copied().map(Uuid::from_u128).collect()).expect("ids");
        RunRow::new(
            RunHead { lineage, message_id: Uuid::nil(), handler: "saga", topic: "topic" },
            None,
            vec![],
            None,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Includes runs without ancestors or root.
        #[test]
        fn every_run_is_in_the_tree_once(places in vec(vec(1..4u128, 1..5), 0..12)) {
            let tree = Tree::of(TreeRows::all(places.iter().map(|ids| Ok(row(ids))).collect()), vec![], vec![]);
            let mut found: Vec<_> = tree.runs().iter().map(|run| run.lineage.clone()).collect();
            let mut expected: Vec<_> = places.iter().map(|ids| row(ids).lineage().clone()).collect();
            found.sort();
            expected.sort();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(tree.to_string().matches("saga (on topic): pending\n").count(), places.len());
            let is_below = |above: &RunInfo, below: &RunInfo| {
                below.lineage.ids()[1..].contains(&above.lineage.id())
            };
            prop_assert!(tree.runs().iter().all(|run| run.children.iter().all(|child| is_below(run, child))));
        }
    }
}

/// The part of a hierarchy that is read; by default all of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    pub(crate) depth: Option<usize>,
    pub(crate) runs: Option<usize>,
}

/// The runs below the maximum depth of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeeperRuns {
    None,
    LeftOut,
}

/// The rows read of a hierarchy, in the order of the lineages.
#[derive(Debug)]
pub(crate) struct TreeRows {
    /// The rows; an unreadable row is represented by the reason.
    pub(crate) rows: Vec<Result<RunRow, String>>,
    pub(crate) is_complete: bool,
}

impl TreeRows {
    /// Restricts the rows to the limit of the extent.
    pub(crate) fn new(mut rows: Vec<Result<RunRow, String>>, deeper: DeeperRuns, extent: Extent) -> Self {
        let depth = |row: &Result<RunRow, String>| row.as_ref().map_or(0, |row| row.lineage().ids().len());
        let runs = rows.iter().enumerate();
        let runs = runs.filter(|(_, row)| !matches!(row, Ok(RunRow::Unhandled(..))));
        let beyond = extent.runs.is_some_and(|max| runs.clone().count() > max);
        // A limited query reads one row more than the limit; one of the lowest is dropped.
        let lowest = runs.max_by_key(|(_, row)| depth(row)).map(|(at, _)| at);
        if let Some(lowest) = lowest.filter(|_| beyond) {
            drop(rows.remove(lowest));
        }
        Self { rows, is_complete: deeper == DeeperRuns::None && !beyond }
    }

    /// All rows of a hierarchy.
    #[cfg(test)]
    pub(crate) fn all(rows: Vec<Result<RunRow, String>>) -> Self {
        Self { rows, is_complete: true }
    }
}
