//! Decides, by their strategies, whether a run goes on that waits for handlers of the messages it has launched.
//!
//! Such a run is ready at a time, or as soon as few enough of its children are left; then it is claimed, like any other. The claim
//! holds while the strategies decide by what became of the children. The verdict is one statement ([`decide_wait`]), so a crash
//! before it loses nothing: the next claim decides again.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use scoop_core::wait::{MessageWait, Verdict, WaitFacts};
use scoop_core::{ChildFailure, Failure, Wait, visible_step};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::execution::{Execution, Exit, unread};
use super::shared::Engine;
use crate::store::{LateDelivery, LaunchedRun, ParentRef, RequestKey, RequestTarget, WaitDecision};

/// The shortest and the longest pause, in seconds, after which a rollback looks again whether the runs have ended that its run did not
/// wait for.
const PAUSES_FOR_LEFT: (f64, f64) = (0.02, 5.0);

/// The shortest pause between two looks for handlers that have registered since a launch. It is longer for a longer rest of the window.
const LATE_INTERVAL: Duration = Duration::SECOND;

/// How many looks there are in the rest of a long window, about.
const LATE_CHECKS: i32 = 60;

/// The launches of a run that have failed by their strategies, as failures of children.
pub(super) fn failed_launches(wait: Option<&Wait>) -> Vec<ChildFailure> {
    let messages = wait.map_or(&[][..], Wait::messages);
    let failed = messages.iter().filter_map(|message| message.failure.clone());
    let failure =
        |rolled_back| ChildFailure { rolled_back, rollback_failed: None, rollback_requested: false };
    failed.map(failure).collect()
}

/// Has the strategies of a wait decide, and the run wait for what is left.
pub(super) async fn decide_wait(engine: &Engine, execution: &Execution, wait: Wait) -> Result<Exit, Exit> {
    if execution.overdue {
        // It gives up when all of its children have ended, which give up, too.
        let decided = wait.clone().with_messages(vec![]);
        return suspend(engine, execution, WaitDecision { wait: Some(decided), ..WaitDecision::default() })
            .await;
    }
    let ids: Vec<_> = wait.messages().iter().map(|message| message.message).collect();
    let children = engine.store.waited_children(execution.key, &ids).await;
    let children = children.map_err(|error| unread("what it waits for could not be read", &error))?;
    // A time that is due is over by this reading.
    let now = engine.store.now().await.map_err(|error| unread("the clock could not be read", &error))?.latest;
    let mut by_message = BTreeMap::<Uuid, Vec<LaunchedRun>>::new();
    for child in children.runs {
        by_message.entry(child.message).or_default().push(child);
    }
    let (mut decision, mut left) = (WaitDecision::default(), vec![]);
    let (mut ends_needed, mut times) = (i32::MAX / 2, vec![]);
    for mut message in wait.messages().iter().cloned() {
        if message.failure.is_some() {
            left.push(message);
            continue;
        }
        let launched = by_message.remove(&message.message).unwrap_or_default();
        let facts = facts_of(&message, &launched, now);
        let decided = catch_unwind(AssertUnwindSafe(|| message.plan.decide(&facts)));
        let decided =
            decided.unwrap_or_else(|_| Err(format!("the strategy `{}` panicked", message.plan.strategy())));
        let (verdict, ends) = decided.map_err(|why| Exit::Stuck(why.into()))?;
        match verdict {
            Verdict::GoOn => {
                if !message.plan.leaves_others() {
                    let why =
                        format!("its launcher goes on without it: it waited for {}", message.plan.describe());
                    cancel_unfinished(engine, execution, &launched, &why).await?;
                    decision.closed.push(message.message);
                }
                decision.gone_on.push(message.message);
            }
            Verdict::GiveUp(reason) => {
                let failure = failure_of(execution, &message, &reason);
                cancel_unfinished(engine, execution, &launched, &failure.message).await?;
                decision.closed.push(message.message);
                message.failure = Some(failure);
                left.push(message);
            }
            Verdict::Close => decision.closed.push(message.message),
            verdict => {
                let late = message.plan.late_until().filter(|until| *until > now);
                if let Some(until) = late {
                    let give_up_at = message.plan.late_give_up_at();
                    decision.late.push(LateDelivery { message: message.message, give_up_at });
                    // Handlers that register later are looked for at intervals.
                    let pause = ((until - now) / LATE_CHECKS).max(LATE_INTERVAL);
                    times.push(until.min(now + pause));
                }
                ends_needed = ends_needed.min(i32::try_from(ends.max(1)).unwrap_or(i32::MAX / 2));
                times.extend(message.plan.until());
                times.extend(if let Verdict::WaitUntil(at) = verdict { Some(at) } else { None });
                left.push(message);
            }
        }
    }
    let wait = wait.with_messages(left);
    if wait.is_undecided() {
        // Below 0 no end of a child makes a difference.
        decision.children = Some((children.unfinished - ends_needed).max(-1));
        decision.until = times.into_iter().min();
    }
    decision.wait = Some(wait);
    suspend(engine, execution, decision).await
}

/// Has the run wait for what is left. A child may have ended meanwhile, so its end is looked for once more.
async fn suspend(engine: &Engine, execution: &Execution, decision: WaitDecision) -> Result<Exit, Exit> {
    let handlers_known = engine.store.decide_wait(execution.key, &decision).await;
    let handlers_known = handlers_known.map_err(|error| {
        Exit::InDoubt(format!("what its strategies decided could not be written: {error}"))
    })?;
    let Some(handlers) = handlers_known else { return Err(Exit::TakenOver) };
    engine.notify_ready(&handlers);
    engine.wakeups.child_ended(
        ParentRef { root: execution.key.root, id: execution.key.id, at: OffsetDateTime::UNIX_EPOCH },
        None,
    );
    engine.reschedule_timer();
    execution.span.ends_as("waiting");
    Ok(Exit::Settled)
}

fn facts_of(message: &MessageWait, launched: &[LaunchedRun], now: OffsetDateTime) -> WaitFacts {
    WaitFacts {
        topic: message.topic.clone(),
        message: message.message,
        children: launched.iter().map(|run| run.child.clone()).collect(),
        now,
        until: message.plan.until(),
        late_until: message.plan.late_until(),
    }
}

fn failure_of(execution: &Execution, message: &MessageWait, reason: &str) -> Failure {
    let step = execution.run.last.as_ref().map_or("", |last| visible_step(&last.step));
    let text = format!("step `{step}` waited for {message}, message {}: {reason}", message.message);
    let failure = Failure::new("WaitGaveUp", text, &execution.run.source);
    failure.bounded(execution.run.failure_text_bytes_max)
}

/// Cancels those of these runs that have begun, and have not ended; or may have begun by now. The others are dropped with the decision.
async fn cancel_unfinished(
    engine: &Engine,
    execution: &Execution,
    launched: &[LaunchedRun],
    why: &str,
) -> Result<(), Exit> {
    for run in launched.iter().filter(|run| run.child.state.is_unfinished()) {
        let target = RequestTarget { lineage: run.lineage.clone(), message: run.message };
        cancel(engine, execution, &target, why).await?;
    }
    Ok(())
}

async fn cancel(
    engine: &Engine,
    execution: &Execution,
    target: &RequestTarget,
    why: &str,
) -> Result<(), Exit> {
    let request = Failure::new("CancellationRequestedException", why, &execution.run.source);
    let cancelled = engine.store.cancel(target, &request, RequestKey::new()).await;
    let cancelled = cancelled.map_err(|error| unread("a child could not be cancelled", &error))?;
    engine.on_cancelled(cancelled.giving_up);
    Ok(())
}

/// Cancels what a run has left under way, before its rollback undoes the messages of it, and has the run look again after a pause until
/// all of that has ended.
pub(super) async fn wait_for_left(engine: &Engine, execution: &mut Execution) -> Result<Option<Exit>, Exit> {
    let messages = execution.run.left();
    if messages.is_empty() {
        return Ok(None);
    }
    let left = engine.store.left_children(execution.key.root, &messages).await;
    let left = left.map_err(|error| unread("what it has left under way could not be read", &error))?;
    if left.is_empty() {
        execution.run.nothing_left();
        return Ok(None);
    }
    for run in left.iter().filter(|run| !run.gives_up) {
        cancel(engine, execution, &run.target, "the run that has launched it is rolled back").await?;
    }
    let now = engine.store.now().await.map_err(|error| unread("the clock could not be read", &error))?;
    let (shortest, longest) = PAUSES_FOR_LEFT;
    // A run that has done nothing for long is not looked at often.
    let rests = left.iter().map(|run| run.rests).fold(f64::MAX, f64::min);
    let pause = Duration::seconds_f64((rests / 4.0).clamp(shortest, longest));
    let decision =
        WaitDecision { children: Some(-1), until: Some(now.latest + pause), ..WaitDecision::default() };
    suspend(engine, execution, decision).await.map(Some)
}
