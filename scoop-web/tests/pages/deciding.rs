//! Decisions on the pages that show the reason: a signal for a run, a schedule that runs now, several runs of the inbox.

use axum::http::StatusCode;
use scoop::{Handle, Outcome, RunState, Tree};
use scoop_test_support::Ends as _;
use scoop_web::Options;

use crate::browser::{Colors, Window};
use crate::browsing::{Site, first_run};
use crate::shop::{CARD, Plan, Shop};

async fn first_parcel(order: &Handle) -> String {
    order.tree().await.unwrap().roots()[0].children[0].id().to_string()
}

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
    let sent = shop.scoop.interventions(order.id()).await.unwrap().remove(0);
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
    assert!(shop.scoop.interventions(order.id()).await.unwrap().is_empty());
    // The run of the order awaits no signal.
    let run = first_run(&order).await;
    shop.get(&format!("/runs/{run}")).await.lacks("/actions/signal/");
    let answer = shop.post(&format!("/actions/signal/{run}"), &fields("{}")).await.location().to_owned();
    assert_eq!(answer, format!("/runs/{run}?action=signal&answer=not+awaiting"));
    shop.get(&answer).await.has("the run awaits no signal");
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_page_has_no_signals_schedules_and_selections() {
    let shop = Shop::with_all_sagas().await;
    let order = shop.shipped(1).await;
    let failed = shop.order(Plan::FailToUndo).await;
    let (parcel, failed) = (first_parcel(&order).await, first_run(&failed).await);
    shop.get("/schedules").await.has("/trigger?saga=report");
    shop.get("/inbox").await.has("type=\"checkbox\"");
    let reader = Shop { router: read_only(&shop), ..shop };
    reader.get(&format!("/runs/{parcel}")).await.has("awaiting signal").lacks("/actions/");
    reader.get("/schedules").await.has("every 1 h 30 min").lacks("/trigger");
    reader.get("/inbox").await.has("the bank is closed").lacks("checkbox").lacks("/retry");
    for path in [
        format!("/actions/signal/{parcel}"),
        "/trigger?saga=report&topic=ticks.report".into(),
        format!("/retry?run={failed}"),
    ] {
        assert_eq!(reader.get(&path).await.status, StatusCode::FORBIDDEN, "{path}");
        let fields = [("run", &*failed), ("name", "Ada"), ("reason", "why"), ("payload", "{}")];
        assert_eq!(reader.post(&path, &fields).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert!(reader.scoop.interventions(order.id()).await.unwrap().is_empty());
}

fn read_only(shop: &Shop) -> axum::Router {
    scoop_web::router(shop.scoop.clone(), Options::new().without_token().read_only())
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_runs_now_by_a_click() {
    let site = Site::with_all_sagas(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    site.goto("schedules").await;
    browser.click("a[aria-label='Run report now']").await;
    browser.shows("h1", "Run now?").await;
    site.sign("the auditor waits").await;
    browser.shows("h1", "Hierarchy").await;
    browser.shows("td", "report").await;
    browser.shows("#live p .phase", "committed").await;
    let schedule = shop.scoop.schedules().await.unwrap().remove(0);
    assert_eq!(schedule.run_count, 1);
    let url = browser.client.current_url().await.unwrap();
    assert!(url.path().ends_with(&schedule.last.unwrap().to_string()), "{url}");
    // No saga of this name has a schedule.
    let path = "/trigger?saga=orders&topic=shop.orders";
    let page = shop.get(path).await;
    let got = shop.post(path, &[("form", page.form()), ("name", "Ada"), ("reason", "why")]).await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
    got.has("has no schedule");
    site.close().await;
}

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
    shop.scoop.resolve(runs[0].parse::<uuid::Uuid>().unwrap(), "by hand").await.unwrap();
    browser.enter("#name", "Ada Lovelace").await;
    browser.click("form.card button.primary").await;
    browser.shows("p[role=status]", "2 of 3 runs go on.").await;
    // The newest one is the first.
    browser.shows("tr:nth-child(1) .phase.good", "done").await;
    browser.shows("tr:nth-child(2) .phase.good", "done").await;
    browser.shows("tr:nth-child(3) td", &runs[0]).await;
    browser.shows("tr:nth-child(3) .phase.idle", "refused").await;
    browser.shows("tr:nth-child(3) td.text", "was settled before").await;
    for (run, asked) in runs.iter().zip([0, 1, 1, 0]) {
        let hierarchy = shop.scoop.explain(run.parse::<uuid::Uuid>().unwrap()).await.unwrap().hierarchy;
        let mut done = shop.scoop.interventions(hierarchy).await.unwrap();
        done.retain(|done| done.kind == "retry" && done.source == "Ada Lovelace");
        assert_eq!(done.len(), asked, "{run}");
    }
    assert!(shop.scoop.interventions(other.id()).await.unwrap().is_empty());
    site.close().await;
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
    got.has("2 of 3 runs go on.").has("<span class=\"phase bad\">failed</span>");
}
