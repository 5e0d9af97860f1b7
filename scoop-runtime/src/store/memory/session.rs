//! The session that marks a process as alive, and receives the notifications of others.

use time::OffsetDateTime;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::MemoryStore;
use super::state::{State, Worker};
use crate::model::handlers::GoneHandler;
use crate::store::Registered;

/// A session. When it is dropped, its process counts as dead.
pub(crate) struct MemorySession {
    memory: MemoryStore,
    number: u64,
    heard: mpsc::UnboundedReceiver<Uuid>,
    /// How often the newest notification is still to be delivered.
    repeats: u32,
}

impl MemoryStore {
    /// Opens a session, registers its worker, and notifies the others.
    pub(crate) async fn open_session(
        &self,
        registered: Registered<'_>,
    ) -> sqlx::Result<(MemorySession, OffsetDateTime, Vec<GoneHandler>)> {
        let (hears, heard) = mpsc::unbounded_channel();
        // Created first, so that the session ends with this future if its answer is lost.
        let mut session = MemorySession { memory: self.clone(), number: 0, heard, repeats: 0 };
        let number = &mut session.number;
        let (started_at, retired) = self
            .run("register", |state| {
                *number = state.open(self.process, hears);
                Ok(state.register(*number, registered))
            })
            .await?;
        Ok((session, started_at, retired))
    }

    #[cfg(feature = "simulation")]
    pub(crate) fn cut(&self) {
        self.at_once(|state| {
            let own = state.sessions.iter().filter(|(_, session)| session.process == self.process);
            let own: Vec<_> = own.map(|(number, _)| *number).collect();
            own.into_iter().for_each(|number| state.close(number));
        });
    }
}

impl State {
    /// Registers the worker of this session, and notifies the others. Returns when the worker started.
    fn register(&mut self, session: u64, registered: Registered<'_>) -> (OffsetDateTime, Vec<GoneHandler>) {
        let known = self.workers.get(&registered.worker).map(|worker| worker.started_at);
        let started_at = known.or(registered.started_at).unwrap_or_else(|| self.now());
        let topology = super::state::micros(self.now());
        let (handlers, definitions) = (registered.handlers.to_vec(), registered.definitions.to_vec());
        let topics = registered.topics.to_vec();
        let (acknowledged, program) = (0, registered.program.clone());
        let worker =
            Worker { session, topics, handlers, definitions, started_at, topology, acknowledged, program };
        self.workers.insert(registered.worker, worker);
        let retired = self.own_handlers(registered);
        self.change_topology(registered.handlers);
        self.notify(registered.worker);
        (started_at, retired)
    }
}

impl MemorySession {
    /// Waits for a notification, and returns its sender; `None` if the session is gone.
    ///
    /// # Cancel safety
    ///
    /// A notification whose arrival is delayed is lost.
    pub(crate) async fn hear(&mut self) -> Option<Uuid> {
        if self.repeats > 0 {
            self.repeats -= 1;
            return Some(Uuid::nil());
        }
        loop {
            let from = self.heard.recv().await?;
            let times = self.memory.link.heard().await;
            if let Some(repeats) = times.checked_sub(1) {
                self.repeats = repeats;
                return Some(from);
            }
        }
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.memory.at_once(|state| state.close(self.number));
    }
}
