//! Faults between a process and its database: those of its script, and none after the healing.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use scoop_runtime::simulation::{FaultLink, Process};
use tokio::sync::Notify;

use crate::dice::Dice;
use crate::scenario::{Life, What};
use crate::world::Alive;

/// One life of a process, as its link sees it.
pub(crate) struct Wire {
    pub(crate) alive: Alive,
    life: Life,
    operations: AtomicU32,
    dice: Mutex<Dice>,
    process: Mutex<Option<Process>>,
    /// Notified when the process dies.
    pub(crate) died: Notify,
}

/// Between a link and its process.
pub(crate) struct Tie(Arc<Wire>);

impl Drop for Tie {
    fn drop(&mut self) {
        *self.0.process.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Wire {
    pub(crate) fn new(alive: Alive, life: Life, seed: u64) -> Arc<Self> {
        let (operations, dice) = (AtomicU32::new(0), Mutex::new(Dice::new(seed)));
        Arc::new(Self { alive, life, operations, dice, process: Mutex::default(), died: Notify::new() })
    }

    /// Connects the link with its process until the returned value is dropped, because the two hold each other.
    pub(crate) fn belongs_to(self: &Arc<Self>, process: Process) -> Tie {
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        Tie(self.clone())
    }

    fn process(&self) -> Option<Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_quiet(&self) -> bool {
        self.alive.world.is_healed()
    }

    fn dice<T>(&self, roll: impl FnOnce(&mut Dice) -> T) -> T {
        roll(&mut self.dice.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The faults planned for this operation, before or after it.
    fn planned(&self, operation: u32, before: bool) -> Vec<What> {
        if self.is_quiet() {
            return vec![];
        }
        let faults = self.life.faults.iter().filter(|fault| fault.operation == operation);
        let is_before =
            |what: &What| matches!(what, What::Delay(_) | What::Fail | What::Crash(_) | What::Cut);
        let planned = faults.map(|fault| fault.what).filter(|what| is_before(what) == before);
        planned.collect()
    }

    async fn suffer(&self, faults: Vec<What>) -> io::Result<()> {
        for what in faults {
            self.alive.world.count(what.name());
            match what {
                What::Delay(ms) | What::DelayAnswer(ms) => {
                    tokio::time::sleep(Duration::from_millis(ms.into())).await;
                }
                What::Fail | What::LoseAnswer => {
                    return Err(io::Error::other("the connection is lost"));
                }
                What::Crash(ms) | What::CrashAfter(ms) => self.die(ms),
                What::Cut => self.cut(),
            }
        }
        Ok(())
    }

    fn cut(&self) {
        if let Some(process) = self.process() {
            process.disconnect();
        }
    }

    /// Kills the process now. The loss of its session is noticed later.
    pub(crate) fn die(&self, noticed_after: u32) {
        self.alive.die();
        self.died.notify_one();
        if let Some(process) = self.process() {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(noticed_after.into())).await;
                process.disconnect();
            });
        }
    }

    async fn takes_time(&self) {
        let latency = if self.is_quiet() { 0 } else { self.life.latency };
        if latency > 0 {
            let micros = self.dice(|dice| dice.below(latency));
            tokio::time::sleep(Duration::from_micros(micros.into())).await;
        }
    }
}

/// The link of a life.
pub(crate) struct Line(pub(crate) Arc<Wire>);

impl FaultLink for Line {
    fn before(&self, _: &'static str) -> BoxFuture<'static, io::Result<()>> {
        let wire = self.0.clone();
        let operation = wire.operations.fetch_add(1, Ordering::Relaxed);
        async move {
            wire.alive.or_never().await;
            wire.takes_time().await;
            let suffered = wire.suffer(wire.planned(operation, true)).await;
            wire.alive.or_never().await;
            suffered
        }
        .boxed()
    }

    fn after(&self, _: &'static str) -> BoxFuture<'static, io::Result<()>> {
        let wire = self.0.clone();
        let operation = wire.operations.load(Ordering::Relaxed).saturating_sub(1);
        async move {
            let suffered = wire.suffer(wire.planned(operation, false)).await;
            wire.alive.or_never().await;
            suffered
        }
        .boxed()
    }

    fn heard(&self) -> BoxFuture<'static, u32> {
        let wire = self.0.clone();
        async move {
            wire.alive.or_never().await;
            let [lost, late, twice] = wire.life.notices.map(u32::from);
            if wire.is_quiet() {
                return 1;
            }
            if wire.dice(|dice| dice.percent(lost)) {
                wire.alive.world.count("notifications lost");
                return 0;
            }
            if wire.dice(|dice| dice.percent(late)) {
                wire.alive.world.count("notifications late");
                tokio::time::sleep(Duration::from_millis(wire.dice(|dice| dice.below(500)).into())).await;
            }
            let twice = wire.dice(|dice| dice.percent(twice));
            if twice {
                wire.alive.world.count("notifications doubled");
            }
            1 + u32::from(twice)
        }
        .boxed()
    }
}
