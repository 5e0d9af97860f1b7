//! Lost answers of the database: a repeated operation takes effect once.

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use scoop::prelude::*;
use scoop::requests::{CancelAnswer, RollbackAnswer};
use scoop::{Failed, InMemory, Outcome, RowState};
use scoop_runtime::simulation::{FaultLink, Process};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "asked-twice")]
struct Asked;

#[derive(Default)]
struct AskedSaga;

#[saga(name = "asked-twice")]
#[subscribes(Asked)]
impl AskedSaga {
    #[step(name = "0")]
    async fn zero(&self, _: &mut Scope<'_>, _: &Asked) -> Result<()> {
        Ok(())
    }
}

/// Loses so many answers to one operation.
#[derive(Clone, Default)]
struct Loses(Arc<Mutex<Option<(&'static str, u32)>>>);

impl Loses {
    fn next(&self, operation: &'static str, times: u32) {
        *self.0.lock().unwrap() = Some((operation, times));
    }
}

impl FaultLink for Loses {
    fn before(&self, _: &'static str) -> BoxFuture<'static, io::Result<()>> {
        ready(Ok(())).boxed()
    }

    fn after(&self, operation: &'static str) -> BoxFuture<'static, io::Result<()>> {
        let mut loses = self.0.lock().unwrap();
        let lost = loses.as_mut().filter(|(named, times)| *named == operation && *times > 0);
        let answer = match lost {
            Some((_, times)) => {
                *times -= 1;
                Err(io::ErrorKind::ConnectionReset.into())
            }
            None => Ok(()),
        };
        ready(answer).boxed()
    }

    fn heard(&self) -> BoxFuture<'static, u32> {
        ready(1).boxed()
    }
}

/// A process with the saga, and a client that loses answers.
async fn programs(retry_for: Duration) -> Result<(InMemory, Scoop, Scoop, Loses)> {
    let (database, loses) = (InMemory::new(), Loses::default());
    let scoop = Scoop::builder().in_memory_database(&database).only::<AskedSaga>().start().await?;
    let process = Process::new(&database, Arc::new(loses.clone()));
    let client = Scoop::builder().simulated_process(&process).retry_for(retry_for).client().await?;
    Ok((database, scoop, client, loses))
}

fn emitted(database: &InMemory) -> usize {
    database.event_log().iter().filter(|event| event.kind == scoop_core::EventKind::Emitted).count()
}

#[tokio::test(start_paused = true)]
async fn launch_with_lost_answers_takes_effect_once() -> Result<()> {
    let (database, _scoop, client, loses) = programs(Duration::from_secs(30)).await?;
    loses.next("launch", 10);
    let root = client.launch(Asked).deadline(Duration::from_secs(60)).await?;
    assert_eq!(root.wait().await?, Outcome::Committed);
    loses.next("launch", 2);
    client.launch_all([Asked, Asked]).await?;
    assert_eq!(emitted(&database), 3);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn request_with_lost_answers_takes_effect_once() -> Result<()> {
    let (_database, _scoop, client, loses) = programs(Duration::from_secs(30)).await?;
    let later = client.launch(Asked).delay(Duration::from_secs(3600)).await?;
    assert_eq!(client.cancel(later.id(), "tried").dry_run().await?, CancelAnswer::Accepted);
    loses.next("cancel", 5);
    assert_eq!(client.cancel(later.id(), "not wanted").await?, CancelAnswer::Accepted);
    assert_eq!(client.cancel(later.id(), "not wanted").await?, CancelAnswer::AlreadyRequested);
    assert!(matches!(later.wait().await?, Outcome::RolledBack(_)));
    let done = client.launch(Asked).await?;
    assert_eq!(done.wait().await?, Outcome::Committed);
    assert_eq!(client.rollback(done.id(), "tried").dry_run().await?, RollbackAnswer::Accepted);
    loses.next("undo", 5);
    assert_eq!(client.rollback(done.id(), "not wanted").await?, RollbackAnswer::Accepted);
    assert!(matches!(done.wait().await?, Outcome::RolledBack(_)));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_database_away_for_longer_than_the_patience_leaves_a_launch_in_doubt() -> Result<()> {
    let retry_for = Duration::from_secs(7);
    let (_database, _scoop, client, loses) = programs(retry_for).await?;
    loses.next("launch", u32::MAX);
    let begin = tokio::time::Instant::now();
    let Err(error) = client.launch(Asked).await else { panic!("no answer came") };
    assert_eq!(begin.elapsed(), retry_for);
    assert!(error.may_have_happened() && error.is_transient(), "{error:?}");
    assert!(error.is_unavailable(), "{error:?}");
    let text = error.to_string();
    let (attempts, waited) = text.split_once(" attempts failed within ").expect("it names both");
    assert!(waited.starts_with(&format!("{retry_for:.1?}, ")), "{text}");
    let (_, attempts) = attempts.rsplit_once(": ").expect("it names the attempts");
    let attempts: u32 = attempts.parse()?;
    // Pauses up to half a second.
    assert!((14..40).contains(&attempts), "{attempts}");
    Ok(())
}

/// Launches that arrive while others are retried have a retry time of their own.
#[tokio::test(start_paused = true)]
async fn each_launch_of_a_crowd_has_its_own_patience() -> Result<()> {
    let retry_for = Duration::from_secs(7);
    let (database, _scoop, client, loses) = programs(retry_for).await?;
    loses.next("launch", u32::MAX);
    let begin = tokio::time::Instant::now();
    let launches = (0..6).map(async |second| {
        tokio::time::sleep(Duration::from_secs(second)).await;
        let failed = client.launch(Asked).await.is_err();
        (failed, begin.elapsed().as_secs())
    });
    let healed = async {
        tokio::time::sleep(Duration::from_millis(9_800)).await;
        loses.next("launch", 0);
    };
    let (launches, ()) = tokio::join!(futures_util::future::join_all(launches), healed);
    assert_eq!(launches, [(true, 7), (true, 8), (true, 9), (false, 10), (false, 10), (false, 10)]);
    assert_eq!(emitted(&database), 6, "all were carried out, if not acknowledged");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn run_whose_outcome_is_never_known_is_tried_after_pauses_and_then_stuck() -> Result<()> {
    let (database, loses) = (InMemory::new(), Loses::default());
    let process = Process::new(&database, Arc::new(loses.clone()));
    let worker = Scoop::builder().simulated_process(&process).only::<AskedSaga>().start().await?;
    let client = Scoop::builder().in_memory_database(&database).client().await?;
    loses.next("claim", u32::MAX);
    let begin = tokio::time::Instant::now();
    let root = client.launch(Asked).await?;
    let stuck = loop {
        let mut stuck = database.working_set().into_iter().filter(|run| run.state == RowState::Stuck);
        if let Some(stuck) = stuck.next() {
            break stuck;
        }
        assert!(begin.elapsed() < Duration::from_secs(300), "{}", root.tree().await?);
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    assert!(
        stuck.reason.as_ref().unwrap().contains("results of 12 of its attempts are unknown"),
        "{stuck:?}"
    );
    assert!(begin.elapsed() > Duration::from_secs(50), "{:?}", begin.elapsed());
    let tree = root.tree().await?;
    assert_eq!(tree.runs().first().map(|run| run.attempts), Some(12), "{tree}");

    // The cause is corrected. The start of a program leaves the run as it is, and an operator retries it.
    loses.next("claim", 0);
    let other = Scoop::builder().in_memory_database(&database).only::<AskedSaga>().start().await?;
    assert_eq!(client.launch(Asked).await?.wait().await?, Outcome::Committed);
    assert_eq!(database.working_set().len(), 1);
    client.operate().failures().retry(stuck.lineage.id()).await?;
    assert_eq!(root.wait().await?, Outcome::Committed);
    for scoop in [other, worker] {
        scoop.shutdown().await?;
    }
    Ok(())
}

/// Notes nothing; its runs are counted.
#[derive(Default)]
struct Queue;

#[saga(name = "asked-queue")]
#[subscribes(Failed)]
impl Queue {
    #[step]
    async fn read(&self, _: &mut Scope<'_>, _: &Failed) -> Result<()> {
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "asked-to-fail")]
struct AskedToFail;

#[derive(Default)]
struct FailingSaga;

#[saga(name = "asked-to-fail")]
#[subscribes(AskedToFail)]
impl FailingSaga {
    #[step]
    async fn fail(&self, _: &mut Scope<'_>, _: &AskedToFail) -> Result<()> {
        Err(Error::msg("asked to"))
    }
}

/// The answers to the settlement that records the end are lost, and its repetition is void.
#[tokio::test(start_paused = true)]
async fn failed_end_with_lost_answers_is_reported_once() -> Result<()> {
    let (database, loses) = (InMemory::new(), Loses::default());
    let process = Process::new(&database, Arc::new(loses.clone()));
    let builder = Scoop::builder().simulated_process(&process);
    let scoop = builder.only::<FailingSaga>().only::<Queue>().start().await?;
    let root = scoop.launch(AskedToFail).await?;
    loses.next("settle", 3);
    assert!(matches!(root.wait().await?, Outcome::RolledBack(_)));
    while !database.working_set().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(emitted(&database), 2);
    Ok(())
}
