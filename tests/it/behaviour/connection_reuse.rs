//! The connection of a step goes to the next one that waits for one, with nothing of the first.

use super::*;
use crate::support::{Database, Notes};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "passed-on.strict")]
struct Strict;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "passed-on.plain")]
struct Plain;

/// Changes the settings of its transaction.
#[derive(Default)]
struct StrictHandler;

#[saga(name = "passed-on-strict")]
#[subscribes(Strict)]
impl StrictHandler {
    #[step]
    async fn set(&self, scope: &mut Scope<'_>, _: &Strict) -> Result<()> {
        let strict = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SET LOCAL search_path = nowhere";
        sqlx::raw_sql(strict).execute(scope.tx().await?).await?;
        Ok(())
    }
}

/// Notes the session of its connection, and the state of that.
struct PlainHandler {
    seen: Notes,
}

#[saga(name = "passed-on-plain")]
#[subscribes(Plain)]
impl PlainHandler {
    #[step]
    async fn look(&self, scope: &mut Scope<'_>, _: &Plain) -> Result<()> {
        let state =
            "SELECT current_setting('transaction_isolation') || ' ' || current_setting('search_path')";
        let state: String = sqlx::query_scalar(state).fetch_one(scope.tx().await?).await?;
        self.seen.add(state);
        Ok(())
    }
}

/// There are two connections for thirty steps at once, so they are passed on.
#[tokio::test(flavor = "multi_thread")]
async fn settings_of_a_step_end_with_its_transaction() -> Result<()> {
    let db = Database::new().await;
    let seen = Notes::default();
    let scoop = db.start((StrictHandler, PlainHandler { seen: seen.clone() })).await?;
    let mut roots = scoop.launch_all((0..15).map(|_| Strict)).await?;
    roots.extend(scoop.launch_all((0..15).map(|_| Plain)).await?);
    for root in roots {
        assert_eq!(root.ends().await?, Outcome::Committed);
    }
    assert_eq!(seen.all(), vec![r#"read committed "$user", public"#; 15]);
    Ok(())
}
