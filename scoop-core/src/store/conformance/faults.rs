//! Calls that fail: which, and how.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use time::OffsetDateTime;

use crate::store::peek_lock::{Delivery, PeekLock};
use crate::store::{Dequeued, Entry, Item, Round, Rounds, Token, Verdict};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not carried out.
    Request,
    /// It is carried out, but the answer is lost.
    Answer,
    /// It is not carried out, and nor is any that follows: the process has died.
    Crash,
    /// It is carried out, but the answer is lost, and no call that follows is carried out.
    LastWords,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Request, Self::Answer, Self::Crash, Self::LastWords];

    fn carries_out(self) -> bool {
        matches!(self, Self::Answer | Self::LastWords)
    }

    fn is_the_end(self) -> bool {
        matches!(self, Self::Crash | Self::LastWords)
    }
}

/// Which call of a world is to fail. Its clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// What is to happen, and how many calls from now.
    armed: Option<(Fault, usize)>,
    struck: bool,
}

/// What a call that is about to be made has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Struck {
    /// Its work.
    No,
    /// Nothing but fail.
    Before,
    /// Its work, and fail nevertheless.
    After,
}

impl Faults {
    /// From now on, the `nth` call (from 1) is to fail like that.
    pub fn arm(&self, fault: Fault, nth: usize) {
        *self.state() = State { armed: Some((fault, nth)), struck: false };
    }

    /// From now on no call is to fail. Says whether one did.
    pub fn disarm(&self) -> bool {
        std::mem::take(&mut *self.state()).struck
    }

    /// Counts a call, and says what becomes of it.
    pub fn next(&self) -> Struck {
        let mut state = self.state();
        match state.armed {
            None => Struck::No,
            Some((fault, nth)) if nth > 1 => {
                state.armed = Some((fault, nth - 1));
                Struck::No
            }
            Some((fault, _)) => {
                let again = state.struck;
                state.struck = true;
                state.armed = state.armed.filter(|_| fault.is_the_end());
                if fault.carries_out() && !again { Struck::After } else { Struck::Before }
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store whose calls fail when they are to. Before each it gives others their turn, so that several
/// holders in one task come in between each other's calls.
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    store: S,
    faults: Faults,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultyError<E = Infallible> {
    /// What was asked for.
    #[error("the connection was lost, as the suite wanted it")]
    Wanted,
    /// Something else.
    #[error(transparent)]
    Store(#[from] E),
}

impl<S> Faulty<S> {
    /// This store, with these faults.
    pub fn new(store: S, faults: Faults) -> Self {
        Self { store, faults }
    }

    async fn call<T, E>(&self, call: impl Future<Output = Result<T, E>> + Send) -> Result<T, FaultyError<E>> {
        yield_now().await;
        match self.faults.next() {
            Struck::No => Ok(call.await?),
            Struck::Before => Err(FaultyError::Wanted),
            Struck::After => {
                call.await?;
                Err(FaultyError::Wanted)
            }
        }
    }
}

/// Gives the other futures of the task their turn.
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
