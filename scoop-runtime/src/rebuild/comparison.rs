//! The differences between the working set and what a rebuild would make of it.

use std::collections::BTreeSet;
use std::fmt;

use scoop_core::Escaped;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{HierarchyId, RunId, SkippedHierarchy};

/// Fields whose values are contents, or digests of them, which are not shown.
const CONTENTS: [&str; 4] = ["failure", "rollback_failure", "context", "outputs"];

/// The field that stands for the row of a run in the list of failed rollbacks.
const FAILED_ROLLBACK: &str = "failed_rollback";

/// The result of a [comparison](crate::Scoop::compare_working_set) of the working set with the recorded events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildComparison {
    /// The number of runs in the working set.
    pub before: u64,
    /// The number of runs after a rebuild.
    pub after: u64,
    /// The number of differences: one for each run that differs, and one for each failed rollback that operators see although
    /// it is settled, or do not see.
    pub different: u64,
    /// The hierarchies that cannot be rebuilt, and were not compared.
    pub skipped: Vec<SkippedHierarchy>,
}

/// The result of a [comparison](crate::Scoop::compare_failed_rollbacks) of the list of failed rollbacks with the recorded events.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FailedRollbackComparison {
    /// The number of failed rollbacks that were compared: of the list, and on PostgreSQL of the record, where some may be settled.
    pub compared: u64,
    /// The first differences, up to [`LIMIT`](Self::LIMIT).
    pub different: Vec<RunDifference>,
    /// The newest repeated failures of rollbacks that do not fit the record, up to [`LIMIT`](Self::LIMIT).
    pub unmatched: Vec<UnmatchedFailure>,
}

impl FailedRollbackComparison {
    /// The maximum number of differences, and of repeated failures, that one comparison returns.
    pub const LIMIT: usize = 100;
}

/// A repeated failure of a rollback, a row of the table `repeated_failure`, that does not fit the record. Display it as one line.
///
/// The row was forged, or the events of its run were damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnmatchedFailure {
    /// Its id.
    pub id: Uuid,
    /// The hierarchy that it names.
    pub hierarchy: HierarchyId,
    /// The run that it names.
    pub run: RunId,
    /// The saga that it names.
    pub handler: String,
    /// The message that it names.
    pub message_id: Uuid,
    /// Whether an event has the same id, so that [streams of events](crate::Scoop::events) leave the failure out. Otherwise no
    /// ROLLBACK_FAILED of the run has this hierarchy, saga and message.
    pub shares_id: bool,
}

impl fmt::Display for UnmatchedFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, hierarchy, run, handler, message_id, shares_id } = self;
        let handler = Escaped(handler);
        write!(f, "repeated failure {id} of run {run} of `{handler}` in hierarchy {hierarchy} ")?;
        match shares_id {
            true => write!(f, "has the id of an event"),
            false => write!(
                f,
                "has no failed rollback with the same hierarchy, run, saga and message {message_id}"
            ),
        }
    }
}

/// A run that a rebuild would change. Display it as one line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunDifference {
    /// The hierarchy.
    pub hierarchy: HierarchyId,
    /// The run; `None` if it has not begun, since its id then is not recorded.
    pub run: Option<RunId>,
    /// The saga.
    pub handler: String,
    /// The message that it handles.
    pub message_id: Uuid,
    /// The change.
    pub change: RebuildChange,
}

/// What a rebuild would change. The field `failed_rollback` of a run is its row in the list of failed rollbacks for operators;
/// null if it has none.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RebuildChange {
    /// The run is unfinished by the record, and would be added.
    Added,
    /// The run has ended by the record, or has none, and would be removed.
    Removed,
    /// These fields of the run would change.
    Changed(Vec<ChangedField>),
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChangedField {
    /// The name.
    pub name: String,
    /// The values in the working set and by the record; `None` for contents, such as outputs, which are not shown.
    pub values: Option<[Value; 2]>,
}

/// The fields of a run.
type Fields = Map<String, Value>;

impl RunDifference {
    /// The difference between the run in the working set and by the record.
    pub(crate) fn new(
        root: Uuid,
        message_id: Uuid,
        handler: String,
        kept: Option<Fields>,
        recorded: Option<Fields>,
    ) -> Self {
        let id = |fields: &Option<Fields>| {
            let id = fields.as_ref()?.get("run")?.as_str()?;
            Uuid::try_parse(id).ok().map(RunId::from)
        };
        let run = id(&kept).or_else(|| id(&recorded));
        let change = match (kept, recorded) {
            (None, _) => RebuildChange::Added,
            (Some(_), None) => RebuildChange::Removed,
            (Some(kept), Some(recorded)) => RebuildChange::Changed(changed(&kept, &recorded)),
        };
        Self { hierarchy: root.into(), run, handler, message_id, change }
    }

    /// The difference of a run in the list of failed rollbacks, with its row there and by the record; null for none. The run is
    /// given as its hierarchy, its id and its message.
    pub(crate) fn of_failed_rollback(
        (root, run, message_id): (Uuid, Uuid, Uuid),
        handler: String,
        [kept, recorded]: [Option<Value>; 2],
    ) -> Self {
        let values = [kept.unwrap_or_default(), recorded.unwrap_or_default()];
        let field = ChangedField { name: FAILED_ROLLBACK.to_owned(), values: Some(values) };
        let change = RebuildChange::Changed(vec![field]);
        Self { hierarchy: root.into(), run: Some(run.into()), handler, message_id, change }
    }

    /// Whether the run has a failed rollback that no operator has settled, and the list of these does not have it: operators do
    /// not see it.
    pub fn is_unlisted_failure(&self) -> bool {
        let RebuildChange::Changed(fields) = &self.change else { return false };
        let values = fields.iter().find(|it| it.name == FAILED_ROLLBACK).and_then(|it| it.values.as_ref());
        values.is_some_and(|[kept, recorded]| kept.is_null() && !recorded.is_null())
    }
}

/// The fields that differ, by name.
fn changed(kept: &Fields, recorded: &Fields) -> Vec<ChangedField> {
    let value = |fields: &Fields, name: &str| fields.get(name).cloned().unwrap_or_default();
    let names: BTreeSet<_> = kept.keys().chain(recorded.keys()).collect();
    let both = names.into_iter().map(|name| (name, [value(kept, name), value(recorded, name)]));
    let different = both.filter(|(_, [kept, recorded])| kept != recorded);
    let field = |(name, values): (&String, [Value; 2])| ChangedField {
        name: name.clone(),
        values: (!CONTENTS.contains(&&**name)).then_some(values),
    };
    different.map(field).collect()
}

impl fmt::Display for RunDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hierarchy, run, handler, message_id, change } = self;
        match run {
            Some(run) => write!(f, "run {run}")?,
            None => write!(f, "the pending run for message {message_id}")?,
        }
        write!(f, " of `{}` in hierarchy {hierarchy} ", Escaped(handler))?;
        match change {
            RebuildChange::Added => write!(f, "would be added"),
            RebuildChange::Removed => write!(f, "would be removed"),
            RebuildChange::Changed(fields) => {
                write!(f, "would change:")?;
                for (nth, ChangedField { name, values }) in fields.iter().enumerate() {
                    let comma = if nth == 0 { "" } else { "," };
                    write!(f, "{comma} {name}")?;
                    if let Some([kept, recorded]) = values {
                        let [kept, recorded] = [kept.to_string(), recorded.to_string()];
                        write!(f, " from {} to {}", Escaped(&kept), Escaped(&recorded))?;
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Option<Fields> {
        value.as_object().cloned()
    }

    #[test]
    fn changed_fields_are_named_without_contents() {
        let id = Uuid::from_u128(7);
        let kept = fields(json!({"run": id, "step": "pack", "outputs": "a", "jump": null, "iteration": 1}));
        let recorded = fields(json!({"run": id, "step": "send", "outputs": "b", "iteration": 1}));
        let difference = RunDifference::new(Uuid::nil(), Uuid::nil(), "orders\n".into(), kept, recorded);
        assert_eq!(difference.run, Some(id.into()));
        let text = difference.to_string();
        let expected = "would change: outputs, step from \"pack\" to \"send\"";
        assert!(text.ends_with(expected), "{text}");
        assert!(text.contains("of `orders\\n` in"), "{text}");
    }

    #[test]
    fn failed_rollback_that_is_not_listed_is_a_changed_field() {
        let place = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let recorded = Some(json!({"failed_at": "2026-01-01"}));
        let settled = RunDifference::of_failed_rollback(place, "orders".into(), [recorded.clone(), None]);
        assert!(!settled.is_unlisted_failure());
        let difference = RunDifference::of_failed_rollback(place, "orders".into(), [None, recorded]);
        assert!(difference.is_unlisted_failure());
        assert_eq!(difference.run, Some(place.1.into()));
        let text = difference.to_string();
        let expected = "would change: failed_rollback from null to {\"failed_at\":\"2026-01-01\"}";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn unmatched_failure_is_displayed_with_what_does_not_fit() {
        let failure = UnmatchedFailure {
            id: Uuid::from_u128(1),
            hierarchy: Uuid::from_u128(2).into(),
            run: Uuid::from_u128(3).into(),
            handler: "orders\n".into(),
            message_id: Uuid::from_u128(4),
            shares_id: false,
        };
        let text = failure.to_string();
        assert!(text.contains("of `orders\\n` in") && text.ends_with("000000000004"), "{text}");
        let text = UnmatchedFailure { shares_id: true, ..failure }.to_string();
        assert!(text.ends_with("has the id of an event"), "{text}");
    }

    #[test]
    fn pending_run_is_named_by_its_message() {
        let (root, message) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let only = |fields| RunDifference::new(root, message, "orders".into(), None, fields);
        let added = only(fields(json!({"run": null})));
        assert_eq!((added.run, &added.change), (None, &RebuildChange::Added));
        assert!(added.to_string().starts_with(&format!("the pending run for message {message} of")));
    }
}
