//! The error queue.

use axum::http::StatusCode;

use crate::shop::{BYTES_MAX, CARD, Got, Plan, Shop};

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
async fn error_queues_have_pages_and_each_is_shown_by_its_address() {
    let shop = Shop::open().await;
    shop.db
        .execute(
            "INSERT INTO scoop.handler (topic, handler)
             SELECT 'scoop.failed:a & b', 'queue ' || lpad(n::text, 5, '0') FROM generate_series(1, 10000) n;
             INSERT INTO scoop.handler (topic, handler) VALUES ('zz', 'scoop.failed queue')",
        )
        .await;
    let next_queues = |got: &Got| {
        let before = got.text.split_once("\">Next error queues</a>").expect("there are more").0;
        before.rsplit_once("href=\"").unwrap().1.replace("&#38;", "&")
    };
    let first = shop.get("/error-queue").await;
    first.has("queue 00001").has("queue 00200").lacks("queue 00201").lacks("First error queues");
    let second = shop.get(&next_queues(&first)).await;
    second.has("queue 00201").has("queue 00400").lacks("queue 00401").has("href=\"/error-queue\"");
    for got in [&first, &second] {
        assert_eq!(got.text.matches("aria-current=\"true\">queue ").count(), 1);
        assert!(got.text.len() <= BYTES_MAX, "{} bytes", got.text.len());
    }
    // The list of queues stays where it is.
    let second_path = next_queues(&first).replace("/error-queue?", "&");
    let asked = format!("/error-queue?handler=queue+00300&topic=scoop.failed%3Aa+%26+b{second_path}");
    shop.get(&asked).await.has("aria-current=\"true\">queue 00300").has("No failure was sent to it.");
    let elsewhere = shop.get("/error-queue?handler=queue+09999&topic=scoop.failed%3Aa+%26+b").await;
    elsewhere.has("No failure was sent to it.").lacks("aria-current=\"true\">queue ");
    let beyond = shop.get("/error-queue?past_topic=zz&past_handler=zz").await;
    beyond.has("No further saga subscribes to failures.").has("First error queues");
}
