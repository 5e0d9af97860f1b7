//! The list of runs, and the search.

use axum::http::StatusCode;
use scoop::operate::OperateExt as _;
use scoop::prelude::*;

use crate::shop::{CARD, Order, Plan, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn list_is_filtered_and_paged() {
    let shop = Shop::open().await;
    shop.order(Plan::Fail("none left".into())).await;
    for _ in 0..51 {
        shop.order(Plan::Commit).await;
    }
    let got = shop.get("/runs?state=rolled+back&code=sold-out&handler=orders&since=1h").await;
    got.has("none left").has("value=\"rolled back\" checked").lacks("rel=\"next\"");
    shop.get("/runs?code=no-such-code").await.has("No such run.");
    let first = shop.get("/runs?state=committed").await;
    let next = first.next();
    assert!(next.starts_with("/runs?state=committed&after="), "{next}");
    shop.get(&next).await.has("First page").has("phase good").lacks("rolled back</span>");
    for wrong in ["state=done", "waiting=x", "after=x", "since=yesterday"] {
        assert_eq!(shop.get(&format!("/runs?{wrong}")).await.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_by_wait_topic_and_roots_find_runs() {
    let shop = Shop::open().await;
    let order = shop.shipped(2).await;
    shop.order(Plan::Commit).await;
    let tree = order.tree().await.unwrap();
    let (root, parcels) = (tree.roots()[0].id(), tree.roots()[0].children.iter().map(|it| it.id()));
    let parcels: Vec<_> = parcels.collect();
    for (filter, found) in [
        ("waiting=signal", parcels.clone()),
        ("waiting=children", vec![root]),
        ("waiting=signal&waiting=children", vec![parcels[0], parcels[1], root]),
        ("topic=shop.parcels", parcels),
        ("roots=1&state=waiting", vec![root]),
    ] {
        let got = shop.get(&format!("/runs?{filter}")).await;
        assert_eq!(got.text.matches("<td data-label=\"Run\">").count(), found.len(), "{filter}");
        for run in found {
            got.has(&format!("/runs/{run}\""));
        }
    }
    shop.get("/runs?roots=1").await.lacks("<td data-label=\"Saga\">parcels");
    shop.get("/runs?waiting=signal&topic=shop.parcels").await.has("value=\"signal\" checked");
}

#[tokio::test(flavor = "multi_thread")]
async fn search_leads_to_what_was_meant() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Commit).await;
    let tree = order.tree().await.unwrap();
    let run = &tree.roots()[0];
    let found = async |query: String| shop.get(&format!("/search?{query}")).await.location().to_owned();
    assert_eq!(found(format!("q={}", order.id())).await, format!("/hierarchies/{}", order.id()));
    assert_eq!(found(format!("q={}", run.id())).await, format!("/runs/{}", run.id()));
    assert_eq!(found(format!("q={}", run.message_id)).await, format!("/hierarchies/{}", order.id()));
    assert_eq!(found("q=orders".into()).await, "/runs?handler=orders");
    assert_eq!(found("q=shop.orders".into()).await, "/runs?topic=shop.orders");
    assert_eq!(found("q=sold-out".into()).await, "/runs?code=sold-out");
    assert_eq!(found("q=".into()).await, "/runs");
    let nothing = "q=0197a6b2-6b1c-7000-8000-000000000001";
    assert_eq!(shop.get(&format!("/search?{nothing}")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_is_found_by_its_unique_key() {
    let shop = Shop::open().await;
    let order = Order { plan: Plan::Commit, card: CARD.into() };
    let order = shop.scoop.launch(order).unique(" order & 7 ").await.unwrap();
    shop.get("/runs?topic=shop.orders").await.has("name=\"topic\" value=\"shop.orders\" required");
    let found = "/search?topic=shop.orders&key=+order+%26+7+";
    assert_eq!(shop.get(found).await.location(), format!("/hierarchies/{}", order.id()));
    let got = shop.get("/search?topic=shop.orders&key=%3Cb%3Eorder+8").await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
    got.has("no message was launched on topic").has("&#60;b&#62;order 8").lacks("<b>");
    for half in ["topic=shop.orders", "key=7"] {
        let got = shop.get(&format!("/search?{half}")).await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{half}");
        got.has("both are needed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn search_finds_exact_names_among_many() {
    let shop = Shop::open().await;
    shop.db
        .execute(
            "INSERT INTO scoop.handler (topic, handler)
             SELECT 'topic ' || lpad(n::text, 5, '0'), 'saga ' || lpad(n::text, 5, '0') FROM generate_series(1, 10000) n",
        )
        .await;
    for (text, found) in [
        ("saga+09999", "handler=saga+09999"),
        ("topic+10000", "topic=topic+10000"),
        ("saga+0999", "code=saga+0999"),
        ("orders", "handler=orders"),
    ] {
        let got = shop.get(&format!("/search?q={text}")).await;
        assert_eq!(got.location(), format!("/runs?{found}"));
    }
}

/// An order of the same saga, with a number to find it by.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "shop.orders", redact(card), find_by(order, customer))]
struct NumberedOrder {
    order: u32,
    customer: String,
    plan: Plan,
    card: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_found_and_shown_by_fields_and_keys() {
    let shop = Shop::open().await;
    // As a program registers them whose saga handles the message.
    shop.db
        .execute(
            "INSERT INTO scoop.find_field (topic, name, kind, number)
             VALUES ('shop.orders', 'order', 'number', 0), ('shop.orders', 'customer', 'text', 1)",
        )
        .await;
    for (order, customer) in [(2167, "Ada <b>"), (2168, "2167")] {
        let order = NumberedOrder { order, customer: customer.into(), plan: Plan::Commit, card: CARD.into() };
        let order = shop.scoop.launch(order).unique(format!("key {customer}")).await.unwrap();
        order.wait().await.unwrap();
    }
    let got = shop.get("/runs?where=order%3D2167&state=committed").await;
    got.has(">order=2167 customer=Ada &#60;b&#62;</a>").lacks("2168").lacks("<b>");
    got.has("name=\"where\" value=\"order=2167\"").has("name=\"where\" value=\"\"");
    shop.get("/runs?where=order%3D2167&where=customer%3D2167").await.has("No such run.");
    shop.get("/runs?where=customer%3D2167").await.has("order=2168 customer=2167</a>");
    assert_eq!(shop.get("/runs?where=order").await.status, StatusCode::BAD_REQUEST);

    let found = async |query: &str| shop.get(&format!("/search?q={query}")).await.location().to_owned();
    assert_eq!(found("order%3D2167").await, "/runs?where=order%3D2167");
    assert_eq!(found("2168").await, "/runs?where=order%3D2168");
    assert_eq!(found("no%3D2167").await, "/runs?code=no%3D2167");
    let order = shop.scoop.operate().runs().list().found_by("order", 2168).await.unwrap().runs.remove(0);
    assert_eq!(found("key+2167").await, format!("/hierarchies/{}", order.hierarchy));
    let got = shop.get("/search?q=2167").await;
    assert_eq!(got.status, StatusCode::OK);
    got.has("href=\"/runs?where=customer%3D2167\"").has("href=\"/runs?where=order%3D2167\"");
}
