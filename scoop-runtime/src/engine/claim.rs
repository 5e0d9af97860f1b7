//! Claims ready runs from the working set and starts them. Queues of paused sagas are left out (`topology/mod.rs`), those
//! of sagas with limits have another task ([`super::limits`]).
//!
//! One task for all handlers. It claims as many runs as there are free slots, in one statement and one commit, and
//! repeats that while there are more. Handlers get slots one after the other, so that the backlog of one does not block another.
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
use super::reconcile::reconcile;
use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use super::slots::{LimitGuard, Slot, SlotLease};
use super::wakeups::Delivery;
use crate::engine::handover::hand_back;
use crate::store::{ClaimQueues, ClaimedRun, QueueCursors, QueueScan, Unclaimed};
use crate::telemetry::{self, metrics};
use crate::util::sync::lock;

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

/// The interval at which a scan begins earlier than its position: a statement may have read the clock long before its transaction began.
const RESCAN_INTERVAL: Duration = Duration::from_millis(200);

/// The pauses between full scans. These are a safety net: what the positions rest on may not hold, after a fail-over for
/// example. Runs that become ready during such a scan wait for its end, so these are less than one in a hundred.
const FULL_SCAN_PAUSES: Pauses = Pauses { min: Duration::from_secs(60), of_duration: 300 };

/// The pauses where runs return to their queues with an earlier time. Claims of other processes learn of them; scans for ready runs do not.
/// The process that has returned them takes them as soon as it has a slot.
pub(super) const PAUSES_WHERE_RUNS_RETURN: Pauses =
    Pauses { min: Duration::from_millis(200), of_duration: 300 };

/// The longest pause between full scans.
const FULL_SCAN_PAUSE_MAX: Duration = Duration::from_secs(600);

/// The pauses between full scans. Such a scan passes all dead entries that an old snapshot keeps from being removed. So a
/// pause is a multiple of the duration of the scan before it, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    min: Duration,
    of_duration: u32,
}

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

struct ClaimerState {
    more: bool,
    /// The time of the second reconciliation after a lost answer.
    recheck_at: Option<Instant>,
    progress: QueueProgress,
}

impl ClaimerState {
    fn new() -> Self {
        Self { more: false, recheck_at: None, progress: QueueProgress::default() }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        // What a claim left although it had slots was locked.
        let left_at = self.progress.cursors.has_left().then_some(self.progress.back_at);
        self.progress.rescan_at().into_iter().chain(left_at).chain(self.recheck_at).min()
    }
}

/// The positions in the queues, and when the next scans begin before them.
pub(super) struct QueueProgress {
    cursors: QueueCursors,
    topology: i64,
    /// The time from which the next scan begins earlier than its position.
    back_at: Instant,
    /// Whether the last scan began at its position, and may have missed a run.
    may_skip_runs: bool,
    pauses: Pauses,
    whole_at: Instant,
    /// The begin of the scan under way, if it is a full scan.
    whole_since: Option<Instant>,
    /// How often the positions were dropped.
    resets: u64,
}

/// The positions at the begin of a claim, which may end after they are dropped.
pub(super) struct Positions {
    pub(super) cursors: QueueCursors,
    resets: u64,
}

impl Default for QueueProgress {
    fn default() -> Self {
        Self::with_pauses(FULL_SCAN_PAUSES)
    }
}

impl QueueProgress {
    pub(super) fn with_pauses(pauses: Pauses) -> Self {
        let now = Instant::now();
        Self {
            cursors: QueueCursors::default(),
            topology: 0,
            back_at: now,
            may_skip_runs: false,
            pauses,
            whole_at: now,
            whole_since: None,
            resets: 0,
        }
    }

    pub(super) fn reset(&mut self) {
        *self = Self { resets: self.resets + 1, topology: self.topology, ..Self::with_pauses(self.pauses) };
    }

    /// Drops the positions if the queues are others: runs may have returned to them.
    pub(super) fn follow(&mut self, topology: i64) {
        if self.topology != topology {
            self.topology = topology;
            self.reset();
        }
    }

    /// The positions for a scan now, which begins earlier at intervals.
    pub(super) fn cursors(&mut self) -> &mut QueueCursors {
        let now = Instant::now();
        if self.whole_at <= now {
            self.reset();
            self.whole_at = now + self.pauses.min;
        }
        if self.cursors.is_at_the_beginning() {
            self.whole_since.get_or_insert(now);
        }
        self.may_skip_runs = now < self.back_at;
        if !self.may_skip_runs {
            self.cursors.rescan();
            self.back_at = now + RESCAN_INTERVAL;
        }
        &mut self.cursors
    }

    /// Ends a scan. A full one is repeated after a multiple of its duration.
    pub(super) fn end_scan(&mut self) {
        if let Some(since) = self.whole_since.take() {
            let pause = since.elapsed().saturating_mul(self.pauses.of_duration).min(FULL_SCAN_PAUSE_MAX);
            self.whole_at = self.whole_at.max(Instant::now() + pause);
        }
    }

    pub(super) fn known(&self) -> &QueueCursors {
        &self.cursors
    }

    pub(super) fn record_scan(&mut self, queues: &ClaimQueues, ready: &ClaimQueues, scan: &QueueScan) {
        self.cursors.record_scan(queues, ready, scan);
        self.end_scan();
    }

    /// The positions for a claim now, which may end after they are dropped.
    pub(super) fn positions(&mut self) -> Positions {
        Positions { cursors: self.cursors().clone(), resets: self.resets }
    }

    /// Advances the positions as far as a claim from these has come, unless they were dropped meanwhile.
    pub(super) fn advance(&mut self, from: &Positions, advanced: Option<QueueCursors>) {
        if from.resets == self.resets {
            if let Some(advanced) = advanced {
                self.cursors = advanced;
            }
            self.end_scan();
        }
    }

    /// The time of the next scan if the last one may have missed a run.
    pub(super) fn rescan_at(&self) -> Option<Instant> {
        let back_at = self.may_skip_runs.then_some(self.back_at);
        let whole_at = (!self.cursors.is_at_the_beginning()).then_some(self.whole_at);
        back_at.into_iter().chain(whole_at).min()
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
    batch: bool,
    recheck_at: Option<Instant>,
) -> Option<OwnedSemaphorePermit> {
    let first = async {
        let part = u32::try_from(engine.settings.concurrency / BATCH_SLOTS_FRACTION).unwrap_or(u32::MAX);
        if batch && part > 1 {
            let several = engine.slots.clone().acquire_many_owned(part);
            if let Ok(permits) = tokio::time::timeout(BATCH_SLOTS_WAIT, several).await {
                return permits;
            }
        }
        engine.slots.clone().acquire_owned().await
    };
    let first = tokio::select! {
        biased;
        () = engine.stopping.cancelled() => return None,
        permits = first => permits,
        () = engine.wakeups.in_doubt.notified() => return None,
        () = sleep_until_some(recheck_at) => return None,
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
    let claimed = claim_ready(engine, limit, &mut state.progress).await?;
    state.progress.end_scan();
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
        hand_back(engine, run).await;
    }
}

/// Claims and starts the suspect that the timer has found, if any.
async fn claim_suspect(engine: &Arc<Engine>, slots: &mut OwnedSemaphorePermit) -> sqlx::Result<()> {
    let Some(suspect) = engine.suspects.take() else {
        return Ok(());
    };
    let queues = engine.topology.queues();
    match engine.store.claim_suspect(engine.claimer(), &queues, &suspect).await? {
        Some(Ok(claimed)) => {
            let slot = slots.split(1).expect("a claim has a slot");
            start_suspect(engine, claimed, slot);
        }
        Some(Err(unclaimed)) => hand_back(engine, unclaimed).await,
        None => {}
    }
    Ok(())
}

async fn claim_ready(
    engine: &Engine,
    limit: usize,
    progress: &mut QueueProgress,
) -> sqlx::Result<Vec<Result<ClaimedRun, Unclaimed>>> {
    let mut queues = engine.topology.queues();
    progress.follow(queues.topology);
    let cursors = progress.cursors();
    if queues.len() > FILTER_HANDLERS_ABOVE {
        let (ready, scan) = engine.store.queues_ready(&queues, cursors).await?;
        cursors.record_scan(&queues, &ready, &scan);
        queues = Arc::new(ready);
    }
    let claimed = match queues.len() {
        0 => vec![],
        _ => {
            let running_counts = engine.running_counts.snapshot();
            engine.store.claim(engine.claimer(), &queues, limit, &running_counts, cursors).await?
        }
    };
    // For the timer.
    *lock(&engine.queue_cursors) = cursors.clone();
    Ok(claimed)
}

fn start_one(engine: &Arc<Engine>, claimed: ClaimedRun, slot: OwnedSemaphorePermit) {
    let flight = InFlightGuard::begin(engine.clone(), claimed.key);
    let count = engine.running_counts.take(&claimed.handler);
    let limit = limit_of(engine, &claimed);
    spawn_run(engine, flight, claimed, SlotLease::new(count, Slot::Shared(slot)).under_limit(limit));
}

fn limit_of(engine: &Engine, claimed: &ClaimedRun) -> Option<LimitGuard> {
    let is_limited = engine.topology.is_limited(&claimed.handler);
    is_limited.then(|| LimitGuard {
        handler: claimed.handler.clone(),
        key: claimed.limit_key.clone(),
        freed: engine.wakeups.freed.clone(),
        next: engine.wakeups.limited.clone(),
    })
}

pub(super) fn start_suspect(engine: &Arc<Engine>, claimed: ClaimedRun, slot: OwnedSemaphorePermit) {
    let flight = InFlightGuard::begin(engine.clone(), claimed.key);
    let count = engine.running_counts.take(&claimed.handler);
    let lease = SlotLease::of_suspect(count, Slot::Shared(slot), engine.suspects.permit());
    let limit = limit_of(engine, &claimed);
    spawn_run(engine, flight, claimed, lease.under_limit(limit));
}

pub(super) fn spawn_run(engine: &Engine, flight: InFlightGuard, claimed: ClaimedRun, lease: SlotLease) {
    // Boxed here, so that the large future is moved once.
    engine.runs.spawn(Box::pin(execute::drive(flight, claimed, lease)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Snapshot;

    fn scan(progress: &mut QueueProgress) {
        let scan = QueueScan { at: time::OffsetDateTime::UNIX_EPOCH, snapshot: Snapshot::default() };
        progress.cursors().record_ready(&ClaimQueues::default(), &scan, []);
        progress.end_scan();
    }

    #[tokio::test(start_paused = true)]
    async fn claim_that_may_have_overlooked_runs_is_repeated_soon() {
        let (mut state, start) = (ClaimerState::new(), Instant::now());
        let claim = |state: &mut ClaimerState| {
            scan(&mut state.progress);
            state.next_wakeup()
        };
        let whole = Some(start + FULL_SCAN_PAUSES.min);
        assert_eq!(claim(&mut state), whole, "it began at the beginning");
        let soon = Some(start + RESCAN_INTERVAL);
        assert_eq!(claim(&mut state), soon);
        tokio::time::advance(RESCAN_INTERVAL / 2).await;
        assert_eq!(claim(&mut state), soon, "not put off by others");
        state.recheck_at = Some(start);
        assert_eq!(state.next_wakeup(), Some(start), "whichever is first");
        state.recheck_at = None;
        tokio::time::advance(RESCAN_INTERVAL / 2).await;
        assert_eq!(claim(&mut state), whole);
    }

    #[tokio::test(start_paused = true)]
    async fn look_at_whole_queues_is_repeated_after_a_multiple_of_its_duration() {
        let mut progress = QueueProgress::default();
        let Pauses { min, of_duration } = FULL_SCAN_PAUSES;
        let is_whole = |progress: &mut QueueProgress| {
            let is_whole = progress.cursors().is_at_the_beginning();
            scan(progress);
            is_whole
        };
        let duration = min / of_duration * 2;
        progress.cursors();
        tokio::time::advance(duration).await;
        assert!(is_whole(&mut progress), "it has not ended");
        for _ in 1..of_duration {
            tokio::time::advance(duration).await;
            assert!(!is_whole(&mut progress));
        }
        tokio::time::advance(duration).await;
        assert!(is_whole(&mut progress));
        assert_eq!(progress.whole_at, Instant::now() + min, "it was short");
        tokio::time::advance(min).await;
        progress.cursors();
        tokio::time::advance(FULL_SCAN_PAUSE_MAX).await;
        progress.end_scan();
        assert_eq!(progress.whole_at, Instant::now() + FULL_SCAN_PAUSE_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn claim_during_which_the_positions_were_dropped_advances_none() {
        let mut progress = QueueProgress::default();
        let advance = |progress: &mut QueueProgress, from: &Positions| {
            let mut cursors = from.cursors.clone();
            let scan = QueueScan { at: time::OffsetDateTime::UNIX_EPOCH, snapshot: Snapshot::default() };
            cursors.record_ready(&ClaimQueues::default(), &scan, []);
            progress.advance(from, Some(cursors));
            !progress.known().is_at_the_beginning()
        };
        let from = progress.positions();
        assert!(advance(&mut progress, &from));
        let from = progress.positions();
        progress.follow(1);
        assert!(!advance(&mut progress, &from), "the topology has changed");
        let from = progress.positions();
        tokio::time::advance(FULL_SCAN_PAUSES.min).await;
        progress.cursors();
        assert!(!advance(&mut progress, &from), "it is time to look at whole queues");
        let from = progress.positions();
        assert!(advance(&mut progress, &from));
    }
}
