//! The topology: its graph, its pages, pauses and limits in it.

use scoop::tree::Tree;
use scoop_operate::OperateExt as _;
use scoop_test_support::Ends as _;

use crate::shop::{BYTES_MAX, CARD, Order, Plan, Shop};

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
    got.has("data-label=\"Service\">shop</td><td data-label=\"Builds (workers)\">7 (1)</td>");
    for _ in 0..3 {
        shop.order(Plan::Commit).await;
    }
    shop.get("/topology").await.has("aria-label=\"saga orders, 3 ended in the last hour\"");
    shop.scoop.operate().handlers().retire("shop.parcels", "parcels").await.unwrap();
    let got = shop.get("/topology").await;
    got.has("<rect class=\"saga retired\"").has(">retired</text>").has("<h2 id=\"former\">Retired</h2>");
}

#[tokio::test(flavor = "multi_thread")]
async fn graph_that_is_left_out_has_a_reason() {
    for (rows, why) in [
        ("(topic, handler) SELECT 'many', 'saga ' || n FROM generate_series(1, 149) n", "150 subscriptions"),
        (
            "(topic, handler, retired_at) SELECT 'old', 'old ' || n, now() FROM generate_series(1, 151) n",
            "150 retired sagas",
        ),
        (
            "(topic, handler) SELECT 'topic ' || n, 'saga ' || n FROM generate_series(1, 80) n",
            "150 topics and sagas",
        ),
    ] {
        let shop = Shop::open().await;
        shop.db.execute(&format!("INSERT INTO scoop.handler {rows}")).await;
        let got = shop.get("/topology").await;
        got.has(&format!("The graph is left out: there are more than {why}.")).lacks("<svg class=\"graph\"");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topology_has_pages_and_finds_names() {
    let shop = Shop::open().await;
    let got = shop.get("/topology").await;
    got.lacks("rel=\"next\"").lacks("id=\"named\"").has("<svg class=\"graph\"").lacks("is left out");
    shop.db
        .execute(
            "INSERT INTO scoop.handler (topic, handler)
             SELECT 'a & b ' || lpad((n / 10)::text, 4, '0'), 'saga ' || lpad(n::text, 5, '0')
             FROM generate_series(1, 10000) n;
             INSERT INTO scoop.run_limit (saga, handlers, queue)
             SELECT 'saga ' || lpad(n::text, 5, '0'), ARRAY['saga ' || lpad(n::text, 5, '0')], 3 FROM generate_series(1, 400) n;
             INSERT INTO scoop.handler (topic, handler, retired_at) SELECT 'old', 'old ' || n, now() FROM generate_series(1, 300) n",
        )
        .await;
    let first = shop.get("/topology").await;
    first.has("saga 00001").has("saga 00200").lacks("saga 00201").lacks("First page").lacks("orders");
    first.has("queue = 3 <span class=\"minor\">0 wait</span>").has("no program runs");
    first.has("Further ones are not shown").lacks("<svg class=\"graph\"");
    first.has("The graph is left out: it is drawn of all subscriptions only");
    assert!(first.text.len() <= BYTES_MAX, "{} bytes", first.text.len());
    assert_eq!(first.text.matches("<tr><td data-label=\"Saga\"").count(), 2 * 200, "and the retired ones");
    let second = shop.get(&first.next()).await;
    second.has("saga 00201").has("saga 00400").lacks("saga 00401").has("href=\"/topology\"");
    let last = shop.get("/topology?topic=a+%26+b+1000&handler=saga+10000").await;
    last.has(">orders</a>").has(">parcels</a>").lacks("saga 10000").lacks("rel=\"next\"").lacks("<svg");
    shop.get("/topology?topic=zz&handler=zz").await.has("No further saga is subscribed.");
    let got = shop.get("/topology?named=saga+0777").await;
    got.has("saga 07770").has("saga 07779").lacks("saga 07780").lacks("rel=\"next\"");
    got.has("value=\"saga 0777\"").lacks("orders");
    let got = shop.get("/topology?named=saga+07").await;
    let next = got.next();
    assert!(next.contains("named=saga+07&"), "{next}");
    shop.get(&next).await.has("saga 07200").has("href=\"/topology?named=saga+07\"");
    let got = shop.get("/topology?named=shop.orders").await;
    got.has(">orders</a>").lacks("parcels").lacks("no program runs");
    shop.get("/topology?named=none").await.has("No topic or saga has such a name.");
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_saga_has_its_mark_in_the_graph() {
    let shop = Shop::open().await;
    shop.get("/topology").await.lacks("saga idle").lacks("saga parcels, paused");
    shop.scoop.operate().pauses().pause(scoop::pauses::PauseTarget::topic("shop.parcels")).await.unwrap();
    let got = shop.get("/topology").await;
    got.has("aria-label=\"saga parcels, paused\"><rect class=\"saga idle\"").has(">paused</text>");
    got.lacks("aria-label=\"saga orders, paused\"");
    shop.scoop.operate().pauses().resume(scoop::pauses::PauseTarget::topic("shop.parcels")).await.unwrap();
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
    shop.scoop.operate().pauses().pause(scoop::pauses::PauseTarget::handler("parcels")).await.unwrap();
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
