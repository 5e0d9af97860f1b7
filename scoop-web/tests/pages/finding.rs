//! Overview, lists, search, hierarchies and runs.

use axum::http::StatusCode;
use scoop::{PauseTarget, RunState};
use scoop_test_support::{Ends as _, eventually};

use crate::shop::{CARD, Collected, Order, Plan, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn overview_counts_runs_and_lists_failures_and_workers() {
    let shop = Shop::open().await;
    shop.order(Plan::Commit).await;
    shop.order(Plan::Fail("none left".into())).await;
    shop.shipped(2).await;
    let got = shop.get("/").await;
    got.has("aria-label=\"1 committed of orders\"").has("aria-label=\"2 waiting of parcels\"");
    got.lacks("stuck of parcels")
        .lacks("in force")
        .has("sold-out: none left")
        .has("<span class=\"phase good\">alive</span>");
    shop.scoop.pause(scoop::PauseTarget::Everything).await.unwrap();
    let order = Order { plan: Plan::Commit, card: CARD.into() };
    shop.scoop.launch(order).await.unwrap();
    let stuck = "UPDATE scoop.run SET state = 'stuck', reason = 'a test' WHERE id = (
                     SELECT id FROM scoop.run WHERE handler = 'parcels' LIMIT 1)";
    shop.db.execute(stuck).await;
    let got = shop.get("/").await;
    got.has("1 pause is in force.");
    got.has("aria-label=\"1 ready of orders\"").has("<td class=\"bad\"><a href=\"").has("1 stuck of parcels");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_is_filtered_and_paged() {
    let shop = Shop::open().await;
    shop.order(Plan::Fail("none left".into())).await;
    for _ in 0..51 {
        shop.order(Plan::Commit).await;
    }
    let got = shop.get("/runs?state=rolled+back&code=sold-out&handler=orders&since=1h").await;
    got.has("none left").has("value=\"rolled back\" checked").lacks("rel=\"next\"");
    shop.get("/runs?code=no-such-code").await.has("No such run.");
    let first = shop.get("/runs?state=committed").await;
    let next = first.next();
    assert!(next.starts_with("/runs?state=committed&after="), "{next}");
    shop.get(&next).await.has("First page").has("phase good").lacks("rolled back</span>");
    for wrong in ["state=done", "waiting=x", "after=x", "since=yesterday"] {
        assert_eq!(shop.get(&format!("/runs?{wrong}")).await.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_by_wait_topic_and_roots_find_runs() {
    let shop = Shop::open().await;
    let order = shop.shipped(2).await;
    shop.order(Plan::Commit).await;
    let tree = order.tree().await.unwrap();
    let (root, parcels) = (tree.roots()[0].id(), tree.roots()[0].children.iter().map(|it| it.id()));
    let parcels: Vec<_> = parcels.collect();
    for (filter, found) in [
        ("waiting=signal", parcels.clone()),
        ("waiting=children", vec![root]),
        ("waiting=signal&waiting=children", vec![parcels[0], parcels[1], root]),
        ("topic=shop.parcels", parcels),
        ("roots=1&state=waiting", vec![root]),
    ] {
        let got = shop.get(&format!("/runs?{filter}")).await;
        assert_eq!(got.text.matches("<td data-label=\"Run\">").count(), found.len(), "{filter}");
        for run in found {
            got.has(&format!("/runs/{run}\""));
        }
    }
    shop.get("/runs?roots=1").await.lacks("<td data-label=\"Saga\">parcels");
    shop.get("/runs?waiting=signal&topic=shop.parcels").await.has("value=\"signal\" checked");
}

#[tokio::test(flavor = "multi_thread")]
async fn retried_run_shows_its_attempts_and_its_context() {
    let shop = Shop::with_all_sagas().await;
    let mail = shop.retried().await;
    let run = mail.tree().await.unwrap().roots()[0].id();
    let got = shop.get(&format!("/runs/{run}")).await;
    got.has("<dt>Failed attempts</dt><dd>1</dd>").has("step in progress").has("failed attempts</span>");
    got.has("Last failed attempt").has("the mailbox is full");
    got.has("<summary>Context</summary>").has("&#34;shop.tenant&#34;: {").has("&#34;Northwind&#34;");
    shop.get("/runs?state=retrying").await.has(&format!("/runs/{run}\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn search_leads_to_what_was_meant() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Commit).await;
    let tree = order.tree().await.unwrap();
    let run = &tree.roots()[0];
    let found = async |query: String| shop.get(&format!("/search?{query}")).await.location().to_owned();
    assert_eq!(found(format!("q={}", order.id())).await, format!("/hierarchies/{}", order.id()));
    assert_eq!(found(format!("q={}", run.id())).await, format!("/runs/{}", run.id()));
    assert_eq!(found(format!("q={}", run.message_id)).await, format!("/hierarchies/{}", order.id()));
    assert_eq!(found("q=orders".into()).await, "/runs?handler=orders");
    assert_eq!(found("q=shop.orders".into()).await, "/runs?topic=shop.orders");
    assert_eq!(found("q=sold-out".into()).await, "/runs?code=sold-out");
    assert_eq!(found("q=".into()).await, "/runs");
    let nothing = "q=0197a6b2-6b1c-7000-8000-000000000001";
    assert_eq!(shop.get(&format!("/search?{nothing}")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_is_found_by_its_unique_key() {
    let shop = Shop::open().await;
    let order = Order { plan: Plan::Commit, card: CARD.into() };
    let order = shop.scoop.launch(order).unique(" order & 7 ").await.unwrap();
    shop.get("/runs?topic=shop.orders").await.has("name=\"topic\" value=\"shop.orders\" required");
    let found = "/search?topic=shop.orders&key=+order+%26+7+";
    assert_eq!(shop.get(found).await.location(), format!("/hierarchies/{}", order.id()));
    let got = shop.get("/search?topic=shop.orders&key=%3Cb%3Eorder+8").await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
    got.has("no message was launched on topic").has("&#60;b&#62;order 8").lacks("<b>");
    for half in ["topic=shop.orders", "key=7"] {
        let got = shop.get(&format!("/search?{half}")).await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{half}");
        got.has("both are needed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_is_shown_as_tree_and_time_line() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("none left".into())).await;
    let got = shop.get(&format!("/hierarchies/{}", order.id())).await;
    got.has("rolled back: none left").has("<rect class=\"run\"").has("<rect class=\"step\"");
    got.has("<rect class=\"compensation\"").has("undo reserve").lacks("/actions/");
    let waiting = shop.shipped(2).await;
    let got = shop.get(&format!("/hierarchies/{}", waiting.id())).await;
    got.has("waits for 2 children").has("class=\"level-1\"").has("<rect class=\"wait open\"");
    got.has("wait after reserve").has("so far").has("/actions/cancel/");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_tells_events_failures_and_places_in_the_code() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("none left".into())).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    let got = shop.get(&format!("/runs/{run}")).await;
    got.has("began to roll back").has("sold-out: none left").has("shop.rs:").has("undone");
    let path = format!("/runs/{}", order.id());
    assert_eq!(shop.get(&path).await.location(), format!("/hierarchies/{}", order.id()));
    let path = format!("/hierarchies/{run}");
    assert_eq!(shop.get(&path).await.location(), format!("/runs/{run}"));
    for path in ["/runs/x", "/hierarchies/x", "/runs/0197a6b2-6b1c-7000-8000-000000000001", "/nothing"] {
        assert_eq!(shop.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_run_shows_what_would_end_the_wait() {
    let shop = Shop::open().await;
    let order = shop.shipped(1).await;
    let parcel = order.tree().await.unwrap().runs()[1].id();
    let path = format!("/runs/{parcel}");
    shop.get(&path)
        .await
        .has("awaits the signal `shop.collected` with the key `parcel 0`")
        .has(">Parent</a>");
    shop.scoop.signal(Collected {}, "parcel 0").await.unwrap();
    order.wait().await.unwrap();
    shop.get(&path).await.has("Nothing is left to do.");
}

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
    scoop.skip(run, HOSTILE).source(HOSTILE).await.unwrap();
    failed.comes_to(|tree| matches!(tree.roots()[0].state, RunState::RolledBack(_))).await.unwrap();
    shop.get(&format!("/runs/{run}")).await.has("skip").has("alert(1)");
    shows_a_hostile_text(&shop, &format!("/runs/{run}")).await;
    let stuck = shop.stuck().await;
    let cancelled = shop.shipped(1).await;
    scoop.cancel(cancelled.id(), HOSTILE).source(HOSTILE).await.unwrap();
    shows_a_hostile_text(&shop, &format!("/hierarchies/{}", cancelled.id())).await;

    scoop.pause(PauseTarget::handler("parcels")).reason(HOSTILE).source(HOSTILE).await.unwrap();
    shows_a_hostile_text(&shop, "/topology").await;
    scoop.resume(PauseTarget::handler("parcels")).reason(HOSTILE).source(HOSTILE).await.unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn thousand_children_are_limited() {
    let shop = Shop::open().await;
    let order = shop.shipped(1_000).await;
    let path = format!("/hierarchies/{}", order.id());
    let got = shop.get(&path).await;
    got.has("100 runs are shown, and more are left out").has("limit=1000");
    assert!(got.text.len() < 200_000, "{} bytes", got.text.len());
    shop.get(&format!("{path}?limit=1000")).await.has("1000 runs are shown");
    assert_eq!(shop.get(&format!("{path}?limit=1001")).await.status, StatusCode::BAD_REQUEST);
    let run = order.tree().limit(1).await.unwrap().roots()[0].id();
    shop.get(&format!("/runs/{run}")).await.has("Further children may not be shown.");
}

/// Gives the only run so many further steps that completed and, after it failed, were undone.
async fn lengthen(shop: &Shop, completed: u32, undone: u32) {
    shop.db
        .execute(&format!(
            "UPDATE scoop.message_event e SET created_at = e.created_at + interval '1 s' * (
                 SELECT count(*) FROM scoop.message_event before
                 WHERE before.type IN ('SEEN', 'ROLLING_BACK') AND before.created_at < e.created_at);
             INSERT INTO scoop.message_event (message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage,
                                              created_at, context)
             SELECT e.message_id, 'SUSPENDED', e.coroutine_name, e.coroutine_identifier,
                    CASE WHEN e.type = 'SEEN' THEN 'turn' ELSE 'Rollback of turn[' || n || ',]' END, e.cooperation_lineage,
                    e.created_at + n * interval '1 microsecond', e.context
             FROM scoop.message_event e
             CROSS JOIN LATERAL generate_series(1, CASE e.type WHEN 'SEEN' THEN {completed} ELSE {undone} END) n
             WHERE e.type IN ('SEEN', 'ROLLING_BACK')"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_run_shows_its_first_and_its_last_events() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("none left".into())).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    lengthen(&shop, 2_000, 2_000).await;
    let got = shop.get(&format!("/runs/{run}")).await;
    assert_eq!(
        got.text.matches("<td data-label=\"Event\">").count(),
        501,
        "and the beginning of the rollback"
    );
    got.has("events are not shown: those between the first and the last 250.").has("began to roll back");
    got.has("<td data-label=\"Event\">began</td>").has("none left").has("Earlier ones are not shown.");
    assert_eq!(got.text.matches("<span class=\"phase undone\">undone</span>").count(), 100);
    shop.get(&format!("/hierarchies/{}", order.id()))
        .await
        .has("<rect class=\"run\"")
        .lacks("<rect class=\"step\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn undone_steps_are_matched_with_the_newest_completion() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("none left".into())).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    lengthen(&shop, 60, 40).await;
    let got = shop.get(&format!("/runs/{run}")).await;
    got.lacks("are not shown");
    let steps = got.text.split_once("<h2 id=\"steps\">").unwrap().1.split_once("</section>").unwrap().0;
    let states: Vec<_> =
        steps.split("data-label=\"State\"><span class=\"phase ").skip(1).map(|it| &it[..4]).collect();
    assert_eq!(states, [["good"; 20].as_slice(), &["undo"; 41]].concat(), "60 turns, and `reserve`");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_handler_are_limited() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Commit).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    shop.db
        .execute(
            "WITH launched AS (
                 INSERT INTO scoop.message (topic, payload) SELECT 'shop.unheard', '{}' FROM generate_series(1, 5000) RETURNING id
             )
             INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage)
             SELECT launched.id, 'EMITTED', e.coroutine_name, 'reserve', e.cooperation_lineage
             FROM launched, scoop.message_event e WHERE e.type = 'SEEN'",
        )
        .await;
    for path in [format!("/hierarchies/{}", order.id()), format!("/runs/{run}")] {
        let got = shop.get(&path).await;
        assert_eq!(got.text.matches("no handler (on shop.unheard)").count(), 100, "{path}");
        got.has("There may be more messages without a handler.");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_grouped_by_code() {
    let shop = Shop::open().await;
    shop.get("/failures").await.has("No run has failed.");
    shop.order(Plan::Fail("none left".into())).await;
    shop.order(Plan::Fail("none left again".into())).await;
    let got = shop.get("/failures").await;
    got.has("/runs?code=sold-out").has("<td data-label=\"Runs\">2</td>").has("none left again");
}
