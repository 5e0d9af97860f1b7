//! What the crate for operators builds on: the connections, the schema and the clock of a program on PostgreSQL, and how rows become
//! values. It is not part of the public API.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use crate::api::RequestInfo;
pub use crate::api::operations::*;
pub use crate::error::{ErrorKind, is_of_setup, is_refused, unarchived, written};
pub use crate::model::entity::StoredEntityEvent;
pub use crate::model::format::{ahead, humane, strategy, system_time, utc};
use crate::model::handlers::RegisteredHandler;
pub use crate::model::program::IDENTIFIER_PREFIX;
pub use crate::model::pruning::{PruneResult, PruneVerdict, RefusedDeletions};
pub use crate::model::retention::RETENTION_MIN;
pub use crate::model::run::QUEUED_MIN;
pub use crate::model::run::no_failure;
pub use crate::model::stored_time::StoredTime;
pub use crate::repair::{DamagedRollback, RepairAction, no_program};
pub use crate::store::{
    Archive, EntityId, Expired, FIRST_MAX, FetchExt, HandlerList, ParentRef, PostgresStore, PruneBatch,
    PruneMode, PruneTimes, READ_COMMITTED, ROWS_MAX, RequestTarget, StoredEntity, UNKNOWN_MAX, commit,
    concurrency, failed_attempts, failure_if_readable, find_field, lineage, pauses, phase, priority, rate,
    seconds, serial, stored_time, time, time_if_any, without_comments,
};
use crate::store::{DueStorage as _, NewMessage, RequestStorage as _, Store, SubscriptionStorage as _};
pub use crate::telemetry::{pause_began, pause_ended, pruned, refusal, undeletable};
pub use crate::util::detached::run_to_completion;
pub use crate::util::panic_boundary::{DropGuarded, run as guarded};
pub use crate::util::payload::storable;
pub use crate::util::read_permits::is_out_of_permits;
pub use crate::util::retries::{Attempt, FOREVER, GivenUp, Retries};
pub use crate::util::when::Now;
use crate::{IdObject, Scoop};

/// Helpers for the JSON of what operators read.
pub mod json {
    pub use crate::model::json::{lineage, millis, rollback_failure, time};
}

/// The ids of the message and of the hierarchy that are launched on this topic with this unique key.
pub fn unique_ids(topic: &str, key: &str) -> (Uuid, Uuid) {
    let ids = NewMessage::unique_ids(topic, key);
    (ids.id, ids.root)
}

/// Returns once a shutdown of this program, or of this client, has begun, or all of its handles are gone: for streams that a server waits
/// for when it stops.
pub fn shutdown_begun(scoop: &Scoop) -> impl Future<Output = ()> + Send + 'static {
    scoop.shutdown_begun()
}

/// Notifies the processes with these handlers.
pub fn notify_ready(scoop: &Scoop, handlers: &[String]) {
    scoop.notify_ready(handlers);
}

/// Has the engine of this process look for what is due, such as the end of a pause.
pub fn reschedule_timer(scoop: &Scoop) {
    scoop.reschedule_timer();
}

/// Wakes runs that may wait for no child any more.
pub async fn wake(scoop: &Scoop, parents: &[ParentRef]) -> Result<(), GivenUp> {
    scoop.wake(parents).await
}

/// The tables of a program, with its settings. They do not keep the program running.
pub struct Tables {
    /// The store.
    pub store: Arc<PostgresStore>,
    /// For how long an operation is retried while the database is away.
    pub retry_for: Duration,
    /// The maximum size of a payload.
    pub payload_bytes_max: usize,
    /// What gets hierarchies before they are deleted.
    pub archive: Option<Archive>,
    /// Cancelled by a shutdown.
    pub stopped: CancellationToken,
}

impl Deref for Tables {
    type Target = PostgresStore;

    fn deref(&self) -> &PostgresStore {
        &self.store
    }
}

impl Tables {
    /// Of a program that runs on PostgreSQL.
    pub fn of(scoop: &Scoop) -> Option<Self> {
        match scoop.store() {
            Store::Postgres(store) => Some(Self {
                store: store.clone(),
                retry_for: scoop.retry_for(),
                payload_bytes_max: scoop.limits().payload_bytes_max,
                archive: scoop.archive().cloned(),
                stopped: scoop.stopped().clone(),
            }),
            #[cfg(feature = "in-memory")]
            Store::Memory(_) => None,
        }
    }
}

/// Operations that the store in memory has, too: their traits are not public.
impl Tables {
    /// The time of the server.
    pub async fn now(&self) -> sqlx::Result<Now> {
        self.store.now().await
    }

    /// What an id names.
    pub async fn named(&self, id: Uuid) -> sqlx::Result<Option<IdObject>> {
        self.store.named(id).await
    }

    /// The registered handlers.
    pub async fn list_handlers(&self, part: &HandlerList) -> sqlx::Result<Vec<RegisteredHandler>> {
        self.store.list_handlers(part).await
    }
}
