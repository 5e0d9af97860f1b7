//! The session by which a process shows that it lives, and hears the others.

use tokio::sync::mpsc;
use uuid::Uuid;

use super::Memory;

/// A session. When it is dropped, its process counts as dead.
pub(crate) struct MemorySession {
    memory: Memory,
    number: u64,
    heard: mpsc::UnboundedReceiver<Uuid>,
    /// How often the newest notification is still to be passed on.
    repeats: u32,
}

impl Memory {
    /// Opens a session, and lets the others know of the worker that lives by it.
    pub(crate) async fn open_session(&self, worker: Uuid) -> sqlx::Result<MemorySession> {
        let (hears, heard) = mpsc::unbounded_channel();
        // Whatever becomes of the answer, the session is gone if nobody has it.
        let mut session = MemorySession { memory: self.clone(), number: 0, heard, repeats: 0 };
        let number = &mut session.number;
        self.run("register", |state| {
            *number = state.open(self.process, hears);
            state.workers.insert(worker, *number);
            Ok(())
        })
        .await?;
        Ok(session)
    }

    /// Ends all sessions of this process.
    #[cfg(feature = "simulation")]
    pub(crate) fn cut(&self) {
        self.at_once(|state| {
            let own = state.sessions.iter().filter(|(_, session)| session.process == self.process);
            let own: Vec<_> = own.map(|(number, _)| *number).collect();
            own.into_iter().for_each(|number| state.close(number));
        });
    }
}

impl MemorySession {
    /// Who said something, when somebody has; nothing if the session is gone.
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
