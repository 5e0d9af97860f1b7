//! How far the queues of ready runs have been worked off.
//!
//! The oldest ready run comes first, and whoever takes it leaves a dead entry behind in the index, until that is
//! vacuumed. Claims that began with the oldest each time would go through more of these with each run of a backlog.
//! They still do for a handler of which nothing has been taken since all was forgotten, as the engine does every now and
//! then; only so does an old run that comes to light come first when it is its turn.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::Pairs;

/// For each topic and handler, since when the newest run that was taken had been ready. What was ready before that has
/// been taken as well, but for what was hidden then or has come since: of a transaction that had not been committed,
/// locked by somebody else, or launched for a time that had passed.
#[derive(Debug, Default)]
pub(crate) struct Progress(BTreeMap<(String, String), OffsetDateTime>);

impl Progress {
    /// Whether a claim that goes by it may overlook something.
    pub(crate) fn overlooks(&self) -> bool {
        !self.0.is_empty()
    }

    /// Since when to look, for each of these pairs; nothing where that is not known.
    pub(super) fn of(&self, (topics, handlers): Pairs<'_>) -> Vec<Option<OffsetDateTime>> {
        let pairs = topics.iter().cloned().zip(handlers.iter().cloned());
        pairs.map(|pair| self.0.get(&pair).copied()).collect()
    }

    /// What is known: topics, handlers, and since when to look.
    pub(super) fn known(&self) -> (Vec<&str>, Vec<&str>, Vec<OffsetDateTime>) {
        let pairs = self.0.keys();
        let (topics, handlers) = pairs.map(|(topic, handler)| (topic.as_str(), handler.as_str())).unzip();
        (topics, handlers, self.0.values().copied().collect())
    }

    /// A run was taken.
    pub(crate) fn take(&mut self, topic: &str, handler: &str, ready_at: OffsetDateTime) {
        let reached = self.0.entry((topic.to_owned(), handler.to_owned())).or_insert(ready_at);
        *reached = ready_at.max(*reached);
    }
}
