//! Delivers signals to the runs that await them.
//!
//! A delivery follows each commit of a signal and each commit of a run that awaits one, so that of two at the same time
//! the later one sees both. The periodic sweep covers a process that dies in between, and signals from transactions of
//! users.
//!
//! A wait whose time is over is not here: its run becomes ready then, and `run_claim.sql` claims it.
//!
//! * A delivery takes the kept signal whose time ends first, and gives it to all runs that await its key
//!   (`signal_deliver.sql`). It locks the signal, then the runs. `SKIP LOCKED` would not do: a signal goes to all runs that
//!   await it, or to none yet.
//! * A delivery waits for a lock for a moment, then is repeated key by key, so a locked row holds up no other key. One that
//!   fails for what is stored is repeated run by run: the damaged run is left out.
//! * A process that sends a signal and has slots records, delivers and claims by one statement (`signal_send.sql`), if no
//!   older signal precedes.
//! * A signal that no program can read is replaced when it is delivered, so that its run can be claimed. One that its step
//!   cannot read is refused (`signal_refuse.sql`): the run waits again.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use scoop_core::SignalKey;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use super::wakeups::{Deliveries, Delivery};
use crate::error::is_transient;
use crate::model::signal::LockedDelivery;
use crate::store::{Deliver, Delivered, Store, TransactionNumber};
use crate::telemetry;

const BATCH_MAX: usize = 1_000;

/// The maximum number of signals that one statement takes out of the kept ones.
const EXPIRED_MAX: u32 = 1_000;

/// How long after a signal in a transaction of a user the commit of that is looked for: after each of these pauses.
const PAUSES_MILLIS: [u64; 12] = [2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

/// The interval of sweeps of all kept signals, whether or not one is known to be left.
const SWEEP_ALL_AFTER: Duration = Duration::from_secs(3_600);

/// The pauses between two deliveries of a locked signal double from the first to the longest, with which it is logged.
const LOCKED_PAUSE_MIN: Duration = Duration::from_millis(20);
const LOCKED_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The state between two deliveries.
struct Sweeps {
    /// Signals of earlier transactions were handled.
    since: TransactionNumber,
    /// The time of the next sweep of all signals.
    all_at: Instant,
    locked: LockedKeys,
}

/// The keys whose signal, or a run that awaits it, another session locks. They are delivered by themselves.
#[derive(Default)]
struct LockedKeys(BTreeMap<SignalKey, LockedKey>);

struct LockedKey {
    at: Instant,
    pause: Duration,
}

/// Delivers signals. Requests that arrive during a statement are answered together by the next one.
pub(super) async fn serve(engine: Arc<Engine>, mut queue: Deliveries, drained: CancellationToken) {
    let mut batch = vec![];
    let mut sweeps =
        Sweeps { since: TransactionNumber::default(), all_at: Instant::now(), locked: LockedKeys::default() };
    loop {
        tokio::select! {
            biased;
            _ = queue.recv_many(&mut batch, BATCH_MAX) => {}
            () = sweeps.locked.one_is_due() => {}
            () = drained.cancelled() => return,
        }
        let (mut keys, mut swept, mut expires) = (BTreeSet::<SignalKey>::new(), false, false);
        for delivery in batch.drain(..) {
            match delivery {
                Delivery::To(to) => _ = keys.insert(to),
                Delivery::Recent => (swept, expires) = (true, true),
                Delivery::All => (swept, expires, sweeps.since) = (true, true, TransactionNumber::default()),
                Delivery::Expired => expires = true,
            }
        }
        keys.retain(|to| !sweeps.locked.0.contains_key(to));
        for keys in [keys, sweeps.locked.due()] {
            if !keys.is_empty() {
                let to = &Deliver::To(keys.iter().cloned().collect());
                while !finish(&engine, engine.store.deliver_signals(to).await, &mut sweeps).await {}
                sweeps.locked.forget_delivered(&keys);
            }
        }
        while swept {
            let delivery = sweeps.sweep(&engine.store).await;
            swept = !finish(&engine, delivery, &mut sweeps).await;
        }
        if expires {
            expire(&engine).await;
        }
    }
}

impl Sweeps {
    async fn sweep(&mut self, store: &Store) -> sqlx::Result<Delivered> {
        if self.all_at <= Instant::now() {
            (self.since, self.all_at) = (TransactionNumber::default(), Instant::now() + SWEEP_ALL_AFTER);
        }
        // Before the delivery: a signal that commits in between belongs to the next sweep.
        let horizon = store.signal_horizon().await?;
        let delivered = store.deliver_signals(&Deliver::SentSince(self.since.clone())).await?;
        self.since = horizon;
        Ok(delivered)
    }
}

impl LockedKeys {
    async fn one_is_due(&self) {
        match self.0.values().map(|locked| locked.at).min() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => pending().await,
        }
    }

    /// The signals to deliver again now.
    fn due(&self) -> BTreeSet<SignalKey> {
        let now = Instant::now();
        self.0.iter().filter(|(_, locked)| locked.at <= now).map(|(to, _)| to.clone()).collect()
    }

    /// Delivers these again after a pause. Logs one that is locked for long, once.
    fn defer(&mut self, locked: Vec<LockedDelivery>) {
        let now = Instant::now();
        for delivery in locked {
            let Some(former) = self.0.get_mut(&delivery.to) else {
                let first = LockedKey { at: now + LOCKED_PAUSE_MIN, pause: LOCKED_PAUSE_MIN };
                self.0.insert(delivery.to, first);
                continue;
            };
            // A sweep may come before its time.
            if former.at <= now {
                let pause = (former.pause * 2).min(LOCKED_PAUSE_MAX);
                if former.pause < LOCKED_PAUSE_MAX && pause == LOCKED_PAUSE_MAX {
                    telemetry::delivery_locked(&delivery);
                }
                *former = LockedKey { at: now + pause, pause };
            }
        }
    }

    /// Removes the keys that were delivered: they are not locked any more.
    fn forget_delivered(&mut self, keys: &BTreeSet<SignalKey>) {
        let now = Instant::now();
        self.0.retain(|to, locked| locked.at > now || !keys.contains(to));
    }
}

/// Takes signals whose time is over out of the kept ones, [`EXPIRED_MAX`] at most. The rest has another turn, behind the
/// deliveries that wait.
async fn expire(engine: &Engine) {
    match engine.store.expire_signals(EXPIRED_MAX).await {
        Ok(expired) => {
            expired.iter().for_each(|of_name| telemetry::signals_expired(engine.worker, of_name));
            if expired.iter().map(|of_name| of_name.signals).sum::<u64>() >= EXPIRED_MAX.into() {
                engine.wakeups.deliver(Delivery::Expired);
            }
        }
        // The next sweep does it.
        Err(error) => telemetry::operation_failed(engine.worker, "expiry of signals", &error),
    }
}

/// Notifies the workers of the handlers that have runs to continue, and defers what is locked. Returns whether the delivery
/// is finished. If the database does not answer, it pauses, and the delivery has to be tried again.
async fn finish(engine: &Engine, delivery: sqlx::Result<Delivered>, sweeps: &mut Sweeps) -> bool {
    match delivery {
        Ok(Delivered { handlers, refused, locked }) => {
            engine.notify_ready(&handlers);
            sweeps.locked.defer(locked);
            if !refused.is_empty() {
                // The row may be mended: the next sweep looks at all of them.
                sweeps.since = TransactionNumber::default();
            }
        }
        Err(error) if engine.stopping.is_cancelled() => {
            telemetry::operation_abandoned(engine.worker, "delivery of signals", &error);
        }
        Err(error) => {
            telemetry::operation_failed(engine.worker, "delivery of signals", &error);
            if is_transient(&error) {
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
                return false;
            }
            // The next sweep looks at all of them.
            sweeps.since = TransactionNumber::default();
        }
    }
    true
}

impl Engine {
    /// Looks for the commit of a signal that a transaction of a user sends, for a while.
    pub(crate) fn deliver_after_foreign_commit(self: &Arc<Self>, to: SignalKey) {
        let engine = self.clone();
        self.runs.spawn(async move {
            for pause in PAUSES_MILLIS {
                tokio::select! {
                    biased;
                    () = engine.stopping.cancelled() => return,
                    () = tokio::time::sleep(Duration::from_millis(pause)) => engine.wakeups.deliver(Delivery::To(to.clone())),
                }
            }
        });
    }
}
