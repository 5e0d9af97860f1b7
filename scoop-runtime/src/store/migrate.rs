//! Makes the tables and brings them up to date.
//!
//! The migrations are part of the program. Their history stands in a table of its own, in the
//! same schema as everything else, so that it meets neither the user's migrations nor those of a
//! second installation in another schema.

use std::borrow::Cow;
use std::cmp::Ordering;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Row};

use super::{Schema, Sessions};
use crate::error::is_denied;
use crate::{RuntimeError, SetupError};

const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "protocol", include_str!("../../migrations/0001_protocol.sql")),
    (2, "working set", include_str!("../../migrations/0002_working_set.sql")),
    (3, "schedule", include_str!("../../migrations/0003_schedule.sql")),
    (4, "intervention", include_str!("../../migrations/0004_intervention.sql")),
    (5, "lean", include_str!("../../migrations/0005_lean.sql")),
    (6, "settle", include_str!("../../migrations/0006_settle.sql")),
    (7, "repeated failure", include_str!("../../migrations/0007_repeated_failure.sql")),
    (8, "reply", include_str!("../../migrations/0008_reply.sql")),
    (9, "redelivery", include_str!("../../migrations/0009_redelivery.sql")),
    (10, "launch", include_str!("../../migrations/0010_launch.sql")),
];

/// The oldest server that has all we use, as `server_version_num`.
const SERVER_VERSION_MIN: i32 = 15_00_00;

/// Applies what is missing, on one connection of its own, like those of this pool. Several processes may do so at once;
/// they wait for each other.
///
/// A connection of the pool would be back there a moment later only. Another one would be opened until then, which the
/// server may not allow.
pub(crate) async fn migrate(pool: &PgPool, schema: &Schema) -> Result<(), RuntimeError> {
    let options = (*pool.connect_options()).clone();
    let own = pool.options().clone().max_connections(1).connect_lazy_with(options);
    let migrated = migrate_on(&own, schema).await;
    own.close().await;
    migrated
}

async fn migrate_on(pool: &PgPool, schema: &Schema) -> Result<(), RuntimeError> {
    let exists = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)");
    let exists = exists.bind(schema.name()).fetch_one(pool).await;
    let mut migrator = migrator(schema);
    if !exists.map_err(RuntimeError::database("the schema was looked up"))? {
        migrator.create_schema(schema.quoted().to_owned());
    }
    migrator.run(pool).await.map_err(|error| explain(error, schema))
}

/// The version of a server that is too old. Asked without a prepared statement, since the connection may lead through a
/// proxy: the check of that reports together with this one.
pub(super) async fn too_old(connection: &mut PgConnection) -> sqlx::Result<Option<String>> {
    let row = sqlx::raw_sql(
        "SELECT current_setting('server_version_num') AS number, current_setting('server_version') AS version",
    )
    .fetch_one(connection)
    .await?;
    let (number, version): (String, String) = (row.try_get("number")?, row.try_get("version")?);
    let number: i32 = number.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok((number < SERVER_VERSION_MIN).then_some(version))
}

/// What keeps a program that does not make the tables of this schema from using them.
pub(crate) async fn unfit_tables(sessions: &Sessions, schema: &Schema) -> sqlx::Result<Option<SetupError>> {
    let (table, name) = (format!("{}.migration", schema.quoted()), schema.name().to_owned());
    let exists = sessions.run(async |session| {
        sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(&table).fetch_one(session).await
    });
    if !exists.await? {
        return Ok(Some(SetupError::NoTables { what: format!("schema `{name}` has no tables of scoop") }));
    }
    // Safe: the name is quoted.
    let newest = AssertSqlSafe(format!("SELECT max(version) FROM {table} WHERE success"));
    let newest = sessions.run(async |session| sqlx::query_scalar(newest).fetch_one(session).await);
    let found: Option<i64> = match newest.await {
        // Its role need not be allowed to look.
        Err(error) if is_denied(&error) => return Ok(None),
        found => found?,
    };
    let (found, known) = (found.unwrap_or(0), newest_known());
    Ok(match found.cmp(&known) {
        Ordering::Less => Some(SetupError::SchemaTooOld { schema: name, found, known }),
        Ordering::Equal => None,
        Ordering::Greater => Some(SetupError::SchemaTooNew { schema: name, found, known }),
    })
}

fn newest_known() -> i64 {
    MIGRATIONS.iter().map(|(version, ..)| *version).max().unwrap_or(0)
}

fn migrator(schema: &Schema) -> Migrator {
    let migration = |(version, name, text): &(i64, &'static str, &str)| {
        let name = Cow::Borrowed(*name);
        Migration::new(*version, name, MigrationType::Simple, schema.qualify(text), false)
    };
    let mut migrator = Migrator::with_migrations(MIGRATIONS.iter().map(migration).collect());
    migrator.dangerous_set_table_name(format!("{}.migration", schema.quoted()));
    migrator
}

/// The errors that a user meets, in the user's terms.
fn explain(error: MigrateError, schema: &Schema) -> RuntimeError {
    let name = schema.name().to_owned();
    match error {
        MigrateError::VersionMissing(found) => {
            RuntimeError::Setup(vec![SetupError::SchemaTooNew { schema: name, found, known: newest_known() }])
        }
        MigrateError::VersionMismatch(version) => {
            RuntimeError::Setup(vec![SetupError::SchemaDiffers { schema: name, version }])
        }
        source => RuntimeError::Migration { schema: name, source },
    }
}
