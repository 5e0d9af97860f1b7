//! Pages of incomplete or unreadable records.

use axum::http::StatusCode;

use crate::shop::{Plan, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn run_whose_launch_is_not_recorded_shows_what_there_is() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("none left".into())).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    let page = format!("/runs/{run}");
    shop.get(&page).await.lacks("The record is incomplete");
    shop.db.execute("DELETE FROM scoop.message_event WHERE type = 'EMITTED'").await;
    let got = shop.get(&page).await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.text);
    got.has("The record is incomplete: the launch of the hierarchy is missing").has("none left");
    got.has("<span class=\"phase undone\">undone</span>").has("reserve returned, after 0 steps");
    got.lacks(&format!("href=\"/hierarchies/{}\"", order.id()));
}

#[tokio::test(flavor = "multi_thread")]
async fn child_whose_launch_is_not_recorded_shows_what_there_is() {
    let shop = Shop::open().await;
    let order = shop.shipped(2).await;
    let tree = order.tree().await.unwrap();
    let [lost, kept] = &tree.roots()[0].children[..] else { panic!("{tree}") };
    shop.db
        .execute(&format!(
            "DELETE FROM scoop.message_event WHERE type = 'EMITTED' AND message_id = '{}'",
            lost.message_id
        ))
        .await;
    let got = shop.get(&format!("/runs/{}", lost.id())).await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.text);
    got.has("the launch of the message of this run, or of a run above it, is missing").has("shop.collected");
    got.has(&format!("href=\"/hierarchies/{}\"", order.id())).has("<h2 id=\"events\">Events</h2>");
    shop.get(&format!("/runs/{}", kept.id())).await.lacks("The record is incomplete");
}
