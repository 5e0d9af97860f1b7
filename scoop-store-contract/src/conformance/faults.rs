//! Fault injection into the calls of a store.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use time::OffsetDateTime;

use crate::peek_lock::{Delivery, PeekLock};
use crate::{Dequeued, Entry, Item, Round, Rounds, Token, Verdict};

/// The way in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call is not carried out.
    Request,
    /// The call is carried out, but its answer is lost.
    Answer,
    /// The process dies before the call: neither this call nor a later one is carried out.
    Crash,
    /// The process dies after the call: its answer is lost, and no later call is carried out.
    LastWords,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 4] = [Self::Request, Self::Answer, Self::Crash, Self::LastWords];

    fn carries_out(self) -> bool {
        matches!(self, Self::Answer | Self::LastWords)
    }

    fn is_the_end(self) -> bool {
        matches!(self, Self::Crash | Self::LastWords)
    }
}

/// The fault to inject into a call of a world. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The fault to inject, and the number of calls until then.
    armed: Option<(Fault, usize)>,
    injected: bool,
}

/// The instruction for a call that is about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum InjectedAt {
    /// Do the work.
    No,
    /// Fail without doing the work.
    Before,
    /// Do the work, then fail.
    After,
}

impl Faults {
    /// Injects the fault into the `nth` call (from 1) from now on.
    pub fn arm(&self, fault: Fault, nth: usize) {
        *self.state() = State { armed: Some((fault, nth)), injected: false };
    }

    /// Stops injecting faults. Returns whether a call has failed.
    pub fn disarm(&self) -> bool {
        std::mem::take(&mut *self.state()).injected
    }

    /// Counts a call, and returns its instruction.
    pub fn next(&self) -> InjectedAt {
        let mut state = self.state();
        match state.armed {
            None => InjectedAt::No,
            Some((fault, nth)) if nth > 1 => {
                state.armed = Some((fault, nth - 1));
                InjectedAt::No
            }
            Some((fault, _)) => {
                let again = state.injected;
                state.injected = true;
                state.armed = state.armed.filter(|_| fault.is_the_end());
                if fault.carries_out() && !again { InjectedAt::After } else { InjectedAt::Before }
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store with injected faults. It yields before each call, so that the calls of several holders in one task
/// interleave.
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    store: S,
    faults: Faults,
}

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultyError<E = Infallible> {
    /// An injected fault.
    #[error("the connection was lost, as the suite wanted it")]
    Wanted,
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] E),
}

impl<S> Faulty<S> {
    /// Injects these faults into this store.
    pub fn new(store: S, faults: Faults) -> Self {
        Self { store, faults }
    }

    async fn call<T, E>(&self, call: impl Future<Output = Result<T, E>> + Send) -> Result<T, FaultyError<E>> {
        yield_now().await;
        match self.faults.next() {
            InjectedAt::No => Ok(call.await?),
            InjectedAt::Before => Err(FaultyError::Wanted),
            InjectedAt::After => {
                call.await?;
                Err(FaultyError::Wanted)
            }
        }
    }
}

/// Lets the other futures of the task run.
pub(super) async fn yield_now() {
    let mut yielded = false;
    let mut turn = pin!(std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }));
    turn.as_mut().await;
}

impl<S: Rounds> Rounds for Faulty<S> {
    type Error = FaultyError<S::Error>;

    async fn now(&self) -> Result<OffsetDateTime, Self::Error> {
        self.call(self.store.now()).await
    }

    async fn dequeue(&self, holder: &str) -> Result<Option<Dequeued>, Self::Error> {
        self.call(self.store.dequeue(holder)).await
    }

    async fn commit(&self, round: &Round) -> Result<Verdict, Self::Error> {
        self.call(self.store.commit(round)).await
    }

    async fn abandon(&self, token: &Token) -> Result<(), Self::Error> {
        self.call(self.store.abandon(token)).await
    }

    async fn read(&self, stream: &str) -> Result<Vec<Entry>, Self::Error> {
        self.call(self.store.read(stream)).await
    }

    async fn take_over(&self) -> Result<u64, Self::Error> {
        self.call(self.store.take_over()).await
    }
}

impl<S: PeekLock> PeekLock for Faulty<S> {
    type Error = FaultyError<S::Error>;

    async fn now(&self) -> Result<OffsetDateTime, Self::Error> {
        self.call(self.store.now()).await
    }

    async fn append(&self, entry: &Entry) -> Result<(), Self::Error> {
        self.call(self.store.append(entry)).await
    }

    async fn enqueue(&self, item: &Item) -> Result<(), Self::Error> {
        self.call(self.store.enqueue(item)).await
    }

    async fn dequeue(&self, holder: &str) -> Result<Option<Delivery>, Self::Error> {
        self.call(self.store.dequeue(holder)).await
    }

    async fn acknowledge(&self, token: &str) -> Result<(), Self::Error> {
        self.call(self.store.acknowledge(token)).await
    }

    async fn abandon(&self, token: &str) -> Result<(), Self::Error> {
        self.call(self.store.abandon(token)).await
    }

    async fn read(&self, stream: &str) -> Result<Vec<Entry>, Self::Error> {
        self.call(self.store.read(stream)).await
    }
}
