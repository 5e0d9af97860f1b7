//! What all processes of a simulation share besides the database: what their code did, and what is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::scenario::{Emit, Versions};

/// Which code of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Code {
    Step,
    Undo,
    OnChildFailure,
    Finally,
}

/// One call of code.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) run: Uuid,
    pub(crate) handler: String,
    pub(crate) step: String,
    pub(crate) code: Code,
    pub(crate) iteration: u32,
    pub(crate) attempt: u32,
    /// The same for each attempt of one execution.
    pub(crate) key: Uuid,
    /// The number of the step in the scripts, whatever it is named.
    pub(crate) number: usize,
    /// The version of the saga in the program that called.
    pub(crate) version: u8,
    /// Whether the run chose a step.
    pub(crate) jumps: bool,
}

/// What all processes share.
#[derive(Default)]
pub(crate) struct World {
    notes: Mutex<Notes>,
    healed: AtomicBool,
}

/// What was noted.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) calls: Vec<Call>,
    /// What the handlers of a message are to do.
    pub(crate) messages: BTreeMap<Uuid, Emit>,
    /// What was found wrong on the way; by which call, if it was one: what a call found does not count if
    /// its outcome was refused, since then its run had gone on without it.
    pub(crate) wrong: Vec<(Option<usize>, String)>,
    /// What went wrong on purpose, and how often.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// The handlers that were struck out with what waited for them.
    pub(crate) dropped: BTreeSet<&'static str>,
    /// Whether each process that started was one of those that start in the end, and its versions.
    pub(crate) started: Vec<(bool, Versions)>,
    /// The message that was launched when all was at rest.
    pub(crate) fresh: Option<Uuid>,
}

impl World {
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all faults are over.
    pub(crate) fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    pub(crate) fn heal(&self) {
        self.healed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, fault: &'static str) {
        *self.notes().faults.entry(fault).or_default() += 1;
    }

    pub(crate) fn complain(&self, call: impl Into<Option<usize>>, what: String) {
        self.notes().wrong.push((call.into(), what));
    }
}

/// One process, as its code sees it.
#[derive(Clone, Default)]
pub(crate) struct Alive {
    pub(crate) world: Arc<World>,
    /// The version of the saga at hand.
    pub(crate) version: u8,
    dead: Arc<AtomicBool>,
}

impl Alive {
    pub(crate) fn new(world: Arc<World>) -> Self {
        Self { world, version: 0, dead: Arc::default() }
    }

    /// The same for a saga of this version.
    pub(crate) fn of(&self, version: u8) -> Self {
        Self { version, ..self.clone() }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// Goes on if the process lives. The dead do nothing.
    pub(crate) async fn or_never(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }
}
