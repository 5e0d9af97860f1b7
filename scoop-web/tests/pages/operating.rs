//! What is beside lists of runs: contents, rates, the error queue, schedules, entities, the graph of the topology.

use axum::http::StatusCode;
use scoop::{RunState, Tree};
use scoop_test_support::Ends as _;

use crate::shop::{CARD, Fill, Order, Plan, Report, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn run_shows_steps_and_contents_without_redacted_values() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("none left".into())).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    let got = shop.get(&format!("/runs/{run}")).await;
    got.has("<span class=\"phase undone\">undone</span>").has("reserve returned, after 0 steps");
    got.has("&#34;shelf&#34;: 7").has("&#34;Fail&#34;: &#34;none left&#34;");
    got.has("&#34;card&#34;: &#34;[redacted]&#34;").lacks(CARD);
    // The other pages show no contents at all.
    for path in ["/".to_owned(), "/runs".into(), format!("/hierarchies/{}", order.id())] {
        shop.get(&path).await.lacks(CARD);
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
    got.has("half took").has("99 % took").lacks(" style=");
    got.lacks("messages launched in each minute: 0 at most");
}

#[tokio::test(flavor = "multi_thread")]
async fn error_queue_shows_the_failures_that_it_got() {
    let shop = Shop::open().await;
    shop.get("/error-queue").await.has("No saga subscribes to failures.");
    let shop = Shop::with_all_sagas().await;
    shop.get("/error-queue").await.has("on-call").has("No failure was sent to it.");
    let order = shop.order(Plan::Fail("none left".into())).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    let got = shop.get("/error-queue").await;
    got.has(&format!("href=\"/runs/{run}\"")).has("sold-out").has("rolled back").lacks(CARD);
    got.has("/error-queue?handler=on-call&#38;topic=scoop.failed.rolled_back");
    shop.get("/error-queue?handler=other&topic=scoop.failed")
        .await
        .has("No failure was sent to it")
        .lacks("none left");
    assert_eq!(shop.get("/error-queue?after=x").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_show_rule_next_time_and_last_hierarchy() {
    let shop = Shop::open().await;
    shop.get("/schedules").await.has("No saga runs by itself.");
    let shop = Shop::with_all_sagas().await;
    let got = shop.get("/schedules").await;
    got.has("report").has("every 1 h 30 min").has(">in 1 h ").lacks("no program runs");
    let tick = shop.scoop.trigger::<Report>().await.unwrap();
    shop.get("/schedules").await.has(&format!("/hierarchies/{}", tick.id()));
}

#[tokio::test(flavor = "multi_thread")]
async fn entity_is_found_by_name_and_key_with_state_events_and_commands() {
    let shop = Shop::open().await;
    shop.get("/entities").await.has("No command has decided about an entity.");
    let shop = Shop::with_all_sagas().await;
    for units in 1..=51 {
        shop.scoop.send(Fill { sku: "b&b".into(), units }).await.unwrap().decision().await.unwrap();
    }
    shop.get("/entities").await.has("/entities?name=stock");
    shop.get("/entities?name=stock").await.has("/entities?name=stock&#38;key=b%26b");
    let got = shop.get("/entities?name=stock&key=b%26b").await;
    got.has("version 51").has("&#34;units&#34;: 1326").has("shop.filled").lacks("First page");
    got.has("/entities?name=stock&#38;key=b%26b&#38;after=50").has("aria-label=\"Command of version 50\"");
    let got = shop.get("/entities?name=stock&key=b%26b&after=50").await;
    got.has("aria-label=\"Command of version 51\"").has("First page").lacks("rel=\"next\"");
    shop.get("/entities?name=stock&key=none").await.has("There is no such entity.");
    assert_eq!(shop.get("/entities?name=stock&key=a&after=x").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn topology_is_drawn_with_launches_and_marks() {
    let shop = Shop::open().await;
    shop.shipped(1).await;
    let got = shop.get("/topology").await;
    got.has("aria-label=\"saga orders, ")
        .has("aria-label=\"topic shop.parcels\"")
        .has("aria-label=\"saga parcels, 0 ended in the last hour\"");
    assert_eq!(got.text.matches("class=\"edge\"").count(), 3, "two subscriptions and a launch");
    got.lacks("Retired").lacks(" style=");
    for _ in 0..3 {
        shop.order(Plan::Commit).await;
    }
    shop.get("/topology").await.has("aria-label=\"saga orders, 3 ended in the last hour\"");
    shop.scoop.retire_handler("shop.parcels", "parcels").await.unwrap();
    let got = shop.get("/topology").await;
    got.has("<rect class=\"saga retired\"").has(">retired</text>").has("<h2 id=\"former\">Retired</h2>");
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_saga_has_its_mark_in_the_graph() {
    let shop = Shop::open().await;
    shop.get("/topology").await.lacks("saga idle").lacks("saga parcels, paused");
    shop.scoop.pause(scoop::PauseTarget::topic("shop.parcels")).await.unwrap();
    let got = shop.get("/topology").await;
    got.has("aria-label=\"saga parcels, paused\"><rect class=\"saga idle\"").has(">paused</text>");
    got.lacks("aria-label=\"saga orders, paused\"");
    shop.scoop.resume(scoop::PauseTarget::topic("shop.parcels")).await.unwrap();
    shop.get("/topology").await.lacks("saga idle");
}

#[tokio::test(flavor = "multi_thread")]
async fn pauses_and_repairs_beyond_a_maximum_are_counted() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Commit).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    shop.db
        .execute(&format!(
            "INSERT INTO scoop.pause (kind, name, source) SELECT 'topic', 't' || n, 'ann' FROM generate_series(1, 507) AS n;
             INSERT INTO scoop.intervention (root, run, handler, message_id, kind, source, requested_at)
             SELECT '{}', '{run}', 'orders', gen_random_uuid(), 'retry', 'ann', now() FROM generate_series(1, 107)",
            order.id()
        ))
        .await;
    let got = shop.get("/topology").await;
    got.has("7 later ones are not shown");
    assert_eq!(got.text.matches("data-label=\"Paused\"").count(), 500);
    shop.get(&format!("/runs/{run}")).await.has("7 earlier ones are not shown");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_shown_with_the_length_of_the_queue() {
    let shop = Shop::open().await;
    shop.get("/topology").await.has("data-label=\"Limits\"").lacks("queue = ");
    shop.scoop.pause(scoop::PauseTarget::handler("parcels")).await.unwrap();
    let order = Order { plan: Plan::Ship(9), card: CARD.into() };
    let order = shop.scoop.launch(order).await.unwrap();
    order.comes_to(|tree: &Tree| tree.runs().len() == 10).await.unwrap();
    shop.db
        .execute(
            "INSERT INTO scoop.run_limit (saga, handlers, rate, rate_period_ms, queue)
             VALUES ('parcels', '{parcels}', 5, 60000, 10)",
        )
        .await;
    shop.get("/topology")
        .await
        .has("rate(&#34;5/m&#34;), queue = 10 <span class=\"phase bad\">9 wait</span>");
    shop.db.execute("UPDATE scoop.run_limit SET queue = 9").await;
    shop.get("/topology").await.has("<span class=\"phase bad\">9+ wait</span>");
    shop.db.execute("UPDATE scoop.run_limit SET queue = 20").await;
    shop.get("/topology").await.has("<span class=\"minor\">9 wait</span>");
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_a_pause_is_shown_with_name_and_reason() {
    let shop = Shop::open().await;
    for (path, reason) in
        [("/pause?topic=shop.orders", "the till is broken"), ("/resume?topic=shop.orders", "it is mended")]
    {
        let page = shop.get(path).await;
        let fields = [("form", page.form()), ("name", "Ada"), ("reason", reason)];
        assert_eq!(shop.post(path, &fields).await.location(), "/topology");
    }
    shop.get("/topology").await.has("Ended pauses").has("it is mended");
    let ended = shop.scoop.ended_pauses().limit(1).await.unwrap().remove(0);
    assert_eq!((ended.ended_by.as_deref(), ended.end_reason.as_deref()), (Some("Ada"), Some("it is mended")));
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_paused_and_resumed() {
    let shop = Shop::open().await;
    let page = shop.get("/pause?everything=1").await;
    let fields = [("form", page.form()), ("name", "Ada"), ("reason", "maintenance"), ("limit", "1h")];
    assert_eq!(shop.post("/pause?everything=1", &fields).await.location(), "/topology");
    let pauses = shop.scoop.pauses().await.unwrap();
    assert_eq!((pauses.len(), &pauses[0].target), (1, &scoop::PauseTarget::Everything));
    assert!(pauses[0].until.is_some());
    shop.get("/topology").await.has("saga orders, paused").has("saga parcels, paused").has("maintenance");
    assert!(shop.get("/pause?everything=1").await.text.contains("maxlength=\"1000\""));
    let page = shop.get("/resume?everything=1").await;
    let fields = [("form", page.form()), ("name", "Ada"), ("reason", "it is over")];
    assert_eq!(shop.post("/resume?everything=1", &fields).await.location(), "/topology");
    assert!(shop.scoop.pauses().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn inbox_and_failures_have_pages() {
    let shop = Shop::open().await;
    let mut last = None;
    for _ in 0..51 {
        last = Some(shop.order(Plan::FailToUndo).await);
    }
    let failed = |tree: &Tree| matches!(tree.roots()[0].state, RunState::RollbackFailed(_));
    last.unwrap().comes_to(failed).await.unwrap();
    let first = shop.get("/inbox").await;
    assert_eq!(first.text.matches("aria-label=\"Skip run").count(), 50);
    let rest = shop.get(&first.next()).await;
    assert_eq!(rest.text.matches("aria-label=\"Skip run").count(), 1);
    rest.has("First page").lacks("rel=\"next\"");
    assert_eq!(shop.get("/inbox?failed=x").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(shop.get("/failures?after=x").await.status, StatusCode::BAD_REQUEST);
    shop.get("/failures").await.has("51 runs that failed last").lacks("rel=\"next\"");
}
