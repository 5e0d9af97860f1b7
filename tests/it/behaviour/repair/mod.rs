//! Repairs of failed compensations by operators.

mod accepted;
mod ancestors;
mod by_chance;
mod deadlines;
mod explanations;
mod messages_of_compensations;
mod seen_by_operators;
mod views;
mod waiting_decisions;
mod waits;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use scoop::operate::FailedRollback;
use scoop::operate::OperateExt as _;
use scoop::operate::{RunExplanation, WaitKind, WaitReason};
use scoop::requests::{RepairAnswer, RunRequest};
use scoop::tree::RunState;
use scoop::{EventKind, Handle, Lineage, RunPhase};

use super::*;
use crate::support::{Database, Gate, calls_of, compensated, eventually, invoked};

/// The present faults. Clones share them.
#[derive(Clone, Default)]
struct Faults(Arc<Mutex<BTreeSet<&'static str>>>);

impl Faults {
    fn of(names: &[&'static str]) -> Self {
        Self(Arc::new(Mutex::new(names.iter().copied().collect())))
    }

    fn mend(&self, name: &str) {
        assert!(self.0.lock().unwrap().remove(name), "{name} is broken");
    }

    fn add(&self, name: &'static str) {
        self.0.lock().unwrap().insert(name);
    }

    fn has(&self, name: &str) -> bool {
        self.0.lock().unwrap().contains(name)
    }

    fn check(&self, name: &str) -> Result<()> {
        if self.has(name) {
            return Err(IllegalStateException("it is broken").into());
        }
        Ok(())
    }
}

handler! {
    /// Does two things and fails at the third.
    RootHandler { faults: Faults }: "root-handler" on Root;
    step "0" zero [rollback = undo_zero] => done();
    step "1" one [rollback = undo_one] => launches(Child);
    step "2" two => fails(SIMULATED);

    async fn undo_zero(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        compensated(scope);
        if self.faults.has("root 0 needs a grandchild") {
            scope.launch(Grandchild).await?;
        }
        self.faults.check("root 0")
    }

    async fn undo_one(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        compensated(scope);
        self.faults.check("root 1")
    }
}

handler! {
    /// The child, and its only compensation.
    ChildHandler { faults: Faults }: "child-handler" on Child;
    step "0" zero [rollback = undo] => launches(Grandchild);

    #[step(name = "1")]
    async fn one(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
        invoked(scope);
        self.faults.check("child 1 goes on")
    }

    async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
        compensated(scope);
        self.faults.check("child 0")
    }
}

handler! {
    /// Another handler of the same message.
    OtherChildHandler { faults: Faults }: "other-child-handler" on Child;
    step "0" zero [rollback = undo] => done();

    async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
        compensated(scope);
        self.faults.check("other child 0")
    }
}

handler! {
    /// One more level.
    GrandchildHandler { faults: Faults }: "grandchild-handler" on Grandchild;
    step "0" zero [rollback = undo] => done();

    #[step(name = "1")]
    async fn one(&self, _: &mut Scope<'_>, _: &Grandchild) -> Result<()> {
        self.faults.check("grandchild 1")
    }

    async fn undo(&self, scope: &mut Scope<'_>, _: &Grandchild, _: &Failure) -> Result<()> {
        compensated(scope);
        if self.faults.has("grandchild 0 in another way") {
            return Err(IllegalStateException("it is broken in another way").into());
        }
        self.faults.check("grandchild 0")
    }
}

/// On which run an operator decides next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Itself,
    Below,
}

impl Next {
    fn of(failed: &FailedRollback) -> Self {
        if failed.failed_below.is_empty() { Self::Itself } else { Self::Below }
    }
}

/// A hierarchy that could not be undone because of these faults.
struct Broken {
    db: Database,
    faults: Faults,
    scoop: Scoop,
    root: Handle,
}

impl Broken {
    async fn by(
        names: &[&'static str],
        configure: impl Fn(scoop::Builder, &Faults) -> scoop::Builder,
    ) -> Result<Self> {
        let db = Database::new().await;
        let faults = Faults::of(names);
        let scoop = configure(db.scoop(), &faults).start().await?;
        let root = scoop.launch(Root).await?;
        let outcome = root.ends().await?;
        assert!(matches!(outcome, Outcome::RollbackFailed(_)), "{outcome:?}\n{}", root.tree().await?);
        Ok(Self { db, faults, scoop, root })
    }

    /// The failed compensation of this handler.
    async fn failed(&self, handler: &str) -> Result<FailedRollback> {
        let listed = self.scoop.operate().failures().list().await?;
        let of_handler = listed.iter().find(|failed| failed.handler == handler);
        Ok(of_handler.unwrap_or_else(|| panic!("{handler} is not among {listed:?}")).clone())
    }

    async fn id_of(&self, handler: &str) -> Result<uuid::Uuid> {
        Ok(self.failed(handler).await?.lineage.id())
    }

    async fn retry(&self, handler: &str) -> Result<RepairAnswer> {
        Ok(self.scoop.operate().failures().retry(self.id_of(handler).await?).await?)
    }

    /// All listed handlers, each with the run on which an operator decides next.
    async fn listed(&self) -> Result<Vec<(String, Next)>> {
        let listed = self.scoop.operate().failures().list().await?;
        Ok(listed.into_iter().map(|failed| (failed.handler.clone(), Next::of(&failed))).collect())
    }

    /// The explanation of each listed run, and a page with this run alone, have the runs below as the list has. The explanation offers
    /// the same decisions.
    async fn views_agree(&self) -> Result<()> {
        let listed = self.scoop.operate().failures().list().await?;
        let mut before: Option<&FailedRollback> = None;
        for failed in &listed {
            let page = self.scoop.operate().failures().list().limit(1);
            let page = match before.replace(failed) {
                Some(previous) => page.after(previous).await?,
                None => page.await?,
            };
            assert_eq!(page[0].lineage, failed.lineage);
            assert_eq!(page[0].failed_below, failed.failed_below);
            let run = self.scoop.operate().runs().explain(failed.id()).await?.runs.remove(0);
            let explained: Option<Vec<_>> = match &run.reason {
                WaitReason::Operator { failed_below, .. } => {
                    Some(failed_below.iter().map(|below| below.run).collect())
                }
                _ => None,
            };
            assert_eq!(explained.as_ref(), Some(&failed.failed_below), "{run}");
            let offered = run.requests().filter(|request| request.is_repair());
            assert!(offered.eq(failed.requests()), "{run}");
        }
        Ok(())
    }

    /// The answers to a dry run of each decision about a run.
    async fn answers(&self, run: uuid::Uuid) -> Result<[RepairAnswer; 3]> {
        Ok([
            self.scoop.operate().failures().retry(run).dry_run().await?,
            self.scoop.operate().failures().skip(run, "tried").dry_run().await?,
            self.scoop.operate().failures().resolve(run, "tried").dry_run().await?,
        ])
    }

    /// The explanation of a run, with the requests that it offers: the decisions among them are accepted.
    async fn explained(&self, run: uuid::Uuid) -> Result<(RunExplanation, Vec<RunRequest>)> {
        let run = self.scoop.operate().runs().explain(run).await?.runs.remove(0);
        let offered: Vec<_> = run.requests().filter(|request| request.is_repair()).collect();
        for (decision, answer) in RunRequest::REPAIRS.into_iter().zip(self.answers(run.run.run.uuid()).await?)
        {
            let is_accepted = answer == RepairAnswer::Accepted;
            assert!(is_accepted || !offered.contains(&decision), "{decision}: {answer:?}, {run}");
        }
        Ok((run, offered))
    }

    /// The parts of rollbacks that failed, by the recorded events.
    async fn failed_parts(&self) -> Result<Vec<String>> {
        let mut events = self.scoop.operate().events().since(SystemTime::UNIX_EPOCH).recorded();
        let mut parts = vec![];
        while let Some(event) = events.next().await {
            let event = event?;
            parts.extend(event.step.filter(|_| event.kind == EventKind::RollbackFailed));
        }
        Ok(parts)
    }

    /// Waits until the hierarchy is undone, and asserts that nothing is left over.
    async fn is_undone(&self) -> Result<()> {
        assert!(matches!(self.root.ends().await?, Outcome::RolledBack(_)), "{}", self.root.tree().await?);
        assert_eq!(self.listed().await?, []);
        assert_eq!(self.db.unfinished().await, 0);
        Ok(())
    }
}

/// The rollback of the root has failed, and no repair is under way.
fn rests(tree: &scoop::tree::Tree) -> bool {
    matches!(tree.roots()[0].state, RunState::RollbackFailed(_))
}

fn alone(builder: scoop::Builder, faults: &Faults) -> scoop::Builder {
    builder.only::<RootHandler>().provide(RootHandler { faults: faults.clone() })
}

fn two_levels(builder: scoop::Builder, faults: &Faults) -> scoop::Builder {
    alone(builder, faults).only::<ChildHandler>().provide(ChildHandler { faults: faults.clone() })
}

fn three_levels(builder: scoop::Builder, faults: &Faults) -> scoop::Builder {
    let grandchild = GrandchildHandler { faults: faults.clone() };
    two_levels(builder, faults).only::<GrandchildHandler>().provide(grandchild)
}

fn two_children(builder: scoop::Builder, faults: &Faults) -> scoop::Builder {
    let other = OtherChildHandler { faults: faults.clone() };
    two_levels(builder, faults).only::<OtherChildHandler>().provide(other)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_compensation_is_listed_and_runs_again() -> Result<()> {
    let broken = Broken::by(&["root 1"], alone).await?;
    let failed = broken.failed("root-handler").await?;
    assert_eq!((&*failed.step, Next::of(&failed)), ("Rollback of 1[0,]", Next::Itself));
    assert_eq!(failed.failure.message, "it is broken");
    assert_eq!(failed.lineage.root_id(), broken.root.id());

    broken.faults.mend("root 1");
    let request = broken.scoop.operate().failures().retry(failed.lineage.id()).source("night shift");
    assert_eq!(request.await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    broken.db.history().await.about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN root-handler ·
        M0 SUSPENDED root-handler 0 next=1
        M0 SUSPENDED root-handler 1 next=2
        M0 ROLLING_BACK root-handler 2
        M0 SUSPENDED root-handler RBC(1[0,])
        M0 ROLLBACK_FAILED root-handler RB(1[0,]) exc=IllegalStateException(it is broken)@root-handler
        M0 SUSPENDED root-handler RB(1[0,])
        M0 SUSPENDED root-handler RBC(0[0,])
        M0 SUSPENDED root-handler RB(0[0,])
        M0 ROLLED_BACK root-handler RB(0[0,])",
    );
    let done = broken.scoop.operate().failures().interventions(broken.root.id()).await?;
    let [done] = &*done else { panic!("{done:?}") };
    assert_eq!((&*done.kind, &*done.source, &done.note), ("retry", "night shift", &None));
    assert_eq!(done.step.as_deref(), Some("Rollback of 1[0,]"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skipped_compensation_is_left_undone_and_the_rest_runs() -> Result<()> {
    let broken = Broken::by(&["root 1"], alone).await?;
    let run = broken.id_of("root-handler").await?;
    assert_eq!(broken.scoop.operate().failures().skip(run, "it has expired").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    calls_of(&broken.root).expect(
        "invoke root-handler/0
        invoke root-handler/1
        invoke root-handler/2
        rollback root-handler/1
        rollback root-handler/0",
    );
    let done = broken.scoop.operate().failures().interventions(broken.root.id()).await?;
    assert_eq!((&*done[0].kind, done[0].note.as_deref()), ("skip", Some("it has expired")));
    let tree = broken.root.tree().await?;
    assert_eq!(tree.roots()[0].interventions, done);
    assert!(tree.to_string().contains("skip by scoop: it has expired"), "{tree}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_resolved_run_nothing_more_is_executed() -> Result<()> {
    let broken = Broken::by(&["root 1"], alone).await?;
    let run = broken.id_of("root-handler").await?;
    assert_eq!(
        broken.scoop.operate().failures().resolve(run, "paid back by hand").await?,
        RepairAnswer::Accepted
    );
    broken.is_undone().await?;
    calls_of(&broken.root).expect(
        "invoke root-handler/0
        invoke root-handler/1
        invoke root-handler/2
        rollback root-handler/1",
    );
    broken.db.history().await.about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN root-handler ·
        M0 SUSPENDED root-handler 0 next=1
        M0 SUSPENDED root-handler 1 next=2
        M0 ROLLING_BACK root-handler 2
        M0 SUSPENDED root-handler RBC(1[0,])
        M0 ROLLBACK_FAILED root-handler RB(1[0,])
        M0 ROLLED_BACK root-handler RB(1[0,])",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_fails_again_rests_across_restarts() -> Result<()> {
    let broken = Broken::by(&["root 1", "root 0"], alone).await?;
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    let tree = broken.root.comes_to(rests).await?;
    assert!(tree.to_string().contains("ROLLBACK FAILED: "), "{tree}");
    assert_eq!(broken.listed().await?, [("root-handler".into(), Next::Itself)]);
    assert_eq!(broken.scoop.operate().failures().stuck().await?.len(), 0);
    assert_eq!(tree.to_string().matches("rollback failed in 1: it is broken").count(), 2, "{tree}");
    let listed = broken.scoop.operate().runs().list().state(RunPhase::RollbackFailed).await?.runs;
    let failure = listed[0].failure.as_ref().expect("it has failed");
    assert_eq!(failure.headline, "it is broken");
    let found = broken
        .scoop
        .operate()
        .runs()
        .list()
        .state(RunPhase::RollbackFailed)
        .failed_with(&failure.code)
        .await?
        .runs;
    assert_eq!(found.len(), 1, "{failure:?}");

    // The start of a program is no reason to try again.
    broken.scoop.shutdown().await?;
    let scoop = alone(broken.db.scoop(), &broken.faults).start().await?;
    let broken = Broken { root: scoop.find(broken.root.id()).await?, scoop, ..broken };
    assert!(rests(&broken.root.tree().await?));

    // The retry fails in another part. The skip applies to that one.
    broken.faults.mend("root 1");
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    let failed = broken.failed("root-handler").await?;
    assert_eq!(failed.step, "Rollback of 0[0,]");
    assert_eq!(broken.failed_parts().await?, ["Rollback of 1[0,]", "Rollback of 1[0,]", "Rollback of 0[0,]"]);
    assert_eq!(
        broken.scoop.operate().failures().skip(failed.lineage.id(), "").await?,
        RepairAnswer::Accepted
    );
    broken.is_undone().await?;
    let tree = broken.root.tree().await?;
    assert!(tree.to_string().contains("skipped the undoing of 0\n"), "{tree}");
    let root = &tree.roots()[0];
    let failures: Vec<_> = root.events.iter().filter(|it| it.kind == EventKind::RollbackFailed).collect();
    // The skip is no work, and what comes after a repair is measured from it.
    assert_eq!(failures[1].duration, failures[1].at.unwrap().duration_since(root.interventions[0].at).ok());
    let skip = root.events.iter().find(|event| event.is_skipping()).expect("it is an event");
    assert_eq!(skip.duration, Some(Duration::ZERO), "{tree}");
    assert!(tree.timeline().iter().any(|bar| bar.words == "failed to undo" && bar.name == "0"), "{tree}");
    // A limited tree has the first events and the last ones.
    let limited = broken.root.tree().events(1).await?;
    assert_eq!(limited.to_string().matches("rollback failed in").count(), 0, "{limited}");
    let [all, shown] = [&tree, &limited].map(|tree| tree.roots()[0].events.len());
    assert_eq!(limited.roots()[0].events_left_out, all - shown, "{limited}");
    calls_of(&broken.root).expect(
        "invoke root-handler/0
        invoke root-handler/1
        invoke root-handler/2
        rollback root-handler/1
        rollback root-handler/1
        rollback root-handler/1
        rollback root-handler/0",
    );
    Ok(())
}

/// After the skip, the next part of the root fails because of the grandchild that it launches. The retried grandchild
/// fails again.
#[tokio::test(flavor = "multi_thread")]
async fn skip_during_a_repair_below_skips_the_part_that_failed_last() -> Result<()> {
    let faults = ["root 1", "root 0 needs a grandchild", "grandchild 1", "grandchild 0"];
    let broken = Broken::by(&faults, |builder, faults| {
        let grandchild = GrandchildHandler { faults: faults.clone() };
        alone(builder, faults).only::<GrandchildHandler>().provide(grandchild)
    })
    .await?;
    assert_eq!(broken.failed("root-handler").await?.step, "Rollback of 1[0,]");
    let root = broken.id_of("root-handler").await?;
    assert_eq!(broken.scoop.operate().failures().skip(root, "").await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    assert_eq!(broken.failed("root-handler").await?.step, "Rollback of 0[0,]");

    broken.faults.mend("grandchild 0");
    broken.faults.add("grandchild 0 in another way");
    assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    let failed = broken.failed("root-handler").await?;
    assert_eq!((&*failed.step, Next::of(&failed)), ("Rollback of 0[0,]", Next::Below));
    assert_eq!(broken.scoop.operate().failures().skip(root, "").await?, RepairAnswer::Accepted);
    // It rests without the run above. Lists have its latest failure.
    let below = broken
        .scoop
        .operate()
        .runs()
        .list()
        .handler("grandchild-handler")
        .state(RunPhase::RollbackFailed)
        .await?
        .runs;
    let failure = below[0].failure.as_ref().map(|failure| &*failure.headline);
    assert_eq!(failure, Some("it is broken in another way"));
    let explained = broken.scoop.operate().runs().explain(below[0].run).await?.runs.remove(0).run;
    assert_eq!(explained.failure, below[0].failure);
    assert!(matches!(broken.root.ends().await?, Outcome::RolledBack(_)));
    calls_of(&broken.root).expect(
        "invoke root-handler/0
        invoke root-handler/1
        invoke root-handler/2
        rollback root-handler/1
        rollback root-handler/0
        invoke grandchild-handler/0
        rollback grandchild-handler/0
        rollback grandchild-handler/0",
    );
    let grandchild = broken.id_of("grandchild-handler").await?;
    assert_eq!(broken.scoop.operate().failures().resolve(grandchild, "").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_operators_at_once_one_is_heard() -> Result<()> {
    let broken = Broken::by(&["root 1"], alone).await?;
    broken.faults.mend("root 1");
    let run = broken.id_of("root-handler").await?;
    let clients: Vec<_> = (0..4).map(|_| broken.db.client()).collect();
    let requests = clients.iter().map(|client| {
        let request = client.operate().failures().retry(run).into_future();
        tokio::spawn(request)
    });
    let mut accepted = 0;
    for request in requests.collect::<Vec<_>>() {
        accepted += usize::from(request.await.unwrap()? == RepairAnswer::Accepted);
    }
    assert_eq!(accepted, 1);
    broken.is_undone().await?;
    let retried = calls_of(&broken.root).of(&["root-handler"]);
    assert_eq!(retried.count(), 6, "three steps, one failed compensation and two more");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_a_failed_rollback_cannot_be_repaired() -> Result<()> {
    let db = Database::new().await;
    let scoop = alone(db.scoop(), &Faults::default()).start().await?;
    let root = scoop.launch(Root).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    let run = root.tree().await?.roots()[0].lineage.id();
    assert_eq!(scoop.operate().failures().retry(run).await?, RepairAnswer::NotFailed);
    assert_eq!(scoop.operate().failures().skip(run, "").await?, RepairAnswer::NotFailed);
    assert_eq!(scoop.operate().failures().resolve(run, "").await?, RepairAnswer::NotFailed);
    assert!(scoop.operate().failures().interventions(root.id()).await?.is_empty());
    let unknown = uuid::Uuid::new_v4();
    let error = scoop.operate().failures().retry(unknown).await.unwrap_err();
    assert!(error.is_not_found() && error.to_string().contains(&unknown.to_string()), "{error}");
    Ok(())
}
