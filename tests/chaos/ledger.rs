//! Records effects in a table, in the step's own transaction, and in a file outside, under the step's
//! idempotency key.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use scoop::prelude::*;
use uuid::Uuid;

/// Deliberately without any constraint that would hide a second entry. `wanted` has the launches for workers,
/// `lap` the laps of each run, and `receipt` the entries that the client makes in the transaction of a launch.
pub(crate) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS ledger (
        seq bigint GENERATED ALWAYS AS IDENTITY, number bigint NOT NULL, run uuid NOT NULL, handler text NOT NULL,
        what text NOT NULL, step text NOT NULL, iteration bigint NOT NULL, attempt bigint NOT NULL, key uuid NOT NULL
    );
    CREATE TABLE IF NOT EXISTS lap (run uuid NOT NULL, left_after bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS wanted (number bigint PRIMARY KEY, launched boolean NOT NULL DEFAULT false);
    CREATE TABLE IF NOT EXISTS receipt (number bigint PRIMARY KEY, root uuid NOT NULL);";

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum What {
    Done,
    Undone,
    TidiedUp,
}

impl What {
    /// The name in the table.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            What::Done => "done",
            What::Undone => "undone",
            What::TidiedUp => "tidied up",
        }
    }
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) run: Uuid,
    pub(crate) what: What,
    pub(crate) step: String,
    pub(crate) iteration: u32,
    pub(crate) key: Uuid,
}

/// The error of a user who wraps errors of the database.
#[derive(Debug, thiserror::Error)]
enum LedgerError {
    #[error("no entry in the ledger")]
    Database(#[from] sqlx::Error),
}

/// Enters an effect in the step's own transaction. Errors of the database are wrapped.
pub(crate) async fn enter(scope: &mut Scope<'_>, number: i64, what: What) -> Result<()> {
    let row = sqlx::query(
        "INSERT INTO ledger (number, run, handler, what, step, iteration, attempt, key)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    );
    let row =
        row.bind(number).bind(scope.lineage().id()).bind(scope.handler().to_owned()).bind(what.as_str());
    let row = row.bind(scope.step().to_owned()).bind(i64::from(scope.iteration()));
    let row = row.bind(i64::from(scope.attempt())).bind(scope.idempotency_key());
    row.execute(scope.tx().await?).await.map_err(LedgerError::from)?;
    Ok(())
}

/// Enters a lap, in the transaction of the step that runs it.
pub(crate) async fn enter_lap(scope: &mut Scope<'_>, left_after: u32) -> Result<()> {
    let row = sqlx::query("INSERT INTO lap (run, left_after) VALUES ($1, $2)");
    let row = row.bind(scope.lineage().id()).bind(i64::from(left_after));
    row.execute(scope.tx().await?).await.map_err(LedgerError::from)?;
    Ok(())
}

/// The file, which all workers have open.
#[derive(Debug)]
pub(crate) struct Outside(File);

impl Outside {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self)
    }

    /// Enters an effect there. A line is written by one call, so that lines of several processes do not mingle,
    /// and no worker is killed in the middle of one.
    pub(crate) fn enter(&self, scope: &Scope<'_>, what: What) -> Result<()> {
        let (run, key) = (scope.lineage().id(), scope.idempotency_key());
        let line = Line { run, what, step: scope.step().to_owned(), iteration: scope.iteration(), key };
        let line = serde_json::to_string(&line)? + "\n";
        (&self.0).write_all(line.as_bytes())?;
        Ok(())
    }
}

/// All lines of the file.
pub(crate) fn read(path: &Path) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}
