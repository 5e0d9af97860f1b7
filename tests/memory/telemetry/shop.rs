//! Sagas for the tests of events that fail in every way, and a faulty connection to the database.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, pending};
use scoop::prelude::*;
use scoop::{Builder, InMemory, Tick};
use scoop_runtime::simulation::{FaultLink, Process};

use super::{NEVER, SOON};
use crate::support::Gate;

/// An order, and its planned faults.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Message)]
#[message(topic = "telemetry.orders")]
pub(super) struct Order {
    /// How often the charge fails before it counts.
    pub(super) retries: usize,
    /// Whether it fails in the end.
    pub(super) fails: bool,
    /// Whether it sleeps first.
    pub(super) sleeps: bool,
    /// Whether a child fails.
    pub(super) child: bool,
    /// Whether the child fails by a deadline of its own.
    pub(super) late: bool,
    /// Whether the failure of the child is handled.
    pub(super) handles: bool,
    pub(super) secret: String,
}

#[derive(Serialize, Deserialize, Message)]
#[message(topic = "telemetry.parcels")]
pub(super) struct Parcel;

#[derive(Clone, Default)]
pub(super) struct OrderSaga {
    /// Whether its compensation fails.
    pub(super) broken: Arc<AtomicBool>,
}

#[saga(name = "telemetry-order")]
#[subscribes(Order)]
impl OrderSaga {
    #[step(rollback = give_back, on_child_failure = shrug, finally = tidy)]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        tracing::info!(target: "shop", "reserving");
        match (order.child, order.late) {
            (true, true) => drop(scope.launch(Parcel).deadline(Duration::ZERO).await?),
            (true, false) => drop(scope.launch(Parcel).await?),
            (false, _) => {}
        }
        Ok(())
    }

    async fn shrug(&self, _: &mut Scope<'_>, order: &Order, failure: &Failure) -> Result<()> {
        tracing::info!(target: "shop", "shrugging");
        if order.handles { Ok(()) } else { Err(Error::failure(failure.clone())) }
    }

    async fn give_back(&self, _: &mut Scope<'_>, _: &Order, _: &Failure) -> Result<()> {
        tracing::info!(target: "shop", "giving back");
        match self.broken.load(Ordering::Relaxed) {
            true => Err(Error::msg("it is not wanted back")),
            false => Ok(()),
        }
    }

    async fn tidy(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        tracing::info!(target: "shop", "tidying");
        Ok(())
    }

    #[step]
    async fn rest(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        if order.sleeps { scope.sleep(NEVER).await } else { Ok(()) }
    }

    #[step(retry(max = 5, backoff = "1ms"))]
    async fn charge(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        tracing::info!(target: "shop", "charging");
        if (scope.attempt() as usize) < order.retries {
            return Err(Error::msg("postgres://shop:hunter2@bank/db is busy"));
        }
        match order.fails {
            true => Err(Error::msg("card declined").into_permanent()),
            false => Ok(()),
        }
    }
}

#[derive(Default)]
pub(super) struct ParcelSaga;

#[saga(name = "telemetry-parcel")]
#[subscribes(Parcel)]
impl ParcelSaga {
    #[step]
    async fn pack(&self, _: &mut Scope<'_>, _: &Parcel) -> Result<()> {
        Err(Error::msg("no box left"))
    }
}

#[derive(Serialize, Deserialize, Message)]
#[message(topic = "telemetry.letters")]
pub(super) struct Letter;

/// The error that a letter is torn, as this program knows it.
#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[error("torn")]
#[failure(code = "telemetry.torn")]
pub(super) struct Torn {
    pieces: u32,
}

#[derive(Default)]
pub(super) struct LetterSaga;

#[saga(name = "telemetry-letter")]
#[subscribes(Letter)]
impl LetterSaga {
    #[step(rollback = mend)]
    async fn write(&self, _: &mut Scope<'_>, _: &Letter) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn fold(&self, _: &mut Scope<'_>, _: &Letter) -> Result<()> {
        // A program with another `Torn` wrote it.
        let value = Failure::new("scoop:data", r#"{"pieces": "hunter2"}"#, "");
        Err(Error::failure(Failure::new("telemetry.torn", "torn", "post").caused_by([value])))
    }

    async fn mend(&self, _: &mut Scope<'_>, _: &Letter, failure: &Failure) -> Result<()> {
        assert!(failure.has_code("telemetry.torn"));
        assert!(failure.find::<Torn>().is_none());
        Ok(())
    }
}

/// The same saga without the step that has a compensation.
#[derive(Default)]
pub(super) struct ShorterSaga;

#[saga(name = "telemetry-order")]
#[subscribes(Order)]
impl ShorterSaga {
    #[step]
    async fn rest(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }
}

/// The message has changed.
#[derive(Serialize, Deserialize, Message)]
#[message(topic = "telemetry.orders")]
pub(super) struct Priced {
    secret: u32,
}

/// [`OrderSaga`] in a newer program.
#[derive(Default)]
pub(super) struct RenamedSaga;

#[saga(name = "telemetry-purchase", was = "telemetry-order")]
#[subscribes(Order)]
impl RenamedSaga {
    #[step]
    async fn reserve(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct PricedSaga;

#[saga(name = "telemetry-order")]
#[subscribes(Priced)]
impl PricedSaga {
    #[step]
    async fn reserve(&self, _: &mut Scope<'_>, _: &Priced) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn rest(&self, _: &mut Scope<'_>, _: &Priced) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn pack(&self, _: &mut Scope<'_>, _: &Priced) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn charge(&self, _: &mut Scope<'_>, _: &Priced) -> Result<()> {
        Ok(())
    }
}

/// Passes a gate.
#[derive(Clone, Default)]
pub(super) struct Gated(pub(super) Gate);

#[derive(Serialize, Deserialize, Message)]
#[message(topic = "telemetry.visits")]
pub(super) struct Visit;

#[saga(name = "telemetry-visit")]
#[subscribes(Visit)]
impl Gated {
    #[step]
    async fn pass(&self, _: &mut Scope<'_>, _: &Visit) -> Result<()> {
        self.0.pass().await;
        Ok(())
    }
}

/// Scheduled, and takes longer than the time between two runs.
#[derive(Default)]
pub(super) struct Slow;

#[saga(name = "telemetry-slow", every = "1s", overlap = "skip")]
#[subscribes(Tick)]
impl Slow {
    #[step]
    async fn dawdle(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(())
    }
}

/// A connection to the database on which chosen operations fail.
#[derive(Clone, Default)]
pub(super) struct Faulty {
    /// How each operation fails before it is carried out, and after.
    before: Arc<Mutex<BTreeMap<&'static str, Fault>>>,
    after: Arc<Mutex<BTreeMap<&'static str, Fault>>>,
    dead: Arc<AtomicBool>,
}

/// How often an operation succeeds, and then how often it fails.
pub(super) struct Fault {
    well: usize,
    fails: usize,
}

impl Fault {
    fn happens(&mut self) -> bool {
        if self.well > 0 {
            self.well -= 1;
            return false;
        }
        let happens = self.fails > 0;
        self.fails = self.fails.saturating_sub(1);
        happens
    }
}

impl Faulty {
    fn fate(
        &self,
        faults: &Mutex<BTreeMap<&'static str, Fault>>,
        operation: &str,
    ) -> BoxFuture<'static, io::Result<()>> {
        if self.dead.load(Ordering::Relaxed) {
            return pending().boxed();
        }
        let fails = faults.lock().unwrap().get_mut(operation).is_some_and(Fault::happens);
        let fate = if fails { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) };
        std::future::ready(fate).boxed()
    }

    pub(super) fn fail_before(&self, operation: &'static str, times: usize) {
        self.before.lock().unwrap().insert(operation, Fault { well: 0, fails: times });
    }

    pub(super) fn fail_after(&self, operation: &'static str, times: usize) {
        self.after.lock().unwrap().insert(operation, Fault { well: 0, fails: times });
    }

    /// Fails once, after so many successes.
    pub(super) fn fail_once_after(&self, operation: &'static str, well: usize) {
        self.after.lock().unwrap().insert(operation, Fault { well, fails: 1 });
    }
}

impl FaultLink for Faulty {
    fn before(&self, operation: &'static str) -> BoxFuture<'static, io::Result<()>> {
        self.fate(&self.before, operation)
    }

    fn after(&self, operation: &'static str) -> BoxFuture<'static, io::Result<()>> {
        self.fate(&self.after, operation)
    }

    fn heard(&self) -> BoxFuture<'static, u32> {
        std::future::ready(1).boxed()
    }
}

/// A program on that database, and its connection.
pub(super) struct Program {
    pub(super) link: Faulty,
    pub(super) process: Process,
    pub(super) scoop: Scoop,
}

impl Program {
    pub(super) async fn start(database: &InMemory, build: impl FnOnce(Builder) -> Builder) -> Result<Self> {
        let link = Faulty::default();
        let process = Process::new(database, Arc::new(link.clone()));
        let builder = Scoop::builder().simulated_process(&process).poll_interval(SOON);
        let scoop = build(builder).start().await?;
        Ok(Self { link, process, scoop })
    }

    pub(super) fn die(self) {
        self.link.dead.store(true, Ordering::Relaxed);
        self.process.disconnect();
        // Dropping the handle would be a shutdown.
        std::mem::forget(self.scoop);
    }
}

pub(super) async fn shop(database: &InMemory) -> Result<Program> {
    Program::start(database, |it| it.only::<OrderSaga>().only::<ParcelSaga>()).await
}
