//! A hierarchy is played on its page, event by event.

use serde_json::json;

use crate::browser::{Browser, Colors, TAB, Window};
use crate::browsing::Site;
use crate::shop::{Collected, Plan, Shop};

/// The states in the tree at the moment that is played, in the order of its rows; what is said, and the name of the first button.
const STATES: &str =
    "return [...document.querySelectorAll('.tree tbody tr')].map((row) => row.cells[1].dataset.state ?? '')";
const READY: &str = "return !document.getElementById('play').hidden";
const SAID: &str = "return document.querySelector('#play output').textContent";
const BUTTON: &str = "return document.querySelector('#play button').textContent";

async fn press_play(browser: &Browser, nth: u32) {
    browser.click(&format!("#play button:nth-of-type({nth})")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_is_played_to_its_end() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    let order = shop.order(Plan::FailBelow).await;
    site.goto(&format!("hierarchies/{}", order.id())).await;
    browser.until(READY).await;
    browser.click("#play option[value='4']").await;
    press_play(browser, 1).await;
    browser.shows("#play button", "Pause").await;
    browser.shows(".tree tr[data-failed] td", "reserve").await;
    browser.shows("#play output", "rollback failed").await;
    browser.until("return document.querySelector('#play button').textContent === 'Play'").await;
    // The failure of the child has gone up: by the step that launched it, to its parent.
    let failed = "return [...document.querySelectorAll('.tree tbody tr')].map((row) => row.hasAttribute('data-failed'))";
    assert_eq!(browser.value(failed).await, json!([true, true, true]));
    assert_eq!(browser.value(STATES).await, json!(["rollback failed", "child failed", "rollback failed"]));
    browser.image("web_play").await;
    press_play(browser, 4).await;
    assert_eq!(browser.value(SAID).await, json!(""));
    assert_eq!(browser.value(STATES).await, json!(["", "", ""]));
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_go_forward_and_back_by_clicks_and_keys() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    let order = shop.order(Plan::Fail("none left".into())).await;
    site.goto(&format!("hierarchies/{}", order.id())).await;
    browser.until(READY).await;
    press_play(browser, 3).await;
    browser.shows("#play output", "+0 ms orders: began").await;
    assert_eq!(browser.value(STATES).await, json!(["running"]));
    press_play(browser, 3).await;
    browser.shows("#play output", "orders: completed reserve").await;
    press_play(browser, 2).await;
    browser.shows("#play output", "+0 ms orders: began").await;
    browser.value("document.querySelector('#moment').focus(); return null").await;
    const RIGHT: &str = "\u{e014}";
    const LEFT: &str = "\u{e012}";
    browser.press(&format!("{RIGHT}{RIGHT}{RIGHT}{LEFT}")).await;
    browser.shows("#play output", "orders: began to roll back in pack: none left").await;
    assert_eq!(browser.value(STATES).await, json!(["failed"]));
    browser.press(" ").await;
    assert_eq!(browser.value(BUTTON).await, json!("Pause"));
    browser.press(" ").await;
    assert_eq!(browser.value(BUTTON).await, json!("Play"));
    browser.press(TAB).await;
    browser.press(RIGHT).await;
    browser.until("return document.querySelector('#play output').textContent.includes('orders: ')").await;
    browser
        .value(
            "document.querySelector('#moment').value = 0; \
                   document.querySelector('#moment').dispatchEvent(new Event('input')); return null",
        )
        .await;
    assert_eq!(browser.value(SAID).await, json!("+0 ms orders: began"));
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_that_is_played_is_not_updated_until_it_is_left() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    let order = shop.shipped(1).await;
    site.goto(&format!("hierarchies/{}", order.id())).await;
    browser.until("return document.getElementById('live-state').textContent === 'live'").await;
    browser.until(READY).await;
    press_play(browser, 2).await;
    assert_eq!(browser.value(STATES).await, json!(["waiting", "completed", "awaiting signal"]));
    shop.scoop.signal(Collected {}, "parcel 0").await.unwrap();
    order.wait().await.unwrap();
    // Another stream of the same changes: the page hears of them, too.
    let listen = "window.heard = 0; const source = new EventSource(document.getElementById('live').dataset.live); \
                  source.addEventListener('changed', () => window.heard += 1); return null";
    browser.value(listen).await;
    browser.until("return window.heard > 0").await;
    browser.shows("#live p .phase", "unfinished").await;
    press_play(browser, 4).await;
    browser.shows("#live p .phase", "committed").await;
    // The events that came meanwhile are played, too.
    press_play(browser, 2).await;
    browser.shows("#play output", "orders: committed").await;
    assert_eq!(browser.value(STATES).await, json!(["committed", "completed", "committed"]));
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn children_stand_below_the_step_that_launched_them() {
    let shop = Shop::open().await;
    let order = shop.shipped(2).await;
    let got = shop.get(&format!("/hierarchies/{}", order.id())).await;
    let tree: Vec<_> = got.text.split("<tr").filter(|row| row.contains("data-label=\"State\"")).collect();
    assert_eq!(tree.len(), 4);
    assert!(tree[1].contains("class=\"step\"") && tree[1].contains(">reserve</td>"), "{}", tree[1]);
    assert!(tree[2..].iter().all(|row| row.contains(">parcels</a>")), "{tree:?}");
    let line = |text: &str| got.text.find(text).unwrap();
    assert!(line("wait after reserve") < got.text.rfind(">parcels</a>").unwrap());
    // Without the script nothing of it is visible.
    got.has("aria-label=\"Play the hierarchy\" hidden>")
        .has("<script type=\"application/json\" id=\"moments\">[[");
}
