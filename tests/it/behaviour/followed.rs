//! The live stream of recorded events.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use scoop::EventKind;
use scoop::operate::{EventCursor, EventStream, RecordedEvent};

use super::*;
use crate::support::Database;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "followed.order")]
struct Order {
    fails: bool,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "followed.item")]
struct Item;

#[derive(Default)]
struct Orders;

#[saga(name = "orders")]
#[subscribes(Order)]
impl Orders {
    #[step(name = "place")]
    async fn place(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
        scope.launch(Item).await?;
        Ok(())
    }

    #[step(name = "end")]
    async fn end(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        if order.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

handler! {
    Items: "items" on Item;
    step "take" take => done();
}

async fn start(db: &Database) -> Result<Scoop> {
    Ok(db.scoop().only::<Orders>().only::<Items>().start().await?)
}

/// An event in a few words.
fn words(event: &RecordedEvent) -> String {
    let handler = event.handler.as_deref().unwrap_or("-");
    format!("{handler} {}", event.kind.as_str())
}

/// The events up to the end of the saga `orders`.
async fn until_the_end(events: &mut EventStream) -> Result<Vec<RecordedEvent>> {
    let mut read = vec![];
    loop {
        let event = events.next().await.expect("nothing has shut down")?;
        let is_last = event.handler.as_deref() == Some("orders")
            && matches!(event.kind, EventKind::Committed | EventKind::RolledBack);
        read.push(event);
        if is_last {
            return Ok(read);
        }
    }
}

/// Has the stream begin here. No event may be there before it knows its place.
pub(super) async fn begun(mut events: EventStream) -> EventStream {
    let mut time = Duration::from_millis(10);
    while events.cursor().is_none() {
        let first = tokio::time::timeout(time, events.next()).await;
        assert!(first.is_err(), "nothing is there");
        time *= 2;
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_has_each_later_event_once_and_in_the_order_of_each_run() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    assert_eq!(scoop.launch(Order { fails: false }).await?.ends().await?, Outcome::Committed);
    let quick = || scoop.operate().events().interval(Duration::from_millis(10));
    let mut all = begun(quick().follow()).await;
    let mut items = begun(quick().handler("items").follow()).await;
    let order = scoop.launch(Order { fails: true }).await?;
    let read = until_the_end(&mut all).await?;
    let seen: Vec<_> = read.iter().map(words).collect();
    assert_eq!(
        seen,
        [
            "- EMITTED",
            "orders SEEN",
            "orders EMITTED",
            "orders SUSPENDED",
            "items SEEN",
            "items SUSPENDED",
            "items COMMITTED",
            "orders ROLLING_BACK",
            "orders ROLLBACK_EMITTED",
            "orders SUSPENDED",
            "items ROLLING_BACK",
            "items SUSPENDED",
            "items SUSPENDED",
            "items ROLLED_BACK",
            "orders SUSPENDED",
            "orders ROLLED_BACK",
        ]
    );
    assert!(read.iter().all(|event| event.hierarchy == order.id()));
    assert_eq!(read[0].run, None);
    let failure = read[7].failure.as_ref().expect("it has failed");
    assert!(failure.headline.starts_with("Simulated failure"), "{failure:?}");
    assert!(read[7].to_string().contains(" ROLLING_BACK orders ("), "{}", read[7]);
    let mut of_items = vec![];
    while of_items.len() < 7 {
        of_items.push(words(&items.next().await.expect("nothing has shut down")?));
    }
    assert!(seen.iter().filter(|event| event.starts_with("items")).eq(&of_items), "{of_items:?}");

    scoop.shutdown().await?;
    assert!(all.next().await.is_none() && items.next().await.is_none());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_goes_on_from_the_place_of_another() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    let quick = || scoop.operate().events().interval(Duration::from_millis(10));
    let mut events = begun(quick().follow()).await;
    assert_eq!(scoop.launch(Order { fails: false }).await?.ends().await?, Outcome::Committed);
    let before = until_the_end(&mut events).await?;
    let place: EventCursor = events.cursor().expect("it has begun").to_string().parse()?;
    drop(events);
    let order = scoop.launch(Order { fails: false }).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    let mut events = quick().hierarchy(order.id()).after(place).follow();
    let after = until_the_end(&mut events).await?;
    assert_eq!(after.len(), before.len());
    assert!(after.iter().all(|event| event.hierarchy == order.id()));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn longest_interval_and_patience_are_possible() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Items>().retry_for(Duration::MAX).start().await?;
    assert_eq!(scoop.launch(Item).await?.ends().await?, Outcome::Committed);
    let mut events = scoop.operate().events().since(SystemTime::UNIX_EPOCH).interval(Duration::MAX).follow();
    assert!(events.next().await.is_some_and(|event| event.is_ok()));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_few_events_each_leave_out_none() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    for _ in 0..3 {
        assert!(matches!(scoop.launch(Order { fails: true }).await?.ends().await?, Outcome::RolledBack(_)));
    }
    let (mut place, mut seen) = (None::<EventCursor>, BTreeSet::new());
    while seen.len() < 3 * 16 {
        let begun = match place {
            None => scoop.operate().events().since(SystemTime::UNIX_EPOCH),
            Some(place) => scoop.operate().events().after(place),
        };
        let mut events = begun.recorded();
        let mut count = 0;
        while count < 7 {
            let Some(event) = events.next().await else { break };
            seen.insert(event?.id);
            count += 1;
        }
        assert!(count > 0, "nothing comes after {} events", seen.len());
        place = Some(events.cursor().expect("it has begun").to_string().parse()?);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_ends_with_the_last_handle_of_its_program() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db).await?;
    let mut events = begun(scoop.operate().events().interval(Duration::from_millis(10)).follow()).await;
    drop(scoop);
    let end = tokio::time::timeout(Duration::from_secs(60), events.next()).await;
    assert!(end.expect("it keeps no program running").is_none());
    Ok(())
}
