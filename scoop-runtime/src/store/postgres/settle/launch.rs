//! The outcome of a step that went well and launched something that is due at once: by a statement of its own,
//! with typed lists, since a run may launch thousands, and one for a single run, which costs a fifth less.

use scoop_core::EventKind;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use sqlx::types::Json;

use crate::store::settlement::{EmissionRow, EventRow, ValueRow, count};
use crate::store::{PostgresStore, Settlement};
use crate::util::ids;

/// A settlement that is no more than that.
pub(super) struct LaunchChildren<'a> {
    all: &'a Settlement,
    suspended: &'a EventRow,
}

impl<'a> LaunchChildren<'a> {
    /// The settlement as such, if there is no more to it.
    pub(super) fn of(all: &'a Settlement) -> Option<Self> {
        let (suspended, emitted) = all.events.split_last()?;
        let tells_of = |(event, emission): (&EventRow, &EmissionRow)| {
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
            && emitted.iter().zip(&all.emissions).all(tells_of)
            && suspended.is(EventKind::Suspended)
            && suspended.inherits_from_run();
        fits.then_some(Self { all, suspended })
    }

    /// What it launched, each with the event that says so.
    fn launched(&self) -> impl Iterator<Item = (&'a EventRow, &'a EmissionRow)> + use<'a> {
        self.all.events.iter().zip(&self.all.emissions)
    }

    fn returned(&self) -> Option<&'a ValueRow> {
        self.all.return_values.first()
    }
}

/// Writes those whose claims still hold. `claim` is what the transaction of a step is marked with, if this happens
/// in there, to one of them alone.
pub(super) async fn settle(
    store: &PostgresStore,
    connection: &mut PgConnection,
    identifier: &str,
    launching: &[LaunchChildren<'_>],
    claim: Option<&str>,
) -> sqlx::Result<Vec<PgRow>> {
    match launching {
        [one] => settle_one(store, connection, identifier, one, claim).await,
        all => {
            debug_assert!(claim.is_none(), "a step has a transaction of its own");
            settle_all(store, connection, identifier, all).await
        }
    }
}

/// The payloads of messages; null for those that are stored ahead.
fn payloads<'a>(
    launched: impl Iterator<Item = (&'a Settlement, &'a EmissionRow)>,
) -> Vec<Option<Json<&'a Value>>> {
    launched.map(|(all, row)| (!all.is_bulky()).then_some(Json(&row.payload.value))).collect()
}

async fn settle_one(
    store: &PostgresStore,
    connection: &mut PgConnection,
    identifier: &str,
    one: &LaunchChildren<'_>,
    claim: Option<&str>,
) -> sqlx::Result<Vec<PgRow>> {
    let LaunchChildren { all, suspended } = one;
    let each = || one.launched();
    sqlx::query(store.sql.settle_launch_one.clone())
        .bind(all.root)
        .bind(all.id)
        .bind(all.epoch)
        .bind(claim)
        .bind(identifier)
        .bind(suspended.step.as_deref())
        .bind(suspended.next_step)
        .bind(all.iteration)
        .bind(suspended.handler_iteration)
        .bind(all.suspensions)
        .bind(all.outputs.as_ref().map(Json))
        .bind(all.replied)
        .bind(all.context.as_ref().map(Json))
        .bind(one.returned().map(|value| &*value.name))
        .bind(one.returned().map(|value| Json(&value.value)))
        .bind(ids::now_v7())
        .bind(count(all.emissions.len()))
        .bind(each().map(|(event, _)| count(event.until_last)).collect::<Vec<_>>())
        .bind(each().map(|(_, row)| row.id).collect::<Vec<_>>())
        .bind(each().map(|(_, row)| &*row.topic).collect::<Vec<_>>())
        .bind(payloads(each().map(|(_, row)| (*all, row))))
        .bind(each().map(|(_, row)| row.context.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(each().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(suspended.jump.as_deref())
        .bind(all.definition)
        .bind(all.completions.as_ref().map(Json))
        .fetch_all(connection)
        .await
}

async fn settle_all(
    store: &PostgresStore,
    connection: &mut PgConnection,
    identifier: &str,
    launching: &[LaunchChildren<'_>],
) -> sqlx::Result<Vec<PgRow>> {
    let each = || launching.iter();
    let every = || {
        (1..).zip(launching).flat_map(|(nth, one)| one.launched().map(move |(event, row)| (nth, event, row)))
    };
    sqlx::query(store.sql.settle_launch_many.clone())
        .bind(each().map(|one| one.all.root).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.id).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.epoch).collect::<Vec<_>>())
        .bind(each().map(|one| one.suspended.step.as_deref()).collect::<Vec<_>>())
        .bind(each().map(|one| one.suspended.next_step).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.iteration).collect::<Vec<_>>())
        .bind(each().map(|one| one.suspended.handler_iteration).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.suspensions).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.outputs.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.replied).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.context.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|one| one.returned().map(|value| &*value.name)).collect::<Vec<_>>())
        .bind(each().map(|one| one.returned().map(|value| Json(&value.value))).collect::<Vec<_>>())
        .bind(each().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(each().map(|one| count(one.all.emissions.len())).collect::<Vec<_>>())
        .bind(every().map(|(nth, ..)| nth).collect::<Vec<i32>>())
        .bind(every().map(|(_, event, _)| count(event.until_last)).collect::<Vec<_>>())
        .bind(every().map(|(.., row)| row.id).collect::<Vec<_>>())
        .bind(every().map(|(.., row)| &*row.topic).collect::<Vec<_>>())
        .bind(payloads(launching.iter().flat_map(|one| one.launched().map(|(_, row)| (one.all, row)))))
        .bind(every().map(|(.., row)| row.context.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(every().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(every().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(identifier)
        .bind(each().map(|one| one.suspended.jump.as_deref()).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.definition).collect::<Vec<_>>())
        .bind(each().map(|one| one.all.completions.as_ref().map(Json)).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
}
