//! Entities whose states are in tables of the user: existing rows become entities without a migration.

use scoop::Decider;
use scoop::entities::{CommandState, SqlEntity};
use scoop::errors::SetupError;
use sqlx::PgConnection;

use super::*;
use crate::support::{Database, eventually};

const TABLE: &str = "CREATE TABLE ledger (id bigint PRIMARY KEY, cents bigint NOT NULL CHECK (cents <> 13));
    INSERT INTO ledger VALUES (1, 100), (2, 100)";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Ledger {
    cents: i64,
    /// What `store` does, until it has succeeded.
    mode: String,
}

#[entity(name = "ledger", key = i64, table)]
impl Ledger {
    fn moved(&mut self, event: &Moved) {
        self.cents += event.cents;
        if !event.mode.is_empty() {
            self.mode.clone_from(&event.mode);
        }
        assert_ne!(self.mode, "poison", "this event cannot be applied");
    }
}

impl SqlEntity for Ledger {
    async fn load_for_update(tx: &mut PgConnection, key: &i64) -> Result<Option<Self>> {
        if *key == 99 {
            // Longer than it may take.
            sqlx::query("SELECT pg_sleep(600)").execute(&mut *tx).await?;
        }
        let cents = sqlx::query_scalar("SELECT cents FROM ledger WHERE id = $1 FOR UPDATE").bind(key);
        Ok(cents.fetch_optional(tx).await?.map(|cents| Self { cents, mode: String::new() }))
    }

    async fn store(&self, tx: &mut PgConnection, key: &i64) -> Result<()> {
        match &*self.mode {
            "panic" => panic!("there is no ink"),
            "commit" => {
                sqlx::raw_sql("COMMIT").execute(&mut *tx).await?;
                return Ok(());
            }
            "swallow" => drop(sqlx::raw_sql("SELECT 1 / 0").execute(&mut *tx).await),
            "error" => return Err(Error::msg("there is no paper")),
            _ => {}
        }
        let write =
            "INSERT INTO ledger VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET cents = excluded.cents";
        sqlx::query(write).bind(key).bind(self.cents).execute(tx).await?;
        Ok(())
    }
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "ledger.moved")]
struct Moved {
    cents: i64,
    mode: String,
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "ledger.moved-back")]
struct Overdrawn {
    missing: i64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Move {
    ledger: i64,
    cents: i64,
    mode: String,
}

#[command(entity = Ledger, name = "move-cents")]
impl Move {
    fn key(&self) -> i64 {
        self.ledger
    }

    fn decide(&self, ledger: &Ledger) -> Decision<Moved, Overdrawn> {
        match ledger.cents + self.cents {
            missing if missing < 0 => Decision::Rejected(Overdrawn { missing }),
            _ => Decision::Accepted(Moved { cents: self.cents, mode: self.mode.clone() }),
        }
    }

    fn undo(&self, _: &Ledger, moved: &Moved) -> Option<Moved> {
        Some(Moved { cents: -moved.cents, mode: String::new() })
    }
}

fn moved(ledger: i64, cents: i64) -> Move {
    Move { ledger, cents, mode: String::new() }
}

async fn start(db: &Database) -> Result<Scoop> {
    Ok(db.scoop().only::<Decider<Move>>().start().await?)
}

async fn cents(db: &Database, ledger: i64) -> Result<i64> {
    let cents = sqlx::query_scalar("SELECT cents FROM ledger WHERE id = $1").bind(ledger);
    Ok(cents.fetch_one(db.pool()).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_table_are_entities_with_versions_and_events() -> Result<()> {
    let db = Database::new().await;
    sqlx::raw_sql(TABLE).execute(db.pool()).await?;
    let scoop = start(&db).await?;
    let before = scoop.entity::<Ledger>(1).await?;
    assert_eq!((before.version, before.state.cents), (0, 100), "its rows were there before");
    let accepted = scoop.send(moved(1, -60)).await?;
    assert!(accepted.decision().await?.is_accepted());
    let rejected = scoop.send(moved(1, -60)).await?;
    assert_eq!(rejected.decision().await?, Decision::Rejected(Overdrawn { missing: -20 }));
    assert_eq!(scoop.find(accepted.id()).await?.command_state().await?, Some(CommandState::Accepted));
    assert!(scoop.send(moved(7, 5)).await?.decision().await?.is_accepted(), "it has no row yet");
    for (ledger, expected) in [(1, 40), (2, 100), (7, 5)] {
        assert_eq!(cents(&db, ledger).await?, expected);
    }
    let after = scoop.entity::<Ledger>(1).await?;
    assert_eq!((after.version, after.state.cents), (1, 40));
    let events = scoop.operate().entities().events::<Ledger>(1).await?;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].message::<Moved>()?.map(|event| event.cents), Some(-60));
    let state = db.texts("SELECT coalesce(state::text, 'none') FROM scoop.entity WHERE key = '1'").await;
    assert_eq!(state, ["none"], "its state is in its table only");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_commands_of_two_programs_never_overdraw_a_table() -> Result<()> {
    let db = Database::new().await;
    sqlx::raw_sql(TABLE).execute(db.pool()).await?;
    let (one, other) = (start(&db).await?, start(&db).await?);
    let mut sent = vec![];
    for scoop in [&one, &other] {
        sent.extend(scoop.launch_all((0..40).map(|_| moved(1, -3))).await?);
        sent.extend(scoop.launch_all((0..10).map(|_| moved(2, 1))).await?);
    }
    let mut accepted = 0;
    for sent in &sent {
        accepted += u64::from(sent.decision::<Move>().await?.is_accepted());
    }
    assert_eq!(accepted, 33 + 20);
    assert_eq!((cents(&db, 1).await?, cents(&db, 2).await?), (1, 120));
    assert_eq!(one.entity::<Ledger>(1).await?.version, 33, "one version for each accepted command");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_code_of_a_table_fails_its_command_and_no_other() -> Result<()> {
    let db = Database::new().await;
    sqlx::raw_sql(TABLE).execute(db.pool()).await?;
    let scoop = start(&db).await?;
    let modes = ["", "panic", "", "commit", "", "swallow", "", "error", "", "poison", ""];
    let sent = modes.map(|mode| Move { ledger: 1, cents: 1, mode: mode.into() });
    let sent = scoop.launch_all(sent).await?;
    for (mode, sent) in modes.into_iter().zip(&sent) {
        match (mode, sent.wait().await?) {
            ("", outcome) => assert_eq!(outcome, Outcome::Committed),
            ("poison", Outcome::RolledBack(failure)) => {
                assert!(failure.message.starts_with("panic in the application"), "{failure}");
            }
            (_, Outcome::RolledBack(failure)) => {
                assert!(failure.message.contains("the entity `ledger` (key `1`)"), "{failure}");
                let why = match mode {
                    "panic" => "`store` of the entity",
                    "commit" => "COMMIT",
                    "swallow" => "current transaction is aborted",
                    _ => "there is no paper",
                };
                assert!(failure.message.contains(why), "{mode}: {failure}");
            }
            (_, outcome) => panic!("{mode}: {outcome}"),
        }
    }
    assert_eq!(cents(&db, 1).await?, 106);
    assert_eq!(scoop.entity::<Ledger>(1).await?.version, 6);
    let violated = scoop.send(moved(2, -87)).await?;
    let Outcome::RolledBack(failure) = violated.wait().await? else { panic!("13 violates a constraint") };
    assert!(failure.message.contains("ledger_cents_check"), "{failure}");
    assert_eq!(cents(&db, 2).await?, 100);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_query_of_a_table_fails_its_command_while_others_are_decided() -> Result<()> {
    let db = Database::new().await;
    sqlx::raw_sql(TABLE).execute(db.pool()).await?;
    let scoop = start(&db).await?;
    let slow = scoop.send(moved(99, 1)).await?;
    eventually("it sleeps", async || {
        !db.texts("SELECT query FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'").await.is_empty()
    })
    .await;
    assert!(scoop.send(moved(1, 1)).await?.decision().await?.is_accepted());
    assert_eq!(scoop.find(slow.id()).await?.command_state().await?, None);
    let Outcome::RolledBack(failure) = slow.wait().await? else { panic!("it took too long") };
    assert_eq!(failure.kind, "DecisionTooSlow");
    assert!(failure.message.contains("`load_for_update` of the entity `ledger` (key `99`)"), "{failure}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn command_whose_row_another_transaction_locks_for_long_is_decided_after_that() -> Result<()> {
    let db = Database::new().await;
    sqlx::raw_sql(TABLE).execute(db.pool()).await?;
    let scoop = start(&db).await?;
    let mut other = db.pool().begin().await?;
    sqlx::query("UPDATE ledger SET cents = 50 WHERE id = 1").execute(&mut *other).await?;
    let command = scoop.send(moved(1, -60)).await?;
    eventually("it is to be repeated", async || {
        let tree = command.tree().await.unwrap().to_string();
        tree.contains("`load_for_update` of the entity `ledger` (key `1`)") && tree.contains("lock timeout")
    })
    .await;
    assert!(scoop.send(moved(2, 1)).await?.decision().await?.is_accepted(), "others are not affected");
    other.commit().await?;
    assert_eq!(command.decision().await?, Decision::Rejected(Overdrawn { missing: -10 }));
    assert_eq!(cents(&db, 1).await?, 50);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_of_a_command_undoes_it_in_the_table() -> Result<()> {
    let db = Database::new().await;
    sqlx::raw_sql(TABLE).execute(db.pool()).await?;
    let scoop = start(&db).await?;
    let sent = scoop.send(moved(1, -60)).await?;
    assert_eq!(sent.ends().await?, Outcome::Committed);
    assert!(scoop.send(moved(1, -30)).await?.decision().await?.is_accepted());
    assert_eq!(scoop.rollback(sent.id(), "it was a mistake").await?, RollbackAnswer::Accepted);
    assert!(matches!(sent.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(cents(&db, 1).await?, 70, "only that command is undone");
    let events = scoop.operate().entities().events::<Ledger>(1).await?;
    let cents: Vec<_> = events.iter().map(|event| event.message::<Moved>()).collect::<Result<_, _>>()?;
    let cents: Vec<_> = cents.into_iter().flatten().map(|event| event.cents).collect();
    assert_eq!(cents, [-60, -30, 60]);
    assert_eq!(scoop.entity::<Ledger>(1).await?.version, 3);
    assert_eq!(
        scoop.find(sent.id()).await?.command_state().await?,
        Some(CommandState::Accepted),
        "the decision stays"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_that_the_table_refuses_is_the_failure_of_the_rollback() -> Result<()> {
    let db = Database::new().await;
    sqlx::raw_sql(TABLE).execute(db.pool()).await?;
    let scoop = start(&db).await?;
    let sent = scoop.send(moved(1, 100)).await?;
    assert_eq!(sent.ends().await?, Outcome::Committed);
    // 13 cents after that violate a constraint of the table.
    db.execute("UPDATE ledger SET cents = 113 WHERE id = 1").await;
    assert_eq!(scoop.rollback(sent.id(), "it was a mistake").await?, RollbackAnswer::Accepted);
    let Outcome::RollbackFailed(failed) = sent.ends().await? else { panic!("it cannot be undone") };
    let report = failed.report();
    assert!(report.contains("`store` of the entity `ledger` (key `1`)"), "{report}");
    assert_eq!(cents(&db, 1).await?, 113, "nothing has changed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn table_without_a_database_is_a_mistake_of_the_program() -> Result<()> {
    let error = Scoop::builder().in_memory().only::<Decider<Move>>().start().await;
    let Err(error) = error else { panic!("there is no table in memory") };
    let expected = SetupError::TableInMemory { entity: "ledger".into(), saga: "move-cents".into() };
    assert_eq!(error.setup(), [expected]);
    Ok(())
}
