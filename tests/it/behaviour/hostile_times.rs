//! Times that Rust does not have, written into the tables by another program: lists have each entry once, and a run
//! whose record has such a time ends or is stuck at once.

use std::collections::BTreeSet;

use scoop::operate::{FailedRollback, StuckRun};
use scoop::{Handle, RunId};

use super::*;
use crate::support::{Database, Gate, eventually};

/// In ascending order, two of them equal.
const TIMES: [&str; 8] = [
    "-infinity",
    "4713-01-01 BC",
    "1900-01-01Z",
    "1969-12-31 23:59:59.999999Z",
    "2020-01-01Z",
    "294276-12-31 23:59:59.999999Z",
    "infinity",
    "infinity",
];

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "hostile-times")]
struct Work {
    fails: bool,
}

/// Launches a child in its first step, and waits for a gate in the second.
struct Worker {
    gate: Gate,
}

#[saga(name = "timed")]
#[subscribes(Work)]
impl Worker {
    #[step(rollback = undo)]
    async fn begin(&self, scope: &mut Scope<'_>, _: &Work) -> Result<u32> {
        scope.launch(Child).await?;
        Ok(7)
    }

    #[step]
    async fn finish(&self, scope: &mut Scope<'_>, work: &Work) -> Result<()> {
        self.gate.pass().await;
        scope.children().await?;
        if work.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }

    async fn undo(&self, scope: &mut Scope<'_>, _: &Work, _: &u32, _: &Failure) -> Result<()> {
        scope.children().await?;
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "hostile-times-long")]
struct Long;

handler! {
    /// Has more history than is read at a time, and fails behind the gate.
    Turning(gate): "timed-long" on Long;
    #[step(rollback = unturn)]
    async fn turn(&self, scope: &mut Scope<'_>, _: &Long) -> Result<With<TurningStep, u32>> {
        let n = scope.iteration();
        Ok(if n < 150 { Next::Repeat } else { Next::Continue }.with(n))
    }

    step "fail" fail => at_gate().then(fails(SIMULATED));

    async fn unturn(&self, scope: &mut Scope<'_>, _: &Long, turn: &u32, _: &Failure) -> Result<()> {
        assert_eq!(*turn, scope.iteration());
        Ok(())
    }
}

handler! {
    ChildHandler: "timed-child" on Child;
    step "only" only => done();
}

async fn start(db: &Database, gate: &Gate) -> Result<Scoop> {
    let (worker, turning) = (Worker { gate: gate.clone() }, Turning { gate: gate.clone() });
    let builder = db.scoop().only::<Worker>().provide(worker).only::<Turning>().provide(turning);
    Ok(builder.only::<ChildHandler>().start().await?)
}

/// The tables, with both sagas listed and no worker.
async fn tables() -> Result<Database> {
    let db = Database::new().await;
    start(&db, &Gate::default()).await?.shutdown().await?;
    Ok(db)
}

/// All entries of a list, read one at a time.
async fn one_by_one<T>(read: impl AsyncFn(Option<&T>) -> Result<Vec<T>>) -> Result<Vec<T>> {
    let mut all = vec![];
    while let Some(next) = read(all.last()).await?.pop() {
        all.push(next);
        assert!(all.len() <= TIMES.len(), "the list has no end");
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_runs_since_any_time_are_listed_once_each() -> Result<()> {
    let db = tables().await?;
    let client = db.client();
    let mut expected = BTreeSet::new();
    for time in TIMES {
        let root = client.launch(Work { fails: false }).await?;
        expected.insert(root.id());
        db.execute(&format!(
            "UPDATE scoop.run SET state = 'stuck', reason = 'forged', ready_at = '{time}' WHERE root = '{}'",
            root.id()
        ))
        .await;
    }
    let listed: Vec<StuckRun> = one_by_one(async |last| {
        let page = client.operate().failures().stuck().limit(1);
        Ok(match last {
            Some(last) => page.after(last).await?,
            None => page.await?,
        })
    })
    .await?;
    assert_eq!(listed.iter().map(StuckRun::hierarchy).collect::<BTreeSet<_>>(), expected);
    assert!(listed.is_sorted_by_key(|run| run.since));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollbacks_of_any_time_are_listed_once_each() -> Result<()> {
    let db = tables().await?;
    let client = db.client();
    let root = client.launch(Work { fails: false }).await?;
    for (number, time) in TIMES.iter().enumerate() {
        db.execute(&format!(
            "INSERT INTO scoop.message_event
                 (message_id, type, coroutine_name, step, cooperation_lineage, exception, created_at)
             VALUES ('{}', 'ROLLBACK_FAILED', 'forged-{number}', 'step', ARRAY['{}', gen_random_uuid()]::uuid[], '{{}}', '{time}')",
            root.message_id(),
            root.id(),
        ))
        .await;
    }
    db.execute(
        "INSERT INTO scoop.run
             (root, id, lineage, message_id, topic, handler, state, step, rolling_back, failure, rollback_failure, ready_at,
              last_event_at)
         SELECT e.cooperation_lineage[1], scoop.run_id(e.cooperation_lineage), e.cooperation_lineage, e.message_id, 'forged',
                e.coroutine_name, 'failed', e.step, true, '{}', e.exception, e.created_at, e.created_at
         FROM scoop.message_event e WHERE e.type = 'ROLLBACK_FAILED'",
    )
    .await;
    let listed: Vec<FailedRollback> = one_by_one(async |last| {
        let page = client.operate().failures().list().limit(1);
        Ok(match last {
            Some(last) => page.after(last).await?,
            None => page.await?,
        })
    })
    .await?;
    assert_eq!(listed.iter().map(FailedRollback::id).collect::<BTreeSet<RunId>>().len(), TIMES.len());
    assert!(listed.is_sorted_by(|a, b| a.at >= b.at));
    Ok(())
}

/// Also those with times that a program does not have: their runs begin now.
#[tokio::test(flavor = "multi_thread")]
async fn messages_launched_at_any_time_are_redelivered() -> Result<()> {
    let db = Database::new().await;
    let client = db.client();
    let mut roots = client.launch_all((0..3).map(|_| Child)).await?;
    for (root, time) in roots.iter().zip(["infinity", "294276-12-31 23:59:59.999999Z"]) {
        let forged = format!(
            "UPDATE scoop.message_event SET created_at = '{time}' WHERE message_id = '{}'",
            root.message_id()
        );
        db.execute(&forged).await;
    }
    let scoop = start(&db, &Gate::default()).await?;
    let redelivered: BTreeSet<_> =
        scoop.operate().handlers().redeliver(Child::TOPIC).await?.hierarchies.into_iter().collect();
    assert_eq!(redelivered, roots.iter().map(Handle::id).collect());
    let last = roots.pop().expect("three were launched");
    assert_eq!(last.ends().await?, Outcome::Committed);
    for root in roots {
        assert_eq!(root.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

/// Forges an event of the run, or the time of one that it has.
#[derive(Clone, Copy, Debug)]
enum Forged {
    New(&'static str),
    Changed(&'static str),
}

impl Forged {
    fn statement(self, root: &Handle, time: &str) -> String {
        let own =
            format!("cooperation_lineage[1] = '{}' AND coroutine_name IN ('timed', 'timed-long')", root.id());
        match self {
            Self::New(kind) => format!(
                "WITH message AS (
                     INSERT INTO scoop.message (topic, payload) VALUES ('forged', 'null') RETURNING id
                 )
                 INSERT INTO scoop.message_event
                     (message_id, type, coroutine_name, cooperation_lineage, step, created_at)
                 SELECT CASE '{kind}' WHEN 'EMITTED' THEN message.id ELSE message_id END, '{kind}', coroutine_name,
                        cooperation_lineage, CASE coroutine_name WHEN 'timed' THEN 'begin' ELSE 'turn' END, '{time}'
                 FROM scoop.message_event, message WHERE type = 'SEEN' AND {own}"
            ),
            Self::Changed(kind) => format!(
                "UPDATE scoop.message_event SET created_at = '{time}' WHERE type = '{kind}' AND {own}"
            ),
        }
    }
}

/// The run of this hierarchy ends, or is stuck without an attempt that panicked.
async fn ends_or_is_stuck_at_once(db: &Database, root: &Handle, what: &str) {
    let state = format!("SELECT state::text FROM scoop.run WHERE root = '{}'", root.id());
    let at_rest = async || {
        let states = db.texts(&state).await;
        states.is_empty() || states.iter().any(|state| state == "stuck")
    };
    eventually(what, at_rest).await;
    let unknown_attempts = format!(
        "SELECT coalesce(max((tries).unknown_attempts), 0)::bigint FROM scoop.run WHERE root = '{}'",
        root.id()
    );
    assert_eq!(db.number(&unknown_attempts).await, 0, "{what}");
    for reason in db.texts(&state.replace("state::text", "reason")).await {
        let row = "SELECT id::text FROM scoop.message_event WHERE NOT created_at BETWEEN '0001-01-01Z' AND '9999-12-31Z'";
        let named = db.texts(row).await.iter().any(|id| reason.contains(id.as_str()));
        assert!(named, "{what}: {reason}");
    }
}

const FORGED: [Forged; 5] = [
    Forged::New("SUSPENDED"),
    Forged::New("EMITTED"),
    Forged::New("ROLLBACK_EMITTED"),
    Forged::Changed("SEEN"),
    Forged::Changed("SUSPENDED"),
];

/// Forges an event of runs that wait at the gate, of each kind and at each time, and lets them go on.
async fn all_end_or_are_stuck<M: Message>(message: impl Fn() -> M) -> Result<()> {
    let (db, gate) = (tables().await?, Gate::default());
    let scoop = start(&db, &gate).await?;
    let times = ["infinity", "-infinity", "294276-12-31 23:59:59.999999Z", "4713-01-01 BC"];
    let forged: Vec<_> = FORGED.iter().flat_map(|forged| times.map(|time| (*forged, time))).collect();
    let roots = scoop.launch_all(forged.iter().map(|_| message())).await?;
    gate.arrivals(u32::try_from(forged.len()).expect("few")).await;
    for (root, (forged, time)) in roots.iter().zip(&forged) {
        db.execute(&forged.statement(root, time)).await;
    }
    gate.open(1_000);
    for (root, (forged, time)) in roots.iter().zip(&forged) {
        ends_or_is_stuck_at_once(&db, root, &format!("{forged:?} at {time}")).await;
        root.tree().await?;
    }
    let other = scoop.launch(Work { fails: false }).await?;
    assert_eq!(other.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_an_event_of_any_time_ends_or_is_stuck_at_once() -> Result<()> {
    for fails in [false, true] {
        all_end_or_are_stuck(|| Work { fails }).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_a_long_history_and_an_event_of_any_time_ends_or_is_stuck_at_once() -> Result<()> {
    all_end_or_are_stuck(|| Long).await
}
