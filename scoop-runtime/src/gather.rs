//! Launches of a client that come at the same time share a statement and a commit.
//!
//! Nobody lingers: whoever comes while few are writing begins to write at once, and what comes
//! meanwhile is written together next. The writing is a task of its own, so whoever stops waiting
//! for his launch harms no other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::error::is_transient;
use crate::settings::CLIENT_CONNECTIONS;
use crate::store::{Launched, Store};

/// How many are written at once, in each of so many statements as there are connections.
const BATCH_MAX: usize = 200;

/// How much is written at once, in bytes of JSON; more only if a single message has more.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// How long others are not told again: each time takes a connection from whoever writes.
const TELL_PAUSE: Duration = Duration::from_millis(5);

/// The launches of a client that wait to be written.
pub(crate) struct Gathered {
    store: Store,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    writing: u32,
    /// Something was launched that nobody was told of.
    news: bool,
    telling: bool,
}

/// A launch, and who waits for it.
struct Waiting {
    message: Launched,
    answer: oneshot::Sender<sqlx::Result<()>>,
}

impl Gathered {
    pub(crate) fn new(store: Store) -> Arc<Self> {
        Arc::new(Self { store, queue: Mutex::default() })
    }

    /// Launches a message, perhaps with others, none of which may be there already.
    pub(crate) async fn launch(self: &Arc<Self>, message: Launched) -> sqlx::Result<()> {
        let (answer, answered) = oneshot::channel();
        if self.queue().add(Waiting { message, answer }) {
            tokio::spawn(Writer { gathered: self.clone(), done: false }.write());
        }
        answered.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what was taken, and tells each who waits.
    async fn write(self: &Arc<Self>, batch: Vec<Waiting>) {
        let (messages, mut answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|Waiting { message, answer }| (message, answer)).unzip();
        match self.store.launch_alone(&messages).await {
            Ok(launch) => {
                answers.into_iter().for_each(|answer| drop(answer.send(Ok(()))));
                self.announce(&launch.handlers);
            }
            Err(error) if answers.len() == 1 => {
                answers.pop().map(|answer| answer.send(Err(error)));
            }
            Err(error) if is_the_messages(&error) => {
                for (message, answer) in messages.iter().zip(answers) {
                    let _ = answer.send(self.write_alone(message).await);
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                answers.into_iter().for_each(|answer| drop(answer.send(Err(shared(&error)))));
            }
        }
    }

    async fn write_alone(self: &Arc<Self>, message: &Launched) -> sqlx::Result<()> {
        let launch = self.store.launch_alone(std::slice::from_ref(message)).await?;
        self.announce(&launch.handlers);
        Ok(())
    }

    /// Has whoever runs these handlers look: at once, but not again before a pause.
    pub(crate) fn announce(self: &Arc<Self>, handlers: &[String]) {
        if !handlers.is_empty() && self.queue().has_news() {
            tokio::spawn(self.clone().tell());
        }
    }

    async fn tell(self: Arc<Self>) {
        while self.queue().takes_news() {
            // Polling finds what nobody was notified of.
            let _ = self.store.notify(Uuid::nil()).await;
            tokio::time::sleep(TELL_PAUSE).await;
        }
    }
}

impl Queue {
    /// There is something to tell. Whether somebody has to begin telling.
    fn has_news(&mut self) -> bool {
        self.news = true;
        !std::mem::replace(&mut self.telling, true)
    }

    /// Whether there is something to tell. If not, whoever asks is done with telling.
    fn takes_news(&mut self) -> bool {
        self.telling = std::mem::take(&mut self.news);
        self.telling
    }

    /// Whether somebody has to begin writing.
    fn add(&mut self, waiting: Waiting) -> bool {
        self.waiting.push_back(waiting);
        let begins = self.writing < CLIENT_CONNECTIONS;
        self.writing += u32::from(begins);
        begins
    }

    /// As much as is written at once. If nobody waits, whoever asks is done with writing.
    fn take(&mut self) -> Option<Vec<Waiting>> {
        if self.waiting.is_empty() {
            self.writing -= 1;
            return None;
        }
        let mut bytes = 0;
        let fits = |waiting: &&Waiting| {
            bytes += waiting.message.bytes;
            bytes <= BATCH_BYTES_MAX
        };
        let count = self.waiting.iter().take(BATCH_MAX).take_while(fits).count();
        Some(self.waiting.drain(..count.max(1)).collect())
    }
}

/// Writes until nobody waits.
struct Writer {
    gathered: Arc<Gathered>,
    done: bool,
}

impl Writer {
    async fn write(mut self) {
        while let Some(batch) = self.next() {
            self.gathered.write(batch).await;
        }
    }

    fn next(&mut self) -> Option<Vec<Waiting>> {
        let batch = self.gathered.queue().take();
        self.done = batch.is_none();
        batch
    }
}

impl Drop for Writer {
    /// If it is stopped in the middle, another can take its place, and nobody waits for it.
    fn drop(&mut self) {
        if !self.done {
            let mut queue = self.gathered.queue();
            queue.writing -= 1;
            if queue.writing == 0 {
                queue.waiting.clear();
            }
        }
    }
}

/// Whether the server has refused what it was to write. Then nothing is written; after any
/// other failure, that may not be known.
fn is_the_messages(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some() && !is_transient(error)
}

/// The failure that several have in common, for one of them.
fn shared(error: &Arc<sqlx::Error>) -> sqlx::Error {
    match &**error {
        sqlx::Error::PoolClosed => sqlx::Error::PoolClosed,
        transient if is_transient(transient) => sqlx::Error::Io(std::io::Error::other(error.clone())),
        other => sqlx::Error::Protocol(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(bytes: usize) -> Waiting {
        let message = Launched::new("a", serde_json::Value::Null, bytes);
        Waiting { message, answer: oneshot::channel().0 }
    }

    fn taken(queue: &mut Queue) -> Vec<usize> {
        std::iter::from_fn(|| queue.take()).map(|batch| batch.len()).collect()
    }

    #[test]
    fn there_are_as_many_writers_as_connections() {
        let mut queue = Queue::default();
        assert_eq!([(); 4].map(|()| queue.add(waiting(1))), [true, true, false, false]);
        assert_eq!(taken(&mut queue), [4]);
        assert!(queue.add(waiting(1)), "one of them is done");
        assert!(!queue.add(waiting(1)));
    }

    #[test]
    fn what_comes_while_others_are_told_is_told_next() {
        let mut queue = Queue::default();
        assert!(queue.has_news() && queue.takes_news());
        assert!(!queue.has_news() && !queue.has_news(), "somebody is telling");
        assert!(queue.takes_news() && !queue.takes_news());
        assert!(queue.has_news(), "nobody is telling any more");
    }

    #[test]
    fn what_is_written_at_once_has_a_limit() {
        let mut queue = Queue::default();
        let large = BATCH_BYTES_MAX / 2 + 1;
        for bytes in [1; 2 * BATCH_MAX + 1].into_iter().chain([large, large, 2 * BATCH_BYTES_MAX, 1]) {
            queue.add(waiting(bytes));
        }
        assert_eq!(taken(&mut queue), [BATCH_MAX, BATCH_MAX, 2, 1, 1, 1]);
    }

    #[tokio::test]
    async fn whoever_waits_for_a_writer_that_is_stopped_is_told() {
        let pool = sqlx::PgPool::connect_lazy("postgres://nobody@127.0.0.1:1/none").unwrap();
        let sessions = crate::store::Sessions::new(&pool, 1, &crate::store::Access::default());
        let schema = crate::store::Schema::new("scoop").unwrap();
        let gathered = Gathered::new(crate::store::Tables::new(sessions, &schema).into());
        let (answer, answered) = oneshot::channel();
        let message = waiting(1).message;
        assert!(gathered.queue().add(Waiting { message, answer }));
        drop(Writer { gathered: gathered.clone(), done: false });
        assert!(answered.await.is_err());
        assert!(gathered.queue().add(waiting(1)), "another one takes its place");
    }
}
