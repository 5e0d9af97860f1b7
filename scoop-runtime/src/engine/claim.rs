//! Claims ready runs from the working set and starts them. Queues of paused sagas are left out (`topology/mod.rs`), those
//! of sagas with limits have another task ([`super::limits`]).
//!
//! One task for all handlers. It claims as many runs as there are free slots, in one statement and one commit, and
//! repeats that while there are more. Handlers get slots in turns, so that the backlog of one does not block another.
//! Without more to claim it waits for a signal of this process, for a notification of another one, or for the timer
//! ([`super::timer`]), since signals and notifications only reduce latency. It looks once more by itself if the last
//! claim may have missed a run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::execute;
use super::execution::InFlightGuard;
use super::handover::{IfRefused, hand_to_another};
use super::reconcile::reconcile;
use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use super::slots::{LimitGuard, Slot, SlotLease};
use super::wakeups::Delivery;
use crate::completion::RunEnd;
use crate::store::{ClaimedRun, Lanes, QueueCursors, SetAside, Unclaimed};
use crate::telemetry::{self, metrics};

/// The number of runs claimed at once. More brings nothing, as measured.
const BATCH_MAX: usize = 100;

/// While there is more to claim than there are slots, the claimer waits for this part of all slots, or for this time. A
/// claim costs much the same for one run and for ten.
const BATCH_SLOTS_FRACTION: usize = 4;
const BATCH_SLOTS_WAIT: Duration = Duration::from_millis(10);

/// A program with more handlers than this first asks which of them have ready runs.
const FILTER_HANDLERS_ABOVE: usize = 20;

/// The time of the second reconciliation after a lost answer. The server may execute a statement after the connection
/// broke, and after the first reconciliation.
const RECHECK_AFTER: Duration = Duration::from_secs(1);

/// The interval at which a claim reads the queues from the beginning; other claims continue at the position of the last
/// one. Runs that were hidden from a claim are visible by then.
const CURSOR_RESET_INTERVAL: Duration = Duration::from_millis(200);

/// The pause after a look at whole queues is at least this multiple of its duration. A look may have to pass many dead
/// entries, as long as a snapshot keeps these from being removed: such looks take a twentieth of the time at most.
const CURSOR_RESET_PAUSE: u32 = 20;
const CURSOR_RESET_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The first pause before the claimer looks for the commit of a foreign transaction; it doubles each time.
const POLL_MIN: Duration = Duration::from_millis(2);

/// The result of an attempt to claim.
enum ClaimOutcome {
    /// As many runs as slots, so there may be more.
    Full,
    Partial,
    /// None: the claimer has to reconcile or stop first.
    Interrupted,
}

/// The state of the claimer between claims.
struct ClaimerState {
    /// There was more to claim than there were slots.
    more: bool,
    /// The time of the second reconciliation after a lost answer.
    recheck_at: Option<Instant>,
    progress: QueueProgress,
}

impl ClaimerState {
    fn new() -> Self {
        Self { more: false, recheck_at: None, progress: QueueProgress::new() }
    }

    /// The time of the next look without a signal.
    fn next_wakeup(&self) -> Option<Instant> {
        self.progress.look_back_at().into_iter().chain(self.recheck_at).min()
    }
}

/// The positions in the queues, which are dropped at intervals.
pub(super) struct QueueProgress {
    cursors: QueueCursors,
    /// The time at which the queues are read from the beginning again.
    reset_at: Instant,
    /// How often the positions were dropped.
    resets: u64,
    /// The last claim may have missed a run.
    may_skip_runs: bool,
    /// The begin of the look under way, if that is from the beginning.
    whole_since: Option<Instant>,
}

/// The positions in some queues at the begin of a claim, which may end after they are dropped.
pub(super) struct Positions {
    pub(super) cursors: QueueCursors,
    resets: u64,
    since: Instant,
}

impl QueueProgress {
    pub(super) fn new() -> Self {
        let (cursors, reset_at) = (QueueCursors::default(), Instant::now());
        Self { cursors, reset_at, resets: 0, may_skip_runs: false, whole_since: None }
    }

    /// Drops the positions.
    pub(super) fn reset(&mut self) {
        *self = Self { resets: self.resets + 1, ..Self::new() };
    }

    /// The positions for a look at the queues now.
    pub(super) fn cursors(&mut self) -> &mut QueueCursors {
        let now = Instant::now();
        if self.reset_at <= now {
            self.reset();
            self.reset_at = now + CURSOR_RESET_INTERVAL;
            self.whole_since = Some(now);
        }
        self.may_skip_runs = self.cursors.may_skip_runs();
        &mut self.cursors
    }

    /// Ends a look at the queues. One from the beginning is repeated after a multiple of its duration.
    pub(super) fn end_look(&mut self) {
        if let Some(since) = self.whole_since.take() {
            self.pause_after(since.elapsed());
        }
    }

    fn pause_after(&mut self, duration: Duration) {
        let pause = duration.saturating_mul(CURSOR_RESET_PAUSE);
        self.reset_at = self.reset_at.max(Instant::now() + pause.min(CURSOR_RESET_PAUSE_MAX));
    }

    /// The positions in these queues, for a claim beside which others advance them.
    pub(super) fn positions(&mut self, lanes: &Lanes) -> Positions {
        let cursors = self.cursors().within(lanes);
        Positions { cursors, resets: self.resets, since: Instant::now() }
    }

    /// Advances the queues as far as a claim from these positions has come, unless they were dropped meanwhile.
    pub(super) fn advance(&mut self, from: &Positions, taken: QueueCursors) {
        if from.resets == self.resets {
            self.cursors.extend(taken);
            if !from.cursors.may_skip_runs() {
                self.pause_after(from.since.elapsed());
            }
        }
    }

    /// The time of the next look if the last one may have missed a run.
    pub(super) fn look_back_at(&self) -> Option<Instant> {
        self.may_skip_runs.then_some(self.reset_at)
    }
}

pub(super) async fn serve(engine: Arc<Engine>) {
    let (mut poll, mut state) = (None, ClaimerState::new());
    while !engine.stopping.is_cancelled() {
        match reconcile_and_claim(&engine, &mut state).await {
            Ok(ClaimOutcome::Full) => {
                state.more = true;
                continue;
            }
            Ok(ClaimOutcome::Partial) => state.more = false,
            Ok(ClaimOutcome::Interrupted) => continue,
            Err(error) => {
                telemetry::operation_failed(engine.worker, "claim", &error);
                state = ClaimerState { recheck_at: state.recheck_at, ..ClaimerState::new() };
                engine.mark_in_doubt();
                tokio::select! {
                    biased;
                    () = engine.stopping.cancelled() => return,
                    () = tokio::time::sleep(PAUSE_AFTER_FAILURE) => continue,
                }
            }
        }
        // An expected run may be due later than its commit.
        if engine.wakeups.rescan_after_claim.swap(false, Ordering::Relaxed) || poll.is_some() {
            engine.reschedule_timer();
        }
        poll = match engine.wakeups.expected.swap(false, Ordering::Relaxed) {
            true => Some(POLL_MIN),
            false => poll.map(|poll| poll * 2).filter(|poll| *poll < engine.settings.poll_interval),
        };
        tokio::select! {
            biased;
            () = engine.stopping.cancelled() => return,
            () = engine.wakeups.claimer.notified() => {}
            () = tokio::time::sleep(poll.unwrap_or_default()), if poll.is_some() => {}
            () = sleep_until_some(state.next_wakeup()) => {}
        }
    }
}

/// Sleeps until `time`; never returns for `None`.
async fn sleep_until_some(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Takes all free slots, at least one. `None` when the engine stops, or has to reconcile. If there is known to be more
/// to claim, it waits for several slots.
async fn acquire_slots(
    engine: &Engine,
    gather: bool,
    second_look: Option<Instant>,
) -> Option<OwnedSemaphorePermit> {
    let first = async {
        let part = u32::try_from(engine.settings.concurrency / BATCH_SLOTS_FRACTION).unwrap_or(u32::MAX);
        if gather && part > 1 {
            let gathered = engine.slots.clone().acquire_many_owned(part);
            if let Ok(permits) = tokio::time::timeout(BATCH_SLOTS_WAIT, gathered).await {
                return permits;
            }
        }
        engine.slots.clone().acquire_owned().await
    };
    let first = tokio::select! {
        biased;
        () = engine.stopping.cancelled() => return None,
        permits = first => permits,
        () = engine.wakeups.doubts.notified() => return None,
        () = sleep_until_some(second_look) => return None,
    };
    let mut permits = first.ok()?;
    let more = engine.slots.available_permits().min(BATCH_MAX.saturating_sub(permits.num_permits()));
    let more = u32::try_from(more).unwrap_or(0);
    if let Ok(more) = engine.slots.clone().try_acquire_many_owned(more) {
        permits.merge(more);
    }
    Some(permits)
}

/// Reconciles if answers were lost, even without a free slot; then claims a run for each free slot.
async fn reconcile_and_claim(engine: &Arc<Engine>, state: &mut ClaimerState) -> sqlx::Result<ClaimOutcome> {
    let in_doubt = engine.in_doubt.swap(false, Ordering::Relaxed);
    let is_due = state.recheck_at.is_some_and(|at| at <= Instant::now());
    if in_doubt {
        state.recheck_at = Some(Instant::now() + RECHECK_AFTER);
    } else if is_due {
        state.recheck_at = None;
    }
    if engine.reconcile_due.swap(false, Ordering::Relaxed) || in_doubt || is_due {
        let signals = if in_doubt || is_due { Delivery::All } else { Delivery::Recent };
        reconcile(engine, signals).await?;
    }
    let Some(mut slots) = acquire_slots(engine, state.more, state.recheck_at).await else {
        return Ok(ClaimOutcome::Interrupted);
    };
    claim_suspect(engine, &mut slots).await?;
    let limit = slots.num_permits();
    if limit == 0 {
        return Ok(ClaimOutcome::Full);
    }
    let began = Instant::now();
    let claimed = claim_ready(engine, limit, state.progress.cursors()).await?;
    state.progress.end_look();
    metrics::claim_seconds().record(began.elapsed().as_secs_f64());
    metrics::claimed_runs(claimed.len());
    let claims = if claimed.len() == limit { ClaimOutcome::Full } else { ClaimOutcome::Partial };
    start_claimed(engine, claimed, &mut slots).await;
    Ok(claims)
}

/// Starts claimed runs in these slots, and hands runs back that cannot be started.
pub(super) async fn start_claimed(
    engine: &Arc<Engine>,
    claimed: Vec<Result<ClaimedRun, Unclaimed>>,
    slots: &mut OwnedSemaphorePermit,
) {
    let mut unclaimed = vec![];
    for run in claimed {
        let slot = slots.split(1).expect("no more is claimed than there are slots");
        match run {
            Ok(claimed) => start_one(engine, claimed, slot),
            Err(run) => unclaimed.push(run),
        }
    }
    for run in unclaimed {
        park_unclaimed(engine, run).await;
    }
}

/// Claims and starts the suspect that the timer has found, if any.
async fn claim_suspect(engine: &Arc<Engine>, slots: &mut OwnedSemaphorePermit) -> sqlx::Result<()> {
    let Some(suspect) = engine.suspects.take() else {
        return Ok(());
    };
    let lanes = engine.topology.lanes();
    match engine.store.claim_suspect(engine.claimer(), &lanes, &suspect).await? {
        Some(Ok(claimed)) => {
            let slot = slots.split(1).expect("a claim has a slot");
            start_suspect(engine, claimed, slot);
        }
        Some(Err(unclaimed)) => park_unclaimed(engine, unclaimed).await,
        None => {}
    }
    Ok(())
}

async fn claim_ready(
    engine: &Engine,
    limit: usize,
    progress: &mut QueueCursors,
) -> sqlx::Result<Vec<Result<ClaimedRun, Unclaimed>>> {
    let mut lanes = engine.topology.lanes();
    if lanes.len() > FILTER_HANDLERS_ABOVE {
        lanes = Arc::new(engine.store.lanes_ready(&lanes, progress).await?);
    }
    if lanes.len() == 0 {
        return Ok(vec![]);
    }
    let shares = engine.running_counts.snapshot();
    engine.store.claim(engine.claimer(), &lanes, limit, &shares, progress).await
}

fn start_one(engine: &Arc<Engine>, claimed: ClaimedRun, slot: OwnedSemaphorePermit) {
    let flight = InFlightGuard::begin(engine.clone(), claimed.key);
    let share = engine.running_counts.take(&claimed.handler);
    let limit = limit_of(engine, &claimed);
    spawn_run(engine, flight, claimed, SlotLease::new(share, Slot::Shared(slot)).under_limit(limit));
}

/// The guard of a run whose saga has a limit.
fn limit_of(engine: &Engine, claimed: &ClaimedRun) -> Option<LimitGuard> {
    let is_limited = engine.topology.is_limited(&claimed.handler);
    is_limited.then(|| LimitGuard {
        handler: claimed.handler.clone(),
        key: claimed.limit_key.clone(),
        freed: engine.wakeups.freed.clone(),
        next: engine.wakeups.limited.clone(),
    })
}

/// Starts a claimed suspect in its slot.
pub(super) fn start_suspect(engine: &Arc<Engine>, claimed: ClaimedRun, slot: OwnedSemaphorePermit) {
    let flight = InFlightGuard::begin(engine.clone(), claimed.key);
    let share = engine.running_counts.take(&claimed.handler);
    let lease = SlotLease::of_suspect(share, Slot::Shared(slot), engine.suspects.permit());
    let limit = limit_of(engine, &claimed);
    spawn_run(engine, flight, claimed, lease.under_limit(limit));
}

/// Starts a claimed run in its slot.
pub(super) fn spawn_run(engine: &Engine, flight: InFlightGuard, claimed: ClaimedRun, lease: SlotLease) {
    engine.runs.spawn(execute::drive(flight, claimed, lease));
}

/// Handles a claimed run that this worker cannot execute: hands it over if another program may read its record.
pub(super) async fn park_unclaimed(engine: &Engine, unclaimed: Unclaimed) {
    match unclaimed {
        Unclaimed::Unreadable { key, handler, why } => {
            let reason = format!("its record cannot be read: {why}");
            if hand_to_another(engine, key, &handler, &reason, IfRefused::Stuck).await == SetAside::Stuck {
                telemetry::unreadable(key.root, key.id);
            }
        }
        Unclaimed::Refused { root, id, why } => telemetry::refused(root, id, &why),
        Unclaimed::EndedElsewhere { root, parent } => match parent {
            Some(parent) => engine.wakeups.child_ended(parent, None),
            None => engine.completions.notify(root, RunEnd::Unknown),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn claim_that_may_have_overlooked_runs_is_repeated_soon() {
        let (mut state, start) = (ClaimerState::new(), Instant::now());
        let claim = |state: &mut ClaimerState| {
            let cursors = state.progress.cursors();
            let overlooks = cursors.may_skip_runs();
            let queue = ("topic", "handler", 0);
            cursors.take(queue, scoop_core::Priority::Normal, time::OffsetDateTime::UNIX_EPOCH);
            (overlooks, state.next_wakeup())
        };
        assert_eq!(claim(&mut state), (false, None));
        let soon = Some(start + CURSOR_RESET_INTERVAL);
        assert_eq!(claim(&mut state), (true, soon));
        tokio::time::advance(CURSOR_RESET_INTERVAL / 2).await;
        assert_eq!(claim(&mut state), (true, soon), "not put off by others");
        state.recheck_at = Some(start);
        assert_eq!(state.next_wakeup(), Some(start), "whichever is first");
        state.recheck_at = None;
        tokio::time::advance(CURSOR_RESET_INTERVAL / 2).await;
        assert_eq!(claim(&mut state), (false, None));
    }

    #[tokio::test(start_paused = true)]
    async fn look_at_whole_queues_is_repeated_after_a_multiple_of_its_duration() {
        let mut progress = QueueProgress::new();
        let taken = |progress: &mut QueueProgress| {
            let time = time::OffsetDateTime::UNIX_EPOCH;
            progress.cursors.take(("topic", "handler", 0), scoop_core::Priority::Normal, time);
        };
        let duration = CURSOR_RESET_INTERVAL * 2;
        progress.cursors();
        tokio::time::advance(duration).await;
        taken(&mut progress);
        progress.end_look();
        for _ in 1..CURSOR_RESET_PAUSE {
            tokio::time::advance(duration).await;
            assert!(progress.cursors().may_skip_runs(), "it begins at the positions");
            progress.end_look();
        }
        tokio::time::advance(duration).await;
        assert!(!progress.cursors().may_skip_runs());
        taken(&mut progress);
        progress.end_look();
        assert_eq!(progress.reset_at, Instant::now() + CURSOR_RESET_INTERVAL, "it was short");
        tokio::time::advance(CURSOR_RESET_INTERVAL).await;
        let lanes = Lanes::unreserved(&["topic".into()], &["handler".into()]);
        let from = progress.positions(&lanes);
        tokio::time::advance(duration).await;
        progress.advance(&from, QueueCursors::default());
        assert_eq!(progress.reset_at, Instant::now() + duration * CURSOR_RESET_PAUSE, "a claim of its own");
        let longest = Duration::from_secs(3_600);
        tokio::time::advance(CURSOR_RESET_PAUSE_MAX).await;
        progress.cursors();
        tokio::time::advance(longest).await;
        progress.end_look();
        assert_eq!(progress.reset_at, Instant::now() + CURSOR_RESET_PAUSE_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn claim_during_which_the_positions_were_dropped_advances_none() {
        let (mut progress, lanes) =
            (QueueProgress::new(), Lanes::unreserved(&["topic".into()], &["handler".into()]));
        let taken = |handler: &str| {
            let mut taken = QueueCursors::default();
            let queue = ("topic", handler, 0);
            taken.take(queue, scoop_core::Priority::Normal, time::OffsetDateTime::UNIX_EPOCH);
            taken
        };
        let from = progress.positions(&lanes);
        progress.advance(&from, taken("handler"));
        progress.advance(&from, taken("other"));
        let from = progress.positions(&lanes);
        assert_eq!(from.cursors, taken("handler"), "only those of its queues");
        progress.reset();
        progress.advance(&from, taken("handler"));
        assert!(!progress.cursors().may_skip_runs(), "the topology has changed");
        let from = progress.positions(&lanes);
        tokio::time::advance(CURSOR_RESET_INTERVAL).await;
        progress.cursors();
        progress.advance(&from, taken("handler"));
        assert!(!progress.cursors().may_skip_runs(), "it is time to read the queues from the beginning");
        let from = progress.positions(&lanes);
        progress.advance(&from, taken("handler"));
        assert!(progress.cursors().may_skip_runs());
    }
}
