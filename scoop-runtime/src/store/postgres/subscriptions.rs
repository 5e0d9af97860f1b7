//! The subscriptions of handlers, for operators.

use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row};
use uuid::Uuid;

use super::PostgresStore;
use super::decode::{time, time_if_any};
use super::limit::limits;
use super::query_ext::{ExecuteExt, FetchExt};
use super::retention::in_seconds;
use crate::model::format::system_time;
use crate::model::handlers::RegisteredHandler;
use crate::model::launched_topics::StepTopic;
use crate::model::retention::Retention;
use crate::model::subscribed_saga::{Renamed, SubscribedSaga};
use crate::store::{ABANDONED_MAX, HandlerList, ProgramRegistration, SubscriptionStorage};

impl SubscriptionStorage for PostgresStore {
    async fn register(&self, subscriptions: &[SubscribedSaga], retention: Retention) -> sqlx::Result<()> {
        let each = || subscriptions.iter();
        let times = |time: fn(Retention) -> Duration| -> Vec<_> {
            each().map(|it| in_seconds(time(it.retention(retention)))).collect()
        };
        sqlx::query(self.sql.retention_publish.clone())
            .bind(each().map(|it| &*it.topic).collect::<Vec<_>>())
            .bind(each().map(|it| &*it.handler).collect::<Vec<_>>())
            .bind(times(|retention| retention.committed))
            .bind(times(|retention| retention.rolled_back))
            .bind(times(|retention| retention.unique_keys))
            .bind(retention.is_archived)
            .run(&self.sessions)
            .await?;
        let redacted = || each().flat_map(|it| it.settings.redacted.iter().map(|field| (&*it.topic, *field)));
        if redacted().next().is_some() {
            sqlx::query(self.sql.redaction_publish.clone())
                .bind(redacted().map(|(topic, _)| topic).collect::<Vec<_>>())
                .bind(redacted().map(|(_, field)| field).collect::<Vec<_>>())
                .run(&self.sessions)
                .await?;
        }
        self.publish_find_fields(subscriptions).await?;
        let former = || each().flat_map(|it| it.was.iter().map(|was| (&*it.handler, &**was)));
        sqlx::query(self.sql.handler_register.clone())
            .bind(each().map(|it| &*it.topic).collect::<Vec<_>>())
            .bind(each().map(|it| &*it.handler).collect::<Vec<_>>())
            .bind(former().map(|(handler, _)| handler).collect::<Vec<_>>())
            .bind(former().map(|(_, was)| was).collect::<Vec<_>>())
            .run(&self.sessions)
            .await?;
        sqlx::query(self.sql.run_add_ballast.clone()).run(&self.sessions).await?;
        Ok(())
    }

    async fn renamed_sagas(&self, subscriptions: &[SubscribedSaga]) -> sqlx::Result<Vec<Renamed>> {
        let renamed = sqlx::query_as(self.sql.handler_list_renamed.clone())
            .bind(subscriptions.iter().map(|it| &*it.topic).collect::<Vec<_>>())
            .bind(subscriptions.iter().map(|it| &*it.handler).collect::<Vec<_>>())
            .all(&self.sessions);
        let renamed = renamed.await?.into_iter();
        Ok(renamed.map(|(topic, name, own_name)| Renamed { topic, name, own_name }).collect())
    }

    async fn list_handlers(&self, part: &HandlerList) -> sqlx::Result<Vec<RegisteredHandler>> {
        let rows = sqlx::query(self.sql.handler_list.clone())
            .bind(&*part.after.0)
            .bind(&*part.after.1)
            .bind(&*part.named)
            .bind(part.limit.map(i64::from))
            .bind(part.topic.as_deref())
            .bind(part.saga.as_deref())
            .all(&self.sessions)
            .await?;
        rows.iter().map(RegisteredHandler::from_row).collect()
    }
}

impl PostgresStore {
    pub(crate) async fn registration(
        &self,
        worker: Uuid,
        subscriptions: &[SubscribedSaga],
    ) -> sqlx::Result<ProgramRegistration> {
        let (has_worker, missing): (bool, Vec<i64>) = sqlx::query_as(self.sql.worker_registration.clone())
            .bind(worker)
            .bind(subscriptions.iter().map(|it| &*it.topic).collect::<Vec<_>>())
            .bind(subscriptions.iter().map(|it| &*it.handler).collect::<Vec<_>>())
            .one(&self.sessions)
            .await?;
        let missing = missing.into_iter().filter_map(|position| usize::try_from(position - 1).ok()).collect();
        Ok(ProgramRegistration { lacks_worker: !has_worker, missing })
    }

    pub(crate) async fn record_launches(&self, seen: &[StepTopic]) -> sqlx::Result<()> {
        let query = sqlx::query(self.sql.launches_record.clone());
        query
            .bind(seen.iter().map(|it| &*it.saga).collect::<Vec<_>>())
            .bind(seen.iter().map(|it| &*it.step).collect::<Vec<_>>())
            .bind(seen.iter().map(|it| &*it.topic).collect::<Vec<_>>())
            .run(&self.sessions)
            .await?;
        Ok(())
    }

    pub(crate) async fn declare_launches(
        &self,
        sagas: &[String],
        declared: &[StepTopic],
    ) -> sqlx::Result<()> {
        let query = sqlx::query(self.sql.launches_declare.clone()).bind(sagas);
        query
            .bind(declared.iter().map(|it| &*it.saga).collect::<Vec<_>>())
            .bind(declared.iter().map(|it| &*it.step).collect::<Vec<_>>())
            .bind(declared.iter().map(|it| &*it.topic).collect::<Vec<_>>())
            .run(&self.sessions)
            .await?;
        Ok(())
    }

    pub(crate) async fn launches(&self, of: &[String]) -> sqlx::Result<Vec<StepTopic>> {
        let rows = sqlx::query(self.sql.launches_list.clone()).bind(of).all(&self.sessions).await?;
        let mut seen = vec![];
        for row in &rows {
            if time_if_any(row, "seen_at")?.is_some() {
                let (saga, step) = (row.try_get("saga")?, row.try_get("step")?);
                seen.push(StepTopic { saga, step, topic: row.try_get("topic")? });
            }
        }
        Ok(seen)
    }

    pub(crate) async fn abandoned_sagas(&self) -> sqlx::Result<Vec<(String, String)>> {
        let query = sqlx::query_as(self.sql.handler_list_abandoned.clone());
        query.bind(i64::try_from(ABANDONED_MAX).unwrap_or(i64::MAX)).all(&self.sessions).await
    }
}

impl RegisteredHandler {
    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let since = system_time(time(row, "since")?);
        let (topic, handler) = (row.try_get("topic")?, row.try_get("handler")?);
        Ok(Self { topic, handler, since, service: row.try_get("service")?, limits: limits(row)? })
    }
}

impl PostgresStore {
    /// Reads the recorded and declared launches of all sagas.
    pub fn launches_query(&self) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(self.sql.launches_list.clone()).bind(None::<Vec<String>>)
    }
}
