//! Claims under a limit: while runs of a key end, and with errors.

use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::*;
use crate::error::is_of_contents;
use crate::store::{
    Candidate, FreedKeys, LimitStorage as _, LimitedClaim, LimitedQueue, LimitedRequest, LimitedSaga,
};
use crate::store::{DueStorage as _, SuspectClaim};

/// Three due runs of a saga with a rate, with the messages 1, 2 and 3.
const DUE: &str = "
    INSERT INTO scoop.run_limit (saga, handlers, rate, rate_period_ms) VALUES ('saga', '{saga}', 100, 1000);
    INSERT INTO scoop.message (id, topic, payload) SELECT lpad(n::text, 32, '0')::uuid, 'a', '{}' FROM generate_series(1, 3) n;
    INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, ready_at, last_event_at)
    SELECT message, id, ARRAY[message, id], message, 'a', 'saga', now() - interval '1 hour' * (4 - n), now() - interval '1 day'
    FROM generate_series(1, 3) n
    CROSS JOIN LATERAL (SELECT lpad(n::text, 32, '0')::uuid AS message, md5(n::text)::uuid AS id) ids";

/// One run of a key is executed, the next is parked, and a later one is due: with the messages 1, 2 and 3.
const RUNS: &str = "
    INSERT INTO scoop.run_limit (saga, handlers, concurrency, concurrency_by_key, key_from)
    VALUES ('saga', '{saga}', 1, true, 'customer');
    INSERT INTO scoop.message (id, topic, payload) SELECT lpad(n::text, 32, '0')::uuid, 'a', '{}' FROM generate_series(1, 3) n;
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, ready_at, parked_since, limit_key, last_event_at)
    SELECT message, id, ARRAY[message, id], message, 'a', 'saga', state::scoop.run_state,
           CASE n WHEN 2 THEN '9999-12-31' ELSE now() - interval '1 hour' * (4 - n) END,
           CASE n WHEN 2 THEN now() - interval '2 hours' END, CASE WHEN n < 3 THEN 'k' END, now() - interval '1 day'
    FROM (VALUES (1, 'running'), (2, 'ready'), (3, 'ready')) runs (n, state)
    CROSS JOIN LATERAL (SELECT lpad(n::text, 32, '0')::uuid AS message, md5(n::text)::uuid AS id) ids";

#[tokio::test(flavor = "multi_thread")]
async fn run_that_ends_during_a_claim_leaves_its_place_to_the_next_parked_run() {
    let pool = database("limit_claims").await;
    let (store, worker, _) = launching(&pool).await;
    sqlx::raw_sql(RUNS).execute(&pool).await.unwrap();
    // The key of the due run is asked for after the claim has found all places taken.
    let key_of = |_: &_| {
        let end = sqlx::raw_sql("DELETE FROM scoop.run WHERE state = 'running'");
        block_in_place(|| Handle::current().block_on(end.execute(&pool))).unwrap();
        Some("k".to_owned())
    };
    let of = LimitedSaga { saga: "saga".into(), handlers: vec!["saga".into()], key_from: None };
    let request = LimitedRequest {
        claimer: Claimer { worker, identifier: "w" },
        queue: &LimitedQueue { of, queues: queues() },
        slots: 5,
        suspect: None,
        freed: &FreedKeys { keys: vec!["k".into()], ..FreedKeys::default() },
        cursors: &QueueCursors::default(),
        key_of: &key_of,
    };
    let claimed = store.claim_limited(request).await.unwrap();
    let messages: Vec<_> =
        claimed.runs.iter().map(|run| run.as_ref().expect("it can be read").run.message).collect();
    assert_eq!(messages, [Uuid::from_u128(2)], "the second run has waited longest");
    let parked = "SELECT message_id FROM scoop.run WHERE parked_since IS NOT NULL";
    let parked: Vec<Uuid> = sqlx::query_scalar(parked).fetch_all(&pool).await.unwrap();
    assert_eq!(parked, [Uuid::from_u128(3)]);
    done(pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_whose_key_a_program_does_not_compute_stays_in_its_queue() {
    let pool = database("limit_claims_unkeyed").await;
    let (store, worker, _) = launching(&pool).await;
    sqlx::raw_sql(RUNS).execute(&pool).await.unwrap();
    // A run of the saga is in execution without a key: the only place is taken.
    let others = "UPDATE scoop.run SET limit_key = '' WHERE state = 'running';
                  DELETE FROM scoop.run WHERE parked_since IS NOT NULL";
    sqlx::raw_sql(others).execute(&pool).await.unwrap();
    for (key, parked) in [(None, 0), (Some(String::new()), 1)] {
        let claimed = claim_with(&store, worker, &QueueCursors::default(), key.clone()).await.unwrap();
        assert!(claimed.runs.is_empty() && !claimed.is_full, "{key:?}");
        let count = "SELECT count(*) FROM scoop.run WHERE parked_since IS NOT NULL";
        let count: i64 = sqlx::query_scalar(count).fetch_one(&pool).await.unwrap();
        assert_eq!(count, parked, "{key:?}");
    }
    done(pool).await;
}

async fn claim_all(store: &PostgresStore, worker: Uuid) -> sqlx::Result<LimitedClaim> {
    claim_from(store, worker, &QueueCursors::default()).await
}

/// The same from these positions on.
async fn claim_from(
    store: &PostgresStore,
    worker: Uuid,
    cursors: &QueueCursors,
) -> sqlx::Result<LimitedClaim> {
    claim_with(store, worker, cursors, Some(String::new())).await
}

/// The same of runs with this key.
async fn claim_with(
    store: &PostgresStore,
    worker: Uuid,
    cursors: &QueueCursors,
    key: Option<String>,
) -> sqlx::Result<LimitedClaim> {
    let of = LimitedSaga { saga: "saga".into(), handlers: vec!["saga".into()], key_from: None };
    let request = LimitedRequest {
        claimer: Claimer { worker, identifier: "w" },
        queue: &LimitedQueue { of, queues: queues() },
        slots: 5,
        suspect: None,
        freed: &FreedKeys::default(),
        cursors,
        key_of: &|_: &Candidate| key.clone(),
    };
    store.claim_limited(request).await
}

/// Adds a due run of the saga with this message, so many minutes old; of a negative number it is due later.
async fn add(pool: &PgPool, number: i32, minutes: i32) {
    let insert = format!(
        "INSERT INTO scoop.message (id, topic, payload) VALUES (lpad('{number}', 32, '0')::uuid, 'a', '{{}}');
         INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, ready_at, last_event_at)
         SELECT message, id, ARRAY[message, id], message, 'a', 'saga', now() - {minutes} * interval '1 minute', now()
         FROM (SELECT lpad('{number}', 32, '0')::uuid AS message, md5('{number}')::uuid AS id) ids"
    );
    sqlx::raw_sql(AssertSqlSafe(insert)).execute(pool).await.unwrap();
}

fn numbers(claimed: &LimitedClaim) -> Vec<u128> {
    let message = |run: &Result<ClaimedRun, _>| run.as_ref().ok().map(|run| run.run.message.as_u128());
    claimed.runs.iter().filter_map(message).collect()
}

#[tokio::test]
async fn claim_under_a_limit_goes_on_from_where_the_last_one_has_come_to() {
    for limit in ["rate_by_key = false", "rate_by_key = true, key_from = 'customer'"] {
        let pool = database(&format!("limit_progress_{}", limit.len())).await;
        let (store, worker, _) = launching(&pool).await;
        sqlx::raw_sql(DUE).execute(&pool).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("UPDATE scoop.run_limit SET {limit}")))
            .execute(&pool)
            .await
            .unwrap();
        let claimed = claim_all(&store, worker).await.unwrap();
        assert_eq!(numbers(&claimed), [1, 2, 3], "{limit}");
        let mut progress = claimed.cursors.expect("it has looked");
        // Transactions of other databases that were in progress at the first look: at their end, all is looked at once more.
        while progress.open().1.contains(&None) {
            progress = claim_from(&store, worker, &progress).await.unwrap().cursors.expect("it has looked");
        }
        let seconds = async |progress: &QueueCursors| {
            let due = store.next_due(&queues(), worker, SuspectClaim::Allowed, progress).await.unwrap();
            due.seconds
        };
        // What became ready before the position would have been there; one is due later, and one is due.
        add(&pool, 4, 150).await;
        assert_eq!(seconds(&progress).await, None, "{limit}");
        add(&pool, 5, -10).await;
        assert!(seconds(&progress).await.is_some_and(|seconds| seconds > 0.0), "{limit}");
        add(&pool, 6, 0).await;
        let claimed = claim_from(&store, worker, &progress).await.unwrap();
        assert_eq!(numbers(&claimed), [6], "{limit}");
        let progress = claimed.cursors.expect("it has looked");
        assert!(numbers(&claim_from(&store, worker, &progress).await.unwrap()).is_empty(), "{limit}");
        assert_eq!(numbers(&claim_all(&store, worker).await.unwrap()), [4], "{limit}");
        done(pool).await;
    }
}

async fn beside(pool: &PgPool) -> (PostgresStore, Uuid) {
    let schema = Schema::new("scoop").unwrap();
    let sessions = Sessions::new(pool, 2, &ConnectionSettings::default());
    let (store, worker) = (PostgresStore::new(sessions, &schema), Uuid::now_v7());
    store.register_alone(pool, worker, 1).await;
    (store, worker)
}

/// Of each key one run is executed. What one process has taken or parked, the other one learns from the log; or from the runs, if the
/// log is lost.
#[tokio::test]
async fn process_counts_and_returns_what_another_one_has_taken_and_parked() {
    for is_log_lost in [false, true] {
        let pool = database(&format!("limit_two_{is_log_lost}")).await;
        let (store, worker, _) = launching(&pool).await;
        let (other, other_worker) = beside(&pool).await;
        sqlx::raw_sql(RUNS).execute(&pool).await.unwrap();
        sqlx::raw_sql("DELETE FROM scoop.run").execute(&pool).await.unwrap();
        let of_k = async |store: &PostgresStore, worker| {
            let claimed =
                claim_with(store, worker, &QueueCursors::default(), Some("k".to_owned())).await.unwrap();
            numbers(&claimed)
        };
        let end = async || {
            let end = "DELETE FROM scoop.run WHERE state = 'running'";
            sqlx::raw_sql(end).execute(&pool).await.unwrap();
            if is_log_lost {
                sqlx::raw_sql("TRUNCATE scoop.limit_log").execute(&pool).await.unwrap();
            }
        };
        // Both know the saga.
        assert!(of_k(&store, worker).await.is_empty() && of_k(&other, other_worker).await.is_empty());
        for number in 4..=7 {
            add(&pool, number, 60 - number).await;
        }
        assert_eq!(of_k(&store, worker).await, [4]);
        assert!(of_k(&other, other_worker).await.is_empty(), "the place is taken");
        assert_eq!(in_state(&pool, "running").await, [4]);
        // The first process has parked the others. The second one has a due run of the key, and returns the parked ones before.
        for (number, next) in [(8, 5), (9, 6), (10, 7)] {
            end().await;
            add(&pool, number, 0).await;
            assert_eq!(of_k(&other, other_worker).await, [next], "the log is lost: {is_log_lost}");
            assert!(of_k(&store, worker).await.is_empty(), "the place is taken");
        }
        done(pool).await;
    }
}

/// A parked run returns to its queue with the time at which it was ready. It is behind no position then.
#[tokio::test]
async fn parked_run_that_returns_is_claimed_from_the_positions_after_its_parking() {
    let pool = database("limit_progress_parked").await;
    let (store, worker, _) = launching(&pool).await;
    sqlx::raw_sql(RUNS).execute(&pool).await.unwrap();
    // Of another key than the parked run.
    let claimed = claim_all(&store, worker).await.unwrap();
    assert_eq!(numbers(&claimed), [3]);
    let progress = claimed.cursors.expect("it has looked");
    assert!(!progress.has_left());
    sqlx::raw_sql("DELETE FROM scoop.run WHERE state = 'running'").execute(&pool).await.unwrap();
    let freed = FreedKeys { keys: vec!["k".into()], ..FreedKeys::default() };
    let of = LimitedSaga { saga: "saga".into(), handlers: vec!["saga".into()], key_from: None };
    let key_of = |_: &Candidate| Some("k".to_owned());
    let request = LimitedRequest {
        claimer: Claimer { worker, identifier: "w" },
        queue: &LimitedQueue { of, queues: queues() },
        slots: 0,
        suspect: None,
        freed: &freed,
        cursors: &progress,
        key_of: &key_of,
    };
    // Without a slot it returns, and another claim takes it.
    let offered = store.claim_limited(request).await.unwrap();
    assert!(offered.runs.is_empty());
    let progress = offered.cursors.expect("the run has returned");
    assert_eq!(numbers(&claim_from(&store, worker, &progress).await.unwrap()), [2]);
    done(pool).await;
}

async fn in_state(pool: &PgPool, state: &str) -> Vec<u128> {
    let runs =
        "SELECT message_id FROM scoop.run WHERE state::text = $1 AND handler = 'saga' ORDER BY message_id";
    let runs: Vec<Uuid> = sqlx::query_scalar(runs).bind(state).fetch_all(pool).await.unwrap();
    runs.iter().map(Uuid::as_u128).collect()
}

/// Has each row that enters this table raise an error of this code, if the condition holds.
async fn refuse(pool: &PgPool, table: &str, code: &str, condition: &str) {
    let name = format!("refuse_{}", code.to_lowercase());
    let trigger = format!(
        "CREATE FUNCTION public.{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF {condition} THEN RAISE EXCEPTION 'injected' USING ERRCODE = '{code}'; END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER {name} BEFORE INSERT OR UPDATE ON scoop.{table} FOR EACH ROW EXECUTE FUNCTION public.{name}()"
    );
    sqlx::raw_sql(AssertSqlSafe(trigger)).execute(pool).await.unwrap();
}

#[tokio::test]
async fn run_that_the_database_refuses_to_claim_is_stuck_alone() {
    let pool = database("limit_refused").await;
    let (store, worker, _) = launching(&pool).await;
    sqlx::raw_sql(DUE).execute(&pool).await.unwrap();
    refuse(&pool, "message_event", "22000", "NEW.message_id = lpad('2', 32, '0')::uuid").await;
    let claimed = claim_all(&store, worker).await.unwrap();
    assert_eq!(claimed.runs.iter().filter(|run| run.is_ok()).count(), 2);
    assert_eq!((in_state(&pool, "running").await, in_state(&pool, "stuck").await), (vec![1, 3], vec![2]));
    done(pool).await;
}

#[tokio::test]
async fn row_of_a_rate_that_the_database_refuses_marks_no_run() {
    for code in ["22000", "23514", "54000"] {
        let pool = database(&format!("limit_rate_{code}")).await;
        let (store, worker, _) = launching(&pool).await;
        sqlx::raw_sql(DUE).execute(&pool).await.unwrap();
        refuse(&pool, "rate_window", code, "true").await;
        let error = claim_all(&store, worker).await.expect_err("the rate cannot be recorded");
        assert!(error.to_string().contains("injected"), "{error}");
        assert_eq!(in_state(&pool, "ready").await, [1, 2, 3], "{code}");
        done(pool).await;
    }
}

/// The first run is refused, so that each is claimed alone; then the claim of the second one fails.
#[tokio::test]
async fn error_of_the_server_in_the_claim_of_one_run_does_not_mark_it() {
    for code in ["57014", "40001", "53200", "57P01", "XX000"] {
        let pool = database(&format!("limit_alone_{}", code.to_lowercase())).await;
        let (store, worker, _) = launching(&pool).await;
        sqlx::raw_sql(DUE).execute(&pool).await.unwrap();
        refuse(&pool, "message_event", "22000", "NEW.message_id = lpad('1', 32, '0')::uuid").await;
        let second = "NEW.message_id = lpad('2', 32, '0')::uuid AND EXISTS (SELECT FROM scoop.run WHERE state = 'stuck')";
        refuse(&pool, "message_event", code, second).await;
        let claimed = claim_all(&store, worker).await.unwrap();
        assert!(claimed.runs.iter().all(Result::is_err), "{code}");
        assert_eq!(
            (in_state(&pool, "ready").await, in_state(&pool, "stuck").await),
            (vec![2, 3], vec![1]),
            "{code}"
        );
        done(pool).await;
    }
}

#[tokio::test]
async fn statement_that_was_prepared_before_its_table_changed_blames_no_row() {
    let pool = database("cached_plan").await;
    let mut session = pool.acquire().await.unwrap();
    session.execute("CREATE TABLE public.changed (n int)").await.unwrap();
    let read = "SELECT * FROM public.changed";
    sqlx::query(read).fetch_all(&mut *session).await.unwrap();
    session.execute("ALTER TABLE public.changed ADD COLUMN more int").await.unwrap();
    let error = sqlx::query(read).fetch_all(&mut *session).await.expect_err("its result has changed");
    assert!(error.to_string().contains("cached plan"), "{error}");
    assert!(!is_of_contents(&error));
    let error = sqlx::query("SELECT 1 / n FROM (VALUES (0)) v (n)").fetch_all(&mut *session).await;
    assert!(is_of_contents(&error.expect_err("a division by zero")));
    drop(session);
    done(pool).await;
}
