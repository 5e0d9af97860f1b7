//! Limits of how many runs of a saga are executed at once, in one process.

use std::time::Duration;

use scoop::operate::{WaitKind, WaitReason};

use super::*;
use crate::support::{Database, Gate, Notes, eventually};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.order")]
struct Order;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.parcel")]
struct Parcel;

/// Launches a parcel in its first step, and waits for it.
#[derive(Default)]
struct Orders {
    notes: Notes,
}

#[saga(name = "limited-orders", concurrency = 1)]
#[subscribes(Order)]
impl Orders {
    #[step]
    async fn pack(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
        self.notes.add("pack");
        scope.launch(Parcel).await?;
        Ok(())
    }

    #[step]
    async fn close(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        self.notes.add("close");
        Ok(())
    }
}

/// Stops in its step.
#[derive(Default)]
struct Parcels {
    gate: Gate,
}

#[saga(name = "limited-parcels", concurrency = 2)]
#[subscribes(Parcel)]
impl Parcels {
    #[step]
    async fn carry(&self, _: &mut Scope<'_>, _: &Parcel) -> Result<()> {
        self.gate.pass().await;
        Ok(())
    }
}

async fn start(db: &Database, gate: &Gate, notes: &Notes) -> Result<Scoop> {
    let scoop = db.scoop().only::<Orders>().only::<Parcels>().poll_interval(NEVER);
    let scoop = scoop.provide(Orders { notes: notes.clone() }).provide(Parcels { gate: gate.clone() });
    Ok(scoop.start().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_beyond_the_limit_wait_for_an_end_and_say_so() -> Result<()> {
    let (db, gate, notes) = (Database::new().await, Gate::default(), Notes::default());
    let scoop = start(&db, &gate, &notes).await?;
    let mut all = vec![];
    for _ in 0..4 {
        all.push(scoop.launch(Parcel).await?);
    }
    gate.arrivals(2).await;
    let waiting = async || scoop.operate().runs().list().waiting_for(WaitKind::Limit).await;
    eventually("two wait for the limit", async || waiting().await.is_ok_and(|page| page.runs.len() == 2))
        .await;
    let last = scoop.operate().runs().explain(all[3].id()).await?;
    let run = &last.runs[0];
    let mut holders = vec![];
    for parcel in &all[..2] {
        let run = &scoop.operate().runs().explain(parcel.id()).await?.runs[0].run;
        holders.push((run.run, run.phase));
    }
    let reason = WaitReason::Limit { concurrency: 2, serial: false, key: None, holders, ahead: 1, queued: 2 };
    assert_eq!(run.reason, reason, "{last}");
    let text = run.to_string();
    assert!(text.contains("waits for the limit of `limited-parcels`"), "{text}");
    assert!(text.contains("at most 2 runs at a time, and 1 run is ahead of it in its queue of 2"), "{text}");
    assert_eq!(gate.arrived(), 0, "no more than the limit have begun");
    gate.open(1);
    gate.arrivals(1).await;
    assert_eq!(gate.arrived(), 0, "one end, one beginning");
    gate.open(3);
    for parcel in all {
        assert_eq!(parcel.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_waits_for_a_child_leaves_its_place_to_another() -> Result<()> {
    let (db, gate, notes) = (Database::new().await, Gate::default(), Notes::default());
    let scoop = start(&db, &gate, &notes).await?;
    let (one, other) = (scoop.launch(Order).await?, scoop.launch(Order).await?);
    gate.arrivals(2).await;
    assert_eq!(notes.all(), ["pack", "pack"], "the first one waits for its parcel");
    gate.open(2);
    assert_eq!((one.ends().await?, other.ends().await?), (Outcome::Committed, Outcome::Committed));
    assert_eq!(notes.all(), ["pack", "pack", "close", "close"]);
    scoop.shutdown().await?;
    Ok(())
}
