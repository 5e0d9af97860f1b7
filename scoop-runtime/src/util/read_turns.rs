//! Turns of reads for clients at the connections that they share with the engine.
//!
//! A list or a tree may take long, or wait for a lock. Without a bound, a few of them would take all connections, and no
//! saga of the program could go on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The time for which a read waits at least, also if the patience is over.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// The turns of the reads of a program. They come in the order of the requests. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ReadTurns(Arc<Semaphore>);

/// The turn of a read. It ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct ReadTurn {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// Other reads had all turns for too long.
#[derive(Debug, thiserror::Error)]
#[error("other reads of this program have all connections for reads")]
struct ReadsBusy;

impl ReadTurns {
    /// Turns at half of these connections, or at the only one.
    pub(crate) fn new(connections: u32) -> Self {
        let turns = usize::try_from(connections / 2).unwrap_or(Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(turns.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// The next turn, if there is one in time.
    pub(crate) async fn turn(&self, until: Instant) -> sqlx::Result<ReadTurn> {
        let until = until.max(Instant::now() + WAIT_MIN);
        let acquired = tokio::time::timeout_at(until, self.0.clone().acquire_owned()).await;
        // The semaphore is never closed.
        let permit = acquired.ok().and_then(Result::ok);
        let permit = permit.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, ReadsBusy))?;
        Ok(ReadTurn { _permit: Arc::new(permit) })
    }
}

/// Whether a read was given up since others had all turns.
pub(crate) fn is_out_of_turns(error: &sqlx::Error) -> bool {
    let sqlx::Error::Io(error) = error else { return false };
    error.get_ref().is_some_and(|source| source.is::<ReadsBusy>())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_connections_are_for_reads_but_at_least_one() {
        for (connections, turns) in [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)] {
            let reads = ReadTurns::new(connections);
            let mut held = vec![];
            while let Some(turn) = reads.turn(soon()).now_or_never() {
                held.push(turn.unwrap());
            }
            assert_eq!(held.len(), turns, "{connections} connections");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn turns_come_in_order_and_dropped_requests_take_none() {
        let reads = ReadTurns::new(1);
        let first = reads.turn(soon()).await.unwrap();
        let mut second = Box::pin(reads.turn(soon()));
        let mut third = Box::pin(reads.turn(soon()));
        let mut fourth = Box::pin(reads.turn(soon()));
        for waiting in [&mut second, &mut third, &mut fourth] {
            assert!(waiting.now_or_never().is_none());
        }
        drop(second);
        drop(first);
        assert!((&mut fourth).now_or_never().is_none());
        let third = third.now_or_never().unwrap().unwrap();
        // A turn lasts as long as its last clone.
        let clone = third.clone();
        drop(third);
        assert!((&mut fourth).now_or_never().is_none());
        drop(clone);
        assert!(fourth.now_or_never().is_some_and(|turn| turn.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn read_without_a_turn_in_time_is_given_up() {
        let reads = ReadTurns::new(3);
        let _held = reads.turn(soon()).await.unwrap();
        let begun = Instant::now();
        let given_up = reads.turn(soon()).await.unwrap_err();
        assert!(is_out_of_turns(&given_up), "{given_up:?}");
        assert_eq!(begun.elapsed().as_secs(), 30);
        assert!(is_out_of_turns(&reads.turn(Instant::now()).await.unwrap_err()));
        assert!(!is_out_of_turns(&sqlx::Error::PoolTimedOut));
    }
}
