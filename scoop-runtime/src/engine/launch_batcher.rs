//! Batches concurrent launches of a process into one statement and commit.
//!
//! A launch starts a writer unless enough are active; launches arriving meanwhile form the next batch. Writers are
//! separate tasks, so dropping one caller's future does not affect the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::completion::StartedAs;
use crate::engine::{self, Engine};
use crate::error::is_transient;
use crate::settings::CLIENT_CONNECTIONS;
use crate::store::{LaunchResult, NewMessage, Store, Unhandled, mark_maybe_launched};
use crate::unhandled::UnhandledWarnings;
use crate::util::retries::{GivenUp, Retries};
use crate::util::sync::{Mutex, MutexGuard, lock};

/// The maximum number of launches in a batch. There is at most one batch per connection.
const BATCH_MAX: usize = 200;

/// The maximum size of a batch, in bytes of JSON, except for a single larger message.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// The pause between notifications: each takes a connection from a writer.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(5);

/// The pending launches of a process.
pub(crate) struct LaunchBatcher {
    store: Store,
    /// Starts runs of the messages, if the process has one.
    engine: Option<Arc<Engine>>,
    queue: Arc<Mutex<Queue>>,
    unhandled: Arc<UnhandledWarnings>,
    notifiers: TaskTracker,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<PendingLaunch>,
    writing: u32,
    /// Whether a launch was not notified yet.
    notify_pending: bool,
    is_notifying: bool,
}

/// A launch, and the channel to its caller.
struct PendingLaunch {
    message: NewMessage,
    trial: Retries,
    answer: oneshot::Sender<Result<StartedAs, GivenUp>>,
}

impl LaunchBatcher {
    pub(crate) fn new(
        store: Store,
        engine: Option<Arc<Engine>>,
        unhandled: Arc<UnhandledWarnings>,
    ) -> Arc<Self> {
        Arc::new(Self { store, engine, queue: Arc::default(), unhandled, notifiers: TaskTracker::new() })
    }

    /// Launches a message, perhaps in a batch with others. None of them may have a unique key.
    pub(crate) async fn launch(
        self: &Arc<Self>,
        message: NewMessage,
        trial: Retries,
    ) -> Result<StartedAs, GivenUp> {
        let (answer, answered) = oneshot::channel();
        if self.queue().add(PendingLaunch { message, trial, answer }) {
            tokio::spawn(self.clone().write_all(WriterGuard::new(&self.queue)));
        }
        answered.await.unwrap_or_else(|_| Err(sqlx::Error::WorkerCrashed.into()))
    }

    /// Launches messages in a transaction of their own. Returns how each has started.
    pub(crate) async fn launch_together(
        self: &Arc<Self>,
        messages: Vec<NewMessage>,
        mut trial: Retries,
    ) -> Result<Vec<StartedAs>, GivenUp> {
        self.try_to_write(&mut Arc::new(messages), &mut trial).await
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Writes batches until no launch is pending.
    async fn write_all(self: Arc<Self>, mut writer: WriterGuard) {
        while let Some(batch) = writer.next() {
            self.write(batch).await;
        }
    }

    /// Writes the batch, and answers each launch. While the database is away, a launch whose retry time is over is
    /// removed from the batch, and the others are retried.
    async fn write(self: &Arc<Self>, batch: Vec<PendingLaunch>) {
        let (mut messages, mut waiting): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|PendingLaunch { message, trial, answer }| (message, (trial, answer)))
            .unzip();
        while let Some((first, _)) = waiting.iter().min_by_key(|(trial, _)| trial.until()) {
            let mut trial = first.shared();
            let mut shared = Arc::new(std::mem::take(&mut messages));
            let given_up = match self.try_to_write(&mut shared, &mut trial).await {
                Ok(started) => {
                    for ((_, answer), start) in waiting.into_iter().zip(started) {
                        let _ = answer.send(Ok(start));
                    }
                    return;
                }
                Err(given_up) => given_up,
            };
            messages = Arc::unwrap_or_clone(shared);
            if is_rejection(&given_up.source) && waiting.len() > 1 {
                for (message, (mut trial, answer)) in messages.into_iter().zip(waiting) {
                    let started = self.try_to_write(&mut Arc::new(vec![message]), &mut trial).await;
                    let _ = answer.send(started.map(|started| started[0]));
                }
                return;
            }
            if waiting.len() == 1 {
                waiting.pop().map(|(_, answer)| answer.send(Err(given_up)));
                return;
            }
            let (transient, source) = (is_transient(&given_up.source), Arc::new(given_up.source));
            let all = std::mem::take(&mut messages).into_iter().zip(std::mem::take(&mut waiting));
            for (message, (mut own, answer)) in all {
                own.after(&trial);
                if transient && !own.has_expired() {
                    messages.push(message);
                    waiting.push((own, answer));
                } else {
                    let _ = answer.send(Err(own.given_up(clone_error(&source))));
                }
            }
        }
    }

    async fn try_to_write(
        self: &Arc<Self>,
        messages: &mut Arc<Vec<NewMessage>>,
        trial: &mut Retries,
    ) -> Result<Vec<StartedAs>, GivenUp> {
        if let Some(engine) = &self.engine {
            loop {
                let attempt = trial.next_attempt();
                if let Some(started) = trial.attempt(engine::launch(engine, messages, attempt)).await {
                    return started;
                }
            }
        }
        let (launch, attempt) = loop {
            let own = Arc::get_mut(messages).ok_or(sqlx::Error::WorkerCrashed)?;
            let attempt = trial.next_attempt();
            let messages = mark_maybe_launched(own, attempt);
            if let Some(launch) = trial.attempt(self.store.launch_in_own_transaction(messages)).await {
                break (launch?, attempt);
            }
        };
        self.launched(messages, &launch);
        if trial.is_repeated() {
            // Messages launched by an earlier attempt were not notified.
            self.notify();
        }
        Ok(vec![launch.started_as(messages, attempt); messages.len()])
    }

    /// Notifies the workers of the handlers, and warns about messages without handlers.
    fn launched(self: &Arc<Self>, messages: &[NewMessage], launch: &LaunchResult) {
        if launch.launched > 0 {
            self.unhandled.launched(messages.iter().map(|message| &*message.topic), &launch.handlers);
        }
        self.notify_ready(&launch.handlers);
    }

    /// Notifies the processes with these handlers: at once, but not again before a pause.
    pub(crate) fn notify_ready(self: &Arc<Self>, handlers: &[String]) {
        if !handlers.is_empty() {
            self.notify();
        }
    }

    /// Waits until no notification is pending.
    pub(crate) async fn notified(&self) {
        self.notifiers.close();
        self.notifiers.wait().await;
    }

    fn notify(self: &Arc<Self>) {
        if self.queue().mark_pending() {
            self.notifiers.spawn(NotifierGuard { all: self.clone(), is_finished: false }.notify());
        }
    }
}

impl Queue {
    /// Records a need for a notification. Returns whether the caller has to start a [`NotifierGuard`].
    fn mark_pending(&mut self) -> bool {
        self.notify_pending = true;
        !std::mem::replace(&mut self.is_notifying, true)
    }

    /// Whether a notification is needed. If not, the calling [`NotifierGuard`] has ended.
    fn take_pending(&mut self) -> bool {
        self.is_notifying = std::mem::take(&mut self.notify_pending);
        self.is_notifying
    }

    /// Queues a launch. Returns whether the caller has to start a [`WriterGuard`].
    fn add(&mut self, waiting: PendingLaunch) -> bool {
        self.waiting.push_back(waiting);
        let begins = self.writing < CLIENT_CONNECTIONS;
        self.writing += u32::from(begins);
        begins
    }

    /// Takes the next batch. If there is none, the calling [`WriterGuard`] has ended.
    fn take(&mut self) -> Option<Vec<PendingLaunch>> {
        if self.waiting.is_empty() {
            self.writing -= 1;
            return None;
        }
        let mut bytes = 0;
        let fits = |waiting: &&PendingLaunch| {
            bytes += waiting.message.bytes;
            bytes <= BATCH_BYTES_MAX
        };
        let count = self.waiting.iter().take(BATCH_MAX).take_while(fits).count();
        Some(self.waiting.drain(..count.max(1)).collect())
    }
}

/// A task that writes batches until no launch is pending.
struct WriterGuard {
    queue: Arc<Mutex<Queue>>,
    is_finished: bool,
}

impl WriterGuard {
    fn new(queue: &Arc<Mutex<Queue>>) -> Self {
        Self { queue: queue.clone(), is_finished: false }
    }

    fn next(&mut self) -> Option<Vec<PendingLaunch>> {
        let batch = lock(&self.queue).take();
        self.is_finished = batch.is_none();
        batch
    }
}

impl Drop for WriterGuard {
    /// If the writer is stopped early, another can take its place. If it was the last one, the pending launches fail.
    fn drop(&mut self) {
        if !self.is_finished {
            let mut queue = lock(&self.queue);
            queue.writing -= 1;
            if queue.writing == 0 {
                queue.waiting.clear();
            }
        }
    }
}

/// A task that notifies until no notification is needed.
struct NotifierGuard {
    all: Arc<LaunchBatcher>,
    is_finished: bool,
}

impl NotifierGuard {
    async fn notify(mut self) {
        while self.take_pending() {
            // A failed notification is made up for by polling.
            let _ = self.all.store.notify(Uuid::nil()).await;
            tokio::time::sleep(NOTIFY_INTERVAL).await;
        }
    }

    fn take_pending(&mut self) -> bool {
        let takes = self.all.queue().take_pending();
        self.is_finished = !takes;
        takes
    }
}

impl Drop for NotifierGuard {
    /// If the task is stopped early, another can take its place. After its regular end, another may have started
    /// already.
    fn drop(&mut self) {
        if !self.is_finished {
            self.all.queue().is_notifying = false;
        }
    }
}

/// Whether the server has refused the messages. Then nothing is written; after any other failure, that may be
/// unknown.
fn is_rejection(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some() && !is_transient(error) || Unhandled::find_in(error).is_some()
}

/// Copies the failure of a batch for one of its launches.
fn clone_error(error: &Arc<sqlx::Error>) -> sqlx::Error {
    match &**error {
        sqlx::Error::PoolClosed => sqlx::Error::PoolClosed,
        transient if is_transient(transient) => sqlx::Error::Io(std::io::Error::other(error.clone())),
        other => sqlx::Error::Protocol(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(bytes: usize) -> PendingLaunch {
        let message = NewMessage::new("a", serde_json::Value::Null, bytes);
        PendingLaunch { message, trial: Retries::new(Duration::ZERO), answer: oneshot::channel().0 }
    }

    fn taken(queue: &mut Queue) -> Vec<usize> {
        std::iter::from_fn(|| queue.take()).map(|batch| batch.len()).collect()
    }

    #[test]
    fn writers_are_limited_by_the_connections() {
        let mut queue = Queue::default();
        assert_eq!([(); 4].map(|()| queue.add(waiting(1))), [true, true, false, false]);
        assert_eq!(taken(&mut queue), [4]);
        assert!(queue.add(waiting(1)), "one writer has ended");
        assert!(!queue.add(waiting(1)));
    }

    #[test]
    fn launch_during_a_notification_is_notified_next() {
        let mut queue = Queue::default();
        assert!(queue.mark_pending() && queue.take_pending());
        assert!(!queue.mark_pending() && !queue.mark_pending(), "a teller is active");
        assert!(queue.take_pending() && !queue.take_pending());
        assert!(queue.mark_pending(), "the teller has ended");
    }

    #[test]
    fn batch_has_a_maximum_size() {
        let mut queue = Queue::default();
        let large = BATCH_BYTES_MAX / 2 + 1;
        for bytes in [1; 2 * BATCH_MAX + 1].into_iter().chain([large, large, 2 * BATCH_BYTES_MAX, 1]) {
            queue.add(waiting(bytes));
        }
        assert_eq!(taken(&mut queue), [BATCH_MAX, BATCH_MAX, 2, 1, 1, 1]);
    }

    #[test]
    fn writer_without_pending_launches_ends() {
        let queue = Arc::<Mutex<Queue>>::default();
        assert!(lock(&queue).add(waiting(1)) && lock(&queue).add(waiting(1)));
        let [mut one, mut other] = [(); 2].map(|()| WriterGuard::new(&queue));
        assert_eq!(one.next().map(|batch| batch.len()), Some(2));
        assert!(other.next().is_none());
        drop(other);
        assert_eq!(lock(&queue).writing, 1, "the first writer is still active");
        assert!(one.next().is_none());
        drop(one);
        assert_eq!(lock(&queue).writing, 0);
    }

    #[test]
    fn stopped_writer_leaves_the_launches_to_the_other() {
        let queue = Arc::<Mutex<Queue>>::default();
        assert!(lock(&queue).add(waiting(1)) && lock(&queue).add(waiting(1)));
        let [one, mut other] = [(); 2].map(|()| WriterGuard::new(&queue));
        drop(one);
        assert_eq!(other.next().map(|batch| batch.len()), Some(2));
    }

    #[test]
    fn megabyte_fits_into_a_batch() {
        let mut queue = Queue::default();
        for _ in 0..10 {
            queue.add(waiting(100_000));
        }
        assert_eq!(taken(&mut queue), [10]);
    }

    #[tokio::test]
    async fn launch_of_a_stopped_writer_fails() {
        let queue = Arc::<Mutex<Queue>>::default();
        let (answer, answered) = oneshot::channel();
        let message = waiting(1).message;
        assert!(lock(&queue).add(PendingLaunch { message, trial: Retries::new(Duration::ZERO), answer }));
        drop(WriterGuard::new(&queue));
        assert!(answered.await.is_err());
        assert!(lock(&queue).add(waiting(1)), "another writer takes its place");
    }
}

#[cfg(test)]
mod interleavings {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

    use shuttle::future::block_on;
    use shuttle::rand::{Rng, thread_rng};
    use shuttle::thread;

    use super::*;
    use crate::util::sync::explore;

    /// The state shared by the writers.
    #[derive(Default)]
    struct Writers {
        at_work: AtomicU32,
        stopped: AtomicBool,
    }

    /// Writes batches until no launch is pending, or is stopped at any moment, as when a runtime ends.
    fn write(mut writer: WriterGuard, all: &Writers, may_stop: bool) {
        assert!(all.at_work.fetch_add(1, SeqCst) < CLIENT_CONNECTIONS, "more writers than connections");
        while let Some(batch) = writer.next() {
            thread::yield_now();
            if may_stop && thread_rng().gen_bool(0.3) {
                all.stopped.store(true, SeqCst);
                break;
            }
            batch.into_iter().for_each(|waiting| drop(waiting.answer.send(Ok(StartedAs::Other))));
        }
        all.at_work.fetch_sub(1, SeqCst);
    }

    fn launch(queue: &Arc<Mutex<Queue>>, all: &Arc<Writers>, may_stop: bool) {
        let (answer, answered) = oneshot::channel();
        let message = NewMessage::new("a", serde_json::Value::Null, 1);
        if lock(queue).add(PendingLaunch { message, trial: Retries::new(Duration::ZERO), answer }) {
            let (writer, all) = (WriterGuard::new(queue), all.clone());
            thread::spawn(move || write(writer, &all, may_stop));
        }
        let written = block_on(answered).is_ok();
        assert!(written || all.stopped.load(SeqCst), "the launch was forgotten");
    }

    fn launches(may_stop: bool) {
        let (queue, all) = (Arc::<Mutex<Queue>>::default(), Arc::<Writers>::default());
        let launches = [(); 4].map(|()| {
            let (queue, all) = (queue.clone(), all.clone());
            thread::spawn(move || launch(&queue, &all, may_stop))
        });
        launches.into_iter().for_each(|launch| launch.join().unwrap());
        while lock(&queue).writing > 0 {
            thread::yield_now();
        }
        assert!(lock(&queue).waiting.is_empty());
    }

    #[test]
    fn every_launch_is_written() {
        explore(|| launches(false));
    }

    #[test]
    fn launch_of_a_stopped_writer_ends() {
        explore(|| launches(true));
    }

    #[test]
    fn every_launch_is_notified() {
        explore(|| {
            let queue = Arc::<Mutex<Queue>>::default();
            let (launched, notified) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let notify = |queue: Arc<Mutex<Queue>>, launched: Arc<AtomicU32>, notified: Arc<AtomicU32>| {
                // A lock taken in the condition would be held in the loop.
                let take_pending = || lock(&queue).take_pending();
                while take_pending() {
                    notified.store(launched.load(SeqCst), SeqCst);
                    thread::yield_now();
                }
            };
            let launches = [(); 3].map(|()| {
                let (queue, launched, notified) = (queue.clone(), launched.clone(), notified.clone());
                thread::spawn(move || {
                    launched.fetch_add(1, SeqCst);
                    thread::yield_now();
                    let begins = lock(&queue).mark_pending();
                    if begins {
                        notify(queue, launched, notified);
                    }
                })
            });
            launches.into_iter().for_each(|launch| launch.join().unwrap());
            assert_eq!(notified.load(SeqCst), 3);
            assert!(!lock(&queue).is_notifying && !lock(&queue).notify_pending);
        });
    }
}
