//! The settlement of the usual part of a rollback that requests the rollback of launched messages. By a statement of
//! its own, for many runs at once.

use scoop_core::EventKind;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use sqlx::types::Json;

use crate::store::settlement::{EventRow, RollbackRequestRow, count};
use crate::store::{PostgresStore, Settlement};
use crate::util::ids;

/// A settlement that is no more than that.
pub(super) struct RequestRollback<'a> {
    all: &'a Settlement,
    suspended: &'a EventRow,
}

impl<'a> RequestRollback<'a> {
    /// The settlement as such, if there is no more to it.
    pub(super) fn of(all: &'a Settlement) -> Option<Self> {
        let (suspended, emitted) = all.events.split_last()?;
        let is_of = |(event, request): (&EventRow, &RollbackRequestRow)| {
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
            && emitted.iter().zip(&all.rollback_requests).all(is_of)
            && suspended.is(EventKind::Suspended)
            && suspended.inherits_from_run()
            && (suspended.next_step, suspended.handler_iteration) == (None, None)
            && all.step == suspended.step
            && all.jump == suspended.jump
            && (all.iteration, all.handler_iteration) == (Some(0), None)
            && all.definition.is_none();
        fits.then_some(Self { all, suspended })
    }

    /// Its rollback requests, each with its event.
    fn requests(&self) -> impl Iterator<Item = (&'a EventRow, &'a RollbackRequestRow)> + use<'a> {
        self.all.events.iter().zip(&self.all.rollback_requests)
    }
}

/// Writes those whose claims still hold. Never in the transaction of a step: no code leads to this.
pub(super) async fn settle_all(
    store: &PostgresStore,
    connection: &mut PgConnection,
    identifier: &str,
    requesting: &[RequestRollback<'_>],
) -> sqlx::Result<Vec<PgRow>> {
    let each = || requesting.iter();
    let every = || {
        (1..).zip(requesting).flat_map(|(nth, one)| one.requests().map(move |(event, row)| (nth, event, row)))
    };
    sqlx::query(store.sql.settle_request_rollback_many.clone())
        .bind(each().map(|one| one.all.root).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.id).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.epoch).collect::<Vec<_>>())
        .bind(each().map(|one| one.suspended.step.as_deref()).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.suspensions).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.outputs.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.replied).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.context.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.rollback_cause.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(each().map(|one| count(one.all.rollback_requests.len())).collect::<Vec<_>>())
        .bind(every().map(|(nth, ..)| nth).collect::<Vec<i32>>())
        .bind(every().map(|(_, event, _)| count(event.until_last)).collect::<Vec<_>>())
        .bind(every().map(|(.., row)| row.message_id).collect::<Vec<_>>())
        .bind(every().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(identifier)
        .bind(each().map(|one| one.all.jump.as_deref()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
}
