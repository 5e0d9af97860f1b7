//! Pauses: their forms, and what they record.

use axum::http::StatusCode;

use crate::shop::Shop;
use scoop_operate::OperateExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn saga_is_paused_and_resumed() {
    let shop = Shop::open().await;
    shop.get("/topology").await.has("Nothing is paused.").has("shop.parcels").lacks("no program runs");
    let path = "/pause?saga=parcels";
    let page = shop.get(path).await;
    let mut fields = vec![("form", page.form()), ("name", "Ada"), ("reason", ""), ("limit", "1h")];
    let got = shop.post(path, &fields).await;
    assert_eq!(got.status, StatusCode::UNPROCESSABLE_ENTITY);
    fields[2].1 = "the scales are broken";
    assert_eq!(shop.post(path, &fields).await.location(), "/topology");
    let pause = shop.scoop.operate().pauses().list().await.unwrap().remove(0);
    assert_eq!((&*pause.source, pause.reason.as_deref()), ("Ada", Some("the scales are broken")));
    assert!(pause.until.is_some());
    shop.get("/topology").await.has("the scales are broken").has("<span class=\"phase idle\">paused</span>");
    let path = "/resume?saga=parcels";
    assert_eq!(shop.post(path, &fields).await.location(), "/topology");
    assert!(shop.scoop.operate().pauses().list().await.unwrap().is_empty());
    for wrong in ["/pause", "/pause?saga=a&topic=b"] {
        assert_eq!(shop.get(wrong).await.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_paused_and_resumed() {
    let shop = Shop::open().await;
    let page = shop.get("/pause?everything=1").await;
    let mut fields = vec![("form", page.form()), ("name", "Ada"), ("reason", "maintenance"), ("limit", "1h")];
    fields.push(("new_runs_only", "1"));
    assert_eq!(shop.post("/pause?everything=1", &fields).await.location(), "/topology");
    shop.get("/topology").await.has("everything: new runs only");
    fields.pop();
    assert_eq!(shop.post("/pause?everything=1", &fields).await.location(), "/topology");
    shop.get("/topology").await.lacks("new runs only");
    let pauses = shop.scoop.operate().pauses().list().await.unwrap();
    assert_eq!((pauses.len(), &pauses[0].target), (1, &scoop::pauses::PauseTarget::Everything));
    assert!(pauses[0].until.is_some());
    shop.get("/topology").await.has("saga orders, paused").has("saga parcels, paused").has("maintenance");
    assert!(shop.get("/pause?everything=1").await.text.contains("maxlength=\"1000\""));
    let page = shop.get("/resume?everything=1").await;
    let fields = [("form", page.form()), ("name", "Ada"), ("reason", "it is over")];
    assert_eq!(shop.post("/resume?everything=1", &fields).await.location(), "/topology");
    assert!(shop.scoop.operate().pauses().list().await.unwrap().is_empty());
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
    let ended = shop.scoop.operate().pauses().ended().limit(1).await.unwrap().remove(0);
    assert_eq!((ended.ended_by.as_deref(), ended.end_reason.as_deref()), (Some("Ada"), Some("it is mended")));
}
