//! `scoop migrate`

use scoop_core::Escaped;
use scoop_runtime::{SetupError, migrate, migration_files};
use serde::Serialize;

use crate::connection::Connection;
use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::output::Output;

/// Make the tables, or bring them up to date
///
/// The role needs the right to create a schema, or tables in one that exists. Tables of this version need nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct MigrateArgs {
    /// Only write the SQL, for another tool; needs no database
    #[arg(long, conflicts_with_all = ["yes", "dry_run"])]
    sql: bool,
    #[command(flatten)]
    consent: Consent,
}

/// A file of the migration.
#[derive(Serialize)]
struct FileRecord<'a> {
    file: &'a str,
    sql: &'a str,
}

/// The result of a migration.
#[derive(Serialize)]
struct MigrateRecord {
    changed: bool,
}

/// Makes the tables.
pub(crate) async fn run(connection: &Connection, output: Output, args: MigrateArgs) -> Result<Exit, Fault> {
    let schema = &connection.schema()?;
    if args.sql {
        for (file, sql) in migration_files(schema)? {
            if output.json {
                output.record(&FileRecord { file: &file, sql: &sql })?;
            } else {
                output.line(format_args!("-- {file}\n{}", sql.trim_end()))?;
            }
        }
        return Ok(Exit::Success);
    }
    let change = match connection.client().await {
        Ok(_) => return report(output, false),
        Err(Fault::Library(error)) => match error.setup() {
            [SetupError::NoTables { .. }] => format!("make the tables in schema `{}`", Escaped(schema)),
            [SetupError::SchemaTooOld { found, known, .. }] => {
                format!("bring the tables in schema `{}` from version {found} to {known}", Escaped(schema))
            }
            _ => return Err(error.into()),
        },
        Err(fault) => return Err(fault),
    };
    if !args.consent.to(output, &change)? {
        return Ok(Exit::Success);
    }
    migrate(&connection.pool()?).schema(schema).await?;
    report(output, true)
}

fn report(output: Output, changed: bool) -> Result<Exit, Fault> {
    if output.json {
        output.record(&MigrateRecord { changed })?;
    } else {
        output.line(if changed {
            "the tables are those of this version now"
        } else {
            "the tables are up to date"
        })?;
    }
    Ok(Exit::Success)
}
