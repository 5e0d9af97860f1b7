//! Makes the tables and brings them up to date.
//!
//! The migrations are part of the program. Their history stands in a table of its own, in the
//! same schema as everything else, so that it meets neither the user's migrations nor those of a
//! second installation in another schema.

use std::borrow::Cow;

use sqlx::PgPool;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

use super::Schema;
use crate::{RuntimeError, SetupError};

const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "protocol", include_str!("../../migrations/0001_protocol.sql")),
    (2, "working set", include_str!("../../migrations/0002_working_set.sql")),
    (3, "schedule", include_str!("../../migrations/0003_schedule.sql")),
    (4, "intervention", include_str!("../../migrations/0004_intervention.sql")),
    (5, "lean", include_str!("../../migrations/0005_lean.sql")),
    (6, "settle", include_str!("../../migrations/0006_settle.sql")),
    (7, "repeated failure", include_str!("../../migrations/0007_repeated_failure.sql")),
    (10, "redelivery", include_str!("../../migrations/0010_redelivery.sql")),
];

/// The oldest server that has all we use, as `server_version_num`.
const SERVER_VERSION_MIN: i32 = 15_00_00;

/// Checks the server's version, then applies what is missing. Several processes may do so at
/// once; they wait for each other.
pub(crate) async fn migrate(pool: &PgPool, schema: &Schema) -> Result<(), RuntimeError> {
    check_server(pool).await?;
    migrator(schema).run(pool).await.map_err(|error| explain(error, schema))
}

async fn check_server(pool: &PgPool) -> Result<(), RuntimeError> {
    let (number, version): (i32, String) = sqlx::query_as(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version')",
    )
    .fetch_one(pool)
    .await
    .map_err(RuntimeError::database("asking for the server's version"))?;
    if number < SERVER_VERSION_MIN {
        return Err(RuntimeError::Setup(vec![SetupError::DatabaseTooOld { version }]));
    }
    Ok(())
}

fn migrator(schema: &Schema) -> Migrator {
    let migration = |(version, name, text): &(i64, &'static str, &str)| {
        let name = Cow::Borrowed(*name);
        Migration::new(*version, name, MigrationType::Simple, schema.qualify(text), false)
    };
    let mut migrator = Migrator::with_migrations(MIGRATIONS.iter().map(migration).collect());
    migrator.dangerous_set_table_name(format!("{}.migration", schema.as_str()));
    migrator.create_schema(schema.as_str().to_owned());
    migrator
}

/// The errors that a user meets, in the user's terms.
fn explain(error: MigrateError, schema: &Schema) -> RuntimeError {
    let name = schema.as_str().to_owned();
    match error {
        MigrateError::VersionMissing(found) => {
            let known = MIGRATIONS.iter().map(|(version, ..)| *version).max().unwrap_or(0);
            RuntimeError::Setup(vec![SetupError::SchemaTooNew { schema: name, found, known }])
        }
        MigrateError::VersionMismatch(version) => {
            RuntimeError::Setup(vec![SetupError::SchemaDiffers { schema: name, version }])
        }
        source => RuntimeError::Migration { schema: name, source },
    }
}
