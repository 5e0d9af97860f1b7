//! Builds the tree of a hierarchy from its runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::time::SystemTime;

use scoop_core::{EventKind, Lineage};
use uuid::Uuid;

use super::{CancellationRequest, RunEvent, RunInfo, RunRow, Tree, UnhandledMessage, WaitEnd};
use crate::Intervention;
use crate::model::answers::Relaunches;
use crate::repair::SIGNAL;

impl Tree {
    /// Builds the tree of these runs, parents before children, with their interventions and the messages that they
    /// launched without a handler. An unreadable row is represented by the reason. Each intervention has the number of those on
    /// its run that were left out.
    pub(crate) fn of(
        read: TreeRows,
        interventions: Vec<(Intervention, usize)>,
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
        let mut of_runs: HashMap<Uuid, (Vec<Intervention>, usize)> = HashMap::new();
        for (intervention, left_out) in interventions {
            let of_run = of_runs.entry(intervention.run.uuid()).or_default();
            of_run.0.push(intervention);
            of_run.1 = left_out;
        }
        for run in &mut runs {
            (run.interventions, run.interventions_left_out) =
                of_runs.remove(&run.lineage.id()).unwrap_or_default();
            run.unhandled = unhandled.remove(&run.lineage).unwrap_or_default();
            if run.giving_up {
                let concerns = |request: &&CancellationRequest| request.concerns(run);
                run.pending_cancellations = cancellations.iter().filter(concerns).cloned().collect();
            }
        }
        let unhandled = unhandled.into_values().flatten().collect();
        let (is_complete, has_more_unhandled) = (read.is_complete, read.has_more_unhandled);
        let (roots, relaunches) = (nested(runs), Relaunches::default());
        Self { roots, unhandled, cancellations, relaunches, unreadable, is_complete, has_more_unhandled }
    }

    /// Adds the hierarchies with the same first message.
    pub(crate) fn beside(self, relaunches: Relaunches) -> Self {
        Self { relaunches, ..self }
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
    let mut indexes: HashMap<(Option<usize>, Uuid), usize> = HashMap::new();
    let mut parents = Vec::with_capacity(runs.len());
    for (index, run) in runs.iter().enumerate() {
        let ids = run.lineage.ids();
        // The first id is the root emission's; those between are the ancestors.
        let ancestors = ids.get(1..ids.len() - 1).unwrap_or_default();
        let mut parent = None;
        for ancestor in ancestors {
            let Some(at) = indexes.get(&(parent, *ancestor)) else {
                break;
            };
            parent = Some(*at);
        }
        parents.push(parent);
        indexes.entry((parent, run.lineage.id())).or_insert(index);
    }
    // In reverse order, so that a run has all its children when it is moved to its parent.
    let mut runs: Vec<_> = runs.into_iter().map(Some).collect();
    // The times of the repairs of each run and of those below it.
    let mut repairs: Vec<Vec<SystemTime>> = vec![vec![]; runs.len()];
    let mut roots = vec![];
    for (index, parent) in parents.into_iter().enumerate().rev() {
        let Some(mut run) = runs[index].take() else {
            continue;
        };
        run.children.reverse();
        let own = run.repairs();
        let mut repaired = mem::take(&mut repairs[index]);
        repaired.extend(&own);
        repaired.sort();
        run.find_waits(&repaired);
        run.measure_from_repairs(&own);
        match parent.and_then(|parent| runs[parent].as_mut().zip(repairs.get_mut(parent))) {
            Some((parent, of_parent)) => {
                parent.children.push(run);
                of_parent.append(&mut repaired);
            }
            None => roots.push(run),
        }
    }
    roots.reverse();
    roots
}

impl RunInfo {
    fn repairs(&self) -> Vec<SystemTime> {
        let repairs = self.interventions.iter().filter(|it| it.kind != SIGNAL);
        let mut decided: Vec<_> = repairs.map(|it| it.at).collect();
        decided.sort();
        decided
    }

    /// Measures an event from the last repair before it, if that is later than the event before it.
    fn measure_from_repairs(&mut self, decided: &[SystemTime]) {
        for event in &mut self.events {
            let Some(at) = event.at else { continue };
            let before = decided.partition_point(|decision| *decision <= at);
            let since = before.checked_sub(1).and_then(|last| at.duration_since(decided[last]).ok());
            event.duration = event.duration.map(|it| since.map_or(it, |since| it.min(since)));
        }
    }

    /// Finds the waits for children and for the ends of sleeps between the events. Structured cooperation determines which event
    /// they belong to: children of earlier steps ended before the event, and those of later steps begin after the next one. After a
    /// failed rollback the run waits from the last repair on. `repairs` has those of the run and of the runs below it, oldest first.
    fn find_waits(&mut self, repairs: &[SystemTime]) {
        let ends = self.children.iter().enumerate().flat_map(|(child, run)| {
            let ends = run.events.iter().filter(|event| event.ends());
            ends.filter_map(move |end| Some((end.at?, Some((child, end.kind)))))
        });
        let sleeps = self.events.iter().filter_map(|event| Some((event.sleeps_until?, None)));
        let mut ends: Vec<_> = ends.chain(sleeps).collect();
        ends.sort_by_key(|(at, end)| (*at, end.is_none()));
        // The last repair between two times.
        let repair = |after: SystemTime, until: Option<SystemTime>| {
            let known = until.map_or(repairs.len(), |until| repairs.partition_point(|at| *at <= until));
            repairs[..known].last().copied().filter(|at| *at > after)
        };
        let (mut begin, mut rolls_back) = (None, false);
        for at in 0..self.events.len() {
            let was_rolling_back = rolls_back;
            rolls_back |= self.events[at].kind == EventKind::RollingBack;
            // What followed the event before a gap is not known.
            if self.events[at].follows_gap {
                begin = None;
            }
            let Some(end) = self.events[at].at else {
                continue;
            };
            if let Some((begun, start)) = begin.replace((at, end)) {
                let before = |time| ends.partition_point(|(at, _)| *at <= time);
                let waited_for = ends.get(before(start)..before(end)).unwrap_or_default();
                if let Some((last, _)) = waited_for.last() {
                    let begun = &mut self.events[begun];
                    begun.repaired_at = repair(start, Some(*last)).filter(|_| begun.failed_to_roll_back());
                    begun.waited = last.duration_since(begun.repaired_at.unwrap_or(start)).ok();
                    begun.wait_end =
                        WaitEnd::from_ends(waited_for.iter().map(|(_, end)| *end), was_rolling_back);
                    self.events[at].duration = end.duration_since(*last).ok();
                }
            }
        }
        if let Some(last) = self.events.last_mut().filter(|last| last.failed_to_roll_back())
            && let Some(at) = last.at
        {
            last.repaired_at = repair(at, None);
        }
    }
}

impl RunEvent {
    fn failed_to_roll_back(&self) -> bool {
        self.kind == EventKind::RollbackFailed
    }
}

impl WaitEnd {
    /// How a wait ended, by the ends that came in it, oldest first: each the number of a child and the kind of its end, or `None`
    /// for the sleep. The last end of each child counts.
    fn from_ends(
        ends: impl DoubleEndedIterator<Item = Option<(usize, EventKind)>>,
        rolls_back: bool,
    ) -> Self {
        let mut of_child = BTreeMap::new();
        let mut is_last = true;
        for end in ends.rev() {
            match end {
                None if is_last => return Self::Slept,
                None => {}
                Some((child, kind)) => _ = of_child.entry(child).or_insert(kind),
            }
            is_last = false;
        }
        let is_all = |kind| of_child.values().all(|it| *it == kind);
        match rolls_back {
            false => Self::Ended,
            true if of_child.values().any(|it| *it == EventKind::RollbackFailed) => Self::RollbackFailed,
            true if is_all(EventKind::RolledBack) => Self::RolledBack,
            true => Self::Ended,
        }
    }
}

#[cfg(test)]
mod fuzz {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::tree::{RunHead, RunStage, WorkingState};

    pub(super) fn row(ids: &[u128]) -> RunRow {
        let lineage = Lineage::from_ids(ids.iter().copied().map(Uuid::from_u128).collect()).expect("ids");
        RunRow::new(
            RunHead { lineage, message_id: Uuid::nil(), handler: "saga", topic: "topic" },
            RunStage::Unfinished(WorkingState::default()),
            vec![],
            None,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Includes runs without ancestors or root.
        #[test]
        fn every_run_is_in_the_tree_once(indexes in vec(vec(1..4u128, 1..5), 0..12)) {
            let tree = Tree::of(TreeRows::all(indexes.iter().map(|ids| Ok(row(ids))).collect()), vec![], vec![]);
            let mut found: Vec<_> = tree.runs().iter().map(|run| run.lineage.clone()).collect();
            let mut expected: Vec<_> = indexes.iter().map(|ids| row(ids).lineage().clone()).collect();
            found.sort();
            expected.sort();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(tree.to_string().matches("saga (on topic): pending\n").count(), indexes.len());
            let is_below = |above: &RunInfo, below: &RunInfo| {
                below.lineage.ids()[1..].contains(&above.lineage.id())
            };
            prop_assert!(tree.runs().iter().all(|run| run.children.iter().all(|child| is_below(run, child))));
        }
    }
}

/// The maximum number of messages without a handler in a tree with a limit.
const UNHANDLED_MAX: usize = 100;

/// The maximum numbers of launched messages that are looked at besides those of so many runs as the tree may have: of each run,
/// and of all.
const LAUNCHED_MAX: usize = 1_000;
const LAUNCHED_IN_ALL_MAX: usize = 10_000;

/// The maximum number of bytes of the failures in a tree. It does not depend on the part of a hierarchy that is read.
pub(crate) const FAILURE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The part of a hierarchy that is read; by default all of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TreeBounds {
    pub(crate) depth: Option<usize>,
    pub(crate) runs: Option<usize>,
    /// Only this run of those of the message, and its children.
    pub(crate) run: Option<Uuid>,
    pub(crate) events: Option<usize>,
}

impl TreeBounds {
    pub(crate) fn unhandled(&self) -> Option<usize> {
        self.runs.map(|_| UNHANDLED_MAX)
    }

    /// The maximum number of launched messages of a run that are looked at.
    pub(crate) fn launched(&self) -> Option<usize> {
        self.runs.map(|runs| runs.saturating_add(LAUNCHED_MAX))
    }

    pub(crate) fn launched_in_all(&self) -> Option<usize> {
        self.runs.map(|runs| runs.saturating_add(LAUNCHED_IN_ALL_MAX))
    }
}

/// What a store has not read, apart from the rows beyond the limits of the extent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeftOut {
    /// Runs below the maximum depth.
    pub(crate) deeper_runs: bool,
    /// Launched messages that were not looked at, and may have runs.
    pub(crate) launched: bool,
}

#[derive(Debug)]
pub(crate) struct TreeRows {
    /// The rows; an unreadable row is represented by the reason.
    pub(crate) rows: Vec<Result<RunRow, String>>,
    pub(crate) is_complete: bool,
    pub(crate) has_more_unhandled: bool,
}

impl TreeRows {
    /// Restricts the rows to the limits of the extent. A limited query reads one row more than each limit.
    pub(crate) fn new(mut rows: Vec<Result<RunRow, String>>, left_out: LeftOut, extent: TreeBounds) -> Self {
        let depth = |row: &Result<RunRow, String>| row.as_ref().map_or(0, |row| row.lineage().ids().len());
        let is_unhandled = |row: &Result<RunRow, String>| matches!(row, Ok(RunRow::Unhandled(..)));
        let runs = rows.iter().enumerate().filter(|(_, row)| !is_unhandled(row));
        let beyond = extent.runs.is_some_and(|max| runs.clone().count() > max);
        // One of the lowest is dropped.
        let lowest = runs.max_by_key(|(_, row)| depth(row)).map(|(at, _)| at);
        if let Some(lowest) = lowest.filter(|_| beyond) {
            drop(rows.remove(lowest));
        }
        let unhandled = rows.iter().enumerate().filter(|(_, row)| is_unhandled(row));
        let unhandled_beyond = extent.unhandled().and_then(|max| unhandled.map(|(at, _)| at).nth(max));
        if let Some(last) = unhandled_beyond {
            drop(rows.remove(last));
        }
        Self {
            rows,
            is_complete: !left_out.deeper_runs && !left_out.launched && !beyond,
            has_more_unhandled: left_out.launched || unhandled_beyond.is_some(),
        }
    }

    /// Whether these are all runs of the hierarchy: of the message that started it, and none is left out.
    pub(crate) fn is_whole(&self, extent: TreeBounds) -> bool {
        // The runs of its first message are directly below the hierarchy.
        let is_first = |row: &Result<RunRow, String>| matches!(row, Ok(RunRow::Run(run)) if run.lineage.ids().len() == 2);
        extent.run.is_none() && self.is_complete && self.rows.iter().any(is_first)
    }

    pub(crate) fn runs(&self) -> Vec<Uuid> {
        let runs = self.rows.iter().filter_map(|row| match row {
            Ok(RunRow::Run(run)) => Some(run.lineage.id()),
            _ => None,
        });
        runs.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The ids of the runs and of those above them, with that of the hierarchy.
    pub(crate) fn with_ancestors(&self, root: Uuid) -> Vec<Uuid> {
        let rows = self.rows.iter().filter_map(|row| row.as_ref().ok());
        let ids = rows.flat_map(|row| row.lineage().ids()).copied();
        ids.chain([root]).collect::<BTreeSet<_>>().into_iter().collect()
    }

    #[cfg(test)]
    pub(crate) fn all(rows: Vec<Result<RunRow, String>>) -> Self {
        Self::new(rows, LeftOut::default(), TreeBounds::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ids: &[&[u128]], extent: TreeBounds) -> TreeRows {
        TreeRows::new(ids.iter().map(|ids| Ok(fuzz::row(ids))).collect(), LeftOut::default(), extent)
    }

    #[test]
    fn rows_without_the_first_runs_or_with_some_left_out_are_a_part() {
        let (all, first_two) = (TreeBounds::default(), TreeBounds { runs: Some(2), ..TreeBounds::default() });
        let one = TreeBounds { run: Some(Uuid::from_u128(2)), ..TreeBounds::default() };
        let hierarchy: [&[u128]; 3] = [&[1, 2], &[1, 2, 3], &[1, 2, 4]];
        assert!(read(&hierarchy, all).is_whole(all));
        assert!(read(&hierarchy[..2], first_two).is_whole(first_two), "no run is beyond the limit");
        assert!(!read(&hierarchy, first_two).is_whole(first_two));
        assert!(!read(&hierarchy, one).is_whole(one), "its message may have other runs");
        assert!(!read(&hierarchy[1..], all).is_whole(all), "these are the runs of another message");
        let deeper = LeftOut { deeper_runs: true, ..LeftOut::default() };
        let above = TreeRows::new(vec![Ok(fuzz::row(&[1, 2]))], deeper, all);
        assert!(!above.is_whole(all));
    }

    #[test]
    fn rows_of_a_message_without_a_handler_are_a_part() {
        let message = UnhandledMessage {
            topic: "topic".into(),
            message_id: Uuid::nil(),
            at: None,
            redelivered_as: None,
        };
        let emitter = Lineage::from_ids([1, 2].map(Uuid::from_u128).to_vec()).expect("ids");
        let rows = TreeRows::all(vec![Ok(RunRow::Unhandled(emitter, message))]);
        assert!(!rows.is_whole(TreeBounds::default()));
    }
}
