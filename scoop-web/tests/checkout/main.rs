//! The checkout example on the web page, in a browser: an order that was rolled back is found and explained, a failed
//! compensation is repaired, and a stuck run is retried.

// The example, without what its program alone needs.
#![allow(dead_code, unreachable_pub, reason = "the modules are those of another program")]

#[path = "../pages/browser.rs"]
mod browser;
#[path = "../../../examples/checkout/courier.rs"]
mod courier;
#[path = "../../../examples/checkout/data.rs"]
mod data;
#[path = "../../../examples/checkout/orders.rs"]
mod orders;
#[path = "../../../examples/checkout/payments.rs"]
mod payments;
#[path = "../../../examples/checkout/provider.rs"]
mod provider;
#[path = "../../../examples/checkout/stock.rs"]
mod stock;
#[path = "../../../examples/checkout/tables.rs"]
mod tables;

use std::path::{Path, PathBuf};

use scoop::operate::OperateExt as _;
use scoop::tree::{RunState, Tree};
use scoop::{Handle, Outcome, RunPhase, Scoop};
use scoop_test_support::Ends as _;
use scoop_test_support::postgres::Database;
use scoop_web::Options;

use crate::browser::{Browser, Colors, Window};
use crate::payments::Payments;
use crate::provider::Provider;

/// The shop after its orders have ended, its page, and a browser.
struct Site {
    db: Database,
    scoop: Scoop,
    folder: PathBuf,
    url: String,
    browser: Browser,
}

impl Site {
    async fn open(name: &str) -> Self {
        Self::open_with(name, |_| {}).await
    }

    async fn open_with(name: &str, prepare: impl FnOnce(&Provider)) -> Self {
        let folder = std::env::temp_dir().join(format!("scoop-web-checkout-{name}-{}", std::process::id()));
        let db = Database::new().await;
        let provider = Provider::at(folder.clone()).unwrap();
        prepare(&provider);
        let scoop = db.scoop().provide(Payments::through(provider.clone())).start().await.unwrap();
        tables::create(&scoop, &provider).await.unwrap();
        let shop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/checkout/data");
        let shop = data::read(&shop).unwrap();
        stock::receive(scoop.pool(), &shop.products, 1).await.unwrap();
        orders::place(&scoop, &shop.orders).await.unwrap();
        orders::wait_for_all(&scoop).await.unwrap();
        let page = scoop_web::bind(([127, 0, 0, 1], 0), scoop.clone(), Options::new()).await.unwrap();
        let with_token = page.url().to_owned();
        let url = with_token.split_once('?').unwrap().0.to_owned();
        tokio::spawn(page.until(std::future::pending()));
        let browser = Browser::open(Window::Desktop, Colors::Light).await;
        browser.goto(&with_token).await;
        Self { db, scoop, folder, url, browser }
    }

    /// An order that has committed.
    async fn committed_order(&self) -> Handle {
        let committed =
            self.scoop.operate().runs().list().roots().state(RunPhase::Committed).page(1).await.unwrap();
        self.scoop.find(committed.runs[0].hierarchy).await.unwrap()
    }

    async fn close(self) {
        self.browser.close().await;
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rolled_back_order_is_found_and_explained_on_one_page() {
    let site = Site::open("explained").await;
    let browser = &site.browser;
    browser.shows("h1", "Overview").await;
    // From the list of what failed lately to the run.
    browser.click("section[aria-labelledby=failed] td a.id").await;
    browser.shows("h1", "checkout").await;
    browser.shows("p .phase", "rolled back").await;
    // Why, and where in the code.
    browser.shows("pre", ".rs:").await;
    browser.shows("td", "began to roll back").await;
    // The order itself.
    browser.shows("#contents ~ details pre", "\"country\"").await;
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_refund_is_repaired_by_a_click() {
    let site = Site::open_with("repaired", Provider::go_down).await;
    let Site { scoop, browser, url, .. } = &site;
    let failed = scoop.operate().failures().list().await.unwrap();
    let refund = failed.iter().find(|it| it.handler == "payments").expect("the first refund was refused");
    let order = scoop.find(refund.hierarchy()).await.unwrap();
    assert!(matches!(order.wait().await.unwrap(), Outcome::RollbackFailed(_)));
    browser.goto(&format!("{url}inbox")).await;
    browser.shows("td", "the payment provider is down and refused to refund").await;
    browser.click("section[aria-labelledby=failed] a[href*='/actions/retry/']").await;
    browser.enter("#name", "Ada Lovelace").await;
    browser.click("form.card button").await;
    browser.shows(".done", "Retry: accepted").await;
    browser.shows("#live .phase", "rolled back").await;
    let undone = |tree: &Tree| matches!(tree.roots()[0].state, RunState::RolledBack(_));
    order.comes_to(undone).await.unwrap();
    assert!(matches!(order.wait().await.unwrap(), Outcome::RolledBack(_)));
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_run_is_retried_by_a_click() {
    let site = Site::open("stuck").await;
    let Site { db, browser, url, .. } = &site;
    let order = site.committed_order().await;
    // A row that no program can read makes the rollback of the order stuck.
    let root = order.id();
    let outputs = format!(
        "UPDATE scoop.return_value SET value = '7' WHERE cooperation_lineage[1] = '{root}' \
         AND handler_name = 'payments'"
    );
    let stored = format!(
        "CREATE TABLE kept AS SELECT * FROM scoop.return_value WHERE cooperation_lineage[1] = '{root}'"
    );
    db.execute(&stored).await;
    db.execute(&outputs).await;
    site.scoop.rollback(root, "a test").await.unwrap();
    let stuck = |tree: &Tree| tree.runs().iter().any(|run| matches!(run.state, RunState::Stuck { .. }));
    order.comes_to(stuck).await.unwrap();
    db.execute("UPDATE scoop.return_value v SET value = k.value FROM kept k WHERE k.id = v.id").await;
    browser.goto(&format!("{url}inbox")).await;
    browser.click("section[aria-labelledby=stuck] a[href*='/actions/retry/']").await;
    browser.enter("#name", "Ada Lovelace").await;
    browser.click("form.card button").await;
    browser.shows(".done", "Retry: accepted").await;
    let undone = |tree: &Tree| matches!(tree.roots()[0].state, RunState::RolledBack(_));
    order.comes_to(undone).await.unwrap();
    site.close().await;
}
