//! What usually follows on the way back from a step that had launched something: all that is told to roll back. By a
//! statement of its own, for many runs at once.

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
        let tells_of = |(event, told): (&EventRow, &RollbackRequestRow)| {
            event.is(EventKind::RollbackEmitted)
                && event.message_id == told.message_id
                && event.step == suspended.step
                && event.inherits_from_run()
        };
        let fits = all.fits_fast_path()
            && all.backward
            && all.ends.is_none()
            && all.emissions.is_empty()
            && all.return_values.is_empty()
            && !emitted.is_empty()
            && emitted.len() == all.told.len()
            && emitted.iter().zip(&all.told).all(tells_of)
            && suspended.is(EventKind::Suspended)
            && suspended.inherits_from_run()
            && (suspended.next_step, suspended.handler_iteration) == (None, None)
            && all.step == suspended.step
            && all.jump == suspended.jump
            && (all.iteration, all.handler_iteration) == (Some(0), None)
            && all.definition.is_none();
        fits.then_some(Self { all, suspended })
    }

    /// What it tells, each with the event that says so.
    fn told(&self) -> impl Iterator<Item = (&'a EventRow, &'a RollbackRequestRow)> + use<'a> {
        self.all.events.iter().zip(&self.all.told)
    }
}

/// Writes those whose claims still hold. Never in the transaction of a step: no code leads to this.
pub(super) async fn settle_all(
    store: &PostgresStore,
    connection: &mut PgConnection,
    identifier: &str,
    telling: &[RequestRollback<'_>],
) -> sqlx::Result<Vec<PgRow>> {
    let each = || telling.iter();
    let every =
        || (1..).zip(telling).flat_map(|(nth, one)| one.told().map(move |(event, row)| (nth, event, row)));
    sqlx::query(store.sql.settle_request_rollback_many.clone())
        .bind(each().map(|one| one.all.root).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.id).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.epoch).collect::<Vec<_>>())
        .bind(each().map(|one| one.suspended.step.as_deref()).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.suspensions).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.outputs.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.replied).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.context.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.told_because.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(each().map(|one| count(one.all.told.len())).collect::<Vec<_>>())
        .bind(every().map(|(nth, ..)| nth).collect::<Vec<i32>>())
        .bind(every().map(|(_, event, _)| count(event.until_last)).collect::<Vec<_>>())
        .bind(every().map(|(.., row)| row.message_id).collect::<Vec<_>>())
        .bind(every().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(identifier)
        .bind(each().map(|one| one.all.jump.as_deref()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
}
