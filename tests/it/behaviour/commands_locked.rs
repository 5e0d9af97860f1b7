//! Commands whose entity is locked for long: by another session, or by their own code.

use std::sync::{Condvar, Mutex, PoisonError};

use scoop::{Decider, Decision};

use super::*;
use crate::support::{Database, eventually};

/// The code of `Hesitate` continues when this is true.
static OPEN: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

#[derive(Default, Serialize, Deserialize)]
struct Contested(u32);

#[entity(name = "contested", key = u32)]
impl Contested {
    fn counted(&mut self, _: &Contest) {
        self.0 += 1;
    }
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "contested.counted")]
struct Contest;

#[derive(Serialize, Deserialize)]
struct TakePart {
    at: u32,
}

#[command(entity = Contested)]
impl TakePart {
    fn key(&self) -> u32 {
        self.at
    }

    fn decide(&self, _: &Contested) -> Decision<Contest> {
        Decision::Accepted(Contest)
    }
}

/// Decides when the test lets it.
#[derive(Serialize, Deserialize)]
struct Hesitate;

#[command(entity = Contested)]
impl Hesitate {
    fn key(&self) -> u32 {
        8
    }

    fn decide(&self, _: &Contested) -> Decision<Contest> {
        tokio::task::block_in_place(|| {
            let is_open = OPEN.0.lock().unwrap_or_else(PoisonError::into_inner);
            let waited =
                OPEN.1.wait_timeout_while(is_open, std::time::Duration::from_secs(60), |open| !*open);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        });
        Decision::Accepted(Contest)
    }
}

/// Longer than the limit of the code of a batch.
const LONG: &str = "state_change < clock_timestamp() - interval '6 seconds'";

/// Waits until a session of this database meets the condition for long.
async fn a_session_is_for_long(db: &Database, state: &str) -> i32 {
    let query = format!(
        "SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND {state} AND {LONG}"
    );
    eventually("a session is so for long", async || !db.texts(&query).await.is_empty()).await;
    db.texts(&query).await[0].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn command_whose_entity_another_session_locks_is_decided_after_that_and_others_are_not_held_up()
-> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<TakePart>>().start().await?;
    for at in [7, 8] {
        scoop.send(TakePart { at }).await?.decision().await?;
    }
    for lock in [
        "SELECT FROM scoop.entity WHERE key = '7' FOR UPDATE",
        "UPDATE scoop.entity SET version = version WHERE key = '7'",
    ] {
        let version = scoop.entity::<Contested>(7).await?.version;
        let mut other = db.pool().begin().await?;
        sqlx::query(lock).execute(&mut *other).await?;
        let (first, second) = (scoop.send(TakePart { at: 7 }).await?, scoop.send(TakePart { at: 7 }).await?);
        for at in [8, 9] {
            assert_eq!(scoop.send(TakePart { at }).await?.decision().await?, Decision::Accepted(Contest));
        }
        assert_eq!(scoop.find(first.id()).await?.command_state().await?, None);
        other.rollback().await?;
        for command in [first, second] {
            assert_eq!(command.decision().await?, Decision::Accepted(Contest));
        }
        assert_eq!(scoop.entity::<Contested>(7).await?.version, version + 2);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_decides_until_its_session_ends_fails_and_holds_up_no_other() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<TakePart>>().only::<Decider<Hesitate>>().start().await?;
    let slow = scoop.send(Hesitate).await?;
    let session = a_session_is_for_long(&db, "state = 'idle in transaction'").await;
    sqlx::query("SELECT pg_terminate_backend($1)").bind(session).execute(db.pool()).await?;
    *OPEN.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    OPEN.1.notify_all();
    let Outcome::RolledBack(failure) = slow.wait().await? else { panic!("it failed") };
    assert_eq!(failure.kind, "DecisionTooSlow");
    assert!(failure.message.contains("`contested`"), "{failure}");
    assert_eq!(scoop.send(TakePart { at: 7 }).await?.decision().await?, Decision::Accepted(Contest));
    assert_eq!(scoop.entity::<Contested>(8).await?.version, 0, "nothing has changed");
    Ok(())
}
