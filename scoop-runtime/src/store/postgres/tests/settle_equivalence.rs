//! A settlement leaves the same rows, whichever statement writes it: the short ones, in a step's transaction or
//! batched, or the function `scoop.settle`.

use std::collections::BTreeMap;

use scoop_core::{Conclusion, Context, Emission, Event, EventKind, Failure, Fate, Path, Run, Suspension};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::{ConnectionSettings, PostgresStore, Schema, Sessions, migrate};
use super::{Sum, claim, database, done};
use crate::model::retention::Retention;
use crate::model::run::RowState;
use crate::model::subscribed_saga::SubscribedSaga;
use crate::store::{
    ClaimedRun, HierarchyFlags, NewMessage, QueueCursors, SettlePath, SettleResult, SettleStorage as _,
    Settlement, SubscriptionStorage as _,
};

/// A store with handlers: one on the topic of the runs, two on `two`, none on `none`.
async fn listening(pool: &PgPool) -> (PostgresStore, Uuid) {
    let schema = Schema::new("scoop").unwrap();
    migrate(pool, &schema).await.unwrap();
    let store = PostgresStore::new(Sessions::new(pool, 2, &ConnectionSettings::default()), &schema);
    let worker = Uuid::now_v7();
    store.register_alone(pool, worker, 1).await;
    let pairs = [("a", "saga"), ("two", "first"), ("two", "second")];
    let (topics, handlers): (Vec<_>, Vec<_>) =
        pairs.map(|(t, h)| (t.to_owned(), h.to_owned())).into_iter().unzip();
    store.register(&SubscribedSaga::pairs(&topics, &handlers), Retention::default()).await.unwrap();
    (store, worker)
}

async fn claimed(pool: &PgPool, (store, worker): &(PostgresStore, Uuid), backward: bool) -> ClaimedRun {
    store.launch(pool, &[NewMessage::new("a", json!({}), 0)]).await.unwrap();
    let mut claimed = claim(store, *worker, &mut QueueCursors::default()).await.pop().expect("one is ready");
    // As if the server's clock had been an hour ahead then.
    let ahead = "UPDATE scoop.run SET last_event_at = last_event_at + interval '1 hour' WHERE id = $1";
    sqlx::query(ahead).bind(claimed.key.id).execute(pool).await.unwrap();
    if backward {
        let turn =
            "UPDATE scoop.run SET rolling_back = true, failure = $2, rollback_since = now() WHERE id = $1";
        sqlx::query(turn).bind(claimed.key.id).bind(Json(cause())).execute(pool).await.unwrap();
        claimed.run.path = Path::Backward {
            cause: cause(),
            rollback_requested: false,
            begun: true,
            failed_before: false,
            plan: None,
        };
        claimed.flags.in_rollback = true;
        let messages: Vec<_> = (1..=3).map(|nth| launched_before(claimed.key.id, nth)).collect();
        let before = sqlx::query(LAUNCHED_BEFORE).bind(claimed.key.root).bind(claimed.key.id).bind(messages);
        before.execute(pool).await.unwrap();
    }
    claimed
}

fn cause() -> Failure {
    Failure::new("Felled", "it failed", "saga[w]")
}

type Following = fn(&Run) -> Conclusion;

/// The event and the run after a step, or after a part of a rollback, which records its position in `jump`.
fn suspended(run: &Run, step: &str) -> (Event, Run) {
    let jump = step.starts_with("Rollback").then(|| "there".repeat(100));
    let mut event = Event::new(EventKind::Suspended, run.message).in_step(step).with(run.context.clone());
    event.jump.clone_from(&jump);
    let mut after = run.clone();
    after.last = Some(Suspension { step: step.into(), jump, iteration: 0, handler_iteration: None });
    (event, after)
}

fn of(events: Vec<Event>, fate: Fate) -> Conclusion {
    Conclusion {
        events,
        emissions: vec![],
        rollback_requests: vec![],
        rollback_cause: None,
        values: vec![],
        wait: None,
        signals: vec![],
        as_new: None,
        fate,
    }
}

fn goes_on(run: &Run) -> Conclusion {
    let (event, mut after) = suspended(run, "step");
    after.suspensions = 1;
    after.completions.insert("step".into(), 2);
    after.outputs.insert("step".into(), json!({ "n": 1 }));
    let values = vec![("Output of step#0".into(), json!(null))];
    Conclusion { values, ..of(vec![event], Fate::GoesOn(after)) }
}

fn commits(run: &Run) -> Conclusion {
    let (event, _) = suspended(run, "step");
    let committed = Event { kind: EventKind::Committed, ..event.clone() };
    of(vec![event, committed], Fate::Committed)
}

fn commits_with_an_output(run: &Run) -> Conclusion {
    let values = vec![("Output of step#0".into(), json!("done"))];
    Conclusion { values, ..commits(run) }
}

fn undoes(run: &Run) -> Conclusion {
    let (event, after) = suspended(run, "Rollback of step");
    of(vec![event], Fate::GoesOn(after))
}

fn is_rolled_back(run: &Run) -> Conclusion {
    let (event, _) = suspended(run, "Rollback of step");
    let last = Event { kind: EventKind::RolledBack, jump: None, ..event.clone() };
    of(vec![event, last], Fate::RolledBack { cause: cause(), rollback_requested: true })
}

fn launches(run: &Run, topics: &[&str]) -> Conclusion {
    let mut knows = Context::default();
    knows.set(Sum(7)).unwrap();
    let emission = |(nth, topic): (usize, &&str)| Emission {
        message: Uuid::now_v7(),
        topic: (*topic).to_owned(),
        payload: if nth == 1 { Value::Null } else { json!({ "nth": nth }) },
        detached_root: None,
        context: if nth == 1 { Context::default() } else { knows.clone() },
        required: None,
        wait: None,
        found_by: vec![],
    };
    let emissions: Vec<_> = topics.iter().enumerate().map(emission).collect();
    let (event, after) = suspended(run, "step");
    let tell = |emission: &Emission| {
        Event::new(EventKind::Emitted, emission.message).in_step("step").with(emission.context.clone())
    };
    let events = emissions.iter().map(tell).chain([event]).collect();
    let values = vec![("Output of step#0".into(), json!([1]))];
    Conclusion { emissions, values, ..of(events, Fate::GoesOn(after)) }
}

/// The same by a step that returns nothing.
fn launches_without_an_output(run: &Run, topics: &[&str]) -> Conclusion {
    Conclusion { values: vec![], ..launches(run, topics) }
}

/// Launches large messages on these topics, which are stored first.
fn launches_bulk(run: &Run, topics: &[&str]) -> Conclusion {
    let mut conclusion = launches(run, topics);
    for emission in &mut conclusion.emissions {
        emission.payload = json!(emission.topic.repeat(600_000));
    }
    conclusion
}

fn tells(run: &Run, messages: &[u128]) -> Conclusion {
    let requests: Vec<_> = messages.iter().map(|nth| launched_before(run.lineage.id(), *nth)).collect();
    let (event, after) = suspended(run, "Rollback of step (rolling back child scopes)");
    let because = Failure::new("ParentSaidSo", "it was told to", &run.source);
    let tell = |message: &Uuid| {
        let event = Event::new(EventKind::RollbackEmitted, *message).in_step(event.step.as_deref().unwrap());
        event.because_of(because.clone()).with(run.context.clone())
    };
    let events = requests.iter().map(tell).chain([event.clone()]).collect();
    Conclusion {
        rollback_requests: requests,
        rollback_cause: Some(because.clone()),
        ..of(events, Fate::GoesOn(after))
    }
}

fn launched_before(run: Uuid, nth: u128) -> Uuid {
    Uuid::from_u128(run.as_u128() ^ nth)
}

/// Earlier launches of a run, and their handlers. The first message has two handlers, of which one has begun to roll
/// back. The second has one, and a rollback request that the run did not send. The third has none.
const LAUNCHED_BEFORE: &str = "
    WITH launched AS (
        INSERT INTO scoop.message (id, topic, payload)
        SELECT id, 'two', '{}' FROM unnest($3::uuid[]) id
    ),
    ended AS (
        INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, context, ended_at)
        SELECT $1, run, $2, ARRAY[$1, $2, run], ($3::uuid[])[nth], 'two', handler, outcome::scoop.run_outcome, context::jsonb, now()
        FROM (VALUES (1, 'first', 'committed', '{\"Own\": 1, \"Sum\": 2}'), (1, 'second', 'rolled_back', NULL),
                     (2, 'second', 'committed', NULL)) AS e (nth, handler, outcome, context)
        CROSS JOIN LATERAL (SELECT md5(($3::uuid[])[nth] || handler)::uuid AS run) runs
    )
    INSERT INTO scoop.message_event
        (message_id, type, coroutine_name, coroutine_identifier, cooperation_lineage, exception, context)
    SELECT ($3::uuid[])[nth], type::scoop.message_event_type, handler, 'w',
           CASE WHEN handler IS NULL THEN ARRAY[$1] ELSE ARRAY[$1, $2, md5(($3::uuid[])[nth] || handler)::uuid] END, exception::jsonb, context::jsonb
    FROM (VALUES (1, 'SEEN', 'first', NULL, NULL), (1, 'COMMITTED', 'first', NULL, '{\"Own\": 1, \"Sum\": 2}'),
                 (1, 'SEEN', 'second', NULL, NULL), (1, 'ROLLING_BACK', 'second', '{}', NULL),
                 (2, 'SEEN', 'second', NULL, NULL), (2, 'COMMITTED', 'second', NULL, NULL),
                 (2, 'ROLLBACK_EMITTED', NULL, '{}', NULL)
    ) AS e (nth, type, handler, exception, context)";

/// All rows of a hierarchy, without ids and times; events in their order.
async fn left_by(pool: &PgPool, root: Uuid) -> Value {
    sqlx::query_scalar(
        "SELECT jsonb_build_array(
             (SELECT jsonb_agg(to_jsonb(r)
                  - '{root,id,parent,lineage,message_id,ready_at,queued_at,began_at,last_event_at,owner,rollback_since}'::text[]
                  || jsonb_build_object('depth', cardinality(lineage), 'owned', owner IS NOT NULL,
                                        'undoing', rollback_since IS NOT NULL,
                                        'now', ready_at <= clock_timestamp(), 'child', parent IS NOT NULL,
                                        -- that of who is told follows from the time
                                        'epoch', least(epoch, 1000), 'unclaimed_epoch', least(unclaimed_epoch, 1000))
                  ORDER BY cardinality(lineage), topic, handler, ready_at)
              FROM scoop.run r WHERE root = $1),
             (SELECT jsonb_agg(to_jsonb(e) - '{id,message_id,cooperation_lineage,created_at}'::text[]
                  || jsonb_build_object('topic', m.topic, 'payload', m.payload,
                                        'depth', cardinality(cooperation_lineage))
                  ORDER BY e.created_at)
              FROM scoop.message_event e JOIN scoop.message m ON m.id = e.message_id
              WHERE cooperation_lineage[1] = $1),
             (SELECT jsonb_agg(to_jsonb(e) - '{root,id,parent,lineage,message_id,queued_at,began_at,ended_at}'::text[]
                  || jsonb_build_object('depth', cardinality(lineage), 'child', parent IS NOT NULL)
                  ORDER BY cardinality(lineage), topic, handler, outcome, ended_at)
              FROM scoop.ended_run e WHERE root = $1),
             (SELECT count(DISTINCT created_at) FROM scoop.message_event WHERE cooperation_lineage[1] = $1),
             (SELECT jsonb_agg(jsonb_build_array(handler_name, variable_name, value))
              FROM scoop.return_value WHERE cooperation_lineage[1] = $1))",
    )
    .bind(root)
    .fetch_one(pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_settlement_leaves_the_same_whichever_statement_writes_it() {
    let pool = database("shapes").await;
    let listening = listening(&pool).await;
    let cases: [(bool, SettlePath, Following); 16] = [
        (false, SettlePath::Advance, goes_on),
        (false, SettlePath::Advance, commits),
        (false, SettlePath::Advance, commits_with_an_output),
        (true, SettlePath::Advance, undoes),
        (true, SettlePath::Advance, is_rolled_back),
        (false, SettlePath::LaunchChildren, |run| launches(run, &["a", "two"])),
        (false, SettlePath::LaunchChildren, |run| launches(run, &["two", "two", "none"])),
        (true, SettlePath::LaunchChildren, |run| launches(run, &["two"])),
        (false, SettlePath::LaunchChildren, |run| launches(run, &["none"])),
        (false, SettlePath::LaunchChildren, |run| launches_without_an_output(run, &["two", "a", "two"])),
        (true, SettlePath::LaunchChildren, |run| launches_without_an_output(run, &["none"])),
        (false, SettlePath::LaunchChildren, |run| launches_bulk(run, &["two", "none", "a"])),
        (true, SettlePath::LaunchChildren, |run| launches_bulk(run, &["none", "none"])),
        (true, SettlePath::RequestRollback, |run| tells(run, &[1])),
        (true, SettlePath::RequestRollback, |run| tells(run, &[1, 2, 3])),
        (true, SettlePath::RequestRollback, |run| tells(run, &[3])),
    ];
    for (at, (backward, shape, follows)) in cases.into_iter().enumerate() {
        let mut left = vec![];
        for way in [Way::Function, Way::FetchExt, Way::Batched, Way::InStep] {
            let mut settlements = vec![];
            for _ in 0..if way == Way::Batched { 2 } else { 1 } {
                let claimed = claimed(&pool, &listening, backward).await;
                // A rollback without a parent ends by the function alone.
                let flags = HierarchyFlags { has_parent: backward, ..claimed.flags };
                let stored = &claimed.run.context;
                let settlement =
                    Settlement::new(claimed.key, &claimed.run, flags, stored, follows(&claimed.run));
                settlements.push(settlement.under(7, Some(5)));
            }
            assert!(settlements.iter().all(|settlement| settlement.path() == shape), "case {at}");
            let told = write(&pool, &listening.0, way, &settlements).await;
            for (settlement, told) in settlements.iter().zip(told) {
                left.push((way, told, left_by(&pool, settlement.root).await));
            }
            sqlx::query("DELETE FROM scoop.run WHERE topic <> 'none'").execute(&pool).await.unwrap();
        }
        let (_, told, rows) = &left[0];
        for (way, by_other, rows_of_other) in &left[1..] {
            assert_eq!((by_other, rows_of_other), (told, rows), "case {at}, {way:?}");
        }
    }
    done(pool).await;
}

#[tokio::test]
async fn large_messages_of_a_void_settlement_are_not_stored() {
    let pool = database("shapes_void").await;
    let listening = listening(&pool).await;
    let mut settlements = vec![];
    for _ in 0..2 {
        let claimed = claimed(&pool, &listening, false).await;
        let (flags, stored) = (claimed.flags, &claimed.run.context);
        let follows = launches_bulk(&claimed.run, &["two", "none"]);
        settlements.push(Settlement::new(claimed.key, &claimed.run, flags, stored, follows));
    }
    let (store, void) = (&listening.0, settlements[0].root);
    assert!(settlements.iter().all(Settlement::is_bulky));
    sqlx::query("UPDATE scoop.run SET epoch = epoch + 1 WHERE root = $1")
        .bind(void)
        .execute(&pool)
        .await
        .unwrap();
    for applied in [1, 0] {
        assert_eq!(store.settle("w", &settlements).await.unwrap().len(), applied);
        assert_eq!(store.settle("w", &settlements[..1]).await.unwrap().len(), 0);
        let messages = "SELECT count(*) FROM scoop.message WHERE length(payload::text) > 600000";
        let messages: i64 = sqlx::query_scalar(messages).fetch_one(&pool).await.unwrap();
        assert_eq!(messages, 2);
    }
    done(pool).await;
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Function,
    FetchExt,
    Batched,
    InStep,
}

/// Whether a run goes on, whether it has ended, and the ready handlers.
type Told = (RowState, Vec<String>);

async fn write(pool: &PgPool, store: &PostgresStore, way: Way, settlements: &[Settlement]) -> Vec<Told> {
    let mut settled = match way {
        Way::FetchExt | Way::Batched => store.settle("w", settlements).await.unwrap(),
        Way::Function => store.settle_by_function("w", settlements).await.unwrap(),
        Way::InStep => within_a_step(pool, store, &settlements[0]).await,
    };
    let told = settlements.iter().map(|settlement| {
        let settled = settled.remove(&settlement.id()).expect("its claim holds");
        (settled.state, settled.ready_handlers)
    });
    told.collect()
}

async fn within_a_step(
    pool: &PgPool,
    store: &PostgresStore,
    settlement: &Settlement,
) -> BTreeMap<(Uuid, i64), SettleResult> {
    let mut step = pool.begin().await.unwrap();
    sqlx::raw_sql("SET LOCAL scoop_run.claim = 'held'").execute(&mut *step).await.unwrap();
    let refused = store.settle_within(&mut step, "w", settlement, "another").await.unwrap();
    assert!(refused.is_none(), "the mark of the transaction does not count");
    let settled = store.settle_within(&mut step, "w", settlement, "held").await.unwrap();
    let again = store.settle_within(&mut step, "w", settlement, "held").await.unwrap();
    assert!(again.is_none(), "it is applied twice");
    step.commit().await.unwrap();
    settled.map(|settled| (settlement.id(), settled)).into_iter().collect()
}
