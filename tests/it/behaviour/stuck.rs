//! Runs that the program at hand cannot continue: they wait for one that can.

use scoop::operate::{WaitKind, WaitReason};
use scoop::requests::{CancelAnswer, RepairAnswer, RunRequest};
use scoop::tree::{RunState, Tree};
use scoop::{Handle, RunPhase};

use super::*;
use crate::support::Database;

/// The saga as it was.
mod before {
    use super::*;

    handler! {
        pub(super) Checkout: "checkout" on Root;
        step "reserve" reserve [rollback = undo] => launches(Child);
        step "charge" charge => done();
        rollback undo => done();
    }
}

handler! {
    /// Handles the message of the first step.
    ChildHandler: "child-handler" on Child;
    step "0" zero => done();
}

/// The first step is gone, and another one stands in its place.
mod shorter {
    use super::*;

    handler! {
        pub(super) Checkout: "checkout" on Root;
        step "other" other => done();
    }
}

/// The second step fails, and the first is gone.
mod renamed {
    use super::*;

    handler! {
        pub(super) Checkout: "checkout" on Root;
        step "charge" charge => fails(SIMULATED);
    }
}

/// The first step is back at its place, but does nothing; the message is not read.
mod emptied {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    pub(super) struct Anything(serde_json::Value);

    handler! {
        pub(super) Checkout: "checkout" on Anything;
        step "reserve" reserve [rollback = nothing] => done();
        step "other" other => done();
        rollback nothing => done();
    }
}

/// The message has got a field.
mod demanding {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    pub(super) struct Priced {
        price: u32,
    }

    handler! {
        pub(super) Checkout: "checkout" on Priced;
        step "reserve" reserve => done();

        #[step]
        async fn charge(&self, _: &mut Scope<'_>, message: &Priced) -> Result<()> {
            panic!("where does {} come from?", message.price);
        }
    }
}

/// A run after its first step, which waits for a child without a running handler. The handle is
/// that of a client.
async fn left_half_way(db: &Database) -> Result<Handle> {
    db.start((ChildHandler,)).await?.shutdown().await?;
    let scoop = db.start((before::Checkout,)).await?;
    let root = scoop.launch(Root).await?;
    root.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::Waiting)).await?;
    scoop.shutdown().await?;
    Ok(db.client().find(root.id()).await?)
}

/// Waits until the run is stuck, and returns the reason.
async fn reason(root: &Handle) -> Result<String> {
    let stuck = |tree: &Tree| matches!(tree.roots()[0].state, RunState::Stuck { .. });
    let tree = root.comes_to(stuck).await?;
    match &tree.roots()[0].state {
        RunState::Stuck { reason } => Ok(reason.clone()),
        other => unreachable!("{other}"),
    }
}

/// Asserts that such a program makes the run stuck, but no others, and that the run goes on with a
/// program that fits.
async fn stuck_with<S: Saga>(other: impl Message, why: &str) -> Result<()> {
    let db = Database::new().await;
    let root = left_half_way(&db).await?;
    let scoop = db.scoop().only::<S>().only::<ChildHandler>().start().await?;
    let reason = reason(&root).await?;
    assert!(reason.contains(why), "{reason}");
    assert!(root.tree().await?.to_string().contains(&format!("STUCK: {reason}")));

    let other = scoop.launch(other).await?;
    assert_ne!(other.ends().await?, Outcome::NoHandlers);
    scoop.shutdown().await?;

    let _fitting = db.start((before::Checkout, ChildHandler)).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    db.history().await.about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN checkout ·
        M0 SUSPENDED checkout reserve next=1
        M0 SUSPENDED checkout charge
        M0 COMMITTED checkout charge",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_run_is_listed_and_explained_with_its_reason() -> Result<()> {
    let db = Database::new().await;
    let root = left_half_way(&db).await?;
    let scoop = db.scoop().only::<shorter::Checkout>().only::<ChildHandler>().start().await?;
    let reason = reason(&root).await?;
    assert!(reason.contains("no step `reserve` any more"), "{reason}");
    let explanation = scoop.operate().runs().explain(root.id()).await?;
    let [run] = &explanation.runs[..] else { panic!("{explanation}") };
    let WaitReason::Program { why: Some(why), .. } = &run.reason else { panic!("{run:?}") };
    assert_eq!(*why, reason);
    let text = run.to_string();
    let (_, said) = text.split_once("waits for a program that can continue it, for ").expect("it says so");
    assert_eq!(said.matches(&reason).count(), 1, "{text}");
    let listed = scoop.operate().runs().list().waiting_for(WaitKind::Program).await?.runs;
    let [listed] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((listed.run, listed.phase), (run.run.run, RunPhase::Stuck));
    assert_eq!(listed.reason, Some(reason));
    scoop.shutdown().await?;

    let fitting = db.start((before::Checkout, ChildHandler)).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(fitting.operate().runs().explain(root.id()).await?.runs[0].reason, WaitReason::Ended);
    assert_eq!(fitting.operate().runs().list().waiting_for(WaitKind::Program).await?.runs, []);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_a_replaced_completed_step_waits_for_its_return() -> Result<()> {
    stuck_with::<shorter::Checkout>(Root, "no step `reserve` any more").await
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_an_unreadable_message_waits_for_a_fitting_program() -> Result<()> {
    stuck_with::<demanding::Checkout>(Root, "does not fit the message type of saga `checkout`").await
}

/// The program continues with the next step, which fails; the step to undo does not exist any more.
#[tokio::test(flavor = "multi_thread")]
async fn rollback_past_a_removed_step_waits_for_its_return() -> Result<()> {
    let db = Database::new().await;
    let root = left_half_way(&db).await?;
    let scoop = db.start((renamed::Checkout, ChildHandler)).await?;
    let reason = reason(&root).await?;
    assert!(reason.contains("saga `checkout` has no step `reserve`"), "{reason}");
    scoop.shutdown().await?;

    let _fitting = db.start((before::Checkout, ChildHandler)).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    db.history().await.about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN checkout ·
        M0 SUSPENDED checkout reserve next=1
        M0 ROLLING_BACK checkout charge
        M0 SUSPENDED checkout RBC(reserve[0,])
        M0 SUSPENDED checkout RB(reserve[0,])
        M0 ROLLED_BACK checkout RB(reserve[0,])",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_runs_are_listed_and_get_another_chance_on_request() -> Result<()> {
    let db = Database::new().await;
    let root = left_half_way(&db).await?;
    let scoop = db.start((shorter::Checkout, ChildHandler)).await?;
    let reason = reason(&root).await?;

    let client = db.client();
    let [stuck] = &*client.operate().failures().stuck().await? else { panic!("one run is stuck") };
    assert_eq!((&*stuck.handler, stuck.step.as_deref()), ("checkout", Some("reserve")));
    assert_eq!((&stuck.reason, stuck.rolling_back, stuck.giving_up), (&reason, false, false));
    assert!(!stuck.needs_retry);
    assert_eq!(stuck.phase, RunPhase::Stuck);
    assert_eq!(stuck.requests().collect::<Vec<_>>(), [RunRequest::Retry, RunRequest::Cancel]);
    assert_eq!(stuck.lineage.root_id(), root.id());
    assert_eq!(client.operate().failures().stuck().after(stuck).await?.len(), 0);
    assert_eq!(client.operate().failures().skip(stuck.lineage.id(), "").await?, RepairAnswer::Stuck);

    // The same program comes to the same end.
    assert_eq!(
        client.operate().failures().retry(stuck.lineage.id()).source("support").await?,
        RepairAnswer::Accepted
    );
    crate::support::eventually("it is stuck again", async || {
        let listed = client.operate().failures().stuck().await.expect("the database answers");
        listed.iter().any(|again| again.since > stuck.since && again.reason == stuck.reason)
    })
    .await;
    let done = client.operate().failures().interventions(root.id()).await?;
    assert_eq!((&*done[0].kind, &*done[0].source, &done[0].step), ("retry", "support", &None));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_whose_saga_no_program_has_is_offered_no_retry() -> Result<()> {
    let db = Database::new().await;
    db.start((before::Checkout,)).await?.shutdown().await?;
    let client = db.client();
    let root = client.launch(Root).await?;
    crate::support::eventually("the run is listed", async || {
        client.operate().failures().stuck().await.expect("the database answers").len() == 1
    })
    .await;
    let [left] = &*client.operate().failures().stuck().await? else { panic!("one run is left") };
    assert!(left.reason.starts_with("no living program has saga `checkout`"), "{}", left.reason);
    assert_eq!((left.phase, left.hierarchy()), (RunPhase::Pending, root.id()));
    assert_eq!(
        client.operate().failures().retry(left.id()).await?,
        RepairAnswer::NotFailed,
        "nothing is in repair"
    );
    assert_eq!(left.requests().collect::<Vec<_>>(), [RunRequest::Cancel]);
    for answer in [client.cancel(left.id(), "tried").dry_run().await?, client.cancel(left.id(), "").await?] {
        assert_eq!(answer, CancelAnswer::Accepted);
    }
    let [left] = &*client.operate().failures().stuck().await? else { panic!("one run is left") };
    assert!(left.giving_up && left.requests().next().is_none(), "{left:?}");
    Ok(())
}

/// The request is recorded, but only a program that fits can undo the run.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_stuck_run_gives_up_in_a_fitting_program() -> Result<()> {
    let db = Database::new().await;
    let root = left_half_way(&db).await?;
    let scoop = db.start((shorter::Checkout, ChildHandler)).await?;
    reason(&root).await?;
    assert_eq!(scoop.cancel(root.id(), "too late").await?, CancelAnswer::Accepted);
    let [stuck] = &*scoop.operate().failures().stuck().await? else { panic!("one run is stuck") };
    assert!(stuck.giving_up, "{stuck:?}");
    assert_eq!(root.status().await?, scoop::Status::Unfinished);
    scoop.shutdown().await?;

    let _fitting = db.start((before::Checkout, ChildHandler)).await?;
    let Outcome::RolledBack(failure) = root.ends().await? else { panic!("it was cancelled") };
    assert!(failure.report().contains("too late"), "{}", failure.report());
    Ok(())
}

/// The way out that the guide names.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_run_whose_code_is_gone_is_ended_by_empty_steps() -> Result<()> {
    let db = Database::new().await;
    let root = left_half_way(&db).await?;
    let scoop = db.start((shorter::Checkout, ChildHandler)).await?;
    let reason = reason(&root).await?;
    assert!(reason.contains("`reserve`"), "{reason}");
    let [stuck] = &*scoop.operate().failures().stuck().await? else { panic!("one run is stuck") };
    let run = stuck.id();
    assert_eq!(scoop.operate().failures().resolve(run, "put right by hand").await?, RepairAnswer::Stuck);
    assert_eq!(scoop.operate().failures().skip(run, "put right by hand").await?, RepairAnswer::Stuck);
    assert_eq!(scoop.cancel(run, "its code is gone").await?, CancelAnswer::Accepted);
    scoop.shutdown().await?;

    let scoop = db.start((emptied::Checkout, ChildHandler)).await?;
    let Outcome::RolledBack(failure) = root.ends().await? else { panic!("it was cancelled") };
    assert!(failure.report().contains("its code is gone"), "{}", failure.report());
    assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
    assert_eq!(scoop.operate().failures().stuck().await?.len(), 0);
    scoop.shutdown().await?;
    Ok(())
}
