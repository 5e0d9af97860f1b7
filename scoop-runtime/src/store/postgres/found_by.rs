//! Stores by what the runs of messages are found (`found_by_*.sql`), in the transactions that launch these.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use scoop_core::{FIND_FIELDS_MAX, FindKind, FoundBy};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::PostgresStore;
use super::query_ext::{ExecuteExt, FetchExt};
use crate::model::subscribed_saga::SubscribedSaga;
use crate::store::{FindFields, NewMessage, Settlement};
use crate::util::sync::lock;

/// For how long the fields that were read count.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// The registered fields of all topics, with the time at which they were read.
#[derive(Debug, Default)]
pub(super) struct KnownFields(Option<(Instant, BTreeMap<String, FindFields>)>);

impl KnownFields {
    fn of(&self, topic: &str) -> Option<FindFields> {
        let (_, fields) = self.0.as_ref().filter(|(read_at, _)| read_at.elapsed() < KNOWN_FOR)?;
        Some(fields.get(topic).cloned().unwrap_or_default())
    }
}

impl PostgresStore {
    /// The fields by which messages of a topic are found, as programs registered them, or as they were a minute before.
    pub(in crate::store) async fn find_fields(&self, topic: &str) -> sqlx::Result<FindFields> {
        let known = lock(&self.find_fields).of(topic);
        if let Some(known) = known {
            return Ok(known);
        }
        let read_at = Instant::now();
        let mut fields: BTreeMap<String, Vec<(String, FindKind)>> = BTreeMap::new();
        for row in sqlx::query(self.sql.find_field_list.clone()).all(&self.sessions).await? {
            fields.entry(row.try_get("topic")?).or_default().extend(find_field(&row)?);
        }
        // Programs of several versions may have registered more than a message can have.
        fields.values_mut().for_each(|fields| fields.truncate(FIND_FIELDS_MAX));
        let fields = fields.into_iter().map(|(topic, fields)| (topic, fields.into())).collect();
        let mut known = lock(&self.find_fields);
        known.0 = Some((read_at, fields));
        Ok(known.of(topic).unwrap_or_default())
    }

    /// Registers the fields by which the messages of these sagas are found.
    pub(super) async fn publish_find_fields(&self, subscriptions: &[SubscribedSaga]) -> sqlx::Result<()> {
        let each = || {
            let each = subscriptions.iter();
            each.flat_map(|it| it.settings.find_by.iter().enumerate().map(|field| (&*it.topic, field)))
        };
        if each().next().is_none() {
            return Ok(());
        }
        sqlx::query(self.sql.find_field_publish.clone())
            .bind(each().map(|(topic, _)| topic).collect::<Vec<_>>())
            .bind(each().map(|(_, (_, field))| field.name).collect::<Vec<_>>())
            .bind(each().map(|(_, (_, field))| field.kind.name()).collect::<Vec<_>>())
            .bind(each().map(|(_, (position, _))| signed(position)).collect::<Vec<_>>())
            .run(&self.sessions)
            .await?;
        Ok(())
    }

    /// Records by what messages are found that this transaction has launched. Those that were there before are left out.
    pub(super) async fn record_found_by(
        &self,
        connection: &mut PgConnection,
        messages: &[NewMessage],
    ) -> sqlx::Result<()> {
        let each =
            messages.iter().flat_map(|message| message.found_by.iter().map(|found| (message.id, found)));
        self.insert_found_by(connection, each.collect()).await
    }

    /// Records by what the messages are found that applied settlements have launched in this transaction.
    pub(super) async fn record_found_by_of<'a>(
        &self,
        connection: &mut PgConnection,
        applied: impl IntoIterator<Item = &'a Settlement>,
    ) -> sqlx::Result<()> {
        let launched = applied.into_iter().flat_map(|settlement| &settlement.emissions);
        let each = launched.flat_map(|row| row.found_by.iter().map(|found| (row.id, found)));
        self.insert_found_by(connection, each.collect()).await
    }

    /// Records by what these messages are found.
    pub async fn insert_found_by(
        &self,
        connection: &mut PgConnection,
        found: Vec<(Uuid, &FoundBy)>,
    ) -> sqlx::Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        let each = || found.iter().map(|(_, found)| found);
        sqlx::query(self.sql.found_by_record.clone())
            .bind(found.iter().map(|(message, _)| *message).collect::<Vec<_>>())
            .bind(each().map(|found| signed(found.position)).collect::<Vec<_>>())
            .bind(each().map(|found| &*found.name).collect::<Vec<_>>())
            .bind(each().map(|found| Json(&found.value)).collect::<Vec<_>>())
            // The transaction may be one of the user, in which names may be taken.
            .persistent(self.sessions.supports_prepared())
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// The field of a row; `None` if a later version wrote its kind.
pub fn find_field(row: &PgRow) -> sqlx::Result<Option<(String, FindKind)>> {
    let kind = FindKind::named(row.try_get("kind")?);
    kind.map(|kind| Ok((row.try_get("name")?, kind))).transpose()
}

/// A number of a field, which are few.
fn signed(position: usize) -> i16 {
    i16::try_from(position).unwrap_or(i16::MAX)
}
