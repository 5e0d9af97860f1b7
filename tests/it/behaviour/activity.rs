//! Launches and ends over time, durations, launches of sagas, retired handlers, schedules and ended pauses.

use std::time::{Duration, SystemTime};

use scoop::pauses::PauseTarget;

use super::*;
use crate::support::Database;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "activity.order")]
struct Order {
    fails: bool,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "activity.parcel")]
struct Parcel;

#[derive(Default)]
struct Orders;

#[saga(name = "activity-orders")]
#[subscribes(Order)]
impl Orders {
    #[step(name = "place")]
    async fn place(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        scope.launch(Parcel).await?;
        if order.fails { Err(Error::msg("none left")) } else { Ok(()) }
    }
}

#[derive(Default)]
struct Parcels;

#[saga(name = "activity-parcels")]
#[subscribes(Parcel)]
impl Parcels {
    #[step(name = "send")]
    async fn send(&self, _: &mut Scope<'_>, _: &Parcel) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Report;

#[saga(name = "activity-report", every = "1h", missed = "skip")]
#[subscribes(Tick)]
impl Report {
    #[step(name = "write")]
    async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn launches_and_ends_are_counted_and_durations_are_read() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Orders>().only::<Parcels>().start().await?;
    for fails in [false, false, true] {
        scoop.launch(Order { fails }).await?.ends().await?;
    }
    let activity = scoop.operate().runs().activity().await?;
    assert_eq!((activity.spans.len(), activity.span), (60, Duration::from_secs(60)));
    let sum = |of: fn(&scoop::operate::ActivitySpan) -> u64| activity.spans.iter().map(of).sum::<u64>();
    assert_eq!(sum(|span| span.launched), 5, "a failed step launches nothing");
    assert_eq!((sum(|span| span.committed), sum(|span| span.failed)), (4, 1));
    assert!(activity.spans.iter().all(|span| !span.is_estimate));
    let since = |span: &scoop::operate::ActivitySpan| {
        span.from.duration_since(SystemTime::UNIX_EPOCH).expect("it is later")
    };
    assert!(activity.spans.iter().all(|span| since(span).as_millis() % 60_000 == 0), "{:?}", activity.spans);
    let durations: Vec<_> = activity.durations.iter().map(|it| (&*it.handler, it.sorted.len())).collect();
    assert_eq!(durations, [("activity-orders", 2), ("activity-parcels", 2)]);
    let orders = &activity.durations[0];
    assert!(orders.percentile(50) <= orders.percentile(99) && orders.percentile(99) > Duration::ZERO);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn retired_handler_is_a_former_one_until_it_is_registered_again() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Orders>().only::<Parcels>().start().await?;
    assert_eq!(scoop.operate().handlers().former().await?, []);
    scoop.operate().handlers().retire("activity.parcel", "activity-parcels").await?;
    let former = scoop.operate().handlers().former().await?.remove(0);
    assert_eq!((&*former.topic, &*former.handler), ("activity.parcel", "activity-parcels"));
    scoop.shutdown().await?;
    let scoop = db.scoop().only::<Parcels>().start().await?;
    assert_eq!(scoop.operate().handlers().former().await?, []);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_are_listed_in_parts_with_the_definitions_of_living_workers() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Orders>().only::<Parcels>().start().await?;
    let names = |listed: Vec<scoop::operate::RegisteredHandler>| {
        listed.into_iter().map(|it| format!("{} on {}", it.handler, it.topic)).collect::<Vec<_>>()
    };
    let [orders, parcels] = ["activity-orders on activity.order", "activity-parcels on activity.parcel"];
    assert_eq!(names(scoop.operate().handlers().list().limit(1).await?), [orders]);
    let after = scoop.operate().handlers().list().after("activity.order", "activity-orders");
    assert_eq!(names(after.clone().limit(2).await?), [parcels]);
    assert_eq!(names(after.named("order").await?), Vec::<String>::new());
    assert_eq!(names(scoop.operate().handlers().list().named("-orders").await?), [orders]);
    assert_eq!(names(scoop.operate().handlers().list().named("y.p").await?), [parcels]);
    assert_eq!(names(scoop.operate().handlers().list().named("activity").limit(1).await?), [orders]);
    assert_eq!(names(scoop.operate().handlers().list().topic("activity.parcel").await?), [parcels]);
    assert_eq!(
        names(scoop.operate().handlers().list().saga("activity-orders").topic("activity.order").await?),
        [orders]
    );
    for part in ["activity", "activity-orders"] {
        assert_eq!(names(scoop.operate().handlers().list().topic(part).await?), Vec::<String>::new());
    }
    assert_eq!(names(scoop.operate().handlers().list().saga("activity").await?), Vec::<String>::new());
    let handlers = scoop.operate().handlers().list().await?;
    let definitions = scoop.operate().handlers().definitions(&handlers).await?;
    assert_eq!(definitions.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    let worker = scoop.operate().handlers().workers().await?.remove(0);
    let of = |handler: &str| worker.sagas.iter().find(|saga| saga.handler == handler).unwrap().definition;
    assert_eq!(definitions, [[of("activity-orders")], [of("activity-parcels")]]);
    assert_eq!(scoop.operate().handlers().definitions(&handlers[1..]).await?, definitions[1..]);
    scoop.shutdown().await?;
    let client = db.client();
    assert_eq!(client.operate().handlers().definitions(&handlers).await?, [[0_i32; 0]; 2]);
    client.operate().handlers().retire("activity.order", "activity-orders").await?;
    client.operate().handlers().retire("activity.parcel", "activity-parcels").await?;
    assert_eq!(client.operate().handlers().former().limit(1).await?.remove(0).handler, "activity-orders");
    assert_eq!(client.operate().handlers().former().await?.len(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_is_listed_with_its_next_time_and_its_last_tick() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Report>().start().await?;
    let schedule = scoop.operate().schedules().list().await?.remove(0);
    assert_eq!((&*schedule.handler, schedule.every), ("activity-report", Some(Duration::from_secs(3_600))));
    assert_eq!((&*schedule.missed, schedule.run_count, schedule.last), ("skip", 0, None));
    assert!(schedule.next_at.is_some() && schedule.cron.is_none());
    let tick = scoop.trigger::<Report>().await?;
    let schedule = scoop.operate().schedules().list().await?.remove(0);
    assert_eq!((schedule.run_count, schedule.last), (1, Some(tick.id())));
    let (topic, handler) = (&schedule.topic, &schedule.handler);
    assert_eq!(scoop.operate().schedules().list().limit(0).await?, []);
    assert_eq!(scoop.operate().schedules().list().after(topic, "").limit(5).await?.len(), 1);
    assert_eq!(scoop.operate().schedules().list().after(topic, handler).await?, []);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_a_pause_is_recorded_with_requester_and_reason() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Parcels>().start().await?;
    let target = PauseTarget::saga::<Parcels>();
    assert_eq!(scoop.operate().pauses().resume(&target).source("ben").await?, None);
    assert_eq!(scoop.operate().pauses().ended().limit(10).await?, []);
    scoop.operate().pauses().pause(target.clone()).reason("the lorry is broken").source("ann").await?;
    let paused = scoop.operate().pauses().resume(&target).source("b\0en").reason("it is mended").await?;
    scoop.operate().pauses().pause(PauseTarget::Everything).source("ann").await?;
    scoop.operate().pauses().resume(PauseTarget::Everything).await?;
    let [newest, ended] = &scoop.operate().pauses().ended().limit(10).await?[..] else {
        panic!("two pauses have ended")
    };
    assert_eq!((newest.ended_by.as_deref(), newest.end_reason.as_deref()), (Some("scoop"), None));
    assert_eq!(Some(&ended.pause), paused.as_ref());
    assert_eq!((ended.ended_by.as_deref(), ended.end_reason.as_deref()), (Some("ben"), Some("it is mended")));
    let text = ended.to_string();
    assert!(
        text.contains(": the lorry is broken; ended 2") && text.ends_with(" by ben: it is mended"),
        "{text}"
    );
    assert_eq!(scoop.operate().pauses().ended().limit(1).await?.len(), 1);
    scoop.shutdown().await?;
    Ok(())
}
