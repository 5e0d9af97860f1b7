//! The error queue.

use axum::http::StatusCode;

use crate::shop::{CARD, Plan, Shop};

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
