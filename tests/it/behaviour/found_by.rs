//! Runs that are found by fields of their messages: which ones, how they are shown, and what writes the fields.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use scoop::operate::{FindValue, RunCursor, RunPage};
use scoop::requests::RelaunchAnswer;
use scoop::{ContinueAsNew, Handle, HierarchyId, RunPhase};
use serde_json::json;

use super::*;
use crate::support::{Database, Gate};

/// No hierarchy.
const NONE: [HierarchyId; 0] = [];

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "found-by.order", find_by(order, customer, wanted))]
struct Order {
    order: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer: Option<String>,
    #[serde(default)]
    wanted: Option<SystemTime>,
    #[serde(default)]
    shipments: Vec<u32>,
    #[serde(default)]
    fails: bool,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "found-by.shipment", find_by(shipment = number))]
struct Shipment {
    shipment: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "found-by.label")]
struct Label;

#[derive(Default)]
struct Orders;

#[saga(name = "found-by-orders")]
#[subscribes(Order)]
impl Orders {
    #[step]
    async fn ship(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        for shipment in &order.shipments {
            scope.launch(Shipment { shipment: *shipment }).await?;
        }
        Ok(())
    }

    #[step]
    async fn check(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        if order.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

/// It launches in its own transaction.
#[derive(Default)]
struct Shipments;

#[saga(name = "found-by-shipments")]
#[subscribes(Shipment)]
impl Shipments {
    #[step]
    async fn print(&self, scope: &mut Scope<'_>, _: &Shipment) -> Result<()> {
        sqlx::query("SELECT 1").execute(&mut *scope.tx().await?).await?;
        scope.launch(Label).await?;
        Ok(())
    }
}

handler! {
    Labels(gate): "found-by-labels" on Label;
    step "glue" glue => at_gate().silently();
}

fn order(order: u64) -> Order {
    Order { order, customer: None, wanted: None, shipments: vec![], fails: false }
}

async fn start(db: &Database) -> Result<Scoop> {
    let gate = Gate::default();
    gate.open(1_000);
    start_with(db, gate).await
}

async fn start_with(db: &Database, gate: Gate) -> Result<Scoop> {
    let builder = db.scoop().only::<Orders>().only::<Shipments>().only::<Labels>();
    Ok(builder.provide(Labels { gate }).start().await?)
}

async fn committed(scoop: &Scoop, order: Order) -> Result<Handle> {
    let handle = scoop.launch(order).await?;
    assert_eq!(handle.ends().await?, Outcome::Committed);
    Ok(handle)
}

/// The sagas of a page with the fields by which each run is found.
fn words(page: &RunPage) -> Vec<String> {
    let words = |run: &scoop::operate::RunSummary| format!("{} {}", run.handler, run.label());
    page.runs.iter().map(words).collect()
}

async fn found(scoop: &Scoop, field: &str, value: impl Into<FindValue>) -> Result<Vec<HierarchyId>> {
    let page = scoop.operate().runs().list().found_by(field, value).await?;
    let hierarchies: BTreeSet<_> = page.runs.iter().map(|run| run.hierarchy).collect();
    Ok(hierarchies.into_iter().collect())
}

/// All stored fields: name, value, and whether they are those of a hierarchy.
async fn stored(db: &Database) -> Vec<String> {
    db.texts("SELECT name || '=' || value || CASE WHEN found = root THEN '' ELSE ' below' END FROM scoop.found_by ORDER BY 1").await
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_found_by_text_number_and_time() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    let wanted = SystemTime::UNIX_EPOCH + Duration::from_millis(1_782_390_697_500);
    let first = committed(&scoop, Order { customer: Some("Ada".into()), ..order(7) }).await?;
    let second = committed(&scoop, Order { wanted: Some(wanted), ..order(8) }).await?;
    let number = committed(&scoop, Order { customer: Some("7".into()), ..order(9) }).await?;

    assert_eq!(found(&scoop, "order", 7).await?, [first.id()]);
    assert_eq!(found(&scoop, "order", 7.0).await?, [first.id()], "numbers are equal in any notation");
    assert_eq!(found(&scoop, "order", "7").await?, NONE, "a text is no number");
    assert_eq!(found(&scoop, "customer", "Ada").await?, [first.id()]);
    assert_eq!(found(&scoop, "customer", "ada").await?, NONE, "texts are compared exactly");
    assert_eq!(found(&scoop, "customer", FindValue::written("7")).await?, [number.id()]);
    assert_eq!(found(&scoop, "order", FindValue::written("7e0")).await?, [first.id()]);
    assert_eq!(found(&scoop, "wanted", wanted).await?, [second.id()]);
    let elsewhere = FindValue::written("2026-06-25T14:31:37.500+02:00");
    assert_eq!(found(&scoop, "wanted", elsewhere).await?, [second.id()]);
    assert_eq!(found(&scoop, "ordr", 7).await?, NONE, "a field that no message has finds nothing");

    let known = scoop.operate().runs().find_fields().await?;
    let known: Vec<_> = known.iter().map(|it| format!("{} {} {}", it.topic, it.name, it.kind)).collect();
    let fields = [
        "found-by.order order number",
        "found-by.order customer text",
        "found-by.order wanted time",
        "found-by.shipment shipment number",
    ];
    assert_eq!(known, fields);
    assert_eq!(scoop.operate().runs().fields_with(&FindValue::written("7")).await?, ["customer", "order"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_own_fields_is_found_and_shown_by_those_of_its_hierarchy() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    let ada = Order { customer: Some("Ada".into()), shipments: vec![1, 2], ..order(7) };
    committed(&scoop, ada).await?;
    committed(&scoop, Order { shipments: vec![1], ..order(8) }).await?;
    let runs = || scoop.operate().runs().list();

    let mut all = words(&runs().found_by("order", 7).await?);
    all.sort();
    let expected = [
        "found-by-labels order=7 customer=Ada",
        "found-by-labels order=7 customer=Ada",
        "found-by-orders order=7 customer=Ada",
        "found-by-shipments shipment=1",
        "found-by-shipments shipment=2",
    ];
    assert_eq!(all, expected);
    assert_eq!(
        words(&runs().handler("found-by-labels").found_by("order", 8).await?),
        ["found-by-labels order=8"]
    );
    let newest_first = ["found-by-shipments shipment=1"; 2];
    assert_eq!(words(&runs().found_by("shipment", 1).await?), newest_first, "its runs, and no others");
    let both = || runs().found_by("customer", "Ada").found_by("shipment", 1);
    assert_eq!(words(&both().await?), ["found-by-shipments shipment=1"]);
    assert_eq!(words(&both().found_by("order", 8).await?), [""; 0]);
    // A list without such a filter shows them, too.
    let mut listed = words(&runs().topic("found-by.label").await?);
    listed.sort();
    let labels = ["order=7 customer=Ada", "order=7 customer=Ada", "order=8"];
    assert_eq!(listed, labels.map(|label| format!("found-by-labels {label}")));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_runs_are_found_and_counted_with_those_that_have_ended() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start_with(&db, gate.clone()).await?;
    let open = scoop.launch(Order { shipments: vec![1], ..order(7) }).await?;
    gate.arrivals(1).await;
    let runs = || scoop.operate().runs().list().found_by("order", 7);
    let mut all = words(&runs().await?);
    all.sort();
    let expected = ["found-by-labels order=7", "found-by-orders order=7", "found-by-shipments shipment=1"];
    assert_eq!(all, expected);
    assert_eq!(words(&runs().state(RunPhase::Running).await?), ["found-by-labels order=7"]);
    assert_eq!(words(&runs().state(RunPhase::Waiting).roots().await?), ["found-by-orders order=7"]);
    assert_eq!(words(&runs().state(RunPhase::Committed).await?), [""; 0]);
    let counts = scoop.operate().runs().count().found_by("order", 7).await?;
    assert_eq!((counts.unfinished_in(RunPhase::Running), counts.unfinished_in(RunPhase::Waiting)), (1, 2));
    assert!(counts.finished.is_empty() && counts.unfinished.iter().all(|count| !count.is_capped));
    gate.open(1);
    assert_eq!(open.ends().await?, Outcome::Committed);
    let counts = scoop.operate().runs().count().found_by("order", 7).await?;
    assert!(counts.unfinished.is_empty());
    assert_eq!(counts.finished.iter().map(|count| count.count).sum::<usize>(), 3);
    let of_shipment = scoop.operate().runs().count().found_by("order", 7).found_by("shipment", 1).await?;
    assert_eq!(of_shipment.finished.iter().map(|count| count.count).sum::<usize>(), 1);
    scoop.shutdown().await?;
    Ok(())
}

/// Runs that have not begun have no event yet.
#[tokio::test(flavor = "multi_thread")]
async fn run_that_has_not_begun_is_found_by_its_own_field() -> Result<()> {
    let db = Database::new().await;
    start(&db).await?.shutdown().await?;
    let orders = db.scoop().only::<Orders>().start().await?;
    let waiting = orders.launch(Order { shipments: vec![1, 2], ..order(7) }).await?;
    waiting.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::Waiting)).await?;
    let page = orders.operate().runs().list().found_by("shipment", 2).await?;
    assert_eq!(words(&page), ["found-by-shipments shipment=2"]);
    assert_eq!(page.runs[0].phase, RunPhase::Pending);
    orders.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_any_size_together_are_the_list_of_newest_messages() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    let mut launched = vec![];
    for nth in 0..4 {
        let customer = Some("Ada".into());
        launched.push(
            committed(&scoop, Order { customer, shipments: vec![nth], ..order(nth.into()) }).await?.id(),
        );
    }
    let list = || scoop.operate().runs().list().found_by("customer", "Ada");
    let all = list().page(100).await?.runs;
    let mut hierarchies: Vec<_> = all.iter().map(|run| run.hierarchy).collect();
    hierarchies.dedup();
    launched.reverse();
    assert_eq!(hierarchies, launched, "the newest first");
    assert_eq!(all.len(), 12);
    for size in 1..=13 {
        let (mut listed, mut next) = (vec![], None::<RunCursor>);
        loop {
            let page = list().page(size).after(next).await?;
            assert!(page.runs.len() <= size);
            listed.extend(page.runs);
            // as a text, as it is in a URL
            next = page.next.map(|next| next.to_string().parse()).transpose()?;
            if next.is_none() {
                break;
            }
        }
        let ids = |runs: &[scoop::operate::RunSummary]| runs.iter().map(|run| run.run).collect::<Vec<_>>();
        assert_eq!(ids(&listed), ids(&all), "pages of {size}");
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_launches_write_the_fields_once() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    let client = db.client();
    // Here and by a client, alone and together, with a delay and with a key, in a transaction and without a type.
    let mut launched = vec![scoop.launch(order(1)).await?, client.launch(order(2)).await?];
    launched.extend(scoop.launch_all([order(3), order(4)]).await?);
    launched.push(client.launch(order(5)).delay(Duration::from_millis(1)).await?);
    launched.push(client.launch(order(6)).unique("6").await?);
    launched.push(scoop.launch(Order { customer: Some("Eve".into()), ..order(6) }).unique("6").await?);
    launched.push(scoop.launch(order(7)).unique("7").await?);
    let mut tx = db.pool().begin().await?;
    launched.push(client.launch(order(8)).in_transaction(&mut tx).await?);
    launched.push(client.launch(order(6)).unique("6").in_transaction(&mut tx).await?);
    tx.commit().await?;
    launched.push(client.launch_untyped("found-by.order", json!({ "order": 9 })).await?);
    launched.push(scoop.launch_untyped("found-by.order", json!({ "order": 10, "wanted": null })).await?);
    for handle in &launched {
        assert_eq!(handle.ends().await?, Outcome::Committed);
    }
    let expected: BTreeSet<_> = (1..=10).map(|order| format!("order={order}")).collect();
    assert_eq!(stored(&db).await.into_iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!(stored(&db).await.len(), 10, "each once, and no other of a second launch with a key");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn value_that_does_not_fit_is_refused_by_name() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    let long = Order { customer: Some("a".repeat(257)), ..order(7) };
    let refused = scoop.launch(long).await.err().expect("it is too long").to_string();
    let expected = "a message for topic `found-by.order` cannot be found by its field `customer`: its text has 257 bytes, \
                    more than 256";
    assert_eq!(refused, expected);
    let other =
        scoop.launch_untyped("found-by.order", json!({ "order": "7" })).await.err().expect("it is no number");
    assert!(other.is_invalid(), "{other:?}");
    assert!(other.to_string().contains(" cannot be found by its field `order`: "), "{other}");
    assert!(stored(&db).await.is_empty() && db.number("SELECT count(*) FROM scoop.message").await == 0);
    committed(&scoop, Order { customer: Some("a".repeat(256)), ..order(7) }).await?;
    assert_eq!(stored(&db).await.len(), 2);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_fails_leaves_no_fields() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    let failed = scoop.launch(Order { shipments: vec![1], fails: true, ..order(7) }).await?;
    assert!(matches!(failed.ends().await?, Outcome::RolledBack(_)));
    // The first step has succeeded, and its message is recorded.
    assert_eq!(stored(&db).await, ["order=7", "shipment=1 below"]);
    let page = scoop.operate().runs().list().found_by("order", 7).state(RunPhase::RolledBack).await?;
    assert_eq!(page.runs.len(), 3, "{page:?}");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn redelivery_and_relaunch_keep_the_fields_and_retention_deletes_them() -> Result<()> {
    let db = Database::new().await;
    let client = db.client();
    // No handler is there yet.
    client.launch(order(1)).await?;
    let orders = db.scoop().only::<Orders>().start().await?;
    orders.launch(Order { shipments: vec![5], ..order(2) }).await?.ends().await?;
    assert_eq!(stored(&db).await, ["order=1", "order=2", "shipment=5 below"]);
    orders.shutdown().await?;

    let scoop = start(&db).await?;
    scoop.operate().handlers().redeliver(Order::TOPIC).await?;
    scoop.operate().handlers().redeliver(Shipment::TOPIC).await?;
    // The first message goes on in its hierarchy; that of a run has a copy, which starts one.
    assert_eq!(stored(&db).await, ["order=1", "order=2", "shipment=5", "shipment=5 below"]);
    for hierarchy in found(&scoop, "shipment", 5).await? {
        scoop.find(hierarchy).await?.ends().await?;
    }

    let failed = scoop.launch(Order { fails: true, customer: Some("Ada".into()), ..order(3) }).await?;
    assert!(matches!(failed.ends().await?, Outcome::RolledBack(_)));
    let RelaunchAnswer::Accepted(again) =
        scoop.operate().runs().relaunch(failed.id(), "it works now").await?
    else {
        panic!()
    };
    assert_eq!(found(&scoop, "customer", "Ada").await?, [failed.id(), again]);
    scoop.find(again).await?.ends().await?;
    let other = json!({ "order": 4, "customer": "Bob", "fails": true, "wanted": "never" });
    let relaunch = scoop.operate().runs().relaunch(again, "another one").payload(other);
    let RelaunchAnswer::Accepted(other) = relaunch.await? else { panic!() };
    assert_eq!(found(&scoop, "customer", "Bob").await?, [other]);
    assert_eq!(found(&scoop, "order", 4).await?, [other]);
    scoop.find(other).await?.ends().await?;

    db.grow_older(DAY * 40).await;
    scoop.operate().retention().prune().await?;
    assert_eq!(stored(&db).await, [""; 0]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn name_that_another_message_redacts_is_not_shown() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    committed(&scoop, Order { customer: Some("Ada".into()), ..order(7) }).await?;
    db.execute("INSERT INTO scoop.redaction VALUES ('elsewhere', 'customer')").await;
    let page = scoop.operate().runs().list().found_by("order", 7).await?;
    assert_eq!(words(&page), ["found-by-orders order=7 customer=[redacted]"]);
    scoop.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "found-by.feed", find_by(feed))]
struct Feed {
    feed: String,
    left: u32,
}

struct Feeds;

#[saga(name = "found-by-feeds")]
#[subscribes(Feed)]
impl Feeds {
    #[step]
    async fn read(&self, _: &mut Scope<'_>, feed: &Feed) -> Result<ContinueAsNew<FeedsStep, Feed>> {
        Ok(match feed.left {
            0 => Next::Continue.into(),
            left => Next::continue_as_new(Feed { feed: "other".into(), left: left - 1 }),
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_continues_as_new_is_found_by_the_message_of_its_launch() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Feeds>().provide(Feeds).start().await?;
    let feed = scoop.launch(Feed { feed: "news".into(), left: 2 }).await?;
    assert_eq!(feed.ends().await?, Outcome::Committed);
    assert_eq!(stored(&db).await, ["feed=\"news\""]);
    assert_eq!(found(&scoop, "feed", "news").await?, [feed.id()]);
    scoop.shutdown().await?;
    Ok(())
}

/// No program but the one that launches a message writes fields for it.
#[tokio::test(flavor = "multi_thread")]
async fn fields_of_an_earlier_message_are_refused() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    committed(&scoop, order(7)).await?;
    db.execute(
        "SELECT scoop.record_found_by(ARRAY[m.id], ARRAY[1::smallint], ARRAY['customer'], ARRAY['\"Eve\"'::jsonb])
         FROM scoop.message m",
    )
    .await;
    assert_eq!(stored(&db).await, ["order=7"]);
    scoop.shutdown().await?;
    Ok(())
}
