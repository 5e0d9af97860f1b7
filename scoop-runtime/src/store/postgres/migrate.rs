//! Creates the tables and brings them up to date.
//!
//! The migrations are part of the program. Their history is in a table of its own, in the same schema as everything
//! else. So it meets neither the user's migrations nor those of a second installation in another schema. If another
//! tool applies their texts, there is no such table. The version is also the result of a function, which every role may
//! call.

use std::borrow::Cow;
use std::cmp::Ordering;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Row};

use super::query_ext::FetchExt;
use super::{Schema, Sessions};
use crate::error::ErrorKind;
use crate::error::is_denied;
use crate::model::stored_time::StoredTime;
use crate::{RuntimeError, SetupError};

const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "tables", include_str!("../../../migrations/0001_tables.sql")),
    (2, "pauses", include_str!("../../../migrations/0002_pauses.sql")),
    (3, "views", include_str!("../../../migrations/0003_views.sql")),
    (4, "runs", include_str!("../../../migrations/0004_runs.sql")),
    (5, "settle", include_str!("../../../migrations/0005_settle.sql")),
    (6, "failures", include_str!("../../../migrations/0006_failures.sql")),
    (7, "launches", include_str!("../../../migrations/0007_launches.sql")),
    (8, "queue limits", include_str!("../../../migrations/0008_queue_limits.sql")),
    (9, "retention", include_str!("../../../migrations/0009_retention.sql")),
    (10, "version", include_str!("../../../migrations/0010_version.sql")),
];

/// The oldest server that supports all statements, as `server_version_num`.
const SERVER_VERSION_MIN: i32 = 15_00_00;

/// The encoding that has all characters, as the server names it.
const ENCODING: &str = "UTF8";

/// Applies missing migrations, on one connection of its own, with the options of this pool. Several processes may do so
/// at once; they wait for each other.
///
/// A connection of the pool would return there only a moment later. Until then another one would be opened, which the
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
    let Err(error) = migrator.run(pool).await else { return Ok(()) };
    if matches!(error, MigrateError::VersionMismatch(_)) {
        let recorded = sqlx::query_as(recorded_migrations(schema.quoted())).fetch_all(pool).await;
        let recorded: Vec<_> = recorded.map_err(RuntimeError::database("the tables were looked up"))?;
        if let Some(differs) = differing(&recorded, schema) {
            return Err(vec![differs].into());
        }
    }
    Err(explain(error, schema))
}

/// The version of the server if it is too old, and the encoding of the database if it is not UTF-8. Queried without a prepared
/// statement, since the connection may lead through a proxy: the check for that is reported together with these.
pub(super) async fn unfit_server(connection: &mut PgConnection) -> sqlx::Result<Vec<SetupError>> {
    let row = sqlx::raw_sql(
        "SELECT current_setting('server_version_num') AS number, current_setting('server_version') AS version,
                current_setting('server_encoding') AS encoding",
    )
    .fetch_one(connection)
    .await?;
    let number: String = row.try_get("number")?;
    let number: i32 = number.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    let (version, encoding): (String, String) = (row.try_get("version")?, row.try_get("encoding")?);
    let too_old = (number < SERVER_VERSION_MIN).then_some(SetupError::DatabaseTooOld { version });
    let encoded = (encoding != ENCODING).then_some(SetupError::Encoding { encoding });
    Ok(too_old.into_iter().chain(encoded).collect())
}

pub(crate) fn files(schema: &Schema) -> impl Iterator<Item = (String, String)> {
    let file = |(version, name, text): &(i64, &str, &str)| {
        let name = format!("{version:04}_{}.sql", name.replace(' ', "_"));
        (name, schema.qualify(text).as_str().to_owned())
    };
    MIGRATIONS.iter().map(file)
}

/// The difference between the tables of this schema and those of this version; none if they are the same.
pub(crate) async fn unfit_tables(sessions: &Sessions, schema: &Schema) -> sqlx::Result<Option<SetupError>> {
    let (quoted, name) = (schema.quoted(), schema.name().to_owned());
    let exists = async |what: &str, named: String| {
        let exists = AssertSqlSafe(format!("SELECT {what}($1) IS NOT NULL"));
        sqlx::query_scalar(exists).bind(named).one(sessions).await
    };
    if !exists("to_regprocedure", format!("{quoted}.schema_version()")).await? {
        return Ok(Some(SetupError::NoTables { what: format!("schema `{name}` has no tables of scoop") }));
    }
    let recorded = match exists("to_regclass", format!("{quoted}.migration")).await? {
        // It has no rows if all tables were emptied.
        true => recorded(sessions, quoted).await?.filter(|recorded| !recorded.is_empty()),
        // Another tool has made the tables.
        false => None,
    };
    let found = match &recorded {
        Some(recorded) => recorded.iter().map(|(version, ..)| *version).max().unwrap_or(0),
        None => {
            // Safe: the name is quoted.
            let version = AssertSqlSafe(format!("SELECT {quoted}.schema_version()::bigint"));
            sqlx::query_scalar(version).one(sessions).await?
        }
    };
    let known = newest_known();
    Ok(match found.cmp(&known) {
        Ordering::Less => Some(SetupError::SchemaTooOld { schema: name, found, known }),
        Ordering::Greater => Some(SetupError::SchemaTooNew { schema: name, found, known }),
        Ordering::Equal => differing(&recorded.unwrap_or_default(), schema),
    })
}

/// A migration that was applied by this library: its number, its checksum, and the time.
type RecordedMigration = (i64, Vec<u8>, StoredTime);

/// The migrations that were applied by this library. None if the role may not read them.
async fn recorded(sessions: &Sessions, quoted: &str) -> sqlx::Result<Option<Vec<RecordedMigration>>> {
    match sqlx::query_as(recorded_migrations(quoted)).all(sessions).await {
        Err(error) if is_denied(&error) => Ok(None),
        recorded => recorded.map(Some),
    }
}

fn recorded_migrations(quoted: &str) -> AssertSqlSafe<String> {
    // Safe: the name is quoted.
    AssertSqlSafe(format!("SELECT version, checksum, installed_on FROM {quoted}.migration WHERE success"))
}

/// The first migration whose recorded checksum is not the one of this program.
fn differing(recorded: &[RecordedMigration], schema: &Schema) -> Option<SetupError> {
    migrator(schema).iter().find_map(|migration| {
        let of_version = recorded.iter().find(|(version, ..)| *version == migration.version);
        let (version, found, applied_at) = of_version.filter(|(_, sum, _)| *sum != *migration.checksum)?;
        Some(SetupError::SchemaDiffers {
            schema: schema.name().to_owned(),
            version: *version,
            found: digits(found),
            applied_at: applied_at.time().into(),
            known: digits(&migration.checksum),
        })
    })
}

fn digits(checksum: &[u8]) -> String {
    checksum.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
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
            RuntimeError::from(ErrorKind::Setup(vec![SetupError::SchemaTooNew {
                schema: name,
                found,
                known: newest_known(),
            }]))
        }
        source => RuntimeError::from(ErrorKind::Migration { schema: name, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_migration_sets_the_version() {
        let (newest, _, text) = MIGRATIONS.last().unwrap();
        assert_eq!(*newest, newest_known());
        assert!(text.contains(&format!(
            "FUNCTION scoop.schema_version() RETURNS int LANGUAGE sql IMMUTABLE RETURN {newest};"
        )));
    }

    #[test]
    fn every_migration_finds_names_of_the_server_only() {
        for (version, _, text) in MIGRATIONS {
            assert!(text.starts_with("SET LOCAL search_path = pg_catalog, pg_temp;\n"), "{version}");
        }
    }
}
