//! The common outcome of a step: it ended well, launched nothing, and the run goes on, has committed, or is rolled back.

use scoop_core::EventKind;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row};
use uuid::Uuid;

use super::super::decode::time;
use super::parameters::{SettlementRow, bind_many, bind_one};
use crate::model::run::RowState;
use crate::store::settlement::{Ending, EventRow};
use crate::store::{PostgresStore, SettleResult, Settlement};

pub(super) fn of(all: &Settlement) -> Option<SettlementRow<'_>> {
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
    fits.then_some(SettlementRow { all, suspended, last })
}

/// Writes a settlement if its claim holds. `claim` is the mark of the transaction of the step, if it is written there.
pub(super) async fn settle_one(
    store: &PostgresStore,
    connection: &mut PgConnection,
    identifier: &str,
    row: &SettlementRow<'_>,
    claim: Option<&str>,
) -> sqlx::Result<Option<SettleResult>> {
    let (statement, state) = match (row.last.is_some(), row.returned().is_some()) {
        (true, false) => (&store.sql.settle_end_one, RowState::Ended),
        (true, true) => (&store.sql.settle_end_value_one, RowState::Ended),
        (false, false) => (&store.sql.settle_advance_one, RowState::Running),
        (false, true) => (&store.sql.settle_advance_value_one, RowState::Running),
    };
    let settled = bind_one(statement, row, identifier, claim).fetch_optional(connection).await?;
    settled.map(|settled| result(&settled, state)).transpose()
}

/// The statement that writes the settlements whose claims hold.
pub(super) fn settle_many<'q>(
    store: &PostgresStore,
    identifier: &'q str,
    rows: &[SettlementRow<'q>],
) -> Query<'q, Postgres, PgArguments> {
    bind_many(&store.sql.settle_advance_many, rows, identifier)
}

pub(super) fn result_of_many(row: &PgRow) -> sqlx::Result<((Uuid, i64), SettleResult)> {
    let id = (row.try_get("id")?, row.try_get("epoch")?);
    let state = if row.try_get("ended")? { RowState::Ended } else { RowState::Running };
    Ok((id, result(row, state)?))
}

pub(super) fn result(row: &PgRow, state: RowState) -> sqlx::Result<SettleResult> {
    Ok(SettleResult {
        state,
        overdue: false,
        last_event_at: time(row, "last_event_at")?,
        ready_handlers: vec![],
    })
}
