//! Notifies the clients of this process that wait for the end of a hierarchy.
//!
//! A notification only reduces latency: a client also polls. The store in memory notifies the clients of all processes.

use std::collections::HashMap;

use tokio::sync::watch;
use uuid::Uuid;

use crate::util::sync::{Mutex, MutexGuard, lock};

/// The clients of this process that wait for the end of a hierarchy.
#[derive(Default)]
pub(crate) struct Completions(Mutex<HashMap<Uuid, Entry>>);

/// The sender of completions of a root.
#[derive(Default)]
struct Entry {
    sender: watch::Sender<RunEnd>,
    listeners: usize,
}

/// The end of a run of a root's message, for the clients that wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum RunEnd {
    Committed,
    /// A command of it is decided, and may have handlers that have not ended.
    Decided,
    /// To be read from the database.
    #[default]
    Unknown,
}

/// Listens for ends of runs of a root's message in this process. The last listener removes the entry of the root.
pub(crate) struct CompletionListener<'a> {
    completions: &'a Completions,
    root: Uuid,
    changes: watch::Receiver<RunEnd>,
}

impl CompletionListener<'_> {
    /// Returns the newest end since the last call; at once if there was one.
    pub(crate) async fn notified(&mut self) -> RunEnd {
        // The sender lives as long as this listener.
        let _ = self.changes.changed().await;
        *self.changes.borrow_and_update()
    }
}

impl Drop for CompletionListener<'_> {
    fn drop(&mut self) {
        let mut map = self.completions.map();
        let last = map.get_mut(&self.root).is_none_or(|entry| {
            entry.listeners -= 1;
            entry.listeners == 0
        });
        if last {
            map.remove(&self.root);
        }
    }
}

impl Completions {
    /// A listener for this root.
    pub(crate) fn listener(&self, root: Uuid) -> CompletionListener<'_> {
        let mut map = self.map();
        let entry = map.entry(root).or_default();
        entry.listeners += 1;
        CompletionListener { completions: self, root, changes: entry.sender.subscribe() }
    }

    /// Notifies the listeners of this root.
    pub(crate) fn notify(&self, root: Uuid, end: RunEnd) {
        if let Some(entry) = self.map().get(&root) {
            entry.sender.send_replace(end);
        }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Uuid, Entry>> {
        lock(&self.0)
    }
}

/// The start of a message that was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartedAs {
    /// This run in this process, and no other, since no other handler was subscribed. Once it has committed, so has
    /// everything that was launched.
    SingleLocalRun(Uuid),
    /// Not at all: a message with its unique key was there before.
    Earlier,
    /// Not by this attempt: its message was there, perhaps launched by an earlier attempt whose answer was lost.
    Found,
    Other,
}

#[cfg(test)]
mod interleavings {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;

    use shuttle::future::block_on;
    use shuttle::thread;

    use super::*;
    use crate::util::sync::explore;

    /// A client checks the state, then waits for the listener: an end between the two must not be lost.
    #[test]
    fn every_listener_is_notified_and_no_entry_is_left() {
        explore(|| {
            let (completions, root) = (Arc::new(Completions::default()), Uuid::nil());
            let ended = Arc::new(AtomicBool::new(false));
            let clients = [(); 3].map(|()| {
                let (completions, ended) = (completions.clone(), ended.clone());
                thread::spawn(move || {
                    let mut listener = completions.listener(root);
                    while !ended.load(SeqCst) {
                        thread::yield_now();
                        if block_on(listener.notified()) == RunEnd::Committed {
                            assert!(ended.load(SeqCst), "it rang for the end of another");
                        }
                    }
                })
            });
            completions.notify(Uuid::max(), RunEnd::Committed);
            completions.notify(root, RunEnd::Unknown);
            thread::yield_now();
            ended.store(true, SeqCst);
            completions.notify(root, RunEnd::Committed);
            clients.into_iter().for_each(|client| client.join().unwrap());
            assert!(completions.map().is_empty());
        });
    }
}
