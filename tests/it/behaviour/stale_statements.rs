//! Prepared statements that the server refuses since it knows them no longer, or since their tables have changed.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo};
use sqlx::{AssertSqlSafe, Encode, Postgres, Type};

use super::*;
use crate::support::Database;

/// A value of a type that the tests make.
struct Mood(&'static str);

impl Type<Postgres> for Mood {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("mood")
    }
}

impl Encode<'_, Postgres> for Mood {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}

#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "prepared")]
enum Prepared {
    Reads,
    WritesAMood,
    /// A statement that fails in each session.
    Fails(String),
}

#[derive(Default)]
struct Preparing;

#[saga(name = "preparing")]
#[subscribes(Prepared)]
impl Preparing {
    #[step]
    async fn execute(&self, scope: &mut Scope<'_>, what: &Prepared) -> Result<()> {
        let tx = scope.tx().await?;
        sqlx::query("INSERT INTO effect VALUES (1)").execute(&mut *tx).await?;
        match what {
            Prepared::Reads => {
                sqlx::query("SELECT * FROM things").fetch_all(tx).await?;
            }
            Prepared::WritesAMood => {
                sqlx::query("INSERT INTO moods VALUES ($1)").bind(Mood("glad")).execute(tx).await?;
            }
            Prepared::Fails(sql) => {
                sqlx::query("SELECT nextval('attempts')").execute(&mut *tx).await?;
                sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(tx).await?;
            }
        }
        Ok(())
    }

    #[step(delivery = "at_most_once")]
    async fn read_once(&self, scope: &mut Scope<'_>, what: &Prepared) -> Result<()> {
        if matches!(what, Prepared::Reads) {
            sqlx::query("SELECT * FROM things").fetch_all(scope.tx().await?).await?;
        }
        Ok(())
    }
}

const TABLES: &str = "CREATE TABLE effect (n int); CREATE TABLE things (n int); CREATE SEQUENCE attempts;
    CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TABLE moods (mood mood)";

/// Launches enough of them for all connections.
async fn all_commit(scoop: &Scoop, what: &Prepared) -> Result<()> {
    for root in scoop.launch_all((0..20).map(|_| what.clone())).await? {
        assert_eq!(root.ends().await?, Outcome::Committed);
    }
    Ok(())
}

/// A change after which the statements of the sessions are stale.
async fn survives(what: Prepared, change: &str) -> Result<()> {
    let db = Database::new().await;
    db.execute(TABLES).await;
    let scoop = db.start((Preparing,)).await?;
    all_commit(&scoop, &what).await?;
    for rounds in 2..=3 {
        db.execute(&change.replace("{n}", &rounds.to_string())).await;
        all_commit(&scoop, &what).await?;
        assert_eq!(db.number("SELECT count(*) FROM effect").await, rounds * 20);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn table_that_has_changed_runs_the_steps_that_read_it_again() -> Result<()> {
    survives(Prepared::Reads, "ALTER TABLE things ADD another{n} int").await
}

#[tokio::test(flavor = "multi_thread")]
async fn type_that_was_made_again_runs_the_steps_that_write_it_again() -> Result<()> {
    let change = "ALTER TYPE mood RENAME TO old; CREATE TYPE mood AS ENUM ('glad', 'sad{n}');
        ALTER TABLE moods ALTER mood TYPE mood USING mood::text::mood; DROP TYPE old";
    survives(Prepared::WritesAMood, change).await
}

/// As a pooler or another part of the program may do.
#[tokio::test(flavor = "multi_thread")]
async fn statements_that_were_deallocated_are_prepared_again() -> Result<()> {
    let db = Database::new().await;
    db.execute(TABLES).await;
    let scoop = db.start((Preparing,)).await?;
    for rounds in 1..=3 {
        all_commit(&scoop, &Prepared::Reads).await?;
        assert_eq!(db.number("SELECT count(*) FROM effect").await, rounds * 20);
        let mut held = vec![db.pool().acquire().await?];
        held.extend(std::iter::from_fn(|| db.pool().try_acquire()));
        for connection in &mut held {
            sqlx::raw_sql("DEALLOCATE ALL").execute(&mut **connection).await?;
        }
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_that_is_stale_in_a_fresh_session_fails_the_step() -> Result<()> {
    let db = Database::new().await;
    db.execute(TABLES).await;
    let scoop = db.start((Preparing,)).await?;
    for sql in ["EXECUTE missing", "PREPARE twice AS SELECT 1; PREPARE twice AS SELECT 1"] {
        let before = db.number("SELECT nextval('attempts')").await;
        let outcome = scoop.launch(Prepared::Fails(sql.into())).await?.ends().await?;
        let Outcome::RolledBack(failure) = outcome else { panic!("{outcome:?}") };
        assert!(failure.message.contains("prepared statement"), "{failure}");
        assert_eq!(db.number("SELECT nextval('attempts')").await - before, 3, "it has two attempts");
    }
    scoop.shutdown().await?;
    Ok(())
}
