//! Turns of reads for clients at the connections of their program.
//!
//! A list or a tree may take long, or wait for a lock. Without a bound, a few of them would take all connections, and no
//! saga of the program could go on. A program without an engine has no sagas, and as many turns as connections.
//!
//! A read waits for as long as others get turns: reads that come one after another do not fail since they are many. It
//! is given up if no read has got a turn for the retry time of the program.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::util::retries::FOREVER;
use crate::util::sync::{Mutex, lock};

/// The time for which a read waits at least, also if the retry time is over.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// The turns of the reads of a program. They come in the order of the requests. Clones share them.
#[derive(Clone, Debug)]
pub struct ReadPermits {
    free: Arc<Semaphore>,
    /// The time of the last turn of any read.
    given_at: Arc<Mutex<Instant>>,
}

/// The turn of a read. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct ReadPermit {
    _permit: OwnedSemaphorePermit,
}

/// Other reads had all turns for too long.
#[derive(Debug, thiserror::Error)]
#[error("other reads of this program have all connections for reads")]
struct ReadsBusy;

impl ReadPermits {
    /// Turns at all of these connections.
    pub(crate) fn at_all(connections: u32) -> Self {
        let permits = usize::try_from(connections).unwrap_or(Semaphore::MAX_PERMITS);
        let free = Semaphore::new(permits.clamp(1, Semaphore::MAX_PERMITS));
        Self { free: Arc::new(free), given_at: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Turns at half of these connections, or at the only one.
    pub(crate) fn at_half(connections: u32) -> Self {
        Self::at_all(connections / 2)
    }

    /// The next turn, unless no read gets one for so long.
    pub(crate) async fn permit(&self, retry_for: Duration) -> sqlx::Result<ReadPermit> {
        let (retry_for, begun) = (retry_for.clamp(WAIT_MIN, FOREVER), Instant::now());
        let mut acquired = pin!(self.free.clone().acquire_owned());
        loop {
            let since = begun.max(*lock(&self.given_at));
            if let Ok(permit) = timeout_at(since + retry_for, &mut acquired).await {
                *lock(&self.given_at) = Instant::now();
                return Ok(ReadPermit { _permit: permit.expect("the semaphore is never closed") });
            }
            if *lock(&self.given_at) <= since {
                return Err(io::Error::new(io::ErrorKind::TimedOut, ReadsBusy).into());
            }
        }
    }

    /// A turn that is free now. None while a read waits for one.
    pub(crate) fn try_acquire(&self) -> Option<ReadPermit> {
        Some(ReadPermit { _permit: self.free.clone().try_acquire_owned().ok()? })
    }
}

/// Whether a read was given up since others had all turns.
pub fn is_out_of_permits(error: &sqlx::Error) -> bool {
    let sqlx::Error::Io(error) = error else { return false };
    error.get_ref().is_some_and(|source| source.is::<ReadsBusy>())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::sleep;

    use super::*;
    use crate::util::retries::{Attempt, RETRY_FOR, Retries};

    const SECOND: Duration = Duration::from_secs(1);

    async fn turns_at_once(reads: &ReadPermits) -> usize {
        let mut held = vec![];
        while let Some(permit) = reads.permit(RETRY_FOR).now_or_never() {
            held.push(permit.unwrap());
        }
        held.len()
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_connections_are_for_reads_beside_an_engine_but_at_least_one() {
        for (connections, permits) in [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)] {
            let at_once = turns_at_once(&ReadPermits::at_half(connections)).await;
            assert_eq!(at_once, permits, "{connections} connections");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_connections_are_for_reads_without_an_engine() {
        for connections in 1..4 {
            let permits = turns_at_once(&ReadPermits::at_all(connections)).await;
            assert_eq!(permits, usize::try_from(connections).unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn turns_come_in_order_and_dropped_requests_take_none() {
        let reads = ReadPermits::at_all(1);
        let first = reads.permit(RETRY_FOR).await.unwrap();
        let mut second = Box::pin(reads.permit(RETRY_FOR));
        let mut third = Box::pin(reads.permit(RETRY_FOR));
        let mut fourth = Box::pin(reads.permit(RETRY_FOR));
        for waiting in [&mut second, &mut third, &mut fourth] {
            assert!(waiting.now_or_never().is_none());
        }
        drop(second);
        drop(first);
        assert!((&mut fourth).now_or_never().is_none());
        let third = third.now_or_never().unwrap().unwrap();
        assert!((&mut fourth).now_or_never().is_none());
        drop(third);
        assert!(fourth.now_or_never().is_some_and(|permit| permit.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn read_without_a_turn_in_time_is_given_up() {
        let reads = ReadPermits::at_all(1);
        let _held = reads.permit(RETRY_FOR).await.unwrap();
        sleep(SECOND).await;
        let begun = Instant::now();
        let given_up = reads.permit(RETRY_FOR).await.unwrap_err();
        assert!(is_out_of_permits(&given_up), "{given_up:?}");
        assert_eq!(begun.elapsed().as_secs(), RETRY_FOR.as_secs());
        assert!(is_out_of_permits(&reads.permit(Duration::ZERO).await.unwrap_err()));
        assert!(!is_out_of_permits(&sqlx::Error::PoolTimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn read_waits_for_its_turn_while_others_get_theirs() {
        let reads = ReadPermits::at_all(1);
        let read = async |takes| {
            let _turn = reads.permit(RETRY_FOR).await?;
            sleep(takes).await;
            Ok::<_, sqlx::Error>(())
        };
        let short = RETRY_FOR - SECOND;
        let (first, second, third) = tokio::join!(read(short), read(short), read(short));
        assert!(first.is_ok() && second.is_ok() && third.is_ok(), "{first:?} {second:?} {third:?}");
        // Not if none of them ends.
        let (first, second, third) = tokio::join!(read(short), read(RETRY_FOR + SECOND), read(short));
        assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
        assert!(third.is_err_and(|error| is_out_of_permits(&error)));
    }

    #[tokio::test(start_paused = true)]
    async fn retry_time_of_a_read_begins_with_its_first_turn() {
        let reads = ReadPermits::at_all(1);
        let read = async || {
            let trial = Retries::new(RETRY_FOR).reading(Some(reads.clone()));
            let read = |attempt| async move {
                sleep(RETRY_FOR / 3).await;
                match attempt {
                    Attempt::First => Err(sqlx::Error::Io(io::ErrorKind::UnexpectedEof.into())),
                    Attempt::Repeat => Ok(()),
                }
            };
            trial.run(read).await
        };
        // The last one has its first turn when the retry time since its request is over.
        let (first, second, third, last) = tokio::join!(read(), read(), read(), read());
        for ended in [first, second, third, last] {
            assert!(ended.is_ok(), "{ended:?}");
        }
    }
}
