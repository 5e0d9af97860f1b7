//! Makes the tables, as a separate step of a deployment.

use std::future::IntoFuture;

use futures_util::future::{BoxFuture, FutureExt};
use sqlx::PgPool;

use crate::RuntimeError;
use crate::settings::CLIENT_CONNECTIONS;
use crate::store::{self, ConnectionSettings, Schema, Sessions};

/// Makes the tables in the database of this pool, or brings them up to date. A deployment calls it with a role that
/// may create tables.
///
/// Programs can then run with a role that may not create tables: see the guide about security. If the tables are
/// those of this version, nothing is done, and no right to create is needed. Several processes may call this at once.
///
/// ```no_run
/// # extern crate scoop_runtime as scoop;
/// # async fn example(owner: sqlx::PgPool) -> Result<(), scoop_runtime::RuntimeError> {
/// scoop::migrate(&owner).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`RuntimeError::setup`] if the tables are of a later version, if the server is too old, if the role lacks a right,
/// or if the pool leads through a proxy that shares sessions; others if the database fails.
///
/// # Cancel safety
///
/// If the future is dropped, a migration that has begun is rolled back or completed; repeat the call to continue.
pub fn migrate(pool: &PgPool) -> Migrate {
    Migrate { pool: pool.clone(), schema: "scoop".into() }
}

/// A migration about to be run. Await it.
#[derive(Debug)]
#[must_use = "nothing happens before it is awaited"]
pub struct Migrate {
    pool: PgPool,
    schema: String,
}

impl Migrate {
    /// Makes the tables in this schema instead of `scoop`; the name is that of
    /// [`Builder::schema`](crate::Builder::schema).
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }
}

impl IntoFuture for Migrate {
    type Output = Result<(), RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let schema = Schema::new(&self.schema).map_err(|error| RuntimeError::from(vec![error]))?;
            let sessions = Sessions::new(&self.pool, CLIENT_CONNECTIONS, &ConnectionSettings::default());
            let migrated = async {
                store::check(&self.pool, &sessions).await?;
                bring_up_to_date(&sessions, &schema).await
            };
            let migrated = migrated.await;
            sessions.close().await;
            migrated.map_err(RuntimeError::denied)
        }
        .boxed()
    }
}

/// Makes the tables unless they are those of this version; so no right to create them is needed then.
pub(crate) async fn bring_up_to_date(sessions: &Sessions, schema: &Schema) -> Result<(), RuntimeError> {
    use crate::SetupError::{NoTables, SchemaTooOld};
    let unfit = store::unfit_tables(sessions, schema).await;
    match unfit.map_err(RuntimeError::database("the tables were looked up"))? {
        None => Ok(()),
        Some(NoTables { .. } | SchemaTooOld { .. }) => store::migrate(sessions.listening(), schema).await,
        Some(unfit) => Err(vec![unfit].into()),
    }
}

/// The SQL that makes the tables in this schema, for another migration tool: names and contents of files, to be run
/// in the order of the names.
///
/// The schema has to exist. Run each file once, in a transaction, with one role, which then owns the tables. Later
/// versions of Scoop add files and do not change these.
///
/// # Errors
///
/// [`RuntimeError::setup`] if the name cannot be that of a schema, see [`Builder::schema`](crate::Builder::schema).
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// # fn main() -> Result<(), scoop_runtime::RuntimeError> {
/// for (name, sql) in scoop::migration_files("scoop")? {
///     println!("{name} has {} lines", sql.lines().count());
/// }
/// # Ok(())
/// # }
/// ```
pub fn migration_files(schema: &str) -> Result<Vec<(String, String)>, RuntimeError> {
    let schema = Schema::new(schema).map_err(|error| RuntimeError::from(vec![error]))?;
    Ok(store::files(&schema).collect())
}
