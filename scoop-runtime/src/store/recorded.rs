//! Looks up events that a worker has recorded, after an answer was lost.

use scoop_core::EventKind;

use super::alone::Alone;
use super::{Key, Tables};

impl Tables {
    /// Whether the worker of this identifier has recorded an event of this kind for the run.
    pub(crate) async fn recorded(&self, run: Key, identifier: &str, kind: EventKind) -> sqlx::Result<bool> {
        let recorded = sqlx::query_scalar(self.sql.run_recorded.clone()).bind(run.id).bind(identifier);
        recorded.bind(kind.as_str()).one(&self.sessions).await
    }
}
