//! The page of a hierarchy.

use axum::http::StatusCode;

use crate::shop::{Plan, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_is_shown_as_tree_and_time_line() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("none left".into())).await;
    let got = shop.get(&format!("/hierarchies/{}", order.id())).await;
    got.has("rolled back: none left").has("<rect class=\"run\"").has("<rect class=\"step\"");
    got.has("<rect class=\"compensation\"")
        .has("undo reserve")
        .has("/actions/relaunch/")
        .lacks("/actions/cancel/");
    let waiting = shop.shipped(2).await;
    let got = shop.get(&format!("/hierarchies/{}", waiting.id())).await;
    got.has("waits for 2 children").has("class=\"level-1\"").has("<rect class=\"wait open\"");
    got.has("wait after reserve").has("so far").has("/actions/cancel/");
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_children_are_limited() {
    let shop = Shop::open().await;
    let order = shop.shipped(1_000).await;
    let path = format!("/hierarchies/{}", order.id());
    let got = shop.get(&path).await;
    got.has("100 runs are shown, and more are left out").has("limit=1000");
    assert!(got.text.len() < 200_000, "{} bytes", got.text.len());
    shop.get(&format!("{path}?limit=1000")).await.has("1000 runs are shown");
    assert_eq!(shop.get(&format!("{path}?limit=1001")).await.status, StatusCode::BAD_REQUEST);
    let run = order.tree().limit(1).await.unwrap().roots()[0].id();
    shop.get(&format!("/runs/{run}")).await.has("Further children may not be shown.");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_handler_are_limited() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Commit).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    shop.db
        .execute(
            "WITH launched AS (
                 INSERT INTO scoop.message (topic, payload) SELECT 'shop.unheard', '{}' FROM generate_series(1, 5000) RETURNING id
             )
             INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage)
             SELECT launched.id, 'EMITTED', e.coroutine_name, 'reserve', e.cooperation_lineage
             FROM launched, scoop.message_event e WHERE e.type = 'SEEN'",
        )
        .await;
    for path in [format!("/hierarchies/{}", order.id()), format!("/runs/{run}")] {
        let got = shop.get(&path).await;
        assert_eq!(got.text.matches("no handler (on shop.unheard)").count(), 100, "{path}");
        got.has("There may be more messages without a handler.");
    }
}
