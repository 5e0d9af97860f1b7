//! The signal for a run that awaits one.

use axum::http::StatusCode;
use scoop::Outcome;
use scoop_operate::OperateExt as _;
use scoop_test_support::Ends as _;

use crate::browser::{Colors, Window};
use crate::browsing::{Site, first_parcel, first_run};
use crate::shop::{CARD, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn awaited_signal_is_sent_by_a_click() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    let order = shop.shipped(1).await;
    site.goto(&format!("runs/{}", first_parcel(&order).await)).await;
    browser.click("a[href*='/actions/signal/']").await;
    browser.shows("p.block", "awaits the signal `shop.collected` with the key `parcel 0`").await;
    browser.enter("#payload", "{\"number\": ").await;
    site.sign("the customer has called").await;
    browser.shows(".error", "The payload is no JSON").await;
    browser.enter("#payload", "{}").await;
    site.sign("the customer has called").await;
    browser.shows(".done", "Send the signal: accepted").await;
    browser.shows("#live p .phase", "committed").await;
    browser.shows("#requests + ul li", "signal by Ada Lovelace: the customer has called").await;
    assert_eq!(order.ends().await.unwrap(), Outcome::Committed);
    let sent = shop.scoop.operate().failures().interventions(order.id()).await.unwrap().remove(0);
    assert_eq!((&*sent.kind, &*sent.source), ("signal", "Ada Lovelace"));
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_a_signal_shows_no_stored_payload_and_refuses_mistakes() {
    let shop = Shop::open().await;
    let order = shop.shipped(1).await;
    let parcel = first_parcel(&order).await;
    shop.get(&format!("/runs/{parcel}")).await.has("[redacted]").lacks(CARD);
    let path = format!("/actions/signal/{parcel}");
    let page = shop.get(&path).await;
    page.lacks(CARD).lacks("[redacted]").has("<textarea id=\"payload\"");
    for (payload, reason, wrong) in [
        ("", "why", "The payload is no JSON"),
        ("{\"a\": }", "why", "The payload is no JSON"),
        ("{}", "", "The reason is missing."),
    ] {
        let fields = [("form", page.form()), ("name", "Ada"), ("reason", reason), ("payload", payload)];
        let got = shop.post(&path, &fields).await;
        assert_eq!(got.status, StatusCode::UNPROCESSABLE_ENTITY, "{payload}");
        got.has(wrong).has("aria-invalid=\"true\"");
    }
    let fields = |payload| [("form", page.form()), ("name", "Ada"), ("reason", "why"), ("payload", payload)];
    assert_eq!(shop.post(&path, &fields("\"a\\u0000b\"")).await.status, StatusCode::BAD_REQUEST);
    assert!(shop.scoop.operate().failures().interventions(order.id()).await.unwrap().is_empty());
    // The run of the order awaits no signal.
    let run = first_run(&order).await;
    shop.get(&format!("/runs/{run}")).await.lacks("/actions/signal/");
    let answer = shop.post(&format!("/actions/signal/{run}"), &fields("{}")).await.location().to_owned();
    assert_eq!(answer, format!("/runs/{run}?action=signal&answer=not+awaiting"));
    shop.get(&answer).await.has("the run awaits no signal");
}
