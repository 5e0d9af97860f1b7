//! Repairs of failed compensations by operators.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use scoop::{
    EventKind, FailedCompensation, Handle, Lineage, RepairAnswer, RepairStatus, RunExplanation, RunPhase,
    RunRequest, RunState, RuntimeError, WaitKind, WaitReason,
};

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

    /// The failed compensation of this handler, with the state of its repair.
    async fn failed(&self, handler: &str) -> Result<FailedCompensation> {
        let listed = self.scoop.failed_compensations().await?;
        let of_handler = listed.iter().find(|failed| failed.handler == handler);
        Ok(of_handler.unwrap_or_else(|| panic!("{handler} is not among {listed:?}")).clone())
    }

    async fn id_of(&self, handler: &str) -> Result<uuid::Uuid> {
        Ok(self.failed(handler).await?.lineage.id())
    }

    async fn retry(&self, handler: &str) -> Result<RepairAnswer> {
        Ok(self.scoop.retry(self.id_of(handler).await?).await?)
    }

    /// All listed handlers, each with the state of its repair.
    async fn listed(&self) -> Result<Vec<(String, RepairStatus)>> {
        let listed = self.scoop.failed_compensations().await?;
        Ok(listed.into_iter().map(|failed| (failed.handler, failed.status)).collect())
    }

    /// The explanation of each listed run, and a page with this run alone, have the status and the runs below as the list has. The
    /// explanation offers the same decisions.
    async fn views_agree(&self) -> Result<()> {
        let listed = self.scoop.failed_compensations().await?;
        let mut before: Option<&FailedCompensation> = None;
        for failed in &listed {
            let page = self.scoop.failed_compensations().limit(1);
            let page = match before.replace(failed) {
                Some(previous) => page.after(previous).await?,
                None => page.await?,
            };
            assert_eq!(page[0].lineage, failed.lineage);
            assert_eq!((page[0].status, &page[0].failed_below), (failed.status, &failed.failed_below));
            let run = self.scoop.explain(failed.id()).await?.runs.remove(0);
            let explained: Option<Vec<_>> = match &run.reason {
                WaitReason::Operator { failed_below, .. } => {
                    Some(failed_below.iter().map(|below| below.run).collect())
                }
                _ => None,
            };
            let waits_for_operator = failed.status != RepairStatus::InProgress;
            assert_eq!(explained, waits_for_operator.then(|| failed.failed_below.clone()), "{run}");
            let offered = run.requests().filter(|request| request.is_repair());
            assert!(offered.eq(failed.requests()), "{run}");
        }
        Ok(())
    }

    /// The answers to a dry run of each decision about a run.
    async fn answers(&self, run: uuid::Uuid) -> Result<[RepairAnswer; 3]> {
        Ok([
            self.scoop.retry(run).dry_run().await?,
            self.scoop.skip(run, "tried").dry_run().await?,
            self.scoop.resolve(run, "tried").dry_run().await?,
        ])
    }

    /// The explanation of a run, with the requests that it offers: the decisions among them are accepted.
    async fn explained(&self, run: uuid::Uuid) -> Result<(RunExplanation, Vec<RunRequest>)> {
        let run = self.scoop.explain(run).await?.runs.remove(0);
        let offered: Vec<_> = run.requests().collect();
        for (decision, answer) in RunRequest::REPAIRS.into_iter().zip(self.answers(run.run.run.uuid()).await?)
        {
            let is_accepted = answer == RepairAnswer::Accepted;
            assert!(is_accepted || !offered.contains(&decision), "{decision}: {answer:?}, {run}");
        }
        Ok((run, offered))
    }

    /// The parts of rollbacks that failed, by the recorded events.
    async fn failed_parts(&self) -> Result<Vec<String>> {
        let mut events = self.scoop.events().since(SystemTime::UNIX_EPOCH).recorded();
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

fn awaits_operator(tree: &scoop::Tree) -> bool {
    matches!(tree.roots()[0].state, RunState::AwaitingOperator { .. })
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
    assert_eq!((&*failed.step, failed.status), ("Rollback of 1[0,]", RepairStatus::Undecided));
    assert_eq!(failed.failure.message, "it is broken");
    assert_eq!(failed.lineage.root_id(), broken.root.id());

    broken.faults.mend("root 1");
    let request = broken.scoop.retry(failed.lineage.id()).source("night shift");
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
    let done = broken.scoop.interventions(broken.root.id()).await?;
    let [done] = &*done else { panic!("{done:?}") };
    assert_eq!((&*done.kind, &*done.source, &done.note), ("retry", "night shift", &None));
    assert_eq!(done.step.as_deref(), Some("Rollback of 1[0,]"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skipped_compensation_is_left_undone_and_the_rest_runs() -> Result<()> {
    let broken = Broken::by(&["root 1"], alone).await?;
    let run = broken.id_of("root-handler").await?;
    assert_eq!(broken.scoop.skip(run, "it has expired").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    calls_of(&broken.root).expect(
        "invoke root-handler/0
        invoke root-handler/1
        invoke root-handler/2
        rollback root-handler/1
        rollback root-handler/0",
    );
    let done = broken.scoop.interventions(broken.root.id()).await?;
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
    assert_eq!(broken.scoop.resolve(run, "paid back by hand").await?, RepairAnswer::Accepted);
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
async fn failed_rollback_is_found_by_its_reason_and_its_failure_before_and_after_its_repair() -> Result<()> {
    let broken = Broken::by(&["root 1"], alone).await?;
    let tree = broken.root.tree().await?;
    let RunState::RollbackFailed(failed) = &tree.roots()[0].state else { panic!("{tree}") };
    let codes = [&failed.cause.kind, &failed.failure.kind];
    assert_ne!(codes[0], codes[1]);
    let found = async || -> Result<Vec<RunPhase>> {
        let mut phases = vec![];
        for code in codes {
            let runs = broken.scoop.runs().handler("root-handler").failed_with(code).await?.runs;
            phases.extend(runs.into_iter().map(|run| run.phase));
        }
        Ok(phases)
    };
    assert_eq!(found().await?, [RunPhase::RollbackFailed; 2]);
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(awaits_operator).await?;
    assert_eq!(found().await?, [RunPhase::AwaitingOperator; 2]);
    broken.faults.mend("root 1");
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    assert_eq!(found().await?, [RunPhase::RolledBack; 2]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_fails_again_waits_for_an_operator_across_restarts() -> Result<()> {
    let broken = Broken::by(&["root 1", "root 0"], alone).await?;
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    let tree = broken.root.comes_to(awaits_operator).await?;
    assert!(tree.to_string().contains("AWAITING OPERATOR: its rollback failed again: "), "{tree}");
    assert_eq!(broken.failed("root-handler").await?.status, RepairStatus::Undecided);
    assert_eq!(broken.scoop.stuck_runs().await?.len(), 0);
    assert_eq!(tree.to_string().matches("rollback failed in 1: it is broken").count(), 2, "{tree}");
    let listed = broken.scoop.runs().state(RunPhase::AwaitingOperator).await?.runs;
    let failure = listed[0].failure.as_ref().expect("it has failed");
    assert_eq!(failure.headline, "it is broken");
    let found = broken.scoop.runs().state(RunPhase::AwaitingOperator).failed_with(&failure.code).await?.runs;
    assert_eq!(found.len(), 1, "{failure:?}");

    // The start of a program is no reason to try again.
    broken.scoop.shutdown().await?;
    let scoop = alone(broken.db.scoop(), &broken.faults).start().await?;
    let broken = Broken { root: scoop.find(broken.root.id()).await?, scoop, ..broken };
    assert!(awaits_operator(&broken.root.tree().await?));

    // The retry fails in another part. The skip applies to that one.
    broken.faults.mend("root 1");
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(awaits_operator).await?;
    let failed = broken.failed("root-handler").await?;
    assert_eq!(failed.step, "Rollback of 0[0,]");
    assert_eq!(broken.failed_parts().await?, ["Rollback of 1[0,]", "Rollback of 1[0,]", "Rollback of 0[0,]"]);
    assert_eq!(broken.scoop.skip(failed.lineage.id(), "").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    let tree = broken.root.tree().await?;
    assert!(tree.to_string().contains("skipped the undoing of 0\n"), "{tree}");
    let root = &tree.roots()[0];
    let failures: Vec<_> = root.events.iter().filter(|it| it.kind == EventKind::RollbackFailed).collect();
    // The skip is no work, and what comes after a repair is measured from it.
    assert_eq!(failures[1].took, failures[1].at.unwrap().duration_since(root.interventions[0].at).ok());
    let skip = root.events.iter().find(|event| event.is_skipping()).expect("it is an event");
    assert_eq!(skip.took, Some(Duration::ZERO), "{tree}");
    assert!(tree.timeline().iter().any(|bar| bar.words == "failed to undo" && bar.name == "0"), "{tree}");
    // Of the repeated failures a limited tree has the newest.
    let limited = broken.root.tree().events(1).await?;
    assert_eq!(limited.to_string().matches("rollback failed in").count(), 2, "{limited}");
    assert!(limited.to_string().contains("rollback failed in 0: it is broken"), "{limited}");
    let [all, shown] = [&tree, &limited].map(|tree| tree.roots()[0].events.len());
    assert_eq!(limited.roots()[0].events_left_out, all - shown, "{limited}");
    // Those between the first failure and the newest one are a gap, also on the scale of time.
    let newest = limited.roots()[0].events.iter().rfind(|event| event.kind == EventKind::RollbackFailed);
    assert!(newest.is_some_and(|newest| newest.follows_gap), "{limited}");
    let gaps = limited.timeline().into_iter().filter(|bar| bar.kind == scoop::BarKind::Gap);
    assert!(gaps.map(|bar| bar.to).any(|to| to == newest.and_then(|newest| newest.at)), "{limited}");
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

#[tokio::test(flavor = "multi_thread")]
async fn events_left_out_between_two_failures_of_a_rollback_are_a_gap() -> Result<()> {
    let broken = Broken::by(&["root 1", "root 0"], alone).await?;
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(awaits_operator).await?;
    broken.faults.mend("root 1");
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(awaits_operator).await?;
    assert_eq!(broken.failed_parts().await?, ["Rollback of 1[0,]", "Rollback of 1[0,]", "Rollback of 0[0,]"]);
    let failed = broken.failed("root-handler").await?;
    assert_eq!(broken.scoop.skip(failed.lineage.id(), "").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;

    let all = broken.root.tree().await?;
    let part = broken.root.tree().events(2).await?;
    let (all_events, events) = (&all.roots()[0].events, &part.roots()[0].events);
    assert_eq!(part.roots()[0].events_left_out, all_events.len() - events.len());
    let failures: Vec<_> = events.iter().filter(|event| event.kind == EventKind::RollbackFailed).collect();
    let gaps: Vec<_> = failures.iter().map(|event| (event.subject(), event.follows_gap)).collect();
    assert_eq!(gaps, [(Some("1"), true), (Some("1"), false), (Some("0"), true)], "{part}\n{all}");
    // There is a gap where events are left out, and nowhere else.
    for (before, event) in events.iter().zip(&events[1..]) {
        let between = all_events.iter().filter(|it| it.at > before.at && it.at < event.at).count();
        assert_eq!(event.follows_gap, between > 0, "{event}\n{part}\n{all}");
    }
    let shown = events.iter().filter(|event| event.follows_gap).count();
    assert_eq!(part.to_string().matches("(events are left out").count(), shown, "{part}");
    let bars = part.timeline();
    let bars: Vec<_> = bars.iter().filter(|bar| bar.kind == scoop::BarKind::Gap).collect();
    assert_eq!(bars.len(), shown, "{part}");
    assert!(bars.iter().any(|bar| (Some(bar.from), bar.to) == (failures[1].at, failures[2].at)), "{part}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn interventions_of_a_part_are_those_on_its_runs() -> Result<()> {
    let broken = Broken::by(&["child 0", "other child 0"], two_children).await?;
    let (child, other) = (broken.id_of("child-handler").await?, broken.id_of("other-child-handler").await?);
    for run in [child, other] {
        assert_eq!(broken.scoop.skip(run, "").await?, RepairAnswer::Accepted);
    }
    broken.is_undone().await?;
    let done = broken.scoop.interventions(broken.root.id()).await?;
    assert_eq!(done.iter().map(|done| done.run.uuid()).collect::<Vec<_>>(), [child, other]);
    let tree = || broken.root.tree();
    for whole in [tree().await?, tree().events(1).await?, tree().depth(3).await?, tree().limit(4).await?] {
        assert!(whole.is_complete() && whole.roots()[0].interventions.is_empty(), "{whole}");
        for done in &done {
            let of_run = whole.runs().into_iter().find(|run| run.id() == done.run).expect("it is shown");
            assert_eq!(of_run.interventions, std::slice::from_ref(done), "{whole}");
        }
    }
    let part = tree().limit(2).await?;
    let shown: usize = part.runs().iter().map(|run| run.interventions.len()).sum();
    assert_eq!((shown, part.is_complete()), (1, false), "{part}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn interventions_between_the_first_and_the_last_of_a_run_are_left_out_and_counted() -> Result<()> {
    let broken = Broken::by(&["root 1"], alone).await?;
    for _ in 0..5 {
        assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
        broken.root.comes_to(awaits_operator).await?;
    }
    let done = broken.scoop.interventions(broken.root.id()).await?;
    assert_eq!(done.len(), 5);
    for all in [broken.root.tree().await?, broken.root.tree().events(3).await?] {
        let run = &all.roots()[0];
        assert_eq!((&run.interventions, run.interventions_left_out), (&done, 0));
        assert!(!all.to_string().contains("interventions are left out"), "{all}");
    }
    for (count, left_out, text) in
        [(2, 1, "(1 intervention is left out: see"), (1, 3, "(3 interventions are left out: see")]
    {
        let part = broken.root.tree().events(count).await?;
        let run = &part.roots()[0];
        assert_eq!(run.interventions, [&done[..count], &done[5 - count..]].concat());
        assert_eq!(run.interventions_left_out, left_out);
        assert!(part.to_string().contains(text), "{part}");
        let bars = part.timeline();
        let gap = bars.iter().find(|bar| bar.name == "interventions are left out").expect("it is shown");
        assert_eq!((gap.kind, gap.from), (scoop::BarKind::Gap, done[count - 1].at));
        assert_eq!(gap.to, Some(done[5 - count].at));
    }
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
    assert_eq!(broken.scoop.skip(root, "").await?, RepairAnswer::Accepted);
    broken.root.comes_to(awaits_operator).await?;
    assert_eq!(broken.failed("root-handler").await?.step, "Rollback of 0[0,]");

    broken.faults.mend("grandchild 0");
    broken.faults.add("grandchild 0 in another way");
    assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
    let below_awaits_operator = |tree: &scoop::Tree| {
        let mut runs = tree.runs().into_iter();
        runs.any(|run| {
            run.handler == "grandchild-handler" && matches!(run.state, RunState::AwaitingOperator { .. })
        })
    };
    broken.root.comes_to(below_awaits_operator).await?;
    let failed = broken.failed("root-handler").await?;
    assert_eq!((&*failed.step, failed.status), ("Rollback of 0[0,]", RepairStatus::BlockedByDescendant));
    assert_eq!(broken.scoop.skip(root, "").await?, RepairAnswer::Accepted);
    // It is settled with the run above. Lists have its latest failure, too.
    let below = broken.scoop.runs().handler("grandchild-handler").state(RunPhase::RollbackFailed).await?.runs;
    let failure = below[0].failure.as_ref().map(|failure| &*failure.headline);
    assert_eq!(failure, Some("it is broken in another way"));
    let explained = broken.scoop.explain(below[0].run).await?.runs.remove(0).run;
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
    assert_eq!(broken.scoop.resolve(grandchild, "").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn ancestors_of_a_repaired_run_resume_where_they_failed() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    let mut listed = broken.listed().await?;
    listed.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        listed,
        [
            ("child-handler".into(), RepairStatus::BlockedByDescendant),
            ("grandchild-handler".into(), RepairStatus::Undecided),
            ("root-handler".into(), RepairStatus::BlockedByDescendant),
        ]
    );
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::FailedBelow);

    broken.faults.mend("grandchild 0");
    assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    calls_of(&broken.root).expect(
        "invoke root-handler/0
        invoke root-handler/1
        invoke child-handler/0
        invoke grandchild-handler/0
        invoke child-handler/1
        invoke root-handler/2
        rollback grandchild-handler/0
        rollback grandchild-handler/0
        rollback child-handler/0
        rollback root-handler/1
        rollback root-handler/0",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn resolved_run_settles_the_failures_below() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    let run = broken.id_of("child-handler").await?;
    assert_eq!(broken.scoop.resolve(run, "by hand").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    calls_of(&broken.root).of(&["child-handler", "grandchild-handler"]).expect(
        "invoke child-handler/0
        invoke grandchild-handler/0
        invoke child-handler/1
        rollback grandchild-handler/0",
    );
    calls_of(&broken.root).of(&["root-handler"]).expect(
        "invoke root-handler/0
        invoke root-handler/1
        invoke root-handler/2
        rollback root-handler/1
        rollback root-handler/0",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn skipped_run_leaves_its_failed_children_unchanged() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    let run = broken.id_of("child-handler").await?;
    assert_eq!(broken.scoop.skip(run, "never mind the grandchild").await?, RepairAnswer::Accepted);
    assert!(matches!(broken.root.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(broken.listed().await?, [("grandchild-handler".into(), RepairStatus::Undecided)]);
    calls_of(&broken.root).of(&["child-handler"]).expect(
        "invoke child-handler/0
        invoke child-handler/1
        rollback child-handler/0",
    );

    // The grandchild can still be repaired; no run waits for it any more.
    broken.faults.mend("grandchild 0");
    let grandchild = broken.failed("grandchild-handler").await?.lineage;
    assert_eq!(broken.scoop.retry(grandchild.id()).await?, RepairAnswer::Accepted);
    let undone = |tree: &scoop::Tree| {
        let mut runs = tree.runs().into_iter();
        runs.any(|run| run.lineage == grandchild && matches!(run.state, RunState::RolledBack(_)))
    };
    broken.root.comes_to(undone).await?;
    broken.is_undone().await
}

/// The child fails on its own while the parent goes forward (W-17). The parent begins to roll back, and fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_was_going_forward_is_undone_from_its_beginning() -> Result<()> {
    let broken = Broken::by(&["child 1 goes on", "child 0"], two_levels).await?;
    calls_of(&broken.root).of(&["root-handler"]).expect(
        "invoke root-handler/0
        invoke root-handler/1",
    );
    broken.faults.mend("child 0");
    assert_eq!(broken.retry("child-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    calls_of(&broken.root).of(&["root-handler"]).expect(
        "invoke root-handler/0
        invoke root-handler/1
        rollback root-handler/1
        rollback root-handler/0",
    );
    broken.db.history().await.about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN root-handler ·
        M0 SUSPENDED root-handler 0 next=1
        M0 SUSPENDED root-handler 1 next=2
        M0 ROLLING_BACK root-handler 1 cfhi=0
        M0 ROLLBACK_FAILED root-handler RBC(1[0,]) cfhi=0
        M0 SUSPENDED root-handler RBC(1[0,])
        M0 SUSPENDED root-handler RB(1[0,])
        M0 SUSPENDED root-handler RBC(0[0,])
        M0 SUSPENDED root-handler RB(0[0,])
        M0 ROLLED_BACK root-handler RB(0[0,])",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ancestors_wait_until_all_failures_below_are_settled() -> Result<()> {
    let broken = Broken::by(&["child 0", "other child 0"], two_children).await?;
    broken.faults.mend("child 0");
    let child = broken.failed("child-handler").await?.lineage;
    assert_eq!(broken.scoop.retry(child.id()).await?, RepairAnswer::Accepted);
    let child_is_undone = |tree: &scoop::Tree| {
        let mut runs = tree.runs().into_iter();
        runs.any(|run| run.lineage == child && matches!(run.state, RunState::RolledBack(_)))
    };
    let tree = broken.root.comes_to(child_is_undone).await?;
    assert_eq!(tree.roots()[0].state, RunState::Waiting, "{tree}");
    assert!(
        tree.to_string().contains("AWAITING OPERATOR: its rollback failed; retry, skip or resolve it"),
        "{tree}"
    );
    assert_eq!(broken.scoop.retry(child.id()).await?, RepairAnswer::NotFailed);
    let root = broken.failed("root-handler").await?;
    let other = broken.id_of("other-child-handler").await?;
    assert_eq!(root.status, RepairStatus::BlockedByDescendant);
    assert_eq!(root.failed_below.iter().map(|run| run.uuid()).collect::<Vec<_>>(), [other]);
    assert_eq!(broken.scoop.retry(root.lineage.id()).await?, RepairAnswer::FailedBelow);

    assert_eq!(broken.scoop.resolve(other, "").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_above_one_that_failed_again_wait_for_an_operator_and_name_it() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    broken.faults.mend("grandchild 0");
    broken.faults.add("grandchild 0 in another way");
    broken.views_agree().await?;
    assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
    let held = |tree: &scoop::Tree| tree.to_string().contains("its rollback failed again");
    broken.root.comes_to(held).await?;
    broken.views_agree().await?;
    let grandchild = broken.id_of("grandchild-handler").await?;
    for handler in ["child-handler", "root-handler"] {
        let failed = broken.failed(handler).await?;
        assert_eq!(failed.status, RepairStatus::BlockedByDescendant, "{handler}");
        assert_eq!(failed.failed_below.iter().map(|run| run.uuid()).collect::<Vec<_>>(), [grandchild]);
        let run = broken.scoop.explain(failed.id()).await?.runs.remove(0);
        assert_eq!((run.run.phase, run.run.waits_for), (RunPhase::Waiting, Some(WaitKind::Operator)));
        assert!(run.run.requests().next().is_none(), "nothing can be asked of the run itself: {run:?}");
        let WaitReason::Operator { why, failed_below, has_more_below: false } = &run.reason else {
            panic!("{run:?}")
        };
        assert!(why.contains("it is broken in another way"), "the latest failure: {why}");
        let [below] = &failed_below[..] else { panic!("{run:?}") };
        assert_eq!((below.run.uuid(), &*below.handler), (grandchild, "grandchild-handler"));
        let failure = below.failure.as_ref().map(|failure| &*failure.headline);
        assert_eq!(failure, Some("it is broken in another way"));
        let decide = format!("`retry`, `skip` or `resolve` the run {grandchild} of `grandchild-handler`.");
        assert!(run.to_string().contains(&decide), "{run}");
    }
    let waiting = broken.scoop.runs().waiting_for(WaitKind::Operator).await?.runs;
    assert_eq!(waiting.iter().map(|run| &*run.handler).collect::<Vec<_>>(), ["grandchild-handler"]);

    broken.faults.mend("grandchild 0 in another way");
    assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn run_above_two_failed_ones_is_blocked_by_those_that_no_operator_has_repaired() -> Result<()> {
    let broken = Broken::by(&["child 0", "other child 0"], two_children).await?;
    let blocking = async || -> Result<Vec<uuid::Uuid>> {
        broken.views_agree().await?;
        let root = broken.failed("root-handler").await?;
        assert_eq!(root.status, RepairStatus::BlockedByDescendant);
        Ok(root.failed_below.iter().map(|run| run.uuid()).collect())
    };
    let mut children = [broken.failed("child-handler").await?, broken.failed("other-child-handler").await?];
    children.sort_by_key(|child| (child.at, child.id().uuid()));
    assert_eq!(blocking().await?, children.map(|child| child.id().uuid()), "the oldest failure first");

    let child = broken.failed("child-handler").await?.lineage;
    let other = broken.id_of("other-child-handler").await?;
    broken.faults.mend("child 0");
    assert_eq!(broken.scoop.retry(child.id()).await?, RepairAnswer::Accepted);
    let child_is_undone = |tree: &scoop::Tree| {
        let mut runs = tree.runs().into_iter();
        runs.any(|run| run.lineage == child && matches!(run.state, RunState::RolledBack(_)))
    };
    broken.root.comes_to(child_is_undone).await?;
    assert_eq!(blocking().await?, [other]);
    assert_eq!(broken.scoop.retry(other).await?, RepairAnswer::Accepted);
    broken.root.comes_to(|tree| tree.to_string().contains("its rollback failed again")).await?;
    assert_eq!(blocking().await?, [other]);

    assert_eq!(broken.scoop.resolve(other, "").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_of_a_repair_gets_the_answer_of_the_request_and_changes_nothing() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    let scoop = &broken.scoop;
    let state = async || {
        let runs = scoop.runs().await?.runs;
        Ok::<_, Error>((format!("{runs:?}"), broken.failed_parts().await?, broken.listed().await?))
    };
    let before = state().await?;
    let [grandchild, root] = [broken.id_of("grandchild-handler").await?, broken.id_of("root-handler").await?];
    for (run, retried) in [(grandchild, RepairAnswer::Accepted), (root, RepairAnswer::FailedBelow)] {
        assert_eq!(broken.answers(run).await?, [retried, RepairAnswer::Accepted, RepairAnswer::Accepted]);
    }
    assert_eq!(broken.explained(grandchild).await?.1, RunRequest::REPAIRS);
    assert_eq!(broken.explained(root).await?.1, [], "the grandchild comes first");
    assert_eq!(state().await?, before);
    assert!(scoop.interventions(broken.root.id()).await?.is_empty());
    assert_eq!(scoop.retry(root).await?, RepairAnswer::FailedBelow);
    broken.faults.mend("grandchild 0");
    assert_eq!(scoop.retry(grandchild).await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    assert_eq!(scoop.retry(grandchild).dry_run().await?, RepairAnswer::NotFailed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ancestor_of_a_run_awaiting_an_operator_can_be_resolved() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
    let held = |tree: &scoop::Tree| tree.to_string().contains("its rollback failed again");
    broken.root.comes_to(held).await?;
    let child = broken.id_of("child-handler").await?;
    assert_eq!(broken.scoop.resolve(child, "").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_operators_at_once_one_is_heard() -> Result<()> {
    let broken = Broken::by(&["root 1"], alone).await?;
    broken.faults.mend("root 1");
    let run = broken.id_of("root-handler").await?;
    let clients: Vec<_> = (0..4).map(|_| broken.db.client()).collect();
    let requests = clients.iter().map(|client| {
        let request = client.retry(run).into_future();
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
async fn lists_come_in_pages() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    let all = broken.scoop.failed_compensations().await?;
    let mut paged: Vec<FailedCompensation> = vec![];
    loop {
        let page = broken.scoop.failed_compensations().limit(2);
        let page = match paged.last() {
            Some(last) => page.after(last).await?,
            None => page.await?,
        };
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    let lineages = |list: &[FailedCompensation]| {
        list.iter().map(|failed| failed.lineage.clone()).collect::<Vec<Lineage>>()
    };
    assert_eq!(lineages(&paged), lineages(&all));
    assert!(all.is_sorted_by(|a, b| a.at >= b.at));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_a_failed_rollback_cannot_be_repaired() -> Result<()> {
    let db = Database::new().await;
    let scoop = alone(db.scoop(), &Faults::default()).start().await?;
    let root = scoop.launch(Root).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    let run = root.tree().await?.roots()[0].lineage.id();
    assert_eq!(scoop.retry(run).await?, RepairAnswer::NotFailed);
    assert_eq!(scoop.skip(run, "").await?, RepairAnswer::NotFailed);
    assert_eq!(scoop.resolve(run, "").await?, RepairAnswer::NotFailed);
    assert!(scoop.interventions(root.id()).await?.is_empty());
    let unknown = uuid::Uuid::new_v4();
    assert!(matches!(scoop.retry(unknown).await, Err(RuntimeError::NoSuchRun { id }) if id == unknown));
    Ok(())
}

/// What operators see of failed rollbacks. The audit of the history compares it with the record.
mod seen_by_operators {
    use scoop::RunPhase;

    use super::*;

    /// The number of listed failures, and of runs that await an operator.
    async fn seen(broken: &Broken) -> Result<[usize; 2]> {
        broken.db.history().await;
        let counts = broken.scoop.counts().await?.unfinished;
        let states = [RunPhase::RollbackFailed, RunPhase::AwaitingOperator];
        let awaiting = counts.iter().filter(|count| states.contains(&count.phase));
        let listed = broken.scoop.failed_compensations().await?.len();
        Ok([listed, awaiting.map(|count| count.count).sum()])
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failure_is_seen_until_a_retry_a_skip_or_a_resolve_settles_it() -> Result<()> {
        for action in ["retry", "skip", "resolve"] {
            let broken = Broken::by(&["child 0"], two_levels).await?;
            assert_eq!(seen(&broken).await?, [2, 2], "the child and the root");
            let child = broken.id_of("child-handler").await?;
            broken.faults.mend("child 0");
            let answer = match action {
                "retry" => broken.scoop.retry(child).await?,
                "skip" => broken.scoop.skip(child, "").await?,
                _ => broken.scoop.resolve(child, "").await?,
            };
            assert_eq!(answer, RepairAnswer::Accepted);
            broken.is_undone().await?;
            assert_eq!(seen(&broken).await?, [0, 0], "{action}");
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failure_is_seen_once_while_it_is_repaired_and_after_it_failed_again() -> Result<()> {
        let broken = Broken::by(&["root 1"], alone).await?;
        assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
        broken.root.comes_to(awaits_operator).await?;
        assert_eq!(seen(&broken).await?, [1, 1]);
        let run = broken.id_of("root-handler").await?;
        assert_eq!(broken.scoop.resolve(run, "").await?, RepairAnswer::Accepted);
        assert_eq!(seen(&broken).await?, [0, 0]);
        broken.is_undone().await
    }

    /// The parent goes on in spite of it; only an operator settles it.
    #[tokio::test(flavor = "multi_thread")]
    async fn failure_below_a_skipped_run_is_seen_until_it_is_resolved() -> Result<()> {
        let broken = Broken::by(&["grandchild 0"], three_levels).await?;
        assert_eq!(seen(&broken).await?, [3, 3]);
        let child = broken.id_of("child-handler").await?;
        assert_eq!(broken.scoop.skip(child, "").await?, RepairAnswer::Accepted);
        assert!(matches!(broken.root.ends().await?, Outcome::RolledBack(_)));
        assert_eq!(seen(&broken).await?, [1, 1]);
        let grandchild = broken.id_of("grandchild-handler").await?;
        assert_eq!(broken.scoop.resolve(grandchild, "").await?, RepairAnswer::Accepted);
        assert_eq!(seen(&broken).await?, [0, 0]);
        broken.is_undone().await
    }
}

/// A wait ends where only an operator makes the runs of the message go on, after each failure.
mod waits {
    use std::pin::pin;

    use scoop::Status;

    use super::*;

    /// The failure of a compensation with one of these faults.
    fn check(faults: &Faults) -> Result<()> {
        if faults.has("another way") {
            return Err(IllegalStateException("it is broken in another way").into());
        }
        faults.check("one way")
    }

    handler! {
        /// Fails, and stops at the gate in its compensation.
        Held { faults: Faults, gate: Gate }: "root-handler" on Root;
        step "0" zero [rollback = undo] => done().silently();
        step "1" one => fails(SIMULATED).silently();

        async fn undo(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            self.gate.pass().await;
            check(&self.faults)
        }
    }

    handler! {
        /// Fails after its child.
        Above: "root-handler" on Root;
        step "0" zero => launches(Child).silently();
        step "1" one => fails(SIMULATED).silently();
    }

    handler! {
        /// Stops at the gate in its compensation.
        HeldBelow { faults: Faults, gate: Gate }: "child-handler" on Child;
        step "0" zero [rollback = undo] => done().silently();

        async fn undo(&self, _: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
            self.gate.pass().await;
            check(&self.faults)
        }
    }

    handler! {
        /// Another handler of the message. It takes until its gate is open.
        Slow(gate): "slow-handler" on Root;
        step "0" zero => at_gate().silently();
    }

    /// Retries the compensation of this handler. Returns what a wait returns that is in flight meanwhile.
    async fn outcome_of_retry(broken: &Broken, handler: &str, gate: &Gate) -> Result<Outcome> {
        assert_eq!(broken.retry(handler).await?, RepairAnswer::Accepted);
        let mut waiting = pin!(broken.root.ends());
        tokio::select! {
            biased;
            outcome = &mut waiting => panic!("the repair is in progress: {outcome:?}"),
            () = gate.arrivals(1) => {}
        }
        assert_eq!(broken.root.status().await?, Status::Unfinished);
        gate.open(1);
        Ok(waiting.await?)
    }

    /// The wait is that of the process that executes the run, and of another one. Returns the outcome after the second failure.
    async fn ends_after_each_failure(
        handler: &str,
        configure: impl Fn(scoop::Builder, &Faults, &Gate) -> scoop::Builder,
    ) -> Result<Outcome> {
        let gate = Gate::default();
        gate.open(1);
        let broken = Broken::by(&["one way"], |builder, faults| configure(builder, faults, &gate)).await?;
        gate.arrivals(1).await;
        let elsewhere = broken.db.client().find(broken.root.id()).await?;
        assert!(matches!(elsewhere.ends().await?, Outcome::RollbackFailed(_)));

        broken.faults.add("another way");
        let again = outcome_of_retry(&broken, handler, &gate).await?;
        assert!(matches!(again, Outcome::RollbackFailed(_)), "{again:?}");
        assert_eq!(broken.root.status().await?, Status::Ended(again.clone()));
        for handle in [&broken.root, &elsewhere] {
            assert_eq!(handle.ends().await?, again);
        }

        broken.faults.mend("another way");
        broken.faults.mend("one way");
        let repaired = outcome_of_retry(&broken, handler, &gate).await?;
        assert!(matches!(repaired, Outcome::RolledBack(_)), "{repaired:?}");
        assert_eq!(elsewhere.ends().await?, repaired);
        broken.is_undone().await?;
        Ok(again)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wait_for_a_run_ends_after_each_failure_with_the_latest() -> Result<()> {
        let again = ends_after_each_failure("root-handler", |builder, faults, gate| {
            builder.only::<Held>().provide(Held { faults: faults.clone(), gate: gate.clone() })
        });
        let Outcome::RollbackFailed(failed) = again.await? else { panic!("it failed again") };
        assert_eq!(failed.failure.message, "it is broken in another way");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wait_for_a_run_above_ends_after_each_failure_below() -> Result<()> {
        let again = ends_after_each_failure("child-handler", |builder, faults, gate| {
            let below = HeldBelow { faults: faults.clone(), gate: gate.clone() };
            builder.only::<Above>().only::<HeldBelow>().provide(below)
        });
        again.await?;
        Ok(())
    }

    /// No further rollback fails. The end of the repaired child leaves only the other one.
    #[tokio::test(flavor = "multi_thread")]
    async fn repair_of_one_of_two_failures_ends_the_wait_for_both() -> Result<()> {
        let broken = Broken::by(&["child 0", "other child 0"], two_children).await?;
        for (handler, fault) in [("child-handler", "child 0"), ("other-child-handler", "other child 0")] {
            let outcome = broken.root.ends().await?;
            assert!(matches!(outcome, Outcome::RollbackFailed(_)), "before that of {handler}: {outcome:?}");
            broken.faults.mend(fault);
            assert_eq!(broken.retry(handler).await?, RepairAnswer::Accepted);
        }
        broken.is_undone().await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn repair_of_one_of_two_failures_holds_up_no_wait_until_both_are_repaired() -> Result<()> {
        let gate = Gate::default();
        gate.open(1);
        let broken = Broken::by(&["one way", "other child 0"], |builder, faults| {
            let below = HeldBelow { faults: faults.clone(), gate: gate.clone() };
            let other = OtherChildHandler { faults: faults.clone() };
            let builder = builder.only::<Above>().only::<HeldBelow>().provide(below);
            builder.only::<OtherChildHandler>().provide(other)
        })
        .await?;
        gate.arrivals(1).await;
        assert_eq!(broken.retry("child-handler").await?, RepairAnswer::Accepted);
        gate.arrivals(1).await;
        let status = broken.root.status().await?;
        assert!(matches!(status, Status::Ended(Outcome::RollbackFailed(_))), "{status:?}");
        assert_eq!(Status::Ended(broken.root.ends().await?), status);

        let other = broken.failed("other-child-handler").await?.lineage;
        broken.faults.mend("other child 0");
        assert_eq!(broken.retry("other-child-handler").await?, RepairAnswer::Accepted);
        let other_is_undone = |tree: &scoop::Tree| {
            let mut runs = tree.runs().into_iter();
            runs.any(|run| run.lineage == other && matches!(run.state, RunState::RolledBack(_)))
        };
        broken.root.comes_to(other_is_undone).await?;
        assert_eq!(broken.root.status().await?, Status::Unfinished, "the last repair is in progress");
        broken.faults.mend("one way");
        gate.open(1);
        broken.is_undone().await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wait_for_another_handler_goes_on_after_a_failure() -> Result<()> {
        let (db, faults, gate) = (Database::new().await, Faults::of(&["root 1"]), Gate::default());
        let builder = alone(db.scoop(), &faults).only::<Slow>().provide(Slow { gate: gate.clone() });
        let scoop = builder.start().await?;
        let root = scoop.launch(Root).await?;
        gate.arrivals(1).await;
        let failed = |tree: &scoop::Tree| {
            tree.roots().iter().any(|run| matches!(run.state, RunState::RollbackFailed(_)))
        };
        root.comes_to(failed).await?;
        let broken = Broken { db, faults, scoop, root };
        assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
        let failed_again = |tree: &scoop::Tree| {
            tree.roots().iter().any(|run| matches!(run.state, RunState::AwaitingOperator { .. }))
        };
        broken.root.comes_to(failed_again).await?;
        let mut waiting = pin!(broken.root.ends());
        tokio::select! {
            biased;
            outcome = &mut waiting => panic!("a run goes on: {outcome:?}"),
            status = broken.root.status() => assert_eq!(status?, Status::Unfinished),
        }
        gate.open(1);
        assert!(matches!(waiting.await?, Outcome::RollbackFailed(_)));
        broken.faults.mend("root 1");
        assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
        broken.is_undone().await
    }
}

mod messages_of_compensations {
    use super::*;

    handler! {
        /// Its compensation launches a message.
        Compensating { faults: Faults }: "root-handler" on Root;
        step "0" zero [rollback = undo] => done();

        #[step(name = "1")]
        async fn one(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.faults.check("root 1 goes on")
        }

        rollback undo => launches(Child);
    }

    fn sagas(builder: scoop::Builder, faults: &Faults) -> scoop::Builder {
        let builder = builder.only::<Compensating>().provide(Compensating { faults: faults.clone() });
        builder.only::<ChildHandler>().provide(ChildHandler { faults: faults.clone() })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_compensation_whose_message_failed_runs_again_as_a_whole() -> Result<()> {
        let broken = Broken::by(&["root 1 goes on", "child 1 goes on"], sagas).await?;
        assert_eq!(broken.listed().await?, [("root-handler".into(), RepairStatus::Undecided)]);
        broken.faults.mend("child 1 goes on");
        assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
        broken.is_undone().await?;
        calls_of(&broken.root).expect(
            "invoke root-handler/0
            rollback root-handler/0
            invoke child-handler/0
            invoke child-handler/1
            rollback child-handler/0
            rollback root-handler/0
            invoke child-handler/0
            invoke child-handler/1",
        );
        Ok(())
    }

    /// A retry of the message only undoes that. The compensation has to run again.
    #[tokio::test(flavor = "multi_thread")]
    async fn compensation_whose_message_was_undone_is_not_done() -> Result<()> {
        let broken = Broken::by(&["root 1 goes on", "child 1 goes on", "child 0"], sagas).await?;
        broken.faults.mend("child 0");
        assert_eq!(broken.retry("child-handler").await?, RepairAnswer::Accepted);
        broken.root.comes_to(awaits_operator).await?;
        assert_eq!(broken.listed().await?, [("root-handler".into(), RepairStatus::Undecided)]);
        assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
        let again = |tree: &scoop::Tree| awaits_operator(tree) && tree.runs().len() == 3;
        broken.root.comes_to(again).await?;

        broken.faults.mend("child 1 goes on");
        assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
        broken.is_undone().await?;
        let compensations = calls_of(&broken.root).of(&["root-handler"]).count();
        assert_eq!(compensations, 1 + 3, "one step, and its compensation three times");
        Ok(())
    }
}

mod accepted {
    use super::*;

    handler! {
        /// Accepts the failures of its children.
        Accepting: "root-handler" on Root;
        step "0" zero [on_child_failure = accept] => launches(Child);

        async fn accept(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn child_with_an_accepted_failure_can_be_repaired() -> Result<()> {
        let db = Database::new().await;
        let faults = Faults::of(&["child 1 goes on", "child 0"]);
        let child = ChildHandler { faults: faults.clone() };
        let scoop = db.scoop().only::<Accepting>().only::<ChildHandler>().provide(child).start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        let [failed] = &*scoop.failed_compensations().await? else { panic!("one failed") };
        faults.mend("child 0");
        assert_eq!(scoop.retry(failed.lineage.id()).await?, RepairAnswer::Accepted);
        let undone =
            |tree: &scoop::Tree| matches!(tree.roots()[0].children[0].state, RunState::RolledBack(_));
        root.comes_to(undone).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        assert_eq!(db.unfinished().await, 0);
        Ok(())
    }
}

mod deadlines {
    use std::time::Duration;

    use super::*;

    handler! {
        /// Its first compensation takes until the deadline, the first time.
        Late: "root-handler" on Root;
        step "0" zero [rollback = undo] => done().silently();
        step "1" one [rollback = undo_late] => done().silently();
        step "2" two => fails(SIMULATED).silently();
        rollback undo => done();

        async fn undo_late(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            if compensated(scope) == 0 {
                scope.stop_signal().raised().await;
            }
            Ok(())
        }
    }

    handler! {
        /// Fails once its gate is open.
        Waiting(gate): "waiting-handler" on Root;
        step "0" zero [rollback = undo] => launches(Child).silently();
        step "1" one => at_gate().then(fails(SIMULATED)).silently();
        rollback undo => done();
    }

    /// No process could undo the child by the deadline. The retry still undoes it.
    #[tokio::test(flavor = "multi_thread")]
    async fn abandoned_child_is_undone_when_the_rollback_is_retried() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = db.start((Waiting { gate: gate.clone() },)).await?;
        let faults = Faults::default();
        let below = async || {
            let child = ChildHandler { faults: faults.clone() };
            db.scoop().only::<ChildHandler>().provide(child).start().await
        };
        let first = below().await?;
        let root = scoop.launch(Root).rollback_deadline(Duration::from_secs(2)).await?;
        gate.arrivals(1).await;
        first.shutdown().await?;
        gate.open(1);
        let outcome = root.ends().await?;
        assert!(matches!(outcome, Outcome::RollbackFailed(_)), "{outcome:?}");
        let _second = below().await?;
        let broken = Broken { root, scoop, db, faults };
        assert_eq!(broken.retry("waiting-handler").await?, RepairAnswer::Accepted);
        broken.is_undone().await?;
        calls_of(&broken.root).expect(
            "invoke child-handler/0
            invoke child-handler/1
            rollback child-handler/0
            rollback waiting-handler/0",
        );
        Ok(())
    }

    handler! {
        /// Fails because of its child, which has a deadline.
        Top: "top-handler" on Root;

        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.launch(Child).rollback_deadline(Duration::from_secs(2)).await?;
            Ok(())
        }
    }

    handler! {
        /// Has its child undone, until its deadline.
        Above: "above-handler" on Child;
        step "0" zero => launches(Grandchild).silently();
        step "1" one => fails(SIMULATED).silently();
    }

    handler! {
        /// Its compensation fails once its gate is open.
        Below(gate): "below-handler" on Grandchild;
        step "0" zero [rollback = undo] => done().silently();
        rollback undo => at_gate().then(fails(SIMULATED)).silently();
    }

    /// The deadline, and not the child, is why the run above failed. So that run does not wait for the repair of the child, as the
    /// one at the top does for both.
    #[tokio::test(flavor = "multi_thread")]
    async fn explanation_of_a_run_above_one_in_repair_advises_no_refused_request() -> Result<()> {
        let (db, gate) = (Database::new().await, Gate::default());
        let scoop = db.start((Top, Above, Below { gate: gate.clone() })).await?;
        let root = scoop.launch(Root).await?;
        gate.arrivals(1).await;
        let above = scoop.runs().handler("above-handler").await?.runs.remove(0).run.uuid();
        eventually("its deadline has passed", async || {
            scoop.explain(above).await.expect("the database answers").runs[0].giving_up
        })
        .await;
        let broken = Broken { root, scoop, db, faults: Faults::default() };
        let scoop = &broken.scoop;
        for run in scoop.runs().await?.runs {
            let (run, offered) = broken.explained(run.run.uuid()).await?;
            assert!(
                !offered.iter().any(|request| RunRequest::REPAIRS.contains(request)),
                "no rollback has failed: {run}"
            );
        }
        gate.open(1);
        assert!(matches!(broken.root.ends().await?, Outcome::RollbackFailed(_)));
        let (top, below) = (broken.id_of("top-handler").await?, broken.id_of("below-handler").await?);
        // The runs that the explanation names in place of one without an offered decision.
        let named = async |run: uuid::Uuid| {
            let (run, offered) = broken.explained(run).await?;
            assert_eq!(offered, [], "{run}");
            assert_eq!(run.kind(), run.run.waits_for, "{run}");
            let (is_in_repair, below) = match &run.reason {
                WaitReason::Repair { below, has_more_below: false } => (true, below),
                WaitReason::Operator { failed_below, has_more_below: false, .. } => (false, failed_below),
                _ => panic!("{run:?}"),
            };
            let below: Vec<_> = below.iter().map(|below| below.run.uuid()).collect();
            Ok::<_, Error>((is_in_repair, below, run))
        };

        for run in [top, above] {
            let (is_in_repair, first, _) = named(run).await?;
            assert_eq!((is_in_repair, first), (false, vec![below]));
        }
        assert_eq!(broken.explained(below).await?.1, RunRequest::REPAIRS);

        assert_eq!(broken.retry("below-handler").await?, RepairAnswer::Accepted);
        gate.arrivals(1).await;
        let ends = [
            (top, RunPhase::Waiting, "It goes on when all its children have ended."),
            (
                above,
                RunPhase::AwaitingOperator,
                "An operator can decide about it when that repair has ended.",
            ),
        ];
        for (run, phase, end) in ends {
            let (is_in_repair, repaired, run) = named(run).await?;
            assert_eq!((is_in_repair, repaired), (true, vec![below]));
            assert_eq!(broken.failed(&run.run.handler).await?.status, RepairStatus::InProgress);
            assert_eq!(run.run.phase, phase);
            let text = run.to_string();
            let waits = format!("waits for the repair of the run {below} of `below-handler`, for ");
            assert!(text.contains(&waits) && text.ends_with(end) && !text.contains("`retry`"), "{text}");
        }

        gate.open(1);
        let failed_again = |tree: &scoop::Tree| tree.to_string().contains("its rollback failed again");
        broken.root.comes_to(failed_again).await?;
        for run in [top, above] {
            let (is_in_repair, first, _) = named(run).await?;
            assert_eq!((is_in_repair, first), (false, vec![below]));
        }
        assert_eq!(broken.explained(below).await?.1, RunRequest::REPAIRS);

        assert_eq!(scoop.resolve(below, "by hand").await?, RepairAnswer::Accepted);
        let (is_in_repair, first, _) = named(top).await?;
        assert_eq!((is_in_repair, first), (false, vec![above]));
        let (run, offered) = broken.explained(above).await?;
        assert_eq!(offered, RunRequest::REPAIRS);
        assert!(run.to_string().contains(&format!("`retry`, `skip` or `resolve` the run {above}.")), "{run}");
        assert_eq!(scoop.resolve(above, "by hand").await?, RepairAnswer::Accepted);
        broken.is_undone().await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_rollback_that_took_too_long_goes_on_without_the_deadline() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Late,)).await?;
        let launch = scoop.launch(Root).rollback_deadline(Duration::from_secs(2));
        let broken = Broken { root: launch.await?, scoop, db, faults: Faults::default() };
        assert!(matches!(broken.root.ends().await?, Outcome::RollbackFailed(_)));
        assert_eq!(broken.failed("root-handler").await?.step, "Rollback of 1[0,]");
        assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
        broken.is_undone().await?;
        calls_of(&broken.root).expect(
            "rollback root-handler/1
            rollback root-handler/1
            rollback root-handler/0",
        );
        Ok(())
    }
}

/// Decisions wait for runs that are in progress, and explanations name these.
mod waiting_decisions {
    use super::*;

    /// The runs for which decisions about a run wait, with the text of the explanation.
    async fn waits(broken: &Broken, run: uuid::Uuid) -> Result<(Vec<uuid::Uuid>, String)> {
        assert_eq!(broken.answers(run).await?, [RepairAnswer::StillRunning; 3]);
        let (run, offered) = broken.explained(run).await?;
        assert_eq!(offered, [], "{run}");
        let WaitReason::Repair { below, has_more_below: false } = &run.reason else { panic!("{run:?}") };
        assert_eq!((run.kind(), run.run.waits_for), (Some(WaitKind::Operator), Some(WaitKind::Operator)));
        Ok((below.iter().map(|below| below.run.uuid()).collect(), run.to_string()))
    }

    handler! {
        /// Another handler of the message of the child. Its compensation takes until its gate is open.
        Slow(gate): "slow-handler" on Child;
        step "0" zero [rollback = undo] => done().silently();
        rollback undo => at_gate().silently();
    }

    /// The child has failed because of the grandchild. The root records that when its other child has ended.
    #[tokio::test(flavor = "multi_thread")]
    async fn decision_below_an_unrecorded_failure_is_not_offered_until_it_is_recorded() -> Result<()> {
        let (db, gate, faults) = (Database::new().await, Gate::default(), Faults::of(&["grandchild 0"]));
        let builder = three_levels(db.scoop(), &faults).only::<Slow>().provide(Slow { gate: gate.clone() });
        let scoop = builder.start().await?;
        let root = scoop.launch(Root).await?;
        let broken = Broken { db, faults, scoop, root };
        gate.arrivals(1).await;
        eventually("the child has failed", async || {
            broken.listed().await.expect("the database answers").len() == 2
        })
        .await;
        let grandchild = broken.id_of("grandchild-handler").await?;
        for run in [grandchild, broken.id_of("child-handler").await?] {
            let (below, text) = waits(&broken, run).await?;
            assert!(below.is_empty(), "{below:?}");
            assert!(text.contains("waits until the runs above it have recorded its failure, for "), "{text}");
            let end = "An operator can decide about it when the runs above it have recorded its failure.";
            assert!(text.ends_with(end), "{text}");
        }
        gate.open(1);
        assert!(matches!(broken.root.ends().await?, Outcome::RollbackFailed(_)));
        assert_eq!(broken.explained(grandchild).await?.1, RunRequest::REPAIRS);
        broken.faults.mend("grandchild 0");
        assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
        broken.is_undone().await
    }

    handler! {
        /// Accepts the failure of its child, and fails then.
        Accepting { faults: Faults }: "root-handler" on Root;
        step "0" zero [rollback = undo, on_child_failure = accept] => launches(Child).silently();
        step "1" one => fails(SIMULATED).silently();

        async fn undo(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            self.faults.check("root 0")
        }

        async fn accept(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            Ok(())
        }
    }

    handler! {
        /// Its compensation launches a message.
        Launching { faults: Faults }: "child-handler" on Child;
        step "0" zero [rollback = undo] => done().silently();
        step "1" one => fails(SIMULATED).silently();

        async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
            self.faults.check("child 0")?;
            scope.launch(Grandchild).await?;
            Ok(())
        }
    }

    handler! {
        /// Takes until its gate is open.
        Launched(gate): "launched-handler" on Grandchild;
        step "0" zero => at_gate().silently();
    }

    /// The root does not wait for the child, whose failure it has accepted.
    #[tokio::test(flavor = "multi_thread")]
    async fn decision_above_an_unfinished_run_is_not_offered_until_that_ends() -> Result<()> {
        let gate = Gate::default();
        let broken = Broken::by(&["root 0", "child 0"], |builder, faults| {
            let builder = builder.only::<Accepting>().provide(Accepting { faults: faults.clone() });
            let builder = builder.only::<Launching>().provide(Launching { faults: faults.clone() });
            builder.only::<Launched>().provide(Launched { gate: gate.clone() })
        })
        .await?;
        let root = broken.id_of("root-handler").await?;
        assert_eq!(broken.explained(root).await?.1, RunRequest::REPAIRS);
        broken.faults.mend("child 0");
        assert_eq!(broken.retry("child-handler").await?, RepairAnswer::Accepted);
        gate.arrivals(1).await;
        let launched = broken.scoop.runs().handler("launched-handler").await?.runs.remove(0).run.uuid();
        let (below, text) = waits(&broken, root).await?;
        assert_eq!(below, [launched]);
        let waits = format!("waits for the end of the run {launched} of `launched-handler`, for ");
        assert!(text.contains(&waits), "{text}");
        assert!(text.ends_with("An operator can decide about it when these runs have ended."), "{text}");
        gate.open(1);
        eventually("the child is undone", async || broken.db.unfinished().await == 0).await;
        assert_eq!(broken.explained(root).await?.1, RunRequest::REPAIRS);
        broken.faults.mend("root 0");
        assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
        broken.is_undone().await
    }
}

mod by_chance {
    use super::*;

    const FAULTS: [&str; 6] =
        ["root 0", "root 1", "child 0", "child 1 goes on", "other child 0", "grandchild 0"];

    /// Pseudo-random numbers.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % limit
        }
    }

    fn all(builder: scoop::Builder, faults: &Faults) -> scoop::Builder {
        let grandchild = GrandchildHandler { faults: faults.clone() };
        two_children(builder, faults).only::<GrandchildHandler>().provide(grandchild)
    }

    /// Waits until every unfinished run waits for other runs or for an operator.
    async fn is_at_rest(db: &Database) {
        eventually("nothing can go on", async || db.able_to_go_on().await == 0).await;
    }

    /// A random repair of a random failed run.
    async fn intervene(broken: &Broken, chance: &mut Chance) -> Result<RepairAnswer> {
        let listed = broken.scoop.failed_compensations().await?;
        let Some(failed) = listed.get(chance.below(listed.len().max(1))) else {
            return Ok(RepairAnswer::NotFailed);
        };
        let run = failed.lineage.id();
        Ok(match chance.below(4) {
            0 | 1 => broken.scoop.retry(run).await?,
            2 => broken.scoop.skip(run, "by chance").await?,
            _ => broken.scoop.resolve(run, "by chance").await?,
        })
    }

    /// Repairs at random, while faults are mended and the working set is rebuilt now and then. Once all failures are
    /// settled, the hierarchy is undone, and nothing is left over.
    async fn ends(seed: u64) -> Result<()> {
        println!("seed {seed}");
        let mut chance = Chance(seed);
        let mut faults = vec![FAULTS[chance.below(3)], FAULTS[4 + chance.below(2)]];
        faults.extend((chance.below(2) == 0).then_some(FAULTS[3]));
        let mut broken = Broken::by(&faults, all).await?;
        for _ in 0..4 {
            for _ in 0..=chance.below(2) {
                intervene(&broken, &mut chance).await?;
            }
            is_at_rest(&broken.db).await;
            if !faults.is_empty() && chance.below(2) == 0 {
                broken.faults.mend(faults.swap_remove(chance.below(faults.len())));
            }
            if chance.below(2) == 0 {
                broken.scoop.shutdown().await?;
                broken.db.client().rebuild_working_set().await?;
                let scoop = all(broken.db.scoop(), &broken.faults).start().await?;
                broken = Broken { root: scoop.find(broken.root.id()).await?, scoop, ..broken };
                is_at_rest(&broken.db).await;
            }
        }
        while let Some(failed) = broken.scoop.failed_compensations().await?.pop() {
            let answer = broken.scoop.resolve(failed.lineage.id(), "at last").await?;
            assert_eq!(answer, RepairAnswer::Accepted, "{}", broken.root.tree().await?);
            is_at_rest(&broken.db).await;
        }
        broken.is_undone().await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn hierarchy_can_be_undone_after_random_repairs() -> Result<()> {
        for seed in 10..16 {
            ends(seed).await?;
        }
        Ok(())
    }
}
