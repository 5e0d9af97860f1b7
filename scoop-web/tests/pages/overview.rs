//! The overview: its figures, its first load, and what it leaves out.

use scoop_web::Options;

use crate::shop::{BYTES_MAX, CARD, Order, Plan, Shop};

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
    shop.scoop.pause(scoop::PauseTarget::Everything).await.unwrap();
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
async fn first_load_is_small_with_thirty_sagas_and_fifty_workers() {
    let mut shop = Shop::open().await;
    for _ in 0..10 {
        shop.order(Plan::Fail("none left ".repeat(100))).await;
    }
    // Workers without a session would be deleted by a program with sagas.
    shop.scoop.shutdown().await.unwrap();
    shop.scoop = shop.db.client();
    shop.router = scoop_web::router(shop.scoop.clone(), Options::new().without_token());
    shop.db
        .execute(
            "INSERT INTO scoop.handler (topic, handler)
             SELECT format('shop.topic-%s', n), format('a-saga-of-the-shop-with-a-name-%s', n) FROM generate_series(10, 39) n",
        )
        .await;
    shop.db
        .execute(
            "INSERT INTO scoop.worker (id, lock_key, backend, role, topics, handlers, definitions, started_at)
             SELECT scoop.gen_uuid_v7(), n, n, (SELECT oid FROM pg_roles WHERE rolname = current_user),
                    array_agg(topic), array_agg(handler), array_agg(1), now()
             FROM generate_series(1, 50) n CROSS JOIN scoop.handler GROUP BY n",
        )
        .await;
    for n in 10..40 {
        shop.scoop.launch_untyped(format!("shop.topic-{n}"), serde_json::json!({})).await.unwrap();
    }
    let got = shop.get("/").await;
    got.has("of a-saga-of-the-shop-with-a-name-10\"").has("of a-saga-of-the-shop-with-a-name-39\"");
    assert_eq!(got.text.matches("<td data-label=\"Worker\"").count(), 50);
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
    let got = shop.get("/").await;
    assert!(got.text.len() <= BYTES_MAX, "{} bytes", got.text.len());
    assert_eq!(got.text.matches("<th scope=\"row\">").count(), 200);
    got.has("200 of 501+ sagas are shown").has("saga 00001").has("saga 00199").lacks("saga 00200");
    let place = |saga: &str| got.text.find(saga).unwrap();
    assert!(place("saga 09999") < place("saga 00001"));
    got.has("<strong>501+</strong> <span class=\"minor\">runs</span>");
}
