//! The common outcome of a step, for which there are shorter statements: it ended well, launched
//! nothing, and the run goes on, has committed, or is rolled back.

use scoop_core::EventKind;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{PgConnection, Postgres};

use super::super::decode::time;
use super::super::query_ext::FetchExt;
use crate::store::settlement::{Ending, EventRow, ValueRow};
use crate::store::{PostgresStore, RowState, SettleResult, Settlement};
use crate::util::ids;

/// A settlement that is no more than that.
pub(super) struct Advance<'a> {
    all: &'a Settlement,
    /// The SUSPENDED of the step, if there was one.
    suspended: Option<&'a EventRow>,
    /// The COMMITTED or ROLLED_BACK of the run, if it has ended.
    last: Option<&'a EventRow>,
}

impl<'a> Advance<'a> {
    /// The settlement as such, if there is no more to it.
    pub(super) fn of(all: &'a Settlement) -> Option<Self> {
        let (suspended, last) = match (all.events.as_slice(), all.ends) {
            ([suspended], None) => (Some(suspended), None),
            ([last], Some(Ending::Unnoted)) => (None, Some(last)),
            ([suspended, last], Some(Ending::Unnoted)) => (Some(suspended), Some(last)),
            _ => return None,
        };
        let ends = |event: &EventRow| event.is(EventKind::Committed) || event.is(EventKind::RolledBack);
        let fits = all.fits_fast_path()
            && all.emissions.is_empty()
            && all.rollback_requests.is_empty()
            && suspended.is_none_or(|event| event.is(EventKind::Suspended) && event.inherits_from_run())
            && last.is_none_or(|event| ends(event) && event.inherits_from_run())
            && last.is_none_or(|event| event.handler_iteration.is_none())
            && suspended.zip(last).is_none_or(|(suspended, last)| suspended.step == last.step);
        fits.then_some(Self { all, suspended, last })
    }

    fn step(&self) -> Option<&'a str> {
        self.suspended.or(self.last)?.step.as_deref()
    }

    fn next_step(&self) -> Option<i32> {
        self.suspended?.next_step
    }

    fn jump(&self) -> Option<&'a str> {
        self.suspended?.jump.as_deref()
    }

    fn handler_iteration(&self) -> Option<i32> {
        self.suspended?.handler_iteration
    }

    /// How the run ends, if it does.
    fn ends_as(&self) -> Option<&'static str> {
        Some(self.last?.kind)
    }

    fn returned(&self) -> Option<&'a ValueRow> {
        self.all.return_values.first()
    }

    /// Whether it can be written by itself.
    pub(super) fn went_through_a_step(&self) -> bool {
        self.suspended.is_some()
    }

    /// Writes it, after a step, if its claim holds. `claim` is what the transaction of the step is marked with,
    /// if this happens in there.
    pub(super) async fn settle(
        &self,
        store: &PostgresStore,
        connection: &mut PgConnection,
        identifier: &str,
        claim: Option<&str>,
    ) -> sqlx::Result<Option<SettleResult>> {
        let row = self.query(store, identifier, claim).fetch_optional(connection).await?;
        row.map(|row| settled(&row, self.last.map_or(RowState::Running, |_| RowState::Ended))).transpose()
    }

    fn query(
        &self,
        store: &PostgresStore,
        identifier: &'a str,
        claim: Option<&'a str>,
    ) -> Query<'a, Postgres, PgArguments> {
        let Self { all, .. } = self;
        let ends = self.last.is_some();
        let statement = if ends { &store.sql.settle_end_one } else { &store.sql.settle_advance_one };
        let begun = sqlx::query(statement.clone())
            .bind(all.root)
            .bind(all.id)
            .bind(all.epoch)
            .bind(claim)
            .bind(identifier)
            .bind(self.step())
            .bind(self.next_step());
        let stood = if ends {
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
        if ends {
            stood.bind(ids::now_v7()).bind(self.ends_as()).bind(self.jump())
        } else {
            stood.bind(self.jump()).bind(all.definition).bind(all.completions.as_ref().map(Json))
        }
    }
}

/// Writes those whose claims still hold.
pub(super) async fn settle_all(
    store: &PostgresStore,
    identifier: &str,
    plain: &[Advance<'_>],
) -> sqlx::Result<Vec<PgRow>> {
    let each = || plain.iter();
    sqlx::query(store.sql.settle_advance_many.clone())
        .bind(each().map(|plain| plain.all.root).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.all.id).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.all.epoch).collect::<Vec<_>>())
        .bind(each().map(Advance::ends_as).collect::<Vec<_>>())
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
        .bind(each().map(|plain| plain.jump()).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.all.definition).collect::<Vec<_>>())
        .bind(each().map(|plain| plain.all.completions.as_ref().map(Json)).collect::<Vec<_>>())
        .all(&store.sessions)
        .await
}

/// What became of one of them, from a row of any of the statements.
pub(super) fn settled(row: &PgRow, state: RowState) -> sqlx::Result<SettleResult> {
    Ok(SettleResult {
        state,
        overdue: false,
        last_event_at: time(row, "last_event_at")?,
        ready_handlers: vec![],
    })
}
