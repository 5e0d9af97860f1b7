//! The pages in a browser: every page and action, live updates, a narrow window, dark colors, the keyboard.

use scoop::Handle;
use scoop::operate::OperateExt as _;
use scoop::pauses::PauseTarget;
use scoop::tree::{RunState, Tree};
use scoop_test_support::{Ends as _, eventually};
use scoop_web::Options;
use serde_json::json;

use crate::browser::{Browser, Colors, ENTER, TAB, Window};
use crate::shop::{Collected, Fill, Plan, Report, Shop, TOKEN};

/// A shop whose page is served, and a browser.
pub(crate) struct Site {
    pub(crate) shop: Shop,
    /// The URL of the overview, with a `/` at its end.
    url: String,
    pub(crate) browser: Browser,
}

/// A page with something on it.
struct Stop {
    path: String,
    /// A text that it shows.
    shows: &'static str,
}

impl Site {
    /// Opens the overview with the token.
    pub(crate) async fn open(window: Window, colors: Colors) -> Self {
        Self::of(Shop::open().await, window, colors).await
    }

    /// The same, of a shop with all sagas.
    pub(crate) async fn with_all_sagas(window: Window, colors: Colors) -> Self {
        Self::of(Shop::with_all_sagas().await, window, colors).await
    }

    async fn of(shop: Shop, window: Window, colors: Colors) -> Self {
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

    pub(crate) async fn goto(&self, path: &str) {
        self.browser.goto(&format!("{}{path}", self.url)).await;
    }

    /// Goes to a page with something on it.
    async fn visit(&self, stop: &Stop) {
        self.goto(&stop.path).await;
        self.browser.shows("main", stop.shows).await;
    }

    /// Enters name and reason, and confirms.
    pub(crate) async fn sign(&self, reason: &str) {
        self.browser.enter("#name", "Ada Lovelace").await;
        self.browser.enter("#reason", reason).await;
        self.browser.click("form.card button.primary").await;
    }

    /// All pages, with something on each.
    async fn stops(&self) -> Vec<Stop> {
        let Shop { scoop, .. } = &self.shop;
        let (retried, stuck) = (self.shop.retried().await, self.shop.stuck().await);
        let failed = self.shop.order(Plan::FailToUndo).await;
        self.shop.order(Plan::Fail("none left".into())).await;
        let waiting = self.shop.shipped(3).await;
        let fill = Fill { sku: "pen".into(), units: 3 };
        scoop.send(fill).await.unwrap().decision().await.unwrap();
        scoop.trigger::<Report>().await.unwrap().wait().await.unwrap();
        eventually("the error queue has a failure", async || {
            !scoop.operate().runs().list().handler("on-call").page(1).await.unwrap().runs.is_empty()
        })
        .await;
        for target in [PauseTarget::topic("shop.mails"), PauseTarget::handler("parcels")] {
            scoop
                .operate()
                .pauses()
                .pause(&target)
                .reason("the scales are broken")
                .source("Ada")
                .await
                .unwrap();
        }
        scoop
            .operate()
            .pauses()
            .resume(PauseTarget::topic("shop.mails"))
            .reason("they are mended")
            .await
            .unwrap();
        let (run, retried, stuck) =
            (first_run(&failed).await, first_run(&retried).await, first_run(&stuck).await);
        let parcel = waiting.tree().await.unwrap().roots()[0].children[0].id();
        let stop = |path: &str, shows| Stop { path: path.into(), shows };
        vec![
            stop("", "bank-closed"),
            stop("runs", "sold-out: none left"),
            stop("runs?state=rollback+failed&code=bank-closed", "the bank is closed"),
            stop("search?q=parcels", "parcels"),
            stop("search?q=0197a6b2-6b1c-7000-8000-000000000001", "0197a6b2"),
            stop("search?topic=shop.orders&key=none", "no message was launched"),
            stop(&format!("hierarchies/{}", waiting.id()), "waits for 3 children"),
            stop(&format!("hierarchies/{}", failed.id()), "the bank is closed"),
            stop(&format!("runs/{run}"), "the bank is closed"),
            stop(&format!("runs/{retried}"), "the mailbox is full"),
            stop(&format!("runs/{parcel}"), "parcel 0"),
            stop(&format!("runs/{stuck}"), "stuck"),
            stop(&format!("actions/skip/{run}"), "Skip?"),
            stop(&format!("actions/cancel/{}", waiting.id()), "Cancel?"),
            stop(&format!("actions/signal/{parcel}"), "Payload, as JSON"),
            stop("runs/no-such-run", "no id of a run"),
            stop("failures", "sold-out"),
            stop("inbox", "Retry the selected"),
            stop(&format!("retry?run={run}&run={stuck}"), "Retry 2 runs?"),
            stop("error-queue", "sold-out: none left"),
            stop("schedules", "every 1 h 30 min"),
            stop("trigger?saga=report", "Run now?"),
            stop("entities?name=stock&key=pen", "shop.filled"),
            stop("topology", "the scales are broken"),
            stop("pause?saga=parcels", "Pause?"),
            stop("resume?saga=parcels", "Resume?"),
            stop("login", "This page needs a token"),
        ]
    }

    pub(crate) async fn close(self) {
        self.browser.close().await;
    }
}

pub(crate) async fn first_parcel(order: &Handle) -> String {
    order.tree().await.unwrap().roots()[0].children[0].id().to_string()
}

pub(crate) async fn first_run(order: &Handle) -> String {
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
async fn open_page_shows_what_happens_because_of_events() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    let order = shop.shipped(2).await;
    site.goto(&format!("hierarchies/{}", order.id())).await;
    browser.shows("td .phase", "awaiting signal").await;
    browser.follows_events_alone().await;
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
    browser.follows_events_alone().await;
    shop.order(Plan::Fail("sold out at noon".into())).await;
    browser.shows("td", "sold out at noon").await;
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_not_wider_than_a_narrow_window() {
    let site = Site::with_all_sagas(Window::Narrow, Colors::Light).await;
    let mut is_drawn = false;
    for stop in site.stops().await {
        site.visit(&stop).await;
        let width = site.browser.value("return [innerWidth, document.documentElement.scrollWidth]").await;
        assert_eq!(width, json!([380, 380]), "{}", stop.path);
        if stop.path.starts_with("hierarchies") && !std::mem::replace(&mut is_drawn, true) {
            site.browser.image("web_narrow").await;
        }
    }
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_dark_and_legible_where_the_system_is_dark() {
    let site = Site::with_all_sagas(Window::Desktop, Colors::Dark).await;
    for stop in site.stops().await {
        site.visit(&stop).await;
        let color = site.browser.value("return getComputedStyle(document.body).backgroundColor").await;
        assert_eq!(color, json!("rgb(18, 22, 29)"), "{}", stop.path);
        assert_eq!(site.browser.value(FAINT).await, json!([]), "{}", stop.path);
        if stop.path == "topology" {
            site.browser.image("web_dark").await;
        }
    }
    site.close().await;
}

/// The texts of a page whose contrast to what is behind them is less than that of level AA of the Web Content Accessibility
/// Guidelines.
const FAINT: &str = r#"
    const read = (color) => {
        const numbers = color.match(/[\d.]+/g).map(Number);
        const scale = color.startsWith("color(") ? 255 : 1;
        return [...numbers.slice(0, 3).map((it) => it * scale), numbers[3] ?? 1];
    };
    const over = (above, below) => [0, 1, 2].map((at) => above[at] * above[3] + below[at] * (1 - above[3])).concat(1);
    const style = (element, part) => getComputedStyle(element, part);
    const behind = (element) => {
        const layers = [];
        for (let it = element; it; it = it.parentElement) layers.push(read(style(it).backgroundColor));
        return layers.reverse().reduce((below, above) => over(above, below), [255, 255, 255, 1]);
    };
    const light = (color) => {
        const linear = color.slice(0, 3).map((it) => it / 255).map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const contrast = (text, back) => {
        const both = [light(over(text, back)), light(back)].sort((one, other) => other - one);
        return (both[0] + 0.05) / (both[1] + 0.05);
    };
    const faint = [];
    const check = (text, color, back) => {
        const ratio = contrast(read(color), back);
        if (!(ratio >= 4.5)) faint.push(`${text}: ${color} on ${back}: ${ratio}`);
    };
    for (const it of document.querySelectorAll("details")) it.open = true;
    let seen = 0;
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        const text = texts.currentNode.textContent.trim();
        if (!text || !element.getClientRects().length) continue;
        seen += 1;
        const shape = element.closest("svg") && element.parentElement.querySelector("rect");
        if (shape) check(text, style(element).fill, read(style(shape).fill));
        else check(text, style(element).color, behind(element));
    }
    for (const field of document.querySelectorAll("input:not([type=hidden]):not([type=checkbox]), textarea, select")) {
        check("value of " + field.name, style(field).color, behind(field));
        if (field.placeholder) check("placeholder of " + field.name, style(field, "::placeholder").color, behind(field));
    }
    return seen ? faint : ["no text"];
"#;

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
async fn all_pages_of_the_menu_are_legible_and_have_labels() {
    let site = Site::with_all_sagas(Window::Desktop, Colors::Light).await;
    let browser = &site.browser;
    let stops = site.stops().await;
    for stop in &stops {
        site.visit(stop).await;
        assert_eq!(browser.value(LACKS).await, json!([]), "{}", stop.path);
        assert_eq!(browser.value(FAINT).await, json!([]), "{}", stop.path);
    }
    site.goto("").await;
    let menu = "return [...document.querySelectorAll('header nav a')].map((it) => it.pathname.slice(1))";
    let menu: Vec<String> = serde_json::from_value(browser.value(menu).await).unwrap();
    let missed = menu.iter().find(|path| !stops.iter().any(|stop| stop.path.split('?').next() == Some(path)));
    assert!(menu.len() > 5 && missed.is_none(), "{missed:?} of {menu:?}");
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_is_cancelled_by_keys_alone() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    let order = shop.shipped(1).await;
    site.goto(&format!("hierarchies/{}", order.id())).await;
    browser.press(TAB).await;
    let focused = "return document.activeElement.className || document.activeElement.id";
    assert_eq!(browser.value(focused).await, json!("skip"));
    browser.press(ENTER).await;
    assert_eq!(browser.value(focused).await, json!("main"));
    browser.tab_to("a[href*='/actions/cancel/']").await;
    browser.press(ENTER).await;
    browser.shows("h1", "Cancel?").await;
    browser.tab_to("#name").await;
    browser.press("Ada Lovelace").await;
    browser.tab_to("#reason").await;
    browser.press("the customer has left").await;
    browser.tab_to("form.card button.primary").await;
    browser.press(ENTER).await;
    browser.shows(".done", "Cancel: accepted").await;
    browser.shows("#live .phase", "rolled back").await;
    assert_eq!(order.tree().await.unwrap().cancellations()[0].source, "Ada Lovelace");
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn saga_is_paused_and_resumed_by_clicks() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    site.goto("topology").await;
    browser.click("a[aria-label='Pause saga parcels']").await;
    browser.shows("h1", "Pause?").await;
    browser.click("#limit option[value='1h']").await;
    site.sign("the scales are broken").await;
    browser.shows("td", "the scales are broken").await;
    browser.shows("svg.graph a[aria-label='saga parcels, paused'] text.idle", "paused").await;
    let pauses = shop.scoop.operate().pauses().list().await.unwrap();
    assert_eq!((pauses.len(), &*pauses[0].source), (1, "Ada Lovelace"));
    assert!(pauses[0].until.is_some());
    browser.click("a[aria-label^='Resume ']").await;
    browser.shows("h1", "Resume?").await;
    site.sign("they are mended").await;
    browser.shows(".empty", "Nothing is paused.").await;
    assert!(shop.scoop.operate().pauses().list().await.unwrap().is_empty());
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_and_everything_are_paused_and_resumed_by_clicks() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    for (link, target, reason) in [
        ("a[href$='/pause?topic=shop.parcels']", PauseTarget::topic("shop.parcels"), "the scales are broken"),
        ("a[href$='/pause?everything=1']", PauseTarget::Everything, "the shop is closed"),
    ] {
        site.goto("topology").await;
        browser.click(link).await;
        browser.shows("h1", "Pause?").await;
        browser.click("#limit option[value='1h']").await;
        site.sign(reason).await;
        browser.shows("td[data-label=Reason]", reason).await;
        browser.shows("svg.graph a[aria-label='saga parcels, paused'] text.idle", "paused").await;
        let pauses = shop.scoop.operate().pauses().list().await.unwrap();
        let [pause] = &pauses[..] else { panic!("{pauses:?}") };
        assert_eq!((&pause.target, &*pause.source, pause.until.is_some()), (&target, "Ada Lovelace", true));
        browser.click("a[aria-label^='Resume ']").await;
        browser.shows("h1", "Resume?").await;
        site.sign("it is mended").await;
        browser.shows(".empty", "Nothing is paused.").await;
        assert!(shop.scoop.operate().pauses().list().await.unwrap().is_empty());
    }
    let order = shop.order(Plan::Commit).await;
    assert!(order.tree().await.unwrap().roots()[0].has_ended());
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn list_is_filtered_and_searched_by_clicks() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    shop.order(Plan::Commit).await;
    let failed = shop.order(Plan::Fail("none left".into())).await;
    site.goto("runs").await;
    browser.enter("#handler", "orders").await;
    browser.click("input[name=state][value='rolled back']").await;
    browser.click("input[name=roots]").await;
    browser.click("form.filters button.primary").await;
    browser.until("return location.search.includes('roots=1')").await;
    browser.shows("td", "sold-out: none left").await;
    let shown = "return [document.querySelectorAll('#live tbody tr').length, document.getElementById('handler').value, \
                 document.querySelectorAll('input:checked').length]";
    assert_eq!(browser.value(shown).await, json!([1, "orders", 2]));
    browser.click("form.filters a").await;
    browser.until("return document.querySelectorAll('#live tbody tr').length === 2").await;
    browser.enter("#q", &failed.id().to_string()).await;
    browser.click("form.search button").await;
    browser.shows("h1", "Hierarchy").await;
    browser.shows("p.id", &failed.id().to_string()).await;
    browser.enter("#q", "sold-out").await;
    browser.press(ENTER).await;
    browser.until("return document.getElementById('code')?.value === 'sold-out'").await;
    browser.shows("td", "none left").await;
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_updates_are_resumed_by_a_click() {
    let site = Site::open(Window::Desktop, Colors::Light).await;
    let Site { shop, browser, .. } = &site;
    let order = shop.shipped(1).await;
    site.goto(&format!("hierarchies/{}", order.id())).await;
    browser.until("return document.getElementById('live-state').textContent === 'live'").await;
    browser.click("#live-state + button").await;
    browser.shows("#live-state + button", "Resume updates").await;
    shop.scoop.signal(Collected {}, "parcel 0").await.unwrap();
    order.wait().await.unwrap();
    // Another stream of the same changes: the page hears of them, too.
    let listen = "window.heard = 0; const source = new EventSource(document.getElementById('live').dataset.live); \
                  source.addEventListener('changed', () => window.heard += 1); return null";
    browser.value(listen).await;
    browser.until("return window.heard > 0").await;
    browser.shows("#live p .phase", "unfinished").await;
    browser.click("#live-state + button").await;
    browser.shows("#live p .phase", "committed").await;
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_children_are_shown_in_wide_and_narrow_windows() {
    let mut site = Site::open(Window::Desktop, Colors::Light).await;
    let order = site.shop.shipped(1_000).await;
    let run = first_run(&order).await;
    let width = "return document.documentElement.scrollWidth <= innerWidth";
    for window in [Window::Desktop, Window::Narrow] {
        if window == Window::Narrow {
            let wide = std::mem::replace(&mut site.browser, Browser::open(window, Colors::Light).await);
            wide.close().await;
            site.goto("login").await;
            site.browser.enter("#token", TOKEN).await;
            site.browser.click("button.primary").await;
            site.browser.shows("h1", "Overview").await;
        }
        let browser = &site.browser;
        site.goto(&format!("hierarchies/{}", order.id())).await;
        browser.click("#left-out a").await;
        browser
            .until("return document.querySelectorAll('table.tree tbody tr:not(.step)').length === 1000")
            .await;
        browser.until("return document.querySelectorAll('table.timeline tbody tr').length === 1000").await;
        assert_eq!(browser.value(width).await, json!(true), "{window:?}");
        site.goto(&format!("runs/{run}")).await;
        browser.shows("#children ~ .note", "Further children may not be shown.").await;
        assert_eq!(browser.value(width).await, json!(true), "{window:?}");
    }
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
