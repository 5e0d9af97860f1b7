//! Retries of the database operations of a program, for as long as its retry time lasts.
//!
//! A server that restarts, or a network that drops connections, leaves dead connections in the pool, each of which
//! fails one statement. An operation without an effect is repeated. One with an effect carries ids that were made in
//! the program, so a repetition finds the effect of the first attempt. Where there are no such ids, an attempt
//! whose answer was lost ends the operation: the error says that it may have happened.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::ErrorKind;
use crate::error::{is_contended, is_denied, is_transient, is_without_tables, loses_answer, refusal};
use crate::util::read_permits::{ReadPermit, ReadPermits, is_out_of_permits};
use crate::{RuntimeError, SetupError};

/// The default of [`Builder::retry_for`](crate::Builder::retry_for).
pub(crate) const RETRY_FOR: Duration = Duration::from_secs(30);

/// A time that no program waits for. An instant after a longer one may be none.
pub const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The number of retries without a pause: each detects another dead connection.
const IMMEDIATE: u32 = 3;

/// The pauses after that double from the first to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The time for which one attempt waits for a connection. The pool lengthens its pauses between attempts to connect,
/// so a new attempt begins before the pauses get long.
const ACQUIRE_MIN: Duration = Duration::from_secs(1);
const ACQUIRE_MAX: Duration = Duration::from_secs(5);

tokio::task_local! {
    /// The current attempt of this task.
    static CURRENT: Arc<CurrentAttempt>;
}

/// One attempt, as seen by the functions of the store.
struct CurrentAttempt {
    /// The end of the retry time.
    until: Instant,
    /// Set when the answer to a statement with an effect was lost.
    in_doubt: AtomicBool,
    /// That of a read for a client. It ends with the attempt, and with the tasks that carry that on.
    permit: Option<ReadPermit>,
}

/// Whether an operation is attempted for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The first one.
    First,
    /// The outcome of an earlier attempt may be unknown.
    Repeat,
}

/// One attempt, with a result of any type.
type AnyWork<'a> = Pin<&'a mut (dyn Future<Output = sqlx::Result<()>> + Send)>;

/// One operation, with its attempts so far.
#[derive(Debug)]
pub struct Retries {
    retry_for: Duration,
    since: Instant,
    attempts: u32,
    in_doubt: bool,
    ends_in_doubt: bool,
    pause: Duration,
    /// If it is a read for a client.
    reads: Option<ReadPermits>,
    /// The most informative error.
    error: Option<sqlx::Error>,
}

/// An operation that was given up.
#[derive(Debug)]
pub struct GivenUp {
    pub(crate) attempts: u32,
    pub(crate) waited: Duration,
    pub(crate) retry_for: Duration,
    /// An attempt may have been committed.
    pub(crate) in_doubt: bool,
    /// The last error.
    pub source: sqlx::Error,
}

impl Retries {
    /// An operation whose retry time begins now.
    pub fn new(retry_for: Duration) -> Self {
        let (since, pause) = (Instant::now(), PAUSE_MIN);
        Self {
            retry_for,
            since,
            attempts: 0,
            in_doubt: false,
            ends_in_doubt: false,
            pause,
            reads: None,
            error: None,
        }
    }

    /// Disables the retry after an attempt that may have been committed.
    pub fn once(self) -> Self {
        Self { ends_in_doubt: true, ..self }
    }

    /// Makes it a read for a client, each attempt of which waits for one of these turns. Its statements have no effect, and end when
    /// it is dropped. `None` for a store without connections.
    pub fn reading(self, reads: Option<ReadPermits>) -> Self {
        Self { reads, ..self }
    }

    /// A trial for operations that are attempted together with this one, with the same retry time.
    pub(crate) fn shared(&self) -> Self {
        Self {
            since: self.since,
            attempts: self.attempts,
            in_doubt: self.in_doubt,
            ..Self::new(self.retry_for)
        }
    }

    /// Takes over the attempts of a [shared](Self::shared) trial.
    pub(crate) fn after(&mut self, shared: &Self) {
        (self.attempts, self.in_doubt) = (shared.attempts, shared.in_doubt);
    }

    /// The attempt that is due.
    pub(crate) fn next_attempt(&self) -> Attempt {
        if self.attempts == 0 { Attempt::First } else { Attempt::Repeat }
    }

    /// Whether it took more than one attempt.
    pub(crate) fn is_repeated(&self) -> bool {
        self.attempts > 1
    }

    /// Whether its retry time is over.
    pub(crate) fn has_expired(&self) -> bool {
        self.until() <= Instant::now()
    }

    /// The time at which its retry time is over.
    pub(crate) fn until(&self) -> Instant {
        self.since + self.retry_for.min(FOREVER)
    }

    /// Makes attempts until one succeeds or is refused by the server, or the retry time is over. The argument is
    /// the attempt.
    pub async fn run<T: Send, F>(mut self, mut attempt: impl FnMut(Attempt) -> F) -> Result<T, GivenUp>
    where
        F: Future<Output = sqlx::Result<T>> + Send,
    {
        loop {
            let work = attempt(self.next_attempt());
            if let Some(answer) = self.attempt(work).await {
                return answer;
            }
        }
    }

    /// Makes an attempt. Returns `None`, after the pause, if another attempt is due.
    pub(crate) async fn attempt<T: Send>(
        &mut self,
        work: impl Future<Output = sqlx::Result<T>> + Send,
    ) -> Option<Result<T, GivenUp>> {
        let mut answer = None;
        let ended = {
            let work = async {
                answer = Some(work.await?);
                Ok(())
            };
            self.attempt_any(pin!(work)).await?
        };
        Some(ended.map(|()| answer.expect("an attempt that succeeded has an answer")))
    }

    /// Makes an attempt at work without a result: the same code for all operations.
    async fn attempt_any(&mut self, work: AnyWork<'_>) -> Option<Result<(), GivenUp>> {
        self.attempts += 1;
        let error = match self.attempt_with_permit(work).await {
            Ok(()) => return Some(Ok(())),
            Err(error) => error,
        };
        let refused = !may_succeed_later(&error) || (self.ends_in_doubt && self.in_doubt);
        // If there is no connection for it, the previous error is the reason.
        let has_waited = matches!(error, sqlx::Error::PoolTimedOut) || is_out_of_permits(&error);
        if !has_waited || self.error.is_none() {
            self.error = Some(error);
        }
        if refused || self.has_expired() {
            let error = self.error.take().unwrap_or(sqlx::Error::PoolTimedOut);
            return Some(Err(self.given_up(error)));
        }
        if self.attempts > IMMEDIATE {
            tokio::time::sleep_until((Instant::now() + self.pause).min(self.until())).await;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        None
    }

    /// Makes an attempt, in its turn if it is a read for a client. The turn ends before the pause. The retry time begins with the
    /// first turn: a wait for other reads is no failure.
    async fn attempt_with_permit(&mut self, work: AnyWork<'_>) -> sqlx::Result<()> {
        let permit = match &self.reads {
            Some(reads) => Some(reads.permit(self.until().saturating_duration_since(Instant::now())).await?),
            None => None,
        };
        if permit.is_some() && self.attempts == 1 {
            self.since = Instant::now();
        }
        let (until, in_doubt) = (self.until(), AtomicBool::new(false));
        let current = Arc::new(CurrentAttempt { until, in_doubt, permit });
        let ended = CURRENT.scope(current.clone(), work).await;
        self.in_doubt |= current.in_doubt.load(Relaxed);
        ended
    }

    /// The result of giving up after this error.
    pub(crate) fn given_up(&self, source: sqlx::Error) -> GivenUp {
        let (attempts, waited, retry_for) = (self.attempts, self.since.elapsed(), self.retry_for);
        GivenUp { attempts, waited, retry_for, in_doubt: self.in_doubt, source }
    }
}

impl GivenUp {
    /// The error for users.
    pub fn error(doing: &'static str) -> impl FnOnce(Self) -> RuntimeError {
        move |given_up| {
            let Self { attempts, waited, retry_for, in_doubt: may_have_happened, source } = given_up;
            if let Some(what) = is_without_tables(&source) {
                return vec![SetupError::NoTables { what }].into();
            }
            if is_denied(&source) {
                return RuntimeError::from(ErrorKind::Denied { doing, refusal: refusal(&source), source });
            }
            // Only a shutdown closes the pools of the store.
            if matches!(source, sqlx::Error::PoolClosed) {
                return RuntimeError::from(ErrorKind::ShutDown { doing, may_have_happened });
            }
            if is_out_of_permits(&source) {
                return RuntimeError::from(ErrorKind::ReadsBusy { doing, waited });
            }
            if !may_have_happened && !may_succeed_later(&source) {
                return RuntimeError::from(ErrorKind::Database { doing, source });
            }
            RuntimeError::from(ErrorKind::Unavailable {
                doing,
                attempts,
                waited,
                retry_for,
                may_have_happened,
                source,
            })
        }
    }
}

/// Whether another attempt may succeed: the database failed, or a statement waited too long for a lock.
fn may_succeed_later(error: &sqlx::Error) -> bool {
    is_transient(error) || is_contended(error)
}

impl From<sqlx::Error> for GivenUp {
    /// The failure of an operation without retries.
    fn from(source: sqlx::Error) -> Self {
        let (waited, retry_for, in_doubt) = (Duration::ZERO, Duration::ZERO, loses_answer(&source));
        Self { attempts: 1, waited, retry_for, in_doubt, source }
    }
}

/// The time for which an attempt waits for a connection; `None` outside of an attempt.
pub(crate) fn acquires_within() -> Option<Duration> {
    let left = |attempt: &Arc<CurrentAttempt>| attempt.until.saturating_duration_since(Instant::now());
    CURRENT.try_with(left).ok().map(|left| left.clamp(ACQUIRE_MIN, ACQUIRE_MAX))
}

/// Whether the current attempt is a read for a client, in its turn.
pub(crate) fn has_permit() -> bool {
    CURRENT.try_with(|attempt| attempt.permit.is_some()).unwrap_or(false)
}

/// Records that this failure may hide an effect: the answer to a statement or a commit with an effect was lost.
pub(crate) fn note(error: &sqlx::Error) {
    if loses_answer(error) {
        let _ = CURRENT.try_with(|attempt| attempt.in_doubt.store(true, Relaxed));
    }
}

/// Makes the work a part of the current attempt, also if it is moved to another task.
pub(crate) fn carried<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let attempt = CURRENT.try_with(Arc::clone).ok();
    async move {
        match attempt {
            Some(attempt) => CURRENT.scope(attempt, work).await,
            None => work.await,
        }
    }
}
