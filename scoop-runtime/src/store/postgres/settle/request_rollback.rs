//! The usual outcome of a part of a rollback behind a step that had launched messages: it requests their rollback.

use scoop_core::EventKind;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;

use super::parameters::{SettlementRow, bind_many, bind_messages};
use crate::store::settlement::{EventRow, RollbackRequestRow};
use crate::store::{PostgresStore, Settlement};

pub(super) fn of(all: &Settlement) -> Option<SettlementRow<'_>> {
    let (suspended, emitted) = all.events.split_last()?;
    let is_request = |(event, request): (&EventRow, &RollbackRequestRow)| {
        event.is(EventKind::RollbackEmitted)
            && event.message_id == request.message_id
            && event.step == suspended.step
            && event.inherits_from_run()
    };
    let fits = all.fits_fast_path()
        && all.rolling_back
        && all.ends.is_none()
        && all.emissions.is_empty()
        && all.return_values.is_empty()
        && !emitted.is_empty()
        && emitted.len() == all.rollback_requests.len()
        && emitted.iter().zip(&all.rollback_requests).all(is_request)
        && suspended.is(EventKind::Suspended)
        && suspended.inherits_from_run()
        && (suspended.next_step, suspended.handler_iteration) == (None, None)
        && all.step == suspended.step
        && all.jump == suspended.jump
        && (all.iteration, all.handler_iteration) == (Some(0), None)
        && all.definition.is_none();
    fits.then_some(SettlementRow { all, suspended: Some(suspended), last: None })
}

/// Writes the settlements whose claims hold. Never in the transaction of a step: no code leads to this.
pub(super) async fn settle_many(
    store: &PostgresStore,
    connection: &mut PgConnection,
    identifier: &str,
    rows: &[SettlementRow<'_>],
) -> sqlx::Result<Vec<PgRow>> {
    let statement = bind_many(&store.sql.settle_request_rollback_many, rows, identifier);
    bind_messages(statement, rows, EventKind::RollbackEmitted).fetch_all(connection).await
}
