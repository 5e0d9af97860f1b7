//! The settings that the hooks of the user's pool (`after_connect`, `before_acquire`) make in a session.
//!
//! The reset of a session between two steps takes them back, too, so they are made again with it. To find them, the server
//! reads all its settings, which takes as long as a step. So it is only asked which there are, in a new connection and
//! once a second in a used one, and at each use of a connection for the values of those found so far: mostly none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tokio::time::Instant;

use super::step_transactions::RESET;
use crate::util::sync::{Mutex, lock};

/// The names of the settings that were made in this session. A setting with a name of its own (`app.tenant`) is not
/// listed by the server.
const NAMES: &str = "
    SELECT name FROM pg_catalog.pg_settings WHERE source OPERATOR(pg_catalog.=) 'session'
    UNION ALL SELECT 'role' WHERE pg_catalog.current_setting('role') OPERATOR(pg_catalog.<>) 'none'
    UNION ALL SELECT 'session_authorization' WHERE pg_catalog.current_setting('session_authorization') OPERATOR(pg_catalog.<>) $1
    UNION ALL SELECT 'is_superuser' FROM pg_catalog.pg_roles WHERE rolsuper AND rolname OPERATOR(pg_catalog.=) session_user";

/// Resets a change that only a superuser can make.
const RESET_USER: &str = "RESET SESSION AUTHORIZATION";

/// The statement that gives these settings their present values: the user last, since another one may lack the rights.
const RESTORE: &str = "
    SELECT 'SELECT ' OPERATOR(pg_catalog.||) pg_catalog.string_agg(
        pg_catalog.format('pg_catalog.set_config(%L, %L, false)', name, pg_catalog.current_setting(name)), ', '
        ORDER BY name OPERATOR(pg_catalog.=) 'role', name OPERATOR(pg_catalog.=) 'session_authorization', name)
    FROM pg_catalog.unnest($1::pg_catalog.text[]) AS name";

/// The interval of checks of connections that were in use before.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct HookSettings(Mutex<Found>);

#[derive(Default)]
struct Found {
    names: BTreeSet<String>,
    is_superuser: bool,
    /// The last check of a used connection.
    looked_at: Option<Instant>,
}

impl HookSettings {
    /// The statements that reset a connection which the pool has just handed out to this user: to its present state, but for
    /// what [`RESET`] removes.
    pub(super) async fn reset(&self, connection: &mut PgConnection, user: &str) -> sqlx::Result<Arc<str>> {
        let is_new = connection.cached_statements_size() == 0;
        if is_new || lock(&self.0).is_due() {
            let names = sqlx::query_scalar(NAMES).bind(user).persistent(false);
            let names: Vec<String> = names.fetch_all(&mut *connection).await?;
            let mut found = lock(&self.0);
            found.names.extend(names);
            found.is_superuser |= found.names.remove("is_superuser");
            if !is_new {
                found.looked_at = Some(Instant::now());
            }
        }
        let (names, is_superuser): (Vec<String>, bool) = {
            let found = lock(&self.0);
            (found.names.iter().cloned().collect(), found.is_superuser)
        };
        let reset = if is_superuser { format!("{RESET_USER}; {RESET}") } else { RESET.to_owned() };
        if names.is_empty() {
            return Ok(reset.into());
        }
        let restore: String = sqlx::query_scalar(RESTORE).bind(names).fetch_one(connection).await?;
        Ok(format!("{reset}; {restore}").into())
    }
}

impl Found {
    fn is_due(&self) -> bool {
        self.looked_at.is_none_or(|at| at.elapsed() >= INTERVAL)
    }
}
