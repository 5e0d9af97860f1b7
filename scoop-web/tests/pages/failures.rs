//! The failures by code, and the pages of the inbox.

use axum::http::StatusCode;
use scoop::RunPhase;
use scoop::operate::OperateExt as _;
use scoop::tree::{RunState, Tree};
use scoop_test_support::Ends as _;

use crate::shop::{Plan, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_grouped_by_code() {
    let shop = Shop::open().await;
    shop.get("/failures").await.has("No run has failed.");
    shop.order(Plan::Fail("none left".into())).await;
    shop.order(Plan::Fail("none left again".into())).await;
    let got = shop.get("/failures").await;
    got.has("/runs?code=sold-out").has("<td data-label=\"Hierarchies\">2</td>").has("none left again");
    let order = shop.order(Plan::FailToUndo).await;
    order.comes_to(|tree| matches!(tree.roots()[0].state, RunState::RollbackFailed(_))).await.unwrap();
    let run = order.tree().await.unwrap().roots()[0].id();
    shop.scoop.operate().failures().retry(run).await.unwrap();
    order.comes_to(|tree| matches!(tree.roots()[0].state, RunState::RollbackFailed(_))).await.unwrap();
    let failed = shop.scoop.operate().runs().list().state(RunPhase::RollbackFailed).await.unwrap().runs;
    let code = &failed[0].failure.as_ref().unwrap().code;
    shop.get("/failures").await.has(&format!("/runs?code={code}")).has("3 runs that failed");
    shop.get(&format!("/runs/{run}")).await.has("Failure of the rollback");
    shop.get("/").await.has(&format!("/hierarchies/{}", order.id()));
    shop.scoop.operate().failures().skip(run, "it has expired").await.unwrap();
    order.comes_to(|tree| matches!(tree.roots()[0].state, RunState::RolledBack(_))).await.unwrap();
    shop.get(&format!("/runs/{run}")).await.has("not undone, skipped");
}

/// The failed child has undone its parent, which has the code of its failure.
#[tokio::test(flavor = "multi_thread")]
async fn failure_counts_once_in_a_hierarchy() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::FailBelow).await;
    order.comes_to(|tree| matches!(tree.roots()[0].state, RunState::RollbackFailed(_))).await.unwrap();
    let got = shop.get("/failures").await;
    got.has("2 runs that failed").has("<td data-label=\"Hierarchies\">1</td>").lacks("Hierarchies\">2</td>");
}

#[tokio::test(flavor = "multi_thread")]
async fn inbox_and_failures_have_pages() {
    let shop = Shop::open().await;
    let mut last = None;
    for _ in 0..51 {
        last = Some(shop.order(Plan::FailToUndo).await);
    }
    let failed = |tree: &Tree| matches!(tree.roots()[0].state, RunState::RollbackFailed(_));
    last.unwrap().comes_to(failed).await.unwrap();
    let first = shop.get("/inbox").await;
    assert_eq!(first.text.matches("aria-label=\"Skip run").count(), 50);
    let rest = shop.get(&first.next()).await;
    assert_eq!(rest.text.matches("aria-label=\"Skip run").count(), 1);
    rest.has("First page").lacks("rel=\"next\"");
    assert_eq!(shop.get("/inbox?failed=x").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(shop.get("/failures?after=x").await.status, StatusCode::BAD_REQUEST);
    shop.get("/failures").await.has("51 runs that failed last").lacks("rel=\"next\"");
}
