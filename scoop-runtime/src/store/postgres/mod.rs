//! The store on PostgreSQL: all SQL of the engine, one function per statement.

mod application_name;
mod begun_steps;
mod bulk;
mod cancel;
mod claim;
mod decode;
mod definitions;
mod due;
mod entity;
mod found_by;
mod free;
mod hook_settings;
mod idle_cache;
mod join;
mod launch;
mod limit;
mod limit_known;
mod limit_parked;
mod migrate;
mod notification;
mod pause;
mod pool;
mod preflight;
mod query_ext;
mod queue_limit;
mod repair;
mod retention;
mod rights;
mod rollback_history;
mod schedule;
mod server_clock;
mod session;
mod settle;
mod settle_parts;
mod shared_parts;
mod signal;
mod sizes;
mod statements;
mod status;
mod step_transactions;
mod subscriptions;
#[cfg(test)]
pub(crate) mod tests;
mod tree_rows;
mod wake;

pub use cancel::commit;
pub use decode::{
    failed_attempts, failure_if_readable, lineage, phase, priority, stored_time, time, time_if_any,
};
pub use found_by::find_field;
pub use limit::{concurrency, rate, serial};
pub(crate) use migrate::{files, migrate, unfit_tables};
pub(crate) use notification::SIGNAL_SENT;
pub use pause::pauses;
pub(crate) use pool::ConnectionSettings;
pub use pool::READ_COMMITTED;
pub(crate) use pool::Sessions;
pub(crate) use preflight::{check, low_limit, refusal};
pub use query_ext::FetchExt;
pub use retention::seconds;
pub(crate) use session::PostgresSession;
pub use settle_parts::without_comments;
pub(crate) use statements::{Schema, Statements};
pub(crate) use step_transactions::{MARKED, StepTransaction, StepTransactions, roll_back};

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::SqlStr;
use tokio::sync::OnceCell;

use self::server_clock::ServerClock;
use crate::util::sync::Mutex;

/// The store on PostgreSQL.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    sessions: Sessions,
    sql: Statements,
    clock: Arc<ServerClock>,
    /// Whether the role may write messages and runs itself, once that is known.
    writes: Arc<OnceCell<bool>>,
    join_locks: Arc<join::KeyLocks>,
    known: Arc<Mutex<HashMap<String, limit_known::KnownSaga>>>,
    /// The fields that this process knows to find messages by.
    find_fields: Arc<Mutex<found_by::KnownFields>>,
}

impl PostgresStore {
    /// Whether the other one is in the same schema of the same database, by its address.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|store| {
            let options = store.sessions.connect_options();
            let (host, socket) = (options.get_host().to_owned(), options.get_socket().cloned());
            (host, socket, options.get_port(), options.get_database().map(str::to_owned))
        });
        // The texts of statements contain the schema.
        own == others && self.sql.message_ended.as_str() == other.sql.message_ended.as_str()
    }

    pub(crate) fn new(sessions: Sessions, schema: &Schema) -> Self {
        Self {
            sessions,
            sql: Statements::new(schema),
            clock: Arc::default(),
            writes: Arc::default(),
            join_locks: Arc::default(),
            known: Arc::default(),
            find_fields: Arc::default(),
        }
    }

    /// Its connections.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// This text with the schema in place of `scoop`.
    pub fn qualify(&self, text: &str) -> SqlStr {
        self.sql.schema.qualify(text)
    }
}
