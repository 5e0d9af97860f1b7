//! The overview: its figures, its first load, and what it leaves out.

use axum::http::StatusCode;
use scoop::tree::RunState;
use scoop_operate::OperateExt as _;
use scoop_test_support::Ends as _;
use scoop_web::Options;

use crate::shop::{CARD, Order, Plan, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn overview_counts_runs_and_lists_failures_and_workers() {
    let shop = Shop::open().await;
    shop.order(Plan::Commit).await;
    shop.order(Plan::Fail("none left".into())).await;
    shop.shipped(2).await;
    let got = shop.get("/").await;
    got.has("aria-label=\"1 committed of orders\"").has("aria-label=\"2 waiting of parcels\"");
    got.lacks("stuck of parcels")
        .lacks("in force")
        .has("sold-out: none left")
        .has("<span class=\"phase good\">alive</span>");
    shop.scoop.operate().pauses().pause(scoop::pauses::PauseTarget::Everything).await.unwrap();
    let order = Order { plan: Plan::Commit, card: CARD.into() };
    shop.scoop.launch(order).await.unwrap();
    let stuck = "UPDATE scoop.run SET state = 'stuck', reason = 'a test' WHERE id = (
                     SELECT id FROM scoop.run WHERE handler = 'parcels' LIMIT 1)";
    shop.db.execute(stuck).await;
    let got = shop.get("/").await;
    got.has("1 pause is in force.");
    got.has("aria-label=\"1 ready of orders\"").has("<td class=\"bad\"><a href=\"").has("1 stuck of parcels");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_is_counted_in_the_overview_until_it_is_settled() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::FailToUndo).await;
    order.comes_to(|tree| matches!(tree.roots()[0].state, RunState::RollbackFailed(_))).await.unwrap();
    let run = order.tree().await.unwrap().roots()[0].id();
    let listed = "/runs?state=rollback+failed";
    let got = shop.get("/").await;
    got.has("aria-label=\"1 failed rollbacks of orders\"").lacks(" stuck of orders");
    got.has(&format!("href=\"{listed}\""));
    shop.get(listed).await.has(&format!("/runs/{run}\""));
    shop.scoop.operate().failures().resolve(run, "by hand").await.unwrap();
    order.comes_to(|tree| matches!(tree.roots()[0].state, RunState::RolledBack(_))).await.unwrap();
    let got = shop.get("/").await;
    got.has("aria-label=\"1 rolled back of orders\"").lacks("failed rollbacks of orders");
    shop.get(listed).await.has("No such run.");
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_pages_say_what_would_be_there_and_name_a_command() {
    let shop = Shop::open().await;
    for (path, what, command) in [
        ("/", "The runs of each saga would be here", "cargo run --example checkout -- --serve"),
        ("/", "One that is rolled back would be here", "scoop cancel ID --reason TEXT"),
        ("/runs", "The runs of a message would be here", "scoop launch TOPIC JSON"),
        ("/failures", "Failures would be here", "cargo run --example checkout -- --serve"),
        (
            "/inbox",
            "A run whose compensation failed would be here",
            "cargo run --example checkout -- --serve",
        ),
        ("/inbox", "no living program can continue would be here", "cargo run --example stuck_runs"),
        ("/error-queue", "would be here", "cargo run --example error_queue"),
        ("/schedules", "would be here", "cargo run --example schedule"),
        ("/entities", "Entities would be here", "cargo run --example warehouse"),
        ("/topology", "A pause would be here", "scoop pause --saga NAME --reason TEXT"),
    ] {
        shop.get(path).await.has(what).has(&format!("<code>{command}</code>"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_shows_rates_durations_and_charts() {
    let shop = Shop::open().await;
    shop.get("/").await.has("messages launched in each minute: 0 at most");
    shop.order(Plan::Commit).await;
    shop.order(Plan::Fail("none left".into())).await;
    let got = shop.get("/").await;
    got.has("messages launched in each minute: ").has("<polyline points=\"0.0,23.0 ");
    got.has("p50 of the latest committed runs").has(">p50<").has(">p99<").lacks(" style=");
    let of_hour = "aria-label=\"1 committed of orders\">1</a> <span class=\"minor\">&#60; 0.01/s</span>";
    got.has(of_hour).has("runs in the last hour, &#60; 0.01/s");
    got.lacks("messages launched in each minute: 0 at most");
}

/// Sagas with runs in each column of the table: as many of each kind.
const SAGAS_WITH_RUNS: &str = "
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, owner, reason, rolling_back, failure, rollback_failure, step,
         last_event_at)
    SELECT root, id, ARRAY[root, id], root, 'many', handler, state, CASE state WHEN 'running' THEN id END, 'a test', state = 'failed',
           '{}', CASE state WHEN 'failed' THEN '{}'::jsonb END, 'step', now()
    FROM generate_series(1, 200) n
    CROSS JOIN unnest('{ready,running,waiting,stuck,failed}'::scoop.run_state[]) AS state
    CROSS JOIN LATERAL (
        SELECT md5('root' || n || state)::uuid AS root, md5('run' || n || state)::uuid AS id,
               'a-saga-of-the-shop-with-a-name-' || lpad(n::text, 3, '0') AS handler
    ) named;
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, created_at)
    SELECT root, type, 'a-saga-of-the-shop-with-a-name-' || lpad(n::text, 3, '0'), 'step',
           ARRAY[root, md5('parent' || root)::uuid, md5('run' || root)::uuid], now() - interval '30 min'
    FROM generate_series(1, 200) n
    CROSS JOIN unnest('{COMMITTED,ROLLED_BACK}'::scoop.message_event_type[]) AS type
    CROSS JOIN LATERAL (SELECT md5('root' || n || type)::uuid AS root) named;
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT e.cooperation_lineage[1], e.cooperation_lineage[3], e.cooperation_lineage[2], e.cooperation_lineage, e.message_id, 'many',
           e.coroutine_name, lower(e.type::text)::scoop.run_outcome, e.created_at
    FROM scoop.message_event e
    WHERE e.coroutine_name LIKE 'a-saga-of-the-shop-with-a-name-%'";

#[tokio::test(flavor = "multi_thread")]
async fn first_load_is_small_with_two_hundred_sagas_and_fifty_workers() {
    let mut shop = Shop::open().await;
    for _ in 0..10 {
        shop.order(Plan::Fail("none left ".repeat(100))).await;
    }
    // Workers without a session would be deleted by a program with sagas.
    shop.scoop.shutdown().await.unwrap();
    shop.scoop = shop.db.client();
    shop.router = scoop_web::router(shop.scoop.clone(), Options::new().without_token());
    shop.db.execute(SAGAS_WITH_RUNS).await;
    shop.db
        .execute(
            "INSERT INTO scoop.worker (id, lock_key, backend, role, topics, handlers, definitions, started_at)
             SELECT scoop.gen_uuid_v7(), n, n, (SELECT oid FROM pg_roles WHERE rolname = current_user),
                    array_agg(topic), array_agg(handler), array_agg(1), now()
             FROM generate_series(1, 50) n CROSS JOIN scoop.handler GROUP BY n",
        )
        .await;
    let got = shop.get("/").await;
    assert_eq!(got.text.matches("<td data-label=\"Worker\"").count(), 50);
    assert_eq!(got.text.matches("<th scope=\"row\">").count(), 30);
    got.has("30 of 201 sagas are shown").lacks("Figures with a +").lacks("<td class=\"minor\">0</td>");
    let mut bytes = got.text.len();
    for part in got.text.split("/assets/").skip(1) {
        let name = part.split_once('"').unwrap().0;
        let asset = shop.get(&format!("/assets/{name}")).await;
        assert!(asset.headers["cache-control"].to_str().unwrap().contains("immutable"));
        bytes += asset.text.len();
    }
    assert!(bytes < 100_000, "{bytes} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_shows_the_first_sagas_and_those_with_stuck_runs() {
    let shop = Shop::open().await;
    shop.db
        .execute(
            "INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, state, reason, last_event_at)
             SELECT root, id, ARRAY[root, id], root, 'many', 'saga ' || lpad(n::text, 5, '0'),
                    CASE n WHEN 9999 THEN 'stuck' ELSE 'ready' END::scoop.run_state, 'it is', now()
             FROM generate_series(1, 10000) n
             CROSS JOIN LATERAL (SELECT md5('root' || n)::uuid AS root, md5('run' || n)::uuid AS id) ids;
             INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage)
             SELECT md5('root' || n)::uuid, 'COMMITTED', 'saga ' || lpad(n::text, 5, '0'), 'step',
                    ARRAY[md5('root' || n)::uuid, md5('run' || n)::uuid]
             FROM generate_series(1, 10000) n",
        )
        .await;
    for (path, sagas, last, beyond) in
        [("/", 30, "saga 00029", "saga 00030"), ("/?sagas=200", 200, "saga 00199", "saga 00200")]
    {
        let got = shop.get(path).await;
        assert!(got.text.len() <= 1_000 * sagas + 20_000, "{path}: {} bytes", got.text.len());
        assert_eq!(got.text.matches("<th scope=\"row\">").count(), sagas, "{path}");
        got.has(&format!("{sagas} of 501+ sagas are shown")).has("saga 00001").has(last).lacks(beyond);
        assert_eq!(
            got.text.contains("<a href=\"/?sagas=200\">Show more of them.</a>"),
            sagas < 200,
            "{path}"
        );
        let place = |saga: &str| got.text.find(saga).unwrap();
        assert!(place("saga 09999") < place("saga 00001"), "{path}");
        got.has("<strong>501+</strong> <span class=\"minor\">runs</span>").has("Figures with a +");
    }
    assert_eq!(shop.get("/?sagas=201").await.status, StatusCode::BAD_REQUEST);
}

/// Ends of children that were rolled back just now.
fn failed_children(from: u32, to: u32) -> String {
    format!(
        "INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage)
         SELECT root, 'ROLLED_BACK', 'parcels', 'step', ARRAY[root, md5('parent' || n)::uuid, md5('run' || n)::uuid]
         FROM generate_series({from}, {to}) n CROSS JOIN LATERAL (SELECT md5('root' || n)::uuid AS root) named;
         INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
         SELECT root, id, parent, ARRAY[root, parent, id], root, 'parcels', 'parcels', 'rolled_back', clock_timestamp()
         FROM generate_series({from}, {to}) n
         CROSS JOIN LATERAL (
             SELECT md5('root' || n)::uuid AS root, md5('parent' || n)::uuid AS parent, md5('run' || n)::uuid AS id
         ) named"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_hierarchy_before_many_failed_children_is_listed_or_found_by_the_link() {
    let shop = Shop::open().await;
    shop.get("/").await.has("No hierarchy has failed.").lacks("rel=\"next\"");
    shop.order(Plan::Fail("none left".into())).await;
    shop.get("/").await.has("sold-out: none left").lacks("rel=\"next\"");
    shop.db.execute(&failed_children(1, 700)).await;
    shop.get("/").await.has("sold-out: none left").lacks("rel=\"next\"");
    shop.db.execute(&failed_children(701, 2_700)).await;
    let mut got = shop.get("/").await;
    got.lacks("none left").lacks("No hierarchy has failed.").has("no hierarchy is among them");
    got.has("rel=\"next\" href=\"/runs?state=rolled+back&#38;state=rollback+failed&#38;roots=1&#38;after=");
    while !got.text.contains("sold-out: none left") {
        got = shop.get(&got.next()).await;
    }
}
