//! Texts of users on all pages: hostile ones are escaped, and long ones are cut.

use axum::http::StatusCode;
use scoop::pauses::PauseTarget;
use scoop::tree::RunState;
use scoop_operate::OperateExt as _;
use scoop_test_support::{Ends as _, eventually};

use crate::shop::{Plan, Shop};

/// Tags, the ends of attributes, a change of the direction, and a control character.
const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u{202e}\u{1b}[2J&amp;";

/// Checks that the page has the text, and that it does nothing there.
async fn shows_a_hostile_text(shop: &Shop, path: &str) {
    let got = shop.get(path).await;
    assert_eq!(got.status, StatusCode::OK, "{path}: {}", got.text);
    assert!(got.text.contains("alert(1)"), "{path} does not show the text: {}", got.text);
    got.lacks("<script>alert").lacks("<img").lacks("\"'>").lacks("\u{202e}").lacks("\u{1b}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_failures_keys_and_reasons_are_harmless() {
    let shop = Shop::with_all_sagas().await;
    let scoop = &shop.scoop;
    shop.order(Plan::Fail(HOSTILE.into())).await;
    let failed = shop.order(Plan::FailToUndoBecause(HOSTILE.into())).await;
    let run = failed.tree().await.unwrap().roots()[0].id();
    for path in
        ["/failures".to_owned(), "/inbox".into(), format!("/runs/{run}"), format!("/actions/skip/{run}")]
    {
        shows_a_hostile_text(&shop, &path).await;
    }
    eventually("the error queue has the failures", async || {
        shop.get("/error-queue").await.text.contains("alert(1)")
    })
    .await;
    shows_a_hostile_text(&shop, "/error-queue").await;
    scoop.operate().failures().skip(run, HOSTILE).source(HOSTILE).await.unwrap();
    failed.comes_to(|tree| matches!(tree.roots()[0].state, RunState::RolledBack(_))).await.unwrap();
    shop.get(&format!("/runs/{run}")).await.has("skip").has("alert(1)");
    shows_a_hostile_text(&shop, &format!("/runs/{run}")).await;
    let stuck = shop.stuck().await;
    let cancelled = shop.shipped(1).await;
    scoop.cancel(cancelled.id(), HOSTILE).source(HOSTILE).await.unwrap();
    shows_a_hostile_text(&shop, &format!("/hierarchies/{}", cancelled.id())).await;

    scoop
        .operate()
        .pauses()
        .pause(PauseTarget::handler("parcels"))
        .reason(HOSTILE)
        .source(HOSTILE)
        .await
        .unwrap();
    shows_a_hostile_text(&shop, "/topology").await;
    scoop
        .operate()
        .pauses()
        .resume(PauseTarget::handler("parcels"))
        .reason(HOSTILE)
        .source(HOSTILE)
        .await
        .unwrap();
    shows_a_hostile_text(&shop, "/topology").await;

    // Names and texts of rows that another program has written.
    let hostile = HOSTILE.replace('\'', "''");
    shop.db
        .execute(&format!(
            "INSERT INTO scoop.entity (name, key, version, state)
             VALUES ('{hostile}', '{hostile}', 1, jsonb_build_object('{hostile}', '{hostile}'::text));
             INSERT INTO scoop.handler (topic, handler) VALUES (left('{hostile}', 50), '{hostile}');
             INSERT INTO scoop.handler (topic, handler, retired_at) VALUES (left('{hostile}', 50), 'old {hostile}', now());
             UPDATE scoop.run SET reason = '{hostile}' WHERE state = 'stuck'",
        ))
        .await;
    let encoded: String = form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
    let stuck = stuck.tree().await.unwrap().roots()[0].id();
    for path in [
        "/entities".to_owned(),
        format!("/entities?name={encoded}"),
        format!("/entities?name={encoded}&key={encoded}"),
        "/topology".into(),
        format!("/pause?saga={encoded}"),
        format!("/pause?topic={encoded}"),
        format!("/resume?saga={encoded}"),
        "/inbox".into(),
        format!("/runs/{stuck}"),
        format!("/actions/retry/{stuck}"),
    ] {
        shows_a_hostile_text(&shop, &path).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_are_harmless() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail(HOSTILE.into())).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    for path in ["/".into(), "/runs".into(), format!("/hierarchies/{}", order.id()), format!("/runs/{run}")] {
        shows_a_hostile_text(&shop, &path).await;
    }
    let quoted = shop.get("/runs?handler=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").await;
    quoted.lacks("<script>alert");
    shop.get("/runs/%3Cscript%3Ealert(1)").await.lacks("<script>alert");
    shop.get("/runs?after=%3Cscript%3E").await.lacks("<script>");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_text_is_cut() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("x".repeat((1 << 20) - 1_000))).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    for path in ["/".into(), "/runs".into(), format!("/hierarchies/{}", order.id()), format!("/runs/{run}")] {
        let got = shop.get(&path).await;
        assert_eq!(got.status, StatusCode::OK);
        assert!(got.text.len() < 60_000, "{path}: {} bytes", got.text.len());
    }
}
