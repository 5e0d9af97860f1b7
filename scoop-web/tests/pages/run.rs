//! The page of a run, also of one with a long or an incomplete record.

use axum::http::StatusCode;

use crate::shop::{CARD, Collected, Plan, Shop};

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
async fn run_shows_steps_and_contents_without_redacted_values() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("none left".into())).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    let got = shop.get(&format!("/runs/{run}")).await;
    got.has("<span class=\"phase undone\">undone</span>").has("reserve returned, after 0 steps");
    got.has("&#34;shelf&#34;: 7").has("&#34;Fail&#34;: &#34;none left&#34;");
    got.has("&#34;card&#34;: &#34;[redacted]&#34;").lacks(CARD);
    // The other pages show no contents at all.
    for path in ["/".to_owned(), "/runs".into(), format!("/hierarchies/{}", order.id())] {
        shop.get(&path).await.lacks(CARD);
    }
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
        .has("<rect class=\"step\"")
        .has("<rect class=\"gap\"")
        .has("events are left out");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_left_out_on_either_side_of_the_beginning_of_a_rollback_are_marked() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("none left".into())).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    lengthen(&shop, 2_000, 2_000).await;
    let page = format!("/runs/{run}");
    let gaps = async || shop.get(&page).await.text.matches("data-label=\"Events\">…</td>").count();
    assert_eq!(gaps().await, 2, "before and after the beginning of the rollback");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_many_interventions_shows_the_newest_and_counts_the_others() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("none left".into())).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    for (count, left_out) in [(1_000, "900 earlier ones are"), (19_000, "10,000 earlier ones or more are")] {
        shop.db
            .execute(&format!(
                "INSERT INTO scoop.intervention (root, run, handler, message_id, kind, note, source, requested_at)
                 SELECT e.cooperation_lineage[1], e.cooperation_lineage[2], e.coroutine_name, e.message_id, 'retry', n,
                        'a stranger', e.created_at + n * interval '1 millisecond'
                 FROM scoop.message_event e, generate_series(1, {count}) n
                 WHERE e.type = 'SEEN'"
            ))
            .await;
        let got = shop.get(&format!("/runs/{run}")).await;
        got.has(&format!("{left_out} not shown.")).has(&format!("retry by a stranger: {count}<"));
        assert_eq!(got.text.matches("retry by a stranger").count(), 100);
    }
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
async fn run_whose_events_cannot_be_read_says_why() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("none left".into())).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    let page = format!("/runs/{run}");
    shop.get(&page).await.lacks("unreadable: a run of ");
    // No program can read such a number.
    let forge = r#"UPDATE scoop.message_event SET wait = '{"until": 1e400}' WHERE type = 'SEEN'"#;
    shop.db.execute(forge).await;
    let got = shop.get(&page).await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.text);
    got.has("The events of this run cannot be read.").has("unreadable: a run of ").has("out of range");
    got.lacks("No event of this run is recorded");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_whose_launch_is_not_recorded_shows_what_there_is() {
    let shop = Shop::open().await;
    let order = shop.order(Plan::Fail("none left".into())).await;
    let run = order.tree().await.unwrap().roots()[0].id();
    let page = format!("/runs/{run}");
    shop.get(&page).await.lacks("The record is incomplete");
    shop.db.execute("DELETE FROM scoop.message_event WHERE type = 'EMITTED'").await;
    let got = shop.get(&page).await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.text);
    got.has("The record is incomplete: the launch of the hierarchy is missing").has("none left");
    got.has("<span class=\"phase undone\">undone</span>").has("reserve returned, after 0 steps");
    got.lacks(&format!("href=\"/hierarchies/{}\"", order.id()));
}

#[tokio::test(flavor = "multi_thread")]
async fn child_whose_launch_is_not_recorded_shows_what_there_is() {
    let shop = Shop::open().await;
    let order = shop.shipped(2).await;
    let tree = order.tree().await.unwrap();
    let [lost, kept] = &tree.roots()[0].children[..] else { panic!("{tree}") };
    shop.db
        .execute(&format!(
            "DELETE FROM scoop.message_event WHERE type = 'EMITTED' AND message_id = '{}'",
            lost.message_id
        ))
        .await;
    let got = shop.get(&format!("/runs/{}", lost.id())).await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.text);
    got.has("the launch of the message of this run, or of a run above it, is missing").has("shop.collected");
    got.has(&format!("href=\"/hierarchies/{}\"", order.id())).has("<h2 id=\"events\">Events</h2>");
    shop.get(&format!("/runs/{}", kept.id())).await.lacks("The record is incomplete");
}
