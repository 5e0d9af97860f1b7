//! Limits of how many runs of each key are executed at once.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use scoop::RunPhase;
use scoop::operate::{LimitKey, WaitKind, WaitReason};

use super::*;
use crate::support::{Database, Gate, Notes, eventually};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.call")]
struct Call {
    customer: u32,
    number: u32,
}

fn call(customer: u32, number: u32) -> Call {
    Call { customer, number }
}

/// A gate for each customer.
#[derive(Clone, Default)]
struct Gates(Arc<Mutex<BTreeMap<u32, Gate>>>);

impl Gates {
    fn of(&self, customer: u32) -> Gate {
        self.0.lock().unwrap().entry(customer).or_default().clone()
    }
}

/// Stops in its step, at the gate of its customer.
#[derive(Clone, Default)]
struct Calls {
    gates: Gates,
    notes: Notes,
}

#[saga(name = "limited-calls", concurrency(1, by = customer))]
#[subscribes(Call)]
impl Calls {
    #[step]
    async fn answer(&self, _: &mut Scope<'_>, call: &Call) -> Result<()> {
        self.notes.add(format!("{}.{}", call.customer, call.number));
        self.gates.of(call.customer).pass().await;
        Ok(())
    }
}

/// The same saga in a newer program, with another limit.
#[derive(Default)]
struct WideCalls {
    calls: Calls,
}

#[saga(name = "limited-calls", concurrency(2, by = of))]
#[subscribes(Call)]
impl WideCalls {
    #[step]
    async fn answer(&self, scope: &mut Scope<'_>, call: &Call) -> Result<()> {
        self.calls.answer(scope, call).await
    }

    fn of(&self, call: &Call) -> String {
        format!("customer {}", call.customer)
    }
}

/// The same saga without a limit.
#[derive(Default)]
struct FreeCalls {
    calls: Calls,
}

#[saga(name = "limited-calls")]
#[subscribes(Call)]
impl FreeCalls {
    #[step]
    async fn answer(&self, scope: &mut Scope<'_>, call: &Call) -> Result<()> {
        self.calls.answer(scope, call).await
    }
}

async fn start(db: &Database, calls: &Calls) -> Result<Scoop> {
    Ok(db.scoop().only::<Calls>().poll_interval(NEVER).provide(calls.clone()).start().await?)
}

async fn limited(scoop: &Scoop, count: usize) {
    eventually("runs wait for the limit", async || {
        scoop
            .operate()
            .runs()
            .list()
            .waiting_for(WaitKind::Limit)
            .await
            .is_ok_and(|page| page.runs.len() == count)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_key_begin_one_after_the_other_and_say_what_they_wait_for() -> Result<()> {
    let (db, calls) = (Database::new().await, Calls::default());
    let scoop = start(&db, &calls).await?;
    let mut all = vec![];
    for number in 1..=3 {
        all.push(scoop.launch(call(7, number)).await?);
    }
    calls.gates.of(7).arrivals(1).await;
    limited(&scoop, 2).await;
    all.push(scoop.launch(call(8, 1)).await?);
    calls.gates.of(8).arrivals(1).await;
    let holder = scoop.operate().runs().explain(all[0].id()).await?.runs[0].run.run;
    let last = scoop.operate().runs().explain(all[2].id()).await?;
    let reason = WaitReason::Limit {
        concurrency: 1,
        serial: false,
        key: Some(LimitKey::new("customer", "7")),
        holders: vec![(holder, RunPhase::Running)],
        ahead: 1,
        queued: 2,
    };
    assert_eq!(last.runs[0].reason, reason, "{last}");
    let text = last.to_string();
    let expected = "waits for the limit of `limited-calls` for its key `7` of `customer`";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("at most 1 run at a time, and 1 run is ahead of it in its queue of 2"), "{text}");
    assert!(text.contains(&format!("In execution: {holder}")), "{text}");
    for _ in 0..2 {
        calls.gates.of(7).open(1);
        calls.gates.of(7).arrivals(1).await;
        assert_eq!(calls.gates.of(7).arrived(), 0, "one end, one beginning");
    }
    calls.gates.of(7).open(1);
    calls.gates.of(8).open(1);
    for call in all {
        assert_eq!(call.ends().await?, Outcome::Committed);
    }
    let of_seven: Vec<_> = calls.notes.all().into_iter().filter(|note| note.starts_with("7.")).collect();
    assert_eq!(of_seven, ["7.1", "7.2", "7.3"], "in the order of their launches");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_key_that_are_launched_while_others_end_begin_in_the_order_of_their_launches() -> Result<()>
{
    let (db, calls) = (Database::new().await, Calls::default());
    let scoop = start(&db, &calls).await?;
    calls.gates.of(7).open(60);
    let mut all = vec![];
    for number in 0..60 {
        all.push(scoop.launch(call(7, number)).await?);
    }
    for call in all {
        assert_eq!(call.ends().await?, Outcome::Committed);
    }
    let expected: Vec<_> = (0..60).map(|number| format!("7.{number}")).collect();
    assert_eq!(calls.notes.all(), expected);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn backlog_of_a_key_delays_no_other_key() -> Result<()> {
    let (db, calls) = (Database::new().await, Calls::default());
    let scoop = db.scoop().only::<Calls>().poll_interval(NEVER).provide(calls.clone()).concurrency(2);
    let scoop = scoop.start().await?;
    let backlog: Vec<_> = (0..60).map(|number| call(7, number)).collect();
    let backlog = scoop.launch_all(backlog).await?;
    calls.gates.of(7).arrivals(1).await;
    for customer in 10..20 {
        calls.gates.of(customer).open(1);
        assert_eq!(scoop.launch(call(customer, 0)).await?.ends().await?, Outcome::Committed);
    }
    calls.gates.of(7).open(60);
    for call in backlog {
        assert_eq!(call.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_run_of_a_reached_key_ends_and_leaves_its_turn_to_the_next() -> Result<()> {
    let (db, calls) = (Database::new().await, Calls::default());
    let scoop = start(&db, &calls).await?;
    let first = scoop.launch(call(7, 1)).await?;
    calls.gates.of(7).arrivals(1).await;
    let (second, third) = (scoop.launch(call(7, 2)).await?, scoop.launch(call(7, 3)).await?);
    limited(&scoop, 2).await;
    scoop.cancel(second.id(), "a test").await?;
    assert!(matches!(second.ends().await?, Outcome::RolledBack(_)), "it needs no place");
    calls.gates.of(7).open(2);
    assert_eq!(first.ends().await?, Outcome::Committed);
    assert_eq!(third.ends().await?, Outcome::Committed);
    assert_eq!(calls.notes.all(), ["7.1", "7.3"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_limit_applies_to_runs_that_wait_for_the_former_one() -> Result<()> {
    let (db, calls) = (Database::new().await, Calls::default());
    let scoop = start(&db, &calls).await?;
    let mut all = vec![];
    for number in 1..=4 {
        all.push(scoop.launch(call(7, number)).await?);
    }
    calls.gates.of(7).arrivals(1).await;
    limited(&scoop, 3).await;
    // The former program claims nothing any more, and waits for its run.
    let mut stopping = Box::pin(scoop.shutdown());
    assert!(stopping.as_mut().now_or_never().is_none());
    let wide = db.scoop().only::<WideCalls>().provide(WideCalls { calls: calls.clone() });
    let wide = wide.poll_interval(NEVER).start().await?;
    calls.gates.of(7).arrivals(2).await;
    limited(&wide, 1).await;
    let free = db.scoop().only::<FreeCalls>().provide(FreeCalls { calls: calls.clone() });
    let free = free.poll_interval(NEVER).start().await?;
    calls.gates.of(7).arrivals(1).await;
    calls.gates.of(7).open(4);
    stopping.await?;
    for call in all {
        assert_eq!(free.find(call.id()).await?.ends().await?, Outcome::Committed);
    }
    wide.shutdown().await?;
    free.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.note")]
struct Note {
    /// A key of that many bytes.
    key_bytes: usize,
}

/// A saga whose keys are not all valid.
#[derive(Default)]
struct NoteKeys {
    gate: Gate,
}

#[saga(name = "limited-notes", concurrency(1, by = key))]
#[subscribes(Note)]
impl NoteKeys {
    #[step]
    async fn read(&self, _: &mut Scope<'_>, _: &Note) -> Result<()> {
        self.gate.pass().await;
        Ok(())
    }

    fn key(&self, note: &Note) -> String {
        assert_ne!(note.key_bytes, 1, "a mistake of the program");
        "x".repeat(note.key_bytes)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_without_a_valid_key_count_together() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = db.scoop().only::<NoteKeys>().provide(NoteKeys { gate: gate.clone() }).poll_interval(NEVER);
    let scoop = scoop.start().await?;
    let mut all = vec![];
    for key_bytes in [256, 1, 0, 255] {
        all.push(scoop.launch(Note { key_bytes }).await?);
    }
    gate.arrivals(2).await;
    limited(&scoop, 2).await;
    assert_eq!(gate.arrived(), 0, "one with a valid key, and one of the others");
    gate.open(4);
    for note in all {
        assert_eq!(note.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

/// One at a time, beside a rate of each customer.
#[derive(Clone, Default)]
struct Visits {
    /// How many are in execution, and how many were at most.
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[saga(name = "limited-visits", concurrency = 1, rate("1000/s", by = customer))]
#[subscribes(Call)]
impl Visits {
    #[step]
    async fn pay(&self, _: &mut Scope<'_>, _: &Call) -> Result<()> {
        self.most.fetch_max(self.now.fetch_add(1, SeqCst) + 1, SeqCst);
        // Another one would begin in the meantime.
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.now.fetch_sub(1, SeqCst);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_of_the_saga_counts_the_runs_of_all_processes_beside_a_rate_by_key() -> Result<()> {
    let (db, visits) = (Database::new().await, Visits::default());
    let program = || db.scoop().only::<Visits>().provide(visits.clone());
    let (one, other) = (program().start().await?, program().start().await?);
    let all = one.launch_all((0..60).map(|number| call(number % 7, number)).collect::<Vec<_>>()).await?;
    for visit in all {
        assert_eq!(visit.ends().await?, Outcome::Committed);
    }
    assert_eq!(visits.most.load(SeqCst), 1);
    one.shutdown().await?;
    other.shutdown().await?;
    Ok(())
}
