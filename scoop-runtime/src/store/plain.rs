//! The common outcome of a step, for which there are shorter statements: it ended well, launched
//! nothing, and the run goes on or has committed.

use std::collections::BTreeMap;

use scoop_core::{Context, EventKind};
use serde_json::Value;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{PgConnection, Postgres, Row};

use super::rows::{Ending, EventRow, Settlement, ValueRow};
use super::{Key, Settled, Store};

/// What there is to write.
pub(super) struct Plain<'a> {
    key: Key,
    /// The step has the SUSPENDED of the outcome, a last step a COMMITTED after it.
    suspended: &'a EventRow,
    commits: bool,
    iteration: Option<i32>,
    suspensions: i32,
    outputs: Option<&'a BTreeMap<String, Value>>,
    replied: bool,
    /// If it has changed.
    context: Option<&'a Context>,
    returned: Option<&'a ValueRow>,
}

impl<'a> Plain<'a> {
    /// The settlement as such, if there is no more to it.
    pub(super) fn of(settlement: &'a Settlement) -> Option<Self> {
        let s = settlement;
        let forward = s.may_give_up && !s.backward && s.failure.is_none() && s.forgets.is_none();
        let alone = s.emissions.is_empty() && s.told.is_empty() && s.deadlines.is_empty();
        if !forward || !alone || s.return_values.len() > 1 {
            return None;
        }
        let commits = s.ends == Some(Ending::Unnoted);
        let suspended = match (s.events.as_slice(), commits) {
            ([suspended], false) => suspended,
            ([suspended, committed], true) if committed.closes(suspended) => suspended,
            _ => return None,
        };
        let own = s.events.iter().all(EventRow::has_the_context_of_its_run);
        (own && suspended.is(EventKind::Suspended)).then_some(Self {
            key: s.key(),
            suspended,
            commits,
            iteration: s.iteration,
            suspensions: s.suspensions,
            outputs: s.outputs.as_ref(),
            replied: s.replied,
            context: s.context.as_ref(),
            returned: s.return_values.first(),
        })
    }

    /// With all that both statements begin with, and what each adds.
    fn query(&self, store: &Store, identifier: &'a str, claim: &'a str) -> Query<'a, Postgres, PgArguments> {
        let statement = if self.commits { &store.sql.step_commit } else { &store.sql.step_suspend };
        let Self { key, suspended, .. } = self;
        let begun = sqlx::query(statement.clone())
            .bind(key.root)
            .bind(key.id)
            .bind(key.epoch)
            .bind(claim)
            .bind(identifier)
            .bind(suspended.step.as_deref())
            .bind(suspended.next_step);
        let stood = if self.commits {
            begun.bind(suspended.handler_iteration)
        } else {
            begun
                .bind(self.iteration)
                .bind(suspended.handler_iteration)
                .bind(self.suspensions)
                .bind(self.outputs.map(Json))
                .bind(self.replied)
        };
        stood
            .bind(self.context.map(Json))
            .bind(self.returned.map(|returned| &*returned.name))
            .bind(self.returned.map(|returned| &returned.value))
    }

    /// Writes it in the transaction of the step, if the claim still holds.
    pub(super) async fn settle(
        &self,
        store: &Store,
        connection: &mut PgConnection,
        identifier: &str,
        claim: &str,
    ) -> sqlx::Result<Option<Settled>> {
        let row = self.query(store, identifier, claim).fetch_optional(connection).await?;
        let settled = |row: sqlx::postgres::PgRow| {
            Ok(Settled {
                goes_on: !self.commits,
                overdue: false,
                ended: self.commits,
                last_event_at: row.try_get("last_event_at")?,
                started: vec![],
            })
        };
        row.map(settled).transpose()
    }
}
