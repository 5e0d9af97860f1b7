//! How far the queues of ready runs have been worked off.
//!
//! The oldest ready run comes first, and whoever takes it leaves a dead entry behind in the index, until that is
//! vacuumed. Claims that began with the oldest each time would go through more of these with each run of a backlog.
//! They still do for a handler of which nothing has been taken since all was forgotten, as the engine does every now and
//! then; only so does an old run that comes to light come first when it is its turn.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::Lanes;

/// For each topic, handler and reservation, since when the newest run that was taken had been ready. What was ready before that has
/// been taken as well, but for what was hidden then or has come since: of a transaction that had not been committed,
/// locked by somebody else, or launched for a time that had passed.
#[derive(Debug, Default)]
pub(crate) struct Progress(BTreeMap<(String, String, i32), OffsetDateTime>);

impl Progress {
    /// Whether a claim that goes by it may overlook something.
    pub(crate) fn overlooks(&self) -> bool {
        !self.0.is_empty()
    }

    /// Since when to look, for each of these queues; nothing where that is not known.
    pub(super) fn of(&self, lanes: &Lanes) -> Vec<Option<OffsetDateTime>> {
        let key = |(topic, handler, lane): (&str, &str, i32)| (topic.to_owned(), handler.to_owned(), lane);
        lanes.each().map(|lane| self.0.get(&key(lane)).copied()).collect()
    }

    /// The known queues: topic, handler, reservation, and since when to look.
    pub(super) fn known(&self) -> Vec<(&str, &str, i32, OffsetDateTime)> {
        self.0
            .iter()
            .map(|((topic, handler, lane), reached)| (&**topic, &**handler, *lane, *reached))
            .collect()
    }

    /// A run was taken from a queue.
    pub(crate) fn take(&mut self, (topic, handler, lane): (&str, &str, i32), ready_at: OffsetDateTime) {
        let reached = self.0.entry((topic.to_owned(), handler.to_owned(), lane)).or_insert(ready_at);
        *reached = ready_at.max(*reached);
    }
}
