//! Requests about several runs at once.

use axum::http::StatusCode;
use scoop::Handle;
use scoop::operate::OperateExt as _;
use scoop::tree::{RunState, Tree};
use scoop_test_support::Ends as _;

use crate::browser::{Colors, Window};
use crate::browsing::{Site, first_run};
use crate::shop::{Plan, Shop};

/// Waits until the rollback of an order has failed.
async fn failed(shop: &Shop, plan: Plan) -> Handle {
    let order = shop.order(plan).await;
    let failed = |tree: &Tree| matches!(tree.roots()[0].state, RunState::RollbackFailed(_));
    order.comes_to(failed).await.unwrap();
    order
}

#[tokio::test(flavor = "multi_thread")]
async fn three_of_four_are_selected_and_retried_at_once() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    let mut runs = vec![];
    for _ in 0..4 {
        runs.push(first_run(&failed(shop, Plan::FailToUndo).await).await);
    }
    site.goto("inbox").await;
    for run in &runs[..3] {
        browser.click(&format!("#select-{run}")).await;
    }
    // A live update keeps the selection.
    let other = failed(shop, Plan::FailToUndo).await;
    browser.until("return document.querySelectorAll('input[type=checkbox]').length === 5").await;
    browser.until("return document.querySelectorAll('input:checked').length === 3").await;
    browser.click("#retry-failed").await;
    browser.shows("h1", "Retry 3 runs?").await;
    // One of them is settled before the confirmation.
    shop.scoop.operate().failures().resolve(runs[0].parse::<uuid::Uuid>().unwrap(), "by hand").await.unwrap();
    browser.enter("#name", "Ada Lovelace").await;
    browser.click("form.card button.primary").await;
    browser.shows("p[role=status]", "2 of 3 runs continue.").await;
    // The newest one is the first.
    browser.shows("tr:nth-child(1) .phase.good", "done").await;
    browser.shows("tr:nth-child(2) .phase.good", "done").await;
    browser.shows("tr:nth-child(3) td", &runs[0]).await;
    browser.shows("tr:nth-child(3) .phase.idle", "refused").await;
    browser.shows("tr:nth-child(3) td.text", "was settled before").await;
    for (run, asked) in runs.iter().zip([0, 1, 1, 0]) {
        let hierarchy =
            shop.scoop.operate().runs().explain(run.parse::<uuid::Uuid>().unwrap()).await.unwrap().hierarchy;
        let mut done = shop.scoop.operate().failures().interventions(hierarchy).await.unwrap();
        done.retain(|done| done.kind == "retry" && done.source == "Ada Lovelace");
        assert_eq!(done.len(), asked, "{run}");
    }
    assert!(shop.scoop.operate().failures().interventions(other.id()).await.unwrap().is_empty());
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_whose_saga_no_program_has_is_listed_without_a_retry() {
    let shop = Shop::with_all_sagas().await;
    let order = shop.shipped(1).await;
    let left =
        "UPDATE scoop.run SET handler = 'gone', ready_at = clock_timestamp() WHERE handler = 'parcels'";
    shop.db.execute(left).await;
    let tree = order.tree().await.unwrap();
    let stuck = shop.scoop.operate().failures().stuck().await.unwrap();
    let [stuck] = &stuck[..] else { panic!("{stuck:?} in {tree}") };
    let inbox = shop.get("/inbox").await;
    inbox.has("no living program has saga `gone`").has(&format!("/actions/cancel/{}", stuck.id()));
    inbox.lacks(&format!("/actions/retry/{}", stuck.id())).lacks("Retry the selected");
}

#[tokio::test(flavor = "multi_thread")]
async fn selection_is_limited_and_each_run_is_retried_once() {
    let shop = Shop::with_all_sagas().await;
    let (failed, stuck) = (failed(&shop, Plan::FailToUndo).await, shop.stuck().await);
    let (failed, stuck) = (first_run(&failed).await, first_run(&stuck).await);
    shop.get("/inbox").await.has(&format!("id=\"select-{failed}\"")).has(&format!("id=\"select-{stuck}\""));
    let ids = |count| {
        let ids = (0..count).map(|n| format!("run=0197a6b2-6b1c-7000-8000-{n:012}"));
        ids.collect::<Vec<_>>().join("&")
    };
    for (query, why) in [
        (String::new(), "No run is selected."),
        (ids(101), "A request can have 100 runs, and this has more."),
    ] {
        let got = shop.get(&format!("/retry?{query}")).await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST);
        got.has(why);
    }
    assert_eq!(shop.get("/retry?run=x").await.status, StatusCode::NOT_FOUND);
    shop.get(&format!("/retry?{}", ids(100))).await.has("Retry 100 runs?");
    let page = shop.get(&format!("/retry?run={failed}&run={stuck}&run={failed}")).await;
    page.has("Retry 2 runs?");
    let unknown = "0197a6b2-6b1c-7000-8000-000000000001";
    let runs = [("run", &*failed), ("run", &*stuck), ("run", unknown), ("run", &*failed)];
    let without_name: Vec<_> = [("form", page.form())].into_iter().chain(runs).collect();
    let got = shop.post("/retry", &without_name).await;
    assert_eq!(got.status, StatusCode::UNPROCESSABLE_ENTITY);
    got.has("The name is missing.").has(&format!("name=\"run\" value=\"{stuck}\""));
    let fields: Vec<_> = [("form", "guessed"), ("name", "Ada")].into_iter().chain(runs).collect();
    assert_eq!(shop.post("/retry", &fields).await.status, StatusCode::FORBIDDEN);
    let fields: Vec<_> = [("form", page.form()), ("name", "Ada")].into_iter().chain(runs).collect();
    let got = shop.post("/retry", &fields).await;
    assert_eq!(got.status, StatusCode::OK);
    got.has("2 of 3 runs continue.").has("<span class=\"phase bad\">failed</span>");
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchies_of_a_filtered_list_are_launched_again_at_once() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    let mut orders = vec![];
    for _ in 0..3 {
        orders.push(shop.order(Plan::Fail("none left".into())).await);
    }
    shop.scoop.operate().runs().relaunch(orders[0].id(), "before").await.unwrap();
    site.goto("runs?state=committed").await;
    browser.shows("h1", "Runs").await;
    shop.get("/runs?state=committed").await.lacks("/relaunch");
    site.goto("runs?state=rolled+back&handler=orders&roots=1").await;
    browser.click("form[action$='/relaunch'] button").await;
    browser.shows("h1", "Relaunch 4 runs?").await;
    browser.shows("ul[aria-label='Selected runs']", "would be: accepted").await;
    browser.shows("ul[aria-label='Selected runs']", "would be: relaunched before").await;
    browser.enter("#name", "Ada Lovelace").await;
    browser.enter("#reason", "the stock is counted").await;
    browser.click("form.card button.primary").await;
    browser.shows("p[role=status]", "3 of 4 runs are launched again.").await;
    let new = orders[1].tree().await.unwrap().relaunched_as()[0];
    site.goto(&format!("hierarchies/{}", orders[1].id())).await;
    browser.shows("p.note", &format!("Relaunched as hierarchy {new}")).await;
    browser.click(&format!("a[href$='/hierarchies/{new}']")).await;
    browser.shows("p.note", &format!("A relaunch of hierarchy {}", orders[1].id())).await;
    site.close().await;
}
