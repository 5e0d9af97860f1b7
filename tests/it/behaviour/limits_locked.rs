//! Rows of limits and of runs under them that other sessions lock, messages that are large, and keys that take long.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scoop::RunPhase;
use scoop::pauses::PauseTarget;
use sqlx::{Postgres, Transaction};

use super::*;
use crate::support::{Database, Gate, Notes, eventually};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "locked.call")]
struct Call {
    customer: u32,
    number: u32,
    padding: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "locked.visit")]
struct Visit {
    customer: u32,
    number: u32,
}

fn call(customer: u32, number: u32) -> Call {
    Call { customer, number, padding: String::new() }
}

fn visit(customer: u32, number: u32) -> Visit {
    Visit { customer, number }
}

/// Stops at its gate.
#[derive(Clone, Default)]
struct Talks {
    notes: Notes,
    gate: Gate,
    /// The time that a key takes.
    key_takes: Duration,
}

#[saga(name = "locked-talks", concurrency(1, by = customer))]
#[subscribes(any(Call, Visit))]
impl Talks {
    #[step]
    async fn talk(&self, _: &mut Scope<'_>, of: &TalksMessage) -> Result<()> {
        self.notes.add(match of {
            TalksMessage::Call(call) => format!("call {}.{}", call.customer, call.number),
            TalksMessage::Visit(visit) => format!("visit {}.{}", visit.customer, visit.number),
        });
        self.gate.pass().await;
        Ok(())
    }

    fn customer(&self, of: &TalksMessage) -> String {
        std::thread::sleep(self.key_takes);
        match of {
            TalksMessage::Call(call) => call.customer.to_string(),
            TalksMessage::Visit(visit) => visit.customer.to_string(),
        }
    }
}

/// The same saga in a newer program, without a limit.
#[derive(Default)]
struct FreeTalks(Talks);

#[saga(name = "locked-talks")]
#[subscribes(any(Call, Visit))]
impl FreeTalks {
    #[step]
    async fn talk(&self, _: &mut Scope<'_>, _: &FreeTalksMessage) -> Result<()> {
        self.0.gate.pass().await;
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "locked.task")]
struct Task;

#[derive(Default)]
struct Limited;

#[saga(name = "locked-limited", concurrency = 1)]
#[subscribes(Task)]
impl Limited {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, _: &Task) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Unlimited;

#[saga(name = "locked-unlimited")]
#[subscribes(Task)]
impl Unlimited {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, _: &Task) -> Result<()> {
        Ok(())
    }
}

/// Locks rows until the transaction ends.
async fn lock(db: &Database, rows: &'static str) -> Result<Transaction<'static, Postgres>> {
    let mut tx = db.pool().begin().await?;
    let locked = sqlx::query(rows).fetch_all(&mut *tx).await?;
    assert!(!locked.is_empty(), "{rows}");
    Ok(tx)
}

async fn in_phase(scoop: &Scoop, phase: RunPhase) -> Result<usize> {
    Ok(scoop.operate().runs().list().state(phase).await?.runs.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_limit_holds_up_its_saga_alone() -> Result<()> {
    let (db, talks) = (Database::new().await, Talks::default());
    let scoop = db.scoop().only::<Talks>().only::<Limited>().only::<Unlimited>().concurrency(2);
    let scoop = scoop.provide(talks.clone()).start().await?;
    let locked = lock(&db, "SELECT FROM scoop.run_limit WHERE saga = 'locked-talks' FOR UPDATE").await?;
    let held_up = scoop.launch(call(7, 1)).await?;
    for _ in 0..20 {
        assert_eq!(scoop.launch(Task).await?.ends().await?, Outcome::Committed);
    }
    assert!(talks.notes.all().is_empty());
    locked.rollback().await?;
    talks.gate.open(1);
    assert_eq!(held_up.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_run_holds_up_neither_its_key_nor_others() -> Result<()> {
    let (db, talks) = (Database::new().await, Talks::default());
    let scoop = db.scoop().only::<Talks>().provide(talks.clone()).concurrency(1).start().await?;
    let first = scoop.launch(call(7, 1)).await?;
    talks.gate.arrivals(1).await;
    let paused = scoop.operate().pauses().pause(PauseTarget::Everything).await?;
    assert!(paused.in_force, "{paused}");
    let mut all = vec![first];
    for number in 2..=4 {
        all.push(scoop.launch(call(7, number)).await?);
    }
    all.push(scoop.launch(call(8, 1)).await?);
    talks.gate.open(1);
    eventually("the first has ended", async || {
        in_phase(&scoop, RunPhase::Committed).await.is_ok_and(|count| count == 1)
    })
    .await;
    let locked = lock(&db, "SELECT FROM scoop.run ORDER BY id LIMIT 1 FOR UPDATE").await?;
    scoop.operate().pauses().resume(PauseTarget::Everything).await?;
    talks.gate.open(3);
    eventually("all but the locked one have ended", async || {
        in_phase(&scoop, RunPhase::Committed).await.is_ok_and(|count| count == 4)
    })
    .await;
    locked.rollback().await?;
    talks.gate.open(1);
    for run in all {
        assert_eq!(run.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_runs_of_a_paused_topic_leave_the_place_to_others() -> Result<()> {
    let (db, talks) = (Database::new().await, Talks::default());
    let scoop = db.scoop().only::<Talks>().provide(talks.clone()).start().await?;
    let first = scoop.launch(call(7, 1)).await?;
    talks.gate.arrivals(1).await;
    let mut calls = vec![];
    for number in 2..=4 {
        calls.push(scoop.launch(call(7, number)).await?);
    }
    let behind = scoop.launch(visit(7, 1)).await?;
    eventually("four are parked", async || {
        let parked = "SELECT count(*) FROM scoop.run WHERE parked_since IS NOT NULL";
        sqlx::query_scalar(parked).fetch_one(db.pool()).await.is_ok_and(|count: i64| count == 4)
    })
    .await;
    scoop.operate().pauses().pause(PauseTarget::topic("locked.call")).await?;
    talks.gate.open(2);
    for run in [first, behind] {
        assert_eq!(run.ends().await?, Outcome::Committed);
    }
    scoop.operate().pauses().resume(PauseTarget::topic("locked.call")).await?;
    talks.gate.open(3);
    for run in calls {
        assert_eq!(run.ends().await?, Outcome::Committed);
    }
    assert_eq!(talks.notes.all(), ["call 7.1", "visit 7.1", "call 7.2", "call 7.3", "call 7.4"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_run_that_is_locked_while_its_limit_is_removed_returns_with_the_next_start() -> Result<()> {
    let (db, talks) = (Database::new().await, Talks::default());
    let limited = db.scoop().only::<Talks>().provide(talks.clone()).start().await?;
    let first = limited.launch(call(7, 1)).await?;
    talks.gate.arrivals(1).await;
    let parked = [limited.launch(call(7, 2)).await?, limited.launch(call(7, 3)).await?];
    let is_parked = "SELECT FROM scoop.run WHERE parked_since IS NOT NULL";
    eventually("two are parked", async || {
        sqlx::query(is_parked).fetch_all(db.pool()).await.is_ok_and(|rows| rows.len() == 2)
    })
    .await;
    let locked = lock(&db, "SELECT FROM scoop.run WHERE parked_since IS NOT NULL LIMIT 1 FOR UPDATE").await?;
    let start = async || db.scoop().only::<FreeTalks>().provide(FreeTalks(talks.clone())).start().await;
    let free = start().await?;
    assert_eq!(sqlx::query(is_parked).fetch_all(db.pool()).await?.len(), 1, "the start waits for no lock");
    locked.rollback().await?;
    // It looks for parked runs without a limit at its start, as each program does every minute.
    let next = start().await?;
    talks.gate.open(3);
    for run in parked.into_iter().chain([first]) {
        assert_eq!(run.ends().await?, Outcome::Committed);
    }
    for program in [limited, free, next] {
        program.shutdown().await?;
    }
    Ok(())
}

/// Executes runs of twelve customers, which are all due at once. Returns in how many transactions they were claimed.
async fn claims(talks: Talks, padding: usize) -> Result<i64> {
    let db = Database::new().await;
    db.scoop().only::<Talks>().start().await?.shutdown().await?;
    let client = db.client();
    let mut all = vec![];
    for customer in 0..12 {
        // It does not repeat, so that the server stores it in about half as many bytes.
        let digits =
            (0_u32..).flat_map(|n| (n ^ customer).wrapping_mul(2_654_435_761).to_string().into_bytes());
        let padding = digits.take(padding).map(char::from).collect();
        all.push(client.launch(Call { customer, number: 1, padding }).await?);
    }
    let scoop = db.scoop().only::<Talks>().provide(talks.clone()).start().await?;
    talks.gate.arrivals(12).await;
    talks.gate.open(12);
    for run in &all {
        assert_eq!(run.ends().await?, Outcome::Committed);
    }
    let claims = "SELECT count(DISTINCT e.xmin::text) FROM scoop.message_event e WHERE e.type = 'SEEN'";
    let claims = sqlx::query_scalar(claims).fetch_one(db.pool()).await?;
    scoop.shutdown().await?;
    Ok(claims)
}

#[tokio::test(flavor = "multi_thread")]
async fn small_messages_with_quick_keys_are_claimed_at_once() -> Result<()> {
    assert_eq!(claims(Talks::default(), 1_000).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_are_claimed_in_parts() -> Result<()> {
    assert!(claims(Talks::default(), 500_000).await? > 1);
    Ok(())
}

/// Each claim computes keys for a second at most.
#[tokio::test(flavor = "multi_thread")]
async fn messages_whose_keys_take_long_are_claimed_in_parts() -> Result<()> {
    assert!(claims(Talks { key_takes: Duration::from_millis(150), ..Talks::default() }, 0).await? > 1);
    Ok(())
}

/// The longest time for which a key of [`Thinks`] is held up: the server ends a transaction that idles for ten seconds.
const HELD_UP_MAX: Duration = Duration::from_secs(5);

/// Its key is known only when the test says so.
#[derive(Clone)]
struct Thinks {
    notes: Notes,
    goes_on: Arc<Mutex<Receiver<()>>>,
}

impl Thinks {
    fn new() -> (Self, Sender<()>) {
        let (go_on, goes_on) = channel();
        (Self { notes: Notes::default(), goes_on: Arc::new(Mutex::new(goes_on)) }, go_on)
    }
}

#[saga(name = "locked-thinks", concurrency(1, by = known_late))]
#[subscribes(Visit)]
impl Thinks {
    #[step]
    async fn think(&self, _: &mut Scope<'_>, _: &Visit) -> Result<()> {
        self.notes.add("begun");
        Ok(())
    }

    fn known_late(&self, of: &Visit) -> String {
        self.notes.add("asked");
        let goes_on = self.goes_on.lock().unwrap();
        let asked = tokio::task::block_in_place(|| goes_on.recv_timeout(HELD_UP_MAX));
        self.notes.add(if asked.is_ok() { "answered" } else { "given up" });
        of.customer.to_string()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_that_takes_long_holds_up_its_saga_alone() -> Result<()> {
    let (db, (thinks, go_on)) = (Database::new().await, Thinks::new());
    let scoop = db.scoop().only::<Thinks>().only::<Limited>().provide(thinks.clone()).start().await?;
    let held_up = scoop.launch(visit(7, 1)).await?;
    eventually("its claim is under way", async || thinks.notes.all() == ["asked"]).await;
    for _ in 0..5 {
        assert_eq!(scoop.launch(Task).await?.ends().await?, Outcome::Committed);
    }
    assert_eq!(thinks.notes.all(), ["asked"], "the others have waited for it");
    go_on.send(()).unwrap();
    assert_eq!(held_up.ends().await?, Outcome::Committed);
    assert_eq!(thinks.notes.all(), ["asked", "answered", "begun"]);
    scoop.shutdown().await?;
    Ok(())
}
