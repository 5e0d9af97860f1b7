//! The schedules.

use axum::http::StatusCode;

use crate::browser::{Colors, Window};
use crate::browsing::Site;
use crate::shop::{BYTES_MAX, Got, Report, Shop};
use scoop::operate::OperateExt as _;

impl Got {
    /// The page, of bounded size, with so many rows of a table whose first column has this label.
    fn has_rows(&self, label: &str, count: usize) -> &Self {
        assert_eq!(self.status, StatusCode::OK, "{:.500}", self.text);
        assert!(self.text.len() <= BYTES_MAX, "{} bytes", self.text.len());
        assert_eq!(self.text.matches(&format!("<tr><td data-label=\"{label}\"")).count(), count);
        self
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_show_rule_next_time_and_last_hierarchy() {
    let shop = Shop::open().await;
    shop.get("/schedules").await.has("No schedules.");
    let shop = Shop::with_all_sagas().await;
    let got = shop.get("/schedules").await;
    got.has("report").has("every 1 h 30 min").has(">in 1 h ").lacks("no program runs");
    let tick = shop.scoop.trigger::<Report>().await.unwrap();
    shop.get("/schedules").await.has(&format!("/hierarchies/{}", tick.id()));
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_have_pages() {
    let shop = Shop::with_all_sagas().await;
    shop.db
        .execute(
            "INSERT INTO scoop.schedule (topic, handler, every_ms, missed, overlap, next_at)
             SELECT 'a & b', 'saga ' || lpad(n::text, 5, '0'), 60000, 'skip', 'skip', 'infinity'
             FROM generate_series(1, 10000) n",
        )
        .await;
    let first = shop.get("/schedules").await;
    first.has_rows("Saga", 200).has("saga 00001").has("saga 00200").lacks("saga 00201").lacks("First page");
    first.has("every 1 min 0 s").has("no program runs");
    let second = shop.get(&first.next()).await;
    second.has_rows("Saga", 200).has("saga 00201").has("saga 00400").has("href=\"/schedules\"");
    let last = shop.get("/schedules?topic=a+%26+b&handler=saga+09999").await;
    last.has_rows("Saga", 2).has("saga 10000").has(">report</a>").lacks("rel=\"next\"");
    let beyond = shop.get("/schedules?topic=zz&handler=zz").await;
    beyond.has("No further schedules.").has("First page");
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
    let schedule = shop.scoop.operate().schedules().list().await.unwrap().remove(0);
    assert_eq!(schedule.run_count, 1);
    let url = browser.client.current_url().await.unwrap();
    assert!(url.path().ends_with(&schedule.last.unwrap().to_string()), "{url}");
    // No saga of this name has a schedule.
    let path = "/trigger?saga=orders";
    let page = shop.get(path).await;
    let got = shop.post(path, &[("form", page.form()), ("name", "Ada"), ("reason", "why")]).await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
    got.has("has no schedule");
    site.close().await;
}
