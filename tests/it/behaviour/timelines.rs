//! Hierarchies on a scale of time.

use std::time::Duration;

use scoop::tree::BarKind;

use super::*;
use crate::support::Database;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "timelines.trip")]
struct Trip {
    sleep: Duration,
    fails: bool,
}

#[derive(Default)]
struct Trips;

#[saga(name = "trips")]
#[subscribes(Trip)]
impl Trips {
    #[step(rollback = unpack)]
    async fn pack(&self, scope: &mut Scope<'_>, trip: &Trip) -> Result<()> {
        scope.sleep(trip.sleep).await
    }

    #[step]
    async fn leave(&self, _: &mut Scope<'_>, trip: &Trip) -> Result<()> {
        if trip.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }

    async fn unpack(&self, _: &mut Scope<'_>, _: &Trip, _: &Failure) -> Result<()> {
        Ok(())
    }
}

/// The kinds, words and names of the bars.
fn drawn(tree: &Tree) -> Vec<(BarKind, String)> {
    let bars = tree.timeline().into_iter();
    bars.map(|bar| (bar.kind, format!("{} {}", bar.words, bar.name).trim().to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sleeping_run_has_an_open_wait() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Trips>().start().await?;
    let trip = scoop.launch(Trip { sleep: Duration::from_secs(3_600), fails: false }).await?;
    let tree = trip.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::Sleeping)).await?;
    let expected = [(BarKind::Run, "trips"), (BarKind::Step, "pack"), (BarKind::Wait, "wait after pack")];
    assert_eq!(drawn(&tree), expected.map(|(kind, name)| (kind, name.to_owned())));
    let ends: Vec<_> = tree.timeline().iter().map(|bar| bar.to.is_some()).collect();
    assert_eq!(ends, [false, true, false], "{tree}");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sleep_that_is_over_is_a_wait_before_the_next_step() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Trips>().start().await?;
    let sleep = Duration::from_millis(30);
    let trip = scoop.launch(Trip { sleep, fails: true }).await?;
    assert!(matches!(trip.ends().await?, Outcome::RolledBack(_)));
    let tree = trip.tree().await?;
    let expected = [
        (BarKind::Run, "trips"),
        (BarKind::Step, "pack"),
        (BarKind::Wait, "wait after pack"),
        (BarKind::Step, "leave"),
        (BarKind::Compensation, "undo pack"),
    ];
    assert_eq!(drawn(&tree), expected.map(|(kind, name)| (kind, name.to_owned())), "{tree}");
    let bars = tree.timeline();
    let [run, pack, wait, leave, undo] = &bars[..] else { panic!("{tree}") };
    assert_eq!(Some(wait.from), pack.to);
    // The sleep begins with the step, so the wait after it is a little shorter.
    assert!(wait.to.unwrap().duration_since(pack.from).unwrap() >= sleep, "{tree}");
    assert!(wait.to.unwrap() <= leave.from && leave.to.unwrap() <= undo.from && undo.to <= run.to, "{tree}");
    scoop.shutdown().await?;
    Ok(())
}
