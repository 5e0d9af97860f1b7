//! Pages of tables with many rows: each shows a part of stated size. And pages of incomplete or unreadable records.

use axum::http::StatusCode;

use crate::shop::{Fill, Got, Plan, Shop};

/// The most bytes that a page of many rows has.
const BYTES_MAX: usize = 400_000;

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
    beyond.has("No further saga runs by itself.").has("First page");
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_shows_the_first_sagas_and_those_with_stuck_runs() {
    let shop = Shop::open().await;
    shop.db
        .execute(
            "INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, state, reason, last_event_at)
             SELECT root, id, ARRAY[root, id], root, 'many', 'saga ' || lpad(n::text, 5, '0'),
                    CASE n WHEN 9999 THEN 'stuck' ELSE 'ready' END::scoop.run_state, 'it is', now()
             FROM generate_series(1, 10000) n
             CROSS JOIN LATERAL (SELECT md5('root' || n)::uuid AS root, md5('run' || n)::uuid AS id) ids;
             INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage)
             SELECT md5('root' || n)::uuid, 'COMMITTED', 'saga ' || lpad(n::text, 5, '0'), 'step',
                    ARRAY[md5('root' || n)::uuid, md5('run' || n)::uuid]
             FROM generate_series(1, 10000) n",
        )
        .await;
    let got = shop.get("/").await;
    assert!(got.text.len() <= BYTES_MAX, "{} bytes", got.text.len());
    assert_eq!(got.text.matches("<th scope=\"row\">").count(), 200);
    got.has("200 of 501+ sagas are shown").has("saga 00001").has("saga 00199").lacks("saga 00200");
    let place = |saga: &str| got.text.find(saga).unwrap();
    assert!(place("saga 09999") < place("saga 00001"));
    got.has("<strong>501+</strong> <span class=\"minor\">runs</span>");
}

#[tokio::test(flavor = "multi_thread")]
async fn topology_has_pages_and_finds_names() {
    let shop = Shop::open().await;
    let got = shop.get("/topology").await;
    got.lacks("rel=\"next\"").lacks("id=\"named\"").has("<svg class=\"graph\"").lacks("is left out");
    shop.db
        .execute(
            "INSERT INTO scoop.handler (topic, handler)
             SELECT 'a & b ' || lpad((n / 10)::text, 4, '0'), 'saga ' || lpad(n::text, 5, '0')
             FROM generate_series(1, 10000) n;
             INSERT INTO scoop.run_limit (saga, handlers, queue)
             SELECT 'saga ' || lpad(n::text, 5, '0'), ARRAY['saga ' || lpad(n::text, 5, '0')], 3 FROM generate_series(1, 400) n;
             INSERT INTO scoop.handler (topic, handler, retired_at) SELECT 'old', 'old ' || n, now() FROM generate_series(1, 300) n",
        )
        .await;
    let first = shop.get("/topology").await;
    first.has("saga 00001").has("saga 00200").lacks("saga 00201").lacks("First page").lacks("orders");
    first.has("queue = 3 <span class=\"minor\">0 wait</span>").has("no program runs");
    first.has("Further ones are not shown").lacks("<svg class=\"graph\"");
    first.has("The graph is left out: it is drawn of all subscriptions only");
    assert!(first.text.len() <= BYTES_MAX, "{} bytes", first.text.len());
    assert_eq!(first.text.matches("<tr><td data-label=\"Saga\"").count(), 2 * 200, "and the retired ones");
    let second = shop.get(&first.next()).await;
    second.has("saga 00201").has("saga 00400").lacks("saga 00401").has("href=\"/topology\"");
    let last = shop.get("/topology?topic=a+%26+b+1000&handler=saga+10000").await;
    last.has(">orders</a>").has(">parcels</a>").lacks("saga 10000").lacks("rel=\"next\"").lacks("<svg");
    shop.get("/topology?topic=zz&handler=zz").await.has("No further saga is subscribed.");
    let got = shop.get("/topology?named=saga+0777").await;
    got.has("saga 07770").has("saga 07779").lacks("saga 07780").lacks("rel=\"next\"");
    got.has("value=\"saga 0777\"").lacks("orders");
    let got = shop.get("/topology?named=saga+07").await;
    let next = got.next();
    assert!(next.contains("named=saga+07&"), "{next}");
    shop.get(&next).await.has("saga 07200").has("href=\"/topology?named=saga+07\"");
    let got = shop.get("/topology?named=shop.orders").await;
    got.has(">orders</a>").lacks("parcels").lacks("no program runs");
    shop.get("/topology?named=none").await.has("No topic or saga has such a name.");
}

#[tokio::test(flavor = "multi_thread")]
async fn error_queues_have_pages_and_each_is_shown_by_its_address() {
    let shop = Shop::open().await;
    shop.db
        .execute(
            "INSERT INTO scoop.handler (topic, handler)
             SELECT 'scoop.failed:a & b', 'queue ' || lpad(n::text, 5, '0') FROM generate_series(1, 10000) n;
             INSERT INTO scoop.handler (topic, handler) VALUES ('zz', 'scoop.failed queue')",
        )
        .await;
    let next_queues = |got: &Got| {
        let before = got.text.split_once("\">Next error queues</a>").expect("there are more").0;
        before.rsplit_once("href=\"").unwrap().1.replace("&#38;", "&")
    };
    let first = shop.get("/error-queue").await;
    first.has("queue 00001").has("queue 00200").lacks("queue 00201").lacks("First error queues");
    let second = shop.get(&next_queues(&first)).await;
    second.has("queue 00201").has("queue 00400").lacks("queue 00401").has("href=\"/error-queue\"");
    for got in [&first, &second] {
        assert_eq!(got.text.matches("aria-current=\"true\">queue ").count(), 1);
        assert!(got.text.len() <= BYTES_MAX, "{} bytes", got.text.len());
    }
    // The list of queues stays where it is.
    let second_path = next_queues(&first).replace("/error-queue?", "&");
    let asked = format!("/error-queue?handler=queue+00300&topic=scoop.failed%3Aa+%26+b{second_path}");
    shop.get(&asked).await.has("aria-current=\"true\">queue 00300").has("No failure was sent to it.");
    let elsewhere = shop.get("/error-queue?handler=queue+09999&topic=scoop.failed%3Aa+%26+b").await;
    elsewhere.has("No failure was sent to it.").lacks("aria-current=\"true\">queue ");
    let beyond = shop.get("/error-queue?past_topic=zz&past_handler=zz").await;
    beyond.has("No further saga subscribes to failures.").has("First error queues");
}

#[tokio::test(flavor = "multi_thread")]
async fn search_finds_exact_names_among_many() {
    let shop = Shop::open().await;
    shop.db
        .execute(
            "INSERT INTO scoop.handler (topic, handler)
             SELECT 'topic ' || lpad(n::text, 5, '0'), 'saga ' || lpad(n::text, 5, '0') FROM generate_series(1, 10000) n",
        )
        .await;
    for (text, found) in [
        ("saga+09999", "handler=saga+09999"),
        ("topic+10000", "topic=topic+10000"),
        ("saga+0999", "code=saga+0999"),
        ("orders", "handler=orders"),
    ] {
        let got = shop.get(&format!("/search?q={text}")).await;
        assert_eq!(got.location(), format!("/runs?{found}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_entities_beyond_a_maximum_are_found_by_the_form() {
    let shop = Shop::open().await;
    shop.db
        .execute(
            "INSERT INTO scoop.entity (name, key, version, state)
             SELECT 'entity ' || lpad(n::text, 5, '0'), 'k', 1, '{}' FROM generate_series(1, 1100) n",
        )
        .await;
    let got = shop.get("/entities").await;
    got.has("The first 200 names are shown").has("entity 00200").lacks("entity 00201");
    assert!(got.text.len() <= BYTES_MAX, "{} bytes", got.text.len());
    shop.get("/entities?name=entity+01100&key=k").await.has("version 1");
}

/// JSON of the server may have larger numbers than that of programs.
#[tokio::test(flavor = "multi_thread")]
async fn entity_with_values_that_cannot_be_read_shows_the_others() {
    let shop = Shop::with_all_sagas().await;
    for units in 1..=3 {
        shop.scoop.send(Fill { sku: "bolts".into(), units }).await.unwrap().decision().await.unwrap();
    }
    shop.db
        .execute(
            "UPDATE scoop.entity SET state = '{\"units\": 1e400}' WHERE key = 'bolts';
             UPDATE scoop.message SET payload = '{\"units\": 1e400}' WHERE topic = 'shop.filled' AND payload = '{\"units\": 2}'",
        )
        .await;
    let got = shop.get("/entities?name=stock&key=bolts").await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.text);
    assert_eq!(got.text.matches("(not readable: ").count(), 2, "{}", got.text);
    got.has("version 3").has("number out of range").has("&#34;units&#34;: 1").has("&#34;units&#34;: 3");
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

#[tokio::test(flavor = "multi_thread")]
async fn graph_that_is_left_out_has_a_reason() {
    for (rows, why) in [
        ("(topic, handler) SELECT 'many', 'saga ' || n FROM generate_series(1, 149) n", "150 subscriptions"),
        (
            "(topic, handler, retired_at) SELECT 'old', 'old ' || n, now() FROM generate_series(1, 151) n",
            "150 retired sagas",
        ),
        (
            "(topic, handler) SELECT 'topic ' || n, 'saga ' || n FROM generate_series(1, 80) n",
            "150 topics and sagas",
        ),
    ] {
        let shop = Shop::open().await;
        shop.db.execute(&format!("INSERT INTO scoop.handler {rows}")).await;
        let got = shop.get("/topology").await;
        got.has(&format!("The graph is left out: there are more than {why}.")).lacks("<svg class=\"graph\"");
    }
}
