//! The actions: their confirmation, their answer, and what they record.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use scoop::Outcome;
use scoop::tree::RunState;
use scoop_operate::OperateExt as _;
use scoop_test_support::Ends as _;
use scoop_web::Options;

use crate::shop::{Plan, Shop};

/// Confirms an action, and returns the page to which the browser is sent.
async fn acted(shop: &Shop, action: &str, id: &str) -> String {
    let path = format!("/actions/{action}/{id}");
    let page = shop.get(&path).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    let fields = [("form", page.form()), ("name", "Ada Lovelace"), ("reason", "a test")];
    let got = shop.post(&path, &fields).await;
    let location = got.location().to_owned();
    assert!(got.cookies().contains("scoop-name=Ada+Lovelace"), "{}", got.cookies());
    location
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_hierarchy_records_name_and_reason() {
    let shop = Shop::open().await;
    let order = shop.shipped(1).await;
    let answer = acted(&shop, "cancel", &order.id().to_string()).await;
    assert_eq!(answer, format!("/hierarchies/{}?action=cancel&answer=accepted", order.id()));
    shop.get(&answer).await.has("Cancel: accepted").has("cancellation requested").has("Ada Lovelace: a test");
    assert!(matches!(order.wait().await.unwrap(), Outcome::RolledBack(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_run_is_rolled_back() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Commit).await;
    let answer = acted(&shop, "rollback", &order.id().to_string()).await;
    assert!(answer.ends_with("action=rollback&answer=accepted"), "{answer}");
    let undone = |tree: &scoop::tree::Tree| matches!(tree.roots()[0].state, RunState::RolledBack(_));
    order.comes_to(undone).await.unwrap();
    let again = acted(&shop, "rollback", &order.id().to_string()).await;
    shop.get(&again).await.has("already rolled back");
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_of_a_part_is_asked_with_a_caution() {
    let shop = Shop::open().await;
    let order = shop.shipped(1).await;
    let tree = order.tree().await.unwrap();
    let part = tree.runs().iter().find(|run| run.lineage.ids().len() > 2).expect("a child").id();
    let caution = "the hierarchy as a whole may be inconsistent";
    shop.get(&format!("/actions/rollback/{part}")).await.has(caution);
    shop.get(&format!("/actions/rollback/{}", order.id())).await.lacks(caution);
    shop.get(&format!("/actions/cancel/{part}")).await.lacks(caution);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_compensation_is_retried_skipped_or_resolved() {
    let shop = Shop::open().await;
    for (action, ends) in [("retry", false), ("skip", true), ("resolve", true)] {
        let order = shop.order(Plan::FailToUndo).await;
        let run = order.tree().await.unwrap().roots()[0].id();
        shop.get(&format!("/runs/{run}"))
            .await
            .has("the bank is closed")
            .has(&format!("/actions/{action}/{run}"));
        let answer = acted(&shop, action, &run.to_string()).await;
        assert_eq!(answer, format!("/runs/{run}?action={action}&answer=accepted"));
        if ends {
            let undone = |tree: &scoop::tree::Tree| matches!(tree.roots()[0].state, RunState::RolledBack(_));
            order.comes_to(undone).await.unwrap();
        }
        let done = shop.scoop.operate().failures().interventions(order.id()).await.unwrap();
        assert_eq!(done[0].source, "Ada Lovelace");
        assert_eq!(done[0].note.as_deref(), ends.then_some("a test"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn form_with_a_mistake_is_shown_again() {
    let shop = Shop::open().await;
    let order = shop.shipped(1).await;
    let path = format!("/actions/cancel/{}", order.id());
    let page = shop.get(&path).await;
    for (name, reason, wrong) in [
        ("", "why", "The name is missing."),
        ("Ada", " ", "The reason is missing."),
        (&*"a".repeat(101), "why", "The name has 101 characters, and 100 are possible."),
        ("Ada", "a\0b", "The reason has a NUL character."),
    ] {
        let got = shop.post(&path, &[("form", page.form()), ("name", name), ("reason", reason)]).await;
        assert_eq!(got.status, StatusCode::UNPROCESSABLE_ENTITY);
        got.has(wrong).has("aria-invalid=\"true\"");
    }
    assert!(order.tree().await.unwrap().cancellations().is_empty());
    assert_eq!(shop.get(&format!("/actions/destroy/{}", order.id())).await.status, StatusCode::NOT_FOUND);
    let nothing = "/actions/cancel/0197a6b2-6b1c-7000-8000-000000000001";
    assert_eq!(shop.get(nothing).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn name_of_the_header_is_recorded_instead_of_an_entered_one() {
    let header = "x-forwarded-user".parse().unwrap();
    let shop = Shop::with(Options::new().without_token().operator_header(header)).await;
    let order = shop.shipped(1).await;
    let path = format!("/actions/cancel/{}", order.id());
    let page = shop.get(&path).await;
    let request = |user: Option<&str>| {
        let request = Request::post(&path)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("x-forwarded-user", user.unwrap_or_default());
        request.body(Body::from(format!("form={}&name=Mallory&reason=test", page.form()))).unwrap()
    };
    assert_eq!(shop.send(request(None)).await.status, StatusCode::FORBIDDEN);
    shop.send(request(Some("ada@example.org"))).await.location();
    assert_eq!(order.tree().await.unwrap().cancellations()[0].source, "ada@example.org");
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_in_the_url_shows_only_texts_of_the_page() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Commit).await;
    let path = format!("/hierarchies/{}", order.id());
    shop.get(&format!("{path}?action=cancel&answer=nothing+to+do")).await.has("no run is left");
    shop.get(&format!("{path}?action=cancel&answer=you+won")).await.lacks("you won");
}

#[tokio::test(flavor = "multi_thread")]
async fn inbox_lists_what_needs_a_decision() {
    let shop = Shop::open().await;
    shop.get("/inbox").await.has("No rollback waits for a decision.").has("No run is stuck.");
    let order = shop.order(Plan::FailToUndo).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    let got = shop.get("/inbox").await;
    got.has("the bank is closed")
        .has(&format!("/actions/retry/{run}"))
        .has(&format!("/actions/resolve/{run}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_that_failed_again_is_in_the_inbox_with_the_time_of_the_latest_failure() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::FailToUndo).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    shop.db
        .execute("UPDATE scoop.run SET ready_at = ready_at - interval '1 day' WHERE state = 'failed'")
        .await;
    acted(&shop, "retry", &run.to_string()).await;
    order.comes_to(|tree| matches!(tree.roots()[0].state, RunState::RollbackFailed(_))).await.unwrap();
    shop.get("/inbox").await.has("the bank is closed").has(" ago</time>").lacks("1 d 0 h ago");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_whose_rollback_failed_because_of_a_child_leads_to_the_child() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::FailBelow).await;
    let tree = order.tree().await.unwrap();
    let (run, child) = (tree.roots()[0].id(), tree.roots()[0].children[0].id());
    let above = shop.get(&format!("/runs/{run}")).await;
    above
        .has("the failed runs below it are settled")
        .has(&format!("/runs/{child}\">{child}</a>"))
        .lacks(&format!("/actions/retry/{run}"));
    shop.get(&format!("/runs/{child}"))
        .await
        .has(&format!("/actions/retry/{child}"))
        .lacks("the failed runs below it are settled");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_above_one_that_failed_again_leads_to_that_and_cannot_be_cancelled() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::FailBelow).await;
    let tree = order.tree().await.unwrap();
    let (run, child) = (tree.roots()[0].id(), tree.roots()[0].children[0].id());
    acted(&shop, "retry", &child.to_string()).await;
    let rests = |tree: &scoop::tree::Tree| matches!(tree.roots()[0].state, RunState::RollbackFailed(_));
    order.comes_to(rests).await.unwrap();
    let link = format!("/runs/{child}\">{child}</a>");
    shop.get(&format!("/runs/{run}"))
        .await
        .has("the failed runs below it are settled")
        .has(&link)
        .has("the bank is closed")
        .lacks("/actions/");
    shop.get(&format!("/hierarchies/{}", order.id())).await.lacks("/actions/cancel/");
    shop.get("/inbox")
        .await
        .has(&format!("/actions/resolve/{child}"))
        .has("the failed runs below it are settled")
        .has(&link);
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_that_gives_up_already_cannot_be_cancelled_again() {
    let shop = Shop::open().await;
    let order = shop.shipped(1).await;
    let path = format!("/hierarchies/{}", order.id());
    shop.get(&path).await.has("/actions/cancel/");
    // It waits for its parcel.
    shop.db.execute("UPDATE scoop.run SET giving_up = true WHERE handler = 'orders'").await;
    shop.get(&path).await.has("gives up as soon as it can").lacks("/actions/cancel/");
}
