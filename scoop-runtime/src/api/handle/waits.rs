//! The handles of a program that wait: one task looks for all of them, with one statement for many messages.
//!
//! A look of its own for each handle would load the server with the number of handles, and take the connections of the
//! sagas. The task begins with the first wait and ends with the last. It makes one statement at a time, so that it
//! takes one connection. It only says that a handle has something to read: the handle reads that itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use crate::engine::Engine;
use crate::store::{Store, Waited};
use crate::util::retries::{GivenUp, Retries};
use crate::util::sync::{Mutex, MutexGuard, lock};

/// First pause before a message is looked at again, doubled each time up to [`Waits::pause_max`].
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(2);

/// The longest pause. Another process may end a hierarchy, which no notification tells.
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(250);

/// [`PAUSE_MAX`] in memory, where the end of each hierarchy is notified to all processes.
#[cfg(feature = "in-memory")]
const PAUSE_MAX_IN_MEMORY: Duration = Duration::from_secs(60 * 60);

/// The number of messages in a statement.
const MESSAGES_MAX: usize = 1_000;

/// The task rests for this many times as long as it has looked.
const REST: u32 = 3;

/// A handle that is not looked at for so long, beyond its pause, has another task look: the runtime of this one may not be
/// driven any more, or its connection may hang.
const STALLED: Duration = Duration::from_secs(10);

/// The waits of a program.
pub(crate) struct Waits {
    store: Store,
    engine: Option<Arc<Engine>>,
    waiting: Mutex<Waiting>,
    /// Notified when a message is to be looked at before the task would.
    changed: Notify,
}

#[derive(Default)]
struct Waiting {
    messages: BTreeMap<u64, Entry>,
    next: u64,
    /// The number of the newest task, while it looks.
    task: Option<u64>,
    tasks: u64,
}

/// A message that a handle waits for.
struct Entry {
    waited: Waited,
    /// Its only run, if that was started in this process. While it is in flight here, its end will be notified.
    local_run: Option<Uuid>,
    looked_at: Instant,
    pause: Duration,
    ended: oneshot::Sender<()>,
}

/// A handle that waits. It leaves the others when it is dropped.
pub(super) struct Wait<'a> {
    waits: &'a Arc<Waits>,
    number: u64,
    ended: oneshot::Receiver<()>,
}

impl Waits {
    pub(crate) fn new(store: Store, engine: Option<Arc<Engine>>) -> Arc<Self> {
        Arc::new(Self { store, engine, waiting: Mutex::default(), changed: Notify::new() })
    }

    /// The longest pause between two looks at a message.
    pub(super) fn pause_max(&self) -> Duration {
        match self.store {
            #[cfg(feature = "in-memory")]
            Store::Memory(_) => PAUSE_MAX_IN_MEMORY,
            Store::Postgres(_) => PAUSE_MAX,
        }
    }

    /// Waits for a message, which is looked at after this pause for the first time.
    pub(super) fn wait(
        self: &Arc<Self>,
        waited: Waited,
        local_run: Option<Uuid>,
        pause: Duration,
    ) -> Wait<'_> {
        let (sender, ended) = oneshot::channel();
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        let entry = Entry { waited, local_run, looked_at: Instant::now(), pause, ended: sender };
        waiting.messages.insert(number, entry);
        let task = if waiting.task.is_none() { Some(waiting.new_task()) } else { None };
        drop(waiting);
        self.begin(task);
        self.changed.notify_one();
        Wait { waits: self, number, ended }
    }

    /// Begins the task of this number, if any. Not under the lock: where no task can be spawned, this one is dropped, and locks.
    fn begin(self: &Arc<Self>, number: Option<u64>) {
        if let Some(number) = number {
            let task = Task { waits: self.clone(), number };
            tokio::spawn(async move { task.run().await });
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }

    fn is_in_flight(&self, run: Option<Uuid>) -> bool {
        run.zip(self.engine.as_ref()).is_some_and(|(run, engine)| engine.is_in_flight(run))
    }
}

impl Waiting {
    /// The number of a task, which replaces an earlier one.
    fn new_task(&mut self) -> u64 {
        self.tasks += 1;
        self.task = Some(self.tasks);
        self.tasks
    }
}

impl Wait<'_> {
    /// Returns when the handle has something to read: the end, or an error.
    pub(super) async fn ended(&mut self) {
        loop {
            let stalled = self.waits.pause_max() + STALLED;
            match tokio::time::timeout(stalled, &mut self.ended).await {
                // Without an answer the task is gone.
                Ok(Ok(()) | Err(_)) => return,
                Err(_) => {
                    let mut waiting = self.waits.waiting();
                    let own = waiting.messages.get(&self.number);
                    let is_stalled = own.is_some_and(|own| own.looked_at.elapsed() >= stalled);
                    let task = if is_stalled { Some(waiting.new_task()) } else { None };
                    drop(waiting);
                    self.waits.begin(task);
                }
            }
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waits.waiting();
        waiting.messages.remove(&self.number);
        if waiting.messages.is_empty() {
            waiting.task = None;
            // So that the task ends.
            self.waits.changed.notify_one();
        }
    }
}

/// The task that looks. If its runtime drops it, the handles begin another one.
struct Task {
    waits: Arc<Waits>,
    number: u64,
}

impl Drop for Task {
    fn drop(&mut self) {
        let mut waiting = self.waits.waiting();
        if waiting.task == Some(self.number) {
            waiting.task = None;
            waiting.messages.clear();
        }
    }
}

/// What a task does next.
enum Action {
    Read(Vec<(u64, Waited)>),
    /// Nothing before this time, if there is any.
    Rest(Option<Instant>),
    End,
}

impl Task {
    async fn run(&self) {
        loop {
            match self.next_action() {
                Action::Read(messages) => {
                    let began = Instant::now();
                    for messages in messages.chunks(MESSAGES_MAX) {
                        self.read(messages).await;
                    }
                    let rest = began.elapsed() * REST;
                    if !rest.is_zero() {
                        tokio::time::sleep(rest).await;
                    }
                }
                Action::Rest(until) => {
                    let until = async {
                        match until {
                            Some(until) => tokio::time::sleep_until(until).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = until => {}
                        () = self.waits.changed.notified() => {}
                    }
                }
                Action::End => {
                    // A notification may have been for the task that replaces this one.
                    self.waits.changed.notify_one();
                    return;
                }
            }
        }
    }

    /// The messages that are due, if one is at the end of its pause: then also those that are past the half of theirs, so
    /// that messages with one pause come together.
    fn next_action(&self) -> Action {
        let (now, pause_max) = (Instant::now(), self.waits.pause_max());
        let mut waiting = self.waits.waiting();
        if waiting.task != Some(self.number) {
            return Action::End;
        }
        let mut next: Option<Instant> = None;
        for entry in waiting.messages.values_mut() {
            if entry.looked_at + entry.pause <= now && self.waits.is_in_flight(entry.local_run) {
                entry.looked(now, pause_max);
            }
            let due = entry.looked_at + entry.pause;
            next = Some(next.map_or(due, |next| next.min(due)));
        }
        if next.is_none_or(|next| next > now) {
            return Action::Rest(next);
        }
        let mut due = vec![];
        for (number, entry) in &mut waiting.messages {
            if entry.looked_at + entry.pause / 2 <= now && !self.waits.is_in_flight(entry.local_run) {
                due.push((*number, entry.waited));
            }
        }
        Action::Read(due)
    }

    /// Looks at these messages, and tells the handles of those that have ended. A handle reads an error itself, too.
    async fn read(&self, messages: &[(u64, Waited)]) {
        let waited: Vec<_> = messages.iter().map(|(_, waited)| *waited).collect();
        let ended = Retries::new(Duration::ZERO).run(|_| self.waits.store.ended(&waited)).await;
        let ended = ended.map_err(GivenUp::error("the ends of hierarchies were looked up"));
        let (now, pause_max) = (Instant::now(), self.waits.pause_max());
        let mut waiting = self.waits.waiting();
        for (number, waited) in messages {
            let has_ended = match &ended {
                Ok(ended) => ended.contains(&waited.message),
                Err(error) => !error.is_transient(),
            };
            if has_ended {
                if let Some(entry) = waiting.messages.remove(number) {
                    // The handle may be gone.
                    let _ = entry.ended.send(());
                }
            } else if let Some(entry) = waiting.messages.get_mut(number) {
                entry.looked(now, pause_max);
            }
        }
    }
}

impl Entry {
    fn looked(&mut self, now: Instant, pause_max: Duration) {
        self.looked_at = now;
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, pause_max);
    }
}
