//! Hierarchies of as many runs above each other as are allowed, with all that is stored for each level.

use std::time::Duration;

use super::*;
use crate::support::{Database, Gate, compensated};

/// The greatest depth without a setting.
const DEPTH_MAX: u32 = 1_000;

/// How long a hierarchy of that depth may take on however busy a machine.
const RETRY_FOR: Duration = Duration::from_secs(240);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "dig-deep", reply = u32)]
struct Dig {
    levels_left: u32,
    fails: bool,
}

/// The value of a step, for its compensation.
#[derive(Serialize, Deserialize)]
struct Dug(u32);

#[derive(Default)]
struct Miner {
    bottom: Option<Gate>,
}

#[saga(name = "miner")]
#[subscribes(Dig)]
impl Miner {
    #[step(rollback = fill_up)]
    async fn dig(&self, scope: &mut Scope<'_>, dig: &Dig) -> Result<Dug> {
        scope.reply(dig, dig.levels_left)?;
        match dig.levels_left.checked_sub(1) {
            Some(levels_left) => drop(scope.launch(Dig { levels_left, fails: dig.fails }).await?),
            None if dig.fails => return Err(SIMULATED.into()),
            None => {
                if let Some(bottom) = &self.bottom {
                    bottom.pass().await;
                }
            }
        }
        Ok(Dug(dig.levels_left))
    }

    async fn fill_up(&self, scope: &mut Scope<'_>, dig: &Dig, dug: &Dug, _: &Failure) -> Result<()> {
        assert_eq!(dug.0, dig.levels_left);
        compensated(scope);
        Ok(())
    }
}

async fn ends(root: &scoop::Handle) -> Result<Outcome> {
    let outcome = tokio::time::timeout(RETRY_FOR, root.wait()).await;
    Ok(outcome.map_err(|_| Error::msg("timed out waiting for the end of a deep hierarchy"))??)
}

async fn counted(db: &Database, kind: &str) -> i64 {
    db.number(&format!("SELECT count(*) FROM scoop.message_event WHERE type = '{kind}'")).await
}

async fn unfinished(db: &Database) -> i64 {
    db.number("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await
}

fn to_the_limit(fails: bool) -> Dig {
    Dig { levels_left: DEPTH_MAX - 1, fails }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_levels_with_values_commit() -> Result<()> {
    let run = Run::launch((Miner::default(),), to_the_limit(false)).await?;
    assert_eq!(ends(&run.root).await?, Outcome::Committed);
    assert_eq!(counted(&run.db, "COMMITTED").await, i64::from(DEPTH_MAX));
    assert_eq!(run.root.replies::<Dig>().await?.len(), 1);
    let values = run.db.number("SELECT count(*) FROM scoop.return_value").await;
    assert_eq!(values, 2 * i64::from(DEPTH_MAX), "the value and the reply of each level");
    assert_eq!(unfinished(&run.db).await, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_at_the_bottom_of_a_thousand_levels_rolls_back_all() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Miner::default(),)).await?;
    let outcome = ends(&scoop.launch(to_the_limit(true)).await?).await?;
    let Outcome::RolledBack(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.root_causes()[0].message, SIMULATED.to_string());
    assert_eq!(counted(&db, "ROLLED_BACK").await, i64::from(DEPTH_MAX));
    assert_eq!(counted(&db, "ROLLBACK_FAILED").await, 0);
    assert_eq!(unfinished(&db).await, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_four_hundred_levels_down_can_be_cancelled() -> Result<()> {
    let gate = Gate::default();
    let run =
        Run::launch((Miner { bottom: Some(gate.clone()) },), Dig { levels_left: 399, fails: false }).await?;
    gate.arrivals(1).await;
    let lowest = "SELECT id::text FROM scoop.run WHERE cardinality(lineage) = 401";
    let lowest: uuid::Uuid = run.db.texts(lowest).await[0].parse()?;
    assert_eq!(run.scoop.cancel(lowest, "too deep").await?, CancelAnswer::Accepted);
    gate.open(1);
    let outcome = ends(&run.root).await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
    assert_eq!(unfinished(&run.db).await, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_beyond_the_greatest_depth_fails_with_saga_step_and_limit() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Miner>().limits(scoop::Limits::default().depth_max(3)).start().await?;
    let allowed = ends(&scoop.launch(Dig { levels_left: 2, fails: false }).await?).await?;
    assert_eq!(allowed, Outcome::Committed);

    let refused = ends(&scoop.launch(Dig { levels_left: 3, fails: false }).await?).await?;
    let Outcome::RolledBack(failure) = refused else { panic!("{refused:?}") };
    let said = &failure.root_causes()[0].message;
    let expected = "step `dig` of saga `miner` launches a message for topic `dig-deep` whose runs would have depth 4 in \
                    the hierarchy, 3 is the limit";
    assert!(said.starts_with(expected) && said.contains("raise `depth_max`"), "{said}");
    assert_eq!(counted(&db, "ROLLED_BACK").await, 3);
    Ok(())
}
