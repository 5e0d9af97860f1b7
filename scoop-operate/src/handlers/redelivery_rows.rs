//! Delivers messages to handlers that were registered after their launch.

use std::collections::BTreeSet;

use scoop_core::{Context, Direction};
use scoop_runtime::internal::{FetchExt as _, READ_COMMITTED, commit};
use sqlx::types::Json;
use sqlx::{PgConnection, Row};
use time::{Duration, OffsetDateTime};
use uuid::{Builder, Uuid};

use crate::database::Database;
use crate::statements::{FOUND_BY_COPY, REDELIVER, REDELIVER_FIND, REDELIVER_LOCK};

const EVENTS_MAX: i64 = 10_000;

/// The largest lag of a program's clock, which makes the ids of events, behind the server's.
const SKEW_MAX: Duration = Duration::MINUTE;

/// The result of one page of a redelivery.
#[derive(Debug, Default)]
pub(super) struct Redelivery {
    /// The hierarchies that continue or begin, one for each message.
    pub(super) roots: BTreeSet<Uuid>,
    pub(super) handlers: BTreeSet<String>,
    /// Whether a message has a due time or a deadline.
    pub(super) has_timer: bool,
    /// The event to continue after; `None` at the end.
    pub(super) next: Option<Uuid>,
}

/// A message that seems to have no handler.
struct Candidate {
    message: Uuid,
    context: Context,
}

struct Found {
    candidates: Vec<Candidate>,
    next: Option<Uuid>,
}

impl Database {
    pub(super) async fn redeliver(
        &self,
        topic: &str,
        since: OffsetDateTime,
        after: Option<Uuid>,
        limit: usize,
    ) -> sqlx::Result<Redelivery> {
        let after = after.unwrap_or_else(|| first_id_of(since - SKEW_MAX));
        let Found { candidates, next } = self.find_unhandled(topic, since, after, limit).await?;
        let mut redelivery = Redelivery { next, ..Redelivery::default() };
        if candidates.is_empty() {
            return Ok(redelivery);
        }
        let mut tx = self.sessions().begin_with(READ_COMMITTED).await?;
        let ids: Vec<_> = candidates.iter().map(|candidate| candidate.message).collect();
        let locked = sqlx::query_scalar(self.text(REDELIVER_LOCK)).bind(ids);
        let locked: BTreeSet<Uuid> = locked.all_on(&mut tx).await?.into_iter().collect();
        let taken = candidates.into_iter().filter(|candidate| locked.contains(&candidate.message));
        self.deliver(&mut tx, &taken.collect::<Vec<_>>(), &mut redelivery).await?;
        commit(tx).await?;
        Ok(redelivery)
    }

    async fn find_unhandled(
        &self,
        topic: &str,
        since: OffsetDateTime,
        after: Uuid,
        limit: usize,
    ) -> sqlx::Result<Found> {
        let rows = sqlx::query(self.text(REDELIVER_FIND))
            .bind(topic)
            .bind(since)
            .bind(after)
            .bind(EVENTS_MAX)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .all(self.sessions())
            .await?;
        let mut found = Found { candidates: vec![], next: None };
        for row in &rows {
            let full = row.try_get::<i64, _>("events")? == EVENTS_MAX;
            found.next = row.try_get::<Option<Uuid>, _>("last")?.filter(|_| full);
            if let Some(message) = row.try_get("message_id")? {
                let context: Option<Json<Context>> = row.try_get("context")?;
                let context = context.map(|Json(context)| context).unwrap_or_default();
                found.candidates.push(Candidate { message, context });
            }
        }
        if let Some(last) = rows.last().filter(|_| found.candidates.len() >= limit) {
            found.next = last.try_get("event")?;
        }
        Ok(found)
    }

    async fn deliver(
        &self,
        tx: &mut PgConnection,
        messages: &[Candidate],
        redelivery: &mut Redelivery,
    ) -> sqlx::Result<()> {
        let fresh = || messages.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>();
        let give_up_at =
            |candidate: &Candidate| candidate.context.give_up_at(Direction::Forward).into_iter().min();
        let (asked, copies): (Vec<_>, _) =
            (messages.iter().map(|candidate| candidate.message).collect(), fresh());
        let delivered = sqlx::query(self.text(REDELIVER))
            .bind(&asked)
            .bind(messages.iter().map(|candidate| candidate.context.not_before()).collect::<Vec<_>>())
            .bind(messages.iter().map(give_up_at).collect::<Vec<_>>())
            .bind(fresh())
            .bind(&copies)
            .bind(fresh())
            .fetch_all(&mut *tx)
            .await?;
        // Of those that were copied: no other message has such a hierarchy.
        self.copy_found_by(tx, &asked, &copies).await?;
        for row in delivered {
            redelivery.roots.insert(row.try_get("root")?);
            redelivery.handlers.insert(row.try_get("handler")?);
        }
        let sets_a_time = |one: &Candidate| {
            one.context.not_before().is_some() || !one.context.give_up_at(Direction::Forward).is_empty()
        };
        redelivery.has_timer = messages.iter().any(sets_a_time);
        Ok(())
    }

    /// Records by what copies of messages are found, as these are: of each what it is stored under, and the hierarchy of its copy.
    pub(crate) async fn copy_found_by(
        &self,
        connection: &mut PgConnection,
        found: &[Uuid],
        copies: &[Uuid],
    ) -> sqlx::Result<()> {
        sqlx::query(self.text(FOUND_BY_COPY)).bind(found).bind(copies).execute(connection).await?;
        Ok(())
    }
}

/// The least id that can have been made at this time.
fn first_id_of(time: OffsetDateTime) -> Uuid {
    let millis = u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
    Builder::from_u128(u128::from(millis) << 80).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_an_event_is_later_than_the_least_of_its_time() {
        let now = OffsetDateTime::now_utc();
        let id = Uuid::now_v7();
        assert!(first_id_of(now) <= id && id < first_id_of(now + Duration::HOUR));
        assert_eq!(first_id_of(OffsetDateTime::UNIX_EPOCH - Duration::DAY), Uuid::nil());
    }
}
