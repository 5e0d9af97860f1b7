//! The common outcome of a step, for which there are shorter statements: it ended well, launched
//! nothing, and the run goes on or has committed.

use scoop_core::EventKind;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{PgConnection, Postgres, Row};

use super::alone::Alone;
use super::rows::{Ending, EventRow, Settlement, ValueRow};
use super::{Settled, Tables};
use crate::ids;

/// A settlement that is no more than that.
pub(super) struct Plain<'a> {
    all: &'a Settlement,
    /// The SUSPENDED of the step, if there was one.
    suspended: Option<&'a EventRow>,
    /// The COMMITTED of the run, if it has ended.
    committed: Option<&'a EventRow>,
}

impl<'a> Plain<'a> {
    /// The settlement as such, if there is no more to it.
    pub(super) fn of(all: &'a Settlement) -> Option<Self> {
        let forward = all.may_give_up && !all.backward && all.failure.is_none() && all.forgets.is_none();
        let alone = all.emissions.is_empty() && all.told.is_empty() && all.deadlines.is_empty();
        let (suspended, committed) = match (all.events.as_slice(), all.ends) {
            ([suspended], None) => (Some(suspended), None),
            ([committed], Some(Ending::Unnoted)) => (None, Some(committed)),
            ([suspended, committed], Some(Ending::Unnoted)) => (Some(suspended), Some(committed)),
            _ => return None,
        };
        let fits = forward
            && alone
            && all.return_values.len() <= 1
            && suspended.is_none_or(|event| event.is(EventKind::Suspended) && event.is_the_runs())
            && committed.is_none_or(|event| event.is(EventKind::Committed) && event.is_the_runs())
            && committed.is_none_or(|event| event.handler_iteration.is_none());
        fits.then_some(Self { all, suspended, committed })
    }

    fn step(&self) -> Option<&'a str> {
        self.suspended.or(self.committed)?.step.as_deref()
    }

    fn next_step(&self) -> Option<i32> {
        self.suspended?.next_step
    }

    fn handler_iteration(&self) -> Option<i32> {
        self.suspended?.handler_iteration
    }

    fn returned(&self) -> Option<&'a ValueRow> {
        self.all.return_values.first()
    }

    /// Writes it in the transaction of the step, if the claim still holds.
    pub(super) async fn settle(
        &self,
        store: &Tables,
        connection: &mut PgConnection,
        identifier: &str,
        claim: &str,
    ) -> sqlx::Result<Option<Settled>> {
        let row = self.query(store, identifier, claim).fetch_optional(connection).await?;
        row.map(|row| settled(&row, self.committed.is_some())).transpose()
    }

    fn query(&self, store: &Tables, identifier: &'a str, claim: &'a str) -> Query<'a, Postgres, PgArguments> {
        let Self { all, .. } = self;
        let commits = self.committed.is_some();
        let statement = if commits { &store.sql.step_commit } else { &store.sql.step_suspend };
        let begun = sqlx::query(statement.clone())
            .bind(all.root)
            .bind(all.id)
            .bind(all.epoch)
            .bind(claim)
            .bind(identifier)
            .bind(self.step())
            .bind(self.next_step());
        let stood = if commits {
            begun.bind(self.handler_iteration())
        } else {
            begun
                .bind(all.iteration)
                .bind(self.handler_iteration())
                .bind(all.suspensions)
                .bind(all.outputs.as_ref().map(Json))
                .bind(all.replied)
        };
        let stood = stood
            .bind(all.context.as_ref().map(Json))
            .bind(self.returned().map(|returned| &*returned.name))
            .bind(self.returned().map(|returned| &returned.value))
            .bind(ids::now_v7());
        if commits { stood.bind(ids::now_v7()) } else { stood }
    }
}

/// Writes those whose claims still hold.
pub(super) async fn settle_all(
    store: &Tables,
    identifier: &str,
    plain: &[Plain<'_>],
) -> sqlx::Result<Vec<PgRow>> {
    let each = || plain.iter();
    sqlx::query(store.sql.step_settle.clone())
        .bind(each().map(|plain| plain.all.root).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.all.id).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.all.epoch).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.committed.is_some()).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.suspended.is_some()).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.step()).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.next_step()).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.all.iteration).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.handler_iteration()).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.all.suspensions).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.all.outputs.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.all.replied).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.all.context.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.returned().map(|value| &*value.name)).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.returned().map(|value| Json(&value.value))).collect::<Vec<_>>())
        .bind(each().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(each().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(identifier)
        .all(&store.sessions)
        .await
}

/// What became of one of them, from a row of any of the statements.
pub(super) fn settled(row: &PgRow, commits: bool) -> sqlx::Result<Settled> {
    Ok(Settled {
        goes_on: !commits,
        overdue: false,
        ended: commits,
        last_event_at: row.try_get("last_event_at")?,
        started: vec![],
    })
}
