//! State shared by all processes of a simulation besides the database: calls of code, and violations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::scenario::{Emit, Versions};

/// The kind of code of a step.
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
    /// A key shared by all attempts of one execution.
    pub(crate) key: Uuid,
    /// The number of the step in the scripts, independent of its name.
    pub(crate) number: usize,
    /// The version of the saga in the program that called.
    pub(crate) version: u8,
    /// Whether the run chose a step.
    pub(crate) jumps: bool,
}

/// State shared by all processes.
#[derive(Default)]
pub(crate) struct World {
    notes: Mutex<Notes>,
    healed: AtomicBool,
}

/// Notes of the processes.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) calls: Vec<Call>,
    /// The scripts for the handlers of a message.
    pub(crate) messages: BTreeMap<Uuid, Emit>,
    /// Violations noted during the simulation, with the call that noted one, if any. A violation noted by a
    /// call does not count if the outcome of the call was refused: its run had gone on without it.
    pub(crate) wrong: Vec<(Option<usize>, String)>,
    /// Number of the faults that were injected.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// For each process that started: whether it is one of those that start in the end, and its versions.
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

/// One process, as seen by its code.
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

    /// A copy for a saga of this version.
    pub(crate) fn of(&self, version: u8) -> Self {
        Self { version, ..self.clone() }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// Goes on if the process lives. In a dead process it never returns.
    pub(crate) async fn or_never(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }
}
