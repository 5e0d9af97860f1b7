//! Priorities of runs that other programs launch, or whose rows are forged.

use std::time::Duration;

use scoop::{Handle, Priority};

use super::*;
use crate::support::{Database, Gate, Notes};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "priorities.parcel")]
struct Parcel {
    name: String,
}

fn parcel(name: impl Into<String>) -> Parcel {
    Parcel { name: name.into() }
}

#[derive(Clone, Default)]
struct Parcels {
    gate: Gate,
    notes: Notes,
}

#[saga(name = "prioritized-parcels")]
#[subscribes(Parcel)]
impl Parcels {
    #[step]
    async fn carry(&self, _: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        self.notes.add(&parcel.name);
        self.gate.pass().await;
        Ok(())
    }
}

async fn start(db: &Database, parcels: &Parcels) -> Result<Scoop> {
    let scoop = db.scoop().only::<Parcels>().concurrency(1).poll_interval(NEVER);
    Ok(scoop.provide(parcels.clone()).start().await?)
}

/// A client, after a program has subscribed and ended.
async fn client(db: &Database) -> Result<Scoop> {
    start(db, &Parcels::default()).await?.shutdown().await?;
    Ok(Scoop::client(db.another_pool(1).await))
}

/// Launches a run with each priority, the lowest first.
async fn launch_each(client: &Scoop) -> Result<Vec<Handle>> {
    let mut all = vec![];
    for (name, priority) in [("low", Priority::Low), ("normal", Priority::Normal), ("high", Priority::High)] {
        all.push(client.launch(parcel(name)).priority(priority).await?);
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn high_run_that_another_process_launches_is_the_next_of_a_long_backlog() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    let client = client(&db).await?;
    let backlog = client.launch_all((0..40).map(|_| parcel("normal"))).await?;
    let scoop = start(&db, &parcels).await?;
    for _ in 0..10 {
        parcels.gate.arrivals(1).await;
        parcels.gate.open(1);
    }
    parcels.gate.arrivals(1).await;
    let high = client.launch(parcel("high")).priority(Priority::High).await?;
    parcels.gate.open(1);
    parcels.gate.arrivals(1).await;
    assert_eq!(parcels.notes.all().last().map(String::as_str), Some("high"));
    parcels.gate.open(40);
    for parcel in backlog.into_iter().chain([high]) {
        assert_eq!(scoop.find(parcel.id()).await?.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_with_forged_priorities_and_times_are_claimed() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    let client = client(&db).await?;
    let mut all = vec![];
    for (nth, value) in ["99", "null", "[\"high\"]", "{\"high\": null}", "\"urgent\""].into_iter().enumerate()
    {
        all.push(client.launch(parcel(format!("forged {nth}"))).priority(Priority::High).await?);
        let forge =
            "UPDATE scoop.run SET context = jsonb_build_object('scoop.priority', $1::jsonb) WHERE root = $2";
        let root = uuid::Uuid::from(all[nth].id());
        sqlx::query(forge).bind(value).bind(root).execute(db.pool()).await?;
    }
    for time in ["-infinity", "4713-01-01 00:00+00 BC"] {
        for (run, priority) in launch_each(&client).await?.into_iter().zip(["low", "normal", "high"]) {
            let forge = "UPDATE scoop.run SET ready_at = $1::timestamptz WHERE root = $2";
            let root = uuid::Uuid::from(run.id());
            assert_eq!(
                sqlx::query(forge).bind(time).bind(root).execute(db.pool()).await?.rows_affected(),
                1,
                "{priority}"
            );
            all.push(run);
        }
    }
    let explained = client.operate().runs().explain(all[0].id()).await?;
    assert_eq!(explained.runs[0].priority, Priority::Normal, "{explained}");
    let scoop = start(&db, &parcels).await?;
    parcels.gate.open(all.len());
    for run in all {
        assert_eq!(scoop.find(run.id()).await?.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_has_been_ready_for_longer_than_the_head_start_comes_before_a_higher_one() -> Result<()> {
    let (db, parcels) = (Database::new().await, Parcels::default());
    start(&db, &parcels).await?.shutdown().await?;
    let client = db.client();
    let (low, normal, high) = (Priority::Low, Priority::Normal, Priority::High);
    let mut launched = vec![];
    for (name, priority, minutes) in [
        ("normal", normal, 0),
        ("high", high, 0),
        ("low of 4 minutes", low, 4),
        ("low of 6 minutes", low, 6),
        ("low of 12 minutes", low, 12),
        ("normal of 4 minutes", normal, 4),
        ("normal of 6 minutes", normal, 6),
    ] {
        let run = client.launch(parcel(name)).priority(priority).await?;
        let age = "UPDATE scoop.run SET ready_at = ready_at - $1 * interval '1 minute' WHERE root = $2";
        sqlx::query(age).bind(minutes).bind(uuid::Uuid::from(run.id())).execute(db.pool()).await?;
        launched.push(run);
    }
    parcels.gate.open(launched.len());
    let scoop = start(&db, &parcels).await?;
    for run in launched {
        assert_eq!(scoop.find(run.id()).await?.ends().await?, Outcome::Committed);
    }
    let expected = [
        "low of 12 minutes",
        "normal of 6 minutes",
        "high",
        "normal of 4 minutes",
        "low of 6 minutes",
        "normal",
        "low of 4 minutes",
    ];
    assert_eq!(parcels.notes.all(), expected);
    scoop.shutdown().await?;
    Ok(())
}
