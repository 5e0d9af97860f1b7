//! Limits of the queue of a saga: launches from outside are refused while it is full.

use std::time::{Duration, Instant};

use scoop::Handle;
use scoop::pauses::PauseTarget;
use serde_json::json;

use super::*;
use crate::support::{Database, eventually};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.job")]
struct Job;

#[derive(Default)]
struct Jobs;

#[saga(name = "queued-jobs", queue = 5)]
#[subscribes(Job)]
impl Jobs {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, _: &Job) -> Result<()> {
        Ok(())
    }
}

/// The same saga in a newer program, with a lower limit.
#[derive(Default)]
struct FewerJobs;

#[saga(name = "queued-jobs", queue = 2)]
#[subscribes(Job)]
impl FewerJobs {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, _: &Job) -> Result<()> {
        Ok(())
    }
}

/// The same saga in a newer program, without a limit.
#[derive(Default)]
struct AnyJobs;

#[saga(name = "queued-jobs")]
#[subscribes(Job)]
impl AnyJobs {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, _: &Job) -> Result<()> {
        Ok(())
    }
}

/// A run of each key, one at a time: the others are parked.
#[derive(Default)]
struct KeyedJobs;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.keyed_job")]
struct KeyedJob {
    key: u32,
}

#[saga(name = "queued-keyed-jobs", concurrency(1, by = key), queue = 4)]
#[subscribes(KeyedJob)]
impl KeyedJobs {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, _: &KeyedJob) -> Result<()> {
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.project")]
struct Project;

/// Launches a job in its step, and does not wait for it.
#[derive(Default)]
struct Projects;

#[saga(name = "queued-projects")]
#[subscribes(Project)]
impl Projects {
    #[step]
    async fn plan(&self, scope: &mut Scope<'_>, _: &Project) -> Result<()> {
        scope.detach(Job).await?;
        Ok(())
    }
}

fn jobs() -> PauseTarget {
    PauseTarget::Handler("queued-jobs".into())
}

/// A program whose jobs wait.
async fn paused(db: &Database) -> Result<Scoop> {
    let scoop = db.scoop().only::<Jobs>().only::<Projects>().start().await?;
    assert!(scoop.operate().pauses().pause(jobs()).await?.in_force);
    Ok(scoop)
}

/// The same, with a full queue.
async fn full(db: &Database) -> Result<(Scoop, Vec<Handle>)> {
    let scoop = paused(db).await?;
    let mut all = vec![];
    for _ in 0..5 {
        all.push(scoop.launch(Job).await?);
    }
    Ok((scoop, all))
}

/// The limit in the refusal of a launch.
fn limit_of<T>(launched: Result<T, RuntimeError>) -> u32 {
    let Err(error) = launched else { panic!("it was launched") };
    let text = error.to_string();
    assert!(error.is_queue_full() && text.starts_with("the queue of saga `queued-jobs` is full"), "{text}");
    assert!(text.contains(" on topic `limits.job` would be beyond that"), "{text}");
    let (_, limit) = text.split_once(": at most ").expect("it names the limit");
    let (limit, _) = limit.split_once(" of its runs wait").expect("it names the limit");
    limit.parse().expect("it is a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn length_of_a_queue_is_counted_up_to_its_limit() -> Result<()> {
    let db = Database::new().await;
    let (scoop, _) = full(&db).await?;
    // A step launches it: the queue gets longer than its limit.
    assert_eq!(scoop.launch(Project).await?.ends().await?, Outcome::Committed);
    assert_eq!(db.unfinished().await, 6);
    let client = db.client();
    let [queue] = &client.operate().handlers().queues().await?[..] else { panic!("one queue has a limit") };
    assert_eq!((&*queue.saga, queue.limit, queue.waiting), ("queued-jobs", 5, 5));
    assert!(queue.is_nearly_full());
    assert_eq!(queue.to_string(), "5 or more runs wait in the queue of saga `queued-jobs`; its limit is 5");
    let limits: Vec<_> =
        client.operate().handlers().list().await?.into_iter().map(|it| (it.handler, it.limits)).collect();
    let shown: Vec<_> = limits.iter().map(|(handler, limits)| (&**handler, limits.to_string())).collect();
    assert_eq!(shown, [("queued-jobs", "queue = 5".to_owned()), ("queued-projects", String::new())]);
    assert_eq!(limits[0].1.queue, Some(5));
    let handlers = client.operate().handlers().list().await?;
    assert_eq!(
        client.operate().handlers().queues_of(&handlers).await?,
        client.operate().handlers().queues().await?
    );
    assert_eq!(client.operate().handlers().queues_of(&handlers[1..]).await?, []);
    scoop.operate().pauses().resume(jobs()).await?;
    eventually("they have ended", async || db.unfinished().await == 0).await;
    let [queue] = &client.operate().handlers().queues().await?[..] else { panic!("one queue has a limit") };
    assert_eq!(queue.waiting, 0);
    assert!(!queue.is_nearly_full());
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_with_room_is_not_nearly_full() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<KeyedJobs>().start().await?;
    let keyed_jobs = PauseTarget::handler("queued-keyed-jobs");
    scoop.operate().pauses().pause(&keyed_jobs).await?;
    for _ in 0..3 {
        scoop.launch(KeyedJob { key: 1 }).await?;
    }
    let [queue] = &scoop.operate().handlers().queues().await?[..] else { panic!("one queue has a limit") };
    assert_eq!((queue.limit, queue.waiting, queue.is_nearly_full()), (4, 3, false));
    let handlers = scoop.operate().handlers().list().await?;
    assert_eq!(handlers[0].limits.to_string(), "concurrency(1, by = key), queue = 4");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_to_a_full_queue_is_refused_and_stores_nothing() -> Result<()> {
    let db = Database::new().await;
    let (scoop, all) = full(&db).await?;
    let refused = scoop.launch(Job).await.map(drop).expect_err("the queue is full");
    assert_eq!(
        refused.to_string(),
        "the queue of saga `queued-jobs` is full: at most 5 of its runs wait for a worker, and a message on topic \
         `limits.job` would be beyond that; nothing was launched; launch again later, or let the launch wait by \
         `.wait_for_capacity(..)`, which one in a transaction does not; for more capacity, end a pause of the saga, start more \
         processes with it, or raise its `queue`, `concurrency` or `rate`"
    );
    assert!(!refused.is_transient() && !refused.may_have_happened());
    assert_eq!(limit_of(scoop.launch_untyped("limits.job", json!(null)).await), 5);
    assert_eq!(limit_of(scoop.launch_all([Job]).await), 5);
    assert_eq!(limit_of(scoop.launch(Job).unique("a").await), 5);
    assert_eq!(limit_of(db.client().launch(Job).await), 5);
    assert_eq!(db.unfinished().await, 5);
    scoop.operate().pauses().resume(jobs()).await?;
    for job in all {
        assert_eq!(job.ends().await?, Outcome::Committed);
    }
    assert_eq!(
        scoop.launch(Job).wait_for_capacity(Duration::from_secs(60)).await?.ends().await?,
        Outcome::Committed
    );
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_a_step_launches_is_accepted_by_a_full_queue() -> Result<()> {
    let db = Database::new().await;
    let (scoop, _) = full(&db).await?;
    assert_eq!(scoop.launch(Project).await?.ends().await?, Outcome::Committed);
    assert_eq!(db.unfinished().await, 6);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_with_the_key_of_a_message_that_exists_is_not_refused() -> Result<()> {
    let db = Database::new().await;
    let scoop = paused(&db).await?;
    let first = scoop.launch(Job).unique("a").await?;
    for _ in 0..4 {
        scoop.launch(Job).await?;
    }
    assert_eq!(scoop.launch(Job).unique("a").await?.id(), first.id(), "nothing new is stored");
    assert_eq!(limit_of(scoop.launch(Job).unique("b").await), 5);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_that_waits_for_room_is_admitted_when_a_worker_claims() -> Result<()> {
    let db = Database::new().await;
    let (scoop, _) = full(&db).await?;
    let (within, client) = (Duration::from_millis(30), db.client());
    let Err(refused) = client.launch(Job).wait_for_capacity(within).await else { panic!("it was launched") };
    let text = refused.to_string();
    assert!(refused.is_queue_full(), "{text}");
    let (_, waited) = text.split_once(" is full for ").expect("it names the wait");
    let (waited, _) = waited.split_once(": at most ").expect("it names the limit");
    let waited = match waited.strip_suffix("ms") {
        Some(waited) => waited.parse::<f64>()? / 1_000.0,
        None => waited.trim_end_matches('s').parse::<f64>()?,
    };
    assert!(waited >= within.as_secs_f64(), "{text}");
    let waits = tokio::spawn(client.launch(Job).wait_for_capacity(Duration::from_secs(600)).into_future());
    let untyped = scoop.launch_untyped("limits.job", json!(null)).wait_for_capacity(Duration::from_secs(600));
    let untyped = tokio::spawn(untyped.into_future());
    let all =
        tokio::spawn(scoop.launch_all([Job, Job]).wait_for_capacity(Duration::from_secs(600)).into_future());
    assert_eq!(db.unfinished().await, 5);
    scoop.operate().pauses().resume(jobs()).await?;
    let (job, untyped) = (waits.await.unwrap()?, untyped.await.unwrap()?);
    for job in [vec![job, untyped], all.await.unwrap()?].concat() {
        assert_eq!(job.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn more_messages_than_the_queue_takes_are_refused_without_a_wait() -> Result<()> {
    let db = Database::new().await;
    let scoop = paused(&db).await?;
    let began = Instant::now();
    let launch = scoop.launch_all((0..6).map(|_| Job)).wait_for_capacity(Duration::from_secs(600)).await;
    let refused = launch.map(drop).expect_err("the queue is shorter");
    assert!(
        refused.to_string().contains("6 messages on topic `limits.job` would be beyond that"),
        "{refused}"
    );
    assert!(refused.to_string().ends_with("launch fewer messages at once, or raise the `queue` of the saga"));
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_eq!(db.unfinished().await, 0);
    assert_eq!(
        scoop.launch_all((0..5).map(|_| Job)).wait_for_capacity(Duration::from_secs(60)).await?.len(),
        5
    );
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_run_takes_no_room_before_it_is_due() -> Result<()> {
    let db = Database::new().await;
    let scoop = paused(&db).await?;
    let (hour, soon) = (Duration::from_secs(3_600), Duration::from_secs(60));
    for _ in 0..8 {
        scoop.launch(Job).delay(hour).wait_for_capacity(soon).await?;
    }
    assert_eq!(scoop.launch_all((0..5).map(|_| Job)).wait_for_capacity(soon).await?.len(), 5);
    assert_eq!(limit_of(scoop.launch(Job).await), 5);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_run_takes_room() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<KeyedJobs>().start().await?;
    assert!(scoop.operate().pauses().pause(PauseTarget::Handler("queued-keyed-jobs".into())).await?.in_force);
    for _ in 0..4 {
        scoop.launch(KeyedJob { key: 1 }).await?;
    }
    let refused = scoop.launch(KeyedJob { key: 2 }).await.map(drop);
    let Err(refused) = refused else { panic!("it was launched") };
    assert!(refused.is_queue_full() && refused.to_string().contains(": at most 4 of its runs"), "{refused}");
    scoop.operate().pauses().resume(PauseTarget::Handler("queued-keyed-jobs".into())).await?;
    let last = scoop.launch(KeyedJob { key: 2 }).wait_for_capacity(Duration::from_secs(600)).await?;
    assert_eq!(last.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_program_decides_about_the_limit() -> Result<()> {
    let db = Database::new().await;
    let (scoop, client) = (paused(&db).await?, db.client());
    for _ in 0..3 {
        client.launch(Job).await?;
    }
    let newer = db.scoop().only::<FewerJobs>().start().await?;
    eventually("the lower limit is known", async || {
        let refused = client.launch(Job).await.err();
        refused.is_some_and(|it| it.is_queue_full() && it.to_string().contains(": at most 2 of its runs"))
    })
    .await;
    assert_eq!(limit_of(newer.launch(Job).await), 2);
    let length = db.unfinished().await;
    assert!((3..=5).contains(&length), "{length}: no longer than the former limit");
    let newest = db.scoop().only::<AnyJobs>().start().await?;
    eventually("the limit has ended", async || client.launch(Job).await.is_ok()).await;
    for _ in 0..5 {
        newest.launch(Job).await?;
        client.launch(Job).await?;
    }
    for scoop in [scoop, newer, newest] {
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_launch_takes_no_room() -> Result<()> {
    let db = Database::new().await;
    let scoop = paused(&db).await?;
    let jobs = |count| (0..count).map(|_| Job);
    scoop.launch_all(jobs(3)).await?;
    for _ in 0..3 {
        let refused = db.client().launch_all(jobs(3)).await;
        assert_eq!(limit_of(refused), 5);
        let refused = db.client().launch_all(jobs(6)).wait_for_capacity(Duration::from_millis(20)).await;
        assert_eq!(limit_of(refused), 5);
    }
    db.client().launch_all(jobs(2)).wait_for_capacity(Duration::from_secs(60)).await?;
    scoop.shutdown().await?;
    Ok(())
}
