//! The pages in a browser: every page and action, live updates, a narrow window, dark colors, the keyboard.

use scoop::{Handle, RunState, Tree};
use scoop_test_support::Ends as _;
use scoop_web::Options;
use serde_json::json;

use crate::browser::{Browser, Colors, Window};
use crate::shop::{Collected, Plan, Shop, TOKEN};

/// A shop whose page is served, and a browser.
struct Site {
    shop: Shop,
    /// The URL of the overview, with a `/` at its end.
    url: String,
    browser: Browser,
}

impl Site {
    /// Opens the overview with the token.
    async fn open(window: Window, colors: Colors) -> Self {
        let shop = Shop::open().await;
        let options = Options::new().with_token(TOKEN).unwrap();
        let page = scoop_web::bind(([127, 0, 0, 1], 0), shop.scoop.clone(), options).await.unwrap();
        let with_token = page.url().to_owned();
        let url = with_token.split_once('?').unwrap().0.to_owned();
        tokio::spawn(page.until(std::future::pending()));
        let browser = Browser::open(window, colors).await;
        browser.goto(&with_token).await;
        assert_eq!(browser.client.current_url().await.unwrap().as_str(), url);
        Self { shop, url, browser }
    }

    async fn goto(&self, path: &str) {
        self.browser.goto(&format!("{}{path}", self.url)).await;
    }

    /// The paths of all pages with something in them.
    async fn paths(&self) -> Vec<String> {
        let failed = self.shop.order(Plan::FailToUndo).await;
        let waiting = self.shop.shipped(3).await;
        let run = first_run(&failed).await;
        vec![
            String::new(),
            "runs".into(),
            "runs?state=rollback+failed&code=sold-out".into(),
            format!("hierarchies/{}", waiting.id()),
            format!("hierarchies/{}", failed.id()),
            format!("runs/{run}"),
            format!("actions/skip/{run}"),
            format!("actions/cancel/{}", waiting.id()),
            "runs/no-such-run".into(),
            "failures".into(),
            "inbox".into(),
            "queue".into(),
            "schedules".into(),
            "entities?name=stock&key=pen".into(),
            "topology".into(),
            "pause?saga=parcels".into(),
        ]
    }

    async fn close(self) {
        self.browser.close().await;
    }
}

async fn first_run(order: &Handle) -> String {
    order.tree().limit(1).await.unwrap().roots()[0].id().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_compensation_is_found_and_repaired_by_clicks() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    shop.order(Plan::Commit).await;
    shop.order(Plan::Fail("none left".into())).await;
    let order = shop.order(Plan::FailToUndo).await;
    site.goto("").await;
    browser.shows("h1", "Overview").await;
    browser.image("web_overview").await;
    browser.click("a[href*='rollback+failed'][aria-label]").await;
    browser.shows("td", "bank-closed: the bank is closed").await;
    browser.click("td a.id").await;
    browser.shows("pre", "the bank is closed").await;
    browser.image("web_run").await;
    browser.click("a[href*='/actions/skip/']").await;
    browser.enter("#name", "Ada Lovelace").await;
    browser.enter("#reason", "the bank has paid by hand").await;
    browser.image("web_action").await;
    browser.click("form.card button").await;
    browser.shows(".done", "Skip: accepted").await;
    // The page follows the rollback to its end.
    browser.shows("#live .phase", "rolled back").await;
    browser.shows("li", "Ada Lovelace: the bank has paid by hand").await;
    let undone = |tree: &Tree| matches!(tree.roots()[0].state, RunState::RolledBack(_));
    order.comes_to(undone).await.unwrap();
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_is_cancelled_and_rolled_back_by_clicks() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    let waiting = shop.shipped(1).await;
    let committed = shop.order(Plan::Commit).await;
    for (action, order) in [("cancel", waiting), ("rollback", committed)] {
        site.goto(&format!("hierarchies/{}", order.id())).await;
        browser.click(&format!("a[href*='/actions/{action}/']")).await;
        browser.enter("#name", "Ada").await;
        browser.enter("#reason", "a test").await;
        browser.click("form.card button").await;
        browser.shows(".done", "accepted").await;
        browser.shows("#live .phase", "rolled back").await;
    }
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollbacks_are_retried_and_resolved_by_clicks() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    for action in ["retry", "resolve"] {
        let order = shop.order(Plan::FailToUndo).await;
        site.goto(&format!("runs/{}", first_run(&order).await)).await;
        browser.click(&format!("a[href*='/actions/{action}/']")).await;
        browser.enter("#name", "Ada").await;
        if action != "retry" {
            browser.enter("#reason", "a test").await;
        }
        browser.click("form.card button").await;
        browser.shows(".done", "accepted").await;
        browser.shows("#requests + ul li", "Ada").await;
    }
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_page_shows_what_happens() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    let order = shop.shipped(2).await;
    site.goto(&format!("hierarchies/{}", order.id())).await;
    browser.shows("td .phase", "awaiting signal").await;
    browser.shows("#live-state", "live").await;
    browser.value("window.isSameDocument = true; return null").await;
    for parcel in ["parcel 0", "parcel 1"] {
        shop.scoop.signal(Collected {}, parcel).await.unwrap();
    }
    order.wait().await.unwrap();
    browser.shows("#live p .phase", "committed").await;
    browser.image("web_hierarchy").await;
    // It was not loaded again.
    assert_eq!(browser.value("return window.isSameDocument").await, json!(true));
    // The overview, too.
    site.goto("").await;
    browser.shows("#live-state", "live").await;
    shop.order(Plan::Fail("sold out at noon".into())).await;
    browser.shows("td", "sold out at noon").await;
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_not_wider_than_a_narrow_window() {
    let site = Site::open(Window::Narrow, Colors::Light).await;
    for path in site.paths().await {
        site.goto(&path).await;
        let width = site.browser.value("return [innerWidth, document.documentElement.scrollWidth]").await;
        assert_eq!(width, json!([380, 380]), "{path}");
        if path.starts_with("hierarchies") {
            site.browser.image("web_narrow").await;
        }
    }
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_dark_where_the_system_is() {
    let site = Site::open(Window::Desktop, Colors::Dark).await;
    for path in site.paths().await {
        site.goto(&path).await;
        let color = site.browser.value("return getComputedStyle(document.body).backgroundColor").await;
        assert_eq!(color, json!("rgb(18, 22, 29)"), "{path}");
        if path.starts_with("hierarchies") {
            site.browser.image("web_dark").await;
        }
    }
    site.close().await;
}

/// What a page lacks for users of a keyboard or a screen reader.
const LACKS: &str = r#"
    const lacks = [];
    const one = (css) => { if (document.querySelectorAll(css).length !== 1) lacks.push(css); };
    ["h1", "main", "title", "html[lang]"].forEach(one);
    for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
        if (!field.labels.length) lacks.push("label of " + field.outerHTML);
    for (const element of document.querySelectorAll("a, button"))
        if (!(element.textContent.trim() || element.ariaLabel)) lacks.push("name of " + element.outerHTML);
    for (const table of document.querySelectorAll("table"))
        if (!table.querySelector("th[scope]")) lacks.push("header of a table");
    const ids = [...document.querySelectorAll("[id]")].map((it) => it.id);
    if (new Set(ids).size !== ids.length) lacks.push("unique ids: " + ids);
    return lacks;
"#;

#[tokio::test(flavor = "multi_thread")]
async fn pages_can_be_used_by_keyboard() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let browser = &site.browser;
    for path in site.paths().await {
        site.goto(&path).await;
        assert_eq!(browser.value(LACKS).await, json!([]), "{path}");
    }
    site.goto("runs").await;
    let focused = "return document.activeElement.className || document.activeElement.id";
    browser.client.active_element().await.unwrap().send_keys("\u{e004}").await.unwrap();
    assert_eq!(browser.value(focused).await, json!("skip"));
    browser.client.active_element().await.unwrap().send_keys("\u{e007}").await.unwrap();
    assert_eq!(browser.value(focused).await, json!("main"));
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_are_not_executed() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    let hostile = "<img src=x onerror='window.hacked=1'><script>window.hacked=2</script>\u{202e}";
    let order = shop.order(Plan::Fail(hostile.into())).await;
    let run = first_run(&order).await;
    for path in [String::new(), "runs".into(), format!("hierarchies/{}", order.id()), format!("runs/{run}")] {
        site.goto(&path).await;
        browser.shows("body", "<img src=x onerror='window.hacked=1'>").await;
        assert_eq!(browser.value("return window.hacked ?? null").await, json!(null), "{path}");
    }
    // The policy of the page refuses what would get through.
    let inserted = "const it = document.createElement('script'); it.textContent = 'window.hacked = 3'; \
                    document.body.append(it); return window.hacked ?? null";
    assert_eq!(browser.value(inserted).await, json!(null));
    site.close().await;
}
