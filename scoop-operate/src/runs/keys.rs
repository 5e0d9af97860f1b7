//! Hierarchies that are found by the unique key of their launch, on any topic.

use scoop_runtime::HierarchyId;
use scoop_runtime::internal::{FetchExt as _, unique_ids};
use serde::Serialize;
use sqlx::Row;
use uuid::Uuid;

use super::Runs;
use crate::OperateError;
use crate::database::Database;
use crate::statements::{KEY_FIND, TOPIC_LIST};

/// A hierarchy whose message was launched with a unique key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FoundKey {
    /// The topic of the message.
    pub topic: String,
    /// The hierarchy.
    pub hierarchy: HierarchyId,
}

impl Runs {
    /// The hierarchies whose messages were launched with this unique key, of all topics that have or had a handler.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for found in scoop.operate().runs().with_key("order 2167").await? {
    ///     println!("{} on topic {}", found.hierarchy, found.topic);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn with_key(&self, key: &str) -> Result<Vec<FoundKey>, OperateError> {
        let database = self.operate.database();
        database.read_retrying("a unique key was looked up", |_| database.with_key(key)).await
    }
}

impl Database {
    async fn with_key(&self, key: &str) -> sqlx::Result<Vec<FoundKey>> {
        let topics = sqlx::query(self.text(TOPIC_LIST)).all(self.sessions()).await?;
        let topics: Vec<String> =
            topics.iter().map(|row| row.try_get("name")).collect::<sqlx::Result<_>>()?;
        let ids: Vec<_> = topics.iter().map(|topic| unique_ids(topic, key)).collect();
        let messages: Vec<_> = ids.iter().map(|(message, _)| *message).collect();
        let known = sqlx::query(self.text(KEY_FIND)).bind(messages).all(self.sessions()).await?;
        let known: Vec<Uuid> = known.iter().map(|row| row.try_get("id")).collect::<sqlx::Result<_>>()?;
        let found = topics.into_iter().zip(ids).filter(|(_, (message, _))| known.contains(message));
        Ok(found.map(|(topic, (_, root))| FoundKey { topic, hierarchy: root.into() }).collect())
    }
}
