//! The outcome of a step that ended well and launched messages that are due at once.

use scoop_core::EventKind;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use sqlx::types::Json;

use super::parameters::{SettlementRow, bind_many, bind_messages, bind_one};
use crate::store::settlement::{EmissionRow, EventRow};
use crate::store::{PostgresStore, Settlement};
use crate::util::ids;

pub(super) fn of(all: &Settlement) -> Option<SettlementRow<'_>> {
    let (suspended, emitted) = all.events.split_last()?;
    let is_launch = |(event, emission): (&EventRow, &EmissionRow)| {
        event.is(EventKind::Emitted)
            && event.message_id == emission.id
            && event.step == suspended.step
            && emission.is_immediate_child()
    };
    let fits = all.fits_fast_path()
        && all.rollback_requests.is_empty()
        && all.ends.is_none()
        && !emitted.is_empty()
        && emitted.len() == all.emissions.len()
        && emitted.iter().zip(&all.emissions).all(is_launch)
        && suspended.is(EventKind::Suspended)
        && suspended.inherits_from_run();
    fits.then_some(SettlementRow { all, suspended: Some(suspended), last: None })
}

/// Writes those whose claims hold. `claim` is the mark of the transaction of a step, if this happens in there, to one of
/// them alone.
pub(super) async fn settle(
    store: &PostgresStore,
    connection: &mut PgConnection,
    identifier: &str,
    rows: &[SettlementRow<'_>],
    claim: Option<&str>,
) -> sqlx::Result<Vec<PgRow>> {
    let statement = match rows {
        [one] => {
            let statement = match one.returned() {
                Some(_) => &store.sql.settle_launch_value_one,
                None => &store.sql.settle_launch_one,
            };
            bind_one(statement, one, identifier, claim)
        }
        many => {
            assert!(claim.is_none(), "a step has a transaction of its own");
            bind_many(&store.sql.settle_launch_many, many, identifier)
        }
    };
    let each =
        || rows.iter().flat_map(|row| row.all.emissions.iter().map(move |launched| (row.all, launched)));
    bind_messages(statement, rows, EventKind::Emitted)
        .bind(each().map(|(_, launched)| &*launched.topic).collect::<Vec<_>>())
        // Null for those that are stored ahead.
        .bind(
            each()
                .map(|(all, launched)| (!all.is_bulky()).then_some(Json(&launched.payload.value)))
                .collect::<Vec<_>>(),
        )
        .bind(each().map(|(_, launched)| launched.context.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
}
